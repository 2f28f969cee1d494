"""Rollbacks of a real server: files, runs, plan, events and refusals."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    CodonRedo,
    GetServerStatus,
    GetState,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CodonCompletedEvent,
    LoopIterationCompleted,
    RigSetupCompleted,
    RollbackCompleted,
    RollbackProgress,
    RollbackStarted,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.state import (
    CompletedCodon,
    Continuation,
    FailedCodon,
)
from hankweave_server.domain.effects.recorded import UNSEEN
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.reducer import fold
from support.command_line import hankweave
from support.git_facts import GitWitness
from support.running_server import appears, journal, served, state, tree
from support.scripted_hank import codon, loop, rig_command, shell, waits_for, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, idle, on_thread, refused, started

THREE = (
    codon("one", writes("a.txt", "one")),
    codon("two", writes("a.txt", "two"), writes("b.txt", "two")),
    codon("three", writes("c.txt", "three")),
)

MANY_FILES = codon("two", {"run": "for i in $(seq 1100); do echo $i > f$i; done"})
"""Enough files that a rollback is still running at the next step of the test."""


def to_codon(name: str, kind: Any, **fields: Any) -> RollbackToCodon:
    return RollbackToCodon(codon_id=CodonId(name), checkpoint_type=kind, **fields)


async def run_codons(client: Client, count: int) -> None:
    for _ in range(count):
        await client.send(CodonNext())
        await idle(client, "codon-completed")


async def previewed_and_done(client: Client) -> tuple[RollbackReport, RollbackReport]:
    """Return the preview of a rollback to the end of codon one, and its report."""
    target = RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end")
    preview = await client.send(target)
    report = await client.send(to_codon("one", "end"))
    await idle(client, "rollback-completed")
    return preview, report


def end_of(execution: Path, name: str) -> str:
    """Return the checkpoint of a codon's newest success."""
    for run in state(execution).runs:
        for done in reversed(run.codons):
            if done.codon_id == name and isinstance(done, CompletedCodon):
                return done.completion_checkpoint

    raise AssertionError(f"{name} never completed")


# --- Events ---------------------------------------------------------------------------------------


async def test_events_of_a_rollback_are_in_hankweaves_order(tmp_path: Path) -> None:
    """The order is started, then progress, checkpoint and rig clean-up per passed codon, then
    progress, checkpoint, the runs' change, completed, snapshot and idle; progress counts from 1 to
    codons + 1."""
    hank = write_hank(
        tmp_path / "hank",
        THREE[0],
        codon(
            "two",
            writes("b.txt", "two"),
            rigSetup=[{"type": "copy", "copy": {"from": "kit", "to": "kit"}}],
        ),
        THREE[2],
    )
    (tmp_path / "hank" / "kit").mkdir()
    (tmp_path / "hank" / "kit" / "tool.sh").write_text("true")
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        since = (await client.send(GetServerStatus())).last_event_seq
        await client.send(to_codon("one", "completed"))
        await idle(client, "rollback-completed")
        assert not (execution / "agentRoot" / "kit").exists()

    happened = [event for event in journal(execution) if event.seq > since]
    kinds = [
        event.data.transition_type if isinstance(event.data, StateTransition) else event.type
        for event in happened
    ]
    begin = kinds.index("rollback.started")
    end = kinds.index("server.idle", begin) + 1
    assert kinds[begin:end] == [
        "rollback.started",
        *("rollback.progress", "rollback.codonCheckpoint"),
        *("rollback.progress", "rollback.codonCheckpoint"),
        *("rollback.rigCleanup", "rollback.rigCleanup"),
        *("rollback.progress", "rollback.codonCheckpoint"),
        "RunStarted",
        "TimeTravelled",
        "checkpoint.rollback",
        "rollback.completed",
        "workspace.invalidated",
        "state.snapshot",
        "server.idle",
    ]
    (begun,) = events_of(execution, RollbackStarted)
    steps = [
        (step.current_step, step.total_steps) for step in events_of(execution, RollbackProgress)
    ]
    assert begun.codons_to_process == ("three", "two")
    assert steps == [(1, 3), (2, 3), (3, 3)]


