"""Server start: damaged or missing data is repaired, and reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_protocol import codec
from hankweave_protocol.commands import CodonNext, RollbackToCodon, RollbackToLastSuccess
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    Event,
    HankChanged,
    RollbackCompleted,
    StateRecovered,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, FailedCodon
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.domain.reducer import fold
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.running_server import (
    appears,
    journal,
    run_headless,
    running_server,
    served,
    state,
    tree,
)
from support.scripted_hank import codon, loop, waits_for, write_hank, writes
from support.watching import after_plan, events_of, idle, on_thread, refused, started

TWO = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))


def forget_state(execution: Path) -> None:
    layout = Layout.of_execution(execution)
    layout.state.unlink()
    layout.state_backup.unlink(missing_ok=True)


def cut_journal(execution: Path, is_last: Callable[[Event], bool], *, keep_it: bool) -> None:
    """Leave the disk as after a crash: the journal up to an event, and no newer state."""
    path = Layout.of_execution(execution).journal
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if is_last(codec.decode_event(line)))
    path.write_bytes(b"".join(lines[: at + 1 if keep_it else at]))
    forget_state(execution)


def is_transition(event: Event, kind: str, *words: str) -> bool:
    data = event.data
    if not isinstance(data, StateTransition) or data.transition_type != kind:
        return False

    return all(word in codec.encode(event).decode() for word in words)


def adopted(execution: Path) -> list[str]:
    """Return the checkpoints that a later start recorded."""
    moves = (codec.decode_transition(each) for each in events_of(execution, StateTransition))
    return [
        f"{each.checkpoint.kind}:{each.checkpoint.coordinate.codon_id}"
        for each in moves
        if isinstance(each, CheckpointCreated) and each.recovered
    ]


# --- State and journal ----------------------------------------------------------------------------


async def test_both_state_files_corrupted_are_rebuilt_from_the_journal(tmp_path: Path) -> None:
    """The rebuilt state equals the old one, the bad files are kept, and the source is reported."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    layout = Layout.of_execution(execution)
    before = state(execution)
    layout.state.write_bytes(b'{"runs": [')
    layout.state_backup.write_bytes(b"\0" * 100)
    assert await run_headless(hank, execution) == 0
    assert state(execution).runs == before.runs
    assert state(execution).execution_plan == before.execution_plan
    (event,) = events_of(execution, StateRecovered)
    assert event.source == "journal"
    assert {error.type for error in event.errors} == {"corrupted_data"}
    assert sorted(name.split(".corrupt-")[0] for name in event.kept) == [
        "state.json",
        "state.json.bak",
    ]
    assert fold(journal(execution)) == state(execution)


async def test_without_journal_and_state_the_repository_is_the_past(tmp_path: Path) -> None:
    """Runs, ends and checkpoints are recovered from commits; plan and rollbacks work again."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (server, client):
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        assert await server.stop() == 0

    before = state(execution)
    done = before.runs[0].codons[0]
    assert isinstance(done, CompletedCodon)
    Layout.of_execution(execution).journal.unlink()
    forget_state(execution)
    (execution / "agentRoot" / "a.txt").unlink()
    async with served(hank, execution, "--no-autostart", since_seq=0) as (server, client):
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        await client.send(CodonNext())
        await idle(client)
        assert await server.stop() == 0

    (event,) = events_of(execution, StateRecovered)
    assert event.source == "repository"
    assert on_thread(execution) == ["one", "two"]
    assert state(execution).initial_checkpoint == before.initial_checkpoint
    assert [run.run_id for run in state(execution).runs][-1] == before.runs[0].run_id
    assert fold(journal(execution)) == state(execution)
    GitWitness(execution).assert_sound()


async def test_state_that_folders_and_repository_do_not_confirm_is_reported(tmp_path: Path) -> None:
    """Orphaned folders and checkpoints missing in git are warnings; rollbacks are refused."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    layout = Layout.of_execution(execution)
    (layout.runs / "stranger").mkdir()
    shutil.rmtree(layout.shadow_repository)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        error = await refused(client, RollbackToLastSuccess())
        assert error.code == ErrorCode.CHECKPOINT_NOT_FOUND

    (event,) = events_of(execution, StateRecovered)
    assert (event.source, event.errors) == ("primary", ())
    warnings = {warning.type: warning.message for warning in event.warnings}
    assert set(warnings) == {"orphaned_folder", "missing_checkpoint"}
    assert "stranger" in warnings["orphaned_folder"]


# --- Unrecorded commits ---------------------------------------------------------------------------


