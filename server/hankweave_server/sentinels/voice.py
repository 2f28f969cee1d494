"""What a sentinel tells, and whether anybody wants to hear it."""

from __future__ import annotations

from typing import Any

from hankweave_protocol.events import (
    EventData,
    SentinelError,
    SentinelLoaded,
    SentinelOutput,
    SentinelTriggered,
    SentinelUnloaded,
)
from hankweave_protocol.hank import SentinelReports
from hankweave_protocol.state import Tokens
from hankweave_server.sentinels.backlog import Waiting
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.sentinels.context import Around
from hankweave_server.sentinels.failures import Failure, UnloadReason
from hankweave_server.sentinels.providers.base import FatalKind
from hankweave_server.sentinels.tally import Tally


class Voice:
    """One sentinel's; its states are told with every word, also where the word itself is not."""

    def __init__(self, loaded: LoadedConfig, around: Around) -> None:
        self._loaded = loaded
        self._around = around
        self._about: dict[str, Any] = {
            "sentinel_id": loaded.config.id,
            "codon_id": around.codon_id,
        }
        own = loaded.config.report_to_websocket or SentinelReports()
        said = loaded.settings.report_to_websocket or SentinelReports()
        # The codon's word goes before the sentinel's (Hankweave, reportToWebsocket).
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
        await self._say(event, self._lifecycle)

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
        await self._say(event, self._lifecycle)

    async def triggered(self, trigger: Waiting, waiting: int) -> None:
        if not self._triggers:
            return  # The count goes with the answer.

        event = SentinelTriggered(
            **self._about,
            trigger_number=trigger.number,
            strategy=_tag(self._loaded.config.execution),
            event_count=len(trigger.frames),
            queue_size=waiting,
        )
        await self._around.tell(event)

    async def answered(self, trigger: Waiting, content: Any, tokens: Tokens, cost: float) -> None:
        event = SentinelOutput(
            **self._about,
            trigger_number=trigger.number,
            output_type="text" if self._loaded.form is None else "structured",
            content=content if isinstance(content, str | dict | list) else str(content),
            cost=cost,
            tokens=_counts(tokens),
            event_count=len(trigger.frames),
        )
        await self._say(event, self._outputs)

    async def failed(self, failure: Failure, in_a_row: int, dropped: int = 0) -> None:
        event = SentinelError(
            **self._about,
            error_type=failure.type,
            message=failure.message,
            retriable=failure.retriable,
            consecutive_failure_count=in_a_row,
            dropped=dropped,
        )
        await self._say(event, self._errors)

    async def _say(self, event: EventData, is_wanted: bool) -> None:
        await self._around.tell(*((event,) if is_wanted else ()))


def _first(*choices: bool | None) -> bool:
    return next(choice for choice in choices if choice is not None)


def _tag(part: Any) -> str:
    """What a trigger or strategy is called in configurations."""
    tag = type(part).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def _counts(tokens: Tokens) -> dict[str, int]:
    asked = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    return {"input": asked, "output": tokens.output_tokens}