async def test_a_running_run_is_closed_before_the_new_one_begins(tmp_path: Path) -> None:
    """In the middle of a plan the old run ends as completed before the continuation starts."""
    hank = write_hank(tmp_path / "hank", *THREE)
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await run_codons(client, 2)
        before = state(execution)
        report = await client.send(to_codon("one", "end", expected_run_id=before.current_run_id))
        after = state(execution)

    assert [run.status for run in after.runs] == ["running", "completed"]
    assert after.current_run_id == after.runs[0].run_id
    assert after.runs[1].end_time is not None
    assert after.runs[1].codons == before.runs[0].codons
    conditions = after.runs[0].starting_conditions
    assert isinstance(conditions, Continuation)
    assert conditions.reason == "rollback"
    assert conditions.source.run_id == before.current_run_id
    assert conditions.source.checkpoint_sha == report.target.checkpoint_sha
    moves = [
        event.transition_type
        for event in events_of(execution, StateTransition)
        if event.transition_type.startswith("Run")
    ]
    assert moves == ["RunStarted", "RunCompleted", "RunStarted"]


# --- Preview --------------------------------------------------------------------------------------


@pytest.mark.command("rollback.preview")
async def test_a_preview_is_the_report_that_follows_and_touches_nothing(tmp_path: Path) -> None:
    """Files, refs, runs and journal stay; the following rollback does what the preview lists."""
    hank = write_hank(tmp_path / "hank", *THREE)
    execution = tmp_path / "execution"
    agent_root, git = execution / "agentRoot", GitWitness(execution)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        (agent_root / "b.txt").unlink()
        (agent_root / "c.txt").unlink()
        (agent_root / "c.txt").mkdir()
        os.mkfifo(agent_root / "c.txt" / "pipe")
        seq = (await client.send(GetServerStatus())).last_event_seq
        before = (tree(agent_root), git.run("for-each-ref"), git.run("rev-parse", "HEAD"))
        preview = await client.send(RollbackPreview())
        assert (tree(agent_root), git.run("for-each-ref"), git.run("rev-parse", "HEAD")) == before
        assert (await client.send(GetServerStatus())).last_event_seq == seq
        further = await client.send(RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end"))
        done = await client.send(RollbackToLastSuccess())

    assert further.runs_again.codon_ids == ("two", "three")
    same = ("target", "added", "updated", "removed", "kept", "conflicts", "skipped", "runs_again")
    assert {key: getattr(preview, key) for key in same} == {key: getattr(done, key) for key in same}
    assert [file.path for file in done.added] == ["b.txt"]
    assert done.runs_again.total == 0
    assert [file.path for file in done.skipped] == ["c.txt", "c.txt/pipe"]
    assert preview.safety is None


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint_sha": "abcd", "codon_id": CodonId("one")},
        {"checkpoint_type": "end"},
    ],
)
async def test_a_preview_has_one_target(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Two targets, or an incomplete one, are an invalid command."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with served(hank, tmp_path / "execution", "--no-autostart") as (_, client):
        error = await refused(client, RollbackPreview(**fields))
        assert (error.code, error.path) == (ErrorCode.INVALID_COMMAND, "$.data")


# --- Files ----------------------------------------------------------------------------------------


async def test_files_outside_the_patterns_survive_a_rollback(
    tmp_path: Path, execution: Path
) -> None:
    """Untracked and ignored files keep every byte; edits of tracked ones are in `safety`."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("notes/a.md", "one"), tracked=("notes/**",)),
        codon("two", writes("notes/a.md", "two"), writes("notes/b.md", "two")),
    )
    agent_root, git = execution / "agentRoot", GitWitness(execution)
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await run_codons(client, 1)
        strangers = {".gitignore": b"*.log\n", "my.log": b"mine", "build/out.bin": b"\0\1"}
        for name, content in strangers.items():
            path = agent_root / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

        (agent_root / "notes" / "a.md").write_text("edited")
        (agent_root / "notes" / "new.md").write_text("new")
        (agent_root / "notes" / "ignored.log").write_text("log")
        report = await client.send(RollbackToLastSuccess())

    assert tree(agent_root) == {
        "notes/a.md": b"one",
        "notes/ignored.log": b"log",
        **strangers,
    }
    saved = git.files(report.safety.checkpoint_sha)
    assert (saved["notes/a.md"], saved["notes/new.md"]) == (b"edited", b"new")
    git.assert_sound()


@pytest.mark.command("checkpoint.create")
async def test_a_manual_checkpoint_holds_the_edits_and_goes_on_after_the_codon(
    tmp_path: Path, execution: Path
) -> None:
    """After checkpoint.create, a rollback and the way forward, the edits are restored and the plan
    continues after the codon, also after a restart and from another timeline."""
    hank = write_hank(tmp_path / "hank", *THREE)
    note = execution / "agentRoot" / "a.txt"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (server, client):
        await run_codons(client, 2)
        note.write_text("mine")
        made = await client.send(CheckpointCreate(label="before I try"))
        assert (made.kind, made.label) == ("manual", "before I try")
        await client.send(to_codon("one", "completed"))
        assert note.read_text() == "one"
        renewed = await client.send(CheckpointCreate())
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha[:12]))
        assert note.read_text() == "mine"
        assert next_codon(state(execution)) == "three"
        assert await server.stop() == 0

    async with served(hank, execution, "--no-autostart") as (_, client):
        await client.send(RollbackToCheckpoint(checkpoint_sha=renewed.sha))
        assert next_codon(state(execution)) == "two"
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert next_codon(state(execution)) == "three"

    assert GitWitness(execution).subjects(made.sha)[0].startswith("manual:two ")


async def test_a_safety_checkpoint_undoes_its_rollback(tmp_path: Path, execution: Path) -> None:
    """It restores the files and the position in the plan from before the rollback."""
    hank = write_hank(tmp_path / "hank", *THREE)
    agent_root = execution / "agentRoot"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        (agent_root / "c.txt").write_text("edited")
        before = tree(agent_root)
        report = await client.send(to_codon("one", "completed"))
        safety = report.safety.checkpoint_sha
        await client.send(RollbackToCheckpoint(checkpoint_sha=safety))
        assert tree(agent_root) == before

    assert on_thread(execution) == ["one", "two", "three"]
    assert next_codon(state(execution)) is None


# --- Errors and rigs ------------------------------------------------------------------------------


@asynccontextmanager
async def a_failed_plan(tmp_path: Path) -> AsyncIterator[Client]:
    """Serve a plan whose second codon has failed; it completes once there is `ok.txt`."""
    broken = codon("two") | shell("echo x >> tries.txt; test -e ok.txt")
    hank = write_hank(tmp_path / "hank", THREE[0], broken, THREE[2])
    async with served(hank, tmp_path / "execution", since_seq=0) as (_, client):
        await idle(client, "codon-failed")
        yield client


async def test_a_rollback_to_an_error_runs_the_failed_codon_again(tmp_path: Path) -> None:
    """The broken work is restored, and the codon that broke it runs on it, not the next one."""
    execution = tmp_path / "execution"
    agent_root = execution / "agentRoot"
    async with a_failed_plan(tmp_path) as client:
        await client.send(RollbackToLastSuccess())
        assert not (agent_root / "tries.txt").exists()
        old = state(execution).runs[1].codons[-1]
        assert isinstance(old, FailedCodon)
        assert old.error_checkpoint is not None
        (agent_root / "ok.txt").write_text("ok")
        await client.send(RollbackToCheckpoint(checkpoint_sha=old.error_checkpoint))
        assert (agent_root / "tries.txt").read_text() == "x\n"
        (agent_root / "ok.txt").write_text("ok")
        await client.send(CodonNext())
        await idle(client)
        assert (agent_root / "tries.txt").read_text() == "x\nx\n"

    assert on_thread(execution) == ["one", "two", "three"]


async def failure_in_status(execution: Path) -> str:
    """Return what `hankweave status` says of a failed step; empty if it says nothing."""
    status = await anyio.to_thread.run_sync(hankweave, "status", "-e", str(execution))
    return next((line.strip() for line in status.stdout.splitlines() if "✗" in line), "")


async def test_an_undo_shows_a_failed_step_as_it_was(tmp_path: Path, execution: Path) -> None:
    """After a rollback to before it and the undo, it has failed, and is the next to run."""
    agent_root = execution / "agentRoot"
    async with a_failed_plan(tmp_path) as client:
        before = [entry.codon for entry in thread(await client.send(GetState()))]
        shown = await failure_in_status(execution)
        assert shown.startswith("✗ Codon two")
        await client.send(to_codon("two", "start"))
        assert on_thread(execution) == ["one"]
        assert await failure_in_status(execution) == ""
        await client.send(RollbackUndo())
        after = await client.send(GetState())
        assert [entry.codon for entry in thread(after)] == before
        assert next_codon(after) == "two"
        assert await failure_in_status(execution) == shown
        assert (agent_root / "tries.txt").read_text() == "x\n"
        (agent_root / "ok.txt").write_text("ok")
        await client.send(CodonNext())
        await idle(client)

    assert on_thread(execution)[-2:] == ["two", "three"]


async def test_a_rollback_to_a_rig_runs_that_codon_without_its_rig(tmp_path: Path) -> None:
    """In a run of three codons the third runs again, on the files that its rig left."""
    rig = [rig_command("echo r >> rigged.txt")]
    hank = write_hank(
        tmp_path / "hank",
        *THREE[:2],
        codon("three", {"append": {"path": "rigged.txt", "text": "a\n"}}, rigSetup=rig),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        await client.send(to_codon("three", "rig-setup", auto_restart=True))
        await idle(client)
        assert await server.stop() == 0

    assert (execution / "agentRoot" / "rigged.txt").read_text() == "r\na\n"
    assert len(events_of(execution, RigSetupCompleted)) == 1
    newest = state(execution).runs[0]
    assert [each.codon_id for each in newest.codons] == ["three"]
    first, again = (run.codons[-1] for run in reversed(state(execution).runs))
    assert again.rig_setup_checkpoint == first.rig_setup_checkpoint  # type: ignore[union-attr]
    assert fold(journal(execution)) == state(execution)


# --- Concurrency ----------------------------------------------------------------------------------


async def test_of_two_rollbacks_at_once_one_is_refused(tmp_path: Path, execution: Path) -> None:
    """Of two simultaneous requests one gets a report, the other a refusal without any event."""
    hank = write_hank(tmp_path / "hank", THREE[0], MANY_FILES)
    codes: list[str] = []
    async with served(hank, execution, since_seq=0) as (server, one), server.client() as other:
        await idle(one)

        async def roll_back(client: Client) -> None:
            try:
                await client.send(to_codon("one", "completed"))
            except CommandRefused as refused:
                codes.append(refused.code)

        async with anyio.create_task_group() as both:
            both.start_soon(roll_back, one)
            both.start_soon(roll_back, other)

    assert codes == [ErrorCode.ROLLBACK_IN_PROGRESS]
    assert (
        len(events_of(execution, RollbackStarted))
        == len(events_of(execution, RollbackCompleted))
        == 1
    )


async def test_a_running_codon_is_stopped_where_that_is_asked_for(tmp_path: Path) -> None:
    """`onRunning: stop` ends the agent and fails its codon, then files are restored."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank", THREE[0], codon("two", writes("half.txt", "half"), waits_for(gate))
    )
    execution = tmp_path / "execution"
    half = execution / "agentRoot" / "half.txt"
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "two")
        await appears(half)
        pid = state(execution).runs[0].codons[-1].claude_pid  # type: ignore[union-attr]
        await client.send(RollbackToLastSuccess(on_running="stop"))
        assert not half.exists()
        assert not Path(f"/proc/{pid}").exists()
        status = await client.send(GetServerStatus())
        assert status.active_codon_id is None

    stopped = state(execution).runs[1].codons[-1]
    assert isinstance(stopped, FailedCodon)
    assert "Rolled back" in (stopped.failure_reason.message or "")
    assert GitWitness(execution).files(stopped.error_checkpoint or "")["half.txt"] == b"half"
    assert on_thread(execution) == ["one"]


