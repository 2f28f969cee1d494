"""Claims about branches over a real socket: exact, runnable, independent of the original."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointPin,
    ExecutionBranch,
    GetServerStatus,
    ReplayView,
    RollbackToCheckpoint,
    RollbackToLastSuccess,
    ServerShutdown,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CodonStartedEvent,
    ExecutionBranched,
    ExecutionOrigin,
    Info,
    StateRecovered,
    StateTransition,
)
from hankweave_protocol.records import BranchIntent, CheckpointRecord
from hankweave_protocol.state import Continuation, FailedCodon
from hankweave_protocol.transitions import RunCrashed, RunStarted
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.reducer import fold
from support.command_line import Done, aside
from support.copies import copy_execution
from support.damage import lose_object
from support.git_facts import GitWitness
from support.running_server import (
    RunningServer,
    appears,
    at_rest,
    journal,
    running_server,
    served,
    state,
    tree,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import events_of, idle, listed, recalled, refused, started
from support.work_tree import picture_of

TEMPORARY = ".hankweave-branch-*"

SAYS = {"say": "done"}
RIG = [{"type": "command", "command": {"run": "echo rig >> rig.txt"}}]

EVERYTHING = """
echo 1 > plain; echo 2 > private; chmod 600 private; echo 3 > tool; chmod 755 tool
ln -s plain link; mkdir -p deep/empty; printf x > "$(printf 'a\\377')"
mkdir locked; echo 4 > locked/inside; chmod 555 locked
"""
"""Files, links, folders and permissions that git alone would not keep."""

VARIED = (
    codon("one", {"run": EVERYTHING}),
    codon("two", writes("plain", "two"), writes("two.txt", "two"), rigSetup=RIG),
    codon("three", writes("three.txt", "three"), {"delete": "two.txt"}),
)


async def run_to_its_end(execution: Path) -> None:
    await aside("run", "--execution", str(execution), "--headless", code=0)


@asynccontextmanager
async def a_past(
    tmp_path: Path, *codons: Any, data: Path | None = None, options: tuple[str, ...] = ()
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server that has run its plan to the end."""
    hank = write_hank(tmp_path / "hank", *(codons or VARIED))
    async with (
        running_server(hank, data, tmp_path / "original", *options) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        yield server, client


async def the(client: Client, kind: str, codon_id: str | None) -> CheckpointRecord:
    found = (each for each in await listed(client) if each.kind == kind)
    return next(each for each in found if each.coordinate.codon_id == codon_id)


def contents(folder: Path) -> dict[bytes, Any]:
    """Return kind, permissions and content of everything below a folder."""
    return {path: seen.value for path, seen in picture_of(os.fsencode(folder)).items()}


def settled(execution: Path) -> dict[str, bytes]:
    """Return everything of an execution except what a live server keeps writing."""
    moving = ("events/", "logs/", "state.json", "runtime.lock")
    return {
        name: content
        for name, content in tree(execution).items()
        if not name.removeprefix(".hankweave/").startswith(moving)
    }


# --- contents and origin --------------------------------------------------------------------------


@pytest.mark.command("execution.branch")
@pytest.mark.story("A branch holds exactly the files of its checkpoint and runs at once.")
async def test_a_branch_holds_its_checkpoint_exactly_and_runs_at_once(tmp_path: Path) -> None:
    """Files, links, permissions and empty folders are the checkpoint's.

    The plan continues after it without naming the hank again, with the rig of a later codon.
    """
    async with a_past(tmp_path) as (server, client):
        one = await the(client, "completed", "one")
        await client.send(RollbackToCheckpoint(checkpoint_sha=one.sha))
        wanted = contents(server.execution / "agentRoot")
        made = await client.send(
            ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch"))
        )

    branch = tmp_path / "branch"
    assert made.execution_path == str(branch)
    assert contents(branch / "agentRoot") == wanted
    assert wanted[b"private"][1] == 0o600
    assert next_codon(state(branch)) == "two"
    assert state(branch).current_run_id == made.run_id

    await run_to_its_end(branch)
    after = tree(branch / "agentRoot")
    assert (after["rig.txt"], after["three.txt"]) == (b"rig\n", b"three")
    own = state(branch).runs[0]
    assert (own.run_id, own.status) == (made.run_id, "completed")
    assert [each.codon_id for each in own.codons] == ["two", "three"]
    assert "two" not in tree(tmp_path / "original" / "agentRoot")


async def test_the_original_is_untouched(tmp_path: Path) -> None:
    """Only the journal grows, by one event that names the new execution and the checkpoint."""
    async with a_past(tmp_path) as (server, client):
        two = await the(client, "completed", "two")
        await at_rest(server.execution)
        before, seq = (
            settled(server.execution),
            (await client.send(GetServerStatus())).last_event_seq,
        )
        made = await client.send(
            ExecutionBranch(checkpoint_sha=two.sha, path=str(tmp_path / "branch"))
        )
        assert settled(server.execution) == before

    (event,) = [e for e in journal(tmp_path / "original") if e.type == "execution.branched"]
    assert event.seq == seq + 1
    assert isinstance(event.data, ExecutionBranched)
    assert (event.data.execution_path, event.data.run_id) == (made.execution_path, made.run_id)
    assert event.data.coordinate == two.coordinate
    assert not event.data.recovered


async def test_a_branch_knows_where_it_comes_from(tmp_path: Path) -> None:
    """A branch's journal begins with the origin; its state is the journal's fold.

    Its metadata name the origin as well.
    """
    async with a_past(tmp_path) as (server, client):
        two = await the(client, "completed", "two")
        made = await client.send(
            ExecutionBranch(checkpoint_sha=two.sha, path=str(tmp_path / "branch"))
        )

    branch = tmp_path / "branch"
    events = journal(branch)
    assert isinstance(origin := events[0].data, ExecutionOrigin)
    assert origin.execution_path == str(server.execution)
    assert (origin.coordinate, origin.run_id) == (two.coordinate, made.run_id)
    assert fold(events) == state(branch)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    meta = json.loads((branch / ".hankweave" / "execution-meta.json").read_bytes())
    assert meta["origin"]["executionPath"] == str(server.execution)
    assert meta["origin"]["coordinate"]["checkpointSha"] == two.sha
    conditions = state(branch).runs[0].starting_conditions
    assert isinstance(conditions, Continuation)
    assert conditions.source.checkpoint_sha == two.sha


async def test_a_branch_goes_on_where_a_rollback_would(tmp_path: Path) -> None:
    """From every existing checkpoint, of every kind, files, thread and next codon are the same."""
    loop = {
        "type": "loop",
        "id": "again",
        "name": "Again",
        "terminateOn": {"type": "iterationLimit", "limit": 2},
        "codons": [codon("review", {"append": {"path": "log", "text": "x"}})],
    }
    broken = codon("broken", writes("half", "half"), {"fail": {"message": "no"}})
    hank = write_hank(tmp_path / "hank", VARIED[0], VARIED[1], loop, broken)
    async with served(hank, tmp_path / "original", since_seq=0) as (server, client):
        await idle(client, "codon-failed")
        await client.send(CheckpointCreate(label="by hand"))
        await client.send(RollbackToLastSuccess())
        known = await listed(client)
        assert {each.kind for each in known} >= {
            *("initial", "rig-setup", "completed", "error", "manual", "safety")
        }
        for number, record in enumerate(known):
            branch = tmp_path / f"branch-{number}"
            made = await client.send(ExecutionBranch(checkpoint_sha=record.sha, path=str(branch)))
            await client.send(RollbackToCheckpoint(checkpoint_sha=record.sha))
            there, here = state(branch), state(server.execution)
            label = f"{record.kind}:{record.coordinate.codon_id}"
            assert next_codon(there) == next_codon(here), label
            assert [e.codon for e in thread(there)] == [e.codon for e in thread(here)], label
            assert there.execution_plan == here.execution_plan, label
            assert there.current_run_id == made.run_id
            assert contents(branch / "agentRoot") == contents(server.execution / "agentRoot"), label


async def test_a_branch_continues_the_conversation_of_its_checkpoint(tmp_path: Path) -> None:
    """Two branches of one checkpoint know what the original knew then, and nothing of each other.

    The original's session is not touched.
    """
    recall = ({"recall": "I know"}, {"say": "and so on"})
    later = {"continuationMode": "continue-previous"}
    codons = (codon("one", SAYS), codon("two", *recall, **later), codon("three", *recall, **later))
    async with a_past(tmp_path, *codons) as (_, client):
        one = await the(client, "completed", "one")
        branches = [tmp_path / name for name in ("first", "second")]
        for branch in branches:
            await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(branch)))

    sessions = tree(tmp_path / "original" / ".hankweave" / "sessions")
    for branch in branches:
        await run_to_its_end(branch)
        assert recalled(branch) == recalled(tmp_path / "original") != []

    assert tree(tmp_path / "original" / ".hankweave" / "sessions") == sessions


