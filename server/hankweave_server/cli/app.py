"""The `hankweave` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from hankweave_server import __version__
from hankweave_server.cli import (
    beginning,
    branching,
    events,
    housekeeping,
    looking,
    remote,
    running,
    storing,
    travelling,
    validating,
)
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hanks.load import HankInvalid


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hankweave")
def cli() -> None:
    """Run pipelines of agents, checkpoint every step, and go back to any of them."""


cli.add_command(running.run)
cli.add_command(validating.validate)
cli.add_command(beginning.init)
cli.add_command(events.events)
for command in (
    *remote.COMMANDS,
    *travelling.COMMANDS,
    *storing.COMMANDS,
    *branching.COMMANDS,
    *looking.COMMANDS,
    *housekeeping.COMMANDS,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; every end a person can meet is a sentence and an exit code."""
    try:
        cli.main(args=arguments, prog_name="hankweave", standalone_mode=False)
    except Stop as stop:
        _complain(stop.message, stop.hint)
        sys.exit(stop.exit_code)
    except HankInvalid as invalid:
        for problem in invalid.problems:
            _complain(problem.located(invalid.file), problem.suggestion)

        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away: that is its right (SIGPIPE's exit code).
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        _complain(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), None)
        sys.exit(ExitCode.IO_ERROR)


def _complain(message: str, hint: str | None) -> None:
    click.echo(f"hankweave: {message}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)
