"""The memory of agents and sentinels is kept with each checkpoint, and rewound on request."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    CodonRedo,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackUndo,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import RollbackCompleted, RollbackStarted
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import CheckpointRecord, RollbackIntent
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.reducer import fold
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, served, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan, events_of, idle, listed, recalled, refused, to_end_of

MEMORY = "refs/hankweave/memory"
RECALL = {"recall": "I know"}

REMEMBERING = (
    codon("one", writes("a.txt", "one")),
    codon("two", RECALL, writes("b.txt", "two"), continuationMode="continue-previous"),
    codon("three", RECALL, continuationMode="continue-previous"),
)


def memory(execution: Path) -> dict[str, bytes]:
    """Return all session files and histories on disk."""
    layout = Layout.of_execution(execution)
    return {
        **{f"sessions/{name}": data for name, data in tree(layout.agent_sessions).items()},
        **{f"sentinels/{name}": data for name, data in tree(layout.sentinel_conversations).items()},
    }


def as_sentinel(execution: Path, name: str, text: str) -> Path:
    """Write a history as a conversational sentinel does (seed 001)."""
    path = Layout.of_execution(execution).sentinel_conversations / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def holds_together(execution: Path) -> None:
    """Assert that the state is the fold of the journal, and that git finds no fault."""
    folded, saved = fold(journal(execution)), state(execution)
    assert (folded.runs, folded.undo, folded.redo) == (saved.runs, saved.undo, saved.redo)
    GitWitness(execution).assert_sound()


# --- session snapshots ----------------------------------------------------------------------------


async def test_each_checkpoint_names_the_epoch_of_what_was_remembered(tmp_path: Path) -> None:
    """Record, trailer and ref agree; a snapshot has the session's file as it then was."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        found = {record.sha: record for record in await listed(client)}

    git = GitWitness(execution)
    for sha, record in found.items():
        assert f"Memory-Epoch: {record.coordinate.memory_epoch}\n" in git.run("show", "-s", sha)

    ends = [r.coordinate for r in found.values() if r.kind == "completed"]
    epochs = {end.codon_id: end.memory_epoch for end in ends}
    assert 0 < epochs[CodonId("one")] < epochs[CodonId("two")] < epochs[CodonId("three")]
    (session,) = memory(execution)
    name = session.replace("/", "%2F").replace(".jsonl", f"%2F{Path(session).name}")
    steps = {}
    for codon_id, epoch in epochs.items():
        lines = git.run("show", f"{MEMORY}:0000000/{epoch:02}/{name}").splitlines()
        steps[codon_id] = [json.loads(line).get("step") for line in lines]

    assert steps[CodonId("one")] == [None, "write"]
    assert steps[CodonId("two")] == [None, "write", None, "recall", "write"]
    assert git.subjects() == [subject for subject in git.subjects() if "[run:" in subject]
    git.assert_sound()


async def test_memory_that_did_not_change_costs_a_checkpoint_nothing(tmp_path: Path) -> None:
    """With unchanged memory a checkpoint has the same snapshot and ref.

    The commit is its only new object. This also holds in the next server.
    """
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *REMEMBERING)
    async with after_plan(hank, execution) as (server, client):
        first = await client.send(CheckpointCreate(label="first"))
        kept = GitWitness(execution).run("rev-parse", MEMORY)
        before = objects(execution)
        again = await client.send(CheckpointCreate(label="again"))
        assert objects(execution) - before == {again.sha}
        assert await server.stop() == 0

    async with served(hank, execution) as (_, client):
        last = await client.send(CheckpointCreate(label="last"))

    assert {r.coordinate.memory_epoch for r in (first, again, last)} == {
        first.coordinate.memory_epoch
    }
    assert GitWitness(execution).run("rev-parse", MEMORY) == kept


def objects(execution: Path) -> set[str]:
    words = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(GitWitness(execution).run(*words).split())


