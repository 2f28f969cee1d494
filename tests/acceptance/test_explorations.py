"""Claims about explorations over a real socket: attempts, their results, adoption and undo."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import (
    CodonNext,
    ExplorationAdopt,
    ExplorationCompare,
    ExplorationDiscard,
    ExplorationList,
    ExplorationShow,
    ExplorationStart,
    RollbackToCodon,
    RollbackUndo,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    AttemptEnded,
    ExplorationEnded,
    ExplorationStarted,
    ServerIdle,
    StateRecovered,
)
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RollbackReport
from hankweave_server.config import SETTINGS
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.reducer import fold
from hankweave_server.domain.timelines import timelines
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import read_meta
from support.command_line import aside, hankweave
from support.git_facts import GitWitness
from support.model_endpoint import Reply, Trouble, model_endpoint
from support.running_server import (
    RunningServer,
    journal,
    run_headless,
    running_server,
    served,
    state,
    tree,
)
from support.scripted_hank import Step, codon, waits_for, write_hank, writes
from support.waiting import LIMIT, eventually
from support.watching import after_plan, events_of, idle, recalled, refused

pytestmark = pytest.mark.feature("exploration")

LENGTH = "wc -c < answer.txt"
"""A score: the longer the answer, the better."""


def does(*steps: Step, **fields: Any) -> Variant:
    """Return a variant whose prompt is a script for the scripted agent."""
    return Variant(prompt_text=json.dumps({"steps": steps}), **fields)


def answers(text: str, **fields: Any) -> Variant:
    return does(writes("answer.txt", text), **fields)


SHORT, LONG = answers("no"), answers("a long answer")

CODONS = (
    codon("draft", writes("draft.txt", "draft")),
    codon("answer", writes("answer.txt", "the first")),
    codon("publish", {"run": "cp answer.txt published.txt"}),
)


@asynccontextmanager
async def a_finished_plan(
    tmp_path: Path, *codons: Any
) -> AsyncIterator[tuple[RunningServer, Client]]:
    hank = write_hank(tmp_path / "hank", *(codons or CODONS))
    async with after_plan(hank, tmp_path / "executions" / "parent", since_seq=0) as (
        server,
        client,
    ):
        yield server, client


async def adopt(client: Client, attempt: AttemptRecord) -> RollbackReport:
    """Adopt an attempt, and wait until files and plan are where it has ended."""
    report = await client.send(ExplorationAdopt(attempt_id=attempt.attempt_id))
    await idle(client, "rollback-completed")
    return report


async def explored(client: Client, **fields: Any) -> Exploration:
    """Start an exploration of the codon `answer`, and return it when it has ended."""
    command = ExplorationStart(codon_id=CodonId("answer"), **fields)
    begun = await client.send(command)
    await client.until(ExplorationEnded, timeout=LIMIT)
    return await client.send(ExplorationShow(exploration_id=begun.exploration_id))


def files(server: RunningServer) -> dict[str, bytes]:
    return tree(server.execution / "agentRoot")


@pytest.mark.command("exploration.start", "exploration.show", "exploration.adopt")
async def test_the_best_of_two_variants_is_adopted_and_undone(tmp_path: Path) -> None:
    """Each attempt runs in an execution of its own; the parent's files stay until it is adopted.

    Adoption takes files and plan to the end of the attempt; undo takes them back.
    """
    async with a_finished_plan(tmp_path) as (server, client):
        before = files(server)
        found = await explored(client, variants=(SHORT, LONG), score=LENGTH)
        assert [each.status for each in found.attempts] == ["completed", "completed"]
        assert [each.score for each in found.attempts] == [2.0, 13.0]
        assert files(server) == before
        best = found.best
        assert best is found.attempts[1]
        assert (best.files, best.added) == (1, 1)
        attempt = Path(best.execution_path or "")
        assert tree(attempt / "agentRoot")["answer.txt"] == b"a long answer"

        previewed = await client.send(ExplorationAdopt(attempt_id=best.attempt_id, preview=True))
        assert files(server) == before
        report = await adopt(client, best)
        assert report.counts == previewed.counts
        assert files(server) == {"draft.txt": b"draft", "answer.txt": b"a long answer"}
        now = state(server.execution)
        assert next_codon(now) == "publish"
        assert best.run_id in {entry.run_id for entry in thread(now)}

        await client.send(RollbackUndo())
        await idle(client, "rollback-completed")
        assert files(server) == before
        assert next_codon(state(server.execution)) is None

    folded = fold(journal(server.execution))
    assert folded.explorations == state(server.execution).explorations
    GitWitness(server.execution).assert_sound()


@pytest.mark.parametrize("undone", [True, False])
@pytest.mark.parametrize("back_to", ["draft", "answer"])
async def test_the_codon_that_is_named_is_explored_after_a_rollback(
    tmp_path: Path, back_to: str, undone: bool
) -> None:
    """And after its undo: with the files that it began with, or begins with."""
    async with a_finished_plan(tmp_path) as (_, client):
        back = RollbackToCodon(codon_id=CodonId(back_to), checkpoint_type="completed")
        await client.send(back)
        await idle(client, "rollback-completed")
        if undone:
            await client.send(RollbackUndo())
            await idle(client, "rollback-completed")

        names = ["draft", "answer", "publish"]
        possible = names if undone else names[: names.index(back_to) + 2]
        for name in possible:
            await client.send(ExplorationStart(codon_id=CodonId(name), n=1))
            await client.until(ExplorationEnded, timeout=LIMIT)
            found = await client.send(ExplorationShow())
            (attempt,) = found.attempts
            assert (found.codon_id, attempt.status) == (name, "completed"), attempt.message
            place = Path(attempt.execution_path or "")
            assert [entry.codon.codon_id for entry in thread(state(place))] == (
                names[: names.index(name) + 1]
            )
            assert sorted(tree(place / "agentRoot")) == sorted(
                ["draft.txt", "answer.txt", "published.txt"][: names.index(name) + 1]
            )


async def test_the_codon_that_is_named_is_explored_after_an_ignored_failure(
    tmp_path: Path,
) -> None:
    """A rollback to where it began would repeat the failed codon before it."""
    fails = codon("draft", writes("draft.txt", "half"), {"fail": {"message": "out of ideas"}})
    codons = ({**fails, "onFailure": "ignore"}, *CODONS[1:])
    async with a_finished_plan(tmp_path, *codons) as (_, client):
        found = await explored(client, variants=(LONG,))
        (attempt,) = found.attempts
        assert (found.codon_id, attempt.status) == ("answer", "completed"), attempt.message
        place = Path(attempt.execution_path or "")
        assert tree(place / "agentRoot") == {"draft.txt": b"half", "answer.txt": b"a long answer"}


async def test_nothing_can_be_explored_after_the_last_codon(tmp_path: Path) -> None:
    """The refusal says where it can begin, in words that hold in a terminal, too."""
    async with a_finished_plan(tmp_path) as (_, client):
        error = await refused(client, ExplorationStart())
        assert error.code is ErrorCode.NOTHING_TO_RUN
        assert "codonId" not in (error.hint or "")
        assert "draft, answer, publish" in (error.hint or "")


async def test_the_plan_goes_on_after_an_adopted_attempt(tmp_path: Path) -> None:
    """The next codon works with the files of the attempt."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(LONG,), score=LENGTH)
        await adopt(client, found.attempts[0])
        await client.send(CodonNext())
        await idle(client)
        assert files(server)["published.txt"] == b"a long answer"


