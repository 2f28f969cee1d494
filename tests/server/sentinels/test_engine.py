"""Claims about running sentinels: input, calls to models, output, and their end."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hankweave_protocol.events import (
    CodonCompletedEvent,
    ErrorEvent,
    EventData,
    ExitStatus,
    SentinelError,
    SentinelLoaded,
    SentinelOutput,
    SentinelTriggered,
    SentinelUnloaded,
)
from hankweave_protocol.state import NO_SENTINELS, Tokens
from hankweave_protocol.transitions import RunCompleted, SentinelStatesUpdated
from hankweave_server.sentinels.providers.base import CallFailed, ModelCall
from hankweave_server.sentinels.strategies import TRIGGER_LIMIT
from support.events import a_file_change, a_tool_result, recorded
from support.sentinels import (
    CODON,
    RUN,
    Actor,
    a_sentinel,
    entry_of,
    info,
    on_stage,
    write,
)
from support.waiting import eventually


def failing(*, retriable: bool = True, fatal: str | None = None) -> Actor:
    failure = CallFailed("overloaded", retriable=retriable, fatal=fatal)  # type: ignore[arg-type]
    return Actor(answer=lambda call: failure)


async def test_an_event_becomes_an_answer_on_disk_and_on_the_wire(tmp_path: Path) -> None:
    """A sentinel's answer is written to its file and to an event with its cost and number."""
    actor = Actor(tokens=_tokens(120, 30))
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        await stage.process(info("one"))

        (output,) = stage.events_of(SentinelOutput)
        assert (output.content, output.cost, output.trigger_number) == ("heard one;", 0.25, 1)
        assert output.tokens == {"input": 120, "output": 30}
        (file,) = stage.outputs()
        assert file.name == f"narrator-{CODON}-{1735992000000}.md"
        assert file.read_text() == "\n---\nheard one;\n"


def _tokens(asked: int, answered: int) -> Tokens:
    return Tokens(
        input_tokens=asked, output_tokens=answered, cache_creation_tokens=0, cache_read_tokens=0
    )


async def test_loading_and_unloading_are_published(tmp_path: Path) -> None:
    """A client sees each sentinel load and unload, and the model is released."""
    async with on_stage(tmp_path, entry_of(a_sentinel())) as stage:
        (loaded,) = stage.events_of(SentinelLoaded)
        assert (loaded.sentinel_id, loaded.source, loaded.trigger_type) == (
            "narrator",
            "inline",
            "event",
        )
        await stage.watch.unload("shutdown")
        (gone,) = stage.events_of(SentinelUnloaded)
        assert gone.reason == "shutdown"
        assert stage.state.status == "unloaded"
        assert stage.actor.is_closed


async def test_a_sentinel_never_sees_sentinels(tmp_path: Path) -> None:
    """A sentinel that watches everything still does not see sentinels' events, which would loop."""
    watcher = a_sentinel(
        trigger={"type": "event", "on": ["*"]}, userPromptText="{{ events[0].type }}"
    )
    async with on_stage(tmp_path, entry_of(watcher)) as stage:
        own: list[EventData] = [entry for entry in stage.published if isinstance(entry, EventData)]
        states = SentinelStatesUpdated(run_id=RUN, codon_id=CODON, sentinels=NO_SENTINELS)
        stage.show(*own, recorded(states), info("real"))
        await stage.process(recorded(RunCompleted(run_id=RUN, end_time="2025-01-04T12:00:00.000Z")))
        assert stage.prompts == ["info", "state.transition"]


async def test_the_codon_does_not_wait_for_a_model(tmp_path: Path) -> None:
    """While a model does not answer, thousands of events are accepted without a wait."""
    actor = Actor()
    actor.may_answer = anyio.Event()
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        for number in range(5_000):
            stage.show(info(f"{number}"))

        actor.may_answer.set()
        await stage.drain()
        # One trigger may have been taken from the queue before it was full.
        assert len(stage.events_of(SentinelOutput)) in (TRIGGER_LIMIT, TRIGGER_LIMIT + 1)


