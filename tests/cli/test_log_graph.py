"""Claims about `hankweave log --graph`: the drawing matches the repository."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path
from typing import get_args

import anyio.to_thread
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from hankweave_protocol.commands import CheckpointPin, ExecutionBranch
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointKind
from hankweave_protocol.state import ContinuationSource
from hankweave_server.cli.output.log_graph import MARKS, nodes_of, picture, rows_of
from hankweave_server.cli.output.pictures import draw_runs
from hankweave_server.cli.show import OutputLines
from hankweave_server.domain.timelines import RunLine
from support.abandoned import dead_end
from support.git_facts import GitWitness
from support.histories import a_checkpoint, sha
from support.running_server import command, environment
from support.screens import screen
from support.scripted_hank import codon, write_hank
from support.waiting import LIMIT

GRAPH = re.compile(r"^([^0-9a-f]*)([0-9a-f]{7,12})\b")


def drawn(execution: Path, **env: str) -> list[str]:
    done = subprocess.run(
        command("log", "-e", str(execution), "--graph", "--calls"),
        env=environment(PYTHONUTF8="1", **env),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def shas(lines: list[str]) -> list[str]:
    return [found[2] for line in lines if (found := GRAPH.match(line))]


def parents_drawn(lines: list[str]) -> dict[str, str | None]:
    """Follow every line of the drawing down to the next checkpoint in it."""
    parents: dict[str, str | None] = {}
    waiting: dict[int, list[str]] = {}
    for line in lines[:-1]:
        found = GRAPH.match(line)
        if found is None:
            _bend(line, waiting)
            continue

        column = next(at for at, sign in enumerate(found[1]) if sign not in "│| ") // 2
        for child in waiting.pop(column, []):
            parents[child] = found[2]

        parents[found[2]] = None
        waiting[column] = [found[2]]

    return parents


def _bend(line: str, waiting: dict[int, list[str]]) -> None:
    into = next((at for at, sign in enumerate(line) if sign in "├╭"), 0) // 2
    for at, sign in enumerate(line):
        if sign in "┴╯":
            waiting.setdefault(into, []).extend(waiting.pop(at // 2))


async def test_the_lines_are_those_of_the_repository(tmp_path: Path) -> None:
    """Every checkpoint appears once, above the one that git names as its parent.

    This holds beside a server and after it; a pipe gets no colour.
    """
    async with dead_end(tmp_path) as past:
        await past.client.send(
            CheckpointPin(checkpoint_sha=past.manual[0], name="the good one", pinned=True)
        )
        made = await past.client.send(ExecutionBranch(checkpoint_sha=past.manual[1]))
        beside = await anyio.to_thread.run_sync(partial(drawn, past.server.execution))
        await past.server.stop()

    lines = drawn(past.server.execution)
    assert shas(beside) == shas(lines)
    assert "\x1b" not in "".join(lines)
    git = GitWitness(past.server.execution)
    log = git.run("log", "--all", "--format=%h %p", "--abbrev=12").splitlines()
    parents = dict(line.split(" ", 1) for line in log if " " in line.strip())
    assert {child: parent for child, parent in parents_drawn(lines).items() if parent} == parents
    (now,) = [line for line in lines if "← now" in line]
    assert shas([now]) == [git.run("rev-parse", "--short=12", "HEAD").strip()]
    (pinned,) = [line for line in lines if past.manual[0][:12] in line]
    assert "the good one  [pinned]" in pinned
    (branched,) = [line for line in lines if past.manual[1][:12] in line]
    assert f"(branched to {made.execution_path})" in branched
    assert sum("begins after a rollback" in line for line in lines) >= 1
    other = drawn(Path(made.execution_path))
    assert any(f"a branch of {past.server.execution}" in line for line in other)


@pytest.mark.story("`log --graph` draws the tree of runs and the current position.")
def test_where_nothing_else_can_be_said_it_is_drawn_in_ascii(tmp_path: Path) -> None:
    """A pipe or terminal without Unicode gets marks and lines that it can show."""
    hank, execution = write_hank(tmp_path / "hank", codon("one")), tmp_path / "execution"
    run = command("run", str(hank), "-e", str(execution), "--headless")
    subprocess.run(run, env=environment(), check=True, capture_output=True)
    text = "\n".join(drawn(execution, PYTHONIOENCODING="ascii"))
    assert text.isascii()
    assert "<- now" in text
    with screen("log", "-e", str(execution), "--graph", columns=40) as shown:
        assert shown.ended() == 0
        assert max(map(cell_len, shown.text().splitlines())) <= 40
        assert b"\x1b[" in shown.bytes

    with screen("log", "-e", str(execution), "--graph", env={"NO_COLOR": "1"}) as shown:
        assert shown.ended() == 0
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]", shown.bytes)


def test_a_graph_is_not_followed(tmp_path: Path) -> None:
    """--graph and --follow exclude each other: the exit code is 2."""
    done = subprocess.run(
        command("log", "-e", str(tmp_path), "--graph", "--follow"),
        env=environment(),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 2


# --- the layout, alone ----------------------------------------------------------------------------


def a_run(name: str, *numbers: int, at: int | None = None) -> RunLine:
    """Return a run whose checkpoints have these numbers, also as their places in the journal."""
    source = (
        None
        if at is None
        else ContinuationSource(run_id=RunId("r"), after_codon=None, checkpoint_sha=sha(at))
    )
    return RunLine(
        run_id=RunId(name),
        status="completed",
        start_time="2025-01-04T12:00:00.000Z",
        on_thread=True,
        source=source,
        reason=None if at is None else "rollback",
        codons=(),
        checkpoints=tuple(a_checkpoint("manual", RunId(name), None, number) for number in numbers),
    )


def test_the_way_to_now_is_the_first_column() -> None:
    """The current line is first even if there are many abandoned branches that are newer."""
    runs = (a_run("a", 1, 2, 3), a_run("b", 4, 5, at=1), a_run("c", at=2))
    rows = list(rows_of(nodes_of(runs)))
    columns = {row.node.record.sha: row.at for row in rows if row.node}
    assert columns[sha(1)] == columns[sha(2)] == 0
    assert all(columns[sha(number)] > 0 for number in (3, 4, 5))
    assert [row.node.record.sha for row in rows if row.node and row.node.is_now] == [sha(2)]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_details_grow_with_the_width(width: int) -> None:
    """Name, place and day are always shown; kind and time if they fit; each mark has its word."""
    lines = OutputLines((a_run("a", 1, 2),), None, ())
    text = "\n".join(line.plain for line in picture(lines, width, fancy=True))
    assert sha(2)[: 12 if width >= 70 else 7] in text
    assert ("12:00:00" in text) == (width >= 70)
    assert text.count("2025-01-04") == 1


def test_times_are_in_one_column() -> None:
    """The mark of the present position stands behind them, and names are padded."""
    lines = OutputLines((a_run("a", 1, 2),), None, ())
    drawn = [line.plain for line in picture(lines, 80, fancy=True)]
    assert len({line.index("12:00:00") for line in drawn if "12:00:00" in line}) == 1
    assert sum("12:00:00  ← now  " in line for line in drawn) == 1


def test_every_kind_has_a_mark_of_its_own() -> None:
    """Kinds differ by shape, not by colour alone, in Unicode and in ASCII."""
    assert set(MARKS) == set(get_args(CheckpointKind))
    for place in (0, 1):
        assert len({mark[place] for mark in MARKS.values()}) == len(MARKS)


def test_a_name_cannot_move_the_cursor() -> None:
    """Names chosen by agents and users are escaped."""
    run = a_run("a", 1)
    record = run.checkpoints[0]
    evil = replace(record, label="\x1b[2Jgone", pinned=True, name="\x07")
    named = replace(run, checkpoints=(evil,))
    text = "\n".join(
        line.plain for line in picture(OutputLines((named,), None, ()), 100, fancy=True)
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert record.sha[:12] in text


# --- the runs, alone ------------------------------------------------------------------------------


def test_an_attempt_is_named_and_not_called_abandoned(capsys: pytest.CaptureFixture[str]) -> None:
    """A run aside from the thread is abandoned only if it is not an attempt's."""
    aside = replace(a_run("b", at=1), on_thread=False)
    draw_runs(None, (a_run("a", 1), aside, replace(aside, run_id=RunId("c"), attempt="e-1")), ())
    shown = capsys.readouterr().out
    named, abandoned = (
        [line for line in shown.splitlines() if word in line] for word in ("e-1", "abandoned")
    )
    assert ["run c  completed  attempt e-1" in line for line in named] == [True]
    assert ["run b  completed  abandoned" in line for line in abandoned] == [True]