async def test_each_attempt_continues_the_same_conversation(tmp_path: Path) -> None:
    """Both know what the parent knew where they began, and nothing of each other."""
    later = {"continuationMode": "continue-previous"}
    recalls = codon("answer", {"recall": "I know"}, **later)
    async with a_finished_plan(tmp_path, CODONS[0], recalls) as (server, client):
        variant = does({"say": "one"}, {"say": "two"}, {"recall": "I know"})
        found = await explored(client, variants=(variant,), n=2)
        recollections = [recalled(Path(each.execution_path or "")) for each in found.attempts]
        assert recollections[0] == recollections[1]
        assert recollections[0] != recalled(server.execution)
        # The parent's prompt counts once; that of the attempt replaced the one of its codon.
        assert recollections[0] == ["I know 2 prompts and 3 steps"]


async def test_the_first_exploration_of_a_project_makes_the_directory_of_executions(
    tmp_path: Path,
) -> None:
    """In place nothing has needed it before; no directory has to be made by hand."""
    base, project = tmp_path / "not" / "yet", tmp_path / "project"
    project.mkdir()
    env = {SETTINGS["executionBaseDir"].variable: str(base)}
    hank = write_hank(tmp_path / "hank", *CODONS)
    async with after_plan(hank, project, place="--workspace", env=env, since_seq=0) as (_, client):
        assert not base.exists()
        found = await explored(client, variants=(LONG,))
        assert [each.status for each in found.attempts] == ["completed"], found.attempts
        assert Path(found.attempts[0].execution_path or "").parent == base


