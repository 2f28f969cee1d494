"""Claims about the summary of `hankweave status`: where a plan stands, and what to do next."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_client.calls import Calls
from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import CheckpointDiff
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.executions import Standing as Listed
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import PendingPermission, RuntimeLock
from hankweave_protocol.replies import (
    DiffPage,
    DiffStats,
    FileDifference,
    Forecast,
    ServerStatus,
    StepForecast,
)
from hankweave_protocol.state import EMPTY_STATE, CodonWait, State
from hankweave_server.cli.status.changes import NO_CHANGES, FileChanges, changes_of
from hankweave_server.cli.status.standing import StatusFacts, standing_of
from hankweave_server.cli.status.summary import summary_of
from hankweave_server.domain.execution_thread import end_checkpoint
from support.documented_commands import calls, fault
from support.histories import LATER, MOMENT, completed, failed, running, sha
from support.showing import NOW, state_of

ROOT = Path("/executions/orders")
PLAN = ("fetch", "review#0", "review#1", "check", "report", "charts", "publish")
DONE = (completed("fetch"), completed("review#0"), completed("review#1"))


def server(state: State, **fields: object) -> ServerStatus:
    """Return the status of a server that is idle, but for `fields`."""
    lock = RuntimeLock(pid=7, run_id=None, start_time=MOMENT, last_heartbeat=MOMENT, port=43127)
    known: dict[str, object] = {
        "server_version": "0.2.0",
        "pid": 7,
        "execution_path": str(ROOT),
        "started_at": MOMENT,
        "uptime_ms": 1,
        "current_run_id": state.current_run_id,
        "active_codon_id": None,
        "next_codon_id": None,
        "is_rolling_back": False,
        "last_event_seq": 1,
        "total_cost": 0.0,
        "checkpoints": 1,
        "clients": 0,
        "lock": lock,
        "store_bytes": 1,
        "store_packs": 0,
        "store_loose_objects": 0,
        "containment": "subreaper",
    }
    return ServerStatus(**(known | fields))  # type: ignore[arg-type]


def facts(
    state: State,
    seen: Listed = "running",
    status: ServerStatus | None = None,
    changes: FileChanges = NO_CHANGES,
    **fields: object,
) -> StatusFacts:
    listed = ListedExecution(
        path=str(ROOT), state=seen, hank_name="Orders to model", last_activity=LATER
    )
    listed = msgspec.structs.replace(listed, **fields)
    now = NOW + timedelta(hours=2)
    return StatusFacts(ROOT, state, listed, now, status, changes=changes)


def text(seen: StatusFacts) -> str:
    return "\n".join(line.text for line in summary_of(seen))


AT_WORK = state_of(*DONE, running("check"), plan=PLAN)
FAILED = state_of(*DONE, failed("check"), plan=PLAN)
ENDED = state_of(completed("fetch"), plan=("fetch",))
LIKELY = Forecast(
    remaining_ms=240_000,
    cost_at_end=5.6,
    basis="from 3 earlier rounds",
    steps=(StepForecast(codon_id="report", ms=130_000, cost=0.4),),  # type: ignore[arg-type]
)


def test_a_running_plan_shows_its_progress_its_step_and_what_follows() -> None:
    """The steps that are done are few lines; iterations of a codon are one."""
    status = server(AT_WORK, active_codon_id="check", budget_usd=25.0, forecast=LIKELY)
    heading, _, *lines = text(facts(AT_WORK, status=status, doing="Edit src/records.py")).split(
        "\n"
    )
    assert heading.startswith(
        "Orders to model · run 1 · 3 of 6 · running 2 h 1 min, about 4 min left"
    )
    assert heading.endswith(" of $25")
    assert lines[0].startswith("  ✓ ")
    assert "×2" in lines[1]
    assert any(line.startswith("  ▸ ") and line.endswith("Edit src/records.py") for line in lines)
    assert any("~2:10" in line and "~$0.40" in line for line in lines)
    assert lines[3:6] == [line for line in lines if line.startswith("  · ")]


def test_steps_without_a_line_are_counted_in_one() -> None:
    """A count takes the place of at least two steps."""
    plan = ("a", "b", "c", "check", "d", "e", "f", "g")
    state = state_of(*map(completed, plan[:3]), running("check"), plan=plan)
    lines = text(facts(state, status=server(state, active_codon_id="check"))).split("\n")
    assert "  ✓ 2 before" in lines
    assert "  · 2 more" in lines
    ended = state_of(*map(completed, plan), plan=plan)
    lines = text(facts(ended, "completed")).split("\n")
    assert "  ✓ 5 before" in lines
    assert sum(line.startswith("  ✓ ") for line in lines) == 4


def page(*files: FileDifference) -> DiffPage:
    stats = DiffStats(files=len(files), added=0, removed=0)
    return DiffPage(from_sha=sha(1), to_sha=None, files=files, stats=stats)


def differs(path: str, status: str, added: int = 0, removed: int = 0) -> FileDifference:
    return FileDifference(path=path, status=status, added=added, removed=removed)  # type: ignore[arg-type]


CHANGED = page(
    differs("notes.md", "modified", 2),
    differs("out/check.json", "created", 30),
    differs("src/records.py", "modified", 4, 2),
)


def test_changed_files_are_those_of_the_step_and_edits_of_a_person() -> None:
    """Each file is told once, with its lines; a file that a person has edited is not the step's."""
    state = msgspec.structs.replace(AT_WORK, edits={"notes.md": "", "old.md": ""})
    status = server(state, active_codon_id="check")
    shown = text(facts(state, status=status, changes=FileChanges(CHANGED)))
    assert "  2 files changed in this step: out/check.json +30, src/records.py +4 −2\n" in shown
    assert "  2 edits of yours: notes.md +2, old.md\n" in shown