async def test_a_conversation_that_is_lost_is_named(tmp_path: Path) -> None:
    """A branch of a store without the session snapshots says so, and can still be served."""
    async with a_past(tmp_path, codon("one", SAYS), codon("two", SAYS)) as (_, client):
        one = await the(client, "completed", "one")
        await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch")))

    GitWitness(tmp_path / "branch").run("update-ref", "-d", "refs/hankweave/memory")
    await run_to_its_end(tmp_path / "branch")
    messages = [each.message for each in events_of(tmp_path / "branch", Info)]
    assert any("no copy of the conversation" in message for message in messages)


async def test_a_rig_that_was_set_up_is_not_set_up_again(tmp_path: Path) -> None:
    """A branch from a rig checkpoint starts the codon itself.

    The codon of the past is reported as left behind.
    """
    async with a_past(tmp_path) as (_, client):
        rig = await the(client, "rig-setup", "two")
        await client.send(ExecutionBranch(checkpoint_sha=rig.sha, path=str(tmp_path / "branch")))

    branch = tmp_path / "branch"
    left = state(branch).runs[1].codons[-1]
    assert isinstance(left, FailedCodon)
    assert left.rig_setup_checkpoint == rig.sha
    await run_to_its_end(branch)
    assert tree(branch / "agentRoot")["rig.txt"] == b"rig\n"


