"""Spans and measurements, as the events of an execution are translated to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from hankweave_protocol.events import (
    AssistantAction,
    CheckCompleted,
    CheckpointRollback,
    CodonExtended,
    CodonResumed,
    CodonRetrying,
    CodonWaiting,
    CodonWarning,
    Event,
    EventData,
    PermissionRequested,
    PermissionResolved,
    RigSetupFailed,
    RollbackCompleted,
    RollbackFailed,
    RollbackStarted,
    SentinelUnloaded,
    ServerDegraded,
    ServerStarted,
    ServerStopping,
    ToolResult,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.instants import to_text
from hankweave_protocol.state import EMPTY_STATE as EMPTY
from hankweave_protocol.state import CodonExecution, FailedCodon, FailureReason, Run, State
from hankweave_protocol.transitions import (
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    CurrentRunCleared,
    PlanSet,
    RunCompleted,
    RunCrashed,
    RunFailed,
    RunStarted,
)
from hankweave_server.domain.lifecycle import status_of
from hankweave_server.features.tracing import conventions as names
from hankweave_server.features.tracing.spans import (
    MOST_EVENTS,
    Exported,
    Measurement,
    Span,
    links_of,
    provider_of,
    span_id_of_codon,
    span_id_of_run,
    trace_id_of,
    traceparent,
)
from hankweave_server.features.tracing.translation import (
    CALLS_A_SECOND,
    MOST_TOOLS,
    OTHER,
    Tracing,
)
from hankweave_server.ledger.batch import About, Entry, compose
from support.histories import (
    SteppingClock,
    a_checkpoint,
    a_plan,
    a_run,
    completed,
    completing,
    failed,
    initializing,
    preparing,
    running,
    sha,
    skipped,
    some_tokens,
    starting,
)

OBSERVE, REVIEW = CodonId("observe"), CodonId("review#2")
ONE, TWO = RunId("run-1"), RunId("run-2")
SECRET = "what-an-agent-or-a-person-wrote"
LATER = "2026-11-22T03:00:00.000Z"


@dataclass
class Story:
    """A journal that is being written, with the state after each event."""

    clock: SteppingClock = field(default_factory=SteppingClock)
    events: list[Event] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.states[-1] if self.states else EMPTY

    def now(self) -> str:
        return to_text(self.clock.now())

    def append(self, *entries: Entry, codon: CodonId | None = None) -> None:
        for entry in entries:
            about = About(None, codon)
            (published,), state = compose(
                self.state, (entry,), about, clock=self.clock, new_id=lambda: str(uuid4())
            )
            self.events.append(published.event)
            self.states.append(state)

    def begin(self, run: Run) -> None:
        self.append(RunStarted(run=msgspec.structs.replace(run, start_time=self.now())))

    def start(self, name: str) -> None:
        record = msgspec.structs.replace(preparing(name), start_time=self.now())
        self.append(
            CodonStarted(run_id=self.state.runs[0].run_id, codon=record), codon=CodonId(name)
        )

    def move(self, *records: CodonExecution) -> None:
        for record in records:
            current = self.state.runs[0].codons[-1]
            changed: dict[str, object] = {"start_time": current.start_time}
            if hasattr(record, "end_time"):
                changed["end_time"] = self.now()

            moved = msgspec.structs.replace(record, **changed)
            self.append(
                CodonTransitioned(
                    run_id=self.state.runs[0].run_id, from_status=status_of(current), codon=moved
                ),
                codon=record.codon_id,
            )

    def call(self, call: str, *, tool: str = "Write") -> None:
        codon = OBSERVE
        self.append(
            AssistantAction(
                codon_id=codon,
                action="tool_use",
                content=SECRET,
                tool_name=tool,
                tool_input={"path": SECRET},
                tool_use_id=call,
            ),
            codon=codon,
        )

    def back(self, call: str, *, is_error: bool = False, codon: CodonId = OBSERVE) -> None:
        self.append(
            ToolResult(
                codon_id=codon,
                tool_use_id=call,
                tool_name="Write",
                result=SECRET,
                truncated=False,
                original_length=3,
                execution_time_ms=1,
                is_error=is_error,
            ),
            codon=codon,
        )

    def exported(self, tracing: Tracing, since: int = 0) -> list[Exported]:
        pairs = zip(self.events[since:], self.states[since:], strict=True)
        return [each for event, state in pairs for each in tracing.handle(event, state)]


def spans_of(exported: Iterable[Exported]) -> list[Span]:
    return [each for each in exported if isinstance(each, Span)]


def measured(exported: Iterable[Exported], name: str) -> list[Measurement]:
    found = (each for each in exported if isinstance(each, Measurement))
    return [each for each in found if each.instrument.name == name]


def named(spans: Iterable[Span], name: str) -> Span:
    (span,) = (span for span in spans if span.name == name)
    return span


def recorded(name: str) -> tuple[EventData, ...]:
    """Return one event of each kind that a codon's span tells, with content in every text."""
    codon = CodonId(name)
    return (
        CodonWaiting(
            codon_id=codon, until=LATER, reason="usage", source="event", number=1, message=SECRET
        ),
        CodonResumed(codon_id=codon, by="time", waited_ms=5),
        CodonExtended(
            codon_id=codon,
            codon_name="Observe",
            extension_number=1,
            exhaust_with_prompt=SECRET,
            cumulative_tokens=1,
            cumulative_cost=1.0,
        ),
        CodonWarning(codon_id=codon, kind="tools-refused", message=SECRET),
        PermissionRequested(
            codon_id=codon,
            request_id="r1",
            tool_name="Bash",
            tool_input={"command": SECRET},
            expires_at=LATER,
            reason=SECRET,
        ),
        PermissionResolved(
            codon_id=codon,
            request_id="r1",
            tool_name="Bash",
            decision="deny",
            by="client",
            message=SECRET,
        ),
        CheckCompleted(
            codon_id=codon,
            check_index=0,
            command=SECRET,
            passed=False,
            duration_ms=3,
            output=SECRET,
            exit_code=1,
            message=SECRET,
            ignored=False,
        ),
        RigSetupFailed(
            codon_id=codon,
            failure_type="command",
            exit_code=1,
            command_index=0,
            ignored=True,
            message=SECRET,
        ),
    )


