"""Facts about an execution from its files alone, read quickly and without changing any.

The state of one execution never raises here: an unreadable one is listed with its problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import (
    AssistantAction,
    CodonStartedEvent,
    PermissionRequested,
    PermissionResolved,
    ServerIdle,
)
from hankweave_protocol.executions import ListedExecution, Standing
from hankweave_protocol.records import ExecutionMeta
from hankweave_server.domain.checkpoints.records import on_record
from hankweave_server.domain.costs import dollars_of, total_cost
from hankweave_server.domain.execution_thread import is_done, next_codon, thread
from hankweave_server.domain.inheritance import NO_SERVER
from hankweave_server.domain.lifecycle import is_of_stop
from hankweave_server.domain.permission_patterns import arguments_of
from hankweave_server.domain.plan import NO_PROGRESS, Progress, progress
from hankweave_server.errors import Stop
from hankweave_server.fsutil import content_of
from hankweave_server.installed import parts
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.ledger.typescript_format import decode_state
from hankweave_server.local.journals import journal_lines, searching_journal
from hankweave_server.local.living import living_server
from hankweave_server.local.page_address import address_in_lock
from hankweave_server.local.register import all_executions
from hankweave_server.paths import Layout, map_of
from hankweave_server.plain_text import one_line
from hankweave_server.worktree import data_source
from hankweave_server.worktree.removal import size_of

LONGEST = 200
"""Maximum characters of a call or a sentence."""

_BEHIND = ("completed", "skipped")
_REACH = 1 << 20
"""Bytes at the end of a journal in which the present work of an agent is looked for."""

_WORK = of_types(
    kind.TYPE
    for kind in (
        AssistantAction,
        CodonStartedEvent,
        PermissionRequested,
        PermissionResolved,
        ServerIdle,
    )
)


# --- what the files tell --------------------------------------------------------------------------


class _Reason(msgspec.Struct, rename="camel"):
    type: str = "unknown"
    message: str | None = None


class _Wait(msgspec.Struct):
    until: str


class _Codon(msgspec.Struct, rename="camel"):
    codon_id: str
    status: str
    failure_reason: _Reason | None = None
    wait: _Wait | None = None

    @property
    def is_active(self) -> bool:
        return self.status not in ("completed", "failed", "skipped")


class _Run(msgspec.Struct, rename="camel"):
    status: str
    codons: tuple[_Codon, ...] = ()
    server_pid: int | None = None


class _Named(msgspec.Struct):
    name: str | None = None


class _Round(msgspec.Struct):
    iteration: int = 0


class _Planned(msgspec.Struct, rename="camel"):
    codon_id: str | None = None
    codon: _Named | None = None
    loop_context: _Round | None = None

    @property
    def name(self) -> str | None:
        name = None if self.codon is None else self.codon.name
        round_ = "" if self.loop_context is None else f", round {self.loop_context.iteration + 1}"
        return name and name + round_


class _State(msgspec.Struct, rename="camel"):
    """The fields of state.json that are needed; all others are skipped, not decoded."""

    runs: tuple[_Run, ...] = ()
    execution_plan: tuple[_Planned, ...] = ()


_Spent: TypeAlias = Mapping[tuple[str, str, str], tuple[str, float]]
"""For each codon, by its run, id and start: when it ended, empty while it works; and its USD."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """The content of execution-meta.json and state.json."""

    last_used: str
    meta: ExecutionMeta | None = None
    run: _Run | None = None
    """The newest run."""
    codon: _Codon | None = None
    """The newest codon, of whatever run."""
    codon_name: str | None = None
    done: int = 0
    planned: int = 0
    progress: Progress = NO_PROGRESS
    cost: float | None = 0.0
    spent: _Spent = field(default_factory=dict)
    problem: str | None = None


def _facts_of(layout: Layout) -> _Facts:
    try:
        meta = data_source.read_meta(layout)
        content = content_of(layout.state)
        state = _State() if content is None else msgspec.json.decode(content, type=_State)
    except (OSError, Stop, Refused, msgspec.MsgspecError) as problem:
        return _Facts(_touched(layout.root), problem=_sentence(problem))

    done, at, cost, spent = (
        (0, NO_PROGRESS, 0.0, {}) if content is None else _progress_in(content, state)
    )
    codon = next((run.codons[-1] for run in state.runs if run.codons), None)
    planned = (each for each in state.execution_plan if codon and each.codon_id == codon.codon_id)
    return _Facts(
        _last_used(layout, meta),
        meta,
        state.runs[0] if state.runs else None,
        codon,
        next((each.name for each in planned), None),
        done,
        len(state.execution_plan),
        at,
        cost,
        spent,
    )


def _progress_in(content: bytes, state: _State) -> tuple[int, Progress, float | None, _Spent]:
    """Count the plan's completed entries, without those undone by a rollback; return the costs."""
    try:
        whole = decode_state(content)
    except (Refused, ValueError):
        planned = {entry.codon_id for entry in state.execution_plan}
        codons = (codon for run in state.runs for codon in run.codons)
        count = len(planned & {each.codon_id for each in codons if each.status in _BEHIND})
        return count, Progress(count, len(planned)), None, {}

    plan = whole.execution_plan
    ahead = next_codon(whole)
    planned = {entry.codon_id for entry in plan if entry.codon_id != ahead}
    done = {entry.codon.codon_id for entry in thread(whole) if is_done(entry.codon, plan)}
    spent: _Spent = {
        (run.run_id, codon.codon_id, codon.start_time): (
            getattr(codon, "end_time", ""),
            dollars_of(codon),
        )
        for run in whole.runs
        for codon in run.codons
    }
    return len(planned & done), progress(whole), total_cost(whole), spent


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of the running codon, read from the end of the journal; or that none runs."""

    is_idle: bool = False

    doing: str | None = None
    waits_for: str | None = None
    answer_until: str | None = None


def _work_of(layout: Layout) -> _Work:
    is_idle = False
    doing: str | None = None
    answered: set[str] = set()
    waits_for: str | None = None
    until: str | None = None
    try:
        with searching_journal(layout) as journal:
            for _, line in journal.backward(_WORK, max(0, journal.size - _REACH)):
                match codec.decode_event(line).data:
                    case CodonStartedEvent():
                        break
                    case ServerIdle():
                        is_idle = True
                        break
                    case PermissionResolved(request_id=request):
                        answered.add(request)
                    case PermissionRequested(request_id=request) as asked:
                        if request not in answered:
                            waits_for = _call(layout, asked.tool_name, asked.tool_input)
                            until = asked.expires_at
                    case AssistantAction(tool_name=str() as tool, tool_input=given):
                        doing = doing or _call(layout, tool, given or {})
                    case _:
                        pass
    except (OSError, Stop, Refused):
        pass  # There is none yet, or a start will report the damage.

    return _Work(is_idle, doing, waits_for, until)


def _call(layout: Layout, tool: str, given: Mapping[str, object]) -> str:
    """Return a call as people read it, with paths of the work tree as they are in it."""
    found = arguments_of(tool, given)
    texts = () if found is None else found[1]
    for folder in (f"{layout.work_tree}/", f"{layout.root}/"):  # The latter in place.
        texts = tuple(text.removeprefix(folder) for text in texts)

    return _brief(" ".join((tool, *texts)))


def _brief(text: str) -> str:
    line = one_line(text.strip().partition("\n")[0])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


# --- one row --------------------------------------------------------------------------------------


def listed(execution: Path) -> ListedExecution:
    """Return the facts that are quick to read."""
    layout = Layout.of_execution(execution)
    return _row(layout, _facts_of(layout), lambda: _work_of(layout))


def _row(layout: Layout, facts: _Facts, work: Callable[[], _Work]) -> ListedExecution:
    if not layout.state_directory.is_dir() and layout.removed_state.is_dir():
        return ListedExecution(
            path=str(layout.root), state="removing", last_used=_touched(layout.root)
        )

    server, meta, codon = living_server(layout), facts.meta, facts.codon
    state = "unreadable" if facts.problem is not None else _standing(facts.run, server)
    active = codon if codon is not None and codon.is_active else None
    now = work() if state == "running" and server is not None else _Work()
    newest = facts.run.codons[-1:] if facts.run is not None else ()
    has_failed = now.is_idle and any(each.status == "failed" for each in newest)
    whole = map_of(layout.root)
    return ListedExecution(
        path=str(layout.root),
        state=state,
        hank=None if meta is None else meta.hank_path,
        data=None if meta is None else meta.read_only_source_data_path,
        last_codon=None if codon is None else codon.codon_id,
        last_codon_name=facts.codon_name,
        codons_done=facts.done,
        codons_planned=facts.planned,
        step=facts.progress.step,
        steps=facts.progress.steps,
        last_used=facts.last_used,
        server_pid=server,
        is_branch=meta is not None and meta.origin is not None,
        attempt=None if meta is None or meta.attempt is None else meta.attempt.attempt_id,
        in_place=meta is not None and meta.in_place,
        problem=facts.problem,
        hank_name=None if meta is None else _name_of(meta),
        attempt_of=_explored(meta),
        cost=facts.cost,
        max_dollars=None if meta is None else meta.max_dollars,
        last_activity=_latest(facts.last_used, layout.journal),
        page_url=None if server is None else address_in_lock(layout.root),
        doing=now.doing,
        waits_for=now.waits_for,
        answer_until=now.answer_until,
        waits_until=None if active is None or active.wait is None else active.wait.until,
        failure=_failure("failed" if has_failed else state, codon),
        is_idle=now.is_idle,
        map_of=None if whole is None else str(whole),
    )


def _standing(run: _Run | None, server: int | None) -> Standing:
    if run is None:
        return "new" if server is None else "running"

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


def _failure(state: Standing, codon: _Codon | None) -> str | None:
    match state:
        case "failed" if codon is not None and codon.failure_reason is not None:
            reason = codon.failure_reason
            return _brief(reason.message or f"Codon {codon.codon_id} failed: {reason.type}.")
        case "failed":
            return "The run failed."
        case "crashed":
            during = "" if codon is None else f" in codon {codon.codon_id}"
            return f"Its server was killed{during}; a start continues."
        case _:
            return None


def _name_of(meta: ExecutionMeta) -> str | None:
    if meta.hank_name is not None or meta.hank_path is None:
        return meta.hank_name

    path = Path(meta.hank_path)
    return path.parent.name if path.name == "hank.json" else path.stem


def _explored(meta: ExecutionMeta | None) -> str | None:
    if meta is None or meta.attempt is None or meta.origin is None:
        return None

    return meta.origin.execution_path


def _last_used(layout: Layout, meta: ExecutionMeta | None) -> str:
    """Return when a server was last started there, or when it last saved the state."""
    if meta is None and not layout.state.exists():
        return _touched(layout.root)

    return _latest("" if meta is None else meta.last_used, layout.state)


def _latest(known: str, file: Path) -> str:
    """Return the later one of a time and a file's last change."""
    try:
        return max(known, instants.to_text(instants.from_epoch(file.stat().st_mtime)))
    except OSError:
        return known