async def test_its_store_is_whole_and_its_own(tmp_path: Path) -> None:
    """git finds no fault, and no file shares its inode with the original.

    The history is that of the checkpoint alone. Without the original the branch still runs.
    """
    async with a_past(tmp_path) as (server, client):
        two = await the(client, "completed", "two")
        await client.send(CheckpointPin(checkpoint_sha=two.sha, pinned=True, name="here"))
        wanted = GitWitness(server.execution).run("rev-list", two.sha).split()
        await client.send(ExecutionBranch(checkpoint_sha=two.sha, path=str(tmp_path / "branch")))
        git = GitWitness(tmp_path / "branch")
        git.assert_sound()
        assert git.run("rev-list", "--branches", "HEAD").split() == wanted
        assert git.run("status", "--porcelain", "--untracked-files=all") == "" or git.is_detached()
        assert _inodes(tmp_path / "branch").isdisjoint(_inodes(server.execution))
        await _shell(str(tmp_path / "branch"), "fsck")

    shutil.rmtree(tmp_path / "original")
    branch = tmp_path / "branch"
    async with running_server_of(branch) as (server, client):
        await idle(client)
        found = await listed(client)
        assert {each.sha for each in found} >= set(wanted)
        pinned = next(each for each in found if each.sha == two.sha)
        assert (pinned.pinned, pinned.name) == (True, "here")
        one = await the(client, "completed", "one")
        report = await client.send(RollbackToCheckpoint(checkpoint_sha=one.sha))
        assert [file.path for file in report.removed]
        assert not (branch / "agentRoot" / "two.txt").exists()

    assert events_of(branch, StateRecovered) == []
    assert not [e for e in journal(branch) if _is(e.data, RunCrashed.TYPE)]