async def test_a_server_that_is_stopped_in_a_rollback_finishes_it_first(tmp_path: Path) -> None:
    """After SIGTERM the rollback completes with all events, and the new run is closed."""
    hank = write_hank(tmp_path / "hank", THREE[0], MANY_FILES)
    execution = tmp_path / "execution"
    async with (
        served(hank, execution, since_seq=0) as (server, client),
        anyio.create_task_group() as sender,
    ):
        await idle(client)

        async def roll_back() -> None:
            try:
                await client.send(to_codon("one", "completed"))
            except (CommandRefused, ConnectionError):
                return

        sender.start_soon(roll_back)
        await client.until(RollbackStarted, timeout=LIMIT)
        assert await server.stop() == 0
        sender.cancel_scope.cancel()

    final = state(execution)
    assert len(events_of(execution, RollbackCompleted)) == 1
    assert not (execution / ".hankweave" / "rollback.intent").exists()
    assert final.current_run_id is None
    assert [run.status for run in final.runs] == ["completed", "completed"]
    assert tree(execution / "agentRoot") == {"a.txt": b"one"}


# --- Loops ----------------------------------------------------------------------------------------

LOOP = loop(
    "review",
    codon("check", {"append": {"path": "log.txt", "text": "check "}}),
    codon("mend", {"append": {"path": "log.txt", "text": "mend "}}),
    limit=3,
)
UNROLLED = ["one", *(f"{name}#{n}" for n in range(3) for name in ("check", "mend")), "last"]