def checkpoint(kind: str, run_id: RunId, codon: CodonId | None, number: int) -> CheckpointCreated:
    record = a_checkpoint(kind, run_id, codon, number)  # type: ignore[arg-type]
    return CheckpointCreated(checkpoint=msgspec.structs.replace(record, label=SECRET))


def failure() -> FailedCodon:
    reason = FailureReason(type="timeout", retriable=True, message=SECRET)
    record = msgspec.structs.replace(failed("review#2"), failure_reason=reason)
    assert isinstance(record, FailedCodon)
    return record


def a_story() -> Story:
    """A run with two codons, one of which fails, and a rollback to a second run."""
    story = Story()
    story.append(
        ServerStarted(server_version="1", pid=1),
        PlanSet(execution_plan=a_plan("observe", "review#2")),
    )
    story.begin(a_run(ONE))
    story.append(checkpoint("initial", ONE, None, 1))
    story.start("observe")
    story.move(starting(), initializing(), running())
    story.call("t1")
    story.back("t1")
    story.append(checkpoint("tool", ONE, OBSERVE, 2))
    story.call("t2")
    story.append(*recorded("observe"), codon=OBSERVE)
    story.back("t2", is_error=True)
    story.call("t3")
    story.append(checkpoint("completed", ONE, OBSERVE, 3))
    paid = msgspec.structs.replace(completed(), final_cost=1.5, final_tokens=some_tokens())
    story.move(completing(), paid)
    story.append(
        SentinelUnloaded(
            sentinel_id="narrator",
            codon_id=OBSERVE,
            reason="codon-complete",
            final_cost=0.25,
            llm_call_count=1,
        )
    )
    story.start("review#2")
    story.move(starting("review#2"), initializing("review#2"), running("review#2"))
    story.move(failure())
    story.append(
        CodonRetrying(
            codon_id=REVIEW,
            attempt=2,
            max_attempts=2,
            delay_ms=5,
            failure_reason=FailureReason(type="timeout", retriable=True, message=SECRET),
        ),
        ServerDegraded(code="disk-full", message=SECRET, since=LATER),
    )
    story.append(RunFailed(run_id=ONE, end_time=story.now()))
    story.append(
        RollbackStarted(
            from_run=ONE,
            from_codon=REVIEW,
            to_codon=OBSERVE,
            to_checkpoint=sha(3),
            checkpoint_type="completed",
            codons_to_process=(REVIEW,),
        )
    )
    story.begin(a_run(TWO, after=ONE))
    at = a_checkpoint("completed", ONE, OBSERVE, 3)
    story.append(
        RollbackCompleted(
            from_run=ONE,
            to_run=TWO,
            checkpoint=at.sha,
            codon_id=OBSERVE,
            codon_name="Observe",
            checkpoint_type="completed",
            auto_restart=True,
            reason=SECRET,
        ),
        RollbackFailed(target=at.coordinate, message=SECRET),
        CheckpointRollback(
            operation_id="o",
            checkpoint=at.sha,
            source=None,
            target=at.coordinate,
            paths=(SECRET,),
            report=None,
            reason=SECRET,
        ),
    )
    story.start("review#2")
    story.move(skipped("review#2"))
    story.append(ServerStopping(reason=SECRET))
    story.append(RunCompleted(run_id=TWO, end_time=story.now()))
    story.append(CurrentRunCleared(run_id=TWO))
    return story


