"""Claims about `show`, `diff`, `replay` and `runs`: equal answers with and without a server."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointPin, ExecutionBranch, RollbackToCheckpoint
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import State
from hankweave_server.domain.reducer import fold
from support.git_facts import GitWitness
from support.running_server import command, environment, journal
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, idle

BINARY = bytes(range(256)) * 3_000
"""Larger than the limit of one reply."""

HANK = (
    codon("one", writes("notes/a.txt", "one\n")),
    codon(
        "two",
        writes("notes/a.txt", "two\n"),
        writes("b.txt", "b\n"),
        {"run": "printf odd > \"$(printf 'odd-\\377')\""},
        {"run": "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256))*3000)' > bin"},
    ),
)


def hankweave(*arguments: str | bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*command(), *arguments],
        env=environment(**env),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert b"Traceback" not in done.stdout + done.stderr
    return done


class Shell:
    """A user's shell at an execution, beside its server or after it."""

    def __init__(self, execution: Path) -> None:
        self.execution = execution
        self.git = GitWitness(execution)

    def run(self, verb: str, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
        return hankweave(verb, "-e", str(self.execution), *words)

    async def __call__(self, verb: str, *words: str | bytes) -> bytes:
        done = await anyio.to_thread.run_sync(partial(self.run, verb, *words))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sha(self, codon_id: str) -> Sha:
        """Return the commit of a codon's completed checkpoint, as git reports it."""
        lines = self.git.run("log", "--all", "--format=%H %s").splitlines()
        found = (line.split(" ", 1) for line in lines)
        return Sha(next(sha for sha, text in found if text.startswith(f"completed:{codon_id} ")))


@asynccontextmanager
async def a_server(tmp_path: Path) -> AsyncIterator[tuple[Shell, Client]]:
    hank = write_hank(tmp_path / "hank", *HANK)
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, client):
        yield Shell(server.execution), client


