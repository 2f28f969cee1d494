"""Pictures of twelve commands, and of `attach`, on terminals of 80 and 160 columns.

They are in docs/pictures.

The commands get fixed values, so that a picture changes with the words and the arrangement alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import click
import msgspec
import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import Event, EventData, Info, ServerDegraded, ServerIdle
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.instants import to_text
from hankweave_protocol.records import (
    CheckpointRecord,
    Coordinate,
    KeptFile,
    RollbackReport,
    RunsAgain,
)
from hankweave_protocol.replies import DiffPage, DiffStats, FileDifference
from hankweave_protocol.state import CodonExecution
from hankweave_server.cli import ls
from hankweave_server.cli.app import cli
from hankweave_server.cli.checkpoints import print_checkpoints
from hankweave_server.cli.events import EventTable
from hankweave_server.cli.output import log_graph, pictures
from hankweave_server.cli.output.rollback_report import draw_report
from hankweave_server.cli.show import OutputLines
from hankweave_server.cli.status.changes import NO_CHANGES, FileChanges
from hankweave_server.cli.status.command import print_summary
from hankweave_server.cli.status.standing import StatusFacts
from hankweave_server.domain.timelines import RunLine
from hankweave_server.local import hints
from support.attached import PUSH, a_scene, attached_to, press, touched
from support.golden_files import GoldenFiles
from support.histories import MOMENT, completed, failed
from support.showing import NOW, state_of
from support.terminal_pictures import picture, printed

ROOT = Path("/home/ann/.hankweave-executions/1795233600000-k3f9-a1b2c3")
PLAN = ("fetch", "review#0", "review#1", "review#2", "check", "report", "charts")
DONE = (completed("fetch"), *(completed(f"review#{number}") for number in range(3)))
RUN = RunId("1795233600000-a1b2c3-d4e5f6")


def place(number: int, codon: str | None) -> Coordinate:
    return Coordinate(
        checkpoint_sha=Sha(f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number:024x}"),
        event_seq=number,
        run_id=RUN,
        codon_id=None if codon is None else CodonId(codon),
        codon_state=None,
    )


def record(number: int, kind: str, codon: str | None, summary: str) -> CheckpointRecord:
    at = place(number, codon)
    return CheckpointRecord(
        sha=at.checkpoint_sha,
        kind=kind,  # type: ignore[arg-type]
        coordinate=at,
        codon_name="",
        timestamp=to_text(NOW + timedelta(minutes=number)),
        operation_id=f"op-{number}",
        summary=summary,
    )


RECORDS = (
    record(1, "initial", None, "the beginning"),
    record(2, "completed", "fetch", "codon completed · 12 files +1,204"),
    record(3, "tool", "review#0", "Edit schema/orders.json +9 −30"),
    record(4, "completed", "review#0", "codon completed · 3 files +40 −31"),
    record(5, "tool", "check", "Edit src/records.py +4 −2"),
    record(6, "error", "check", "codon failed"),
)
RUNS = (
    RunLine(
        run_id=RUN,
        status="failed",
        start_time=MOMENT,
        on_thread=True,
        codons=(),
        checkpoints=RECORDS,
    ),
)
LINES = OutputLines(RUNS, None, ())


def kept(*paths: str) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(path=path, reason="") for path in paths)


REPORT = RollbackReport(
    target=place(4, "review#0"),
    source=place(6, "check"),
    safety=None,
    added=(),
    updated=touched("src/records.py", "schema/orders.json"),
    removed=touched("out/check.json"),
    kept=kept("notes.md"),
    conflicts=kept("notes.md"),
    skipped=(),
    recovered=False,
    runs_again=RunsAgain(
        codon_ids=(CodonId("check"),), total=1, estimated_cost=0.2, estimated_ms=64_000
    ),
    target_title="codon completed · 3 files +40 −31",
)


def a_row(name: str, hank: str, state: str, **fields: object) -> ListedExecution:
    row = ListedExecution(path=str(ROOT.with_name(name)), state=state)  # type: ignore[arg-type]
    known = {"hank_name": hank, "last_activity": MOMENT, "step": 9, "steps": 12}
    return msgspec.structs.replace(row, **(known | fields))


ROWS = [
    a_row(ROOT.name, "Orders to model", "running", waits_for="Bash git push", cost=5.19),
    a_row("1795233600001-b81c-d4e5f6", "Decimal migration", "failed", cost=2.8),
    a_row("1795233600002-e20a-nodata", "Earthquakes of the last hundred years", "stopped", cost=41),
    a_row(
        "e20a-7",
        "region-07",
        "completed",
        attempt_of=str(ROOT.with_name("1795233600002-e20a-nodata")),
    ),
    a_row(
        *("1795233600003-7d02-a1b2c3", "Survey", "running"),
        server_pid=7,
        is_idle=True,
        failure="It failed.",
    ),
    msgspec.structs.replace(
        a_row("x", "Invoice parser", "completed", cost=3.44), path="/home/ann/work/invoices"
    ),
]


def events_told() -> list[bytes]:
    entries: list[EventData] = [
        Info(message="Rig setup started"),
        ServerDegraded(code="INSUFFICIENT_SPACE", message="The disk is almost full.", since=MOMENT),
        ServerIdle(reason="startup", message="Waiting for a command."),
    ]
    return [
        codec.encode(
            Event(
                seq=number,
                id=f"e{number}",
                timestamp=to_text(NOW + timedelta(seconds=number)),
                type=data.TYPE,
                data=data,
            )
        )
        for number, data in enumerate(entries, start=1)
    ]


def print_events() -> None:
    for line in EventTable().lines(events_told()):
        click.echo(line)


STEP = DiffPage(
    from_sha=RECORDS[3].sha,
    to_sha=RECORDS[5].sha,
    files=(
        FileDifference(path="out/check.json", status="created", added=30, removed=0),
        FileDifference(path="src/records.py", status="modified", added=4, removed=2),
    ),
    stats=DiffStats(files=2, added=34, removed=2),
)


def status_of(
    standing: str, *codons: CodonExecution, changes: FileChanges = NO_CHANGES
) -> Callable[[], None]:
    row = a_row(ROOT.name, "Orders to model", standing, max_dollars=25.0)
    state = state_of(*DONE, *codons, plan=PLAN)
    state = msgspec.structs.replace(state, edits={"notes.md": ""})
    facts = StatusFacts(ROOT, state, row, NOW + timedelta(hours=2), changes=changes)
    return lambda: print_summary(facts)


def calls(*words: str) -> Callable[[], None]:
    return lambda: cli.main(args=list(words), prog_name="hankweave", standalone_mode=False)


PAGE = DiffPage(
    from_sha=RECORDS[1].sha,
    to_sha=RECORDS[3].sha,
    from_title="codon completed · 12 files +1,204",
    to_title="codon completed · 3 files +40 −31",
    files=(
        FileDifference(path="out/check.json", status="created", added=30, removed=0),
        FileDifference(path="schema/orders.json", status="modified", added=9, removed=30),
    ),
    stats=DiffStats(files=2, added=39, removed=30),
)


def draw_diff() -> None:
    pictures.draw_sides(PAGE)
    pictures.draw_stat(PAGE)


COMMANDS: dict[str, Callable[[], None]] = {
    "hankweave --help": calls("--help"),
    "hankweave help --all": calls("help", "--all"),
    "hankweave ls": lambda: ls.print_rows(ROWS, with_sizes=False),
    "hankweave status": status_of("failed", failed("check"), changes=FileChanges(STEP)),
    "hankweave status -e b81c": status_of("stopped"),
    "hankweave rollback --before check": lambda: draw_report(
        REPORT, is_preview=True, to="before check"
    ),
    "hankweave undo --preview": lambda: draw_report(
        msgspec.structs.replace(REPORT, runs_again=None, kept=(), conflicts=()),
        is_preview=True,
        reverse="`hankweave redo`",
    ),
    "hankweave log --graph --calls": lambda: log_graph.show(LINES),
    "hankweave checkpoints": lambda: print_checkpoints(reversed(RECORDS)),
    "hankweave runs": lambda: pictures.draw_runs(None, RUNS, ()),
    "hankweave events": print_events,
    "hankweave diff 3c6ef372fe94 78dde6e5fd29": draw_diff,
}


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("title", COMMANDS)
def test_the_picture_of_a_command_is_that_of_the_documents(
    title: str, columns: int, golden: GoldenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than the terminal is wide, so none is wrapped."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(ls, "datetime", Now)
    monkeypatch.setattr(hints, "is_default", lambda _root: True)
    monkeypatch.setattr(ls, "executions_root", lambda: ROOT.parent)
    text = printed(COMMANDS[title], columns, monkeypatch)
    name = re.sub(r"\W+", "-", title.removeprefix("hankweave ")).strip("-")
    golden.check(f"../../docs/pictures/{name}-{columns}.svg", picture(title, text, columns))


def test_a_run_that_waits_for_a_command_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs` does not call it running, as none of its steps does."""
    waits = msgspec.structs.replace(RUNS[0], status="running", is_current=True)
    text = printed(lambda: pictures.draw_runs(None, (waits,), ()), 80, monkeypatch)
    assert f"run {RUN}  idle  current" in text.plain


SCREENS: dict[str, tuple[int, int, tuple[str, ...], str]] = {
    "attach-80": (80, 24, (), "dark"),
    "attach-160": (160, 48, (), "dark"),
    "attach-permission-80": (80, 24, ("a",), "dark"),
    "attach-back-80": (80, 24, ("z",), "light"),
    "attach-changes-160": (160, 48, ("c",), "light"),
}


@pytest.mark.parametrize("name", SCREENS)
async def test_the_picture_of_a_screen_is_that_of_the_documents(
    name: str, golden: GoldenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen of `attach` is drawn by Textual, in dark and in light colours."""
    columns, lines, keys, theme = SCREENS[name]
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLORFGBG", "0;15" if theme == "light" else "15;0")
    monkeypatch.delenv("NO_COLOR", raising=False)
    async with attached_to(a_scene(asked=PUSH), columns, lines) as pilot:
        await press(pilot, *keys)
        found = pilot.app.export_screenshot(title="hankweave attach")

    golden.check(f"../../docs/pictures/{name}.svg", found)


class Now(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        moment = NOW + timedelta(minutes=6)
        return cls.fromtimestamp(moment.timestamp(), tz)
