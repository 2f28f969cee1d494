"""Actions of servers under fault injection: every operation that writes."""

from __future__ import annotations

import json
from pathlib import Path

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    ExecutionBranch,
    ExplorationAdopt,
    ExplorationShow,
    ExplorationStart,
    GetServerStatus,
    GetState,
    ListCheckpoints,
    RollbackRedo,
    RollbackToCodon,
    RollbackUndo,
    StoreGc,
)
from hankweave_protocol.events import ExecutionBranched
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import State
from hankweave_server.domain.execution_thread import beginnings, thread
from hankweave_server.paths import Layout
from support.invariants import Acknowledged, tree_violations, violations
from support.running_server import journal, running_server, state
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.struck import BESIDE, Grounds, Scenario, attempts_beside
from support.tally import Tally
from support.waiting import eventually
from support.watching import idle, started

ONE = codon("one", writes("a.txt", "one"), writes("d/b.txt", "one"), writes("gone/c.txt", "one"))
AFTER_ONE = {"a.txt": b"one", "d/b.txt": b"one", "gone/c.txt": b"one"}
TWO = codon(
    "two",
    {
        "run": "rm -r gone; printf two > a.txt; printf two > e.txt; mkdir -p d/f; "
        "for i in 1 2 3; do printf $i > d/f/$i; done; chmod 600 d/b.txt"
    },
)


def _hank(folder: Path) -> Path:
    return write_hank(folder / "hank", ONE, TWO)


# --- initial states -------------------------------------------------------------------------------


async def nothing_yet(folder: Path) -> None:
    _hank(folder)


async def begun(folder: Path) -> None:
    """Prepare a plan of which nothing has run."""
    async with running_server(
        _hank(folder), None, folder / "execution", "--no-autostart"
    ) as server:
        assert await server.stop() == 0


