"""Which execution a command means when it names none, and what may be changed without asking.

The order is: the execution or project around the current directory; the only running server,
wherever it is; the execution that was used last, wherever it is. Attempts of explorations are
meant only by name: a command after an exploration means the execution that was explored. A command
that changes something prints which one it uses. Without a terminal it refuses an ambiguous choice,
and moving or removing files needs `--yes`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from hankweave_protocol import instants
from hankweave_protocol.state_directory import state_directory_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local import executions, short_ids
from hankweave_server.local.executions import can_ask, executions_root
from hankweave_server.local.living import living_server
from hankweave_server.local.register import all_executions, executions_outside
from hankweave_server.paths import Layout, is_map
from hankweave_server.plain_text import counted, one_line
from hankweave_server.runtime_lock.lock_file import read_record
from hankweave_server.worktree import data_source

_LISTED = 5
"""Executions that a message lists."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The execution that is meant, and the reason."""

    root: Path
    why: Literal["named", "here", "only server", "used last"]
    rivals: int = 1
    """The number of candidates: running servers, or executions if there is no server."""

    @property
    def is_ambiguous(self) -> bool:
        return self.why == "used last" and self.rivals > 1


def choose(execution: Path | None) -> Choice:
    """Return the execution that a command means; raise Stop if there is none at all."""
    if execution is not None:
        return Choice(named(execution), "named")

    here = executions.enclosing(Path.cwd())
    if here is not None:
        return Choice(here, "here")

    root = executions_root()
    usual = [path for path in _folders_in(root) if state_directory_of(path).is_dir()]
    known = usual + executions_outside(root)
    if not known:
        raise Stop(
            f"There is no execution in {root}.",
            ExitCode.NO_INPUT,
            hint="Start one with `hankweave run`, or name one with --execution.",
        )

    known = [path for path in known if not _is_attempt(path)] or known
    living = [path for path in known if living_server(Layout.of_execution(path))]
    if len(living) == 1:
        return Choice(living[0], "only server")

    candidates = living or known
    return Choice(max(candidates, key=_last_used), "used last", len(candidates))


def named(execution: Path, maps: Sequence[Path] = ()) -> Path:
    """Return the execution that a path or a short id names; raise Stop if it may be several.

    A path that exists comes first. What is neither is taken for a path. `maps` are meant as well.
    """
    path = execution.expanduser().absolute()
    if len(execution.parts) != 1 or os.path.lexists(path):
        return path

    match short_ids.named(str(execution), [*all_executions(executions_root()), *maps]):
        case []:
            return path
        case [one]:
            return one
        case several:
            listed = ", ".join(sorted(str(each) for each in several[:_LISTED]))
            raise Stop(
                f"{counted(len(several), 'execution')} have an id that begins with {execution}.",
                ExitCode.USAGE,
                hint=f"Give more characters of the id, or a path: {listed}.",
            )


def listening_on(port: int) -> Path:
    """Return the execution whose server listens on a port; raise Stop if none does."""
    for path in all_executions(executions_root()):
        layout = Layout.of_execution(path)
        record = read_record(layout.runtime_lock)
        if record is not None and record.port == port and living_server(layout):
            return path

    raise Stop(
        f"No server of an execution listens on port {port}.",
        ExitCode.UNAVAILABLE,
        hint="Name the execution with -e; `hankweave ls` shows which have a server.",
    )


def root_of(execution: Path | None) -> Path:
    """Return the execution that a command reads."""
    return choose(execution).root


def root_to_change(execution: Path | None) -> Path:
    """Return the execution that a command changes, and name it on stderr.

    Raises Stop if several could be meant and there is no terminal to ask on.
    """
    chosen = choose(execution)
    if chosen.is_ambiguous and not can_ask():
        raise Stop(
            f"There are {counted(chosen.rivals, 'execution')} to choose from, and no terminal to "
            "ask on.",
            ExitCode.USAGE,
            hint=f"Name one: `-e {shlex.quote(str(chosen.root))}` was used last; "
            "`hankweave ls` lists all.",
        )

    require_execution(chosen.root)
    announce(chosen.root)
    return chosen.root


def announce(root: Path) -> None:
    """Print the execution that is about to be changed on stderr."""
    click.echo(f"execution {one_line(str(root))}", err=True)


def require_consent(*, yes: bool, otherwise: str = "") -> None:
    """Raise Stop if consent is needed, there is no terminal to ask on, and `--yes` is missing.

    Called after `root_to_change`, so that the user knows what is meant.
    """
    if not yes and not can_ask():
        raise Stop(
            "Nothing was changed: confirmation is required, and there is no terminal to ask on.",
            ExitCode.USAGE,
            hint=" ".join(filter(None, ("Add --yes.", otherwise))),
        )


def confirm(question: str, list_files: Callable[[], None] | None = None) -> None:
    """Ask on the terminal, on stderr; raise Stop if the answer is no.

    With `list_files`, "files" is an answer as well, which lists them and asks again.
    """
    if not _agrees(question, list_files):
        raise Stop(
            "Nothing was changed.",
            ExitCode.FAILED,
            hint="You answered no; --yes skips the question.",
        )


def _agrees(question: str, list_files: Callable[[], None] | None) -> bool:
    if list_files is None:
        return click.confirm(question, err=True)

    while True:
        answer = click.prompt(
            f"{question} [y/N/files]", default="n", show_default=False, err=True
        ).lower()
        if answer not in ("f", "files"):
            return answer in ("y", "yes")

        list_files()


def require_execution(root: Path) -> None:
    """Raise Stop for a folder that is not an execution; name the one that contains it."""
    if state_directory_of(root).is_dir():
        return

    executions.refuse_misplaced(root)
    outer = executions.enclosing(root)
    if is_map(root):
        where = f"It is a map; `hankweave ls {shlex.quote(str(root))}` lists its executions."
    elif outer is not None:
        where = f"It is inside one: use `-e {shlex.quote(str(outer))}`."
    else:
        where = "Start one with `hankweave run`, or name one with --execution; `hankweave ls` "
        where += "lists them."

    raise Stop(f"There is no execution in {root}.", ExitCode.NO_INPUT, hint=where)


def attach_line(root: Path) -> str:
    """Return the command line that shows a running server, from whatever directory."""
    return f"hankweave attach -e {shlex.quote(str(root))}"


def start_line(root: Path) -> str:
    """Return the command line that starts the server of an execution, from whatever directory."""
    return f"hankweave run -e {shlex.quote(str(root))}"


def is_default(root: Path) -> bool:
    """Return whether a command that names no execution would mean this one."""
    try:
        return choose(None).root == root
    except (Stop, OSError):
        return False


def _folders_in(root: Path) -> list[Path]:
    return list(root.iterdir()) if root.is_dir() else []


def _is_attempt(path: Path) -> bool:
    meta = data_source.known_meta(Layout.of_execution(path))
    return meta is not None and meta.attempt is not None


def _last_used(path: Path) -> tuple[str, bool]:
    """Return when an execution was last served; a branch never served follows its original."""
    meta = data_source.known_meta(Layout.of_execution(path))
    if meta is None:
        return instants.to_text(instants.from_epoch(path.stat().st_mtime)), False

    return meta.last_used, meta.origin is None