def _touched(path: Path) -> str:
    try:
        return instants.to_text(instants.from_epoch(path.lstat().st_mtime))
    except OSError:
        return instants.to_text(instants.from_epoch(0))


def _sentence(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"{problem.strerror}: {problem.filename}"

    return problem.message if isinstance(problem, Stop) else f"state.json is damaged: {problem}"


# --- all rows -------------------------------------------------------------------------------------

_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
T = TypeVar("T")


class Catalog:
    """The executions of a user; what has not changed since the last time is not read again.

    Not for several threads at once.
    """

    def __init__(self, root: Path) -> None:
        """`root` is the folder in which executions usually are."""
        self._root = root
        self._facts: dict[Path, tuple[_Stamp, _Facts]] = {}
        self._work: dict[Path, tuple[_Stamp, _Work]] = {}

    def rows(self) -> list[ListedExecution]:
        """List all, most recently used first; attempts follow the execution that they explore.

        A feature may group them, with a row for each group before those of its executions.
        """
        paths = dict.fromkeys(all_executions(self._root))
        _forget_others(self._facts, paths)
        _forget_others(self._work, paths)

        rows = _in_order([self._row(Layout.of_execution(path)) for path in paths])
        for part in parts("listing"):
            rows = part.grouped(rows, self._root)

        return rows

    def spent_since(self, since: datetime) -> float:
        """Return what the executions of the last rows have cost since then, in USD.

        The end of a codon counts. What branches and adopted attempts share is counted once.
        """
        begin = instants.to_text(since)
        spent = dict(chain.from_iterable(facts.spent.items() for _, facts in self._facts.values()))
        return sum(dollars for ended, dollars in spent.values() if not ended or ended >= begin)

    def _row(self, layout: Layout) -> ListedExecution:
        def work() -> _Work:
            return _remembered(self._work, layout, _work_of, layout.journal)

        facts = _remembered(self._facts, layout, _facts_of, layout.meta, layout.state)
        return _row(layout, facts, work)


def _forget_others(known: dict[Path, Any], paths: Collection[Path]) -> None:
    for path in known.keys() - set(paths):
        del known[path]


def _remembered(
    known: dict[Path, tuple[_Stamp, T]], layout: Layout, read: Callable[[Layout], T], *files: Path
) -> T:
    stamp = tuple(map(_stamp, files))  # Before reading: what changes meanwhile is read again.
    found = known.get(layout.root)
    if found is None or found[0] != stamp:
        known[layout.root] = found = (stamp, read(layout))

    return found[1]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None

    return status.st_mtime_ns, status.st_size, status.st_ino


def _in_order(rows: list[ListedExecution]) -> list[ListedExecution]:
    newest = sorted(rows, key=lambda each: (each.last_used or "", each.path), reverse=True)
    attempts: dict[str | None, list[ListedExecution]] = {row.path: [] for row in rows}
    firsts = [row for row in newest if row.attempt_of not in attempts]
    for row in newest:
        if row.attempt_of in attempts:
            attempts[row.attempt_of].append(row)

    def with_attempts(row: ListedExecution) -> Iterator[ListedExecution]:
        yield row
        for attempt in attempts[row.path]:
            yield from with_attempts(attempt)

    placed = list(chain.from_iterable(map(with_attempts, firsts)))
    known = {row.path for row in placed}
    return placed + [row for row in newest if row.path not in known]  # Attempts of each other.


# --- slower facts ---------------------------------------------------------------------------------


def measured(executions: list[ListedExecution], seconds: float | None) -> Iterator[ListedExecution]:
    """Add sizes and checkpoint counts, to as many as can be examined in `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    for each in executions:
        if each.map is not None or (deadline is not None and time.monotonic() > deadline):
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