@pytest.fixture
def left(tmp_path: Path) -> Shell:
    """Return an execution whose server has ended."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    done = hankweave("run", str(hank), "-e", str(execution), "--headless")
    assert done.returncode == 0, done.stderr
    return Shell(execution)


def everything(execution: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(execution.rglob("*"))
    }


# --- output ---------------------------------------------------------------------------------------


async def test_with_a_server_and_without_the_answers_are_the_same(tmp_path: Path) -> None:
    """The running server and the files that it left give the same answers, byte for byte."""
    async with a_server(tmp_path) as (shell, client):
        one, two = shell.sha("one"), shell.sha("two")
        await client.send(RollbackToCheckpoint(checkpoint_sha=one))
        await client.send(CheckpointPin(checkpoint_sha=two, name="before I forget", pinned=True))
        questions: list[tuple[str, ...]] = [
            ("show", two, "--json"),
            ("show", f"{two}:"),
            ("show", f"{two}:bin"),
            ("diff", one, two),
            ("diff", one, two, "--patch", "--", "notes", "b.txt"),
            ("replay", "--seq", "9", "--state"),
            ("replay", two, "--tree", "--", "notes"),
            ("replay", one, "--events"),
            ("replay", one, "--json"),
            ("runs",),
        ]
        with_server = [await shell(*question) for question in questions]

    assert b"before I forget  [pinned]" in with_server[-1]
    before = everything(shell.execution)
    with_files = [shell.run(*question).stdout for question in questions]
    assert with_files[:-1] == with_server[:-1]
    assert b"before I forget  [pinned]" in with_files[-1]
    assert everything(shell.execution) == before


async def test_a_file_is_shown_byte_for_byte(left: Shell) -> None:
    """Text, binary data beyond one reply, and names that are not UTF-8 are shown unchanged."""
    two = left.sha("two")
    assert await left("show", f"{two[:10]}:notes/a.txt") == b"two\n"
    assert await left("show", f"{two}:bin") == BINARY
    assert await left("show", os.fsencode(f"{two}:") + b"odd-\xff") == b"odd"
    found = json.loads(await left("show", f"{two}:b.txt", "--json"))
    assert (found["content"], found["size"]) == ("b\n", 2)


async def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    """With a server and without, a closed pipe causes exit code 141 and no message."""
    async with a_server(tmp_path) as (shell, _):
        two = shell.sha("two")
        assert await anyio.to_thread.run_sync(_into_closed_pipe, shell, two) == (141, b"")

    assert _into_closed_pipe(shell, two) == (141, b"")


def _into_closed_pipe(shell: Shell, sha: str) -> tuple[int, bytes]:
    words = ("show", "-e", str(shell.execution), f"{sha}:bin")
    with subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        process.stdout.close()
        return process.wait(LIMIT), process.stderr.read()


async def test_a_checkpoint_is_shown_with_what_it_changed(left: Shell) -> None:
    """The output has its list entry, its run, its size, and the changes since the one before."""
    one = left.sha("one")
    text = (await left("show", one)).decode()
    assert one in text
    assert "completed" in text.splitlines()[0]
    told = json.loads(await left("show", one, "--json"))
    assert told["checkpoint"]["sha"] == one
    assert told["stats"]["files"] == 1


async def test_a_diff_is_gits(left: Shell) -> None:
    """The patch is one that git could have made; the stat names status and lines."""
    one, two = left.sha("one"), left.sha("two")
    patch = (await left("diff", one, two, "-p", "--", "notes/a.txt")).decode()
    theirs = left.git.run("diff", one, two, "--", "notes/a.txt")
    assert patch.split("@@")[1:] == theirs.split("@@")[1:]
    stat = (await left("diff", one, two, "--stat")).decode().splitlines()
    assert stat[0].startswith(f"from  {one[:12]}  codon completed")
    assert stat[1].startswith(f"to    {two[:12]}  codon completed")
    assert [line.split()[:2] for line in stat[2:-1]] == [
        ["A", "b.txt"],
        ["A", "bin"],
        ["M", "notes/a.txt"],
        ["A", "odd-\\xff"],
    ]
    assert stat[-1].startswith("4 files differ")
    (left.execution / "agentRoot" / "b.txt").write_text("by hand\n")
    now = (await left("diff", two, "-p")).decode()
    assert "+by hand" in now


async def test_a_replay_shows_state_files_and_events_of_the_moment(left: Shell) -> None:
    """State is the journal's fold, files are git's list, events start with the run."""
    events = journal(left.execution)
    for seq in (0, 3, len(events)):
        state = msgspec.json.decode(await left("replay", "--seq", str(seq), "--state"), type=State)
        assert state == fold(events[:seq])

    one = left.sha("one")
    tree = (await left("replay", one, "--tree")).decode().splitlines()
    assert [line.split() for line in tree] == [["-rw-r--r--", "4", "notes/a.txt"]]
    told = (await left("replay", one, "--events")).decode().splitlines()
    first, last = int(told[0].split()[0]), int(told[-1].split()[0])
    assert events[first - 1].type == "state.transition"
    view = json.loads(await left("replay", one, "--json"))
    assert view["events"] == {"from": first, "to": last}
    assert last == view["coordinate"]["eventSeq"]
    lines = (await left("replay", one, "--events", "--json")).decode().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(first, last + 1))


async def test_runs_are_drawn_as_lines_with_the_abandoned_ones_aside(tmp_path: Path) -> None:
    """Runs show what they continue and from where, with their checkpoints and named pins."""
    async with a_server(tmp_path) as (shell, client):
        one = shell.sha("one")
        for _ in range(2):
            await client.send(RollbackToCheckpoint(checkpoint_sha=one, auto_restart=True))
            await idle(client)

        text = (await shell("runs")).decode()
        listed = json.loads(await shell("runs", "--json"))

    runs = listed["runs"]
    assert [run["onThread"] for run in runs] == [True, False, True]
    assert [run.get("reason") for run in runs] == [None, "rollback", "rollback"]
    assert {run["source"]["runId"] for run in runs[1:]} <= {run["runId"] for run in runs}
    lines = text.splitlines()
    shown = {
        run["runId"]: next(line for line in lines if f"run {run['runId']}" in line) for run in runs
    }
    assert "abandoned" in shown[runs[1]["runId"]]
    assert "rollback of" in shown[runs[2]["runId"]]
    assert _depth(shown[runs[0]["runId"]]) == _depth(shown[runs[2]["runId"]])
    assert _depth(shown[runs[1]["runId"]]) > _depth(shown[runs[0]["runId"]])
    for run in runs:
        for record in run["checkpoints"]:
            assert any(record["sha"][:12] in line for line in lines)


async def test_runs_name_the_executions_that_were_branched_off(tmp_path: Path) -> None:
    """The original shows the branch at its checkpoint, and the branch shows the original."""
    async with a_server(tmp_path) as (shell, client):
        one = shell.sha("one")
        made = await client.send(ExecutionBranch(checkpoint_sha=one, path=str(tmp_path / "other")))
        text = (await shell("runs")).decode().splitlines()

    at = next(number for number, line in enumerate(text) if one[:12] in line)
    assert f"branched to {made.execution_path}" in text[at + 1]
    other = hankweave("runs", "-e", made.execution_path).stdout.decode()
    assert f"a branch of {shell.execution}, made at {one[:12]}" in other


def test_on_a_terminal_the_runs_are_drawn_in_colour(left: Shell) -> None:
    """A pipe gets the same text without a single escape."""
    assert b"\x1b" not in left.run("runs").stdout
    shown = _on_a_terminal("runs", "-e", str(left.execution))
    assert b"\x1b[" in shown
    assert "└──".encode() in shown


def _on_a_terminal(*words: str) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*words), env=environment(TERM="xterm-256color"), stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        shown = b""
        # After the last writer has closed it, reading a terminal is an error.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65_536):
                shown += part

    os.close(ours)
    return shown


def _depth(line: str) -> int:
    return line.index("run ")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [True, False])
async def test_what_cannot_be_shown_is_a_sentence_with_code_and_hint(
    tmp_path: Path, alive: bool
) -> None:
    """With a server and without, the exit code is 1 and stdout is empty."""
    async with a_server(tmp_path) as (shell, _):
        one = shell.sha("one")
        if alive:
            await anyio.to_thread.run_sync(_assert_refused, shell, one)

    if not alive:
        before = everything(shell.execution)
        _assert_refused(shell, one)
        assert everything(shell.execution) == before


def _assert_refused(shell: Shell, one: str) -> None:
    for words, code in (
        (("show", "ffffffff"), "CHECKPOINT_NOT_FOUND"),
        (("show", f"{one}:nobody"), "INVALID_PATH"),
        (("show", f"{one}:../../etc/passwd"), "INVALID_PATH"),
        (("diff", one, "no sha"), "CHECKPOINT_NOT_FOUND"),
        (("diff", one, "--", "nobody"), "INVALID_PATH"),
        (("replay", one, "--tree", "--", "/etc"), "INVALID_PATH"),
        (("replay", "--seq", "1000000"), "INVALID_COMMAND"),
    ):
        done = shell.run(*words)
        assert (done.returncode, done.stdout) == (1, b""), words
        assert done.stderr.startswith(b"hankweave: ")
        assert f"({code})".encode() in done.stderr
        assert b"hint: " in done.stderr


@pytest.mark.story("A damaged journal is named with its line, and the exit code is 65.")
def test_a_damaged_journal_is_named_with_its_line(left: Shell) -> None:
    """Without a server nothing is repaired: the exit code is 65, with the place of the damage."""
    path = left.execution / ".hankweave" / "events" / "events.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:5], b"garbage", *lines[5:], b""]))
    before = everything(left.execution)
    done = left.run("replay", "--seq", "2")
    assert (done.returncode, b"line 6" in done.stderr) == (65, True)
    assert everything(left.execution) == before


async def test_names_with_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """An agent chooses names; none of them may clear the screen."""
    hank = write_hank(
        tmp_path / "hank", codon("one", {"run": "printf x > \"$(printf 'a\\033[2Jb')\""})
    )
    execution = tmp_path / "execution"
    run: Any = partial(hankweave, "run", str(hank), "-e", str(execution), "--headless")
    assert (await anyio.to_thread.run_sync(run)).returncode == 0
    shell = Shell(execution)
    one, first = shell.sha("one"), shell.git.run("rev-list", "--max-parents=0", "HEAD").strip()
    for question in (("replay", one, "--tree"), ("diff", first, one)):
        text = await shell(*question)
        assert b"\x1b" not in text
        assert b"a\\x1b[2Jb" in text
