"""Progress of long operations over a real socket and on a real terminal: who receives it, and what.

Quick operations report no progress, and the duration depends on the machine: each test repeats an
operation on a slowed server until it takes long enough.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_client.errors import ConnectionLost
from hankweave_protocol.commands import (
    CheckpointCreate,
    ExecutionBranch,
    RollbackToCheckpoint,
    RollbackUndo,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.events import (
    CheckpointPruned,
    Event,
    ExecutionBranched,
    StateTransition,
    StoreProgress,
)
from hankweave_protocol.ids import Sha
from support.running_server import RunningServer, command, environment, journal
from support.screens import screen
from support.scripted_hank import codon, write_hank, writes
from support.slowed import A_LITTLE, slowed
from support.waiting import LIMIT, eventually_blocking, limited
from support.watching import after_plan, to_end_of

FILES = 2_000
"""Enough files that a slowed server usually restores them slowly enough to report progress."""

HANK = (codon("one", writes("a.txt", "one")),)


@dataclass
class Ears:
    """The progress events that a client received."""

    events: list[StoreProgress] = field(default_factory=list)
    news: anyio.Event = field(default_factory=anyio.Event)

    async def listen(self, client: Client) -> None:
        async for event in client.events():
            if isinstance(event.data, StoreProgress):
                assert event.seq == 0
                self.events.append(event.data)
                self.news.set()
                self.news = anyio.Event()

    def of(self, operation: str, phase: str | None = None) -> list[StoreProgress]:
        return [
            each
            for each in self.events
            if each.operation == operation and phase in (None, each.phase)
        ]

    async def repeat_until_received(
        self, operation: str, phase: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Repeat the operation until the client has received this phase of it, and its end."""
        with limited():
            while not self.of(operation, phase):
                await work()

            while not self.of(operation)[-1].ended:
                await self.news.wait()


