"""Run one sentinel: turn events into triggers, and triggers into model calls, one at a time.

`Sentinel.observe` runs for every event of the codon, so it only matches the trigger and queues the
result. The calls are made by `Sentinel.work`, a task of the sentinel's own. That task also emits
the events of triggers, answers and failures, so they are in order.

Parts: `Tally` counts calls and costs for state.json. `Answering` gets from a trigger to a written
answer: prompt, call, check, files. `SentinelEvents` emits the sentinel's events, except those that
the configuration turns off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from hankweave_protocol.events import (
    EventData,
    SentinelError,
    SentinelLoaded,
    SentinelOutput,
    SentinelTriggered,
    SentinelUnloaded,
)
from hankweave_protocol.hank import SentinelReports
from hankweave_protocol.state import SentinelState, Tokens
from hankweave_server.plain_text import acted_on
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.sentinels.context import Question, SentinelContext, question_of
from hankweave_server.sentinels.conversation import SentinelConversation
from hankweave_server.sentinels.failures import SentinelFailure, UnloadReason
from hankweave_server.sentinels.outputs import SentinelOutputs
from hankweave_server.sentinels.providers.base import (
    CallFailed,
    FatalKind,
    Message,
    Model,
    ModelAnswer,
    ModelCall,
)
from hankweave_server.sentinels.strategies import Backlog, Batch, PendingTrigger, strategy_of
from hankweave_server.sentinels.structured import BadAnswer
from hankweave_server.sentinels.templates.base import NotRendered, RenderLimit
from hankweave_server.sentinels.triggers import SeenEvent, TooSlow, trigger_of


@dataclass(slots=True)
class Tally:
    """The counters of one sentinel in one codon; costs in USD, times as text."""

    id: str
    model: str
    loaded_at: str
    calls: int = 0
    failed_calls: int = 0
    triggers: int = 0
    dropped: int = 0
    cost: float = 0.0
    last_call_at: str | None = None
    unloaded_at: str | None = None
    unload_reason: str | None = None

    def take_over(self, before: SentinelState) -> None:
        """Count on from what the sentinel had done under an earlier server."""
        self.loaded_at = before.loaded_at
        self.calls, self.failed_calls = before.llm_call_count, before.failed_llm_calls
        self.triggers, self.dropped = before.total_triggers, before.dropped_triggers
        self.cost, self.last_call_at = before.total_cost, before.last_llm_call_at

    @property
    def state(self) -> SentinelState:
        return SentinelState(
            id=self.id,
            model=self.model,
            loaded_at=self.loaded_at,
            llm_call_count=self.calls,
            failed_llm_calls=self.failed_calls,
            total_triggers=self.triggers,
            total_cost=self.cost,
            status="active" if self.unloaded_at is None else "unloaded",
            unloaded_at=self.unloaded_at,
            last_llm_call_at=self.last_call_at,
            unload_reason=self.unload_reason,
            dropped_triggers=self.dropped,
        )


LONGEST_CALL = 600.0
"""Seconds for one call with all its retries; bounds an endpoint that sends very slowly."""

LARGEST_ANSWER = 1024 * 1024
"""Characters; an answer becomes an event that every client gets."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SentinelAnswer:
    """The result of a trigger."""

    content: Any
    tokens: Tokens
    cost: float