async def test_an_unrecorded_commit_is_adopted_once(tmp_path: Path) -> None:
    """If killed between commit and journal line, the next start records the commit, once."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    cut_journal(
        execution,
        lambda event: is_transition(event, "CheckpointCreated", '"kind":"completed"', '"two"'),
        keep_it=False,
    )
    for _ in range(2):
        assert await run_headless(hank, execution) == 0
        assert adopted(execution) == ["completed:two"]

    assert on_thread(execution) == ["one", "two"]
    assert [run.status for run in state(execution).runs] == ["completed", "crashed"]
    assert fold(journal(execution)) == state(execution)
    recorded = [
        transition.checkpoint.sha
        for transition in map(codec.decode_transition, events_of(execution, StateTransition))
        if isinstance(transition, CheckpointCreated)
    ]
    commits = GitWitness(execution).run("log", "--all", "--format=%H").split()
    assert sorted(recorded) == sorted(commits)


# --- Interrupted work -----------------------------------------------------------------------------

SEEN = "test -e half.txt && echo half > seen.txt || echo clean > seen.txt"


@pytest.mark.parametrize("policy", ["abort", "ignore"])
async def test_a_codon_that_the_servers_end_cut_short_is_done_again_from_its_start(
    tmp_path: Path, execution: Path, policy: str
) -> None:
    """After SIGTERM during a codon the next start restores the last success and repeats the codon;
    the failure is the server's, so onFailure ignore does not skip it."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank",
        TWO[0],
        codon("two", {"run": SEEN}, writes("half.txt", "half"), waits_for(gate), onFailure=policy),
    )
    async with served(hank, execution, since_seq=0) as (server, client):
        await started(client, "two")
        await appears(execution / "agentRoot" / "half.txt")
        assert await server.stop() == 0

    gate.touch()
    assert await run_headless(hank, execution) == 0
    assert (execution / "agentRoot" / "seen.txt").read_text() == "clean\n"
    assert on_thread(execution) == ["one", "two"]
    stopped = state(execution).runs[1].codons[-1]
    assert isinstance(stopped, FailedCodon)
    assert GitWitness(execution).files(stopped.error_checkpoint or "")["half.txt"] == b"half"


async def test_a_recovery_that_was_killed_is_done_again(tmp_path: Path, execution: Path) -> None:
    """Killed in a codon and again after the crash was recorded: files are still restored."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank",
        TWO[0],
        codon("two", {"run": SEEN}, writes("half.txt", "half"), waits_for(gate)),
    )
    async with running_server(hank, None, execution) as server:
        await appears(execution / "agentRoot" / "half.txt")
        server.kill()
        await server.ended()

    async with running_server(hank, None, execution, "--no-autostart") as server:
        server.kill()
        await server.ended()

    assert not (execution / "agentRoot" / "half.txt").exists()
    cut_journal(execution, lambda event: is_transition(event, "RunCrashed"), keep_it=True)
    (execution / "agentRoot" / "half.txt").write_text("half")
    gate.touch()
    assert await run_headless(hank, execution) == 0
    assert (execution / "agentRoot" / "seen.txt").read_text() == "clean\n"
    assert len(events_of(execution, RollbackCompleted)) == 1


async def test_an_iteration_that_a_crash_kept_out_of_the_plan_is_not_lost(tmp_path: Path) -> None:
    """Killed between an iteration's end and the plan's growth: the loop still continues."""
    hank = write_hank(tmp_path / "hank", loop("review", codon("check"), limit=2), codon("last"))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    cut_journal(
        execution,
        lambda event: is_transition(
            event, "CodonTransitioned", '"check#0"', '"status":"completed"'
        ),
        keep_it=True,
    )
    assert await run_headless(hank, execution) == 0
    assert on_thread(execution) == ["check#0", "check#1", "last"]
    assert [entry.codon_id for entry in state(execution).execution_plan] == on_thread(execution)


# --- Changed hanks --------------------------------------------------------------------------------


async def test_a_changed_hank_is_reported(tmp_path: Path) -> None:
    """hank.changed has both hashes, once per change."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    write_hank(tmp_path / "hank", *TWO, meta={"name": "other", "version": "2.0.0"})
    for _ in range(2):
        assert await run_headless(hank, execution) == 0

    (changed,) = events_of(execution, HankChanged)
    assert changed.previous_hash != changed.current_hash


async def test_a_codon_that_the_hank_has_no_more_fails_with_a_sentence(tmp_path: Path) -> None:
    """With --force the plan outlives its hank; a codon that the hank lacks fails, exit code 1."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (server, client):
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        assert await server.stop() == 0

    write_hank(tmp_path / "hank", codon("another"))
    assert await run_headless(hank, execution, "--force") == 1
    failed = state(execution).runs[0].codons[-1]
    assert isinstance(failed, FailedCodon)
    assert "not in hank.json" in (failed.failure_reason.message or "")