# --- rollback -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewind", [True, False])
@pytest.mark.story(
    "With `--rewind-memory`, an agent continues from what it knew at the checkpoint.",
    cases=("True",),
)
async def test_an_agent_goes_on_from_what_it_knew_then_if_that_is_asked(
    tmp_path: Path, execution: Path, rewind: bool
) -> None:
    """With rewindMemory the next codon resumes the checkpoint's session, else the current one."""
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        report = await client.send(to_end_of("one", rewind_memory=rewind))
        assert report.skipped == ()
        await client.send(CodonNext())
        await idle(client)

    first_time = ["I know 2 prompts and 1 steps", "I know 3 prompts and 3 steps"]
    again = (
        first_time if rewind else ["I know 4 prompts and 4 steps", "I know 5 prompts and 6 steps"]
    )
    assert recalled(execution) == [*first_time, *again]
    holds_together(execution)


async def test_undo_and_redo_take_memory_along(tmp_path: Path, execution: Path) -> None:
    """Sessions and sentinel histories are exact after rollback, undo and redo.

    The redo and another undo are done by another server, after the first one was killed.
    """
    hank = write_hank(tmp_path / "hank", *REMEMBERING)
    async with after_plan(hank, execution) as (server, client):
        as_sentinel(execution, "watcher-codon-one.json", "[1]")
        large = as_sentinel(execution, "deep/large#1.json", "x" * 300_000)
        known = memory(execution)
        target = await client.send(CheckpointCreate(label="here"))
        as_sentinel(execution, "watcher-codon-one.json", "[1, 2]")
        as_sentinel(execution, "later-codon-two.json", "[]")
        large.unlink()
        before = memory(execution)
        back = RollbackToCheckpoint(checkpoint_sha=target.sha, rewind_memory=True)
        assert (await client.send(back)).skipped == ()
        assert memory(execution) == known
        assert stat.S_IMODE(large.stat().st_mode) == 0o600
        await client.send(RollbackUndo())
        assert memory(execution) == before
        server.kill()

    async with served(hank, execution) as (_, client):
        await client.send(RollbackRedo())
        assert memory(execution) == known
        await client.send(RollbackUndo())
        assert memory(execution) == before

    holds_together(execution)


async def test_a_rollback_leaves_memory_alone_unless_asked(tmp_path: Path, execution: Path) -> None:
    """Neither the rollback nor its undo changes any memory."""
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        as_sentinel(execution, "watcher-codon-one.json", "[1]")
        before = memory(execution)
        for command in (to_end_of("one"), RollbackUndo()):
            await client.send(command)
            assert memory(execution) == before


@pytest.mark.parametrize("fields", [{"paths": ("a.txt",)}, {"on_running": "pause"}])
async def test_memory_is_rewound_as_a_whole_or_not_at_all(
    tmp_path: Path, execution: Path, fields: dict[str, Any]
) -> None:
    """With paths or a frozen agent it is refused, with a code and a path; nothing moves."""
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        before = memory(execution), tree(execution / "agentRoot"), state(execution).runs
        error = await refused(client, to_end_of("one", rewind_memory=True, **fields))
        assert error.code == ErrorCode.INVALID_COMMAND
        assert error.path == "$.data.rewindMemory"
        assert error.hint
        assert (memory(execution), tree(execution / "agentRoot"), state(execution).runs) == before


# --- crashes and faults ---------------------------------------------------------------------------


