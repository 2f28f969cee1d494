"""Claims about `hankweave rollback`, `undo`, `redo` and `preview`, beside a real server."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
import pytest

from hankweave_protocol.commands import CheckpointCreate, GetServerStatus
from hankweave_protocol.events import CheckpointRollback, RollbackCompleted
from hankweave_protocol.records import RollbackReport
from hankweave_server.cli.output.rollback_report import CONVERSATION
from support import command_line
from support.command_line import Done
from support.running_server import (
    command,
    environment,
    served,
    state,
    tree,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, started

HANK = (
    codon("one", writes("a.txt", "one")),
    codon("two", writes("a.txt", "two!"), writes("d/b.txt", "two")),
)
BACK = {"a.txt": b"one"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WHOLE = {"a.txt": b"two!", "d/b.txt": b"two"}


def at_terminal(answer: str, *arguments: str) -> Done:
    """Run a command with a terminal on both ends, and answer its question."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command(*arguments), env=environment(), stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            seen, answered = "", False
            while chunk := _read(ours):
                seen += chunk
                if not answered and "[y/N" in seen:
                    answered = True
                    os.write(ours, answer.encode())

            code = process.wait(timeout=LIMIT)
    finally:
        os.close(ours)

    assert "Traceback" not in seen
    return Done(arguments, code, COLOUR.sub("", seen.replace("\r\n", "\n")), "")


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode()
    except OSError:
        return ""  # The other end is closed: the program has ended.


class Shell(command_line.Shell):
    """A user's shell beside a server, with a terminal if that is asked."""

    @property
    def root(self) -> Path:
        return self.execution / "agentRoot"

    async def answering(self, answer: str, verb: str, *options: str) -> Done:
        words = (verb, "--execution", str(self.execution), *options)
        return await anyio.to_thread.run_sync(partial(at_terminal, answer, *words))

    async def report(self, verb: str, *options: str) -> RollbackReport:
        return msgspec.json.decode(await self.json(verb, *options), type=RollbackReport)


@asynccontextmanager
async def a_shell(tmp_path: Path) -> AsyncIterator[Shell]:
    hank = write_hank(tmp_path / "hank", *HANK)
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, client):
        yield Shell(server, client)


# --- rollbacks ------------------------------------------------------------------------------------


@pytest.mark.enclosed
async def test_a_path_that_cannot_go_back_is_named_and_the_rest_goes(tmp_path: Path) -> None:
    """The exit code is 3, undo and redo take back exactly what was done, and nothing is replayed.

    Once the cause is gone, a rollback restores the path as well.
    """
    async with a_shell(tmp_path) as shell:
        protected = str(shell.root / "a.txt")
        if (await anyio.run_process(["chattr", "+i", protected], check=False)).returncode != 0:
            pytest.skip("no immutable files here")

        try:
            previewed = await shell("rollback", "--codon", "one", "--preview", code=0)
            assert "'a.txt' is immutable" in previewed.stdout
            done = await shell("rollback", "--codon", "one", code=3)
            assert "'a.txt' is immutable" in done.stdout
            assert "EPERM" in done.stdout
            assert tree(shell.root) == {"a.txt": b"two!"}
            await shell("undo", code=0)
            assert tree(shell.root) == WHOLE
            await shell("redo", code=0)
            assert tree(shell.root) == {"a.txt": b"two!"}
        finally:
            await anyio.run_process(["chattr", "-i", protected])

        await shell("rollback", "--codon", "one", code=0)
        assert tree(shell.root) == BACK


@pytest.mark.executed
async def test_a_rollback_is_undone_and_redone(tmp_path: Path) -> None:
    """Files and exit codes are right; the report has every file with its size, and the sum."""
    async with a_shell(tmp_path) as shell:
        done = await shell("rollback", "--codon", "one", code=0)
        lines = done.stdout.splitlines()[2:-1]
        # How long the step took depends on the machine.
        assert lines.pop(-2).startswith("  ↻  1 step runs again: two")
        assert lines == [
            "  ↩  1 file returned to earlier content",
            "       a.txt  3 bytes",
            "  −  1 file went away",
            "       d/b.txt  3 bytes",
            f"  note: {CONVERSATION}",
            "",
        ]
        assert "(6 bytes): `hankweave undo` takes it back." in done.stdout
        assert tree(shell.root) == BACK
        undone = await shell("undo", "--reason", "No, it was right.")
        assert (undone.returncode, "  +  1 file came back\n       d/b.txt" in undone.stdout) == (
            0,
            True,
        )
        assert tree(shell.root) == WHOLE
        assert (await shell.report("redo")).removed[0].path == "d/b.txt"
        assert tree(shell.root) == BACK

    made = events_of(shell.execution, RollbackCompleted)
    assert [(each.direction, each.reason) for each in made] == [
        ("back", None),
        ("undo", "No, it was right."),
        ("redo", None),
    ]