async def test_a_coordinate_is_always_one_of_the_journal_that_has_it(tmp_path: Path) -> None:
    """Inherited items have a seq of the branch's own journal, before and after a restart.

    Replay shows their files, and the state at that point.
    """
    async with a_past(tmp_path) as (_, client):
        two = await the(client, "completed", "two")
        await client.send(ExecutionBranch(checkpoint_sha=two.sha, path=str(tmp_path / "branch")))

    branch = tmp_path / "branch"
    *past, first_run = journal(branch)
    assert _is(first_run.data, RunStarted.TYPE)
    for _ in range(2):
        async with running_server_of(branch, "--no-autostart") as (server, client):
            inherited = next(each for each in await listed(client) if each.sha == two.sha)
            assert inherited.coordinate.event_seq == past[-1].seq
            view = await client.send(ReplayView(checkpoint_sha=two.sha))
            assert view.coordinate == inherited.coordinate
            assert view.state == fold(past)
            assert "two.txt" in {file.path for file in view.tree}
            await server.stop()


async def test_a_branch_of_a_branch_is_one_like_any_other(tmp_path: Path) -> None:
    """The tree of executions can be followed in both directions, by origin and by branched."""
    async with a_past(tmp_path) as (_, client):
        one = await the(client, "completed", "one")
        await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "first")))

    async with running_server_of(tmp_path / "first") as (_, client):
        await idle(client)
        two = await the(client, "completed", "two")
        await client.send(ExecutionBranch(checkpoint_sha=two.sha, path=str(tmp_path / "second")))
        again = await client.send(
            ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "third"))
        )

    assert next_codon(state(tmp_path / "second")) == "three"
    assert (next_codon(state(tmp_path / "third")), again.run_id) == (
        "two",
        state(tmp_path / "third").current_run_id,
    )
    for name in ("second", "third"):
        (origin,) = events_of(tmp_path / name, ExecutionOrigin)
        assert origin.execution_path == str(tmp_path / "first")

    paths = [each.execution_path for each in events_of(tmp_path / "first", ExecutionBranched)]
    assert paths == [str(tmp_path / "second"), str(tmp_path / "third")]


