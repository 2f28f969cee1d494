"""The `hankweave` command: command lookup, help, error messages and exit codes."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

import click

from hankweave_server.cli.output.text import print_error, print_problems
from hankweave_server.cli.shared.invocation import translated
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.fsutil import next_step
from hankweave_server.hank.problems import HankInvalid
from hankweave_server.installed import FEATURES

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _index() -> dict[str, dict[str, str]]:
    """Return the commands of the core, and those of the features.

    `scripts/test --update-golden` writes the files, so that listing commands imports none.
    """
    top = Path(__file__).parent.parent
    found: dict[str, dict[str, str]] = {}
    for folder in ("cli", *(f"features/{name}" for name in FEATURES)):
        with suppress(FileNotFoundError):
            content = (top / folder / "commands.json").read_text(encoding="utf-8")
            found.update(json.loads(content))

    return dict(sorted(found.items()))


_INDEX: Final = _index()

PLACES: Final = {name: entry["module"] for name, entry in _INDEX.items()}
"""The module of each command."""

SUMMARIES: Final = {name: entry["summary"] for name, entry in _INDEX.items()}
"""The first sentence of each command's help."""

_GROUPS: Final = {
    "Start": ("init", "validate", "run", "resume", "agents", "demo"),
    "Watch": ("status", "attach", "log", "open", "permissions"),
    "Control": ("next", "stop", "skip", "retry", "allow", "deny"),
    "Time travel": ("show", "diff", "rollback", "undo", "redo", "branch"),
    "Answers": ("blame", "why", "bisect", "pickaxe", "report", "events"),
    "Many": ("explore", "adopt", "map", "ls", "cleanup"),
}

GROUPS: Final = {
    group: tuple(name for name in names if name in PLACES) for group, names in _GROUPS.items()
}
"""The commands that `--help` shows. `help --all` lists the others as well."""

_OLD_NAMES: Final = {"preview": "rollback --preview", "sessions": "runs", "history": "checkpoints"}

OLD_NAMES: Final = {old: new for old, new in _OLD_NAMES.items() if old in PLACES}
"""Commands that are kept for scripts, each with what has taken its place."""


class OnDemand(click.Group):
    """A group that imports a command's module on first use, to keep a server's memory small."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _noticing_a_closed_pipe():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _noticing_a_closed_pipe():
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate the command line of the original Hankweave, then parse it."""
        if not ctx.resilient_parsing:
            args = translated(args, PLACES)

        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in PLACES and not name.startswith("-"):
            raise click.UsageError(_unknown_command(name), ctx)

        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PLACES.keys() - OLD_NAMES.keys())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by groups; what each does would fill the screen."""
        formatter.write_text(self.help or "")
        formatter.write_paragraph()
        formatter.indent()
        formatter.write_dl(
            [(group, "  ".join(names)) for group, names in GROUPS.items()], col_spacing=3
        )
        formatter.dedent()
        formatter.write(_MORE_HELP)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing a command: the shell waits at every tab."""
        fitting = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(_item(name) for name in fitting), *options]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PLACES:
            return None

        module = import_module(f"hankweave_server.{PLACES[cmd_name]}")
        commands: Sequence[click.Command] = module.COMMANDS
        return next(command for command in commands if command.name == cmd_name)


def _show_version(context: click.Context) -> None:
    # Imported here because the lookup takes longer than parsing the command line.
    from hankweave_server import __version__

    click.echo(f"hankweave, version {__version__}")
    context.exit()


class ReaderGone(Exception):
    """The reader of our output has closed the pipe.

    Left to itself, click would turn the BrokenPipeError into exit code 1.
    """


@contextmanager
def _noticing_a_closed_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None


def _unknown_command(name: str) -> str:
    near = difflib.get_close_matches(name, PLACES.keys() - OLD_NAMES.keys(), n=1)
    return f"There is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else "")


_MORE_HELP = """
  `hankweave help --all` lists the rest; `hankweave COMMAND -h` explains one.
  First steps: hankweave demo
"""


def _item(name: str) -> CompletionItem:
    from click.shell_completion import CompletionItem

    return CompletionItem(name)


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _show_version(context) if wanted else None,
    help="Show the version and exit.",
)
def cli() -> None:
    """Run agents through steps on your data, and go back to any moment."""


@click.command(name="help")
@click.argument("command", required=False)
@click.option("--all", "everything", is_flag=True, help="List every command, and what it does.")
@click.pass_context
def show_help(context: click.Context, command: str | None, everything: bool) -> None:
    """Show the commands by groups, or the help of COMMAND.

    \b
    hankweave help --all
    hankweave help rollback
    """
    above = context.parent
    assert above is not None, "it is a command of the group"
    if command is not None:
        name, found, _ = cli.resolve_command(above, [command])
        assert found is not None, "an unknown name is refused"
        click.echo(found.get_help(click.Context(found, above, name)))
    elif everything:
        click.echo(_whole_list(above))
    else:
        click.echo(above.get_help())


_WIDEST_LIST = 120
"""Columns at most; the sentences are shorter than that."""


def _whole_list(context: click.Context) -> str:
    formatter = click.HelpFormatter(max_width=_WIDEST_LIST)
    shown = {name for names in GROUPS.values() for name in names}
    rest = (name for name in cli.list_commands(context) if name not in shown)
    widest = max(map(len, PLACES))  # The columns of all groups stand below each other.
    limit = formatter.width - 6 - widest
    for group, names in (*GROUPS.items(), ("More", tuple(rest))):
        with formatter.section(group):
            formatter.write_dl(
                [
                    (name.ljust(widest), shorten(SUMMARIES[name], limit, placeholder="..."))
                    for name in names
                ]
            )

    with formatter.section("Older names, which still work"):
        formatter.write_dl(
            [(old.ljust(widest), f"Use `hankweave {new}`.") for old, new in OLD_NAMES.items()]
        )

    with formatter.section("Options"):
        formatter.write_dl(
            [
                record
                for each in cli.get_params(context)
                if (record := each.get_help_record(context))
            ]
        )

    return formatter.getvalue().rstrip("\n")


COMMANDS = (show_help,)


def use_utf8() -> None:
    """Start this process again in Python's UTF-8 mode, unless it takes names for UTF-8 already.

    Whatever the locale, the names in a hank, in the journal and on the wire are UTF-8. An
    interpreter with another encoding for files would refuse them, or mean other bytes by them. It
    cannot change its encoding. Python 3.15 has the UTF-8 mode by default.
    """
    if sys.getfilesystemencoding() == "utf-8" or not sys.executable:
        return

    sys.stdout.flush()
    # The first -X utf8 counts, so the second start cannot lead to a third.
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; report every expected error as a message and an exit code."""
    use_utf8()
    try:
        cli.main(args=arguments, prog_name="hankweave", standalone_mode=False)
    except Stop as stop:
        print_error(stop.message, stop.hint, stop.code)
        sys.exit(stop.exit_code)
    except HankInvalid as invalid:
        print_problems(invalid)
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (ReaderGone, BrokenPipeError):
        # A reader may close the pipe at any time. Send what is still buffered to /dev/null, and end
        # with the exit code of SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        hint = None if error.errno is None else next_step(error)
        print_error(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), hint)
        sys.exit(ExitCode.IO_ERROR)