@pytest.mark.parametrize("how_far", ["not begun", "half way", "done"])
async def test_a_rewind_that_a_crash_cut_short_is_finished(tmp_path: Path, how_far: str) -> None:
    """The next start finds the intent, rewinds again, and reports it once; it can be undone."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *REMEMBERING)
    async with after_plan(hank, execution) as (server, client):
        as_sentinel(execution, "watcher-codon-one.json", "[1]")
        before = memory(execution)
        await client.send(to_end_of("one", rewind_memory=True))
        after = memory(execution)
        known = {record.sha: record for record in await listed(client)}
        server.kill()

    assert after != before
    _as_if_killed_before_the_event(execution, known)
    if how_far != "done":
        lay_out(execution, before)
    if how_far == "half way":
        (Layout.of_execution(execution).sentinel_conversations / "watcher-codon-one.json").unlink()

    async with served(hank, execution, "--no-autostart") as (_, client):
        assert memory(execution) == after
        await client.send(RollbackUndo())
        assert memory(execution) == before

    assert [done.report.recovered for done in events_of(execution, RollbackCompleted)] == [
        True,
        False,
    ]
    holds_together(execution)


def _as_if_killed_before_the_event(execution: Path, known: dict[Any, CheckpointRecord]) -> None:
    """Cut the journal after rollback.started, write the intent, and remove the state."""
    layout = Layout.of_execution(execution)
    events = journal(execution)
    (done,) = [event.data for event in events if isinstance(event.data, RollbackCompleted)]
    started = next(i for i, e in enumerate(events) if isinstance(e.data, RollbackStarted))
    lines = layout.journal.read_bytes().splitlines(keepends=True)
    layout.journal.write_bytes(b"".join(lines[: started + 1]))
    layout.state.unlink()
    layout.state_backup.unlink(missing_ok=True)
    intent = RollbackIntent(
        operation_id=done.operation_id,
        target=known[done.checkpoint],
        safety=known[done.report.safety.checkpoint_sha],
        source=done.report.source,
        from_run=done.from_run,
        to_run=done.to_run,
        after_codon=CodonId("one"),
        checkpoint_type=done.checkpoint_type,
        codons_to_process=(CodonId("three"), CodonId("two")),
        auto_restart=False,
        started_at=events[started].timestamp,
        rewind_memory=True,
    )
    layout.rollback_intent.write_bytes(codec.encode(intent))


def lay_out(execution: Path, content: dict[str, bytes]) -> None:
    layout = Layout.of_execution(execution)
    homes = {"sessions": layout.agent_sessions, "sentinels": layout.sentinel_conversations}
    for name, data in content.items():
        home, _, below = name.partition("/")
        (homes[home] / below).write_bytes(data)


async def test_a_gc_takes_no_epoch_away(tmp_path: Path, execution: Path) -> None:
    """After a gc that prunes everything allowed, memory can be rewound, and the store is sound."""
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        await client.send(to_end_of("one"))
        await client.send(StoreGc(max_count=0))
        await client.send(to_end_of("one", rewind_memory=True))
        assert [len(data.splitlines()) for data in memory(execution).values()] == [2]
        found = await client.send(StoreFsck())
        assert (found.damages, found.missing) == ((), ())

    holds_together(execution)


# --- an agent that keeps its transcript elsewhere -------------------------------------------------

# It is not the real program: it needs no model, and keeps its transcript where Claude Code does.
STAND_IN = f"""#!{sys.executable} -IS
import json, os, pathlib, re, sys
arguments = sys.argv[1:]
session = arguments[arguments.index("--session-id") + 1]
folder = re.sub(r"[^a-zA-Z0-9]", "-", os.getcwd())
projects = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects")
transcript = projects / folder / (session + ".jsonl")
transcript.parent.mkdir(parents=True, exist_ok=True)
if "--fork-session" in arguments:
    forked = transcript.with_stem(arguments[arguments.index("--resume") + 1])
    transcript.write_bytes(forked.read_bytes())
known = transcript.read_text().splitlines() if transcript.exists() else []
def emit(message): print(json.dumps(message), flush=True)
emit({{"type": "system", "subtype": "init", "session_id": session, "model": "opus"}})
sys.stdin.readline()
prompt = json.loads(sys.stdin.readline())["message"]["content"]
emit({{"type": "assistant", "message": {{"id": "m", "role": "assistant", "model": "opus",
      "content": [{{"type": "text", "text": "I know %d lines" % len(known)}}]}}}})
with transcript.open("a") as file:
    file.write(json.dumps({{"prompt": prompt}}) + "\\n")
pathlib.Path(prompt + ".txt").write_text(prompt)
emit({{"type": "result", "subtype": "success", "is_error": False, "result": "",
      "session_id": session}})