async def test_an_attempt_runs_the_rest_of_the_plan(tmp_path: Path) -> None:
    """With `rest`, the codons after the explored one run as well, and the result is theirs."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(LONG,), rest=True, score="wc -c < published.txt")
        (attempt,) = found.attempts
        assert (attempt.status, attempt.score) == ("completed", 13.0)
        await adopt(client, attempt)
        assert files(server)["published.txt"] == b"a long answer"
        assert next_codon(state(server.execution)) is None


async def test_a_codon_of_a_loop_is_tried_once(tmp_path: Path) -> None:
    """An attempt of one iteration runs no further one, and its parent goes on with the loop."""
    loop = {
        "type": "loop",
        "id": "again",
        "name": "Again",
        "terminateOn": {"type": "iterationLimit", "limit": 3},
        "codons": [codon("answer", {"append": {"path": "answer.txt", "text": "x"}})],
    }
    async with a_finished_plan(tmp_path, CODONS[0], loop) as (server, client):
        command = ExplorationStart(codon_id=CodonId("answer#1"), variants=(LONG,))
        begun = await client.send(command)
        await client.until(ExplorationEnded, timeout=LIMIT)
        found = await client.send(ExplorationShow(exploration_id=begun.exploration_id))
        (attempt,) = found.attempts
        assert attempt.status == "completed", attempt.message
        await adopt(client, attempt)
        assert files(server)["answer.txt"] == b"a long answer"
        assert next_codon(state(server.execution)) == "answer#2"


async def test_only_some_paths_are_adopted(tmp_path: Path) -> None:
    """With paths, the other files and the plan stay; undo takes the files back."""
    both = does(writes("answer.txt", "new"), writes("draft.txt", "new"))
    async with a_finished_plan(tmp_path) as (server, client):
        before = files(server)
        found = await explored(client, variants=(both,))
        (attempt,) = found.attempts
        await client.send(ExplorationAdopt(attempt_id=attempt.attempt_id, paths=("draft.txt",)))
        assert files(server) == before | {"draft.txt": b"new"}
        assert next_codon(state(server.execution)) is None
        await client.send(RollbackUndo())
        assert files(server) == before


@pytest.mark.command("exploration.compare")
async def test_results_are_compared_file_by_file(tmp_path: Path) -> None:
    """An attempt is compared with where it began, or with another one."""
    async with a_finished_plan(tmp_path) as (_, client):
        found = await explored(client, variants=(SHORT, LONG))
        first, second = (each.attempt_id for each in found.attempts)
        page = await client.send(ExplorationCompare(attempt_id=first, other_id=second, patch=True))
        (changed,) = page.files
        assert (changed.path, changed.status) == ("answer.txt", "modified")
        page = await client.send(ExplorationCompare(attempt_id=first))
        assert [(each.path, each.status) for each in page.files] == [("answer.txt", "created")]


async def test_a_failed_attempt_says_why_and_the_others_count(tmp_path: Path) -> None:
    """It has no result to adopt; without a number a score is missing, and the reason is given."""
    broken = does({"fail": {"message": "out of ideas"}})
    async with a_finished_plan(tmp_path) as (_, client):
        found = await explored(client, variants=(broken, LONG), score="echo not a number")
        failed, unscored = found.attempts
        assert (failed.status, failed.message) == ("failed", "out of ideas")
        assert (unscored.status, unscored.score) == ("completed", None)
        assert "not a number" in (unscored.message or "")
        assert found.best is None
        error = await refused(client, ExplorationAdopt(attempt_id=failed.attempt_id))
        assert error.code is ErrorCode.INVALID_COMMAND


async def test_the_best_is_adopted_by_itself_if_that_is_asked(tmp_path: Path) -> None:
    """With `adopt: best` the files and the plan are those of the best attempt at the end."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(LONG, SHORT), score=LENGTH, adopt="best")
        assert files(server)["answer.txt"] == b"a long answer"
        runs = {entry.run_id for entry in thread(state(server.execution))}
        assert found.attempts[0].run_id in runs


async def test_no_further_attempt_begins_after_a_good_score(tmp_path: Path) -> None:
    """With `goodEnough` and one at a time, later attempts are not made."""
    async with a_finished_plan(tmp_path) as (_, client):
        found = await explored(
            client, variants=(LONG, SHORT), score=LENGTH, parallel=1, good_enough=10
        )
        assert [each.status for each in found.attempts] == ["completed", "waiting"]
        assert found.attempts[1].execution_path is None


