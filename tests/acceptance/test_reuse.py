"""Claims about reuse over a real socket: what runs again, what is taken over, and what never is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.codec import decode_transition
from hankweave_protocol.commands import (
    CodonNext,
    CodonRedo,
    ExecutionBranch,
    PermissionAnswer,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    PermissionRequested,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon
from hankweave_protocol.transitions import (
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    RunStarted,
    Transition,
)
from hankweave_server.domain.execution_thread import thread
from support.command_line import aside
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, served, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan, events_of, idle, refused, to_end_of


def runs(line: str) -> dict[str, Any]:
    return {"run": line}


def a_plan(counter: Path) -> tuple[dict[str, Any], ...]:
    """Return six codons; `counter` is a file outside the work tree that the first one reads.

    An agent sees the whole work tree, so a codon depends on all files before it. What `b` leaves
    depends on the parity of the counter only.
    """
    return (
        codon("a", runs(f"cat {counter} > a.txt")),
        codon("b", runs("echo $(( $(cat a.txt) % 2 )) > b.txt; rm a.txt")),
        codon("c", writes("c.txt", "c")),
        codon("d", runs("cat b.txt c.txt > d.txt"), {"cost": 0.5}),
        codon("e", writes("e.txt", "e")),
        codon("f", runs("cat d.txt e.txt > f.txt"), outputVar="last"),
    )


@asynccontextmanager
async def a_finished_plan(
    tmp_path: Path, *codons: Any, options: tuple[str, ...] = ()
) -> AsyncIterator[tuple[RunningServer, Client]]:
    counter = tmp_path / "counter"
    counter.write_text("1")
    hank = write_hank(tmp_path / "hank", *(codons or a_plan(counter)))
    async with after_plan(hank, tmp_path / "executions" / "parent", *options, since_seq=0) as (
        server,
        client,
    ):
        yield server, client


@asynccontextmanager
async def resumed(
    execution: Path, *options: str, hank: Path | None = None
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start another server; its client sees what happens from now on."""
    last = journal(execution)[-1].seq
    async with served(hank, execution, *options, since_seq=last) as (server, client):
        yield server, client


def from_beginning(name: str, **fields: Any) -> RollbackToCodon:
    """Return the command that goes back to before a codon, and runs the plan from there."""
    return RollbackToCodon(
        codon_id=CodonId(name), checkpoint_type="beginning", auto_restart=True, **fields
    )


def again(name: str) -> RollbackToCodon:
    return from_beginning(name, reuse=True, rewind_memory=True)


def outcome(execution: Path) -> dict[str, bool]:
    """Return the codons of the thread, and whether each was reused."""
    codons = [entry.codon for entry in thread(state(execution))]
    assert all(isinstance(each, CompletedCodon) for each in codons)
    return {each.codon_id: each.reused is not None for each in codons}  # type: ignore[union-attr]


def started(execution: Path) -> list[str]:
    return [event.codon_id for event in events_of(execution, CodonStartedEvent)]


async def test_a_step_that_is_redone_runs_with_what_depends_on_it(tmp_path: Path) -> None:
    """After redo of `a` with another output, `b` runs; what follows has the same inputs as before.

    The results are byte for byte those of the first run, and nothing is paid for them.
    """
    async with a_finished_plan(tmp_path) as (server, client):
        execution = server.execution
        before = tree(execution / "agentRoot")
        (tmp_path / "counter").write_text("3")
        await client.send(again("a"))
        await idle(client)
        assert outcome(execution) == {
            "a": False, "b": False, "c": True, "d": True, "e": True, "f": True,
        }  # fmt: skip
        assert started(execution) == [*"abcdef", "a", "b"]
        assert tree(execution / "agentRoot") == before
        done = events_of(execution, CodonCompletedEvent)[6:]
        assert [each.codon_id for each in done] == list("abcdef")
        assert [each.cost for each in done[2:]] == [0, 0, 0, 0]
        newest = state(execution).runs[0]
        for codon_record in newest.codons[2:]:
            assert isinstance(codon_record, CompletedCodon)
            assert codon_record.reused is not None
            witness = GitWitness(execution)
            assert witness.files(codon_record.completion_checkpoint) == witness.files(
                codon_record.reused.checkpoint_sha
            )


