"""Shell completion of codons, checkpoints and runs, and the options that take one.

Completion must be fast and quiet: it reads the files of an execution, asks no server, imports
little and decodes only the fields it needs.
Nothing here raises; on any error there are no suggestions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from hankweave_protocol.ids import Sha
from hankweave_server.cli.output.text import moment
from hankweave_server.domain.checkpoints.titles import title
from hankweave_server.errors import Stop
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TAIL = 4 * 1024 * 1024
"""Bytes at the end of the journal that are searched for checkpoints."""

MOST = 200
SHOWN = 12
"""Characters of a checkpoint's hash."""


class _Entry(msgspec.Struct, rename="camel"):
    codon_id: str


class _Run(msgspec.Struct, rename="camel"):
    run_id: str
    status: str


class _State(msgspec.Struct, rename="camel"):
    execution_plan: tuple[_Entry, ...] = ()
    runs: tuple[_Run, ...] = ()


class _Coordinate(msgspec.Struct, rename="camel"):
    codon_id: str | None = None


class _Checkpoint(msgspec.Struct, rename="camel"):
    sha: Sha
    kind: str
    timestamp: str
    coordinate: _Coordinate
    label: str | None = None
    summary: str | None = None


class _Created(msgspec.Struct):
    checkpoint: _Checkpoint


class _Body(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Transition(msgspec.Struct):
    transition: _Body


class _Line(msgspec.Struct):
    type: str
    data: msgspec.Raw


def codons(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the codons of the plan."""
    plan = _state(context).execution_plan
    return _items(((entry.codon_id, "") for entry in plan), typed)


def runs(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the runs, newest first, with their status."""
    return _items(((run.run_id, run.status) for run in _state(context).runs), typed)


def checkpoints(
    context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Complete the newest checkpoints, with kind, codon, time and title, but no older ones."""
    return _items(_newest(_tail_of(context)), typed)


def _items(found: Iterable[tuple[str, str]], typed: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    fitting = [(name, text) for name, text in found if name.startswith(typed)]
    return [CompletionItem(name, help=text or None) for name, text in fitting[:MOST]]


# --- from the files -------------------------------------------------------------------------------


def _layout_of(context: click.Context) -> Layout | None:
    from hankweave_server.local.targeting import root_of

    named: Path | None = context.params.get("execution")
    try:
        root = root_of(named)
    except (Stop, OSError):
        return None

    return Layout.of_execution(root)


def _state(context: click.Context) -> _State:
    layout = _layout_of(context)
    try:
        return (
            _State()
            if layout is None
            else msgspec.json.decode(layout.state.read_bytes(), type=_State)
        )
    except (OSError, msgspec.MsgspecError):
        return _State()


def _tail_of(context: click.Context) -> list[bytes]:
    layout = _layout_of(context)
    if layout is None:
        return []

    try:
        with layout.journal.open("rb") as journal:
            journal.seek(max(0, journal.seek(0, 2) - TAIL))
            return journal.read().split(b"\n")
    except OSError:
        return []


def _newest(lines: list[bytes]) -> Iterator[tuple[str, str]]:
    for line in reversed(lines):
        if b'"CheckpointCreated"' not in line:
            continue

        try:
            made = _created(line)
        except msgspec.MsgspecError:
            continue  # The first line of the tail may be incomplete.

        if made is not None:
            codon = made.coordinate.codon_id
            called = title(made.kind, codon, label=made.label, summary=made.summary)
            text = f"{made.kind} {codon or '-'} {moment(made.timestamp)}"
            yield made.sha[:SHOWN], f"{text} {one_line(called)}"


def _created(line: bytes) -> _Checkpoint | None:
    event = msgspec.json.decode(line, type=_Line)
    if event.type != "state.transition":
        return None

    body = msgspec.json.decode(event.data, type=_Transition).transition
    if body.type != "CheckpointCreated":
        return None

    return msgspec.json.decode(body.data, type=_Created).checkpoint


# --- options --------------------------------------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def checkpoint_option(*names: str, help: str, metavar: str = "SHA") -> Callable[[F], F]:
    """Return an option that takes a checkpoint."""
    return click.option(*names, metavar=metavar, shell_complete=checkpoints, help=help)


def codon_option(*names: str, help: str, metavar: str = "CODON") -> Callable[[F], F]:
    """Return an option that takes a codon."""
    return click.option(*names, metavar=metavar, shell_complete=codons, help=help)