async def test_only_the_named_paths_go_back(tmp_path: Path) -> None:
    """--path may be repeated; a trailing slash means a folder; no run ends."""
    async with a_shell(tmp_path) as shell:
        run = state(shell.execution).runs[0].run_id
        report = await shell.report("rollback", "--codon", "one", "--path", "d/", "--reason", "x")
        assert [file.path for file in report.removed] == ["d/b.txt"]
        assert tree(shell.root) == {"a.txt": b"two!"}
        await shell("undo")
        report = await shell.report("rollback", "--codon", "one", "--path", "a.txt", "--path", "d")
        assert (len(report.updated), len(report.removed)) == (1, 1)
        assert state(shell.execution).runs[0].run_id == run

    done = events_of(shell.execution, CheckpointRollback)
    assert [each.paths for each in done] == [("d",), ("d",), ("a.txt", "d")]


async def test_edits_by_people_are_named_and_can_be_kept(tmp_path: Path) -> None:
    """The report says which edits are overwritten and, with --keep-edits, which are kept."""
    async with a_shell(tmp_path) as shell:
        (shell.root / "a.txt").write_text("a person's")
        previewed = (await shell("preview", "--codon", "one")).stdout
        assert (
            "1 edit of yours is overwritten or removed; --keep-edits keeps it\n       a.txt\n"
            in previewed
        )
        kept = (await shell("preview", "--codon", "one", "--keep-edits")).stdout
        assert "1 edit of yours is kept\n       a.txt\n" in kept
        assert "overwritten" not in kept
        done = (await shell("rollback", "--codon", "one", "--keep-edits")).stdout
        assert "1 edit of yours was kept\n       a.txt\n" in done
        assert tree(shell.root) == {"a.txt": b"a person's"}


async def test_a_running_codon_is_paused_stopped_or_left_alone(tmp_path: Path) -> None:
    """Without an option the rollback is refused; --pause moves files under it, --stop ends it."""
    gate = tmp_path / "gate"
    work = codon("two", writes("a.txt", "half"), waits_for(gate))
    hank = write_hank(tmp_path / "hank", HANK[0], work)
    async with served(hank, tmp_path / "execution", since_seq=0) as (server, client):
        await started(client, "two")
        shell = Shell(server, client)
        refused = await shell("rollback", "--codon", "one")
        assert (refused.returncode, "(CODON_RUNNING)" in refused.stderr) == (1, True)
        await shell("rollback", "--codon", "one", "--pause", "--path", "a.txt", code=0)
        assert (shell.root / "a.txt").read_text() == "one"
        assert (await client.send(GetServerStatus())).active_codon_id == "two"
        await shell("rollback", "--codon", "one", "--stop", code=0)
        assert (await client.send(GetServerStatus())).active_codon_id is None


# --- previews -------------------------------------------------------------------------------------


async def test_a_preview_says_what_each_of_them_would_do(tmp_path: Path) -> None:
    """For a SHA, a codon, no target, --undo, --redo: the preview equals the later report."""
    async with a_shell(tmp_path) as shell:
        one = (await shell.report("preview", "--codon", "one")).target.checkpoint_sha
        same = await shell.report("preview", one[:10])
        assert [file.path for file in same.removed] == ["d/b.txt"]
        assert (await shell.report("preview")).removed == ()
        part = await shell.report("preview", one, "--path", "a.txt")
        assert (len(part.updated), len(part.removed)) == (1, 0)
        assert tree(shell.root) == WHOLE

        await shell("rollback", "--to", one)
        previewed = await shell.report("preview", "--undo")
        done = await shell.report("undo")
        assert (previewed.added, previewed.updated) == (done.added, done.updated)
        previewed = await shell.report("preview", "--redo")
        assert [file.path for file in previewed.removed] == ["d/b.txt"]
        assert tree(shell.root) == WHOLE


