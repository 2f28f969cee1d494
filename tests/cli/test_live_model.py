"""Claims about the values behind the live view, which follow from state and events."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    BudgetFigures,
    CodonCompletedEvent,
    CodonRetrying,
    CodonStartedEvent,
    Event,
    EventData,
    ExitStatus,
    FileSource,
    FileUpdated,
    PermissionRequested,
    PermissionResolved,
    SentinelOutput,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import to_text
from hankweave_protocol.state import CodonWait, FailureReason
from hankweave_server.cli.live.model import (
    NOTHING,
    ObservedFacts,
    StepRow,
    first_row,
    observe,
    view,
)
from hankweave_server.plain_text import one_line
from support.histories import MOMENT, completed, failed, running
from support.showing import NOW, state_of

ONE = CodonId("one")


def live_after(*events: EventData) -> ObservedFacts:
    known = NOTHING
    for data in events:
        known = observe(known, Event(id="e", timestamp=MOMENT, type=data.TYPE, data=data))

    return known


def message(text: str) -> AssistantAction:
    return AssistantAction(codon_id=ONE, action="message", content=text)


def test_each_codon_is_a_row_with_what_is_known_of_it() -> None:
    """A row has state, attempt, time, cost, tokens and last file; before it runs, only a name."""
    working = msgspec.structs.replace(running("two"), current_cost=0.25)
    state = state_of(completed("one"), working, plan=("one", "two", "three"))
    source = FileSource(kind="tool_use")
    update = FileUpdated(
        path="b\x1b[2J.txt",
        filename="b",
        action="created",
        sha256="",
        bytes=1,
        source=source,
        codon_id=CodonId("two"),
    )
    budget = BudgetFigures(max_dollars=1.0)
    seen = view(state, live_after(update), NOW, 10, lambda _entry, _state: budget)
    assert [row.codon_id for row in seen.rows] == ["one", "two", "three"]
    assert [row.state for row in seen.rows] == ["completed", "running", ""]
    assert seen.rows[1] == StepRow(
        "two", "running", 1, 90.0, 0.25, 0, left="$0.75", last_file=r"b\x1b[2J.txt"
    )
    assert seen.rows[2] == StepRow("three", "")
    assert (seen.step, seen.steps, seen.seconds) == (2, 3, 90.0)
    assert seen.paid.total == pytest.approx(0.25 + seen.rows[0].cost)


def test_the_last_words_are_those_of_the_codon_that_runs() -> None:
    """The last words are a non-empty line or a tool's name, never those of the codon before."""
    assert live_after(message("first\nlast\n\n")).words == "last"
    assert live_after(message("x"), message(" \n")).words == "x"
    tool = AssistantAction(codon_id=ONE, action="tool_use", content="", tool_name="Write")
    assert live_after(message("x"), tool).words == "[Write]"
    begun = CodonStartedEvent(codon_id=ONE, codon_name="One", session_id="s", start_time=MOMENT)
    assert live_after(message("x"), begun).words == ""


def test_what_is_asked_is_shown_with_the_command_to_type_until_it_is_answered() -> None:
    """At most three are shown, oldest first; a reply removes its own, a codon's end removes all."""
    asked = [
        PermissionRequested(
            codon_id=ONE,
            request_id=f"r{number}",
            tool_name="Bash",
            tool_input={"command": f"echo \x1b{number}"},
            expires_at=MOMENT,
            reason="",
        )
        for number in range(4)
    ]
    answered = PermissionResolved(
        codon_id=ONE, request_id="r1", tool_name="Bash", decision="deny", by="client"
    )
    status = ExitStatus(type="success")
    ended = CodonCompletedEvent(codon_id=ONE, success=True, cost=0, duration=1, exit_status=status)
    state = state_of(running("one"), plan=("one",))

    def shown(*events: EventData) -> list[str]:
        seen = view(state, live_after(*events), NOW, 9)
        return [line.partition("allow ")[2][:2] for line in seen.asking]

    assert shown(*asked) == ["r0", "r1", "r2"]
    assert shown(*asked, answered) == ["r0", "r2", "r3"]
    assert shown(*asked, ended) == []
    (line,) = view(state, live_after(asked[0]), NOW, 9).asking
    assert line == r"one asks: Bash(echo \x1b0)  (hankweave allow r0, or deny)"


def test_a_sentinel_speaks_in_its_own_line() -> None:
    """The line has its name and its last message."""
    output = SentinelOutput(
        sentinel_id="narrator",
        codon_id=ONE,
        trigger_number=1,
        output_type="text",
        content="All is\nwell.",
        cost=0.0,
        tokens={},
        event_count=1,
    )
    assert live_after(output).sentinel == "narrator: well."


def test_the_next_attempt_is_counted_down() -> None:
    """A failed codon that will be retried shows the remaining seconds."""
    again = CodonRetrying(
        codon_id=ONE,
        attempt=2,
        max_attempts=3,
        delay_ms=100_000,
        failure_reason=FailureReason(type="timeout", retriable=True),
    )
    state = state_of(failed("one"), plan=("one",))
    assert view(state, live_after(again), NOW, 5).rows[0].state == "retry in 10 s"
    assert view(state, NOTHING, NOW, 5).rows[0].state == "failed"


def test_a_wait_is_counted_down_and_is_not_part_of_the_time() -> None:
    """A codon that waits for a limit shows what is left; its own time stands still."""
    since = to_text(NOW - timedelta(hours=1))
    wait = CodonWait(
        kind="usage", until=to_text(NOW + timedelta(minutes=130)), since=since, source="event"
    )
    begun = to_text(NOW - timedelta(hours=1, seconds=5))
    codon = msgspec.structs.replace(running("one"), start_time=begun, wait=wait)
    (row,) = view(state_of(codon, plan=("one",)), NOTHING, NOW, 5).rows
    assert (row.state, row.seconds) == ("waits 2 h 10 min (usage limit)", 5)


def test_only_a_window_of_a_long_plan_is_shown() -> None:
    """Of 10,000 codons those around the running one are shown, with the number of the others."""
    names = tuple(f"c{number}" for number in range(10_000))
    state = state_of(running("c5000"), plan=names)
    seen = view(state, NOTHING, NOW, 12)
    assert len(seen.rows) == 12
    assert seen.above + len(seen.rows) + seen.below == 10_000
    assert seen.rows[4].codon_id == "c5000"


@given(st.integers(0, 50), st.integers(0, 49), st.integers(1, 60))
def test_the_window_always_holds_the_codon_that_matters(total: int, at: int, room: int) -> None:
    """The window never begins before the plan or ends behind it, however large the screen is."""
    at = min(at, max(0, total - 1))
    first = first_row(total, at, room)
    assert first >= 0
    assert first <= at < first + room
    assert first + room <= max(total, room)


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_no_text_of_an_agent_keeps_a_control_character(text: str) -> None:
    """Whatever bytes the agent prints, rows and last words are printable."""
    assert one_line(text).isprintable()
    assert live_after(AgentOutput(codon_id=ONE, stream="stdout", line=text)).words.isprintable()


def test_what_is_printable_stays_as_it_is() -> None:
    """Letters of every script stay; a control sequence is escaped; line ends become spaces."""
    assert one_line("größer 地震 \x1b[31m\x9b\u202e\x07\n\u00a0.") == (
        r"größer 地震 \x1b[31m\x9b\u202e\x07  ."
    )