async def test_a_loop_is_rolled_back_into_and_out_of_and_runs_to_its_end_again(
    tmp_path: Path, execution: Path
) -> None:
    """After rollbacks into iteration 1, to before the loop, and to iteration 2 on an old timeline,
    the plan has every id once, and the run ends like the first one."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1")), LOOP, codon("last"))
    log = execution / "agentRoot" / "log.txt"
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        whole = log.read_text()
        assert whole == "check mend " * 3
        deep = end_of(execution, "check#2")

        await client.send(to_codon("check#1", "completed", auto_restart=True))
        await idle(client)
        assert log.read_text() == whole

        await client.send(to_codon("one", "completed"))
        assert _planned(execution) == ["one", "check#0", "mend#0", "last"]
        assert not log.exists()

        await client.send(RollbackToCheckpoint(checkpoint_sha=deep))
        assert log.read_text() == "check mend check mend check "
        assert _planned(execution) == UNROLLED
        await client.send(CodonNext())
        await idle(client)
        assert log.read_text() == whole
        assert await server.stop() == 0

    assert on_thread(execution) == UNROLLED
    assert _planned(execution) == UNROLLED
    final = [
        done.iteration for done in events_of(execution, LoopIterationCompleted) if done.is_final
    ]
    assert final == [2, 2, 2]
    assert fold(journal(execution)) == state(execution)


async def test_a_redone_codon_of_a_loop_grows_the_plan_once(tmp_path: Path) -> None:
    """After codon.redo at an iteration's end no id is repeated in plan or thread."""
    hank = write_hank(tmp_path / "hank", LOOP)
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        for command in (CodonNext(), CodonNext(), CodonRedo(), CodonNext()):
            await client.send(command)
            await idle(client, "codon-completed")

    assert _planned(execution) == ["check#0", "mend#0", "check#1", "mend#1"]
    assert on_thread(execution) == ["check#0", "mend#0", "check#1"]
    done = [event.codon_id for event in events_of(execution, CodonCompletedEvent)]
    assert done == ["check#0", "mend#0", "mend#0", "check#1"]


