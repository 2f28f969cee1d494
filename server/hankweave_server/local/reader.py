"""Read the files of an execution without its server.

Journal and shadow repository are opened for reading only: nothing is repaired, locked, cleared or
saved, so that a server may start or run at the same time. Damage is raised as Stop, by all alike.

`on_files` answers a server's read-only commands; `reading_store` opens the checkpoints, and
`journals` the journal. `server_session.run_read_only` asks the server if one is running,
otherwise the files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar, overload

import anyio

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    AnsweredCommand,
    CommandData,
    GetState,
    ListCheckpoints,
    R,
    RollbackPreview,
    StoreGc,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import ClientId, CommandId, Sha
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import CheckpointPage, GcReport
from hankweave_protocol.state import State
from hankweave_server.api.caller import Caller, Request
from hankweave_server.api.checkpoint_list import page_of_checkpoints
from hankweave_server.api.dispatch import Handlers, handles
from hankweave_server.api.lookup import Sources
from hankweave_server.api.past import PastReader
from hankweave_server.api.rollback import RollbackRequests
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.records import all_records
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.domain.checkpoints.records import on_record
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.plan import tracked_patterns
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.execution.context import EVERYTHING
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.rollback.planner import RollbackPlanner
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.installed import parts
from hankweave_server.ledger.digest import JournalDigest
from hankweave_server.ledger.moments import Moment, Moments, has_past, saved_state, state_at_end
from hankweave_server.ledger.searched_journal import SearchedJournal
from hankweave_server.local.hints import stop_at
from hankweave_server.local.journals import nothing_in, searching_journal
from hankweave_server.paths import Layout

T = TypeVar("T")

PAGE = 5_000
"""Journal lines read in one page: a few megabytes."""


def on_files(layout: Layout, work: Callable[[Calls], Awaitable[T]]) -> T:
    """Run a read-only operation on the files; raise Stop if they cannot answer it."""

    async def session() -> T:
        with _opened(layout) as calls:
            return await work(calls)

    try:
        return anyio.run(session)
    except Refused as refused:
        raise stop_at(refused, refused.hint) from None


@contextmanager
def reading_store(layout: Layout) -> Iterator[CheckpointEngine]:
    """Open the checkpoints; raise Stop if there are none, or if what the block reads is damaged."""
    with stopping_at_damage(), CheckpointEngine.for_reading(layout) as engine:
        yield engine


@contextmanager
def stopping_at_damage() -> Iterator[None]:
    """Raise Stop if checkpoints that the block reads are damaged."""
    try:
        yield
    except (ShadowRepositoryError, CheckpointDamaged) as damage:
        raise Stop(
            f"The checkpoints cannot be read: {damage}.",
            ExitCode.BAD_DATA,
            hint="`hankweave fsck --repair` repairs what it can, and reports what is lost.",
        ) from None


@contextmanager
def _opened(layout: Layout) -> Iterator[Calls]:
    if not has_past(layout):
        raise nothing_in(layout)

    saved = saved_state(layout)
    with (
        reading_store(layout) as engine,
        searching_journal(layout, lambda: [facts.sha for facts in engine.commits()]) as journal,
    ):
        yield FileCalls(layout, journal, engine, state_at_end(journal, saved))


_REQUEST: Final = Request(
    CommandId("read"), Caller(client_id=ClientId("reader"), mode="readonly", wants_replies=True)
)


class FileCalls(Calls):
    """The read-only commands, answered as a server would."""

    def __init__(
        self, layout: Layout, journal: SearchedJournal, engine: CheckpointEngine, state: State
    ) -> None:
        self.layout = layout
        self.state = state
        self._journal = journal
        self._engine = engine
        self._moments = Moments(journal)
        self._is_checked = False
        self._known = all_records(engine, _recorded(journal))
        self.sources = Sources(
            store=CheckpointAccess(engine),
            known=lambda: self._known,
            state=lambda: self.state,
            last_seq=lambda: journal.last_seq,
            moment_at=self._moment_at,
            patterns=self._patterns,
            missing=lambda: frozenset(_recorded(journal)) - self._known.keys(),
        )
        added = (part.handlers(self) for part in parts("file_answers"))
        self._handlers = Handlers([self, PastReader(self.sources), *chain.from_iterable(added)])

    @overload
    async def send(self, command: AnsweredCommand[R]) -> R: ...

    @overload
    async def send(self, command: CommandData) -> object: ...

    async def send(self, command: CommandData) -> object:
        # Encoded and decoded, so that it is exactly what a server's client gets.
        answer = await self._handlers.answer(command, _REQUEST)
        return codec.decode_reply(command, codec.encode(answer.data))

    @handles(ListCheckpoints)
    async def list_checkpoints(self, command: ListCheckpoints) -> CheckpointPage:
        newest_first = reversed(self._known.values())
        return page_of_checkpoints(command, self.state, newest_first, None)

    @handles(GetState)
    async def get_state(self, command: GetState) -> State:
        return self.state

    @handles(StoreGc)
    async def preview_gc(self, command: StoreGc) -> GcReport:
        assert command.dry_run, "to prune something requires a server"
        return self._gc_report(command)

    async def _moment_at(self, seq: int) -> Moment:
        """Return a past moment, which is folded from the journal's beginning."""
        if not self._is_checked:
            self._journal.check()
            self._is_checked = True

        return self._moments.at(seq)

    @handles(RollbackPreview)
    async def preview(self, command: RollbackPreview) -> RollbackReport:
        sources = self.plan_sources()
        await sources.checkpointer.load(frozenset(sources.ledger.digest.checkpoints().standing))
        request = await RollbackRequests(sources).previewed(command)
        return await RollbackPlanner(sources).preview(
            request, (), beside_codon=False, patch=command.patch
        )

    def plan_sources(self) -> PlanSources:
        """Return what a preview of a rollback is planned from."""
        effects = _EffectsOnFiles(self.layout, self._journal)
        store = CheckpointAccess(self._engine)
        return PlanSources(self.layout, self.state, store, effects, self._patterns)

    def _gc_report(self, command: StoreGc) -> GcReport:
        # Imported here because only this needs the collector.
        from hankweave_server.api.maintenance import policy_of
        from hankweave_server.execution.maintenance.garbage_collection import examined

        policy, now = policy_of(command), SystemClock().now()
        found = examined(self.layout, self.state, self._known, self._engine, policy, now)
        return found.report

    def _patterns(self) -> tuple[str, ...]:
        entries, plan = thread(self.state), self.state.execution_plan
        wanted = tracked_patterns(plan, entries[-1].codon.codon_id) if entries else ()
        return wanted or (EVERYTHING if self.layout.is_in_place or not plan else ())


class _EffectsOnFiles:
    """The journal of an execution, with its digest: the saved one, or one of every line."""

    def __init__(self, layout: Layout, journal: SearchedJournal) -> None:
        self._journal = journal
        self.digest = JournalDigest(layout.inside)
        if self.digest.load(layout.journal_digest, layout.journal) is None:
            for since in range(0, journal.last_seq, PAGE):
                for line in journal.read(since, PAGE):
                    self.digest.add(line)

    async def lines(self, since: int, limit: int | None = None) -> list[bytes]:
        return self._journal.read(since, limit)


@dataclass(frozen=True, slots=True)
class PlanSources:
    """The sources of the plan of a rollback."""

    layout: Layout
    state: State
    checkpointer: CheckpointAccess
    ledger: _EffectsOnFiles
    patterns: Callable[[], tuple[str, ...]]
    clock: Clock = field(default_factory=SystemClock)
    progress: ProgressWatch = field(default_factory=ProgressWatch)


def _recorded(journal: SearchedJournal) -> Iterator[Sha]:
    """Yield the checkpoints that the journal names; read only if commits are lost."""
    pages = (journal.read(since, PAGE) for since in range(0, journal.last_seq, PAGE))
    yield from on_record(line for page in pages for line in page).standing
