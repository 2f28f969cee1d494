"""After a crash during a rollback, the next start has exactly the old or the new state.

The disk after a crash is reproduced for every moment of a rollback: the journal up to a line, the
intent, and the work tree before, during or after the restore. Other tests kill real servers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.codec import decode_transition, decode_value
from hankweave_protocol.commands import (
    CheckpointCreate,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.events import (
    CheckpointRollback,
    Event,
    RollbackCompleted,
    RollbackStarted,
    StateTransition,
)
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RollbackIntent
from hankweave_protocol.state import State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.reducer import fold
from hankweave_server.paths import Layout
from support.copies import copy_execution
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, running_server, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.struck import ends_rollback
from support.waiting import LIMIT, eventually
from support.watching import after_plan, idle, started, taken, to_end_of

LOOP = {
    "type": "loop",
    "id": "review",
    "name": "Review",
    "terminateOn": {"type": "iterationLimit", "limit": 2},
    "codons": [codon("check", {"append": {"path": "d/log.txt", "text": "check "}})],
}
HANK = (codon("one", writes("a.txt", "one"), writes("d/b.txt", "one")), LOOP, codon("last"))

Act = Callable[[Client], Awaitable[Any]]
Tree = dict[str, bytes]


# --- rollbacks ------------------------------------------------------------------------------------


async def back(client: Client) -> None:
    await client.send(to_end_of("one", reason="It went wrong."))


async def paths_back(client: Client) -> None:
    await client.send(to_end_of("one", paths=("a.txt", "d/log.txt")))


async def undo(client: Client) -> None:
    await client.send(RollbackUndo())


async def redo(client: Client) -> None:
    await client.send(RollbackRedo())


@dataclass(frozen=True)
class Journey:
    name: str
    before: tuple[Act, ...]
    act: Act


JOURNEYS = (
    Journey("a rollback", (), back),
    Journey("its undo", (back,), undo),
    Journey("its redo", (back, undo), redo),
    Journey("a rollback of paths", (), paths_back),
    Journey("the undo of one of paths", (back, undo, paths_back), undo),
    Journey("the redo of one of paths", (paths_back, undo), redo),
)


async def prepare(execution: Path, client: Client, journey: Journey) -> None:
    """Run the plan, let a person edit two files and save one, and make earlier rollbacks."""
    await idle(client)
    (execution / "agentRoot" / "a.txt").write_text("a person's")
    await client.send(CheckpointCreate(label="mine"))
    (execution / "agentRoot" / "d" / "b.txt").write_text("a person's, unsaved")
    for act in journey.before:
        await act(client)


# --- the disk after a crash -----------------------------------------------------------------------


@dataclass(frozen=True)
class Past:
    """A completed rollback, with everything needed to reproduce its moments."""

    execution: Path
    hank: Path
    copy: Path
    intent: bytes
    old: Tree
    new: Tree
    new_state: State

    @property
    def operation_id(self) -> str:
        return decode_value(RollbackIntent, self.intent).operation_id

    def lay_out(self, lines: int, content: Tree, *, intent: bool) -> None:
        """Lay out the disk as a power cut leaves it after this many lines of the journal."""
        shutil.rmtree(self.execution)
        copy_execution(self.copy, self.execution)
        layout = Layout.of_execution(self.execution)
        kept = layout.journal.read_bytes().splitlines(keepends=True)[:lines]
        layout.journal.write_bytes(b"".join(kept))
        layout.state.unlink()
        layout.state_backup.unlink(missing_ok=True)
        layout.wal.unlink(missing_ok=True)  # It has the removal of the intent; all else is there.
        # That comes after the reply: the copy may have the intent.
        layout.rollback_intent.unlink(missing_ok=True)
        if intent:
            layout.rollback_intent.write_bytes(self.intent)

        write_tree(layout.work_tree, content)

    @property
    def old_state(self) -> State:
        """Return the state before the safety checkpoint, when people's edits were detected."""
        return fold(journal(self.copy)[: self.safety_line - 1])

    @property
    def halfway(self) -> Tree:
        paths = sorted({*self.old, *self.new})
        sides = ((path, (self.new, self.old)[index % 2]) for index, path in enumerate(paths))
        return {path: side[path] for path, side in sides if path in side}

    @property
    def safety_line(self) -> int:
        """Return the number of lines once the safety checkpoint is recorded."""
        safety = decode_value(RollbackIntent, self.intent).safety.sha
        events = journal(self.copy)
        return next(event.seq for event in events if _records(event, safety))