def _planned(execution: Path) -> list[str]:
    return [entry.codon_id for entry in state(execution).execution_plan]


# --- Effects outside ------------------------------------------------------------------------------


def calls(tool: str, number: int, **given: Any) -> dict[str, Any]:
    """Return a step in which the agent reports a tool call."""
    block = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": given}
    message = {"id": f"m{number}", "content": [block]}
    return {"raw": json.dumps({"type": "assistant", "message": message})}


async def test_external_effects_since_the_target_are_reported(tmp_path: Path) -> None:
    """Preview and report name writes, requests and pushes of tools, rigs and checks, and say once
    that commands may have done more."""
    hank = write_hank(
        tmp_path / "hank",
        THREE[0],
        codon(
            "two",
            calls("Write", 1, file_path="/etc/motd", content="x"),
            calls("WebFetch", 2, url="https://u:p@a.example/b?token=c"),
            calls("mcp__hankweave__checkpoint_list", 3),
            writes("b.txt", "two"),
            rigSetup=[rig_command("true || git push origin"), rig_command("true")],
            checks=[{"run": "true || curl -d @b.txt https://c.example"}],
        ),
        codon("three", calls("Edit", 4, file_path="b.txt")),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution) as (_, client):
        last = await client.send(RollbackPreview(codon_id=CodonId("two"), checkpoint_type="end"))
        preview, report = await previewed_and_done(client)

    assert not last.external_effects
    assert preview.external_effects == report.external_effects
    assert [each.partition(" (event")[0] for each in report.external_effects] == [
        "The rig of codon two may have acted elsewhere with git push to origin",
        "Write of codon two may have changed /etc/motd",
        "WebFetch of codon two may have sent a request to https://a.example/b",
        "A check of codon two may have reached https://c.example with curl",
        UNSEEN,
    ]


