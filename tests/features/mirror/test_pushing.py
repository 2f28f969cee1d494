"""When a server pushes, what waits for it, and what it does when a push fails; time is virtual."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
import pytest

from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import MirrorStatus
from hankweave_server.features.mirror.contents import Segments
from hankweave_server.features.mirror.lease import Mode, owned_until, renewed, taken
from hankweave_server.features.mirror.pushing import (
    CLEANED_AFTER,
    PACKED_AFTER,
    CannotBeComposed,
    Composed,
    Mirroring,
    Position,
    Reactions,
)
from hankweave_server.features.mirror.record import MirrorRecord
from hankweave_server.features.mirror.remote import Pushed, Uploaded
from hankweave_server.features.mirror.server_part import status_of
from support.attached import StillClock
from support.waiting import LIMIT, eventually_blocking, limited

TTL = 30.0
RECORD = MirrorRecord(
    address="https://key@host/mirror.git", mode="async", ttl=TTL, execution_id="e"
)


class HandClock(StillClock):
    """A clock that a test moves."""

    seconds = 1000.0

    def boottime(self) -> float:
        return self.seconds


@dataclass
class World:
    """A remote, a journal and the reactions of a server."""

    clock: HandClock = field(default_factory=HandClock)
    journal: Position = field(default_factory=lambda: Position(0, 0))
    ref: Sha | None = None
    answers: list[Callable[[Sha, Sha | None], Pushed]] = field(default_factory=list)
    """What the next pushes do; without one, a push succeeds."""
    obstacles: list[str] = field(default_factory=list)
    """Why the execution cannot be read for the next pushes."""
    reacted: list[str] = field(default_factory=list)
    composed: int = 0
    known: dict[Sha, int] = field(default_factory=dict)
    """How many events are in each commit."""
    is_too_large: bool = False
    """Whether events are too much for a push, unless they were uploaded."""
    tidied: list[bool] = field(default_factory=list)
    """Each packing, and whether it was thorough."""
    uploads: list[Callable[[Callable[[], bool]], str | None]] = field(default_factory=list)
    """What the next uploads do, in a worker thread, and why they fail; without one, nothing."""
    acts: list[str] = field(default_factory=list)
    """The pushes that moved the ref, the uploads that ended, and what was forgotten."""
    _reaction: anyio.Event = field(default_factory=anyio.Event)

    def push(self, new: Sha, expected: Sha | None, within: float) -> Pushed:
        assert within <= TTL / 3
        if self.answers:
            return self.answers.pop(0)(new, expected)

        if self.ref != expected:
            return Pushed("refused", self.ref)

        if self.is_too_large and self.known[new] > 0 and not self._is_uploaded(new):
            return Pushed("not done", expected, 0, "no answer", is_slow=True)

        self.ref = new
        self.acts.append(f"push of {self.known[new]}")
        return Pushed("done", None, 100)

    def upload(self, commit: Sha, is_given_up: Callable[[], bool]) -> Uploaded:
        problem = self.uploads.pop(0)(is_given_up) if self.uploads else None
        self.acts.append(f"upload of {self.known[commit]}" if problem is None else problem)
        return Uploaded(problem, 1000)

    def _was_uploaded(self) -> bool:
        return any(each.startswith("upload") for each in self.acts) and "forget" not in self.acts

    def _is_uploaded(self, commit: Sha) -> bool:
        return f"upload of {self.known[commit]}" in self.acts

    def forget_upload(self, within: float) -> None:
        assert within <= TTL / 3
        if self._was_uploaded():
            self.acts.append("forget")

    def unblock(self, after: float, now: float) -> None:
        assert after == TTL

    def clean_up(self, *, thoroughly: bool) -> None:
        self.tidied.append(thoroughly)

    async def compose(self, former: Composed, uploaded: Sha | None, *, released: bool) -> Composed:
        assert (uploaded is not None) == self._was_uploaded()
        if self.obstacles:
            raise CannotBeComposed(self.obstacles.pop(0))

        return self._next(former, self.journal, released)

    async def renew(self, former: Composed) -> Composed:
        return self._next(former, former.position, False)

    def _next(self, former: Composed, position: Position, released: bool) -> Composed:
        self.composed += 1
        lease = renewed(
            former.lease,
            last_event_seq=position.last_event_seq,
            journal_bytes=position.journal_bytes,
            released=released,
        )
        sha = Sha(f"{self.composed:040x}")
        self.known[sha] = position.last_event_seq
        return Composed(sha, lease, Segments())

    async def has_reacted(self) -> None:
        """Wait until the server has reacted to anything."""
        await self._reaction.wait()

    def react(self, what: str) -> None:
        self.reacted.append(what)
        self._reaction.set()

    def grow(self) -> None:
        self.journal = Position(self.journal.last_event_seq + 1, self.journal.journal_bytes + 100)

    @asynccontextmanager
    async def mirroring(self, mode: Mode) -> AsyncIterator[Mirroring]:
        """Run the mirror of a server that has just taken the lease; a test that hangs fails."""
        lease = taken(None, execution_id="e", owner="here", nonce="n", ttl=TTL)
        begun = Composed(Sha("f" * 40), lease, Segments())
        self.ref = begun.sha

        async def lost(found: Sha | None, events_behind: int) -> None:
            self.react(f"lost to {found}, which lacks {events_behind}")

        async def noted(what: str) -> None:
            self.react(what)

        async def no_time(_seconds: float) -> None:
            await anyio.lowlevel.checkpoint()

        mirroring = Mirroring(
            begun,
            self.clock.seconds,
            record=msgspec.structs.replace(RECORD, mode=mode),
            remote=self,
            source=self,
            reactions=Reactions(
                lost=lost,
                lease_expired=lambda: noted("lease expired"),
                lease_renewed=lambda: noted("lease renewed"),
                push_failed=self.react,
                push_succeeded=lambda: self.react("push succeeded"),
            ),
            clock=self.clock,
            newest=lambda: self.journal,
            nap=no_time,
        )
        with limited():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mirroring.run)
                yield mirroring
                tasks.cancel_scope.cancel()


@pytest.fixture
def world() -> World:
    return World()


def unreachable(_new: Sha, _expected: Sha | None) -> Pushed:
    return Pushed("not done", None, 0, "no route to host")


async def test_in_sync_mode_nothing_is_published_before_it_is_in_the_mirror(world: World) -> None:
    """The writer waits until a push has carried the event."""
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()
        assert mirroring.mirrored == world.journal
        assert world.ref == Sha(f"{1:040x}")


async def test_in_async_mode_nothing_waits(world: World) -> None:
    """The event is in the journal alone when it is published."""
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.written()
        assert mirroring.mirrored != world.journal
        await mirroring.push_now()
        assert mirroring.mirrored == world.journal


async def test_what_is_written_during_a_push_is_in_the_next_one(world: World) -> None:
    """A push says how far the journal went when it was composed, not when it ended."""

    def slow(new: Sha, expected: Sha | None) -> Pushed:
        world.grow()
        world.ref = new
        return Pushed("done")

    world.answers.append(slow)
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()
        assert mirroring.mirrored == Position(1, 100)
        await mirroring.written()
        assert mirroring.mirrored == Position(2, 200)


async def test_a_lost_lease_ends_the_pushes(world: World) -> None:
    """No further push is made, and what waits for one is never told that it was."""
    written: list[str] = []

    async def write(mirroring: Mirroring) -> None:
        await mirroring.written()
        written.append("written")

    async with world.mirroring("sync") as mirroring, anyio.create_task_group() as tasks:
        world.ref = Sha("e" * 40)
        world.grow()
        tasks.start_soon(write, mirroring)
        await world.has_reacted()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert not written
    assert world.reacted == [f"lost to {'e' * 40}, which lacks 1"]
    assert world.composed == 1


async def test_a_push_that_fails_is_repeated(world: World) -> None:
    """The event waits, the problem is reported, and its end too."""
    world.answers += [unreachable, unreachable]
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()

    assert world.reacted == ["no route to host", "no route to host", "push succeeded"]


async def test_an_execution_that_cannot_be_read_for_a_push_is_tried_again(world: World) -> None:
    """A full disk may be the reason; nothing is pushed until then, and the server goes on."""
    world.obstacles += ["the disk is full"]
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()

    assert world.reacted == ["the disk is full", "push succeeded"]


async def test_a_push_that_arrives_late_is_recognised(world: World) -> None:
    """It was given up, and moved the ref all the same: the next push finds it there."""

    def late(new: Sha, _expected: Sha | None) -> Pushed:
        world.ref = new
        return Pushed("not done", None, 0, "no answer")

    world.answers.append(late)
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()
        assert mirroring.mirrored == world.journal

    assert not any(each.startswith("lost") for each in world.reacted)


async def test_what_is_too_much_for_a_push_is_uploaded_while_the_lease_is_renewed(
    world: World,
) -> None:
    """The agent works on, nothing is reported, and the push after the upload has everything."""

    def upload(_is_given_up: Callable[[], bool]) -> None:
        for _ in range(3):
            anyio.from_thread.run(renewal)

    async def renewal() -> None:
        seen = mirroring.tally.pushes
        world.clock.seconds += TTL / 3
        await mirroring.written()
        while mirroring.tally.pushes == seen:
            await anyio.lowlevel.checkpoint()

        assert mirroring.is_held
        assert mirroring.events_behind == 1

    world.is_too_large = True
    world.uploads.append(upload)
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.push_now()
        await mirroring.release()

    assert world.acts == [
        *["push of 0"] * 4,
        "upload of 1",
        "push of 1",
        "forget",
        "push of 1",
    ]
    assert not world.reacted


async def test_an_upload_that_fails_is_repeated(world: World) -> None:
    """The push after it is too large again."""
    world.is_too_large = True
    world.uploads.append(lambda _is_given_up: "the connection broke")
    async with world.mirroring("sync") as mirroring:
        world.grow()
        await mirroring.written()
        assert mirroring.mirrored == world.journal

    assert [each for each in world.acts if each != "push of 0"] == [
        "the connection broke",
        "upload of 1",
        "push of 1",
    ]


async def test_a_server_that_ends_gives_an_upload_up(world: World) -> None:
    """Events that were not mirrored stay here, and the lease is not released."""
    begun, ended = anyio.Event(), threading.Event()

    def upload(is_given_up: Callable[[], bool]) -> str:
        anyio.from_thread.run_sync(begun.set)
        eventually_blocking(is_given_up)
        ended.set()
        return "given up"

    world.is_too_large = True
    world.uploads.append(upload)
    async with world.mirroring("async") as mirroring, anyio.create_task_group() as tasks:
        world.grow()
        tasks.start_soon(mirroring.push_now)
        await begun.wait()
        assert not await mirroring.end(0)

    eventually_blocking(ended.is_set)
    assert not mirroring.lease.released


async def test_nothing_is_written_while_the_lease_has_run_out(world: World) -> None:
    """The agent is stopped; both go on when a push has succeeded."""
    async with world.mirroring("async") as mirroring:
        await mirroring.may_write()
        world.clock.seconds = owned_until(world.clock.seconds, TTL)
        world.answers.append(unreachable)
        await mirroring.may_write()
        assert mirroring.is_held

    assert world.reacted == ["lease expired", "no route to host", "push succeeded", "lease renewed"]


async def test_the_lease_counts_from_the_beginning_of_a_push(world: World) -> None:
    """However long it takes: others count from when they see it, which is later."""

    def slow(new: Sha, _expected: Sha | None) -> Pushed:
        world.ref = new
        world.clock.seconds += TTL
        return Pushed("done")

    world.answers.append(slow)
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.push_now()
        assert not mirroring.is_held


async def test_a_server_waits_for_its_mirror_while_it_has_the_lease(world: World) -> None:
    """One that cannot be reached is waited for until the lease has run out."""
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.push_while_held()
        assert mirroring.mirrored == world.journal
        world.grow()
        world.answers += [unreachable] * 1000
        world.clock.seconds += TTL
        await mirroring.push_while_held()
        assert mirroring.mirrored != world.journal
        assert not mirroring.is_held


async def test_an_orderly_end_frees_the_lease(world: World) -> None:
    """Whatever is left goes with it, and no push follows."""
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.release()
        assert mirroring.lease.released
        assert mirroring.mirrored == world.journal

    assert world.composed == 1


async def test_what_pushes_have_sent_is_packed_now_and_then(world: World) -> None:
    """Beside further pushes; what later ones have made superfluous is removed more rarely."""
    async with world.mirroring("sync") as mirroring:
        while True not in world.tidied:
            world.grow()
            await mirroring.written()

        assert mirroring.tally.pushes >= CLEANED_AFTER
        assert mirroring.tally.pushes >= len(world.tidied) * PACKED_AFTER

    assert len(world.tidied) > 1


async def test_a_server_that_ends_its_mirror_waits_for_nothing(world: World) -> None:
    """The lease is released, no push follows, and the journal grows as without a mirror."""
    async with world.mirroring("sync") as mirroring:
        world.grow()
        assert await mirroring.end(LIMIT)
        assert mirroring.lease.released
        world.grow()
        world.clock.seconds += TTL
        await mirroring.may_write()
        await mirroring.written()
        await mirroring.release()

    assert world.composed == 1


async def test_a_mirror_that_cannot_be_reached_ends_all_the_same(world: World) -> None:
    """An event that waited for it is published, and a stopped agent continues."""
    written = anyio.Event()

    async def write(mirroring: Mirroring) -> None:
        await mirroring.written()
        written.set()

    world.answers += [unreachable] * 1000
    async with world.mirroring("sync") as mirroring, anyio.create_task_group() as tasks:
        world.grow()
        world.clock.seconds = owned_until(world.clock.seconds, TTL)
        tasks.start_soon(write, mirroring)
        tasks.start_soon(mirroring.push_now)
        await world.has_reacted()
        assert not await mirroring.end(0)
        await written.wait()

    assert world.reacted[0] == "lease expired"
    assert world.reacted[-1] == "lease renewed"


# --- the status for clients ---------------------------------------------------------------------


def shown_status(world: World, mirroring: Mirroring) -> MirrorStatus:
    now = world.clock.seconds
    return status_of(mirroring, world.journal, now, lambda text: text.replace("key", "***"))


async def test_the_status_says_how_far_the_mirror_is_behind(world: World) -> None:
    """It counts events, bytes and seconds; after a push, there is nothing to count."""
    async with world.mirroring("async") as mirroring:
        world.grow()
        world.grow()
        world.clock.seconds += 0.5
        status = shown_status(world, mirroring)
        behind = status.events_behind, status.bytes_behind, status.seconds_behind
        assert behind == (2, 200, 0.5)
        await mirroring.push_now()
        world.clock.seconds += 4
        status = shown_status(world, mirroring)
        behind = status.events_behind, status.bytes_behind, status.seconds_behind
        assert behind == (0, 0, 0)
        assert (status.mirrored_seq, status.mirrored_bytes) == (2, 200)
        assert (status.pushes, status.sent_bytes, status.seconds_since_push) == (2, 100, 4)


async def test_the_status_says_who_has_the_lease_and_how_long(world: World) -> None:
    """The time left is that without any doubt; a token in the address is not shown."""
    async with world.mirroring("async") as mirroring:
        held = shown_status(world, mirroring)
        assert (held.owner, held.epoch, held.ttl_seconds, held.lease_held) == (
            "here",
            1,
            TTL,
            True,
        )
        assert held.lease_seconds_left == owned_until(0, TTL)
        assert held.address == "https://***@host/mirror.git"
        world.answers += [unreachable] * 1000
        world.clock.seconds += TTL
        await world.has_reacted()
        lease_expired = shown_status(world, mirroring)
        assert (lease_expired.lease_held, lease_expired.lease_seconds_left) == (False, 0)


async def test_the_status_has_the_error_of_git_until_a_push_succeeds(world: World) -> None:
    """They say why the last push failed."""
    seen: list[str | None] = []

    def fails(new: Sha, expected: Sha | None) -> Pushed:
        seen.append(shown_status(world, mirroring).problem)
        return unreachable(new, expected)

    world.answers += [fails, fails]
    async with world.mirroring("async") as mirroring:
        world.grow()
        await mirroring.push_now()
        assert shown_status(world, mirroring).problem is None

    assert seen == [None, "no route to host"]
