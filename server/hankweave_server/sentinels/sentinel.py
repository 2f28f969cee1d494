"""One sentinel at work: what it sees becomes triggers, and triggers become calls, one by one.

`observe` is called for every event of the codon and does next to nothing; the calls are made by
`work`, a task of the sentinel's own. What has to be told is told by that task alone, in its order.
"""

from __future__ import annotations

import anyio

from hankweave_protocol.state import SentinelState
from hankweave_server.sentinels.answering import Answering
from hankweave_server.sentinels.backlog import Backlog, Waiting
from hankweave_server.sentinels.conditions import TooSlow
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.sentinels.context import Around
from hankweave_server.sentinels.failures import Failure, UnloadReason
from hankweave_server.sentinels.history import History
from hankweave_server.sentinels.outputs import Outputs
from hankweave_server.sentinels.providers.base import FatalKind, Model
from hankweave_server.sentinels.routing import Seen
from hankweave_server.sentinels.strategies import Batch, strategy_of
from hankweave_server.sentinels.tally import Tally
from hankweave_server.sentinels.triggers import trigger_of
from hankweave_server.sentinels.voice import Voice


class Sentinel:
    """A loaded sentinel; `work` must run for anything to happen."""

    def __init__(
        self,
        loaded: LoadedConfig,
        model: Model,
        outputs: Outputs,
        history: History | None,
        around: Around,
    ) -> None:
        self.config = loaded.config
        self.outputs = outputs
        self.voice = Voice(loaded, around)
        self._model = model
        self._around = around
        self._trigger = trigger_of(loaded.config.trigger)
        self._strategy = strategy_of(loaded.config, around.clock.monotonic())
        self._backlog = Backlog()
        self._tally = Tally(loaded.config.id, loaded.config.model, around.now_text())
        self._answering = Answering(loaded, model, outputs, history, around, self._tally)
        self._failures_in_a_row = 0
        self._untold_drops = 0
        self._broken: Failure | None = None
        """A condition that cannot be asked; the task tells it and ends."""
        self._is_unloaded = False
        self._wake = anyio.Event()
        self._quiet = anyio.Event()
        self._quiet.set()
        self._call_scope: anyio.CancelScope | None = None

    @property
    def state(self) -> SentinelState:
        return self._tally.state

    # --- seeing -------------------------------------------------------------------------------

    def observe(self, seen: Seen) -> None:
        """Looks at an event: never waits, never raises, and keeps a bounded amount."""
        if self._is_unloaded or self._broken is not None:
            return

        try:
            firing = self._trigger.take(seen)
        except TooSlow as slow:
            self._broken = Failure("trigger-failed", str(slow), retriable=False, fatal="resource")
            self._stir()
            return

        if firing is not None:
            self._queue(self._strategy.add(firing, self._around.clock.monotonic()))
            self._wake.set()

    def flush(self) -> None:
        """Makes a last trigger of what waits for a time or a number."""
        if not self._is_unloaded:
            self._queue(self._strategy.flush())

    def _queue(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._tally.triggers += 1
            trigger = Waiting(self._tally.triggers, batch, self._around.now_text())
            self._drop(self._backlog.push(trigger))
            self._stir()

    def _drop(self, count: int) -> None:
        self._tally.dropped += count
        self._untold_drops += count

    def _stir(self) -> None:
        """There is something for the task to do."""
        if self._quiet.is_set():
            self._quiet = anyio.Event()

        self._wake.set()

    # --- the task -----------------------------------------------------------------------------

    async def work(self) -> None:
        """Calls for triggers until the sentinel is unloaded."""
        while not self._is_unloaded:
            await self._around.wait(self._wake, self._rest())
            if self._is_unloaded:
                break

            self._wake = anyio.Event()
            self._queue(self._strategy.at(self._around.clock.monotonic()))
            await self._tell_drops()
            while not self._is_unloaded and (trigger := self._next()) is not None:
                await self._attempt(trigger)
                await self._tell_drops()

            if self._broken is not None and not self._is_unloaded:
                await self._fail(self._broken)
                await self.unload("fatal-error", "resource")

            if not self._backlog and not self._untold_drops:
                self._quiet.set()

        self._quiet.set()

    async def settle(self) -> None:
        """Waits until all triggers are called for."""
        while not self._quiet.is_set():
            await self._quiet.wait()

    def abandon(self) -> None:
        """Gives up what waits and what is being asked; both are counted as dropped."""
        if self._is_unloaded:
            return

        self._drop(self._backlog.clear())
        if self._call_scope is not None:
            self._call_scope.cancel()

        self._stir()

    async def unload(self, reason: UnloadReason, error_type: FatalKind | None = None) -> None:
        """Ends for good; what waited is dropped, and told."""
        if self._is_unloaded:
            return

        self._is_unloaded = True
        self._drop(self._backlog.clear())
        self._tally.unloaded_at = self._around.now_text()
        self._tally.unload_reason = reason
        await self._tell_drops()
        await self.voice.unloaded(reason, self._tally, error_type)
        await self._model.aclose()
        self._wake.set()

    def _next(self) -> Waiting | None:
        return None if self._broken is not None else self._backlog.pop()

    def _rest(self) -> float | None:
        due = self._strategy.due()
        return None if due is None else max(0.0, due - self._around.clock.monotonic())

    async def _attempt(self, trigger: Waiting) -> None:
        """Calls for one trigger; a failure is told and counted, never raised."""
        with anyio.CancelScope() as scope:
            self._call_scope = scope
            try:
                await self._call_for(trigger)
                self._failures_in_a_row = 0
            except Failure as failure:
                await self._fail(failure)
                await self._unload_if_hopeless(failure)

        self._call_scope = None
        if scope.cancelled_caught:
            self._drop(1)

    async def _call_for(self, trigger: Waiting) -> None:
        await self.voice.triggered(trigger, len(self._backlog))
        said = await self._answering.answer(trigger)
        with anyio.CancelScope(shield=True):  # It is written; nobody may find it untold.
            await self.voice.answered(trigger, said.content, said.tokens, said.cost)

    # --- failures -----------------------------------------------------------------------------

    async def _tell_drops(self) -> None:
        count, self._untold_drops = self._untold_drops, 0
        if count:
            what = "1 trigger was" if count == 1 else f"{count} triggers were"
            message = f"{what} dropped: there was no room or no time for more."
            failure = Failure("triggers-dropped", message, retriable=False)
            await self.voice.failed(failure, self._failures_in_a_row, dropped=count)

    async def _fail(self, failure: Failure) -> None:
        self._failures_in_a_row += 1
        await self.voice.failed(failure, self._failures_in_a_row)

    async def tell_damage(self, message: str) -> None:
        """Tells that what it remembered could not be read."""
        await self.voice.failed(Failure("history-damaged", message, retriable=False), 0)

    async def _unload_if_hopeless(self, failure: Failure) -> None:
        policy = self.config.error_handling
        talk = self.config.conversational
        has_no_answer = failure.type == "llm-call-failed"
        breaks_off = has_no_answer and talk is not None and not talk.continue_on_error
        if failure.fatal is not None and policy.unload_on_fatal_error:
            await self.unload("fatal-error", failure.fatal)
        elif breaks_off or self._failures_in_a_row >= policy.max_consecutive_failures:
            await self.unload("consecutive-failures")