async def test_dropped_events_are_reported_and_counted(tmp_path: Path) -> None:
    """The oldest triggers are dropped; the events and the state say how many."""
    actor = Actor()
    actor.may_answer = anyio.Event()
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        stage.show(info("first"))
        await actor.was_asked.wait()
        stage.show(*(info(str(number)) for number in range(TRIGGER_LIMIT + 7)))
        actor.may_answer.set()
        await stage.drain()

        errors: list[SentinelError] = stage.events_of(SentinelError)
        assert {error.error_type for error in errors} == {"triggers-dropped"}
        assert sum(error.dropped for error in errors) == 7
        assert stage.state.dropped_triggers == 7
        assert stage.state.total_triggers == TRIGGER_LIMIT + 8
        assert stage.prompts[1] == "7;"


@pytest.mark.parametrize(
    ("execution", "advance", "batches"),
    [
        ({"strategy": "immediate"}, 0.0, ["1;", "2;", "3;"]),
        ({"strategy": "debounce", "milliseconds": 500}, 0.5, ["1;2;3;"]),
        ({"strategy": "timeWindow", "milliseconds": 2000}, 2.0, ["1;2;3;"]),
        ({"strategy": "count", "threshold": 3}, 0.0, ["1;2;3;"]),
    ],
    ids=lambda value: value["strategy"] if isinstance(value, dict) else "",
)
async def test_each_strategy_calls_when_it_says(
    tmp_path: Path, execution: dict[str, object], advance: float, batches: list[str]
) -> None:
    """Only the injected clock decides when a strategy calls."""
    async with on_stage(tmp_path, entry_of(a_sentinel(execution=execution))) as stage:
        stage.show(info("1"), info("2"), info("3"))
        if advance:
            await _rests()
            assert stage.prompts == []
            stage.time.advance(advance)

        await eventually(lambda: len(stage.events_of(SentinelOutput)) >= len(batches))
        assert stage.prompts == batches


async def _rests() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_a_codons_end_flushes_what_waits(tmp_path: Path) -> None:
    """Events still held by a debounce or a count are sent to the model before the codon ends."""
    count = a_sentinel(execution={"strategy": "count", "threshold": 100})
    async with on_stage(tmp_path, entry_of(count)) as stage:
        await stage.process(info("1"), info("2"))
        assert stage.prompts == ["1;2;"]


async def test_a_codons_completion_can_be_watched(tmp_path: Path) -> None:
    """The drain runs a second time for triggers of the codon's own end (Hankweave 0.4.1)."""
    watcher = a_sentinel(
        trigger={
            "type": "event",
            "on": ["codon.completed"],
            "conditions": [{"operator": "equals", "path": "exitStatus.type", "value": "success"}],
        },
        templateEngine="eta",
        userPromptText="<%= it.events[0].data.codonId %>",
    )
    async with on_stage(tmp_path, entry_of(watcher)) as stage:
        await stage.drain()
        stage.show(
            CodonCompletedEvent(
                codon_id=CODON,
                success=True,
                cost=0.0,
                duration=1,
                exit_status=ExitStatus(type="success"),
            )
        )
        await stage.drain()
        assert stage.prompts == [str(CODON)]


async def test_a_drain_ends_at_its_deadline(tmp_path: Path) -> None:
    """A model that does not answer blocks nothing: pending triggers are dropped and reported."""
    actor = Actor()
    actor.may_answer = anyio.Event()
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        stage.show(info("1"), info("2"))
        await actor.was_asked.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.watch.drain)
            await _rests()
            stage.watch.cancel_drain()

        assert stage.state.dropped_triggers == 2
        assert sum(error.dropped for error in stage.events_of(SentinelError)) == 2
        assert stage.events_of(SentinelOutput) == []


# --- failures ---------------------------------------------------------------------------------


async def test_an_answer_forgives_the_failures_before_it(tmp_path: Path) -> None:
    """Only failures in a row count."""
    answers = iter([0, 0, 1, 0, 0])
    failure = CallFailed("busy", retriable=True)
    actor = Actor(answer=lambda call: "fine" if next(answers) else failure)
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        await stage.process(*(info(str(number)) for number in range(5)))
        assert stage.watch.is_watching


