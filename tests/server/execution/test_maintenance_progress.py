"""Progress of long operations: who receives it, how often, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import pytest

from hankweave_protocol.events import StoreProgress
from hankweave_server.background_tasks import alongside
from hankweave_server.execution.maintenance.progress import (
    DELAY_SECONDS,
    POLL_SECONDS,
    ProgressWatch,
)
from hankweave_server.meter import Meter
from support.waiting import limited


@dataclass
class Bench:
    """A progress monitor with its clock and output; the test runs it as the clock advances."""

    seconds: float = 0.0
    events: list[StoreProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = ProgressWatch(lambda: self.seconds)
        self.watch.attach(self.events.append)

    def goes_on(self, seconds: float) -> None:
        """Let time pass for `run`."""
        for _ in range(round(seconds / POLL_SECONDS)):
            self.seconds += POLL_SECONDS
            self.watch.poll()


def test_a_quick_operation_reports_no_progress() -> None:
    """A short operation is not reported, during or after it."""
    bench = Bench()
    with bench.watch.watching("capture") as meter:
        meter.begin("reading", "files", 10)
        bench.seconds += DELAY_SECONDS / 2
        bench.watch.poll()
        meter.advance(10)

    bench.goes_on(10)
    assert bench.events == []


def test_a_long_operation_reports_ten_times_a_second_and_at_its_end() -> None:
    """However often it counts, progress is limited to ten reports a second; the last is final."""
    bench = Bench()
    with bench.watch.watching("fsck", (7, "c-1")) as meter:
        meter.begin("checking", "objects", 1_000_000)
        for _ in range(100):
            meter.advance(100)
            bench.goes_on(POLL_SECONDS)

        meter.advance(5)

    *during, last = bench.events
    seconds = 100 * POLL_SECONDS
    assert len(during) <= seconds / POLL_SECONDS
    assert [each.ended for each in during] == [False] * len(during)
    assert (last.ended, last.done, last.total) == (True, 10_005, 1_000_000)
    assert {(each.operation, each.command_id, each.unit) for each in bench.events} == {
        ("fsck", "c-1", "objects")
    }
    assert len({each.operation_id for each in bench.events}) == 1


def test_unchanged_progress_is_not_repeated() -> None:
    """Unchanged progress is not reported until it changes or ends."""
    bench = Bench()
    with bench.watch.watching("gc") as meter:
        meter.begin("sweeping", "files", 3)
        bench.goes_on(5)
        assert len(bench.events) == 1
        meter.advance()
        bench.goes_on(5)
        assert [each.done for each in bench.events] == [0, 1]

    assert [each.ended for each in bench.events] == [False, False, True]


def test_an_operation_that_counts_nothing_reports_no_progress() -> None:
    """An operation is not reported before its first phase."""
    bench = Bench()
    with bench.watch.watching("branch"):
        bench.goes_on(5)

    assert bench.events == []


def test_work_within_work_is_part_of_it() -> None:
    """A safety checkpoint counts as part of its rollback, and ends with it."""
    bench = Bench()
    with bench.watch.watching("restore", ("c-1",)) as outer:
        outer.begin("checking", "objects")
        with bench.watch.watching("capture") as inner:
            assert inner is outer
            inner.begin("reading", "files", 2)
            bench.goes_on(1)

        assert not any(each.ended for each in bench.events)

    assert [(each.operation, each.phase, each.ended) for each in bench.events] == [
        ("restore", "reading", False),
        ("restore", "reading", True),
    ]


async def test_operations_of_two_tasks_are_apart() -> None:
    """A task counts on its own meter, whatever other tasks do."""
    bench = Bench()
    both_begun, meters = anyio.Event(), list[Meter]()

    async def work(number: int) -> None:
        with bench.watch.watching("capture") as meter:
            meter.begin("reading", "files", number)
            meters.append(meter)
            if len(meters) == 2:
                both_begun.set()

            await both_begun.wait()
            bench.goes_on(0.3)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, 1)
        tasks.start_soon(work, 2)

    assert meters[0] is not meters[1]
    assert len({each.operation_id for each in bench.events}) == 2
    assert sum(each.ended for each in bench.events) == 2


async def test_a_task_that_outlives_its_operation_begins_one_of_its_own() -> None:
    """A task started within an operation that has ended is not part of it."""
    bench = Bench()
    over, done = anyio.Event(), anyio.Event()

    async def later() -> None:
        await over.wait()
        with bench.watch.watching("capture") as meter:
            meter.begin("reading", "files", 1)
            bench.goes_on(1)

        done.set()

    async with anyio.create_task_group() as tasks:
        with bench.watch.watching("restore"):
            tasks.start_soon(later)

        over.set()
        await done.wait()

    assert {each.operation for each in bench.events} == {"capture"}


@pytest.mark.parametrize("fault", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_failed_operation_reports_its_end(fault: BaseException) -> None:
    """A failed operation is reported as ended, so that clients stop waiting."""
    bench = Bench()

    def fail() -> None:
        with bench.watch.watching("restore") as meter:
            meter.begin("writing", "files", 9)
            bench.goes_on(1)
            raise fault

    with pytest.raises(type(fault)):
        fail()

    assert bench.events[-1].ended


async def test_it_polls_while_a_thread_works_and_rests_when_none_does() -> None:
    """Work in a thread is reported while it runs, and later work as well."""
    events: list[StoreProgress] = []
    send, receive = anyio.create_memory_object_stream[StoreProgress](100)
    watch = ProgressWatch()

    def publish(progress: StoreProgress) -> None:
        events.append(progress)
        send.send_nowait(progress)

    watch.attach(publish)

    async def long_work() -> None:
        with watch.watching("capture") as meter:
            await anyio.to_thread.run_sync(meter.begin, "reading", "files", 2)
            assert (await receive.receive()).done == 0
            await anyio.to_thread.run_sync(meter.advance)
            assert (await receive.receive()).done == 1

        assert (await receive.receive()).ended

    with send, receive, limited():
        async with alongside(watch.run):
            await long_work()
            await anyio.wait_all_tasks_blocked()
            await long_work()

    assert len({each.operation_id for each in events}) == 2


def test_a_total_is_never_less_than_what_is_done() -> None:
    """A total that was estimated too low is raised."""
    meter = Meter()
    assert meter.read() is None
    meter.begin("checking", "objects", 2)
    meter.advance(5)
    reading = meter.read()
    assert reading is not None
    assert (reading.done, reading.total) == (5, 5)
    meter.begin("scanning", "files")
    reading = meter.read()
    assert reading is not None
    assert (reading.phase, reading.done, reading.total) == ("scanning", 0, None)