def an_agent_at_work() -> Story:
    """A run whose only codon has just begun."""
    story = Story()
    story.append(PlanSet(execution_plan=a_plan("observe")))
    story.begin(a_run(ONE))
    story.start("observe")
    story.move(starting(), initializing(), running())
    return story


def test_runs_codons_and_calls_are_a_tree() -> None:
    """Each run is a trace; a codon is a child of its run, and a tool call of its codon."""
    story = a_story()
    spans = spans_of(story.exported(Tracing("nightly")))
    assert [(span.name, span.error) for span in spans] == [
        ("execute_tool Write", ""),
        ("execute_tool Write", "tool_error"),
        ("execute_tool Write", "unfinished"),
        ("invoke_agent observe", ""),
        ("invoke_agent review", "timeout"),
        ("invoke_workflow nightly", "failed"),
        ("invoke_agent review", ""),
        ("invoke_workflow nightly", ""),
    ]
    two, one = story.state.runs
    observe, review = one.codons
    roots = [span_id_of_run(one), span_id_of_run(two)]
    assert [span.parent_id for span in spans] == [
        *[span_id_of_codon(ONE, observe)] * 3,
        *[roots[0]] * 2,
        None,
        roots[1],
        None,
    ]
    assert [span.span_id for span in spans[3:6]] == [
        span_id_of_codon(ONE, observe),
        span_id_of_codon(ONE, review),
        roots[0],
    ]
    assert {span.trace_id for span in spans[:6]} == {trace_id_of(ONE)}
    assert {span.trace_id for span in spans[6:]} == {trace_id_of(TWO)}
    assert len({span.span_id for span in spans}) == len(spans)
    assert all(span.start <= span.end for span in spans)


def test_the_attributes_are_those_of_the_conventions() -> None:
    """The name of a codon in a loop is without its iteration; cached tokens are input tokens."""
    spans = spans_of(a_story().exported(Tracing("nightly")))
    call, observe, review = spans[0].attributes, spans[3].attributes, spans[4].attributes
    assert call == {
        names.OPERATION: "execute_tool",
        names.TOOL: "Write",
        names.TOOL_CALL: "t1",
        names.TOOL_TYPE: "function",
        names.AGENT: "observe",
    }
    assert observe[names.OPERATION] == "invoke_agent"
    assert (observe[names.AGENT], observe[names.MODEL]) == ("observe", "sonnet")
    assert observe["gen_ai.provider.name"] == "anthropic"
    assert (observe[names.INPUT_TOKENS], observe[names.OUTPUT_TOKENS]) == (200, 100)
    assert observe["gen_ai.usage.cache_read.input_tokens"] == some_tokens().cache_read_tokens
    cached = some_tokens().cache_creation_tokens
    assert observe["gen_ai.usage.cache_creation.input_tokens"] == cached
    assert not [name for name in observe if name.startswith("hankweave.usage")]
    assert observe[names.CHECKPOINTS] == 2
    assert (review[names.AGENT], review[names.CODON]) == ("review", "review#2")
    assert review[names.ERROR] == "timeout"
    root = spans[5].attributes
    assert (root[names.OPERATION], root[names.AGENT]) == ("invoke_workflow", "nightly")
    assert (root[names.RUN], root[names.RUN_STATUS]) == (ONE, "failed")


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("sonnet", "anthropic"),
        ("gpt-5.4", "openai"),
        ("google/gemini-3-pro-preview", "gcp.gemini"),
        ("bedrock/anthropic.claude-opus-4", "aws.bedrock"),
        ("xai/grok-5", "x_ai"),
        ("openrouter/deepseek/some-model", "deepseek"),
        ("no-such-model", None),
    ],
)
def test_a_model_has_its_provider(model: str, provider: str | None) -> None:
    """By its name in the conventions; what is not known is left out."""
    codon = msgspec.structs.replace(a_plan("one")[0].codon, model=model)
    assert provider_of(codon) == provider