async def test_a_branch_can_be_made_while_a_codon_runs(tmp_path: Path) -> None:
    """The codon continues undisturbed; the branch starts it anew."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank", VARIED[0], codon("two", writes("two.txt", "2"), waits_for(gate))
    )
    async with served(hank, tmp_path / "original", since_seq=0) as (server, client):
        await started(client, "two")
        await appears(server.execution / "agentRoot" / "two.txt")
        one = await the(client, "completed", "one")
        await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch")))
        assert not (tmp_path / "branch" / "agentRoot" / "two.txt").exists()
        gate.touch()
        await idle(client)

    assert state(tmp_path / "original").runs[0].status == "completed"
    assert [run.status for run in state(tmp_path / "branch").runs] == ["running", "completed"]
    await run_to_its_end(tmp_path / "branch")


@pytest.mark.parametrize("options", [(), ("--copy",)])
async def test_the_data_is_linked_as_in_the_original(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The branch has the same link, or a copy of the copy; the data selects the original."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.csv").write_text("1,2\n")
    async with a_past(tmp_path, data=data, options=options) as (_, client):
        one = await the(client, "completed", "one")
        await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch")))

    source = tmp_path / "branch" / "read_only_data_source"
    assert (source / "rows.csv").read_text() == "1,2\n"
    assert source.is_symlink() is not bool(options)
    if not options:
        assert source.resolve() == data.resolve()

    await run_to_its_end(tmp_path / "branch")


async def test_without_a_place_it_lies_beside_and_the_same_data_resumes_the_original(
    tmp_path: Path,
) -> None:
    """The branch has an ordinary execution name; `hankweave run HANK DATA` finds the original."""
    data, root = tmp_path / "data", tmp_path / "executions"
    data.mkdir()
    hank = write_hank(tmp_path / "hank", *VARIED)
    place = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(root)}
    words = ("run", str(hank), str(data), "--headless")
    await aside(*words, code=0, **place)
    (original,) = root.iterdir()
    async with running_server_of(original) as (_, client):
        made = await client.send(
            ExecutionBranch(checkpoint_sha=(await the(client, "completed", "one")).sha)
        )

    branch = Path(made.execution_path)
    assert branch.parent == root
    assert branch.name.rpartition("-")[2] == original.name.rpartition("-")[2]
    seq = len(journal(original))
    await aside(*words, "--json", code=0, **place)
    assert len(journal(original)) > seq
    assert events_of(branch, CodonStartedEvent) == []


# --- refusals -------------------------------------------------------------------------------------


async def test_what_cannot_be_done_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    """Each refusal has a code, a path and a hint; no directory, event or intent remains."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    async with a_past(tmp_path) as (server, client):
        sha = (await the(client, "completed", "one")).sha
        await client.send(ExecutionBranch(checkpoint_sha=sha, path=str(tmp_path / "other")))
        places = {
            "relative/path": "absolute",
            "": "absolute",
            str(tmp_path / "a" / ".." / "b"): "absolute",
            str(tmp_path / "file"): "not a directory",
            str(tmp_path / "file" / "below"): "not a directory",
            str(tmp_path / "dangling"): "not a directory",
            str(tmp_path / "full"): "not empty",
            str(tmp_path / "missing" / "branch"): "There is no directory",
            str(server.execution): "not empty",
            str(server.execution / "branch"): "is inside the execution",
            str(server.execution / "agentRoot" / "branch"): "is inside the execution",
            str(tmp_path / "other" / "branch"): "is inside the execution",
            str(tmp_path / ("x" * 300)): "cannot be",
            f"{tmp_path}/nul\0": "absolute",
        }
        before, seq = _everything(tmp_path), (await client.send(GetServerStatus())).last_event_seq
        for place, words in places.items():
            with pytest.raises(CommandRefused, match=words) as refused:
                await client.send(ExecutionBranch(checkpoint_sha=sha, path=place))

            assert refused.value.code == ErrorCode.INVALID_PATH, place
            assert refused.value.path == "$.data.path"

        for wrong, code in (
            ("ffffffffffff", ErrorCode.CHECKPOINT_NOT_FOUND),
            ("nonsense", ErrorCode.CHECKPOINT_NOT_FOUND),
            ("", ErrorCode.CHECKPOINT_NOT_FOUND),
        ):
            with pytest.raises(CommandRefused) as refused:
                await client.send(
                    ExecutionBranch(checkpoint_sha=wrong, path=str(tmp_path / "branch"))
                )

            assert (refused.value.code, refused.value.path) == (code, "$.data.checkpointSha")

        with pytest.raises(CommandRefused) as refused:
            await client.send(ExecutionBranch(checkpoint_sha=sha, expected_run_id="another"))  # type: ignore[arg-type]

        assert refused.value.code == ErrorCode.STALE_RUN
        assert (await client.send(GetServerStatus())).last_event_seq == seq
        assert _everything(tmp_path) == before
        await client.send(ExecutionBranch(checkpoint_sha=sha, path=str(tmp_path / "branch")))


