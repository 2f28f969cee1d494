"""Restarting the plan at a codon, on the current files (`--from`)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hankweave_protocol.commands import GetServerStatus, RollbackToCodon, RollbackUndo
from hankweave_protocol.events import ServerReady
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, Continuation
from hankweave_server.domain.execution_thread import next_codon, thread
from support.command_line import Done, hankweave
from support.git_facts import GitWitness
from support.running_server import appears, journal, run_headless, running_server, served, state
from support.scripted_hank import codon, write_hank
from support.watching import on_thread

SAYS = {"say": "from before"}


def hank_in(folder: Path) -> Path:
    return write_hank(
        folder / "hank",
        codon("one", SAYS, {"run": "echo one >> log.txt"}, outputVar="answer"),
        codon("two", {"run": "echo two {{answer}} >> log.txt"}, outputVar="later"),
        codon("three", {"run": "echo three {{later}} >> log.txt"}),
    )


def refused(hank: Path, execution: Path, *flags: str) -> Done:
    """Run a server that is expected to exit before it serves."""
    return hankweave("run", str(hank), "--execution", str(execution), "--headless", *flags)


async def test_a_plan_that_has_ended_begins_again(tmp_path: Path) -> None:
    """After a restart at the first codon, files and history are kept, answers forgotten."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    assert await run_headless(hank, execution, "--from", "one") == 0
    assert (execution / "agentRoot" / "log.txt").read_text().count("one\n") == 2
    newest, former = state(execution).runs
    assert len(former.codons) == len(newest.codons) == 3
    conditions = newest.starting_conditions
    assert isinstance(conditions, Continuation)
    assert conditions.source.after_codon is None
    files = GitWitness(execution).files(conditions.source.checkpoint_sha or "")
    assert files["log.txt"].startswith(b"one\ntwo ")
    assert on_thread(execution) == ["one", "two", "three"]


@pytest.mark.story("`--from` restarts the plan at a codon, on the current files.")
async def test_it_begins_at_any_codon_with_the_answers_before_it(tmp_path: Path) -> None:
    """After a restart at the second codon the first is not repeated, and its answer is known.

    Architect loses captured variables on --from-step (A8, 19).
    """
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    log = execution / "agentRoot" / "log.txt"
    log.write_text("edited\n")
    assert await run_headless(hank, execution, "--from", "two") == 0
    lines = log.read_text().splitlines()
    assert lines[:2] == ["edited", "two from before"]
    assert lines[2].startswith("three ")
    assert [codon.codon_id for codon in state(execution).runs[0].codons] == ["two", "three"]
    assert all(isinstance(each.codon, CompletedCodon) for each in thread(state(execution)))


async def test_a_first_run_may_begin_in_the_middle(tmp_path: Path) -> None:
    """With `--from`, a first run starts at the named codon and continues from there."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution, "--from", "three") == 0
    assert [codon.codon_id for codon in state(execution).runs[0].codons] == ["three"]


@pytest.mark.parametrize("option", ["--from", "--until"])
def test_an_unknown_codon_is_a_usage_error(tmp_path: Path, option: str) -> None:
    """The error lists the known codons; nothing is served; the exit code is 2."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    done = refused(hank, execution, option, "tow")
    assert done.returncode == 2
    assert "Codon tow is not in the execution plan.\n" in done.stderr
    assert "  hint: Codons in the plan: one, two, three." in done.stderr
    assert not [each for each in journal(execution) if isinstance(each.data, ServerReady)]