@dataclass(frozen=True, slots=True)
class Answering:
    """The steps from a trigger to an answer; each may raise Failure, and the tally has the cost."""

    loaded: LoadedConfig
    model: Model
    outputs: SentinelOutputs
    conversation: SentinelConversation | None
    ctx: SentinelContext
    tally: Tally

    async def answer(self, trigger: PendingTrigger) -> SentinelAnswer:
        """Call the model for a trigger and write the answer to the files."""
        question = await self._question(trigger)
        answer, cost = await self._ask(question)
        content = await self._content(answer)
        await self._write(question, answer, content)
        return SentinelAnswer(content, answer.tokens, cost)

    async def _question(self, trigger: PendingTrigger) -> Question:
        ctx = self.ctx
        try:
            return await self._in_thread(
                question_of, self.loaded, ctx.codon, trigger, ctx.work_tree
            )
        except NotRendered as error:
            fatal: FatalKind | None = "resource" if isinstance(error, RenderLimit) else None
            raise SentinelFailure(
                "template-render-failed", str(error), retriable=False, fatal=fatal
            ) from None

    async def _ask(self, question: Question) -> tuple[ModelAnswer, float]:
        tally = self.tally
        tally.calls += 1
        tally.last_call_at = self.ctx.now_text()
        try:
            with anyio.fail_after(LONGEST_CALL):
                answer = await self.model.ask(self._call(question))
        except CallFailed as error:
            tally.failed_calls += 1
            raise SentinelFailure(
                "llm-call-failed", error.message, retriable=error.retriable, fatal=error.fatal
            ) from None
        except TimeoutError:
            tally.failed_calls += 1
            message = f"The model did not answer within {LONGEST_CALL:g} s."
            raise SentinelFailure("llm-call-failed", message, retriable=True) from None

        if len(answer.text) > LARGEST_ANSWER:
            tally.failed_calls += 1
            message = f"The answer is longer than {LARGEST_ANSWER} characters."
            raise SentinelFailure("llm-call-failed", message, retriable=True)

        cost = self.ctx.price(self.loaded.config.model, answer.tokens) or 0.0
        tally.cost += cost
        return answer, cost

    def _call(self, question: Question) -> ModelCall:
        params = self.loaded.config.llm_params
        remembered = () if self.conversation is None else self.conversation.messages
        return ModelCall(
            messages=(*remembered, Message("user", question.prompt)),
            system=question.system,
            form=self.loaded.form,
            max_output_tokens=params.max_output_tokens,
            temperature=params.temperature,
            max_retries=params.max_retries,
        )

    async def _content(self, answer: ModelAnswer) -> Any:
        form = self.loaded.form
        if form is None:
            return answer.text

        try:
            return await self._in_thread(form.content_of, answer.text)
        except BadAnswer as error:
            self.tally.failed_calls += 1
            raise SentinelFailure("llm-call-failed", str(error), retriable=True) from None

    async def _write(self, question: Question, answer: ModelAnswer, content: Any) -> None:
        """Write the log first and then the conversation, which so has only logged answers."""
        try:
            await self._in_thread(self.outputs.write, content, self.ctx.now_text())
            if self.conversation is not None:
                counted = answer.tokens.output_tokens or None
                remember = functools.partial(self.conversation.add, answered=counted)
                await self._in_thread(remember, question.prompt, answer.text)
        except OSError as error:
            raise SentinelFailure("file-write-failed", str(error), retriable=True) from None

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self.ctx.threads)


class SentinelEvents:
    """The events of one sentinel.

    Each of them also publishes the sentinels' states, even if the configuration turns the event
    off.
    """

    def __init__(self, loaded: LoadedConfig, ctx: SentinelContext) -> None:
        self._loaded = loaded
        self._ctx = ctx
        self._about: dict[str, Any] = {
            "sentinel_id": loaded.config.id,
            "codon_id": ctx.codon_id,
        }
        own = loaded.config.report_to_websocket or SentinelReports()
        said = loaded.settings.report_to_websocket or SentinelReports()
        # As in Hankweave (reportToWebsocket), the codon's setting overrides the sentinel's.
        self._lifecycle = _first(said.lifecycle, own.lifecycle, True)
        self._errors = _first(said.errors, own.errors, True)
        self._outputs = _first(said.outputs, own.outputs, True)
        self._triggers = _first(said.triggers, own.triggers, False)

    async def loaded(self) -> None:
        loaded, config = self._loaded, self._loaded.config
        event = SentinelLoaded(
            **self._about,
            model=config.model,
            trigger_type="event" if _tag(config.trigger) == "event" else "sequence",
            execution_strategy=_tag(config.execution),
            conversational=config.conversational is not None,
            source=loaded.source,
            source_path=loaded.source_path,
        )
        await self._publish(event, self._lifecycle)

    async def unloaded(
        self, reason: UnloadReason, tally: Tally, error_type: FatalKind | None
    ) -> None:
        event = SentinelUnloaded(
            **self._about,
            reason=reason,
            final_cost=tally.cost,
            llm_call_count=tally.calls,
            error_type=error_type,
        )
        await self._publish(event, self._lifecycle)

    async def triggered(self, trigger: PendingTrigger, waiting: int) -> None:
        if not self._triggers:
            return  # The states are published with the answer.

        event = SentinelTriggered(
            **self._about,
            trigger_number=trigger.number,
            strategy=_tag(self._loaded.config.execution),
            event_count=len(trigger.frames),
            queue_size=waiting,
        )
        await self._ctx.publish(event)

    async def answered(
        self, trigger: PendingTrigger, content: Any, tokens: Tokens, cost: float
    ) -> None:
        event = SentinelOutput(
            **self._about,
            trigger_number=trigger.number,
            output_type="text" if self._loaded.form is None else "structured",
            content=content if isinstance(content, str | dict | list) else str(content),
            cost=cost,
            tokens=_counts(tokens),
            event_count=len(trigger.frames),
        )
        await self._publish(event, self._outputs)

    async def failed(self, failure: SentinelFailure, in_a_row: int, dropped: int = 0) -> None:
        event = SentinelError(
            **self._about,
            error_type=failure.type,
            message=failure.message,
            retriable=failure.retriable,
            consecutive_failure_count=in_a_row,
            dropped=dropped,
        )
        await self._publish(event, self._errors)

    async def _publish(self, event: EventData, is_wanted: bool) -> None:
        await self._ctx.publish(*((event,) if is_wanted else ()))