def test_changes_since_the_last_checkpoint_are_distinguished_from_the_step() -> None:
    """After three files, the others are counted."""
    since = page(*(differs(f"{name}.md", "deleted") for name in "abcde"))
    shown = text(facts(FAILED, "failed", changes=FileChanges(CHANGED, since)))
    assert "  3 files changed in this step: notes.md +2, " in shown
    assert (
        "  5 files changed since the last checkpoint: a.md deleted, b.md deleted, c.md deleted"
        " and 2 more\n" in shown
    )
    assert "edit" not in shown


def test_files_that_have_not_changed_are_not_mentioned() -> None:
    assert "changed" not in text(facts(ENDED, "completed", changes=FileChanges(None, page())))


class Answers(Calls):
    """Replies to comparisons; the arguments of each are noted."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self._refuses = refuses

    async def send(self, command: Any) -> Any:
        assert isinstance(command, CheckpointDiff)
        if self._refuses:
            raise Refused(ErrorCode.CHECKPOINT_DAMAGED, "It cannot be read.")

        self.asked.append((command.from_sha, command.to_sha))
        return page()


CUT_OFF = msgspec.structs.replace(failed("check"), error_checkpoint=sha(8))


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (AT_WORK, [(end_checkpoint(DONE[-1]), None)]),
        (
            state_of(*DONE, CUT_OFF, plan=PLAN),
            [(end_checkpoint(DONE[-1]), sha(8)), (sha(8), None)],
        ),
        (FAILED, [(end_checkpoint(DONE[-1]), None)]),
        (ENDED, [(end_checkpoint(completed("fetch")), None)]),
        (msgspec.structs.replace(state_of(plan=PLAN), initial_checkpoint=sha(9)), [(sha(9), None)]),
        (EMPTY_STATE, []),
    ],
    ids=["running", "failed", "failed without a checkpoint", "completed", "not begun", "new"],
)
async def test_files_are_compared_with_the_beginning_and_the_end_of_the_step(
    state: State, asked: list[tuple[str, str | None]]
) -> None:
    """While a step runs, everything since its beginning; afterwards, what its end leaves out."""
    calls = Answers()
    await changes_of(calls, state)
    assert calls.asked == asked


async def test_a_comparison_that_is_refused_hides_no_status() -> None:
    assert await changes_of(Answers(refuses=True), AT_WORK) == NO_CHANGES


def test_a_failed_step_says_why_and_what_to_do_next() -> None:
    """With a server it can be tried again at once; without one, a start does it."""
    shown = text(facts(FAILED, status=server(FAILED)))
    assert "failed at step 3 of 6" in shown
    assert "  ✗ " in shown
    assert "API request timed out" in shown
    assert "hankweave rollback --before check --restart -e /executions/orders" in shown
    assert "hankweave retry" in shown
    shown = text(facts(FAILED, "failed"))
    assert "hankweave retry" not in shown
    assert "hankweave run -e /executions/orders" in shown


def test_a_long_command_is_whole_and_has_its_effect_below() -> None:
    """It can be pasted on any terminal, and 80 columns show what it does."""
    seen = dataclasses.replace(facts(FAILED, "failed"), root=Path("/executions") / ("x" * 70))
    lines = list(summary_of(seen))
    at = next(i for i, line in enumerate(lines) if line.text.startswith("  hankweave run -e "))
    assert lines[at].is_whole
    assert lines[at].text.endswith("x" * 70)
    assert lines[at + 1].text.strip() == "again, on the files as they are"
    assert len(lines[at + 1].text) <= 80


def test_on_a_wide_terminal_a_long_command_has_its_effect_beside_it() -> None:
    seen = dataclasses.replace(facts(FAILED, "failed"), root=Path("/executions") / ("x" * 70))
    lines = list(summary_of(seen, 160))
    (found,) = (line for line in lines if line.text.startswith("  hankweave run -e "))
    assert found.text.endswith("   again, on the files as they are")
    assert len(found.text) <= 160


def test_a_plan_that_was_stopped_between_two_steps_goes_on_with_the_next_one() -> None:
    """There is nothing to run again, and nothing to go back to before it."""
    shown = text(facts(state_of(*DONE, plan=PLAN), "stopped"))
    assert "hankweave run -e /executions/orders" in shown
    assert "  continue" in shown
    assert "again" not in shown
    assert "rollback" not in shown


def test_runs_of_attempts_are_not_counted() -> None:
    """The page counts in the same way."""
    (own,) = AT_WORK.runs
    tried = msgspec.structs.replace(own, run_id=RunId("try-1"))
    record = AttemptRecord(attempt_id="e-1", run_id=tried.run_id)
    exploration = Exploration(
        exploration_id="e",
        created_at=MOMENT,
        checkpoint_sha=sha(1),
        codon_id=CodonId("check"),
        attempts=(record,),
    )
    state = msgspec.structs.replace(AT_WORK, runs=(tried, own), explorations=(exploration,))
    assert " · run 1 · " in text(facts(state, status=server(state)))


def test_a_question_is_shown_with_its_answers() -> None:
    asked = PendingPermission(
        request_id="ab12cd34",
        codon_id="check",  # type: ignore[arg-type]
        tool_name="Bash",
        tool_input={"command": "git push"},
        expires_at=LATER,
        reason="nothing allows it",
    )
    status = server(AT_WORK, active_codon_id="check", pending_permissions=(asked,))
    shown = text(facts(AT_WORK, status=status))
    assert " · waits for you" in shown.split("\n")[0]
    assert "asks: Bash(git push)" in shown
    assert "hankweave allow ab12cd34 -e /executions/orders" in shown


@pytest.mark.parametrize(
    ("seen", "standing"),
    [
        (facts(AT_WORK, status=server(AT_WORK, is_rolling_back=True)), "rolling back"),
        (facts(ENDED, status=server(ENDED)), "completed"),
        (facts(ENDED, "completed"), "completed"),
        (facts(AT_WORK, "crashed"), "crashed"),
        (facts(state_of(*DONE, plan=PLAN), "stopped"), "stopped"),
        (facts(state_of(*DONE, plan=PLAN), status=server(AT_WORK)), "idle"),
        (facts(state_of(plan=PLAN), "waiting"), "idle"),
        (
            facts(
                AT_WORK,
                status=server(
                    AT_WORK,
                    active_codon_id="check",
                    waiting=CodonWait(
                        kind="usage", until="2025-01-04T16:00:00.000Z", since=MOMENT, source="event"
                    ),
                ),
            ),
            "limited",
        ),
    ],
)
def test_every_standing_has_words_and_commands_that_exist(seen: StatusFacts, standing: str) -> None:
    """The parser understands each command that is shown to be pasted; no line is about nothing."""
    assert standing_of(seen) == standing
    shown = text(seen)
    found = [line.strip().split("   ")[0] for line in shown.split("\n") if "  hankweave " in line]
    assert found or standing == "idle"
    for line in found:
        assert [fault(words) for words in calls(line)] == [None], line
        assert shlex.split(line)[-2:-1] == ["-e"] or "run -e" in line


def test_control_characters_of_agents_do_not_reach_the_terminal() -> None:
    shown = text(facts(AT_WORK, status=server(AT_WORK, active_codon_id="check"), doing="\x1b[2J"))
    assert "\x1b" not in shown
