"""Content is in a checkpoint before it is overwritten, even if the agent does not wait."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.events import Event, StateTransition, ToolResult
from hankweave_protocol.records import CheckpointRecord
from support.git_facts import GitWitness
from support.running_server import appears, served, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT, eventually
from support.watching import after_plan, idle, listed, started

WRITES = 40


def program(source: str) -> dict[str, Any]:
    """Return a codon of a program that speaks no protocol and asks for no permission."""
    command = [sys.executable, "-I", "-S", "-c", source]
    return codon("one", agent={"type": "command", "command": command})


async def saved_as(
    client: Client, git: GitWitness, content: bytes, name: str = "a.txt"
) -> CheckpointRecord:
    """Wait until the newest checkpoint has this content of a file."""
    while True:
        (record, *_) = await listed(client)
        if git.files(record.sha).get(name) == content:
            return record

        await client.until(StateTransition, is_checkpoint, timeout=LIMIT)


async def edit_is_saved(client: Client, execution: Path, gate: Path) -> CheckpointRecord:
    """Let a person edit `a.txt`, and what runs continue when the edit is in a checkpoint."""
    (execution / "agentRoot" / "a.txt").write_text("a person's")
    record = await saved_as(client, GitWitness(execution), b"a person's")
    gate.touch()
    await idle(client)
    return record


async def has_content(path: Path, text: str) -> None:
    await eventually(lambda: path.exists() and path.read_text() == text)


def is_checkpoint(event: Event) -> bool:
    return getattr(event.data, "transition_type", None) == "CheckpointCreated"


# --- agents that wait -----------------------------------------------------------------------------


@pytest.mark.parametrize(("points", "count"), [("all", WRITES + 2), ("before-tool", WRITES + 1)])
async def test_each_of_forty_writes_of_an_agent_follows_a_checkpoint(
    tmp_path: Path, execution: Path, points: str, count: int
) -> None:
    """A scripted agent overwrites one file as fast as it can.

    Every content is in a checkpoint, and no checkpoint is taken twice.
    """
    steps = [writes("a.txt", str(number)) for number in range(WRITES)]
    hank = write_hank(tmp_path / "hank", codon("one", *steps))
    async with after_plan(hank, execution, "--safe-points", points) as (_, client):
        git = GitWitness(execution)
        found = [git.files(record.sha).get("a.txt") for record in await listed(client)]

    assert set(found) >= {str(number).encode() for number in range(WRITES)}
    assert len(found) == count


@pytest.mark.story(
    "Before a tool call changes files, they are in a checkpoint, edits by people included."
)
async def test_a_persons_edit_during_a_call_is_saved_before_the_call_overwrites_it(
    tmp_path: Path,
) -> None:
    """While a shell command runs, a scan of the files finds the person's edit."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    shell = f"echo mine > a.txt; until [ -e '{gate}' ]; do sleep 0.02; done; echo mine > a.txt"
    hank = write_hank(tmp_path / "hank", codon("one", {"run": shell}))
    async with served(hank, execution, since_seq=0) as (_, client):
        await has_content(execution / "agentRoot" / "a.txt", "mine\n")
        record = await edit_is_saved(client, execution, gate)

    assert (record.kind, record.label) == ("tool", None)
    assert tree(execution / "agentRoot") == {"a.txt": b"mine\n"}


# --- programs that do not wait --------------------------------------------------------------------


async def test_each_of_forty_writes_of_a_program_that_prints_follows_a_checkpoint(
    tmp_path: Path,
) -> None:
    """A printed line is enough to trigger a scan of the files.

    The program overwrites one file, prints a line, and does nothing else until the test has seen
    the checkpoint.
    """
    source = f"""
import os, time
for number in range({WRITES}):
    open("a.txt", "w").write(str(number))
    print("wrote", number, flush=True)
    while not os.path.exists(f"{tmp_path}/go-{{number}}"):
        time.sleep(0.01)
"""
    await saved_one_by_one(tmp_path, source, WRITES)


async def test_the_writes_of_a_silent_program_follow_checkpoints(tmp_path: Path) -> None:
    """The files of a program that prints nothing are scanned repeatedly while it runs."""
    source = f"""
import os, time
for number in range(8):
    open("a.txt", "w").write(str(number))
    while not os.path.exists(f"{tmp_path}/go-{{number}}"):
        time.sleep(0.01)
"""
    await saved_one_by_one(tmp_path, source, 8)


async def saved_one_by_one(tmp_path: Path, source: str, count: int) -> None:
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", program(source))
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "one")
        for number in range(count):
            await saved_as(client, GitWitness(execution), str(number).encode())
            (tmp_path / f"go-{number}").touch()

        await idle(client)


async def test_a_persons_edit_is_saved_before_a_program_overwrites_it(tmp_path: Path) -> None:
    """The program writes, and writes again when the person's edit is in a checkpoint."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    source = f"""
import os, time
open("a.txt", "w").write("mine")
while not os.path.exists({str(gate)!r}):
    time.sleep(0.01)

