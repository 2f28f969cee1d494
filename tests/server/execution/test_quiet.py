"""When background work runs beside commands; the clock is virtual."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import anyio
import pytest

from hankweave_protocol.replies import BackgroundWork
from hankweave_server.execution.maintenance.quiet import (
    LATE_RESTS,
    LONGEST_REST,
    QUIET_SECONDS,
    SLICE_SECONDS,
    Quiet,
    Work,
)
from support.waiting import limited

DEADLINE = 10.0


class Virtual:
    """A clock that stands still until it is moved."""

    seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Virtual:
    return Virtual()


@pytest.fixture
def quiet(clock: Virtual) -> Quiet:
    return Quiet(clock)


def spent(clock: Virtual, work: Work, seconds: float) -> tuple[float, float]:
    """Do work in slices for some time; return how long it worked and how long it waited."""
    worked = waited = 0.0
    while worked + waited < seconds:
        delay = work.delay()
        if not delay:
            worked += SLICE_SECONDS / 5
            clock.seconds += SLICE_SECONDS / 5
        else:
            waited += delay
            clock.seconds += delay

    return worked, waited


def test_nothing_runs_while_a_command_is_served_nor_soon_after(
    clock: Virtual, quiet: Quiet
) -> None:
    """Half a second after the reply to the last of two commands, the work may begin."""
    with quiet.work("packing", within=DEADLINE) as work:
        with quiet.serving():
            with quiet.serving():
                assert work.delay() > 0

            clock.seconds += QUIET_SECONDS
            assert work.delay() > 0
            assert work.must_wait

        assert work.delay() == QUIET_SECONDS
        clock.seconds += QUIET_SECONDS
        assert work.delay() == 0
        assert not work.must_wait


def test_a_command_interrupts_work_within_a_slice(clock: Virtual, quiet: Quiet) -> None:
    """The next question is answered with a wait, however short the slice was so far."""
    with quiet.work("packing", within=DEADLINE) as work:
        assert work.delay() == 0
        clock.seconds += SLICE_SECONDS / 10
        with quiet.serving():
            assert work.delay() > 0


@pytest.mark.parametrize("within", [DEADLINE, 0.0], ids=["in time", "late"])
def test_work_in_quiet_times_takes_half_of_a_processor(
    clock: Virtual, quiet: Quiet, within: float
) -> None:
    """It rests as long as it worked, after each slice, whether it is late or not."""
    with quiet.work("packing", within=within) as work:
        worked, waited = spent(clock, work, 1.0)

    assert worked == pytest.approx(waited, rel=0.1)


def test_work_that_waited_until_its_deadline_is_done_beside_commands(
    clock: Virtual, quiet: Quiet
) -> None:
    """It is spread: no slice is longer, and the rests are, until it is quiet."""
    with quiet.work("verification", within=DEADLINE) as work, quiet.serving():
        worked, waited = spent(clock, work, DEADLINE)
        assert worked == 0
        assert waited == pytest.approx(DEADLINE)
        worked, waited = spent(clock, work, 100.0)
        assert not work.must_wait

    assert waited / worked == pytest.approx(LATE_RESTS, rel=0.1)


def test_a_long_step_is_followed_by_a_bounded_rest(clock: Virtual, quiet: Quiet) -> None:
    """Late work ends, even if its steps cannot be divided."""
    with quiet.work("index", within=0.0) as work, quiet.serving():
        assert work.delay() == 0
        clock.seconds += 60
        assert work.delay() == LONGEST_REST
        assert work.delay() == 0


def test_pending_waits_are_reported_oldest_first(clock: Virtual, quiet: Quiet) -> None:
    """With how long it has been waiting, and whether it is late."""
    with quiet.work("index", within=1.0):
        clock.seconds += 2
        with quiet.work("secrets", within=1.0):
            assert quiet.behind == (
                BackgroundWork(name="index", waiting_ms=2000, late=True),
                BackgroundWork(name="secrets", waiting_ms=0, late=False),
            )

    assert quiet.behind == ()


async def test_the_end_of_the_server_wakes_all_work(quiet: Quiet) -> None:
    """Work that waits for a pause goes on at once, and no work waits any more."""
    with quiet.serving(), quiet.work("secrets", within=DEADLINE) as work, limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.turn)
            await anyio.wait_all_tasks_blocked()
            quiet.expedite()

        assert not work.must_wait
        await work.turn()


def test_a_thread_that_waits_can_be_given_up(quiet: Quiet) -> None:
    """It returns although the command is still being served."""
    is_given_up = threading.Event()
    is_given_up.set()
    with quiet.serving(), quiet.work("verification", within=DEADLINE) as work:
        work.turn_in_thread(is_given_up)
