"""The test tools: the checker detects each kind of damage, and the tracer hits the right call.

A campaign that finds nothing proves something only because these tools can fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hankweave_protocol.commands import CheckpointCreate, RollbackToCodon
from hankweave_protocol.ids import CodonId
from hankweave_server.paths import Layout
from support.copies import copy_execution
from support.damage import lose_object
from support.git_facts import GitWitness
from support.invariants import Acknowledged, tree_violations, violations
from support.nth_call import Strike, why_not
from support.running_server import journal, running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle


class Past(NamedTuple):
    execution: Path
    acknowledged: Acknowledged

    @property
    def layout(self) -> Layout:
        return Layout.of_execution(self.execution)


@pytest.fixture
async def past(tmp_path: Path) -> Past:
    """Return an execution at rest, and a client that received all of its events."""
    acknowledged, execution = Acknowledged(), tmp_path / "execution"
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "1")), codon("two", writes("a.txt", "2"))
    )
    async with (
        running_server(hank, None, execution) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        acknowledged.checkpoints.append(await client.send(CheckpointCreate()))
        acknowledged.rollbacks.append(
            await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        )
        assert await server.stop() == 0

    for event in journal(execution):
        acknowledged.receive(event)

    assert violations(execution, acknowledged) == []
    return Past(execution, acknowledged)


def a_blob_is_lost(past: Past) -> None:
    sha = past.acknowledged.checkpoints[0].sha
    blob = GitWitness(past.execution).run("rev-parse", f"{sha}:a.txt").strip()
    lose_object(past.layout.shadow_repository, blob)


def a_branch_is_lost(past: Past) -> None:
    git = GitWitness(past.execution)
    lost = ("refs/heads", "refs/hankweave/safety")
    for ref in git.run("for-each-ref", "--format=%(refname)", *lost).split():
        git.run("update-ref", "-d", ref)


def a_commit_is_on_no_record(past: Past) -> None:
    git = GitWitness(past.execution)
    tree_of_it = git.run("rev-parse", f"{past.acknowledged.checkpoints[0].sha}^{{tree}}").strip()
    argv = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    sha = git.run(*argv, "commit-tree", "-m", "nobody's", tree_of_it).strip()
    git.run("update-ref", "refs/heads/run-nobodys", sha)


def the_last_line_is_lost(past: Past) -> None:
    lines = past.layout.journal.read_bytes().splitlines(keepends=True)
    past.layout.journal.write_bytes(b"".join(lines[:-1]))


def a_line_is_lost(past: Past) -> None:
    lines = past.layout.journal.read_bytes().splitlines(keepends=True)
    past.layout.journal.write_bytes(b"".join(lines[:4] + lines[5:]))


def the_state_is_another(past: Past) -> None:
    text = past.layout.state.read_text()
    changed = re.sub(r'"lastEventSeq": (\d+)', lambda found: f'"lastEventSeq": {found[1]}1', text)
    past.layout.state.write_text(changed)


def an_intent_is_left(past: Past) -> None:
    past.layout.rollback_intent.touch()


def a_lock_is_left(past: Past) -> None:
    (past.layout.shadow_repository / "HEAD.lock").touch()


def a_checkpoint_was_promised(past: Past) -> None:
    known = past.acknowledged.checkpoints[0]
    past.acknowledged.checkpoints.append(msgspec.structs.replace(known, sha="0" * 40))


def a_rollback_was_promised(past: Past) -> None:
    known = past.acknowledged.rollbacks[0]
    assert known.safety is not None
    safety = msgspec.structs.replace(known.safety, checkpoint_sha="0" * 40)
    past.acknowledged.rollbacks.append(msgspec.structs.replace(known, safety=safety))


def an_event_was_promised(past: Past) -> None:
    past.acknowledged.events[len(past.acknowledged.events) + 1] = "an-event"


DAMAGES: tuple[tuple[Callable[[Past], None], str], ...] = (
    (a_blob_is_lost, r"Object \w+ below \w+ is missing"),
    (a_branch_is_lost, "on record, and on no ref"),
    (a_commit_is_on_no_record, "on our refs, and 0 times on record"),
    (the_last_line_is_lost, "A client received event"),
    (a_line_is_lost, "not numbered"),
    (the_state_is_another, "not what the journal folds to"),
    (an_intent_is_left, r"Left over: \.hankweave/rollback\.intent"),
    (a_lock_is_left, r"Left over: .*HEAD\.lock"),
    (a_checkpoint_was_promised, "was acknowledged, and is not on record"),
    (a_rollback_was_promised, "was acknowledged, and is lost"),
    (an_event_was_promised, "A client received event"),
)


async def test_the_checker_sees_every_damage(past: Past, tmp_path: Path) -> None:
    """Each kind of damage is reported as the violation that names it."""
    copy = copy_execution(past.execution, tmp_path / "copy")
    for damage, complaint in DAMAGES:
        shutil.rmtree(past.execution)
        copy_execution(copy, past.execution)
        acknowledged = replace(
            past.acknowledged,
            checkpoints=[*past.acknowledged.checkpoints],
            rollbacks=[*past.acknowledged.rollbacks],
            events={**past.acknowledged.events},
        )
        damage(Past(past.execution, acknowledged))
        found = violations(past.execution, acknowledged)
        assert any(re.search(complaint, each) for each in found), (damage.__name__, found)


async def test_the_checker_sees_a_file_that_differs(past: Past) -> None:
    """One extra byte in one file makes a work tree that is neither before nor after."""
    expected = tree(past.execution / "agentRoot")
    assert tree_violations(past.execution, expected) == []
    with (past.execution / "agentRoot" / "a.txt").open("a") as stream:
        stream.write("!")

    assert "a.txt" in tree_violations(past.execution, expected)[0]


# --- the tracer -----------------------------------------------------------------------------------

THREADS = """
import os, sys, threading

