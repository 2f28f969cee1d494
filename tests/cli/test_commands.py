"""Claims about the command line: text and JSON output, with and without a server."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from hankweave_protocol.commands import GetServerStatus, RollbackToLastSuccess
from hankweave_protocol.events import CodonStartedEvent
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import CheckpointPage, ServerStatus
from support.command_line import Shell, agreed, hankweave
from support.running_server import (
    command,
    environment,
    journal,
    served,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import limited
from support.watching import after_plan, idle

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))
VERBS = (
    *("checkpoints", "diff", "events", "fsck", "gc", "log", "pin", "preview"),
    *("redo", "replay", "rollback", "runs", "show", "status", "undo"),
)


@asynccontextmanager
async def a_shell(tmp_path: Path) -> AsyncIterator[Shell]:
    """Provide a shell beside a server that has run its plan."""
    hank = write_hank(tmp_path / "hank", *HANK)
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, client):
        yield Shell(server, client)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Return an execution whose server has ended."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    return execution


# --- with a server --------------------------------------------------------------------------------


@pytest.mark.story(
    "`status` and `checkpoints` show what the server is doing and every moment to go back to."
)
async def test_status_and_checkpoints_say_what_the_server_knows(tmp_path: Path) -> None:
    """The output is text for people, and the reply's own JSON for programs."""
    async with a_shell(tmp_path) as shell:
        words = await shell("status", code=0)
        assert str(shell.execution) in words.stdout
        assert " · 2 of 2 · completed" in words.stdout
        status = msgspec.json.decode(await shell.json("status"), type=ServerStatus)
        assert (status.checkpoints, status.next_codon_id) == (5, None)
        assert status.store_bytes > 0

        page = msgspec.json.decode(await shell.json("checkpoints"), type=CheckpointPage)
        kinds = [(each.kind, each.coordinate.codon_id) for each in page.checkpoints]
        assert kinds == [
            *(("completed", "two"), ("tool", "two")),
            *(("completed", "one"), ("tool", "one")),
            ("initial", None),
        ]
        listed = (await shell("checkpoints")).stdout.splitlines()
        assert [line.split()[:3] for line in listed] == [
            [each.sha[:12], each.kind, each.coordinate.codon_id or "-"] for each in page.checkpoints
        ]


@pytest.mark.story("A rollback on the command line does what its preview shows.")
async def test_a_rollback_is_previewed_and_done(tmp_path: Path) -> None:
    """--preview shows the changes and makes none; then the same rollback is done, and saved."""
    async with a_shell(tmp_path) as shell:
        b = shell.execution / "agentRoot" / "b.txt"
        preview = await shell("rollback", "--codon", "one", "--preview", code=0)
        assert "1 file goes away\n       b.txt  3 bytes" in preview.stdout
        assert b.exists()

        done = await shell("rollback", "--codon", "one", "--type", "completed", code=0)
        assert "1 file went away\n       b.txt  3 bytes" in done.stdout
        assert "Saved before, in checkpoint " in done.stdout
        assert not b.exists()

        page = msgspec.json.decode(await shell.json("checkpoints"), type=CheckpointPage)
        two = _sha_of(page, "two")
        report = msgspec.json.decode(
            await shell.json("rollback", "--to", two[:10]), type=RollbackReport
        )
        assert report.target.checkpoint_sha == two
        assert [file.path for file in report.added] == ["b.txt"]
        assert b.read_text() == "two"


async def test_a_rollback_may_restart_the_plan(tmp_path: Path) -> None:
    """--restart starts the next codon at once; without a target it is the last success."""
    async with a_shell(tmp_path) as shell:
        await shell("rollback", code=0)
        seq = (await shell.client.send(GetServerStatus())).last_event_seq
        await shell("rollback", "--codon", "one", "--restart", code=0)
        ended = await idle(shell.client)
        while ended.seq <= seq:
            ended = await idle(shell.client)

        assert (shell.execution / "agentRoot" / "b.txt").exists()


async def test_following_prints_what_happens_until_the_server_ends(tmp_path: Path) -> None:
    """events --follow prints the journal, then the live events; it ends with the server."""
    async with (
        a_shell(tmp_path) as shell,
        await anyio.open_process(
            command("events", "-e", str(shell.execution), "--follow", "--json"),
            env=environment(),
            stderr=subprocess.STDOUT,
        ) as following,
    ):
        assert following.stdout is not None
        text = ""
        with limited():
            while '"rollback.completed"' not in text:
                if '"all-codons-completed"' in text and "rollback.started" not in text:
                    await shell.client.send(RollbackToLastSuccess())

                text += (await following.stdout.receive()).decode()

        following.kill()

    seqs = [json.loads(line)["seq"] for line in text.splitlines()[:-1]]
    assert seqs == list(range(1, len(seqs) + 1))