def test_no_event_lies_outside_its_span() -> None:
    """One that happened before, such as the server's start, says how long before."""
    spans = spans_of(a_story().exported(Tracing("nightly")))
    for span in spans:
        assert all(span.start <= event.time <= span.end for event in span.events)

    before = {
        event.name for span in spans for event in span.events if names.BEFORE in event.attributes
    }
    assert before >= {"hankweave.server.started", "hankweave.rollback.started"}


def test_a_branch_is_linked_as_one() -> None:
    """It begins as after a rollback, which did not happen in it; later runs are what they are."""
    story = a_story()
    (run,) = (each for each in story.states[-1].runs if each.run_id == TWO)
    links = [dict(each.attributes) for each in links_of(run, story.states[-1], TWO)]
    assert links == [{names.LINK: "branch"}]
    assert dict(next(links_of(run, story.states[-1])).attributes) == {names.LINK: "rollback"}


def test_what_happens_in_between_is_an_event_of_its_span() -> None:
    """Events between two runs belong to the next one; steps are counted, not listed."""
    spans = spans_of(a_story().exported(Tracing("nightly")))
    first, second = (span for span in spans if span.name == "invoke_workflow nightly")
    assert [event.name for event in named(spans, "invoke_agent observe").events] == [
        *(f"hankweave.{each.TYPE}" for each in recorded("observe")),
        "hankweave.checkpoint.created",
    ]
    assert [event.name for event in first.events] == [
        "hankweave.server.started",
        "hankweave.checkpoint.created",
        "hankweave.codon.retrying",
        "hankweave.server.degraded",
    ]
    assert [event.name for event in second.events] == [
        "hankweave.rollback.started",
        "hankweave.rollback.completed",
        "hankweave.rollback.failed",
        "hankweave.server.stopping",
    ]
    assert [(link.span_id, link.attributes) for link in second.links] == [
        (first.span_id, {names.LINK: "rollback"})
    ]


@pytest.mark.parametrize("with_content", [False, True])
def test_content_is_exported_on_request_alone(with_content: bool) -> None:
    """Names, numbers and times are enough for a trace."""
    exported = a_story().exported(Tracing("nightly", with_content=with_content))
    assert (SECRET in repr(exported)) is with_content
    if with_content:
        call, _, _, observe, review, *_ = spans_of(exported)
        assert SECRET in str(call.attributes[names.TOOL_ARGUMENTS])
        assert call.attributes[names.TOOL_RESULT] == SECRET
        assert review.error == SECRET
        assert {SECRET in repr(event) for event in observe.events} >= {True}


def test_figures_are_measured_when_they_are_final() -> None:
    """Durations are those of the spans; tokens and costs count once for each attempt."""
    exported = a_story().exported(Tracing("nightly"))
    spans = spans_of(exported)
    lasting = [(span.end - span.start) / 1e9 for span in spans if "invoke" in span.name]
    durations = measured(exported, "gen_ai.invoke_agent.duration")
    assert [each.value for each in durations] == lasting
    assert durations[1].attributes == {
        names.OPERATION: "invoke_agent",
        names.AGENT: "review",
        names.ERROR: "timeout",
    }
    which = {names.TOOL: "Write", names.TOOL_TYPE: "function", names.AGENT: "observe"}
    assert [each.attributes for each in measured(exported, "gen_ai.execute_tool.duration")] == [
        which,
        {**which, names.ERROR: "tool_error"},
    ]
    calls = measured(exported, "gen_ai.invoke_agent.tool_calls")
    assert [each.value for each in calls] == [2, 0, 0]
    sources = [each.attributes[names.COST_SOURCE] for each in measured(exported, "hankweave.cost")]
    assert sources[:2] == ["agent", "sentinel"]
    tokens = measured(exported, "hankweave.tokens")
    assert {each.attributes[names.TOKEN_TYPE] for each in tokens} >= {"input", "output"}


