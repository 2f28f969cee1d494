"""Facts about an execution from its files alone, read quickly and without changing any.

The state of one execution never raises here: an unreadable one is listed with its problem.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.shapes import Value
from hankweave_server.domain.checkpoint_records import on_record
from hankweave_server.domain.execution_thread import is_done, next_codon, thread
from hankweave_server.domain.inheritance import NO_SERVER
from hankweave_server.domain.lifecycle import is_of_stop
from hankweave_server.errors import Stop
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.typescript_format import decode_state
from hankweave_server.local.journals import journal_lines
from hankweave_server.local.living import living_server
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source
from hankweave_server.worktree.removal import size_of

MANAGED_NAME = re.compile(r"\d{13}-[0-9a-z]{4}-(?:[0-9a-f]{6}|nodata)")

Standing = Literal[
    "new",
    "running",
    "completed",
    "failed",
    "stopped",
    "crashed",
    "waiting",
    "removing",
    "unreadable",
]

_BEHIND = ("completed", "skipped")


class ListedExecution(Value, kw_only=True, omit_defaults=False):
    """One execution, as `hankweave ls --json` prints it."""

    path: str
    state: Standing
    """`stopped`: its server was ended during a codon, and a start resumes there; `waiting`: a
    branch that has never been served; `removing`: a cleanup was interrupted."""
    hank: str | None = None
    data: str | None = None
    last_codon: str | None = None
    codons_done: int = 0
    """Entries of the plan on the current line that have succeeded or were skipped."""
    codons_planned: int = 0
    last_used: str | None = None
    server_pid: int | None = None
    """The pid of the server that is running there."""
    checkpoints: int | None = None
    """Null if counting would take too long."""
    bytes: int | None = None
    is_branch: bool = False
    attempt: str | None = None
    """The id of the attempt that it is, of an exploration of another execution."""
    attempt_of: str | None = None
    """The path of that execution."""
    in_place: bool = False
    problem: str | None = None
    """The reason why it cannot be read."""


class _Reason(msgspec.Struct, rename="camel"):
    message: str | None = None


class _Codon(msgspec.Struct, rename="camel"):
    codon_id: str
    status: str
    failure_reason: _Reason | None = None


class _Run(msgspec.Struct, rename="camel"):
    status: str
    codons: tuple[_Codon, ...] = ()
    server_pid: int | None = None


class _Planned(msgspec.Struct, rename="camel"):
    codon_id: str | None = None


class _State(msgspec.Struct, rename="camel"):
    """The fields of state.json that are needed; all others are skipped, not decoded."""

    runs: tuple[_Run, ...] = ()
    execution_plan: tuple[_Planned, ...] = ()


def executions_in(root: Path) -> list[Path]:
    """Return the executions in a folder; symbolic links are not followed."""
    if not root.is_dir():
        return []

    with os.scandir(root) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    return [path for path in folders if state_folder_of(path) is not None]


def state_folder_of(execution: Path) -> Path | None:
    """Return the state folder of an execution; its other name means a removal in progress."""
    layout = Layout.of_execution(execution)
    for folder in (layout.state_directory, layout.removed_state):
        if folder.is_dir() and not folder.is_symlink():
            return folder

    return None


def listed(execution: Path) -> ListedExecution:
    """Return the facts that are quick to read."""
    layout = Layout.of_execution(execution)
    if state_folder_of(execution) == layout.removed_state:
        return ListedExecution(path=str(execution), state="removing", last_used=_touched(execution))

    try:
        meta = data_source.read_meta(layout)
        state = _state_of(layout)
    except (OSError, Stop, Refused, msgspec.MsgspecError) as problem:
        return ListedExecution(
            path=str(execution),
            state="unreadable",
            last_used=_touched(execution),
            server_pid=living_server(layout),
            problem=_sentence(problem),
        )

    return _told(layout, meta, state, living_server(layout))


def _told(
    layout: Layout, meta: ExecutionMeta | None, state: _State, server: int | None
) -> ListedExecution:
    newest = next((run.codons[-1] for run in state.runs if run.codons), None)
    origin = None if meta is None else meta.origin
    attempt = None if meta is None else meta.attempt
    return ListedExecution(
        path=str(layout.root),
        state=_standing(state, server),
        hank=None if meta is None else meta.hank_path,
        data=None if meta is None else meta.read_only_source_data_path,
        last_codon=None if newest is None else newest.codon_id,
        codons_done=_codons_done(layout, state),
        codons_planned=len(state.execution_plan),
        last_used=_last_used(layout, meta),
        server_pid=server,
        is_branch=origin is not None,
        attempt=None if attempt is None else attempt.attempt_id,
        attempt_of=None if attempt is None or origin is None else origin.execution_path,
        in_place=meta is not None and meta.in_place,
    )


def _codons_done(layout: Layout, state: _State) -> int:
    """Count the plan's completed entries; those undone by a rollback do not count."""
    try:
        whole = decode_state(layout.state.read_bytes())
    except FileNotFoundError:
        return 0
    except (OSError, Refused, ValueError):
        planned = {entry.codon_id for entry in state.execution_plan}
        codons = (codon for run in state.runs for codon in run.codons)
        return len(planned & {each.codon_id for each in codons if each.status in _BEHIND})

    plan = whole.execution_plan
    ahead = next_codon(whole)
    planned = {entry.codon_id for entry in plan if entry.codon_id != ahead}
    done = {entry.codon.codon_id for entry in thread(whole) if is_done(entry.codon, plan)}
    return len(planned & done)


