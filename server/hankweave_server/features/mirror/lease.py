"""The owner of a mirrored execution, and its time.

The lease is a commit that one ref of the remote names. Whoever replaces it by a compare-and-swap
push owns the execution, and everything that the mirror has is reachable from that commit. A push
by anyone else is refused: what is in the mirror needs no clock to be safe.

Clocks are needed for what happens outside of the mirror, such as an agent at work. Each machine
uses its own, one that neither stops while the machine sleeps nor can be set (CLOCK_BOOTTIME):

- The owner stops its agent when its last push that succeeded *began* `ttl - margin` seconds ago.
- Anyone else takes the lease over when it has not changed for `ttl + margin` seconds, or takes it
  at once and waits that long before an agent starts.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.shapes import Value

Mode = Literal["async", "sync"]
"""Whether events wait for the mirror."""

TTL = 30.0
"""Seconds for which a push gives the lease, unless a start says otherwise."""

SHORTEST_TTL = 6.0
LONGEST_TTL = 3600.0

_HEADLINE = "Lease of a Hankweave execution"


class NotALease(ValueError):
    """A commit is not a lease that this version can read."""


class Lease(Value):
    """A lease, as its commit says it."""

    execution_id: str
    """Identifies the execution; the same wherever it is continued."""
    owner: str
    """The machine and the directory that have the lease, for people."""
    nonce: str
    """Identifies the owner, across the restarts of its server."""
    epoch: int
    """How often the lease was taken."""
    push: int
    """Counts the pushes of this epoch."""
    ttl: float
    """Seconds for which it is given."""
    last_event_seq: int
    """The seq of the last event in the mirror."""
    journal_bytes: int
    """The size of the journal in the mirror."""
    released: bool = False
    """True if the owner has ended in order: anyone may go on at once."""


def message_of(lease: Lease) -> str:
    """Return the message of a lease's commit."""
    return f"{_HEADLINE}\n\n{msgspec.json.encode(lease).decode()}\n"


def lease_of(message: str) -> Lease:
    """Return the lease from the message of its commit; raise NotALease."""
    headline, _, text = message.partition("\n\n")
    if headline != _HEADLINE:
        raise NotALease("the ref names a commit that is not a lease")

    try:
        return msgspec.json.decode(text, type=Lease)
    except msgspec.MsgspecError as error:
        raise NotALease(f"the lease cannot be read: {error}") from None


def margin(ttl: float) -> float:
    """Return the seconds between the end of one owner and the beginning of the next, each."""
    return max(1.0, ttl / 10)


def renewal(ttl: float) -> float:
    """Return the seconds after which an owner renews its lease, and a push is given up."""
    return ttl / 3


def owned_until(pushed_at: float, ttl: float) -> float:
    """Return when the owner has to stop its agent; `pushed_at` is when its last push began."""
    return pushed_at + ttl - margin(ttl)


def free_from(unchanged_since: float, ttl: float) -> float:
    """Return when no former owner can have an agent at work any more."""
    return unchanged_since + ttl + margin(ttl)


def taken(former: Lease | None, *, execution_id: str, owner: str, nonce: str, ttl: float) -> Lease:
    """Return the lease with which an owner begins; its predecessor is replaced."""
    return Lease(
        execution_id=execution_id,
        owner=owner,
        nonce=nonce,
        epoch=1 if former is None else former.epoch + 1,
        push=0,
        ttl=ttl,
        last_event_seq=0 if former is None else former.last_event_seq,
        journal_bytes=0 if former is None else former.journal_bytes,
    )


def renewed(lease: Lease, *, last_event_seq: int, journal_bytes: int, released: bool) -> Lease:
    """Return the same owner's next lease."""
    return msgspec.structs.replace(
        lease,
        push=lease.push + 1,
        last_event_seq=last_event_seq,
        journal_bytes=journal_bytes,
        released=released,
    )