async def test_a_changed_hank_begins_again_where_requested(tmp_path: Path) -> None:
    """Earlier codons count up to the first one that the new hank does not have."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    other = write_hank(
        tmp_path / "hank",
        codon("one", SAYS),
        codon("new", {"run": "echo new {{answer}} >> log.txt"}),
        codon("two", {"run": "echo two again >> log.txt"}),
    )
    assert await run_headless(other, execution, "--from", "new") == 0
    lines = (execution / "agentRoot" / "log.txt").read_text().splitlines()
    assert lines[-2:] == ["new from before", "two again"]
    assert on_thread(execution) == ["one", "new", "two"]


async def test_an_unknown_codon_of_another_hank_leaves_the_plan_as_it_was(tmp_path: Path) -> None:
    """The plan of the former hank is kept, and continues with that hank."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    plan = state(execution).execution_plan
    other = write_hank(tmp_path / "other", codon("one", SAYS), codon("three", SAYS), codon("four"))
    assert refused(other, execution, "--from", "tow").returncode == 2
    assert state(execution).execution_plan == plan
    assert next_codon(state(execution)) is None


async def test_a_plan_that_was_to_begin_again_does_so_after_a_fault(tmp_path: Path) -> None:
    """A server that fails before the restart leaves the new hank's plan at its beginning.

    Its last codon but one has the name of the former hank's last codon, which has run.
    """
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    other = write_hank(
        tmp_path / "other",
        codon("one", {"run": "echo new one >> log.txt"}),
        codon("three", {"run": "echo new three >> log.txt"}),
        codon("four", {"run": "echo new four >> log.txt"}),
    )
    in_the_way = execution / ".hankweave" / "server.token"
    in_the_way.mkdir()
    assert refused(other, execution, "--from", "one").returncode == 74
    in_the_way.rmdir()
    assert next_codon(state(execution)) == "one"
    assert await run_headless(other, execution) == 0
    lines = (execution / "agentRoot" / "log.txt").read_text().splitlines()
    assert lines[-3:] == ["new one", "new three", "new four"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_plan_that_began_again_goes_back_to_where_it_did(
    tmp_path: Path, execution: Path, number: signal.Signals
) -> None:
    """If the first codon after a restart is interrupted, it repeats with the files from before it.

    Users' edits since the end of the plan are kept, too; the initial checkpoint is not restored.
    """
    gate = tmp_path / "gate"
    wait = {"run": f"echo half >> log.txt; touch half; test -e {gate} || sleep 600"}
    hank = write_hank(tmp_path / "hank", codon("one", wait), codon("two"))
    work_tree = execution / "agentRoot"
    gate.touch()
    assert await run_headless(hank, execution) == 0
    (work_tree / "log.txt").write_text("a week of work\n")
    (work_tree / "half").unlink()
    gate.unlink()
    async with running_server(hank, None, execution, "--headless", "--from", "one") as server:
        await appears(work_tree / "half")
        server.process.send_signal(number)
        await server.ended()

    async with served(None, execution, "--no-autostart") as (server, client):
        assert (work_tree / "log.txt").read_text() == "a week of work\n"
        assert not (work_tree / "half").exists()
        assert (await client.send(GetServerStatus())).next_codon_id == "one"
        gate.touch()
        assert await server.stop() == 0

    assert await run_headless(hank, execution) == 0
    assert (work_tree / "log.txt").read_text() == "a week of work\nhalf\n"


async def test_the_start_of_a_codon_that_began_again_is_its_own(tmp_path: Path) -> None:
    """A rollback to its start restores the files it started with, and an undo the results."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    log = execution / "agentRoot" / "log.txt"
    assert await run_headless(hank, execution) == 0
    log.write_text("edited\n")
    assert await run_headless(hank, execution, "--from", "two") == 0
    made = log.read_text()
    async with served(hank, execution, "--no-autostart") as (server, client):
        await client.send(RollbackToCodon(codon_id=CodonId("two"), checkpoint_type="start"))
        assert log.read_text() == "edited\n"
        assert (await client.send(GetServerStatus())).next_codon_id == "two"
        await client.send(RollbackUndo())
        assert log.read_text() == made
        assert (await client.send(GetServerStatus())).next_codon_id is None
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        assert log.read_text() == "one\n"
        assert await server.stop() == 0