def test_another_server_ends_what_one_has_begun() -> None:
    """Wherever a server ends, both together export what one alone would, each span once."""
    story = a_story()
    whole = spans_of(story.exported(Tracing("nightly")))
    for ended in range(len(story.events) + 1):
        begun = Tracing("nightly")
        pairs = list(zip(story.events[:ended], story.states[:ended], strict=True))
        before = [each for event, state in pairs for each in begun.handle(event, state)]
        state = story.states[ended - 1] if ended else EMPTY
        follows = Tracing("nightly")
        follows.restore_spans(state, story.events[:ended])
        parts = spans_of([*before, *story.exported(follows, since=ended)])
        is_open = bool(state.runs) and state.runs[0].status == "running"
        if not is_open:  # What was noted for the next run is lost with the server.
            parts = [replace(span, events=[]) for span in parts]

        expected = whole if is_open else [replace(span, events=[]) for span in whole]
        assert parts == expected, f"after event {ended}"


def test_events_before_a_run_are_not_taken_for_its_own() -> None:
    """The journal is read in pages, which begin anywhere in the run before."""
    story = a_story()
    kinds = [getattr(event.data, "transition_type", "") for event in story.events]
    (failed_at,) = (at for at, kind in enumerate(kinds) if kind == "RunFailed")
    ended = len(story.events) - 3
    (expected,) = (span for span in spans_of(story.exported(Tracing("nightly"))) if span.links)
    for first in range(failed_at + 1):
        follows = Tracing("nightly")
        follows.restore_spans(story.states[ended - 1], story.events[first:ended])
        *_, run = spans_of(story.exported(follows, since=ended))
        assert run == expected, f"from event {first}"


def test_a_run_whose_journal_is_too_long_is_ended_all_the_same() -> None:
    """Without any of its events, its spans are as they were named; what happened is unknown."""
    story = an_agent_at_work()
    agent = traceparent(ONE, story.state.runs[0].codons[0], is_sampled=True)
    follows = Tracing("nightly")
    follows.restore_spans(story.state, [])
    since = len(story.events)
    story.move(failed())
    story.append(RunCrashed(run_id=ONE, end_time=story.now(), server_pid=1))
    codon, run = spans_of(story.exported(follows, since=since))
    assert agent == f"00-{codon.trace_id:032x}-{codon.span_id:016x}-01"
    assert (codon.parent_id, run.error) == (run.span_id, "crashed")


def test_the_page_has_the_names_and_their_version() -> None:
    """The page on tracing has each metric with its unit, and the version of the conventions."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "tracing.md").read_text()
    assert f"version {names.VERSION}" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for each in names.INSTRUMENTS:
        assert any(f"`{each.name}`" in row and f"| {each.unit} |" in row for row in rows), each.name


def test_a_clock_that_is_set_back_makes_no_negative_duration() -> None:
    story = Story()
    story.begin(a_run(ONE))
    story.append(RunCompleted(run_id=ONE, end_time="2020-01-01T00:00:00.000Z"))
    exported = story.exported(Tracing("nightly"))
    (run,) = spans_of(exported)
    assert run.end == run.start
    assert [each.value for each in measured(exported, names.INVOKE_DURATION.name)] == [0.0]


def test_a_flood_is_counted() -> None:
    """A span has a limited number of events, and a second a limited number of tool calls."""
    story = an_agent_at_work()
    for number in range(CALLS_A_SECOND + 5):
        story.call(f"t{number}")
        story.back(f"t{number}")

    for _ in range(MOST_EVENTS + 3):
        story.append(recorded("observe")[0], codon=OBSERVE)

    story.move(completing(), completed())
    exported = story.exported(Tracing("nightly"))
    *calls, codon = spans_of(exported)
    assert len(calls) == CALLS_A_SECOND
    assert codon.attributes[names.CALLS_LEFT_OUT] == 5
    assert (len(codon.events), codon.attributes[names.LEFT_OUT]) == (MOST_EVENTS, 3)
    (count,) = measured(exported, names.TOOL_CALLS.name)
    assert count.value == CALLS_A_SECOND + 5


def test_an_agent_cannot_make_up_names_without_end() -> None:
    """Each would be a time series; a name that was seen before stays as it is."""
    story = an_agent_at_work()
    used = [*(f"tool-{number}" for number in range(MOST_TOOLS)), "one-more", "x" * 5000, "tool-7"]
    for number, tool in enumerate(used):
        story.clock.moment += timedelta(seconds=1)
        story.call(f"t{number}", tool=tool)
        story.back(f"t{number}")

    spans = spans_of(story.exported(Tracing("nightly")))
    exported = [span.attributes[names.TOOL] for span in spans]
    assert exported == [*used[:MOST_TOOLS], OTHER, OTHER, "tool-7"]