def _standing(state: _State, server: int | None) -> Standing:
    if not state.runs:
        return "new" if server is None else "running"

    run = state.runs[0]
    match run.status:
        case "running" if server is not None:
            return "running"
        case "running":
            return "waiting" if run.server_pid == NO_SERVER and not run.codons else "crashed"
        case "failed" if _was_stopped(run):
            return "stopped"
        case "completed" | "failed" | "crashed":
            return run.status
        case _:
            return "unreadable"


def _was_stopped(run: _Run) -> bool:
    reason = run.codons[-1].failure_reason if run.codons else None
    return reason is not None and is_of_stop(reason.message)


def _state_of(layout: Layout) -> _State:
    try:
        content = layout.state.read_bytes()
    except FileNotFoundError:
        return _State()

    return msgspec.json.decode(content, type=_State)


def _last_used(layout: Layout, meta: ExecutionMeta | None) -> str:
    """Return when a server was last started there, or when it last saved the state."""
    try:
        saved = layout.state.stat().st_mtime
    except OSError:
        return _touched(layout.root) if meta is None else meta.last_used

    text = instants.to_text(instants.from_epoch(saved))
    return text if meta is None else max(text, meta.last_used)


def _touched(path: Path) -> str:
    try:
        return instants.to_text(instants.from_epoch(path.lstat().st_mtime))
    except OSError:
        return instants.to_text(instants.from_epoch(0))


def _sentence(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"{problem.strerror}: {problem.filename}"

    return problem.message if isinstance(problem, Stop) else f"state.json is damaged: {problem}"


# --- slower facts ---------------------------------------------------------------------------------


def measured(executions: list[ListedExecution], seconds: float | None) -> Iterator[ListedExecution]:
    """Add sizes and checkpoint counts, to as many as can be examined in `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    for each in executions:
        if deadline is not None and time.monotonic() > deadline:
            yield each
        else:
            root = Path(each.path)
            ours = Layout.in_place(root).state_directory if each.in_place else root
            yield msgspec.structs.replace(each, bytes=size_of(ours), checkpoints=_checkpoints(each))


def _checkpoints(each: ListedExecution) -> int | None:
    layout = Layout.of_execution(Path(each.path))
    try:
        if layout.journal.exists() and not typescript_format.find(layout.journal):
            return len(on_record(journal_lines(layout)).standing)

        # Imported here because only Hankweave's own events do not name checkpoints.
        from hankweave_server.local.reader import reading_store

        with reading_store(layout) as engine:
            return sum(1 for _ in engine.commits())
    except (OSError, msgspec.MsgspecError, Stop):
        return None if layout.shadow_repository.exists() else 0