def _records(event: Event, sha: Sha) -> bool:
    if not isinstance(event.data, StateTransition):
        return False

    made = decode_transition(event.data)
    return isinstance(made, CheckpointCreated) and made.checkpoint.sha == sha


def write_tree(folder: Path, content: Tree) -> None:
    """Make the files of a folder equal these; like a restore, write only those that differ."""
    for name in tree(folder).keys() - content.keys():
        (folder / name).unlink()

    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)

    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


_CATCH = """
import os, sys
print(flush=True)
while True:
    try:
        os.link(*sys.argv[1:])
        break
    except FileNotFoundError:
        pass
"""


@contextmanager
def caught_intent(execution: Path, copy: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Make a second name for the intent when it appears; it outlives the intent.

    The yielded program ends then.
    """
    intent = Layout.of_execution(execution).rollback_intent
    words = [sys.executable, "-c", _CATCH, str(intent), str(copy)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as catching:
        catching.stdout.readline()
        try:
            yield catching
        finally:
            catching.kill()


async def lived_through(folder: Path, journey: Journey) -> Past:
    execution, hank = folder / "execution", write_hank(folder / "hank", *HANK)
    async with served(hank, execution, since_seq=0) as (server, client):
        await prepare(execution, client, journey)
        return await killed_after(server, client, journey.act, folder)


async def killed_after(server: RunningServer, client: Client, act: Act, folder: Path) -> Past:
    """Kill a server when it has completed a rollback, and keep its intent and a copy of all."""
    execution = server.execution
    old = tree(execution / "agentRoot")
    # That of an earlier rollback is removed after its reply.
    await eventually(lambda: not Layout.of_execution(execution).rollback_intent.exists())
    with caught_intent(execution, folder / "intent"):
        await act(client)

    server.kill()
    await server.ended()
    return Past(
        execution=execution,
        hank=folder / "hank" / "hank.json",
        copy=copy_execution(execution, folder / "copy"),
        intent=(folder / "intent").read_bytes(),
        old=old,
        new=tree(execution / "agentRoot"),
        new_state=fold(journal(execution)),
    )


@asynccontextmanager
async def started_again(past: Past) -> AsyncIterator[RunningServer]:
    async with running_server(past.hank, None, past.execution, "--no-autostart") as server:
        yield server
        assert await server.stop() == 0


def on_thread(found: State) -> list[str]:
    return [entry.codon.codon_id for entry in thread(found)]


def assert_stands(past: Past, found: State, content: Tree, expected: State) -> None:
    """Assert files, plan position, rollbacks and edits, and that no part of it is pending."""
    assert tree(past.execution / "agentRoot") == content
    assert (on_thread(found), next_codon(found)) == (on_thread(expected), next_codon(expected))
    assert [entry.codon_id for entry in found.execution_plan] == [
        entry.codon_id for entry in expected.execution_plan
    ]
    assert (found.undo, found.redo) == (expected.undo, expected.redo)
    assert found.edits == expected.edits
    assert _notice_of(found) == _notice_of(expected)
    assert not Layout.of_execution(past.execution).rollback_intent.exists()
    folded = fold(journal(past.execution))
    assert replace(folded, last_event_seq=found.last_event_seq) == found
    GitWitness(past.execution).assert_sound()


def _notice_of(found: State) -> object:
    return None if found.notice is None else replace(found.notice, timestamp="")


def endings(execution: Path, operation_id: str) -> list[Event]:
    return [
        event
        for event in journal(execution)
        if isinstance(event.data, RollbackCompleted | CheckpointRollback)
        and ends_rollback(event.data)
        and event.data.operation_id == operation_id
    ]


# --- every moment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.name)
async def test_a_crash_leaves_the_old_or_the_new_state(journey: Journey, tmp_path: Path) -> None:
    """Before the intent it is the old one; from then on, at each line or mid-restore, the new."""
    past = await lived_through(tmp_path, journey)
    lines = len(journal(past.copy))
    for cut in (past.safety_line - 1, past.safety_line):
        past.lay_out(cut, past.old, intent=False)
        async with started_again(past):
            assert_stands(past, state(past.execution), past.old, past.old_state)

    moments = [(past.safety_line, past.old), (past.safety_line, past.halfway)]
    moments += [(cut, past.new) for cut in range(past.safety_line, lines + 1)]
    for cut, content in moments:
        past.lay_out(cut, content, intent=True)
        async with started_again(past):
            assert_stands(past, state(past.execution), past.new, past.new_state)

        assert len(endings(past.execution, past.operation_id)) == 1, f"after {cut} lines"


@pytest.mark.parametrize("journey", JOURNEYS[1:], ids=lambda journey: journey.name)
async def test_what_was_finished_at_a_start_can_be_taken_back(
    journey: Journey, tmp_path: Path
) -> None:
    """A rollback interrupted mid-restore and finished at the start can be undone or redone."""
    past = await lived_through(tmp_path, journey)
    past.lay_out(past.safety_line, past.halfway, intent=True)
    async with started_again(past) as server, server.client() as client:
        await client.send(RollbackRedo() if journey.act is undo else RollbackUndo())
        assert tree(past.execution / "agentRoot") == past.old
        assert on_thread(state(past.execution)) == on_thread(past.old_state)
        assert state(past.execution).edits == past.old_state.edits


# --- a real kill ----------------------------------------------------------------------------------

MANY = codon("many", {"run": "mkdir -p d; for i in $(seq 1500); do echo $i > d/f$i; done"})


async def killed(
    server: RunningServer, client: Client, act: Act, catching: subprocess.Popen[bytes]
) -> None:
    """Kill the server during the restore, once the intent exists."""

    async def send() -> None:
        try:
            await act(client)
        except (CommandRefused, ConnectionError, OSError):
            return

    async with anyio.create_task_group() as sender:
        sender.start_soon(send)
        await anyio.to_thread.run_sync(catching.wait, LIMIT)
        server.kill()
        await server.ended()
        sender.cancel_scope.cancel()


async def folder_back(client: Client) -> None:
    await client.send(to_end_of("one", paths=("d",)))


async def many_back(client: Client) -> None:
    await client.send(to_end_of("one"))


@pytest.mark.parametrize(
    ("before", "act", "directions"),
    [
        ((), folder_back, (1, 0)),
        ((folder_back,), undo, (0, 1)),
        ((folder_back, undo), redo, (1, 0)),
        ((many_back,), undo, (0, 1)),
        ((many_back, undo), redo, (1, 0)),
    ],
    ids=["paths", "undo of paths", "redo of paths", "undo", "redo"],
)
@pytest.mark.story(
    "A rollback that a kill interrupted is completed by the next start.", cases=("paths",)
)
async def test_a_killed_server_finishes_it_at_its_next_start(
    before: tuple[Act, ...], act: Act, directions: tuple[int, int], tmp_path: Path, execution: Path
) -> None:
    """kill -9 comes as soon as the intent is durable: the new state stands, and stacks agree."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "one")), MANY)
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        whole = tree(execution / "agentRoot")
        for each in before:
            await each(client)

        with caught_intent(execution, tmp_path / "intent") as catching:
            await killed(server, client, act, catching)

    async with running_server(hank, None, execution, "--no-autostart") as server:
        found = state(execution)
        assert tree(execution / "agentRoot") == (whole if act is undo else {"a.txt": b"one"})
        assert (len(found.undo), len(found.redo)) == directions
        assert await server.stop() == 0

    intent = decode_value(RollbackIntent, (tmp_path / "intent").read_bytes())
    assert len(endings(execution, intent.operation_id)) == 1
    assert fold(journal(execution)) == state(execution)
    GitWitness(execution).assert_sound()


# --- with a frozen agent --------------------------------------------------------------------------


@dataclass(frozen=True)
class Frozen:
    """A codon that has written twice and waits, and the checkpoint after its first write."""

    server: RunningServer
    client: Client
    first: Sha
    agent: int


@asynccontextmanager
async def frozen_work(folder: Path) -> AsyncIterator[Frozen]:
    middle = folder / "middle"
    work = codon(
        "work",
        writes("a.txt", "first"),
        waits_for(middle),
        {"run": "printf second > a.txt; printf second > b.txt"},
        waits_for(folder / "gate"),
    )
    hank = write_hank(folder / "hank", codon("one", writes("a.txt", "one")), work)
    async with served(hank, folder / "execution", since_seq=0) as (server, client):
        await started(client, "work")
        first = (await taken(client, "tool")).sha
        middle.touch()
        await taken(client, "tool")
        agent = state(folder / "execution").runs[0].codons[-1].claude_pid  # type: ignore[union-attr]
        yield Frozen(server, client, first, agent)


def back_under_it(first: Sha, paths: tuple[str, ...] | None) -> Act:
    async def act(client: Client) -> None:
        await client.send(
            RollbackToCheckpoint(checkpoint_sha=first, on_running="pause", paths=paths)
        )

    return act


@pytest.mark.parametrize("paths", [None, ("a.txt",)], ids=["all", "paths"])
async def test_killed_under_a_frozen_agent_the_codon_begins_anew(
    paths: tuple[str, ...] | None, tmp_path: Path, execution: Path
) -> None:
    """The agent is killed, frozen or not; files and plan position are those of the last success."""
    async with frozen_work(tmp_path) as work:
        with caught_intent(execution, tmp_path / "intent") as catching:
            await killed(work.server, work.client, back_under_it(work.first, paths), catching)

    await _assert_begins_anew(
        tmp_path,
        work.agent,
        decode_value(RollbackIntent, (tmp_path / "intent").read_bytes()).operation_id,
    )


async def test_a_crash_at_each_line_of_a_frozen_rollback(tmp_path: Path) -> None:
    """Wherever the journal ends, the codon begins anew and the rollback is reported once."""
    async with frozen_work(tmp_path) as work:
        act = back_under_it(work.first, None)
        past = await killed_after(work.server, work.client, act, tmp_path)

    lines = next(e.seq for e in endings(past.copy, past.operation_id)) + 1
    for cut in range(past.safety_line, lines + 1):
        past.lay_out(cut, past.halfway if cut == past.safety_line else past.new, intent=True)
        await _assert_begins_anew(tmp_path, work.agent, past.operation_id)


async def _assert_begins_anew(folder: Path, agent: int, operation_id: str) -> None:
    execution = folder / "execution"
    for _ in range(2):
        async with running_server(
            folder / "hank" / "hank.json", None, execution, "--no-autostart"
        ) as server:
            found = state(execution)
            assert not Path(f"/proc/{agent}").exists()
            assert tree(execution / "agentRoot") == {"a.txt": b"one"}
            assert (on_thread(found), next_codon(found)) == (["one"], "work")
            assert [travel.in_place for travel in found.undo] == [True, False]
            assert found.undo[0].operation_id == operation_id
            assert found.redo == ()
            assert await server.stop() == 0

    assert len(endings(execution, operation_id)) == 1
    begun = [e.data for e in journal(execution) if isinstance(e.data, RollbackStarted)]
    assert len(begun) == 1
    assert fold(journal(execution)) == state(execution)
    GitWitness(execution).assert_sound()
