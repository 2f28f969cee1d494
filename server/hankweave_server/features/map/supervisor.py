"""Run a map: start servers, wait for them, record what they have achieved.

A supervisor that is killed leaves servers that go on. The next one finds in the journal which items
were started and have not ended, and for each of them one of three things:

- its server lives: it is taken over, and its reservation stands;
- its execution is complete, or has failed: that is recorded;
- neither: it is started again in the same directory, where the server recovers as from any crash.

The journal says that an item is started before it is. So a server may be starting of which the next
supervisor sees nothing yet. It then starts a second one, which finds the directory owned and ends
with `LOCK_HELD`; the first is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from hankweave_protocol import codec, instants
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode
from hankweave_server.features.map import plan
from hankweave_server.features.map.directory import MapJournal
from hankweave_server.features.map.executor import Executor, ItemExit, ItemLaunch, ItemServer
from hankweave_server.features.map.inputs import variables_of
from hankweave_server.features.map.plan import (
    MOST_CRASHES,
    Figures,
    Item,
    ItemEnded,
    ItemStarted,
    MapBegun,
    MapEnded,
    MapRecord,
    Placement,
    Start,
    WantedItem,
    next_start,
    runs_again,
)
from hankweave_server.features.map.results import (
    ItemCourse,
    ItemFindings,
    cost_of,
    course_of,
    found,
)
from hankweave_server.paths import Layout

_MOST_COLLISIONS = 100
_BETWEEN_COLLISIONS = 0.2
"""Seconds; another server holds the directory, and cannot be found while it starts or ends."""

ReportRecord = Callable[[MapRecord, Figures], None]


@dataclass(frozen=True, slots=True)
class MapSettings:
    """The request of one command."""

    hank: Path
    hank_hash: str
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Options of `hankweave run` that every server gets, with their values; True for a flag."""
    parallel: int = 1
    max_cost: float | None = None
    """USD for all items together."""
    output: Path | None = None
    memory: int | None = None
    processes: int | None = None
    placement: Placement = field(default_factory=Placement)
    """For the journal; the executor is given by itself."""
    retry_failed: bool = False
    fail_fast: bool = False
    """Start nothing more after the first failure."""