async def test_a_branch_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    """A full file system is refused with INSUFFICIENT_SPACE, and nothing is written anywhere."""
    async with a_past(tmp_path) as (_, client):
        sha = (await the(client, "completed", "one")).sha
        before = _everything(tmp_path)
        with pytest.raises(CommandRefused, match="0 are free") as refused:
            await client.send(ExecutionBranch(checkpoint_sha=sha, path="/proc/branch"))

        assert (refused.value.code, refused.value.path) == (
            ErrorCode.INSUFFICIENT_SPACE,
            "$.data.path",
        )
        assert _everything(tmp_path) == before


async def test_a_damaged_checkpoint_makes_no_branch(tmp_path: Path) -> None:
    """CHECKPOINT_DAMAGED is returned and nothing remains; an intact checkpoint still works."""
    async with a_past(tmp_path) as (server, client):
        one, three = await the(client, "completed", "one"), await the(client, "completed", "three")
        git = GitWitness(server.execution)
        blob = git.run("rev-parse", f"{three.sha}:three.txt").strip()
        await client.send(ServerShutdown())
        await server.ended()

    lose_object(tmp_path / "original/.hankweave/checkpoints/.hankweavecheckpoints", blob)
    async with running_server_of(tmp_path / "original") as (_, client):
        error = await refused(
            client, ExecutionBranch(checkpoint_sha=three.sha, path=str(tmp_path / "branch"))
        )
        assert error.code == ErrorCode.CHECKPOINT_DAMAGED
        assert not (tmp_path / "branch").exists()
        assert not list(tmp_path.glob(TEMPORARY))
        await client.send(ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch")))


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.4])
async def test_killed_in_the_middle_there_is_all_of_it_or_nothing(
    tmp_path: Path, delay: float
) -> None:
    """After kill -9 there is either no directory that looks like an execution, or the whole one.

    The next start removes remains, or reports the branch once; the original is unharmed.
    """
    many = codon("one", {"run": "for i in $(seq 3000); do echo $i > f$i; done"})
    branch = tmp_path / "branch"
    async with a_past(tmp_path, many) as (server, client):
        sha = (await the(client, "completed", "one")).sha
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_branch_until_the_end, client, sha, branch)
            await appears(server.execution / ".hankweave" / "branch.intent")
            await anyio.sleep(delay)
            server.kill()
            await server.ended()
            tasks.cancel_scope.cancel()

    if not branch.exists():
        assert not [p for p in tmp_path.iterdir() if (p / ".hankweave").is_dir() and _is_new(p)]

    original = tmp_path / "original"
    is_recorded = bool(events_of(original, ExecutionBranched))
    for _ in range(2):
        async with running_server_of(original) as (server, client):
            assert not list(tmp_path.glob(TEMPORARY))
            assert not (original / ".hankweave" / "branch.intent").exists()
            await server.stop()

    events = events_of(original, ExecutionBranched)
    assert len(events) == branch.exists()
    assert len(tree(original / "agentRoot")) == 3000
    GitWitness(original).assert_sound()
    if branch.exists():
        assert events[0].recovered is not is_recorded
        GitWitness(branch).assert_sound()
        assert tree(branch / "agentRoot") == tree(original / "agentRoot")
        await run_to_its_end(branch)


async def test_a_branch_without_an_event_is_journaled_once_at_the_next_start(
    tmp_path: Path,
) -> None:
    """After a crash between rename and event, the start finds the intent and the branch."""
    async with a_past(tmp_path) as (server, client):
        one = await the(client, "completed", "one")
        made = await client.send(
            ExecutionBranch(checkpoint_sha=one.sha, path=str(tmp_path / "branch"))
        )
        await server.stop()

    # The same moment for another branch: it exists, with an intent and without an event.
    other, run_id = tmp_path / "other", f"{made.run_id[:-6]}ffffff"
    copy_execution(tmp_path / "branch", other)
    lines = other / ".hankweave" / "events" / "events.jsonl"
    lines.write_bytes(lines.read_bytes().replace(made.run_id.encode(), run_id.encode()))
    original = tmp_path / "original"
    left = tmp_path / f".hankweave-branch-{run_id}"
    left.mkdir()
    intent = BranchIntent(
        temporary=str(left),
        execution_path=str(other),
        run_id=run_id,  # type: ignore[arg-type]
        coordinate=one.coordinate,
        started_at="2025-01-04T12:00:00.000Z",
    )
    for _ in range(2):
        (original / ".hankweave" / "branch.intent").write_bytes(codec.encode(intent))
        async with running_server_of(original) as (server, _):
            await server.stop()

        assert not (original / ".hankweave" / "branch.intent").exists()
        assert not left.exists()
        first, second = events_of(original, ExecutionBranched)
        assert (first.run_id, first.recovered) == (made.run_id, False)
        assert (second.run_id, second.recovered) == (run_id, True)