async def test_everything_runs_again_if_everything_depends_on_the_change(tmp_path: Path) -> None:
    """With another parity, every file that follows differs, so nothing is taken over."""
    async with a_finished_plan(tmp_path) as (server, client):
        (tmp_path / "counter").write_text("2")
        await client.send(again("a"))
        await idle(client)
        assert not any(outcome(server.execution).values())
        assert (server.execution / "agentRoot" / "f.txt").read_bytes() == b"0\nce"


async def test_undo_takes_back_a_redone_step(tmp_path: Path) -> None:
    """One undo restores files and thread; a redo of a later step reuses no more than it should."""
    async with a_finished_plan(tmp_path) as (server, client):
        first = outcome(server.execution)
        files = tree(server.execution / "agentRoot")
        (tmp_path / "counter").write_text("2")
        await client.send(again("a"))
        await idle(client)
        await client.send(RollbackUndo())
        assert tree(server.execution / "agentRoot") == files
        assert outcome(server.execution) == first


async def test_the_first_codon_is_never_reused_and_a_restart_changes_nothing(
    tmp_path: Path,
) -> None:
    """`redo --step` without a server: the next start runs the codon and takes over the rest."""
    async with a_finished_plan(tmp_path) as (server, _):
        execution = server.execution
        await server.stop()

    words = ("redo", "-e", str(execution), "--step", "d", "--reuse", "--json", "--yes")
    done = await aside(*words, code=0)
    assert "hankweave run -e" in done.stderr
    async with resumed(execution) as (server, client):
        await idle(client, "all-codons-completed")
        assert [name for name, reused in outcome(execution).items() if reused] == ["e", "f"]


async def test_reuse_is_an_option_and_a_field_of_the_hank(tmp_path: Path) -> None:
    """Without either nothing is reused; `--reuse` reuses; a codon that refuses is always run."""
    codons = (
        codon("a", writes("a.txt", "a")),
        codon("b", writes("b.txt", "b"), reuse=False),
        codon("c", writes("c.txt", "c")),
    )
    back = from_beginning("a")
    async with a_finished_plan(tmp_path, *codons) as (server, client):
        execution = server.execution
        await client.send(back)
        await idle(client)
        assert not any(outcome(execution).values())
        await server.stop()

    async with resumed(execution, "--reuse") as (server, client):
        await client.send(back)
        await idle(client)
        assert outcome(execution) == {"a": True, "b": False, "c": True}
        await client.send(CodonRedo())
        await idle(client)
        assert outcome(execution)["c"] is False, "a person has asked to run it again"
        await server.stop()

    async with resumed(execution, "--no-reuse") as (server, client):
        await client.send(back)
        await idle(client)
        assert not any(outcome(execution).values())


async def test_edits_and_other_prompts_are_other_inputs(tmp_path: Path) -> None:
    """An edit of a tracked file makes every later codon run; so does another prompt."""
    codons = (codon("a", writes("a.txt", "a")), codon("b", runs("cat *.txt > all")))
    async with a_finished_plan(tmp_path, *codons, options=("--reuse",)) as (server, client):
        execution = server.execution
        await client.send(RollbackToCodon(codon_id=CodonId("a"), checkpoint_type="completed"))
        (execution / "agentRoot" / "note.txt").write_text("by hand")
        await client.send(CodonNext())
        await idle(client)
        assert outcome(execution) == {"a": False, "b": False}
        assert (execution / "agentRoot" / "all").read_text() == "aby hand"
        await server.stop()

    write_hank(tmp_path / "hank", codon("a", writes("a.txt", "A")), codons[1])
    hank = tmp_path / "hank" / "hank.json"
    options = ("--force", "--reuse", "--no-autostart")
    async with resumed(execution, *options, hank=hank) as (server, client):
        await client.send(from_beginning("a"))
        await idle(client)
        assert outcome(execution) == {"a": False, "b": False}


async def test_a_continued_conversation_is_taken_over(tmp_path: Path) -> None:
    """A codon that continues a reused one continues the conversation as it was then."""
    codons = (
        codon("a", {"say": "one"}, writes("a.txt", "a")),
        codon("b", {"recall": "b has"}, continuationMode="continue-previous", outputVar="b"),
        codon("c", {"recall": "c has"}, continuationMode="continue-previous", outputVar="c"),
    )
    async with a_finished_plan(tmp_path, *codons) as (server, client):
        execution = server.execution
        first = [entry.codon for entry in thread(state(execution))]
        await client.send(again("c"))
        await idle(client)
        c = thread(state(execution))[-1].codon
        assert isinstance(c, CompletedCodon)
        assert isinstance(first[2], CompletedCodon)
        assert c.captured == first[2].captured, "its conversation was rewound to where it began"
        await server.stop()

    async with resumed(execution, "--reuse") as (server, client):
        await client.send(from_beginning("a", rewind_memory=True))
        await idle(client)
        assert outcome(execution) == {"a": True, "b": True, "c": True}
        await client.send(CodonRedo())
        await idle(client)
        c = thread(state(execution))[-1].codon
        assert isinstance(c, CompletedCodon)
        assert c.reused is None