async def test_a_fatal_error_unloads_at_once_unless_configured_otherwise(tmp_path: Path) -> None:
    """A wrong key is not retried; with `unloadOnFatalError: false` it is an ordinary failure."""
    fatal = failing(retriable=False, fatal="configuration")
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=fatal) as stage:
        await stage.process(info("1"), info("2"))
        (gone,) = stage.events_of(SentinelUnloaded)
        assert (gone.reason, gone.error_type) == ("fatal-error", "configuration")

    patient = a_sentinel(errorHandling={"unloadOnFatalError": False, "maxConsecutiveFailures": 9})
    async with on_stage(tmp_path, entry_of(patient), actor=fatal) as stage:
        await stage.process(info("1"), info("2"))
        assert stage.watch.is_watching


async def test_an_endless_answer_is_a_failed_call(tmp_path: Path) -> None:
    """An endpoint that sends megabytes fills neither the journal nor the clients' connections."""
    actor = Actor(answer=lambda call: "x" * (1024 * 1024 + 1))
    async with on_stage(tmp_path, entry_of(a_sentinel()), actor=actor) as stage:
        await stage.process(info("1"))
        (error,) = stage.events_of(SentinelError)
        assert error.error_type == "llm-call-failed"
        assert stage.events_of(SentinelOutput) == []


async def test_a_prompt_that_cannot_be_rendered_drops_its_trigger_alone(tmp_path: Path) -> None:
    """The next trigger is handled normally."""
    picky = a_sentinel(userPromptText="{{ events[0].data.message.nothing.at.all }}")
    async with on_stage(tmp_path, entry_of(picky)) as stage:
        await stage.process(info("1"))
        (error,) = stage.events_of(SentinelError)
        assert (error.error_type, error.retriable) == ("template-render-failed", False)
        assert stage.prompts == []
        assert stage.watch.is_watching