@pytest.mark.command("exploration.list")
async def test_the_attempts_are_timelines_of_their_parent(tmp_path: Path) -> None:
    """Their runs are listed beside the thread, each after the run that it continues."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(SHORT, LONG))
        page = await client.send(ExplorationList())
        assert [each.exploration_id for each in page.explorations] == [found.exploration_id]

    now = state(server.execution)
    lines = {line.run_id: line for line in timelines(now, ())}
    for attempt in found.attempts:
        assert attempt.run_id is not None
        line = lines[attempt.run_id]
        assert not line.on_thread
        assert [each.codon_id for each in line.codons] == ["answer"]
        assert line.codons[0].checkpoint == attempt.checkpoint_sha


@pytest.mark.command("exploration.discard")
@pytest.mark.story(
    "A discarded attempt is ended, and its execution is removed.", of="docs/how-to/attempts.md"
)
async def test_discarded_attempts_are_removed(tmp_path: Path) -> None:
    """Their executions go; a running one is ended, and the others are left alone."""
    endless = does({"waitForFile": "/never"})
    async with a_finished_plan(tmp_path) as (server, client):
        begun = await client.send(
            ExplorationStart(codon_id=CodonId("answer"), variants=(endless, LONG))
        )
        first, second = begun.attempts
        await client.until(AttemptEnded, timeout=LIMIT)
        shown = await client.send(ExplorationShow())
        assert [each.status for each in shown.attempts] == ["running", "completed"]
        status = await aside("status", "-e", str(server.execution))
        assert "explores answer: 1 of 2 attempts ended" in status.stdout
        place = Path(shown.attempts[0].execution_path or "")
        assert place.is_dir()
        await client.send(
            ExplorationDiscard(exploration_id=begun.exploration_id, attempt_id=first.attempt_id)
        )
        await client.until(ExplorationEnded, timeout=LIMIT)
        assert not place.exists()
        shown = await client.send(ExplorationShow())
        assert [each.status for each in shown.attempts] == ["discarded", "completed"]
        assert Path(shown.attempts[1].execution_path or "").is_dir()
        assert second.attempt_id == (shown.best and shown.best.attempt_id)


@pytest.mark.parametrize("moment", ["recorded", "made", "started"])
async def test_an_exploration_is_discarded_while_its_attempts_start(
    tmp_path: Path, moment: str
) -> None:
    """At any moment: no execution is left, and no server of an attempt goes on."""
    endless = does({"waitForFile": "/never"})
    async with a_finished_plan(tmp_path) as (server, client):
        begun = await client.send(
            ExplorationStart(codon_id=CodonId("answer"), variants=(endless,), n=3)
        )
        await eventually(lambda: _has_reached(moment, state(server.execution).explorations[0]))
        left = await client.send(ExplorationDiscard(exploration_id=begun.exploration_id))
        assert {each.status for each in left.attempts} == {"discarded"}
        await eventually(lambda: state(server.execution).explorations[0].ended_at is not None)
        folder = server.execution.parent
        await eventually(
            lambda: (
                os.listdir(folder) == [server.execution.name]
                and not list(_servers_below(folder, besides=server.execution))
            )
        )


def _has_reached(moment: str, exploration: Exploration) -> bool:
    """Return whether one of the attempts exists, or its server has been started."""
    layouts = [
        Layout.of_execution(Path(each.execution_path))
        for each in exploration.attempts
        if each.execution_path is not None
    ]
    match moment:
        case "made":
            return any(layout.meta.exists() for layout in layouts)
        case "started":
            outputs = (layout.server_log.with_name("attempt.out") for layout in layouts)
            return any(output.exists() for output in outputs)
        case _:
            return True


def _servers_below(folder: Path, *, besides: Path) -> Iterator[int]:
    """Yield the processes whose command line names an execution in a folder, except for one."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            named = [Path(os.fsdecode(word)) for word in words]
            if any(place.parent == folder and place != besides for place in named):
                yield int(process.name)


async def test_gc_prunes_discarded_results_except_the_adopted_one(tmp_path: Path) -> None:
    """Only with a limit; what the preview names is what goes, and a later start misses nothing."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(SHORT, LONG))
        short, long = found.attempts
        await client.send(ExplorationAdopt(attempt_id=long.attempt_id))
        await client.send(ExplorationDiscard(exploration_id=found.exploration_id))
        assert (await client.send(StoreGc())).pruned == ()
        previewed = await client.send(StoreGc(max_count=0, dry_run=True))
        assert not previewed.kept_because or all(
            each.reason != "completed" or each.sha != short.checkpoint_sha
            for each in previewed.kept_because
        )
        done = await client.send(StoreGc(max_count=0))
        gone = {each.sha for each in done.pruned}
        assert gone == {each.sha for each in previewed.pruned}
        assert short.checkpoint_sha in gone
        assert long.checkpoint_sha not in gone
        git = GitWitness(server.execution)
        assert long.checkpoint_sha in git.run("rev-list", "--all").split()
        error = await refused(client, ExplorationAdopt(attempt_id=short.attempt_id))
        assert error.code == ErrorCode.CHECKPOINT_NOT_FOUND
        assert files(server)["answer.txt"] == b"a long answer"

    async with running_server(None, None, server.execution, "--no-autostart"):
        assert events_of(server.execution, StateRecovered) == []


async def test_a_discarded_attempt_is_removed_by_the_next_start(tmp_path: Path) -> None:
    """A server that was killed between the record and the removal leaves nothing behind."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(SHORT, LONG))
        kept = tmp_path / "kept"
        place = Path(found.attempts[0].execution_path or "")
        await anyio.to_thread.run_sync(lambda: shutil.copytree(place, kept, symlinks=True))
        await client.send(
            ExplorationDiscard(
                exploration_id=found.exploration_id, attempt_id=found.attempts[0].attempt_id
            )
        )
        assert not place.exists()

    kept.rename(place)
    async with running_server(None, None, server.execution, "--no-autostart"):
        await eventually(lambda: not place.exists())

        assert Path(found.attempts[1].execution_path or "").is_dir()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"codon_id": "nowhere"}, ErrorCode.UNKNOWN_CODON),
        ({"codon_id": "answer", "checkpoint_sha": "abcd"}, ErrorCode.INVALID_COMMAND),
        ({"variants": (Variant(agent="nobody"),)}, ErrorCode.INVALID_COMMAND),
        ({"variants": (Variant(prompt_file="gone.md"),)}, ErrorCode.INVALID_COMMAND),
        ({"variants": (Variant(prompt_file="/etc/hostname"),)}, ErrorCode.INVALID_COMMAND),
        ({"checkpoint_sha": "0000"}, ErrorCode.CHECKPOINT_NOT_FOUND),
        ({"score": "true " * 30_000}, ErrorCode.INVALID_COMMAND),
        ({"score": "echo \0"}, ErrorCode.INVALID_COMMAND),
        ({"judge": "nowhere/judge"}, ErrorCode.INVALID_COMMAND),
        ({"judge": "judge"}, ErrorCode.INVALID_COMMAND),
    ],
)
async def test_what_cannot_be_tried_is_refused(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode
) -> None:
    """Nothing is recorded then."""
    async with a_finished_plan(tmp_path) as (server, client):
        if "codon_id" not in fields and "checkpoint_sha" not in fields:
            fields = {**fields, "codon_id": CodonId("answer")}

        error = await refused(client, ExplorationStart(**fields))
        assert error.code is code
        assert state(server.execution).explorations == ()