async def test_a_branch_takes_over_what_it_has_inherited(tmp_path: Path) -> None:
    """In a branch, codons that ran before it was made are reused."""
    async with a_finished_plan(tmp_path, options=("--reuse",)) as (server, client):
        (newest,) = [each for each in thread(state(server.execution)) if each.codon.codon_id == "f"]
        assert isinstance(newest.codon, CompletedCodon)
        sha = newest.codon.completion_checkpoint
        branch = await client.send(ExecutionBranch(checkpoint_sha=sha))
        await server.stop()

    path = Path(branch.execution_path)
    async with resumed(path, "--reuse") as (server, client):
        await client.send(from_beginning("a"))
        await idle(client)
        assert all(outcome(path).values())
        assert (path / "agentRoot" / "f.txt").read_bytes() == b"1\nce"


Point = Callable[[Transition], bool]


def _is_checkpoint(transition: Transition, kind: str, beginning: str) -> bool:
    match transition:
        case CheckpointCreated(checkpoint=record):
            return record.kind == kind and (record.label or "").startswith(beginning)
        case _:
            return False


KILLED_AT: dict[str, Point] = {
    "its beginning": lambda made: isinstance(made, CodonStarted) and made.codon.codon_id == "d",
    "its safety checkpoint": lambda made: _is_checkpoint(made, "safety", "before taking over"),
    "its own checkpoint": lambda made: _is_checkpoint(made, "completed", "reused from"),
    "its end": lambda made: (
        isinstance(made, CodonTransitioned)
        and isinstance(made.codon, CompletedCodon)
        and made.codon.reused is not None
    ),
}


@pytest.mark.parametrize("point", KILLED_AT)
async def test_a_takeover_that_is_killed_is_repeated_at_the_next_start(
    tmp_path: Path, point: str
) -> None:
    """After `kill -9`, the same codons run and the same ones are reused as without it."""
    async with a_finished_plan(tmp_path) as (server, client):
        execution = server.execution
        before = tree(execution / "agentRoot")
        (tmp_path / "counter").write_text("3")
        await client.send(again("a"))
        await client.until(
            StateTransition,
            lambda event: (
                isinstance(event.data, StateTransition)
                and KILLED_AT[point](decode_transition(event.data))
                and event.seq > first_of_the_last_run(execution)
            ),
        )
        server.kill()
        await server.ended()

    async with resumed(execution) as (server, client):
        await idle(client)
        assert list(outcome(execution).values()) == [False, False, True, True, True, True]
        assert set(started(execution)[6:]) == {"a", "b"}
        assert tree(execution / "agentRoot") == before
        GitWitness(execution).assert_sound()


def first_of_the_last_run(execution: Path) -> int:
    """Return the event that began the last run of the journal."""
    return max(
        event.seq
        for event in journal(execution)
        if isinstance(event.data, StateTransition)
        and isinstance(decode_transition(event.data), RunStarted)
    )


async def test_the_results_of_influenced_agents_are_not_offered(tmp_path: Path) -> None:
    """A codon whose agent asked a person, or was paused for a rollback, is run again."""
    permissions = {"allow": [], "deny": [], "otherwise": "ask"}
    codons = (
        codon("asks", writes("a.txt", "a"), permissions=permissions),
        codon("plain", writes("b.txt", "b")),
    )
    async with a_finished_plan_with_answers(tmp_path, *codons) as (server, _):
        keys = [entry.codon.reuse_key is None for entry in thread(state(server.execution))]
        assert keys == [True, False]


@asynccontextmanager
async def a_finished_plan_with_answers(
    tmp_path: Path, *codons: Any
) -> AsyncIterator[tuple[RunningServer, Client]]:
    hank = write_hank(tmp_path / "hank", *codons)
    async with served(hank, tmp_path / "execution", since_seq=0) as (server, client):
        asked = await client.until(PermissionRequested)
        await client.send(PermissionAnswer(request_id=asked.data.request_id, decision="allow"))
        await idle(client)
        yield server, client