open("a.txt", "w").write("mine again")
"""
    hank = write_hank(tmp_path / "hank", program(source))
    async with served(hank, execution, since_seq=0) as (_, client):
        await has_content(execution / "agentRoot" / "a.txt", "mine")
        await edit_is_saved(client, execution, gate)

    assert tree(execution / "agentRoot") == {"a.txt": b"mine again"}


async def test_an_announced_call_that_is_not_awaited_has_the_files_scanned_first(
    tmp_path: Path,
) -> None:
    """A checkpoint of a person's earlier edit follows the `tool_use` line, given enough time.

    The program prints Claude's stream-json, and decides how much time it leaves.
    """
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    call = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"file_path": "a.txt"}}
    returned = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
        {"type": "assistant", "message": {"id": "m1", "content": [call]}},
        {"type": "user", "message": {"content": [returned]}},
        {"type": "result", "subtype": "success", "result": "done"},
    ]
    begin, announce, end, result = (json.dumps(line) for line in lines)
    source = f"""
import os, time
def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)

print({begin!r}, flush=True)
wait("a.txt")
print({announce!r}, flush=True)
wait({str(gate)!r})
open("a.txt", "w").write("mine")
print({end!r}, flush=True)
print({result!r}, flush=True)
"""
    hank = write_hank(tmp_path / "hank", program(source))
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "one")
        await edit_is_saved(client, execution, gate)

    assert tree(execution / "agentRoot") == {"a.txt": b"mine"}


PRETENDER = """
import json, os, sys, time
GATE = {gate!r}

def say(kind, **fields):
    print(json.dumps({{"type": kind, **fields}}), flush=True)

def call(number):
    block = {{"type": "tool_use", "id": f"t{{number}}", "name": "Bash", "input": {{}}}}
    say("assistant", message={{"id": f"m{{number}}", "content": [block]}})

def returned(number):
    block = {{"type": "tool_result", "tool_use_id": f"t{{number}}", "content": ""}}
    say("user", message={{"content": [block]}})

say("system", subtype="init", session_id="s", model="m")
call(1)
open("a.txt", "w").write("mine")
returned(1)
while open("a.txt").read() == "mine":
    time.sleep(0.01)

call(2)
while not os.path.exists(GATE):
    time.sleep(0.01)

open("a.txt", "w").write("mine again")
returned(2)
say("result", subtype="success", result="done", is_error=False, session_id="s")
"""


async def test_an_agent_that_should_wait_and_does_not_is_noticed(tmp_path: Path) -> None:
    """With a `claude` that runs no hooks, the announcement of a call after the first is enough."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    stand_in = tmp_path / "bin" / "claude"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!{sys.executable} -IS\n{PRETENDER.format(gate=str(gate))}")
    stand_in.chmod(0o755)
    env = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": "no-key"}
    hank = write_hank(tmp_path / "hank", codon("one", agent={"type": "claude"}, model="sonnet"))
    async with served(hank, execution, "--safe-points", "before-tool", env=env, since_seq=0) as (
        _,
        client,
    ):
        await client.until(ToolResult, timeout=LIMIT)
        record = await edit_is_saved(client, execution, gate)

    assert (record.kind, record.label) == ("tool", None)
    assert tree(execution / "agentRoot") == {"a.txt": b"mine again"}


async def test_scans_that_find_no_change_take_no_checkpoint(
    tmp_path: Path, execution: Path
) -> None:
    """A program that prints, waits and changes nothing leaves only two checkpoints.

    These are the first and the last.
    """
    source = "import time\nfor _ in range(20):\n    print('.', flush=True)\n    time.sleep(0.05)"
    async with after_plan(write_hank(tmp_path / "hank", program(source)), execution) as (_, client):
        assert [record.kind for record in await listed(client)] == ["completed", "initial"]


async def test_without_the_safe_point_no_file_is_scanned(tmp_path: Path, execution: Path) -> None:
    """`--safe-points tool` takes no checkpoint between the writes of a plain program."""
    source = """
import time
for number in range(10):
    open("a.txt", "w").write(str(number))
    print("wrote", number, flush=True)
    time.sleep(0.05)
"""
    hank = write_hank(tmp_path / "hank", program(source))
    async with after_plan(hank, execution, "--safe-points", "tool") as (_, client):
        assert [record.kind for record in await listed(client)] == ["completed", "initial"]


# --- files that are being written -----------------------------------------------------------------


async def test_a_file_that_a_program_is_writing_is_marked_unstable(tmp_path: Path) -> None:
    """The record names the files that are being written, and none after the program has ended.

    A checkpoint is taken when half of one file is written and flushed, and another is being changed
    through a mapping.
    """
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    source = f"""
import mmap, os, time
half, mapped = open("half.txt", "w"), open("mapped.bin", "w+b")
mapped.write(b"0" * 4096)
mapped.flush()
memory = mmap.mmap(mapped.fileno(), 0)
half.write("the first half, ")
half.flush()
print("written", flush=True)
while not os.path.exists({str(gate)!r}):
    memory[0] = 49
    time.sleep(0.01)

memory[0] = 50
half.write("the second half")
"""
    hank = write_hank(tmp_path / "hank", program(source))
    async with served(hank, execution, since_seq=0) as (_, client):
        await appears(execution / "agentRoot" / "half.txt")
        git = GitWitness(execution)
        record = await saved_as(client, git, b"the first half, ", "half.txt")
        gate.touch()
        await idle(client)
        (last, *_) = await listed(client)

    unstable = {each.path for each in record.skipped if each.reason == "unstable"}
    assert unstable == {"half.txt", "mapped.bin"}
    assert not record.partial
    assert (last.kind, last.skipped) == ("completed", ())
    files = git.files(last.sha)
    assert files["half.txt"] == b"the first half, the second half"
    assert files["mapped.bin"][:1] == b"2"