def work(number):
    for each in range(5):
        os.mkdir(f"{sys.argv[1]}/{number}-{each}")

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
os.write(os.open(sys.argv[1] + "/file", os.O_CREAT | os.O_WRONLY), b"twelve bytes")
"""


def run_struck(folder: Path, group: str, at: int, **how: object) -> tuple[int, Strike]:
    work = folder / "work"
    work.mkdir()
    strike = Strike(group, str(work), str(folder / "report"), at, **how)  # type: ignore[arg-type]
    done = subprocess.run(
        [*strike.argv(), "--", sys.executable, "-c", THREADS, str(work)], capture_output=True
    )
    return done.returncode, strike


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_calls_are_counted_over_all_threads(tmp_path: Path) -> None:
    """Four threads make five folders each: the thirteenth call is hit, after twelve were made."""
    code, strike = run_struck(tmp_path, "mkdir", 13)
    assert code == 128 + 9
    assert strike.was_met
    assert len(os.listdir(tmp_path / "work")) == 12


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_a_point_beyond_the_last_call_touches_nothing(tmp_path: Path) -> None:
    """There are twenty calls; with point twenty-one the run passes."""
    code, strike = run_struck(tmp_path, "mkdir", 21)
    assert (code, strike.was_met, strike.counted["mkdir"]) == (0, False, 20)


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_a_call_can_be_made_to_fail_or_to_take_half(tmp_path: Path) -> None:
    """The program sees the error; a write of twelve bytes takes six."""
    (tmp_path / "a").mkdir()
    code, _ = run_struck(tmp_path / "a", "write", 1, action="fail", error=28)
    assert (code, (tmp_path / "a" / "work" / "file").read_bytes()) == (1, b"")
    (tmp_path / "b").mkdir()
    code, _ = run_struck(tmp_path / "b", "write", 1, action="cut")
    assert (code, (tmp_path / "b" / "work" / "file").read_bytes()) == (0, b"twelve")
