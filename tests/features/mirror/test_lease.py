"""The owner of a mirrored execution, and its time."""

from __future__ import annotations

import pytest

from hankweave_server.features.mirror.lease import (
    Lease,
    NotALease,
    free_from,
    lease_of,
    message_of,
    owned_until,
    renewal,
    renewed,
    taken,
)

TTLS = (6.0, 30.0, 3600.0)


def lease(former: Lease | None = None, nonce: str = "a") -> Lease:
    return taken(former, execution_id="e", owner="here", nonce=nonce, ttl=30.0)


@pytest.mark.parametrize("ttl", TTLS)
def test_the_former_owner_has_stopped_before_the_next_one_begins(ttl: float) -> None:
    """Even if their clocks run differently: there are two seconds or more between them.

    The next owner counts from when it saw the lease last change, which is after the owner's push.
    """
    pushed = 1000.0
    assert free_from(pushed, ttl) - owned_until(pushed, ttl) >= 2.0


@pytest.mark.parametrize("ttl", TTLS)
def test_an_owner_may_miss_one_renewal(ttl: float) -> None:
    """A push that is given up at its limit leaves the time for another one."""
    assert renewal(ttl) + 0.5 * renewal(ttl) < owned_until(0.0, ttl)


def test_a_lease_is_read_as_it_was_written() -> None:
    """It is the message of a commit."""
    one = renewed(lease(), last_event_seq=5, journal_bytes=700, released=True)
    assert lease_of(message_of(one)) == one


@pytest.mark.parametrize("message", ["", "Another commit\n", "Lease of a Hankweave execution\n\n{"])
def test_another_commit_is_no_lease(message: str) -> None:
    """The ref may have been used for something else."""
    with pytest.raises(NotALease):
        lease_of(message)


def test_each_owner_has_an_epoch_of_its_own() -> None:
    """The contents stay; the pushes are counted anew, and the lease is not released."""
    first = renewed(lease(), last_event_seq=5, journal_bytes=700, released=True)
    second = lease(first, "b")
    assert (first.epoch, second.epoch) == (1, 2)
    assert (second.push, second.released) == (0, False)
    assert (second.last_event_seq, second.journal_bytes) == (5, 700)
