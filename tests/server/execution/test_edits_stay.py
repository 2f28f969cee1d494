"""Restores that nobody asked for leave people's edits in place, name them, and can be undone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    ExplorationStart,
    RollbackRedo,
    RollbackUndo,
)
from hankweave_protocol.events import (
    CheckpointRollback,
    CodonRetrying,
    ExplorationEnded,
    FileUpdated,
    RollbackCompleted,
    ToolResult,
)
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.running_server import appears, running_server, served, state, tree
from support.scripted_hank import Step, codon, waits_for, write_hank, writes
from support.waiting import LIMIT, eventually
from support.watching import after_plan, events_of, idle

FAILS: Step = {"fail": {"message": "overloaded"}}
ONE = codon("one", writes("a.txt", "one"), writes("b.txt", "one"))


async def written(client: Client, path: str, *, by: str) -> None:
    def is_it(event: FileUpdated) -> bool:
        return event.path == path and event.source.kind == by

    while not is_it((await client.until(FileUpdated, timeout=LIMIT)).data):  # type: ignore[arg-type]
        pass


async def result_of(client: Client, tool: str) -> None:
    while (await client.until(ToolResult, timeout=LIMIT)).data.tool_name != tool:  # type: ignore[attr-defined]
        pass


async def test_a_retry_keeps_what_a_person_wrote_while_the_step_ran(tmp_path: Path) -> None:
    """The agent's file is restored, the person's stay; undo and redo go around the retry."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    root = execution / "agentRoot"
    second = codon(
        "two",
        {"run": "echo half >> half.txt"},
        waits_for(gate),
        writes("b.txt", "half"),
        FAILS,
        onFailure="retry",
        retryConfig={"maxAttempts": 2, "delayMs": 1},
    )
    hank = write_hank(tmp_path / "hank", ONE, second)
    async with served(hank, execution, since_seq=0) as (_, client):
        await written(client, "half.txt", by="tool_use")
        (root / "a.txt").write_text("a person's")
        (root / "new.txt").write_text("a person's")
        gate.touch()
        await idle(client, "codon-failed")
        (root / "later.txt").write_text("later")
        edited = {"a.txt": b"a person's", "new.txt": b"a person's", "later.txt": b"later"}
        assert tree(root) == edited | {"b.txt": b"half", "half.txt": b"half\n"}

        (retry,) = events_of(execution, CheckpointRollback)
        assert retry.direction == "retry"
        assert retry.report.in_words == "Kept 2 edits by people: a.txt, new.txt."
        assert [each.path for each in retry.report.kept] == ["a.txt", "new.txt"]
        line = event_line(retry)
        assert line is not None
        assert line.text == (
            "restored for another attempt: 0 added, 1 updated, 1 removed. "
            "Kept 2 edits by people: a.txt, new.txt."
        )
        await client.send(RollbackUndo())
        assert tree(root)["half.txt"] == b"half\n"
        assert tree(root)["a.txt"] == b"a person's"
        found = state(execution)
        assert [entry.codon.codon_id for entry in thread(found)] == ["one", "two"]
        assert next_codon(found) == "two"
        await client.send(RollbackRedo())
        assert tree(root) == edited | {"b.txt": b"half", "half.txt": b"half\n"}
        assert len(thread(state(execution))) == 3