# --- without one ----------------------------------------------------------------------------------


@pytest.mark.story("Without a server, `log` reads the journal.")
def test_the_journal_is_read_without_a_server(left: Path) -> None:
    """log prints events as lines of text; events prints each event, or those after a seq."""
    story = hankweave("log", "-e", str(left)).stdout
    assert [line.split()[1:3] for line in story.splitlines() if "completed" in line][:2] == [
        ["one", "completed"],
        ["two", "completed"],
    ]
    lines = hankweave("events", "-e", str(left), "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [e.seq for e in journal(left)]
    last = hankweave("events", "-e", str(left), "--since", str(len(lines) - 2), "--json").stdout
    assert last.splitlines() == lines[-2:]


@pytest.mark.story("Without a server, `status` shows where the plan stands, and what to do next.")
def test_without_a_server_status_shows_the_last_state(left: Path) -> None:
    """With --json, it needs one: the exit code is 69, with one sentence and a hint."""
    done = hankweave("status", "-e", str(left), code=0)
    assert done.stdout.startswith("hank · run 1 · 2 of 2 · completed ")
    assert "  hankweave report" in done.stdout
    done = hankweave("status", "-e", str(left), "--json", code=69)
    assert done.stderr.startswith("hankweave: ")
    assert "hankweave run" in done.stderr


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["alive", "dead"])
def test_a_stale_lock_is_no_server(left: Path, pid: int) -> None:
    """If the pid is dead, or lives and does not listen, the last state is shown as well."""
    stamp = "2025-01-04T12:00:00.000Z"
    lock = {"pid": pid, "runId": None, "startTime": stamp, "lastHeartbeat": stamp, "port": 1}
    (left / ".hankweave" / "runtime.lock").write_text(json.dumps(lock))
    assert " · 2 of 2 · " in hankweave("status", "-e", str(left), code=0).stdout
    assert hankweave("status", "-e", str(left), "--json", code=69).stderr.startswith("hankweave: ")


@pytest.mark.parametrize("verb", ["status", "checkpoints", "rollback", "events", "log"])
def test_where_there_is_no_execution_that_is_reported(tmp_path: Path, verb: str) -> None:
    """On an empty machine there is an exit code and a sentence."""
    nowhere = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(tmp_path / "executions")}
    done = hankweave(verb, code=66, **nowhere)
    assert "no execution" in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_that_is_no_execution_is_called_so(tmp_path: Path, verb: str) -> None:
    """The message does not claim that no server holds it; nothing is made in it."""
    argument = ("abcd",) if verb in ("diff", "pin", "replay", "show") else ()
    done = hankweave(verb, "-e", str(tmp_path), *argument, *agreed(verb), code=66)
    assert done.stdout == ""
    assert f"There is no execution in {tmp_path}." in done.stderr
    assert "hint: " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["events", "log"])
def test_a_damaged_journal_is_named_with_its_line(left: Path, verb: str) -> None:
    """The exit code is 65 with the number of the line; `log` prints the events before it."""
    path = left / ".hankweave" / "events" / "events.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:5], b"\x00garbage", *lines[5:], b""]))
    done = hankweave(verb, "-e", str(left), code=65)
    assert "line 6" in done.stderr


# --- output for people ----------------------------------------------------------------------------


async def test_status_names_the_page_and_what_comes_after_the_codon_that_runs(
    tmp_path: Path,
) -> None:
    """The address has the token; `next` is the codon after the one that runs now."""
    go = tmp_path / "go"
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(go)), codon("two"))
    async with served(hank, tmp_path / "execution", since_seq=0) as (server, client):
        await client.until(CodonStartedEvent)
        output = (await Shell(server, client)("status")).stdout
        assert "▸ Codon one" in output
        assert "· Codon two" in output
        token = (server.execution / ".hankweave" / "server.token").read_text().strip()
        assert f"page http://127.0.0.1:{client.ready.port}/#token={token}\n" in output
        go.touch()