@pytest.mark.story(
    "Attempts go on while the server that started them is gone.", of="docs/how-to/attempts.md"
)
async def test_attempts_go_on_while_their_parent_is_gone(tmp_path: Path) -> None:
    """A parent that was killed finds them at its next start, and takes over what they did."""
    gate = tmp_path / "gate"
    slow = does(waits_for(gate), writes("answer.txt", "a long answer"))
    hank = write_hank(tmp_path / "hank", *CODONS)
    parent = tmp_path / "executions" / "parent"
    async with after_plan(hank, parent) as (server, client):
        await client.send(
            ExplorationStart(codon_id=CodonId("answer"), variants=(slow,), n=2, score=LENGTH)
        )
        await eventually(lambda: all(map(_is_at_work, state(parent).explorations[0].attempts)))

        server.kill()
        await server.ended()

    gate.touch()
    async with served(hank, parent, since_seq=0) as (_, client):
        await client.until(ExplorationEnded, timeout=LIMIT)
        shown = await client.send(ExplorationShow())
        assert [each.score for each in shown.attempts] == [13.0, 13.0]


def _is_at_work(attempt: AttemptRecord) -> bool:
    """Return whether the agent of an attempt has started."""
    if attempt.execution_path is None:
        return False

    sessions = Layout.of_execution(Path(attempt.execution_path)).agent_sessions
    return any(sessions.glob("*.jsonl"))


PASSWORD = "my-postgres-of-1996"


def secretive(*steps: dict[str, Any]) -> Variant:
    """Return a variant with the value of a secret variable of the server in each of its texts."""
    fields = {"name": f"with {PASSWORD}", "variables": {"word": PASSWORD}}
    return does(*steps, writes("answer.txt", PASSWORD), **fields)


def holders(folder: Path) -> set[str]:
    """Return the names of the files of a state directory, but for checkpoints, that have it."""
    apart = Layout.of_execution(folder).checkpoints
    files = (each for each in (folder / ".hankweave").rglob("*") if each.is_file())
    return {
        each.name
        for each in files
        if apart not in each.parents and PASSWORD.encode() in each.read_bytes()
    }