@asynccontextmanager
async def server_with_many_files(
    tmp_path: Path, files: int = FILES
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server that has run its plan, with many new files in its work tree."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        await anyio.to_thread.run_sync(fill, execution / "agentRoot", files)
        yield server, client


def fill(tree: Path, files: int, suffix: str = "") -> None:
    """Write this many files; another suffix changes the content of each."""
    for number in range(files):
        if number % 200 == 0:
            (tree / f"many-{number // 200}").mkdir(exist_ok=True)

        (tree / f"many-{number // 200}" / f"{number}.txt").write_text(f"{number}{suffix}\n" * 40)


@asynccontextmanager
async def listening(server: RunningServer, *, progress: bool) -> AsyncIterator[Ears]:
    address, ears = discover(server.execution), Ears()
    async with (
        connect(address.url, token=address.token, progress=progress) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ears.listen, client)
        yield ears
        tasks.cancel_scope.cancel()


def assert_in_order(events: list[StoreProgress]) -> None:
    """Assert one operation: phase after phase, each counting upwards, with one end."""
    assert events
    assert len({(each.operation_id, each.command_id) for each in events}) == 1
    assert [each.ended for each in events] == [False] * (len(events) - 1) + [True]
    for _, phase in groupby(events, key=lambda each: each.phase):
        for earlier, later in pairwise(phase):
            assert earlier.done <= later.done

    for each in events:
        assert each.total is None or each.done <= each.total


async def test_only_the_client_that_asked_receives_progress(tmp_path: Path) -> None:
    """Only the client that asked gets progress: of capture, restore, fsck and branch.

    Each event names the client's command, and none is journaled.
    """
    async with (
        server_with_many_files(tmp_path) as (server, client),
        listening(server, progress=True) as curious,
        listening(server, progress=False) as other,
    ):
        tree, made, branches = server.execution / "agentRoot", list[Sha](), list[Path]()

        async def capture() -> None:
            await anyio.to_thread.run_sync(fill, tree, FILES, f" in {len(made)}")
            made.append((await client.send(CheckpointCreate(label="much"))).sha)

        async def restore() -> None:
            await client.send(to_end_of("one"))
            await client.send(RollbackUndo())

        async def branch() -> None:
            path = str(tmp_path / f"branch-{len(branches)}")
            branches.append(
                Path(
                    (
                        await client.send(ExecutionBranch(checkpoint_sha=made[-1], path=path))
                    ).execution_path
                )
            )

        async def check() -> None:
            await client.send(StoreFsck())

        began = anyio.current_time()
        async with slowed(server):
            await curious.repeat_until_received("capture", "reading", capture)

        async with slowed(server, A_LITTLE):
            await curious.repeat_until_received("restore", "writing", restore)
            await curious.repeat_until_received("branch", "writing", branch)

        async with slowed(server):
            await curious.repeat_until_received("fsck", "checking", check)

        took = anyio.current_time() - began
        assert (branches[-1] / "agentRoot" / "many-0" / "0.txt").is_file()

    assert other.events == []
    by_operation = [list(group) for _, group in groupby(curious.events, lambda p: p.operation_id)]
    kinds = [kind for kind, _ in groupby(group[0].operation for group in by_operation)]
    assert kinds == ["capture", "restore", "branch", "fsck"]
    for events in by_operation:
        assert_in_order(events)
        assert events[0].command_id is not None

    assert len(curious.events) <= 10 * took + 2 * len(by_operation)
    counted = {(p.operation, p.phase): (p.unit, p.total) for p in curious.events}
    assert counted["capture", "reading"] == ("files", FILES)
    assert counted["restore", "writing"] == ("files", FILES)
    assert counted["branch", "writing"] == ("files", FILES + 1)
    assert counted["fsck", "checking"][0] == "objects"

    text = (tmp_path / "execution/.hankweave/events/events.jsonl").read_text()
    assert StoreProgress.TYPE not in text
    events = journal(tmp_path / "execution")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    causes = {cause for event in events for cause in event.causes}
    named = {group[0].command_id for group in by_operation if group[0].operation != "fsck"}
    assert named <= causes
    assert any(isinstance(event.data, ExecutionBranched) for event in events)


async def test_a_gc_counts_what_it_keeps_and_packs(tmp_path: Path) -> None:
    """Half of a large pack is pruned: the other half is repacked, and this reports progress."""
    async with (
        server_with_many_files(tmp_path) as (server, client),
        listening(server, progress=True) as curious,
    ):
        tree, phases = server.execution / "agentRoot", ("examining", "tracing", "sweeping")

        async def collect() -> None:
            await anyio.to_thread.run_sync(fill, tree, FILES)
            await client.send(CheckpointCreate(label="a dead end"))
            await client.send(to_end_of("one"))
            await anyio.to_thread.run_sync(fill, tree, FILES // 2)
            kept = await client.send(CheckpointCreate(label="half of it"))
            # The newest rollback can be undone: only an older one leaves something to prune.
            await client.send(to_end_of("one"))
            await client.send(RollbackToCheckpoint(checkpoint_sha=kept.sha))
            async with slowed(server):
                assert (await client.send(StoreGc(max_count=0))).pruned

        with limited():
            while not curious.of("gc"):
                await collect()

    for _, events in groupby(curious.of("gc"), lambda each: each.operation_id):
        assert_in_order(list(events))

    assert {each.phase for each in curious.of("gc")} <= {*phases, "packing"}
    assert any(isinstance(e.data, CheckpointPruned) for e in journal(server.execution))


async def test_who_leaves_in_the_midst_of_it_breaks_nothing(tmp_path: Path) -> None:
    """The requested checkpoint is made and reported to the others, and so is the next one."""
    async with server_with_many_files(tmp_path) as (server, client):
        with limited():
            attempt, tree = 1, server.execution / "agentRoot"
            while not await has_left_in_the_midst(server, f"left {attempt}"):
                attempt += 1
                await anyio.to_thread.run_sync(fill, tree, FILES, f" in {attempt}")

        def is_it(event: Event) -> bool:
            assert isinstance(event.data, StateTransition)
            return f'"label":"left {attempt}"'.encode() in bytes(event.data.transition.data)

        await client.until(StateTransition, is_it, timeout=LIMIT)

        made = await client.send(CheckpointCreate(label="after it"))
        assert made.label == "after it"
        assert not (await client.send(StoreFsck())).damages


async def has_left_in_the_midst(server: RunningServer, label: str) -> bool:
    """Request a checkpoint and leave while it is made; return False if that was too quick."""
    address, events = discover(server.execution), list[Event]()
    async with (
        connect(address.url, token=address.token, progress=True, reconnect=False) as leaving,
        slowed(server),
        anyio.create_task_group() as tasks,
    ):

        async def ask() -> None:
            try:
                await leaving.send(CheckpointCreate(label=label))
            except ConnectionLost:
                return

            tasks.cancel_scope.cancel()

        tasks.start_soon(ask)
        events.append(await leaving.until(StoreProgress, timeout=LIMIT))
        tasks.cancel_scope.cancel()

    return bool(events) and not getattr(events[0].data, "ended", True)


async def test_bars_are_drawn_on_a_terminal_of_what_a_server_does(tmp_path: Path) -> None:
    """A running server's rollback, undo, branch and fsck draw bars, as the console script does."""
    async with server_with_many_files(tmp_path) as (server, client):
        root = str(server.execution)
        made = await client.send(CheckpointCreate(label="much"))
        work = anyio.to_thread.run_sync
        back, forth = ("rollback", "--codon", "one", "--yes"), ("undo", "--yes")
        async with slowed(server, A_LITTLE):
            await work(draws, "Restoring files", root, back, forth)
            await work(draws, "Restoring files", root, forth, back)
            await work(draws, "Writing files", root, ("branch", made.sha))

        async with slowed(server):
            await work(draws, "Reading the store", root, ("fsck",))
            await attach_shows("Reading the store: ", client, root)
            await work(is_silent, server.execution)


def draws(text: str, root: str, words: tuple[str, ...], back: tuple[str, ...] = ()) -> None:
    """Repeat the command, reversing it in between, until it takes long enough to be drawn."""

    def is_drawn_or_reversed() -> bool:
        if _is_drawn(text, root, words):
            return True

        if back:
            _is_drawn(text, root, back)

        return False

    eventually_blocking(is_drawn_or_reversed)


def _is_drawn(text: str, root: str, words: tuple[str, ...]) -> bool:
    with screen(*words, "--execution", root) as shown:
        assert shown.ended() == 0, shown.text()
        assert "\x1b[?25h" not in shown.text()
        return text in shown.text() and " of " in shown.text()


async def attach_shows(text: str, client: Client, root: str) -> None:
    """Assert that an attached client sees another client's operation, and nothing after its end."""
    with screen("attach", "--execution", root, columns=110) as shown:
        work = anyio.to_thread.run_sync
        await work(shown.until, lambda seen: "? keys" in seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check_again_and_again, client)
            await work(shown.until, lambda seen: text in seen)
            tasks.cancel_scope.cancel()

        shown.press("q")
        assert await work(shown.ended) == 0


async def check_again_and_again(client: Client) -> None:
    while True:
        await client.send(StoreFsck())


def is_silent(execution: Path) -> None:
    """Assert that in a pipe, and with --json on a terminal, only the answer is printed."""
    words = ("fsck", "--execution", str(execution))
    done = subprocess.run(
        command(*words), env=environment(TERM="xterm-256color"), capture_output=True, check=True
    )
    assert done.stderr == b""
    with screen(*words, "--json") as shown:
        assert shown.ended() == 0
        assert "Reading" not in shown.text()
        assert b"\x1b[" not in shown.bytes