@pytest.mark.story("A command whose output is no longer read exits with 141.")
def test_a_reader_that_leaves_ends_a_command_with_141(left: Path) -> None:
    """The exit code is the documented one, and stderr is empty."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            command("log", "-e", str(left)),
            env=environment(),
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (done.returncode, done.stderr) == (141, b"")


def test_a_taken_port_leaves_nothing_behind(tmp_path: Path) -> None:
    """The start ends before it makes an execution, or sets a former one aside."""
    hank, root = write_hank(tmp_path / "hank", *HANK), tmp_path / "executions"
    former = tmp_path / "former"
    hankweave("run", str(hank), "-e", str(former), "--headless", code=0)
    before = sorted(tmp_path.iterdir())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(root)}
        for words in ((), ("-e", str(former), "--new", "--force")):
            done = hankweave("run", str(hank), *words, "-p", port, code=69, **base)
            assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
            assert "hint: Choose another --port" in done.stderr

    assert sorted(tmp_path.iterdir()) == before
    assert not root.exists()


def test_ls_counts_what_is_behind_on_the_current_line(tmp_path: Path) -> None:
    """Codons of an abandoned line do not count, and never more than are planned."""
    hank, root = write_hank(tmp_path / "hank", *HANK), tmp_path / "executions"
    base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(root)}
    at = ("-e", str(root / "one"))
    hankweave("run", str(hank), *at, "--headless", "-y", code=0)
    for words, done in (((), 2), (("rollback", "--codon", "one", "--yes", *at), 1)):
        if words:
            hankweave(*words, code=0)

        (listed,) = json.loads(hankweave("ls", "--json", **base).stdout)
        assert (listed["codonsDone"], listed["codonsPlanned"]) == (done, 2)


def test_history_says_where_the_other_checkpoints_are(left: Path) -> None:
    """The history lists only labelled checkpoints, and does not claim that there are no others."""
    output = hankweave("history", "-e", str(left), code=0).stdout
    assert "There are no checkpoints of steps" in output
    assert "`hankweave checkpoints` lists all" in output


def test_without_a_server_the_hints_can_be_pasted(left: Path) -> None:
    """One starts the server of the execution; the other works unchanged."""
    hint = hankweave("status", "-e", str(left), "--json", code=69).stderr.partition("hint: ")[2]
    assert f"`hankweave run -e {left}`" in hint
    reading = re.findall(r"`hankweave (log[^`]*)`", hint)[0]
    assert "All codons completed." in hankweave(*shlex.split(reading), code=0).stdout


@pytest.mark.parametrize(("typed", "meant"), [("rolback", "rollback"), ("chekpoint", "checkpoint")])
def test_a_mistyped_command_is_suggested(typed: str, meant: str) -> None:
    done = hankweave(typed, code=2)
    assert f"There is no command '{typed}'. Did you mean '{meant}'?" in done.stderr


# --- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["", "run", "validate", *VERBS])
def test_help_is_there_for_every_command(verb: str) -> None:
    """--help and -h print the usage and exit with 0."""
    for flag in ("--help", "-h"):
        done = hankweave(*([verb] if verb else []), flag, code=0)
        assert done.stdout.startswith("Usage: hankweave" if verb else "Run agents through steps")


WRONG = """\
nonsense
run
run x --port 70000
status --nonsense
rollback --type middle
rollback --to abcd --codon one
rollback --before one --codon one
rollback --patch --yes
rollback --stop --pause
rollback --path ''
rollback --restart --path a.txt
rollback --type end
undo --stop --pause
undo abcd
redo --path a.txt
preview --undo --redo
preview abcd --undo
preview --redo --path a.txt
preview abcd --codon one
preview --stop
log --calls
events --since x
gc --max-count -1
gc --max-age -3d
gc --max-age 3x
gc --max-age 999999999999d
gc --max-bytes lots
gc --max-bytes -5
gc --kinds blue
gc --kinds ''
fsck abcd
pin
pin abcd --remove --name x
pin abcd --name ''
show
diff
diff a b c
diff abcd --patch --stat
replay
replay abcd --seq 3
replay --seq -1
replay abcd --tree --state
runs x
"""


@pytest.mark.parametrize("line", WRONG.splitlines())
def test_wrong_usage_exits_2_and_says_what_is_right(line: str) -> None:
    """Unknown commands, options and values, and exclusive options, leave stdout empty."""
    done = hankweave(*shlex.split(line), code=2)
    assert done.stdout == ""
    assert "Error" in done.stderr


def test_a_valid_hank_is_reported_as_valid_and_nothing_is_made(tmp_path: Path) -> None:
    """validate takes the file or its folder."""
    hank = write_hank(tmp_path / "hank", *HANK)
    for path in (hank, hank.parent):
        done = hankweave("validate", str(path))
        assert (done.returncode, " is valid: " in done.stdout) == (0, True)

    assert [path.name for path in hank.parent.iterdir()] == ["hank.json"]


def _sha_of(page: CheckpointPage, codon_id: str) -> Sha:
    return next(each.sha for each in page.checkpoints if each.coordinate.codon_id == codon_id)