async def test_attempts_get_what_they_were_given_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt, variables and score, although the journal has them without secrets.

    Also one that is made by the next server. Nothing is kept when the exploration has ended.
    """
    monkeypatch.setenv("SERVICE_PASSWORD", PASSWORD)
    gate, parent = tmp_path / "gate", tmp_path / "executions" / "parent"
    hank = write_hank(tmp_path / "hank", *CODONS)
    async with after_plan(hank, parent) as (server, client):
        begun = await client.send(
            ExplorationStart(
                codon_id=CodonId("answer"),
                variants=(secretive(waits_for(gate)),),
                n=2,
                parallel=1,
                score=f"grep -c {PASSWORD} answer.txt",
            )
        )
        await eventually(lambda: _is_at_work(state(parent).explorations[0].attempts[0]))
        assert holders(parent) == {f"{begun.exploration_id}.json"}
        server.kill()
        await server.ended()

    gate.touch()
    async with served(hank, parent, since_seq=0) as (_, client):
        await client.until(ExplorationEnded, timeout=LIMIT)
        shown = await client.send(ExplorationShow())
        assert [each.score for each in shown.attempts] == [1.0, 1.0]
        assert shown.attempts[0].variant.name == "with [redacted:SERVICE_PASSWORD]"
        await eventually(lambda: not holders(parent))
        for each in shown.attempts:
            own = holders(Path(each.execution_path or ""))
            assert own - {"execution-meta.json"} <= _names_of_sessions(each)


def _names_of_sessions(attempt: AttemptRecord) -> set[str]:
    """Return the files in which the scripted agent keeps its own conversations."""
    sessions = Layout.of_execution(Path(attempt.execution_path or "")).agent_sessions
    return {each.name for each in sessions.rglob("*")}


async def test_exploration_events_are_in_order(tmp_path: Path) -> None:
    """Its start, the end of each attempt, and its end, with the best attempt."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(SHORT, LONG), score=LENGTH)
        (begun,) = events_of(server.execution, ExplorationStarted)
        assert [each.status for each in begun.exploration.attempts] == ["waiting", "waiting"]
        ends = events_of(server.execution, AttemptEnded)
        assert sorted(each.attempt.score for each in ends) == [2.0, 13.0]
        (end,) = events_of(server.execution, ExplorationEnded)
        assert (end.exploration_id, end.best) == (
            found.exploration_id,
            found.attempts[1].attempt_id,
        )