async def test_a_retry_takes_back_a_file_that_both_wrote_and_names_it(tmp_path: Path) -> None:
    """The person's version is in the safety checkpoint, and the undo restores it."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    root = execution / "agentRoot"
    steps = (writes("a.txt", "half"), {"run": "true"}, waits_for(gate), FAILS)
    policy = {"onFailure": "retry", "retryConfig": {"maxAttempts": 2, "delayMs": 60_000}}
    hank = write_hank(tmp_path / "hank", ONE, codon("two", *steps, **policy))
    async with served(hank, execution, since_seq=0) as (_, client):
        await written(client, "a.txt", by="tool_use")
        await result_of(client, "Bash")
        (root / "a.txt").write_text("a person's")
        gate.touch()
        await client.until(CodonRetrying, timeout=LIMIT)
        gate.unlink()
        await client.send(CodonNext())
        retry = (await client.until(CheckpointRollback, timeout=LIMIT)).data
        assert isinstance(retry, CheckpointRollback)
        assert retry.report is not None
        safety = retry.report.safety.checkpoint_sha  # type: ignore[union-attr]
        assert retry.report.in_words == (
            f"Took back 1 edit by people: a.txt; safety checkpoint {safety[:12]} has the files as "
            "they were."
        )
        assert [each.path for each in retry.report.conflicts] == ["a.txt"]
        assert GitWitness(execution).files(safety)["a.txt"] == b"a person's"
        await client.send(RollbackUndo(on_running="stop"))
        assert tree(root)["a.txt"] == b"a person's"


async def test_what_a_process_of_an_earlier_call_writes_is_the_agents(tmp_path: Path) -> None:
    """A process that a command has left behind may change any file between two calls."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    root = execution / "agentRoot"
    daemon = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for number in range(3): os.close(number)\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    open('late.txt', 'w').write('late')\n"
        "    time.sleep(3600)\n"
    )
    (tmp_path / "daemon.py").write_text(daemon)
    steps = (
        {"run": f"{sys.executable} {tmp_path}/daemon.py; echo begun > begun.txt"},
        waits_for(root / "late.txt"),
        writes("end.txt", "end"),
    )
    hank = write_hank(tmp_path / "hank", codon("one", *steps))
    async with served(hank, execution, since_seq=0) as (_, client):
        await written(client, "begun.txt", by="tool_use")
        gate.touch()
        await idle(client)
        found = {each.path: each.source.kind for each in events_of(execution, FileUpdated)}
        assert found == {"begun.txt": "tool_use", "late.txt": "tool_use", "end.txt": "tool_use"}


@pytest.mark.feature("exploration")
async def test_a_result_that_is_adopted_by_itself_replaces_no_other_edit(tmp_path: Path) -> None:
    """Edits in files that the attempt did not change stay; what both changed is named."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    root = execution / "agentRoot"
    variant = Variant(
        prompt_text=json.dumps({"steps": [waits_for(gate), writes("b.txt", "better")]})
    )
    hank = write_hank(tmp_path / "hank", ONE, codon("two", writes("c.txt", "two")))
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        start = ExplorationStart(codon_id=CodonId("two"), variants=(variant,), adopt="best")
        await client.send(start)
        (root / "a.txt").write_text("a person's")
        (root / "b.txt").write_text("a person's")
        gate.touch()
        await client.until(ExplorationEnded, timeout=LIMIT)
        assert tree(root) == {"a.txt": b"a person's", "b.txt": b"better"}
        (adopted,) = events_of(execution, RollbackCompleted)
        assert adopted.report.in_words.startswith(
            "Kept 1 edit by people: a.txt. Took back 1 edit by people: b.txt; safety checkpoint "
        )
        await client.send(RollbackUndo())
        assert tree(root) == {"a.txt": b"a person's", "b.txt": b"a person's", "c.txt": b"two"}


async def test_a_crash_takes_back_the_agents_work_alone(tmp_path: Path, execution: Path) -> None:
    """Edits during the step and after the crash stay; undo brings the agent's work back."""
    root = execution / "agentRoot"
    gate, never = tmp_path / "gate", tmp_path / "never"
    steps = (writes("half.txt", "half"), waits_for(gate), writes("b.txt", "half"))
    hank = write_hank(tmp_path / "hank", ONE, codon("two", *steps, waits_for(never)))
    async with served(hank, execution, since_seq=0) as (server, client):
        await written(client, "half.txt", by="tool_use")
        (root / "a.txt").write_text("a person's")
        (root / "new.txt").write_text("new")
        gate.touch()
        await written(client, "b.txt", by="tool_use")
        server.kill()
        await server.ended()

    processes = Layout.of_execution(execution).agent_processes
    await eventually(lambda: any(processes.glob("*.ended")))
    (root / "later.txt").write_text("later")
    edited = {"a.txt": b"a person's", "new.txt": b"new", "later.txt": b"later"}
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        assert tree(root) == edited | {"b.txt": b"one"}
        (back,) = events_of(execution, RollbackCompleted)
        assert back.report.in_words == "Kept 3 edits by people: a.txt, later.txt, new.txt."
        await client.send(RollbackUndo())
        assert tree(root) == edited | {"b.txt": b"half", "half.txt": b"half"}
        await client.send(RollbackRedo())
        assert tree(root) == edited | {"b.txt": b"one"}


