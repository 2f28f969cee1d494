"""Read the files of an execution without its server.

Journal and shadow repository are opened for reading only: nothing is repaired, locked, cleared or
saved, so that a server may start or run at the same time. Damage is raised as Stop, by all alike.

`on_files` answers a server's read-only commands; `reading_journal` and `reading_store` open what
lies behind them; `journal_lines` is for a quick search. `server_session.look` asks the server if
one is running, otherwise the files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

import anyio
import msgspec

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    AnsweredCommand,
    CheckpointDiff,
    CheckpointReadFile,
    CommandData,
    GetState,
    ListCheckpoints,
    R,
    ReplayView,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import Sha
from hankweave_server.api.checkpoint_list import page_of_checkpoints
from hankweave_server.api.lookup import Sources
from hankweave_server.api.past import Looks
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.records import all_records
from hankweave_server.checkpoints.store import CheckpointStore
from hankweave_server.domain.checkpoint_records import on_record
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.plan import tracked_patterns
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.context import EVERYTHING
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.moments import (
    Moment,
    Moments,
    has_past,
    open_for_reading,
    whole_lines,
)
from hankweave_server.ledger.open import KnownShas
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
        raise Stop(
            f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=refused.hint
        ) from None


@contextmanager
def reading_journal(layout: Layout, known_shas: KnownShas = tuple) -> Iterator[Journal]:
    """Open the journal; raise Stop if there is none, or if what the block reads is damaged."""
    with _stopping_at_damage():
        try:
            journal = open_for_reading(layout, known_shas)
        except FileNotFoundError:
            raise _nothing_in(layout) from None

        with closing(journal):
            yield journal


def journal_lines(layout: Layout) -> Iterator[bytes]:
    """Yield the journal's lines without checking them; none if there is no journal."""
    with _stopping_at_damage(), suppress(FileNotFoundError):
        yield from whole_lines(layout)


@contextmanager
def reading_store(layout: Layout) -> Iterator[CheckpointEngine]:
    """Open the checkpoints; raise Stop if there are none, or if what the block reads is damaged."""
    with _stopping_at_damage(), CheckpointEngine.for_reading(layout) as engine:
        yield engine


@contextmanager
def _stopping_at_damage() -> Iterator[None]:
    try:
        yield
    except (ShadowRepositoryError, CheckpointDamaged) as damage:
        raise Stop(
            f"The checkpoints cannot be read: {damage}.",
            ExitCode.BAD_DATA,
            hint="`hankweave fsck --repair` repairs what it can, and reports what is lost.",
        ) from None
    except JournalCorrupt as damage:
        raise Stop(
            f"The journal cannot be read: {damage}.",
            ExitCode.BAD_DATA,
            hint="`hankweave log` shows the events before that line. A start of the server "
            "repairs or reports the damage.",
        ) from None


def _nothing_in(layout: Layout) -> Stop:
    return Stop(
        f"There is no execution in {layout.root}.",
        ExitCode.NO_INPUT,
        hint="Name an execution directory with --execution.",
    )


@contextmanager
def _opened(layout: Layout) -> Iterator[Calls]:
    if not has_past(layout):
        raise _nothing_in(layout)

    with (
        reading_store(layout) as engine,
        reading_journal(layout, lambda: [facts.sha for facts in engine.commits()]) as journal,
    ):
        yield _FileCalls(layout, journal, engine)


class _FileCalls(Calls):
    """The read-only commands, answered as a server would."""

    def __init__(self, layout: Layout, journal: Journal, engine: CheckpointEngine) -> None:
        self._layout = layout
        moments = Moments(journal)
        self._state = moments.at(journal.last_seq).state
        self._known = all_records(engine, _recorded(journal))

        async def moment_at(seq: int) -> Moment:
            return moments.at(seq)

        self._looks = Looks(
            Sources(
                store=CheckpointStore(engine),
                known=lambda: self._known,
                state=lambda: self._state,
                last_seq=lambda: journal.last_seq,
                moment_at=moment_at,
                patterns=self._patterns,
                missing=lambda: frozenset(_recorded(journal)) - self._known.keys(),
            )
        )

    async def send(self, command: CommandData) -> Any:
        return msgspec.json.decode(codec.encode(await self._do(command)))

    async def ask(self, command: AnsweredCommand[R]) -> R:
        return codec.decode_reply(command, codec.encode(await self._do(command)))

    async def _do(self, command: CommandData) -> object:
        match command:
            case CheckpointDiff():
                return await self._looks.diff(command)
            case CheckpointReadFile():
                return await self._looks.read_file(command)
            case ReplayView():
                return await self._looks.replay(command)
            case ListCheckpoints():
                newest_first = reversed(self._known.values())
                return page_of_checkpoints(command, self._state, newest_first, None)
            case GetState():
                return self._state
            case _:
                raise AssertionError(f"{command.TYPE} requires a server")

    def _patterns(self) -> tuple[str, ...]:
        entries, plan = thread(self._state), self._state.execution_plan
        wanted = tracked_patterns(plan, entries[-1].codon.codon_id) if entries else ()
        return wanted or (EVERYTHING if self._layout.is_in_place or not plan else ())


def _recorded(journal: Journal) -> Iterator[Sha]:
    """Yield the checkpoints that the journal names; read only if commits are lost."""
    pages = (journal.read(since, PAGE) for since in range(0, journal.last_seq, PAGE))
    yield from on_record(line for page in pages for line in page).standing