def _first(*choices: bool | None) -> bool:
    return next(choice for choice in choices if choice is not None)


def _tag(part: Any) -> str:
    """Return the name of a trigger or strategy in configurations."""
    tag = type(part).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def _counts(tokens: Tokens) -> dict[str, int]:
    asked = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    return {"input": asked, "output": tokens.output_tokens}


class Sentinel:
    """A loaded sentinel; `work` must run as a task."""

    def __init__(
        self,
        loaded: LoadedConfig,
        model: Model,
        outputs: SentinelOutputs,
        conversation: SentinelConversation | None,
        ctx: SentinelContext,
        before: SentinelState | None = None,
    ) -> None:
        """`before`: what it had done in this codon under an earlier server."""
        self.config = loaded.config
        self.outputs = outputs
        self.voice = SentinelEvents(loaded, ctx)
        self._model = model
        self._ctx = ctx
        self._trigger = trigger_of(loaded.config.trigger)
        self._strategy = strategy_of(loaded.config, ctx.clock.monotonic())
        self._backlog = Backlog()
        self._tally = Tally(loaded.config.id, loaded.config.model, ctx.now_text())
        if before is not None:
            self._tally.take_over(before)

        self._answering = Answering(loaded, model, outputs, conversation, ctx, self._tally)
        self._failures_in_a_row = 0
        self._unreported_drops = 0
        self._broken: SentinelFailure | None = None
        """A condition that could not be evaluated; the task reports it and ends."""
        self._is_unloaded = False
        self._wake = anyio.Event()
        self._quiet = anyio.Event()
        self._quiet.set()
        self._call_scope: anyio.CancelScope | None = None

    @property
    def state(self) -> SentinelState:
        return self._tally.state

    # --- seeing -------------------------------------------------------------------------------

    def observe(self, seen: SeenEvent) -> None:
        """Process an event; never waits or raises, and uses bounded memory."""
        if self._is_unloaded or self._broken is not None:
            return

        try:
            firing = self._trigger.take(seen)
        except TooSlow as slow:
            self._broken = SentinelFailure(
                "trigger-failed", str(slow), retriable=False, fatal="resource"
            )
            self._wake_up()
            return

        if firing is not None:
            self._queue(self._strategy.add(firing, self._ctx.clock.monotonic()))
            self._wake.set()

    def flush(self) -> None:
        """Make a last trigger of the firings that the strategy still holds."""
        if not self._is_unloaded:
            self._queue(self._strategy.flush())

    def _queue(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._tally.triggers += 1
            trigger = PendingTrigger(self._tally.triggers, batch, self._ctx.now_text())
            self._drop(self._backlog.push(trigger))
            self._wake_up()

    def _drop(self, count: int) -> None:
        self._tally.dropped += count
        self._unreported_drops += count

    def _wake_up(self) -> None:
        """Wake the task up."""
        if self._quiet.is_set():
            self._quiet = anyio.Event()

        self._wake.set()

    # --- the task -----------------------------------------------------------------------------

    async def work(self) -> None:
        """Process triggers until the sentinel is unloaded."""
        while not self._is_unloaded:
            await self._ctx.wait(self._wake, self._rest())
            if self._is_unloaded:
                break

            self._wake = anyio.Event()
            self._queue(self._strategy.at(self._ctx.clock.monotonic()))
            await self._report_drops()
            while not self._is_unloaded and (trigger := self._next()) is not None:
                await self._attempt(trigger)
                await self._report_drops()

            if self._broken is not None and not self._is_unloaded:
                await self._fail(self._broken)
                await self.unload("fatal-error", "resource")

            if not self._backlog and not self._unreported_drops:
                self._quiet.set()

        self._quiet.set()

    async def settle(self) -> None:
        """Wait until all triggers are processed."""
        while not self._quiet.is_set():
            await self._quiet.wait()

    def abandon(self) -> None:
        """Drop pending triggers and the running call; both are counted as dropped."""
        if self._is_unloaded:
            return

        self._drop(self._backlog.clear())
        if self._call_scope is not None:
            self._call_scope.cancel()

        self._wake_up()

    async def unload(self, reason: UnloadReason, error_type: FatalKind | None = None) -> None:
        """End the sentinel; pending triggers are dropped and reported. Idempotent."""
        if self._is_unloaded:
            return

        self._is_unloaded = True
        self._drop(self._backlog.clear())
        self._tally.unloaded_at = self._ctx.now_text()
        self._tally.unload_reason = reason
        await self._report_drops()
        await self.voice.unloaded(reason, self._tally, error_type)
        await self._model.aclose()
        self._wake.set()

    def _next(self) -> PendingTrigger | None:
        return None if self._broken is not None else self._backlog.pop()

    def _rest(self) -> float | None:
        due = self._strategy.due()
        return None if due is None else max(0.0, due - self._ctx.clock.monotonic())

    async def _attempt(self, trigger: PendingTrigger) -> None:
        """Process one trigger; a failure is reported and counted, never raised."""
        with anyio.CancelScope() as scope:
            self._call_scope = scope
            try:
                await self._call_for(trigger)
                self._failures_in_a_row = 0
            except SentinelFailure as failure:
                await self._fail(failure)
                await self._unload_if_fatal(failure)

        self._call_scope = None
        if scope.cancelled_caught:
            self._drop(1)

    async def _call_for(self, trigger: PendingTrigger) -> None:
        await self.voice.triggered(trigger, len(self._backlog))
        answer = await self._answering.answer(trigger)
        with anyio.CancelScope(shield=True):  # The answer is on disk, so its event must follow.
            await self.voice.answered(trigger, answer.content, answer.tokens, answer.cost)

    # --- failures -----------------------------------------------------------------------------

    async def _report_drops(self) -> None:
        count, self._unreported_drops = self._unreported_drops, 0
        if count:
            message = (
                f"{acted_on(count, 'trigger')} dropped: the queue was full or the time was up."
            )
            failure = SentinelFailure("triggers-dropped", message, retriable=False)
            await self.voice.failed(failure, self._failures_in_a_row, dropped=count)

    async def _fail(self, failure: SentinelFailure) -> None:
        self._failures_in_a_row += 1
        await self.voice.failed(failure, self._failures_in_a_row)

    async def report_damage(self, message: str) -> None:
        """Report that the conversation could not be read."""
        await self.voice.failed(SentinelFailure("history-damaged", message, retriable=False), 0)

    async def _unload_if_fatal(self, failure: SentinelFailure) -> None:
        policy = self.config.error_handling
        talk = self.config.conversational
        has_no_answer = failure.type == "llm-call-failed"
        breaks_off = has_no_answer and talk is not None and not talk.continue_on_error
        if failure.fatal is not None and policy.unload_on_fatal_error:
            await self.unload("fatal-error", failure.fatal)
        elif breaks_off or self._failures_in_a_row >= policy.max_consecutive_failures:
            await self.unload("consecutive-failures")