async def test_after_a_crash_in_a_command_later_edits_stay(tmp_path: Path, execution: Path) -> None:
    """The command may have written any file; what changed after its end is a person's."""
    root = execution / "agentRoot"
    shell = f"echo half > half.txt; until [ -e '{tmp_path}/gate' ]; do sleep 0.02; done"
    hank = write_hank(tmp_path / "hank", ONE, codon("two", {"run": shell}))
    async with running_server(hank, None, execution) as server:
        await appears(root / "half.txt")
        (root / "a.txt").write_text("by either")
        server.kill()
        await server.ended()

    processes = Layout.of_execution(execution).agent_processes
    await eventually(lambda: any(processes.glob("*.ended")))
    (root / "later.txt").write_text("later")
    (root / "b.txt").write_text("later")
    async with running_server(hank, None, execution, "--no-autostart"):
        assert tree(root) == {"a.txt": b"one", "b.txt": b"later", "later.txt": b"later"}
        (back,) = events_of(execution, RollbackCompleted)
        assert back.report.in_words == "Kept 2 edits by people: b.txt, later.txt."
        assert [each.path for each in back.report.updated] == ["a.txt"]
        safety = back.report.safety.checkpoint_sha
        assert GitWitness(execution).files(safety)["a.txt"] == b"by either"

    assert not any(processes.glob("*.ended"))


async def test_a_checkpoint_that_a_client_takes_hides_no_edit_from_a_recovery(
    tmp_path: Path, execution: Path
) -> None:
    """Its content is reported first: after a crash, only the journal says whose a change was."""
    root = execution / "agentRoot"
    two = codon("two", {"run": "echo half > half.txt"}, waits_for(tmp_path / "never"))
    hank = write_hank(tmp_path / "hank", ONE, two)
    async with served(hank, execution, since_seq=0) as (server, client):
        await written(client, "half.txt", by="tool_use")
        (root / "a.txt").write_text("a person's")
        await client.send(CheckpointCreate())
        server.kill()
        await server.ended()

    async with running_server(None, None, execution, "--no-autostart") as server:
        assert tree(root) == {"a.txt": b"a person's", "b.txt": b"one"}
        assert await server.stop() == 0


AHEAD = """
import json, os
def say(**line): print(json.dumps(line), flush=True)
say(type="system", subtype="init", session_id="s", model="m")
for n in range(40):
    call = {"type": "tool_use", "id": f"t{n}", "name": "Write", "input": {"file_path": f"{n}.txt"}}
    say(type="assistant", message={"content": [call]})
    open(f"{n}.txt", "w").close()
    done = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "written"}
    say(type="user", message={"content": [done]})
say(type="result", subtype="success", is_error=False, result="Done")
"""


async def test_what_an_agent_writes_faster_than_it_is_read_is_never_a_persons(
    tmp_path: Path,
) -> None:
    """Each of its calls is printed before it begins, so its author is known."""
    program = {"type": "command", "command": [sys.executable, "-c", AHEAD]}
    hank = write_hank(tmp_path / "hank", codon("one") | {"agent": program})
    execution = tmp_path / "execution"
    async with after_plan(hank, execution):
        changes = events_of(execution, FileUpdated)

    assert len(changes) == 40
    assert {each.source.kind for each in changes} == {"tool_use"}