class Supervisor:
    """One command's work on a map."""

    def __init__(
        self,
        journal: MapJournal,
        wanted: Sequence[WantedItem],
        settings: MapSettings,
        executor: Executor,
        clock: Clock,
        report: ReportRecord,
    ) -> None:
        """`report` gets every record after it is durable, and the figures that follow from it."""
        self._journal = journal
        self._wanted = {each.name: each for each in wanted}
        self._settings = settings
        self._executor = executor
        self._clock = clock
        self._report = report
        self._queue: dict[str, None] = {}
        """The items that are to run, in this order."""
        self._busy: dict[str, ItemServer | None] = {}
        """The items that run, and their servers once they have been started."""
        self._durations: list[float] = []
        self._wake = anyio.Event()
        self._recording = anyio.Lock()
        self._is_stopping = False
        self._is_ending = False

    # --- facts ---------------------------------------------------------------------------------

    @property
    def items(self) -> list[Item]:
        """The items of the command, in its order; one that is to run again is waiting."""
        return [self._as_it_counts(item) for item in self._known]

    @property
    def _known(self) -> list[Item]:
        return [self._journal.state.items[name] for name in self._wanted]

    def _as_it_counts(self, item: Item) -> Item:
        if item.status == "waiting" or item.name not in self._queue:
            return item

        if self._is_current(item):
            return replace(item, status="waiting")

        return replace(item, status="waiting", started=None, ended=None)

    @property
    def running(self) -> list[Item]:
        return [self._journal.state.items[name] for name in self._busy]

    def course_of(self, name: str) -> ItemCourse | None:
        """Return what an item does that runs; None if it has not begun. For any thread."""
        server, started = self._busy.get(name), self._journal.state.items[name].started
        if server is not None and (course := server.course()) is not None:
            return course

        return None if started is None else course_of(self._layout(started.execution))

    def _layout(self, execution: str) -> Layout:
        return self._journal.directory.layout(execution)

    @property
    def figures(self) -> Figures:
        return plan.figures(self.items, parallel=self._settings.parallel, durations=self._durations)

    @property
    def max_cost(self) -> float | None:
        return self._settings.max_cost

    # --- requests ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Start nothing more, and end when the servers that run have ended."""
        self._is_stopping = True
        self._wake.set()

    def stop(self) -> None:
        """Ask all servers to end; their executions can be resumed."""
        self._is_stopping = self._is_ending = True
        for server in filter(None, self._busy.values()):
            server.stop()

        self._wake.set()

    # --- the course ----------------------------------------------------------------------------

    async def run(self) -> MapEnded:
        """Run all items that are due; return how the command ended. Raises OSError."""
        idle = [item for item in self._known if item.status != "running"]
        self._queue = {item.name: None for item in idle if self._is_due(item)}
        await self._record(self._begun())
        async with anyio.create_task_group() as tasks:
            await self._take_over(tasks)
            while True:
                start = None if self._is_stopping else self._next()
                if start is not None:
                    await self._begin(start, tasks)
                elif self._busy:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                else:
                    break

        counted = self.figures
        ended = MapEnded(
            at=self._now(),
            outcome=plan.outcome_of(
                counted,
                interrupted=self._is_interrupted,
                is_exhausted=bool(self._queue) and not self._is_stopping,
            ),
            completed=counted.completed,
            failed=counted.failed,
            waiting=counted.progress.waiting,
            cost=counted.cost,
        )
        await self._record(ended)
        return ended

    def _begun(self) -> MapBegun:
        settings = self._settings
        return MapBegun(
            at=self._now(),
            hank=str(settings.hank),
            hank_hash=settings.hank_hash,
            items=tuple(self._wanted),
            options=dict(settings.options),
            parallel=settings.parallel,
            max_cost=settings.max_cost,
            output=None if settings.output is None else str(settings.output),
            memory=settings.memory,
            processes=settings.processes,
            placement=settings.placement,
        )

    @property
    def _is_interrupted(self) -> bool:
        return self._is_stopping and not (self._settings.fail_fast and self.figures.failed)

    async def _take_over(self, tasks: anyio.abc.TaskGroup) -> None:
        """Take over servers that an earlier supervisor has left; queue the items of dead ones."""
        for item in self._known:
            if item.status != "running":
                continue

            server = await self._executor.find(self._launch(item))
            if server is not None:
                self._busy[item.name] = server
                tasks.start_soon(self._serve, item, server)
            elif self._is_due(await self._settle(item, ItemExit(None), was_left=True)):
                self._queue[item.name] = None

    def _is_due(self, item: Item) -> bool:
        settings = self._settings
        wanted = self._wanted[item.name]
        return plan.is_due(item, wanted, settings.hank_hash, retry_failed=settings.retry_failed)

    def _next(self) -> Start | None:
        items = self._journal.state.items
        return next_start(
            [(items[name], self._wanted[name]) for name in self._queue],
            self._settings.hank_hash,
            slots=self._settings.parallel - len(self._busy),
            free=plan.free_of(self._settings.max_cost, self._known),
            typical=plan.typical_cost(self._known),
        )

    async def _begin(self, start: Start, tasks: anyio.abc.TaskGroup) -> None:
        item = start.item
        del self._queue[item.name]
        self._busy[item.name] = None
        layout = self._layout(start.execution)
        prior = await anyio.to_thread.run_sync(cost_of, layout)
        number = 1 if item.started is None else item.started.start + 1
        await self._record(
            ItemStarted(
                at=self._now(),
                item=item.name,
                execution=start.execution,
                input_hash=start.input_hash,
                hank_hash=self._settings.hank_hash,
                start=number,
                prior=prior,
                reserved=start.reserved,
                codon=start.codon,
            )
        )
        tasks.start_soon(self._serve, self._journal.state.items[item.name], None)

    async def _serve(self, item: Item, server: ItemServer | None) -> None:
        """Wait until the server of an item has ended; if there is none, start it first."""
        ended = await self._end_of(item, server)
        item = await self._settle(item, ended)
        del self._busy[item.name]
        if not self._is_stopping and (runs_again(item) or not self._is_current(item)):
            self._queue[item.name] = None
        elif item.status == "failed" and self._settings.fail_fast:
            self._is_stopping = True

        self._wake.set()

    async def _end_of(self, item: Item, server: ItemServer | None) -> ItemExit:
        launch, ended = self._launch(item), ItemExit(None)
        for _ in range(_MOST_COLLISIONS):
            if server is None:
                # An error is none of the item: it ends the command, and the next one continues.
                await anyio.to_thread.run_sync(self._write_variables, item)
                server = await self._executor.start(launch)

            self._busy[item.name] = server
            if self._is_ending:  # It was requested while this one started.
                server.stop()

            ended = await server.result()
            if ended.exit_code != ExitCode.LOCK_HELD:
                return ended

            server = await self._executor.find(launch)
            if server is None:
                await anyio.sleep(_BETWEEN_COLLISIONS)

        return ended

    def _is_current(self, item: Item) -> bool:
        """Return whether the newest start of an item had the present hank and input."""
        return plan.is_current(item, self._wanted[item.name], self._settings.hank_hash)

    async def _settle(self, item: Item, ended: ItemExit, *, was_left: bool = False) -> Item:
        """Record what the execution of an item has achieved; return the item as it is then.

        It `was_left` if its supervisor was killed.
        """
        started = item.started
        assert started is not None
        layout = self._layout(started.execution)
        limit = None if started.reserved is None else started.prior + started.reserved
        log = self._journal.directory.log_of(item.name)
        seen = await anyio.to_thread.run_sync(found, layout, ended.exit_code, limit, log)
        if was_left and not seen.codons_planned:  # The supervisor may not even have started it.
            seen = replace(seen, outcome="stopped", message=None)

        record = self._end_record(item, started, ended, self._judged(item, ended, seen))
        if record.outcome == "completed":
            self._durations.append(record.duration_ms / 1000)

        await self._record(record)
        await self._executor.forget(self._launch(item))
        return self._journal.state.items[item.name]

    def _judged(self, item: Item, ended: ItemExit, seen: ItemFindings) -> ItemFindings:
        """Return the outcome with what the files cannot know."""
        if seen.outcome == "completed":
            return seen

        if ended.overrun is not None:
            return replace(seen, outcome="failed", message=ended.overrun)

        if self._is_ending and seen.codon is None:
            return replace(seen, outcome="stopped")

        if seen.outcome == "crashed" and ended.lost is not None:
            seen = replace(seen, message=ended.lost)

        if seen.outcome == "crashed" and item.crashes + 1 >= MOST_CRASHES:
            message = f"Its server ended by itself {MOST_CRASHES} times. {seen.message or ''}"
            return replace(seen, outcome="failed", message=message.strip())

        return seen

    def _end_record(
        self, item: Item, started: ItemStarted, ended: ItemExit, seen: ItemFindings
    ) -> ItemEnded:
        now = self._clock.now()
        taken = instants.milliseconds_between(instants.from_text(started.at), now)
        return ItemEnded(
            at=instants.to_text(now),
            item=item.name,
            outcome=seen.outcome,
            cost=max(seen.cost, started.prior),
            duration_ms=max(0, taken),
            exit_code=ended.exit_code,
            codons_done=seen.codons_done,
            codons_planned=seen.codons_planned,
            message=seen.message,
            codon=seen.codon,
            is_cut=seen.is_cut,
            answers=seen.answers,
            moves=ended.moves,
            lost_ms=ended.lost_ms,
        )

    def _launch(self, item: Item) -> ItemLaunch:
        """Return what the newest start of an item starts."""
        started = item.started
        assert started is not None
        directory, settings = self._journal.directory, self._settings
        options = dict(settings.options)
        prices = options.pop("--prices", None)
        words = []
        if started.reserved is not None:
            words += ["--max-cost", repr(started.prior + started.reserved)]

        for name, value in options.items():
            words += [name] if value is True else [name, str(value)]

        return ItemLaunch(
            item.name,
            started.start,
            layout=directory.layout(started.execution),
            hank=settings.hank,
            data=Path(item.path),
            variables=directory.variables_of(item.name),
            log=directory.log_of(item.name),
            output=None if settings.output is None else settings.output / item.name,
            prices=None if prices is None else Path(str(prices)),
            codon=started.codon,
            options=tuple(words),
        )

    def _write_variables(self, item: Item) -> None:
        content = codec.encode(variables_of(item))
        fsutil.replace(self._journal.directory.variables_of(item.name), content)

    async def _record(self, record: MapRecord) -> None:
        async with self._recording:
            await anyio.to_thread.run_sync(self._journal.append, [record])

        self._report(record, self.figures)

    def _now(self) -> str:
        return instants.to_text(self._clock.now())