async def test_an_intent_is_never_a_licence_to_delete(tmp_path: Path) -> None:
    """Only a folder with the temporary name of a branch is removed, whatever an intent says."""
    async with a_past(tmp_path) as (server, client):
        one = await the(client, "completed", "one")
        await server.stop()

    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine").write_text("mine")
    path = tmp_path / "original" / ".hankweave" / "branch.intent"
    intent = BranchIntent(
        temporary=str(precious),
        execution_path=str(precious),
        run_id=one.coordinate.run_id,
        coordinate=one.coordinate,
        started_at=one.timestamp,
    )
    path.write_bytes(codec.encode(intent))
    async with running_server_of(tmp_path / "original") as (server, _):
        await server.stop()

    assert (precious / "mine").read_text() == "mine"
    assert not path.exists()


# --- the command line -----------------------------------------------------------------------------


async def test_the_command_line_makes_a_branch_and_says_how_to_run_it(tmp_path: Path) -> None:
    """The command prints text or JSON; a refusal is a message with its code and hint, exit 1."""
    async with a_past(tmp_path) as (server, client):
        sha = (await the(client, "completed", "one")).sha
        shell = partial(_shell, str(server.execution))
        done = await shell("branch", sha[:10], "--path", str(tmp_path / "b1"))
        assert done.stdout.splitlines()[0] == str(tmp_path / "b1")
        assert f"hankweave run -e {tmp_path / 'b1'}" in done.stdout

        done = await shell("branch", sha, "--path", f"{tmp_path}/b1/../b2", "--json")
        assert json.loads(done.stdout)["runId"] == state(tmp_path / "b2").current_run_id

        log = await shell("log")
        assert f"branched at {sha[:12]}: {tmp_path / 'b1'}" in log.stdout
        branch_log = await _shell(str(tmp_path / "b1"), "log")
        assert f"a branch of {server.execution}, made at {sha[:12]}" in branch_log.stdout

        refused = await shell("branch", sha, "--path", str(tmp_path / "b2"), code=1)
        assert "(INVALID_PATH)" in refused.stderr
        assert "hint: " in refused.stderr


# --- helpers --------------------------------------------------------------------------------------


@asynccontextmanager
async def running_server_of(
    execution: Path, *options: str
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start the server of an existing execution, with the same hank."""
    async with served(None, execution, *options, since_seq=0) as (server, client):
        yield server, client


async def _shell(execution: str, *words: str, code: int = 0) -> Done:
    return await aside(*words, "--execution", execution, code=code)


async def _branch_until_the_end(client: Client, sha: str, place: Path) -> None:
    try:
        await client.send(ExecutionBranch(checkpoint_sha=sha, path=str(place)))
    except ConnectionError:
        return


def _is(data: object, transition: str) -> bool:
    return isinstance(data, StateTransition) and data.transition_type == transition


def _is_new(path: Path) -> bool:
    return path.name != "original"


def _inodes(execution: Path) -> set[int]:
    return {path.stat().st_ino for path in execution.rglob("*") if path.is_file()}


def _everything(folder: Path) -> set[str]:
    """Return the names of all files, except those that a live server rotates."""
    return {str(path) for path in folder.rglob("*") if path.suffix != ".tmp"}