sys.stdin.read()
"""


def claude_codons(**fields: Any) -> list[dict[str, Any]]:
    first, second = (
        codon(name, agent={"type": "claude"}, model="opus", promptText=name, **fields)
        for name in ("one", "two")
    )
    return [first, {**second, "continuationMode": "continue-previous"}]


@pytest.fixture
def claude(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a server that finds the stand-in."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    path = f"{program.parent}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(home), "ANTHROPIC_API_KEY": "no-key"}


def transcript_of(execution: Path, codon_id: str, home: Path) -> Path:
    ended = (entry.codon for entry in thread(state(execution)))
    sessions = {codon.codon_id: codon.claude_session_id for codon in ended}
    (found,) = (home / "projects").rglob(f"{sessions[codon_id]}.jsonl")
    return found


async def after_both(server: RunningServer, client: Client) -> None:
    await idle(client)
    assert recalled(server.execution) == ["I know 0 lines", "I know 1 lines"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_claudes_transcript_is_rewound_where_claude_keeps_it(
    tmp_path: Path, execution: Path, claude: dict[str, str], elsewhere: bool
) -> None:
    """The transcript is rewound in the execution, or where the codon's env says.

    The restored file is readable by its owner alone.
    """
    home = tmp_path / "conf" if elsewhere else execution / ".hankweave" / "homes" / "claude"
    fields = {"env": {"CLAUDE_CONFIG_DIR": str(home)}} if elsewhere else {}
    hank = write_hank(tmp_path / "hank", *claude_codons(**fields))
    async with served(hank, execution, env=claude, since_seq=0) as (server, client):
        await after_both(server, client)
        transcript = transcript_of(execution, "two", home)
        before = transcript.read_bytes()
        target = await client.send(CheckpointCreate(label="here"))
        transcript.write_bytes(before + b'{"prompt": "later"}\n')
        later = transcript.read_bytes()
        back = RollbackToCheckpoint(checkpoint_sha=target.sha, rewind_memory=True)
        assert (await client.send(back)).skipped == ()
        assert transcript.read_bytes() == before
        assert stat.S_IMODE(transcript.stat().st_mode) == 0o600
        await client.send(RollbackUndo())
        assert transcript.read_bytes() == later


async def test_a_session_that_a_codon_continues_stays_as_it_is(
    tmp_path: Path, execution: Path, claude: dict[str, str]
) -> None:
    """Each codon forks the session: run again after a rollback or redo, it begins the same."""
    hank = write_hank(tmp_path / "hank", *claude_codons())
    async with served(hank, execution, env=claude, since_seq=0) as (server, client):
        await after_both(server, client)
        await client.send(CodonRedo())
        await idle(client)
        await client.send(to_end_of("one"))
        await client.send(CodonNext())
        await idle(client)

    assert recalled(execution) == ["I know 0 lines", *["I know 1 lines"] * 3]


async def test_memory_that_cannot_be_put_back_is_named_and_fails_nothing(
    tmp_path: Path, execution: Path, claude: dict[str, str]
) -> None:
    """A foreign file is in the transcript's place: it stays, and the report says so."""
    home = execution / ".hankweave" / "homes" / "claude"
    hank = write_hank(tmp_path / "hank", *claude_codons())
    async with served(hank, execution, env=claude, since_seq=0) as (server, client):
        await after_both(server, client)
        transcript = transcript_of(execution, "one", home)
        transcript.unlink()
        transcript.symlink_to(tmp_path / "elsewhere")
        report = await client.send(to_end_of("one", rewind_memory=True))

    assert [(kept.path, kept.reason) for kept in report.skipped] == [(str(transcript), "not-ours")]
    assert tree(execution / "agentRoot") == {"one.txt": b"one"}
    assert transcript.is_symlink()
    assert not (tmp_path / "elsewhere").exists()


async def test_an_epoch_that_is_lost_is_named_and_nothing_is_forgotten(tmp_path: Path) -> None:
    """Without its ref the memory stays as it is, and the files are rolled back."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *REMEMBERING), execution) as (_, client):
        await client.send(CheckpointCreate(label="keeps the memory of now"))
        before = memory(execution)
        GitWitness(execution).run("update-ref", "-d", MEMORY)
        report = await client.send(to_end_of("one", rewind_memory=True))
        assert [(kept.path, kept.reason) for kept in report.skipped] == [(MEMORY, "memory-lost")]
        assert memory(execution) == before
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
