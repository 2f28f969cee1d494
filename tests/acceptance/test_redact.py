"""`hankweave redact`: a secret leaves journal, logs and checkpoints, and everything else stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointPin,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.events import HistoryRedacted
from hankweave_protocol.ids import Sha
from intruders.tier import IS_LONG
from support import nth_call
from support.command_line import Done, hankweave
from support.copies import copy_execution
from support.git_facts import GitWitness
from support.nth_call import Strike
from support.running_server import command, environment, running_server, served
from support.scripted_hank import codon, write_hank, writes
from support.tally import Tally
from support.waiting import LIMIT
from support.watching import after_plan, events_of, journal

pytestmark = pytest.mark.feature("redaction")

VALUE = "Tr0ub4dor & three"
"""No form of a key, and no server knows it."""

CONTENT = f"user: me\npassword: {VALUE}\n"


def everything_in(execution: Path) -> bytes:
    """Return all files of an execution, and every stored object as git unpacks it."""
    files = [path.read_bytes() for path in execution.rglob("*") if path.is_file()]
    repositories = execution.rglob(".hankweavecheckpoints")
    objects = [
        subprocess.run(
            ["git", "cat-file", "--batch-all-objects", "--batch", "--unordered", "--buffer"],
            cwd=repository,
            capture_output=True,
            check=True,
        ).stdout
        for repository in repositories
    ]
    return b"\0".join((*files, *objects))


def tree_of(git: GitWitness, sha: str) -> dict[str, str]:
    """Return the files of a checkpoint, with what git shows of each."""
    paths = git.run("ls-tree", "-r", "--name-only", sha).splitlines()
    return {path: git.run("show", f"{sha}:{path}") for path in paths}


def differences(a: Path, b: Path) -> list[str]:
    words = ["diff", "-rq", "--no-dereference", str(a), str(b)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


@dataclass(frozen=True)
class Past:
    execution: Path
    hank: Path
    shas: tuple[Sha, ...]
    """All checkpoints, the oldest first."""
    trees: dict[Sha, dict[str, str]]


async def lived(folder: Path) -> Past:
    """Run codons of which the second writes a secret; pin, label and roll back; then end."""
    hank = write_hank(
        folder / "hank",
        codon("one", writes("a.txt", "first\n")),
        codon("two", {"say": f"I use {VALUE}."}, writes("sub/access.txt", CONTENT)),
        codon("three", writes("a.txt", "third\n"), {"run": "mkdir empty; chmod 600 a.txt"}),
    )
    execution = folder / "execution"
    async with after_plan(hank, execution) as (server, client):
        pinned = await client.send(CheckpointCreate(label=f"with {VALUE} in it"))
        await client.send(
            CheckpointPin(checkpoint_sha=pinned.sha, pinned=True, name=f"pin {VALUE}")
        )
        work = execution / "agentRoot"
        (work / "sub" / "binary").write_bytes(b"\0\1" + VALUE.encode() + b"\2")
        later = await client.send(CheckpointCreate())
        (work / "sub" / "access.txt").write_text("no password any more\n")
        (work / "sub" / "binary").unlink()
        await client.send(CheckpointCreate())
        await client.send(RollbackToCheckpoint(checkpoint_sha=later.sha))
        await client.send(RollbackUndo())
        assert await server.stop() == 0

    git = GitWitness(execution)
    shas = tuple(map(Sha, git.run("log", "--all", "--reverse", "--format=%H").split()))
    return Past(execution, hank, shas, {sha: tree_of(git, sha) for sha in shas})


def redacted(past: Past, *options: str, code: int = 0, answer: str = VALUE) -> Done:
    return hankweave("redact", "-e", str(past.execution), *options, answer=answer, code=code)


def renamed(execution: Path) -> dict[str, str]:
    (path,) = (execution / ".hankweave" / "redactions").glob("*.json")
    found: dict[str, str] = json.loads(path.read_bytes())["renamed"]
    return found


def assert_sound(past: Past) -> None:
    """Assert that both checks of the store find nothing, and that every tree is as expected."""
    hankweave("fsck", "-e", str(past.execution), code=0)
    git = GitWitness(past.execution)
    git.run("fsck", "--full", "--strict")
    names = renamed(past.execution)
    for old, files in past.trees.items():
        expected = {
            path: text.replace(VALUE, "*" * len(VALUE) if "\0" in text else "[redacted:value]")
            for path, text in files.items()
        }
        assert tree_of(git, names.get(old, old)) == expected


@pytest.mark.story(
    "A redacted value leaves every file of an execution, and every checkpoint still restores.",
    of="docs/how-to/secrets.md",
)
async def test_a_value_leaves_everything_and_every_checkpoint_still_restores(
    tmp_path: Path,
) -> None:
    """Journal, logs, commits, tags, notes and blobs lose it; old shas find their checkpoints."""
    past = await lived(tmp_path)
    assert VALUE.encode() in everything_in(past.execution)
    before = len(journal(past.execution))
    shown = redacted(past, "--value-file", "-", "--dry-run").stdout
    assert "checkpoints that would get a new sha: " in shown
    assert ".hankweave/redaction" not in {str(path) for path in past.execution.rglob("*")}
    done = redacted(past, "--value-file", "-", "--yes")
    assert "old ones still work" in done.stdout
    names = renamed(past.execution)
    assert 0 < len(names) < len(past.shas), "those before it keep their shas"
    assert_sound(past)
    (event,) = events_of(past.execution, HistoryRedacted)
    assert len(journal(past.execution)) == before + 1
    assert (event.removed, event.renamed) == (("value",), len(names))
    redacted(past, "--confirm", "--yes")
    assert VALUE.encode() not in everything_in(past.execution)
    stored = everything_in(past.execution)
    gone = [old for old in names if f"{old} commit".encode() in stored]
    assert gone == []
    env = {"APP_PASSWORD": VALUE}  # It is still in the hank, so the server has to know it.
    async with served(past.hank, past.execution, env=env) as (server, client):
        for old in reversed(past.shas):
            await client.send(RollbackToCheckpoint(checkpoint_sha=Sha(old[:12])))
            git = GitWitness(past.execution)
            assert git.run("rev-parse", "HEAD").strip() == names.get(old, old)
            file = past.execution / "agentRoot" / "a.txt"
            assert (file.read_text() if file.exists() else None) == past.trees[old].get("a.txt")

        assert await server.stop() == 0

    assert VALUE.encode() not in everything_in(past.execution)
    hankweave("fsck", "-e", str(past.execution), code=0)


async def test_an_undo_restores_every_byte_until_something_was_recorded(tmp_path: Path) -> None:
    """Undo gives the same files back; after another start it is refused, with a reason."""
    past = await lived(tmp_path)
    kept = tmp_path / "kept"
    copy_execution(past.execution, kept)
    redacted(past, "--value-file", "-", "--yes")
    assert redacted(past, "--value-file", "-", "--yes", code=1).stderr.count("--confirm") == 1
    redacted(past, "--undo")
    left = differences(kept, past.execution)
    assert [line for line in left if "runtime.lock" not in line] == []
    assert redacted(past, "--undo", code=1).stdout.startswith("There is no redaction")
    redacted(past, "--value-file", "-", "--yes")
    async with running_server(past.hank, None, past.execution) as server:
        assert redacted(past, "--confirm", "--yes", code=75).returncode
        assert await server.stop() == 0

    assert "has continued" in redacted(past, "--undo", code=1).stderr
    redacted(past, "--confirm", "--yes")
    assert_sound(past)


async def test_a_rule_a_variable_or_a_path_says_what_is_removed(tmp_path: Path) -> None:
    """Each source of the value works; a path loses its whole content in all checkpoints."""
    key = "ghp_" + "aB3" * 12
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("key.txt", f"k={key}\n"), writes(".env", "A=unknown\n")),
        codon("two", writes("other.txt", "x\n")),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution) as (server, _):
        assert await server.stop() == 0

    here = ("redact", "-e", str(execution), "--yes")
    done = hankweave(*here, "--rule", "github-token", "--path", ".env", "--work-tree", code=0)
    assert "Removed from" in done.stdout
    git = GitWitness(execution)
    assert git.run("show", "HEAD:key.txt") == "k=[redacted:github-token]\n"
    assert git.run("show", "HEAD:.env") == "[redacted:file]\n"
    assert (execution / "agentRoot" / "key.txt").read_text() == "k=[redacted:github-token]\n"
    hankweave(*here, "--confirm", code=0)
    nothing = hankweave(*here, "--variable", "OTHER", code=0, OTHER="nowhere to be found")
    assert nothing.stdout.startswith("Nothing of the execution")
    for options, message in (
        (("--variable", "MISSING"), "There is no environment variable MISSING"),
        (("--value-file", "-"), "at least 6 characters"),
        ((), "--value-file, --variable, --rule or --path"),
        (("--confirm", "--undo"), "exclude each other"),
    ):
        refused = hankweave(*here, *options, answer="abc\n")
        assert refused.returncode not in (0, 1)
        assert message in " ".join(refused.stderr.split())


GROUPS = ("rename", "fsync", "unlink", "link", "mkdir", "write")
POINTS = 4
"""Points at which each act is killed; the long tier tries every call."""


def struck(past: Past, strike: Strike, *options: str) -> None:
    """Run `hankweave redact` and kill it at one system call."""
    words = command("redact", "-e", str(past.execution), "--yes", *options)
    subprocess.run(
        [sys.executable, nth_call.__file__, json.dumps(asdict(strike)), "--", *words],
        env=environment(),
        input=VALUE.encode(),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )


def points(past: Past, report: Path, *options: str) -> list[Strike]:
    """Return the system calls at which to kill, spread over all that an act makes."""
    below = str(past.execution)
    struck(past, Strike("rename", below, str(report)), *options)
    counts: dict[str, int] = json.loads(report.read_text())
    every = [
        Strike(group, below, str(report), at=number)
        for group in GROUPS
        for number in range(1, counts[group] + 1)
    ]
    return every if IS_LONG else every[:: max(1, len(every) // POINTS)]


@pytest.mark.story(
    "A redaction that is killed is completed by the next command.",
    of="docs/how-to/secrets.md",
    cases=("redact",),
)
@pytest.mark.skipif(nth_call.why_not() is not None, reason=nth_call.why_not() or "")
@pytest.mark.parametrize("act", ["redact", "undo", "confirm"])
async def test_a_kill_at_any_call_is_recovered_by_the_next_command(
    tmp_path: Path, act: str, tally: Tally
) -> None:
    """A redaction, its undo and its end are each done or not done, and the store is sound."""
    past = await lived(tmp_path)
    options = ("--value-file", "-") if act == "redact" else (f"--{act}",)
    if act != "redact":
        redacted(past, "--value-file", "-", "--yes")

    kept, report = tmp_path / "kept", tmp_path / "report.json"
    copy_execution(past.execution, kept)
    strikes = points(past, report, *options)
    assert len(strikes) >= POINTS
    for strike in strikes:
        shutil.rmtree(past.execution)
        copy_execution(kept, past.execution)
        struck(past, strike, *options)
        recover(past, act)
        tally.add("killed redactions", of="kills")


def recover(past: Past, act: str) -> None:
    """Do what a person does after a crash, and check that everything is as it should be."""
    again = hankweave(
        *("redact", "-e", str(past.execution), "--yes", "--value-file", "-"), answer=VALUE
    )
    waits = "has not been confirmed" in again.stderr
    assert again.returncode == 0 or waits, again.stdout + again.stderr
    if act == "confirm" and not waits:
        assert "Nothing of the execution contains it" in again.stdout

    assert_sound(past)
    hankweave("redact", "-e", str(past.execution), "--confirm", "--yes")
    assert VALUE.encode() not in everything_in(past.execution)
