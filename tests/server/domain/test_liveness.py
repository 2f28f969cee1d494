"""Deciding whether an existing lock is held or stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hankweave_protocol.ids import RunId
from hankweave_protocol.records import RuntimeLock
from hankweave_server.domain.liveness import (
    Free,
    GuardOwner,
    Held,
    Judgement,
    PreviousOwner,
    Stale,
    Unclear,
    judge,
)

NOW = datetime(2025, 1, 4, 12, 5, tzinfo=UTC)
RECORD = RuntimeLock(
    pid=12345,
    run_id=RunId("1736000000000-abc123-def456"),
    start_time="2025-01-04T12:00:00.000Z",
    last_heartbeat="2025-01-04T12:01:30.000Z",
)
ITS_WRITER = GuardOwner(
    pid=12345,
    start_ticks=7,
    boot_id="this boot",
    pid_namespace=1,
    host="here",
    start_time="2025-01-04T12:00:00.000Z",
)
AN_EARLIER_OWNER = GuardOwner(
    pid=99,
    start_ticks=3,
    boot_id="this boot",
    pid_namespace=1,
    host="here",
    start_time="2025-01-03T00:00:00.000Z",
)


def judged(
    record: RuntimeLock | None = RECORD,
    owner: GuardOwner | None = None,
    *,
    pid_alive: bool = False,
    start_matches: bool = False,
    boot_matches: bool = True,
    heartbeat_moved: bool | None = None,
    now: datetime = NOW,
) -> Judgement:
    return judge(
        record,
        owner,
        pid_alive=pid_alive,
        start_matches=start_matches,
        boot_matches=boot_matches,
        heartbeat_moved=heartbeat_moved,
        now=now,
    )


def previous_of(judgement: Judgement) -> PreviousOwner:
    assert isinstance(judgement, Stale)
    return judgement.previous


def test_no_lock_means_free() -> None:
    """Without a lock file the directory is free, whatever else is known."""
    assert judged(None, ITS_WRITER, pid_alive=True, start_matches=True) == Free()


@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("matches", [False, True])
@pytest.mark.parametrize("boot", [False, True])
@pytest.mark.parametrize("moved", [None, False, True])
def test_a_lock_of_the_guards_last_owner_is_always_stale(
    alive: bool, matches: bool, boot: bool, moved: bool | None
) -> None:
    """A lock of the guard's last owner is stale whatever pids and clocks say, because that owner
    has released the guard."""
    judgement = judged(
        owner=ITS_WRITER,
        pid_alive=alive,
        start_matches=matches,
        boot_matches=boot,
        heartbeat_moved=moved,
    )
    assert isinstance(judgement, Stale)


def test_the_previous_owner_is_reported_with_its_run_and_the_age_of_its_heartbeat() -> None:
    """The report has the dead pid, its run and the age of its heartbeat."""
    assert previous_of(judged(owner=ITS_WRITER)) == PreviousOwner(
        pid=12345,
        run_id=RunId("1736000000000-abc123-def456"),
        heartbeat_age=timedelta(minutes=3, seconds=30),
        pid_alive=False,
        pid_reused=False,
    )


@pytest.mark.parametrize(
    ("matches", "boot", "reused"),
    [(True, True, False), (False, True, True), (True, False, True), (False, False, True)],
)
def test_a_reused_pid_is_recognised_by_its_start_or_its_boot(
    matches: bool, boot: bool, reused: bool
) -> None:
    """A living pid with another start time, or of another boot, is another process."""
    judgement = judged(owner=ITS_WRITER, pid_alive=True, start_matches=matches, boot_matches=boot)
    assert previous_of(judgement).pid_reused is reused


@pytest.mark.parametrize("owner", [None, AN_EARLIER_OWNER])
def test_a_foreign_lock_whose_process_lives_is_held(owner: GuardOwner | None) -> None:
    """A lock that the guard's last owner did not write is held while its process lives."""
    judgement = judged(owner=owner, pid_alive=True, start_matches=True)
    assert judgement == Held(RECORD, timedelta(minutes=3, seconds=30))


def test_a_foreign_lock_without_a_process_and_with_an_old_heartbeat_is_stale() -> None:
    """A dead pid and a heartbeat older than two minutes need no watch, as in Hankweave."""
    assert previous_of(judged()).heartbeat_age == timedelta(minutes=3, seconds=30)
    assert previous_of(judged(pid_alive=True, start_matches=False)).pid_reused


def test_a_young_heartbeat_of_no_process_here_is_unclear_until_watched() -> None:
    """A pid that is not visible here decides nothing, because it may belong to another host."""
    young = NOW - timedelta(seconds=90)
    assert judged(now=young) == Unclear()
    assert judged(pid_alive=True, start_matches=False, now=young) == Unclear()
    assert isinstance(judged(heartbeat_moved=False, now=young), Stale)


def test_a_moving_heartbeat_holds_and_a_still_one_does_not() -> None:
    """After the watch a foreign lock is held if its heartbeat changed, otherwise stale."""
    assert isinstance(judged(heartbeat_moved=True), Held)
    assert previous_of(judged(pid_alive=True, heartbeat_moved=False)).pid_reused


@pytest.mark.parametrize("hours", [-48, -2, 0, 2, 48])
def test_a_jumping_clock_frees_no_lock_of_a_living_process(hours: int) -> None:
    """The wall clock affects only the reported age, never whether a lock is held."""
    now = NOW + timedelta(hours=hours)
    assert isinstance(judged(pid_alive=True, start_matches=True, now=now), Held)
    age = previous_of(judged(owner=ITS_WRITER, now=now)).heartbeat_age
    assert age is not None
    assert age >= timedelta(0)


def test_an_unreadable_heartbeat_has_no_age() -> None:
    """An unparsable timestamp is reported as an unknown age, not as an error."""
    record = RuntimeLock(pid=12345, run_id=None, start_time="", last_heartbeat="yesterday")
    assert previous_of(judged(record, heartbeat_moved=False)).heartbeat_age is None