@pytest.mark.parametrize("source", ["environment", "file"])
async def test_what_is_set_for_one_server_is_not_set_for_attempts(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fixed port, a plan that does not begin by itself, a server that stays at its end."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    values = {"port": port, "autostart": False, "exitOnComplete": False}
    env = {}
    if source == "environment":
        env = {SETTINGS[key].variable: json.dumps(value) for key, value in values.items()}
    else:
        (tmp_path / "hankweave.json").write_text(json.dumps(values))

    monkeypatch.chdir(tmp_path)
    hank = write_hank(tmp_path / "hank", *CODONS)
    async with served(hank, tmp_path / "executions" / "parent", env=env, since_seq=0) as (
        _,
        client,
    ):
        await client.send(ExplorationStart(variants=(SHORT,)))
        await client.until(ExplorationEnded, timeout=LIMIT)
        found = await client.send(ExplorationShow())
        assert [each.status for each in found.attempts] == ["completed"], found.attempts


async def test_an_attempt_has_its_share_of_the_budget(tmp_path: Path) -> None:
    """The parent's costs do not count; an attempt that spends more is stopped."""
    costly = (codon("draft", {"cost": 5.0}), CODONS[1])
    spends = does({"cost": 3.0}, writes("answer.txt", "a"))
    async with a_finished_plan(tmp_path, *costly) as (server, client):
        found = await explored(client, variants=(spends, LONG), max_dollars=4.0)
        shares = [
            read_meta(Layout.of_execution(Path(each.execution_path or "")))
            for each in found.attempts
        ]
        assert [share and share.attempt and share.attempt.max_dollars for share in shares] == [
            7.0,
            7.0,
        ]
        assert [each.cost for each in found.attempts] == [3.0, 0.0]
        assert total_cost(state(server.execution)) == 8.0


async def test_an_exploration_has_what_is_left_of_the_executions_budget(tmp_path: Path) -> None:
    """Also if it asks for more; without anything left, it is refused."""
    hank = write_hank(tmp_path / "hank", codon("draft", {"cost": 1.0}), CODONS[1])
    spends = does({"cost": 2.0}, writes("answer.txt", "a"))
    async with after_plan(
        hank, tmp_path / "executions" / "parent", "--max-cost", "5", since_seq=0
    ) as (_, client):
        found = await explored(client, variants=(spends,), n=2, parallel=1, max_dollars=100.0)
        assert found.max_dollars == 4.0
        assert [each.max_dollars for each in found.attempts] == [2.0, 2.0]
        with pytest.raises(CommandRefused, match="Nothing is left") as refused:
            await client.send(ExplorationStart(codon_id=CodonId("answer")))

        assert refused.value.code is ErrorCode.NOTHING_TO_RUN


# --- attempts in a hank ---------------------------------------------------------------------------


def trying(*variants: Variant, **fields: Any) -> dict[str, Any]:
    """Return the `attempts` of a codon."""
    return {"variants": [msgspec.to_builtins(each) for each in variants], **fields}


async def ran(hank: Path, execution: Path, *flags: str) -> int:
    return await run_headless(hank, execution, *flags)


@pytest.mark.story(
    "A codon with attempts is explored by itself, and the plan continues with the best.",
    of="docs/how-to/attempts.md",
)
async def test_a_codon_with_attempts_goes_on_with_the_best(tmp_path: Path) -> None:
    """The plan explores it, adopts the best attempt and continues, without a client."""
    answer = {**CODONS[1], "attempts": trying(SHORT, LONG, score=LENGTH)}
    hank = write_hank(tmp_path / "hank", CODONS[0], answer, CODONS[2])
    execution = tmp_path / "executions" / "parent"
    assert await ran(hank, execution) == 0
    assert tree(execution / "agentRoot")["published.txt"] == b"a long answer"
    now = state(execution)
    assert [entry.codon.codon_id for entry in thread(now)] == ["draft", "answer", "publish"]
    (exploration,) = now.explorations
    assert exploration.planned
    assert [each.score for each in exploration.attempts] == [2.0, 13.0]
    # The next run has nothing to do.
    assert await ran(hank, execution) == 0
    assert len(state(execution).explorations) == 1


async def test_attempts_of_a_hank_get_its_texts_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an ordinary codon does; the journal has them without secrets."""
    monkeypatch.setenv("SERVICE_PASSWORD", PASSWORD)
    attempts = trying(secretive(), score=f"grep -c {PASSWORD} answer.txt")
    hank = write_hank(tmp_path / "hank", {**CODONS[1], "attempts": attempts}, CODONS[2])
    execution = tmp_path / "executions" / "parent"
    assert await ran(hank, execution) == 0
    (exploration,) = state(execution).explorations
    assert [each.score for each in exploration.attempts] == [1.0]
    assert (execution / "agentRoot" / "published.txt").read_text() == PASSWORD
    assert not holders(execution)


async def test_a_person_chooses_if_the_hank_says_ask(tmp_path: Path) -> None:
    """Without a person the run fails with what to do; after the adoption it continues."""
    answer = {**CODONS[1], "attempts": trying(SHORT, LONG, adopt="ask")}
    hank = write_hank(tmp_path / "hank", CODONS[0], answer, CODONS[2])
    execution = tmp_path / "executions" / "parent"
    assert await ran(hank, execution) == 1
    assert "adopt one of its attempts" in events_of(execution, ServerIdle)[-1].message
    (exploration,) = state(execution).explorations
    async with served(hank, execution, "--no-autostart") as (_, client):
        await client.send(ExplorationAdopt(attempt_id=exploration.attempts[0].attempt_id))

    assert await ran(hank, execution) == 0
    assert tree(execution / "agentRoot")["published.txt"] == b"no"


async def test_a_codon_fails_if_none_of_its_attempts_succeeds(tmp_path: Path) -> None:
    """The run fails as it would without attempts."""
    broken = does({"fail": {"message": "out of ideas"}})
    answer = {**CODONS[1], "attempts": trying(broken, n=2)}
    hank = write_hank(tmp_path / "hank", CODONS[0], answer, CODONS[2])
    execution = tmp_path / "executions" / "parent"
    assert await ran(hank, execution) == 1
    assert "No attempt of codon answer succeeded." in events_of(execution, ServerIdle)[-1].message


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"promptFile": "gone.md"}, "gone.md"),
        ({"agent": "nobody"}, "There is no agent 'nobody'"),
        ({"promptText": "a", "promptFile": "a.md"}, "exclude each other"),
        ({"promptTxt": "a"}, "promptTxt"),
    ],
)
def test_a_variant_that_cannot_run_is_found_by_validate(
    tmp_path: Path, variant: dict[str, Any], message: str
) -> None:
    """The error names the variant by its place in the hank."""
    answer = {**CODONS[1], "attempts": {"variants": [{}, variant]}}
    hank = write_hank(tmp_path / "hank", answer)
    (hank.parent / "a.md").write_text("a")
    done = hankweave("validate", str(hank), code=2)
    printed = done.stdout + done.stderr
    assert message in printed
    assert "$.hank[0].attempts.variants[1]" in printed


# --- a judge --------------------------------------------------------------------------------------


def verdict(*labels: str) -> Trouble:
    """Return what lets the endpoint answer with this order, as OpenAI's protocol has it."""
    content = json.dumps({"order": labels, "reasons": {labels[0]: "It says more."}})
    message = {"role": "assistant", "content": content, "refusal": None}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1736000000,
        "model": "judge",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
    return lambda: Reply(200, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("second", "best", "order"),
    [
        (("attempt-1", "attempt-2"), 1, ((2,), (1,))),
        (("attempt-2", "attempt-1"), 0, ((1, 2),)),
    ],
    ids=["agreed", "a matter of order"],
)
async def test_a_model_decides_between_equal_scores(
    tmp_path: Path, second: tuple[str, ...], best: int, order: tuple[tuple[int, ...], ...]
) -> None:
    """It is asked twice, in opposite orders; where the answers disagree, the attempts are equal."""
    same = ("equal", "alike")
    variants = tuple(answers(name, name=name) for name in same)
    hank = write_hank(tmp_path / "hank", *CODONS)
    async with (
        model_endpoint(verdict("attempt-2", "attempt-1"), verdict(*second)) as endpoint,
        after_plan(
            hank, tmp_path / "executions" / "parent", env=endpoint.environment, since_seq=0
        ) as (_, client),
    ):
        found = await explored(client, variants=variants, score="echo 1", judge="local/judge")
        assert found.judgement.error is None
        ids = [each.attempt_id for each in found.attempts]
        named = tuple(tuple(ids[number - 1] for number in group) for group in order)
        assert found.judgement.order == named
        assert found.judgement.reasons[0].text == "It says more."
        if len(order) == 2:
            assert found.best is found.attempts[best]

        first, again = (request.body["messages"][-1]["content"] for request in endpoint.requests)
        assert first.index('"attempt-1"') < first.index('"attempt-2"')
        assert "answer.txt" in first
        assert first != again


async def test_without_an_answer_of_the_judge_the_scores_decide(tmp_path: Path) -> None:
    """The reason is recorded; the exploration, and the plan, end as they do without a judge."""
    attempts = trying(SHORT, LONG, score=LENGTH, judge="nowhere/judge")
    hank = write_hank(tmp_path / "hank", {**CODONS[1], "attempts": attempts}, CODONS[2])
    execution = tmp_path / "executions" / "parent"
    assert await ran(hank, execution) == 0
    (found,) = state(execution).explorations
    assert found.best is found.attempts[1]
    assert "nowhere" in (found.judgement.error or "")


# --- merging --------------------------------------------------------------------------------------

LINES = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"

MERGING = (
    codon("draft", writes("text.txt", LINES)),
    codon("answer", writes("text.txt", LINES.replace("one", "ONE")), writes("mine.txt", "mine")),
)


def edits(**texts: str) -> Variant:
    return does(*(writes(name.replace("_", "."), text) for name, text in texts.items()))


@pytest.mark.story(
    "A merge of an attempt keeps what has changed here since.", of="docs/how-to/attempts.md"
)
async def test_a_result_is_merged_with_what_has_changed_here(tmp_path: Path) -> None:
    """Lines of both sides, edits of people included, are kept; the plan stays; one undo reverts.

    The preview reports what happens then.
    """
    theirs = edits(text_txt=LINES.replace("seven", "SEVEN"), new_txt="new")
    async with a_finished_plan(tmp_path, *MERGING) as (server, client):
        found = await explored(client, variants=(theirs,))
        edited = LINES.replace("one", "ONE").replace("four", "FOUR")
        (server.execution / "agentRoot" / "text.txt").write_text(edited)
        before = files(server)
        adopting = {"attempt_id": found.attempts[0].attempt_id, "merge": True}
        previewed = await client.send(ExplorationAdopt(**adopting, preview=True))
        assert files(server) == before
        report = await client.send(ExplorationAdopt(**adopting))
        assert report.counts == previewed.counts
        merged = {"text.txt": edited.replace("seven", "SEVEN").encode(), "new.txt": b"new"}
        assert files(server) == before | merged
        assert next_codon(state(server.execution)) is None
        await client.send(RollbackUndo())
        assert files(server) == before

    GitWitness(server.execution).assert_sound()


async def test_a_conflict_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    """The versions are written where that is asked; one side is taken where that is asked."""
    theirs = edits(text_txt=LINES.replace("one", "eins"), new_txt="new")
    async with a_finished_plan(tmp_path, *MERGING) as (server, client):
        found = await explored(client, variants=(theirs,))
        before, attempt = files(server), found.attempts[0].attempt_id
        folder = tmp_path / "conflicts"
        adopting = {"attempt_id": attempt, "merge": True}
        error = await refused(client, ExplorationAdopt(**adopting, conflicts_in=str(folder)))
        assert error.code is ErrorCode.MERGE_CONFLICT
        assert "text.txt (both-changed)" in error.message
        assert files(server) == before
        marked = (folder / "merged" / "text.txt").read_text()
        assert marked.startswith("<<<<<<< now\nONE\n=======\neins\n>>>>>>> attempt\n")

        await client.send(ExplorationAdopt(**adopting, on_conflict="ours"))
        assert files(server) == before | {"new.txt": b"new"}
        await client.send(RollbackUndo())
        await client.send(ExplorationAdopt(**adopting, on_conflict="theirs"))
        assert files(server)["text.txt"].startswith(b"eins\n")
        assert files(server)["mine.txt"] == b"mine"
        await client.send(RollbackUndo())
        await client.send(ExplorationAdopt(**adopting, paths=("new.txt",)))
        assert files(server) == before | {"new.txt": b"new"}


async def test_a_result_that_is_here_already_changes_nothing(tmp_path: Path) -> None:
    """The report is empty."""
    async with a_finished_plan(tmp_path, *MERGING) as (server, client):
        same = edits(text_txt=LINES.replace("one", "ONE"), mine_txt="mine")
        found = await explored(client, variants=(same,))
        before = files(server)
        report = await client.send(
            ExplorationAdopt(attempt_id=found.attempts[0].attempt_id, merge=True)
        )
        assert files(server) == before
        assert report.counts.added == report.counts.updated == report.counts.removed == 0