async def test_a_program_without_tool_calls_may_have_done_anything(tmp_path: Path) -> None:
    """An agent that is a plain program tells nothing, so the report says that."""
    hank = write_hank(tmp_path / "hank", THREE[0], codon("two") | shell("true"))
    async with after_plan(hank, tmp_path / "execution") as (_, client):
        preview = await client.send(RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end"))

    assert preview.external_effects == (UNSEEN,)


# --- Warnings -------------------------------------------------------------------------------------


async def test_a_program_that_holds_a_replaced_file_open_is_named(tmp_path: Path) -> None:
    """Preview and report name file, process and program; a file that is kept has no warning."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        with (
            (execution / "agentRoot" / "a.txt").open("r+"),
            (execution / "agentRoot" / "c.txt").open(),
        ):
            preview, report = await previewed_and_done(client)

    assert report.warnings == preview.warnings
    (held,) = [each for each in report.warnings if each.kind == "open-writer"]
    assert held.path == "a.txt"
    assert f"process {os.getpid()}" in held.sentence


async def test_a_replaced_file_keeps_its_attributes_and_what_it_loses_is_named(
    tmp_path: Path, execution: Path
) -> None:
    """The preview names the file that has another name outside, as the report does."""
    a = execution / "agentRoot" / "a.txt"
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        before = a.read_text()
        (tmp_path / "outside").hardlink_to(a)
        with contextlib.suppress(OSError):  # The file system may have none.
            os.setxattr(a, "user.origin", b"somewhere")

        extended = os.listxattr(a)
        preview, report = await previewed_and_done(client)

    assert a.read_text() != before == (tmp_path / "outside").read_text()
    assert os.listxattr(a) == extended
    assert report.warnings == preview.warnings
    (lost,) = [each for each in report.warnings if each.kind == "attributes"]
    assert lost.path == "a.txt"
    assert "hard links" in lost.sentence


async def test_a_rollback_says_that_the_conversation_stays_ahead(tmp_path: Path) -> None:
    """The preview offers to rewind it; there is nothing to say where that is chosen, where only
    files move, and where no agent has said anything."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *THREE)
    async with after_plan(hank, execution) as (_, client):

        async def kinds(**fields: Any) -> list[str]:
            target = {"codon_id": CodonId("one"), "checkpoint_type": "end"} | fields
            preview = await client.send(RollbackPreview(**target))
            return [each.kind for each in preview.warnings]

        assert await kinds() == ["conversation"]
        assert await kinds(rewind_memory=True) == []
        assert await kinds(paths=("a.txt",)) == []
        assert await kinds(codon_id=CodonId("three")) == []
        report = await client.send(to_codon("one", "end", rewind_memory=True))
        await idle(client, "rollback-completed")
        assert not report.warnings
        assert await kinds(codon_id=None, checkpoint_type=None, direction="undo") == []


async def test_a_database_in_use_is_named_and_kept_or_restored_as_a_whole(tmp_path: Path) -> None:
    """The preview names the program that has it open; kept edits are kept in all of its files."""
    execution = tmp_path / "execution"
    work = execution / "agentRoot"
    async with after_plan(write_hank(tmp_path / "hank", THREE[0]), execution) as (_, client):
        (work / ".gitignore").write_text("*-wal\n*-shm\n")
        with contextlib.closing(sqlite3.connect(work / "app.db", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode=wal")
            database.execute("CREATE TABLE rows (text)")
            database.execute("PRAGMA wal_checkpoint")
            made = await client.send(CheckpointCreate())
            database.execute("INSERT INTO rows VALUES ('later')")
            ask = RollbackPreview(checkpoint_sha=made.sha)
            preview = await client.send(ask)
            (held,) = [each for each in preview.warnings if each.kind == "database"]
            kept = await client.send(msgspec.structs.replace(ask, keep_edits=True))

        assert held.path == "app.db"
        assert f"process {os.getpid()}" in held.sentence
        assert [file.path for file in preview.updated] == ["app.db-wal"]
        assert [file.path for file in kept.kept] == ["app.db-wal"]
        assert not kept.warnings
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))

    with contextlib.closing(sqlite3.connect(work / "app.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT * FROM rows").fetchall() == []
