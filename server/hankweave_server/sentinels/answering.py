"""From a trigger to an answer that is written down: prompt, call, check, files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from hankweave_protocol.state import Tokens
from hankweave_server.sentinels.backlog import Waiting
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.sentinels.context import Around
from hankweave_server.sentinels.failures import Failure
from hankweave_server.sentinels.history import History
from hankweave_server.sentinels.outputs import Outputs
from hankweave_server.sentinels.providers.base import (
    Answer,
    Call,
    CallFailed,
    FatalKind,
    Message,
    Model,
)
from hankweave_server.sentinels.questions import Question, question_of
from hankweave_server.sentinels.structured import BadAnswer
from hankweave_server.sentinels.tally import Tally
from hankweave_server.sentinels.templates.base import NotRendered, RenderLimit

LONGEST_CALL = 600.0
"""Seconds for one call with all its retries; an endpoint that trickles must end some time."""

LARGEST_ANSWER = 1024 * 1024
"""Characters; an answer goes into an event, and to every client."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a trigger."""

    content: Any
    tokens: Tokens
    cost: float


@dataclass(frozen=True, slots=True)
class Answering:
    """How one sentinel answers; each step raises Failure, and what was spent is in the tally."""

    loaded: LoadedConfig
    model: Model
    outputs: Outputs
    history: History | None
    around: Around
    tally: Tally

    async def answer(self, trigger: Waiting) -> Said:
        """Asks about a trigger and writes the answer down."""
        question = await self._question(trigger)
        answer, cost = await self._ask(question)
        content = await self._content(answer)
        await self._write(question, answer, content)
        return Said(content, answer.tokens, cost)

    async def _question(self, trigger: Waiting) -> Question:
        around = self.around
        try:
            return await self._in_thread(
                question_of, self.loaded, around.codon, trigger, around.work_tree
            )
        except NotRendered as error:
            fatal: FatalKind | None = "resource" if isinstance(error, RenderLimit) else None
            raise Failure(
                "template-render-failed", str(error), retriable=False, fatal=fatal
            ) from None

    async def _ask(self, question: Question) -> tuple[Answer, float]:
        tally = self.tally
        tally.calls += 1
        tally.last_call_at = self.around.now_text()
        try:
            with anyio.fail_after(LONGEST_CALL):
                answer = await self.model.ask(self._call(question))
        except CallFailed as error:
            tally.failed_calls += 1
            raise Failure(
                "llm-call-failed", error.message, retriable=error.retriable, fatal=error.fatal
            ) from None
        except TimeoutError:
            tally.failed_calls += 1
            message = f"The model did not answer within {LONGEST_CALL:g} s."
            raise Failure("llm-call-failed", message, retriable=True) from None

        if len(answer.text) > LARGEST_ANSWER:
            tally.failed_calls += 1
            message = f"The answer has more than {LARGEST_ANSWER} characters."
            raise Failure("llm-call-failed", message, retriable=True)

        cost = self.around.price(self.loaded.config.model, answer.tokens) or 0.0
        tally.cost += cost
        return answer, cost

    def _call(self, question: Question) -> Call:
        params = self.loaded.config.llm_params
        remembered = () if self.history is None else self.history.messages
        return Call(
            messages=(*remembered, Message("user", question.prompt)),
            system=question.system,
            form=self.loaded.form,
            max_output_tokens=params.max_output_tokens,
            temperature=params.temperature,
            max_retries=params.max_retries,
        )

    async def _content(self, answer: Answer) -> Any:
        form = self.loaded.form
        if form is None:
            return answer.text

        try:
            return await self._in_thread(form.content_of, answer.text)
        except BadAnswer as error:
            self.tally.failed_calls += 1
            raise Failure("llm-call-failed", str(error), retriable=True) from None

    async def _write(self, question: Question, answer: Answer, content: Any) -> None:
        """Writes the log first, then what is remembered: what is remembered was said."""
        try:
            await self._in_thread(self.outputs.write, content, self.around.now_text())
            if self.history is not None:
                counted = answer.tokens.output_tokens or None
                remember = functools.partial(self.history.add, answered=counted)
                await self._in_thread(remember, question.prompt, answer.text)
        except OSError as error:
            raise Failure("file-write-failed", str(error), retriable=True) from None

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self.around.threads)