async def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The error is an event and is counted, where Hankweave only logs it."""
    async with on_stage(tmp_path, entry_of(a_sentinel())) as stage:
        (file,) = stage.outputs()
        file.unlink()
        file.mkdir()
        await stage.process(info("1"))
        (error,) = stage.events_of(SentinelError)
        assert error.error_type == "file-write-failed"


async def test_a_pattern_that_would_hold_the_loop_is_given_up(tmp_path: Path) -> None:
    """A regular expression gets some milliseconds; then the sentinel is unloaded, not the codon."""
    slow = {"operator": "matches", "path": "message", "value": "(.*a){20}$"}
    trigger = {"type": "event", "on": ["info"], "conditions": [slow]}
    async with on_stage(tmp_path, entry_of(a_sentinel(trigger=trigger))) as stage:
        await stage.process(info("a" * 5000 + "b"))  # Without the limit: longer than a lifetime.
        (error,) = stage.events_of(SentinelError)
        assert error.error_type == "trigger-failed"
        (gone,) = stage.events_of(SentinelUnloaded)
        assert (gone.reason, gone.error_type) == ("fatal-error", "resource")


# --- events -----------------------------------------------------------------------------------


async def test_triggers_are_published_only_where_configured(tmp_path: Path) -> None:
    """The codon's setting takes precedence over the sentinel's; unreported triggers still run."""
    config = a_sentinel(reportToWebsocket={"triggers": True})
    quiet = {"reportToWebsocket": {"outputs": False, "lifecycle": False}}
    async with on_stage(tmp_path, entry_of(config, **quiet)) as stage:
        await stage.process(info("1"))
        (triggered,) = stage.events_of(SentinelTriggered)
        assert (triggered.strategy, triggered.event_count) == ("immediate", 1)
        assert stage.events_of(SentinelOutput) == stage.events_of(SentinelLoaded) == []
        assert (stage.state.llm_call_count, stage.state.total_cost) == (1, 0.25)


async def test_costs_add_up(tmp_path: Path) -> None:
    """The state has the cost of each sentinel and the total."""
    second = a_sentinel(id="second")
    async with on_stage(tmp_path, entry_of(a_sentinel()), entry_of(second)) as stage:
        await stage.process(info("1"), info("2"))
        states = stage.watch.states()
        assert [each.total_cost for each in states.loaded] == [0.5, 0.5]
        assert states.total_cost == 1.0


async def test_the_codon_in_a_template_is_the_codon(tmp_path: Path) -> None:
    """`codon` has the codon's name and description; Hankweave shows the sentinel's there."""
    text = "{{ codon.id }}|{{ codon.name }}|{{ it.codon.description }}|{{ sentinel.name }}"
    text += "|{{ codon.startTime }}|{{ world.currentTime }}"
    async with on_stage(tmp_path, entry_of(a_sentinel(userPromptText=text))) as stage:
        stage.show(info("1"))
        stage.time.advance(60)
        await stage.drain()
        assert stage.prompts == [
            f"{CODON}|Observe the data|Looks|Narrator|2025-01-04T11:59:00.000Z"
            "|2025-01-04T12:00:00.000Z"
        ]


async def test_the_content_of_a_file_can_be_asked_for(tmp_path: Path) -> None:
    """`content` of a file.updated is read only if a template uses it, never through a link."""
    text = "{{ events[0].data.content }}"
    watcher = a_sentinel(trigger={"type": "event", "on": ["file.updated"]}, userPromptText=text)
    async with on_stage(tmp_path, entry_of(watcher)) as stage:
        (stage.layout.work_tree / "a.md").write_text("the text")
        (tmp_path / "secret").write_text("secret")
        (stage.layout.work_tree / "link.md").symlink_to(tmp_path / "secret")
        for name in ("a.md", "link.md", "gone.md"):
            await stage.process(a_file_change(name))
        assert stage.prompts == ["the text", "", ""]


# --- loading ----------------------------------------------------------------------------------


async def test_a_missing_model_counts_as_not_loaded(tmp_path: Path) -> None:
    """A missing model counts as not loaded.

    Hankweave ignores it, so that its `failCodonIfNotLoaded` never fires.
    """
    entry = entry_of(a_sentinel(model="nobody/nothing"), failCodonIfNotLoaded=True)
    async with on_stage(tmp_path, entry, entry_of(a_sentinel(id="other"))) as stage:
        assert stage.report.loaded == ("other",)
        (failed,) = stage.report.required
        assert failed.reference == "narrator"
        (error,) = stage.events_of(ErrorEvent)
        assert (error.code, error.fatal) == ("SENTINEL_LOAD_FAILURE", True)


async def test_an_optional_sentinel_that_cannot_load_is_a_warning(tmp_path: Path) -> None:
    """The codon runs without the sentinel, and the warning is an event, not only a log line."""
    async with on_stage(tmp_path, entry_of("nowhere.json")) as stage:
        assert stage.report.required == ()
        (error,) = stage.events_of(ErrorEvent)
        assert (error.severity, error.fatal) == ("warning", False)
        assert "nowhere.json" in error.message


async def test_two_sentinels_of_a_codon_cannot_share_an_id(tmp_path: Path) -> None:
    """The second one is not loaded, because both would write the same file."""
    async with on_stage(tmp_path, entry_of(a_sentinel()), entry_of(a_sentinel())) as stage:
        assert stage.report.loaded == ("narrator",)
        assert "is already used by another" in stage.report.failed[0].message


# --- conversations ----------------------------------------------------------------------------

TALK = {"trimmingStrategy": {"type": "maxTurns", "maxTurns": 2}}


async def test_a_conversation_is_remembered_as_seed_001_has_it(tmp_path: Path) -> None:
    """Each question carries the trimmed conversation so far; the file has turns and metadata."""
    config = a_sentinel(conversational=TALK, systemPromptText="You watch {{ codon.name }}.")
    async with on_stage(tmp_path, entry_of(config)) as stage:
        await stage.process(info("1"), info("2"), info("3"), info("4"))
        last = stage.actor.calls[-1]
        assert [message.content for message in last.messages] == [
            "2;",
            "heard 2;",
            "3;",
            "heard 3;",
            "4;",
        ]
        assert last.system == "You watch Observe the data."

    path = stage.layout.sentinel_conversations / f"narrator-codon-{CODON}.json"
    assert _json(path) == {
        "turns": [
            {"role": "user", "content": "3;", "tokenCount": 1},
            {"role": "assistant", "content": "heard 3;", "tokenCount": 2},
            {"role": "user", "content": "4;", "tokenCount": 1},
            {"role": "assistant", "content": "heard 4;", "tokenCount": 2},
        ],
        "metadata": {"trimStrategy": "maxTurns", "maxTurns": 2},
    }
    async with on_stage(tmp_path, entry_of(config)) as again:
        await again.process(info("5"))
        assert len(again.actor.calls[0].messages) == 5


async def test_a_conversation_breaks_off_at_a_failure_unless_configured_otherwise(
    tmp_path: Path,
) -> None:
    """With `continueOnError`, a failure counts as it does for other sentinels."""
    config = a_sentinel(conversational=TALK, systemPromptText="x")
    async with on_stage(tmp_path, entry_of(config), actor=failing()) as stage:
        await stage.process(info("1"))
        assert not stage.watch.is_watching

    going_on = a_sentinel(conversational=TALK | {"continueOnError": True}, systemPromptText="x")
    async with on_stage(tmp_path, entry_of(going_on), actor=failing()) as stage:
        await stage.process(info("1"))
        assert stage.watch.is_watching


async def test_a_damaged_history_is_kept_aside_and_reported(tmp_path: Path) -> None:
    """The damaged history is kept in another file; Hankweave clears it."""
    config = a_sentinel(conversational=TALK, systemPromptText="x")
    name = f".hankweave/sentinels/history/narrator-codon-{CODON}.json"
    write(tmp_path, name, '[{"role": "user", "content": 1}, {"role": "assistant"}]')
    async with on_stage(tmp_path, entry_of(config)) as stage:
        (error,) = stage.events_of(SentinelError)
        assert error.error_type == "history-damaged"
        kept = [path.name for path in stage.layout.sentinel_conversations.iterdir()]
        assert [each for each in kept if ".corrupt-" in each]


# --- structured output ------------------------------------------------------------------------


async def test_structured_answers_are_checked_and_written_as_lines(tmp_path: Path) -> None:
    """An answer that does not fit the schema is a failed call; one that does is a line of JSON."""
    answers = iter(['{"risk": "high"}', '{"risk": "odd"}', "no json"])
    schema = "z.object({ risk: z.enum(['high', 'low']) })"
    config = a_sentinel(
        structuredOutput={"output": "object", "schemaStr": schema},
        output={"lastValueFile": "latest.json"},
    )
    actor = Actor(answer=lambda call: next(answers))
    async with on_stage(tmp_path, entry_of(config), actor=actor) as stage:
        await stage.process(info("1"), info("2"), info("3"))
        (output,) = stage.events_of(SentinelOutput)
        assert (output.output_type, output.content) == ("structured", {"risk": "high"})
        assert len(stage.events_of(SentinelError)) == 2
        latest, log = sorted(stage.outputs(), key=lambda path: path.suffix)
        assert _json(latest) == {"risk": "high"}
        assert log.suffix == ".ndjson"
        assert log.read_text() == '{"risk": "high"}\n'


def _json(path: Path) -> object:
    return json.loads(path.read_text())


async def test_a_condition_reads_what_the_event_says(tmp_path: Path) -> None:
    """Only events for which all conditions hold cause a call."""
    failed = {"operator": "equals", "path": "isError", "value": True}
    trigger = {"type": "event", "on": ["tool.result"], "conditions": [failed]}
    config = a_sentinel(trigger=trigger, userPromptText="{{ events[0].data.toolUseId }}")
    async with on_stage(tmp_path, entry_of(config)) as stage:
        await stage.process(a_tool_result("good"), a_tool_result("bad", is_error=True))
        assert stage.prompts == ["bad"]


async def test_a_call_has_the_parameters_of_its_configuration(tmp_path: Path) -> None:
    """Retries, tokens and temperature are passed to the model unchanged."""
    params = {"temperature": 0.5, "maxOutputTokens": 100, "maxRetries": 4}
    async with on_stage(tmp_path, entry_of(a_sentinel(llmParams=params))) as stage:
        await stage.process(info("1"))
        call: ModelCall = stage.actor.calls[0]
        assert (call.temperature, call.max_output_tokens, call.max_retries) == (0.5, 100, 4)