async def test_a_preview_prints_patches(tmp_path: Path) -> None:
    """--patch prints unified diffs after the lists, in words and in JSON."""
    async with a_shell(tmp_path) as shell:
        words = (await shell("preview", "--codon", "one", "--patch")).stdout
        assert "--- a/a.txt\n+++ b/a.txt\n" in words
        assert "-two!" in words
        report = await shell.report("preview", "--codon", "one", "--patch")
        assert {diff.path for diff in report.diffs} == {"a.txt", "d/b.txt"}


async def test_what_reaches_outside_is_listed(tmp_path: Path) -> None:
    """The preview warns that a rollback does not take it back."""
    call = {"type": "tool_use", "id": "t1", "name": "mcp__mail__send", "input": {"to": "x"}}
    line = msgspec.json.encode({"type": "assistant", "message": {"id": "m", "content": [call]}})
    hank = write_hank(tmp_path / "hank", HANK[0], codon("mail", {"raw": line.decode()}))
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, client):
        words = (await Shell(server, client)("preview", "--codon", "one")).stdout
        assert "What was done outside the work tree is not undone:\n    mcp__mail__send of" in words


# --- confirmation ---------------------------------------------------------------------------------


async def test_at_a_terminal_the_preview_is_shown_with_a_question(tmp_path: Path) -> None:
    """No: exit 1 and no change. Yes: it is done. --yes and --json do not ask."""
    async with a_shell(tmp_path) as shell:
        no = await shell.answering("n\n", "rollback", "--codon", "one")
        assert no.returncode == 1
        assert "1 file goes away" in no.stdout
        assert "Go back? [y/N/files]: n\nhankweave: Nothing was changed.\n" in no.stdout
        assert tree(shell.root) == WHOLE
        assert state(shell.execution).undo == ()

        for verb, expected in (("rollback", BACK), ("undo", WHOLE), ("redo", BACK)):
            options = ("--codon", "one") if verb == "rollback" else ()
            yes = await shell.answering("y\n", verb, *options)
            assert yes.returncode == 0, yes.stdout
            assert "Everything is saved first" in yes.stdout
            answered = yes.stdout.partition("[y/N/files]: y\n")[2]
            assert "Back at " in answered, "maybe behind a bar, where it took long"
            assert tree(shell.root) == expected

        for option in ("--yes", "--json"):
            quiet = await shell.answering("", "undo" if option == "--yes" else "redo", option)
            assert (quiet.returncode, "[y/N" in quiet.stdout) == (0, False)


# --- refusals and usage ---------------------------------------------------------------------------


async def test_a_refusal_of_the_server_is_shown_with_its_code(tmp_path: Path) -> None:
    """The exit code is 1; stderr has a sentence, the code and a hint; nothing is changed."""
    async with a_shell(tmp_path) as shell:
        await shell.client.send(CheckpointCreate())
        for words, code in (
            (("undo",), "NOTHING_TO_UNDO"),
            (("redo",), "NOTHING_TO_UNDO"),
            (("preview", "--undo"), "NOTHING_TO_UNDO"),
            (("preview", "ffffffff"), "CHECKPOINT_NOT_FOUND"),
            (("preview", "--codon", "nobody"), "UNKNOWN_CODON"),
            (("rollback", "--to", "ffffffff"), "CHECKPOINT_NOT_FOUND"),
            (("rollback", "--codon", "nobody"), "UNKNOWN_CODON"),
            (("rollback", "--path", "nowhere.txt"), "INVALID_PATH"),
            (("rollback", "--path", "../outside"), "INVALID_PATH"),
            (("preview", "--path", ".git/config"), "INVALID_PATH"),
        ):
            refused = await shell(*words)
            assert (refused.returncode, refused.stdout) == (1, ""), words
            assert f"({code})" in refused.stderr
            assert "hint: " in refused.stderr
            assert words[0] != "rollback" or (
                f"execution {shell.execution}\nhankweave: " in refused.stderr
            )

        assert tree(shell.root) == WHOLE