async def done(folder: Path) -> None:
    """Prepare a plan that has run, and a user's edits that no checkpoint has."""
    async with (
        running_server(_hank(folder), None, folder / "execution") as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        await client.send(CheckpointCreate(label="by hand"))
        assert await server.stop() == 0

    work_tree = folder / "execution" / "agentRoot"
    (work_tree / "a.txt").write_text("a person's")
    (work_tree / "new.txt").write_text("a person's")


async def changed(folder: Path) -> None:
    """Prepare the same with a changed hank."""
    await done(folder)
    write_hank(folder / "hank", ONE, TWO | {"name": "Two, as it is now"})


async def travelled(folder: Path) -> None:
    """Prepare the same with a rollback that can be undone."""
    await done(folder)
    async with (
        running_server(None, None, folder / "execution", "--no-autostart") as server,
        server.client() as client,
    ):
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        (folder / "execution" / "agentRoot" / "a.txt").write_text("a person's, later")
        await client.send(CheckpointCreate(label="on a dead end"))
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        assert await server.stop() == 0


async def undone(folder: Path) -> None:
    """Prepare a rollback that was undone and can be redone."""
    await travelled(folder)
    async with (
        running_server(None, None, folder / "execution", "--no-autostart") as server,
        server.client() as client,
    ):
        await client.send(RollbackUndo())
        assert await server.stop() == 0


async def cut_short(folder: Path) -> None:
    """Prepare a rollback that was killed in the middle of its restore."""
    killed = Scenario("a rollback, to be killed", done, back)
    grounds = Grounds(folder, killed, Tally())
    counted = await grounds.build()
    layout = Layout.of_execution(folder / "execution")
    renames = range(1, counted["rename"] + 1)
    order = sorted(renames, key=lambda at: abs(3 * at - 2 * len(renames)))
    # state.json is replaced at its own time, which moves the numbers of the other renames.
    for at in order * 3:
        await grounds.only_struck(grounds.strike("rename", at))
        if layout.rollback_intent.exists() and _is_half_restored(layout.work_tree):
            grounds.forget()
            return

    raise AssertionError("no kill met the restore")


def _is_half_restored(work_tree: Path) -> bool:
    """Return True if a part of the target and a part of the replaced files exist."""
    back_again = (work_tree / "gone" / "c.txt").exists()
    return back_again != ((work_tree / "a.txt").read_text() == "one")


async def crashed(folder: Path) -> None:
    """Prepare a codon whose server was killed while its agent worked."""
    gate = folder / "gate"
    hank = write_hank(folder / "hank", ONE, codon("two", writes("a.txt", "2"), waits_for(gate)))
    written = folder / "execution" / "agentRoot" / "a.txt"
    async with (
        running_server(hank, None, folder / "execution") as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "two")
        await eventually(lambda: written.read_text() == "2")

        server.kill()
        await server.ended()


# --- actions --------------------------------------------------------------------------------------


async def run_a_codon(client: Client, acknowledged: Acknowledged) -> None:
    await client.send(CodonNext())

    async def is_at_rest() -> bool:
        await client.send(GetServerStatus())
        return acknowledged.is_at_rest

    await eventually(is_at_rest)


async def checkpoint(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.checkpoints.append(await client.send(CheckpointCreate(label="by hand")))


async def back(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.rollbacks.append(
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
    )


async def paths_back(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.rollbacks.append(
        await client.send(
            RollbackToCodon(
                codon_id=CodonId("one"), checkpoint_type="end", paths=("a.txt", "gone", "d")
            )
        )
    )


async def undo(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.rollbacks.append(await client.send(RollbackUndo()))


async def collect(client: Client, acknowledged: Acknowledged) -> None:
    await client.send(StoreGc(max_count=0))


async def redo(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.rollbacks.append(await client.send(RollbackRedo()))


async def branch(client: Client, acknowledged: Acknowledged) -> None:
    place = Path(client.ready.execution_path).with_name(BESIDE) / "branch"
    page = await client.send(ListCheckpoints(kinds=("completed",)))
    sha = next(each.sha for each in page.checkpoints if each.coordinate.codon_id == "one")
    acknowledged.branches.append(
        await client.send(ExecutionBranch(checkpoint_sha=sha, path=str(place)))
    )


async def explore(client: Client, acknowledged: Acknowledged) -> None:
    """Try the second codon once more, and wait until the attempt has ended."""
    begun = await client.send(ExplorationStart(codon_id=CodonId("two"), n=1, score="echo 1"))
    acknowledged.explorations.append(begun.exploration_id)
    await _exploration_ends(client)


async def _exploration_ends(client: Client) -> None:
    async def has_ended() -> bool:
        return (await client.send(ExplorationShow())).ended_at is not None

    await eventually(has_ended)


async def adopt(client: Client, acknowledged: Acknowledged) -> None:
    shown = await client.send(ExplorationShow())
    attempt = shown.attempts[0].attempt_id
    acknowledged.rollbacks.append(await client.send(ExplorationAdopt(attempt_id=attempt)))


async def merge(client: Client, acknowledged: Acknowledged) -> None:
    shown = await client.send(ExplorationShow())
    attempt = shown.attempts[0].attempt_id
    command = ExplorationAdopt(attempt_id=attempt, merge=True, on_conflict="theirs")
    acknowledged.rollbacks.append(await client.send(command))


async def explored(folder: Path) -> None:
    """Prepare the same as `done`, with an attempt that was compared and not adopted."""
    await done(folder)
    async with (
        running_server(None, None, folder / "execution", "--no-autostart") as server,
        server.client() as client,
    ):
        other = json.dumps({"steps": [writes("e.txt", "other"), writes("g.txt", "other")]})
        command = ExplorationStart(codon_id=CodonId("two"), variants=(Variant(prompt_text=other),))
        await client.send(command)
        await _exploration_ends(client)

        assert await server.stop() == 0


async def is_explored_once(execution: Path, acknowledged: Acknowledged) -> list[str]:
    """Check that an exploration on record ends, each attempt once, with nothing left over."""
    expected = set(acknowledged.explorations)
    async with running_server(None, None, execution, "--no-autostart") as server:
        async with server.client() as client:

            async def ended() -> State | None:
                found = await client.send(GetState())
                explorations = found.explorations
                return None if explorations and explorations[-1].ended_at is None else found

            found = await eventually(ended)
            assert found is not None

        assert await server.stop() == 0

    known = {each.exploration_id for each in found.explorations}
    faults = [f"Exploration {each} is lost." for each in expected - known]
    places = attempts_beside(execution)
    faults += [f"{path.name} is left." for path in execution.parent.glob(".hankweave-branch-*")]
    attempts = [attempt for each in found.explorations for attempt in each.attempts]
    made = {attempt.execution_path for attempt in attempts}
    faults += [f"{path} is no attempt's." for path in places if str(path) not in made]
    for attempt in attempts:
        if (attempt.status, attempt.score) != ("completed", 1.0):
            faults.append(f"{attempt.attempt_id} is {attempt.status}: {attempt.message}.")

        imported = [run.run_id for run in found.runs if run.run_id == attempt.run_id]
        if len(imported) != 1:
            faults.append(f"The run of {attempt.attempt_id} is recorded {len(imported)} times.")

    return faults


async def is_whole_or_nothing(execution: Path, acknowledged: Acknowledged) -> list[str]:
    """Check a branch: if it was reported it exists, can be started, and has no other name."""
    found = sorted(path.name for path in (execution.with_name(BESIDE)).iterdir())
    made = [event for event in journal(execution) if isinstance(event.data, ExecutionBranched)]
    if found != ["branch"] * len(made):
        return [f"{len(made)} branches are on record, and there is {found}."]

    if not made:
        return ["A branch was acknowledged, and is lost."] if acknowledged.branches else []

    place = execution.with_name(BESIDE) / "branch"
    async with running_server(None, None, place, "--no-autostart") as server:
        differing = tree_violations(place, AFTER_ONE)
        assert await server.stop() == 0

    return [f"In the branch: {what}" for what in [*differing, *violations(place, Acknowledged())]]


async def stands_on_one_line(execution: Path, acknowledged: Acknowledged) -> list[str]:
    """Check that the completed codons begin the plan, and none precedes a new beginning."""
    stands = state(execution)
    entries = thread(stands)
    ran = [entry.codon.codon_id for entry in entries]
    planned = [entry.codon_id for entry in stands.execution_plan]
    first = stands.runs[-1].run_id
    found = [] if ran == planned[: len(ran)] else [f"{ran} ran of {planned}."]
    for place in beginnings(stands):
        old = [each.codon.codon_id for each in entries[place:] if each.run_id == first]
        found += [f"{codon_id} of the former run counts." for codon_id in old]

    return found


SCENARIOS = (
    Scenario("a first start", nothing_yet),
    Scenario("a start", done),
    Scenario("a codon", begun, run_a_codon),
    Scenario("a checkpoint", done, checkpoint),
    Scenario("a rollback", done, back),
    Scenario("a rollback of paths", done, paths_back),
    Scenario("an undo", travelled, undo),
    Scenario("a redo", undone, redo),
    Scenario("a branch", done, branch, is_whole_or_nothing),
    Scenario("a gc", travelled, collect),
    Scenario("an exploration", done, explore, is_explored_once),
    Scenario("an adoption", explored, adopt),
    Scenario("an adoption by a merge", explored, merge),
    Scenario("a new beginning", changed, aftermath=stands_on_one_line, flags=("--from", "two")),
    Scenario("the recovery of a rollback", cut_short),
    Scenario("the recovery of a codon", crashed),
)

SPREAD = tuple(
    scenario
    for scenario in SCENARIOS
    if scenario.name
    not in ("a start", "a rollback of paths", "an undo", "a redo", "an adoption by a merge")
)
"""For the fast tier: one of each group of similar scenarios."""