async def test_reuse_needs_the_beginning_of_a_codon(tmp_path: Path) -> None:
    """`reuse` with another checkpoint of the codon is refused before anything changes."""
    async with a_finished_plan(tmp_path, codon("a", writes("a.txt", "a"))) as (_, client):
        error = await refused(client, to_end_of("a", reuse=True))
        assert error.code == ErrorCode.INVALID_COMMAND
        assert error.path == "$.data.reuse"


async def test_the_rig_of_a_reused_codon_runs(tmp_path: Path) -> None:
    """Untracked files that a rig leaves are there, and `beginning` is before the rig."""
    rig = [{"type": "command", "command": {"run": "echo $$ > untracked; echo rigged > rig.txt"}}]
    codons = (
        codon("a", runs("cat rig.txt > a.txt"), tracked=["*.txt"], rigSetup=rig),
        codon("b", runs("cat a.txt > b.txt"), tracked=["*.txt"]),
    )
    async with a_finished_plan(tmp_path, *codons, options=("--reuse",)) as (server, client):
        root = server.execution / "agentRoot"
        before = (root / "untracked").read_text()
        await client.send(from_beginning("a"))
        await idle(client)
        assert outcome(server.execution) == {"a": True, "b": True}
        assert (root / "untracked").read_text() != before
        assert (root / "b.txt").read_text() == "rigged\n"


async def cli(*words: str) -> str:
    """Run a command of the terminal, and return what it prints."""
    return (await aside(*words, code=0)).stdout


async def test_why_says_what_differs(tmp_path: Path) -> None:
    """Prompt, files and settings are named; of a reused codon, where its result comes from."""
    async with a_finished_plan(tmp_path) as (server, client):
        execution = server.execution
        (tmp_path / "counter").write_text("2")
        await client.send(again("a"))
        await idle(client)
        output = await cli("why", "b", "-e", str(execution))
        assert "b was run, and nothing was reused: no earlier result has the same inputs." in output
        assert "\n  tracked files\n    a.txt\n" in output
        found = json.loads(await cli("why", "b", "-e", str(execution), "--json"))
        assert found["differences"] == ["tracked files"]
        assert found["paths"] == ["a.txt"]
        (tmp_path / "counter").write_text("1")
        await client.send(again("a"))
        await idle(client)
        reused = [entry.codon for entry in thread(state(execution))][-1]
        assert isinstance(reused, CompletedCodon)
        assert reused.reused is not None
        output = await cli("why", "f", "-e", str(execution))
        assert f"f was not run: its inputs are those of run {reused.reused.run_id}," in output
        assert "reused" in await cli("status", "-e", str(execution))
        assert "reused" in await cli("log", "-e", str(execution), "-n", "1000")
        assert "f reused" in await cli("runs", "-e", str(execution))
        assert "reused" in await cli("report", "-e", str(execution))
        await server.stop()

    prompted = (codon("a", writes("a.txt", "A")), *a_plan(tmp_path / "counter")[1:])
    write_hank(tmp_path / "hank", *prompted)
    hank = tmp_path / "hank" / "hank.json"
    options = ("--force", "--reuse", "--no-autostart")
    async with resumed(execution, *options, hank=hank) as (server, client):
        await client.send(again("a"))
        await idle(client)
        output = await cli("why", "a", "-e", str(execution))
        assert "\n  its prompt\n" in output


async def test_what_cannot_be_compared_runs_and_says_why(tmp_path: Path) -> None:
    """A rig that may read the network, and an agent of unknown version, are never reused."""
    rig = [{"type": "command", "command": {"run": "python3 -c 'print(1)'"}}]
    unknown = {"agent": {"type": "command", "command": ["sh", "-c", "cat > said.txt"]}}
    codons = (
        codon("rigged", writes("a.txt", "a"), rigSetup=rig),
        codon("unknown") | unknown,
        codon("plain", writes("b.txt", "b")),
    )
    async with a_finished_plan(tmp_path, *codons, options=("--reuse",)) as (server, client):
        await client.send(from_beginning("rigged"))
        await idle(client)
        assert outcome(server.execution) == {"rigged": False, "unknown": False, "plain": True}
        output = await cli("log", "-e", str(server.execution), "-n", "1000")
        assert "nothing is reused: its rig runs 'python3', which may read the network" in output
        assert "nothing is reused: the version of its agent is unknown" in output
        why = await cli("why", "unknown", "-e", str(server.execution))
        assert "nothing was reused: the version of its agent is unknown." in why
        assert "No single input differs" in why
