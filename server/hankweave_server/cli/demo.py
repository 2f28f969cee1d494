"""`hankweave demo`: run the example with the earthquakes, without a model or a network."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click

from hankweave_protocol.state_directory import state_directory_of
from hankweave_server.cli.shared import starter_files
from hankweave_server.errors import ExitCode, Stop

EXAMPLE = "earthquakes"
HANK = "hank"
EXECUTION = "execution"
DEFAULT = Path("hankweave-demo")
PYTHON = (3, 11)
"""The version of Python that the example needs."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=DEFAULT)
def demo(directory: Path) -> None:
    """Run an example on real data in DIRECTORY, and print what to try next.

    DIRECTORY defaults to hankweave-demo, and must be new or empty. Five steps turn the earthquakes
    of one week into a JSON Schema, typed code, and a proof that every row fits. Small
    programs take the place of agents: no model, key or network is needed, and nothing is spent.

    \b
    hankweave demo
    hankweave demo ~/quakes
    """
    # Imported here so that `--help` and usage errors do not load a server.
    from hankweave_server.cli.run import run
    from hankweave_server.cli.shared.run_settings import settings_of, variables_of
    from hankweave_server.cli.shared.serving import serve
    from hankweave_server.config import WEBHOOK_SECRET

    starter_files.require_directory(directory)
    if directory.is_dir() and any(directory.iterdir()):
        raise _taken(directory)

    hank = directory / HANK
    starter_files.write(hank, starter_files.files_of(EXAMPLE))
    click.echo(
        f"Wrote the example to {hank}. "
        "Its agents are programs: nothing is spent, and their costs are estimates."
    )
    if not _has_python():
        # The one that runs this has the right version. A later run has another PATH then
        # and reuses nothing.
        os.environ["PATH"] = os.pathsep.join(
            (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        )

    execution = directory / EXECUTION
    words = [str(hank), str(hank / "data"), "-e", str(execution), "--headless"]
    given = run.make_context("hankweave run", words).params
    code = serve(settings_of(given, variables_of(run) | {WEBHOOK_SECRET}))
    if code is not ExitCode.DONE:
        raise Stop(
            "The example did not complete.",
            code,
            hint=f"`hankweave log -e {shlex.quote(str(execution))}` shows what happened.",
        )

    click.echo(next_steps(execution))


def _has_python() -> bool:
    """Return whether `python3`, which the example calls, is there and new enough."""
    program = shutil.which("python3")
    if program is None:
        return False

    test = f"import sys; sys.exit(sys.version_info < {PYTHON})"
    return subprocess.run((program, "-c", test), check=False).returncode == 0


def _taken(directory: Path) -> Stop:
    hint = "Name a new directory: `hankweave demo another-demo`."
    if state_directory_of(directory / EXECUTION).is_dir():
        place = shlex.quote(str(directory / EXECUTION))
        hint += f" `hankweave log -e {place}` shows what happened in this one."

    return Stop(f"{directory} is not empty.", ExitCode.CANNOT_CREATE, hint=hint)


def next_steps(execution: Path) -> str:
    """Return commands to try, each on a line of its own, so that it can be pasted."""
    place = shlex.quote(str(execution))
    summary = shlex.quote(str(execution / "agentRoot" / "reports" / "summary.md"))
    steps = (
        "Try next, from here:",
        f"  cat {summary}",
        f"  hankweave log -e {place}",
        "Every moment to go back to, and going back to the end of a step:",
        f"  hankweave checkpoints -e {place}",
        f"  hankweave rollback -e {place} --codon infer --preview",
        f"  hankweave rollback -e {place} --codon infer --yes",
        f"  hankweave undo -e {place} --yes",
        "The page; open the address that this prints:",
        f"  hankweave run -e {place}",
        "A hank of your own, for Claude Code:",
        "  hankweave init my-hank",
    )
    return "\n".join(("", *steps))


COMMANDS = (demo,)
