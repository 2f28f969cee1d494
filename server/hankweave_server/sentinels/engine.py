"""Run all sentinels of one codon; the interface of this package.

Call `load` when the codon starts, `observe` for each of its events, `drain` when its agent has
ended and again when its end was recorded, and finally `unload`. Between these calls each sentinel
works in its own task, in the caller's task group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent, Event, EventData
from hankweave_protocol.hank import SentinelEntry, SentinelSettings
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import NO_SENTINELS, LoadedSentinels, PlanEntry
from hankweave_protocol.transitions import SentinelStatesUpdated
from hankweave_server.clock import Clock
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.paths import Layout
from hankweave_server.sentinels.config import (
    LoadedConfig,
    SentinelInvalid,
    load_config,
    reference_of,
)
from hankweave_server.sentinels.context import (
    CodonFacts,
    Price,
    PublishEntries,
    SentinelContext,
    Wait,
    wait_for,
)
from hankweave_server.sentinels.conversation import ConversationDamaged, SentinelConversation
from hankweave_server.sentinels.failures import UnloadReason
from hankweave_server.sentinels.outputs import SentinelOutputs, outputs_of
from hankweave_server.sentinels.providers.base import Model, ModelMissing, OpensModels
from hankweave_server.sentinels.sentinel import Sentinel
from hankweave_server.sentinels.templates.javascript import QuickJs
from hankweave_server.sentinels.triggers import SeenEvent, is_routed

DRAIN_DEADLINE = timedelta(minutes=5)
THREADS = 2


@dataclass(frozen=True, slots=True)
class FailedLoad:
    """A sentinel that could not be loaded."""

    reference: str
    """Its file, or its id."""
    message: str
    is_required: bool
    """True if the codon must not run without it."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of loading a codon's sentinels."""

    loaded: tuple[str, ...]
    """Ids of the loaded sentinels."""
    failed: tuple[FailedLoad, ...]

    @property
    def required(self) -> tuple[FailedLoad, ...]:
        return tuple(failed for failed in self.failed if failed.is_required)


@dataclass(frozen=True, slots=True)
class SentinelSetting:
    """The parameters of a codon's sentinels."""

    run_id: RunId
    entry: PlanEntry
    start_time: str
    hank_directory: Path
    layout: Layout
    clock: Clock
    models: OpensModels
    price: Price
    publish: PublishEntries
    """Emits events and the transition of the sentinels' states, in order; may wait, never drops."""
    wait: Wait = field(default=wait_for)
    persists: bool = True
    """If true, histories are written to disk (Hankweave's `enablePersistence`)."""
    clean: Callable[[str], str] = str
    """Removes secrets from outputs and histories."""
    before: LoadedSentinels = NO_SENTINELS
    """What they had done in this codon under an earlier server."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The parts of a sentinel whose preparation blocks on files and imports."""

    loaded: LoadedConfig
    model: Model
    outputs: SentinelOutputs
    conversation: SentinelConversation | None
    damage: str | None


class Watch:
    """The sentinels of one codon."""

    def __init__(self, setting: SentinelSetting) -> None:
        self._setting = setting
        self._quickjs = QuickJs()
        self._sentinels: list[Sentinel] = []
        self._published_states = self.states()
        self._draining: anyio.CancelScope | None = None

    @property
    def entries(self) -> Sequence[SentinelEntry]:
        return self._setting.entry.codon.sentinels

    @property
    def active_count(self) -> int:
        return sum(sentinel.state.status == "active" for sentinel in self._sentinels)

    @property
    def is_watching(self) -> bool:
        return self.active_count > 0

    @property
    def written_in_the_work_tree(self) -> frozenset[bytes]:
        """The paths in the work tree that sentinels write; such changes belong to the codon."""
        return frozenset[bytes]().union(
            *(sentinel.outputs.in_the_work_tree for sentinel in self._sentinels)
        )

    def states(self) -> LoadedSentinels:
        """Return the current state of all sentinels."""
        states = tuple(sentinel.state for sentinel in self._sentinels)
        return LoadedSentinels(loaded=states, total_cost=sum(each.total_cost for each in states))

    async def load(self, tasks: anyio.abc.TaskGroup) -> LoadReport:
        """Load every sentinel that can be loaded, and report each; the tasks run until `unload`."""
        ctx = self._ctx()
        files = HankFiles(self._setting.hank_directory)
        failed: list[FailedLoad] = []
        for index, entry in enumerate(self.entries):
            work = functools.partial(self._prepare, entry, files, ctx.codon_id)
            try:
                prepared = await anyio.to_thread.run_sync(work, limiter=ctx.threads)
            except (SentinelInvalid, ModelMissing, OSError) as error:
                settings = entry.settings or SentinelSettings()
                reference = reference_of(entry, index)
                failure = FailedLoad(reference, str(error), settings.fail_codon_if_not_loaded)
                failed.append(failure)
                await self._publish(_not_loaded(failure, ctx.codon_id))
                continue

            await self._start(prepared, ctx, tasks)
            for warning in prepared.loaded.warnings:
                await self._publish(
                    _warning_event(prepared.loaded.config.id, warning, ctx.codon_id)
                )

        return LoadReport(tuple(each.config.id for each in self._sentinels), tuple(failed))

    def observe(self, event: Event, frame: bytes) -> None:
        """Pass an event to all sentinels; never waits or raises, and takes very little time."""
        if self._sentinels and is_routed(event):
            seen = SeenEvent(event.type, event.data, frame)
            for sentinel in self._sentinels:
                sentinel.observe(seen)

    async def drain(self, within: timedelta = DRAIN_DEADLINE) -> None:
        """Process all pending triggers; those left after `within` are dropped and reported."""
        for sentinel in self._sentinels:
            sentinel.flush()

        with anyio.move_on_after(within.total_seconds()) as self._draining:
            await self._settle()

        for sentinel in self._sentinels:
            if self._draining.cancelled_caught:
                sentinel.abandon()

        self._draining = None
        await self._settle()

    def cancel_drain(self) -> None:
        """End a running drain now, for a user or a shutdown that does not want to wait."""
        if self._draining is not None:
            self._draining.cancel()

    async def unload(self, reason: UnloadReason) -> None:
        """End all sentinels that are still active."""
        for sentinel in self._sentinels:
            await sentinel.unload(reason)

        self.close()

    def close(self) -> None:
        """End the process that runs templates and schemas."""
        self._quickjs.close()

    async def _settle(self) -> None:
        for sentinel in self._sentinels:
            await sentinel.settle()

    # --- loading ------------------------------------------------------------------------------

    def _ctx(self) -> SentinelContext:
        setting = self._setting
        codon = setting.entry.codon
        facts = CodonFacts(
            setting.entry.codon_id, codon.name, codon.description, setting.start_time
        )
        return SentinelContext(
            codon=facts,
            work_tree=setting.layout.work_tree,
            clock=setting.clock,
            price=setting.price,
            publish=self._publish,
            wait=setting.wait,
            threads=anyio.CapacityLimiter(THREADS),
        )

    def _prepare(self, entry: SentinelEntry, files: HankFiles, codon_id: CodonId) -> _Prepared:
        setting = self._setting
        loaded = load_config(entry, files, self._quickjs)
        config = loaded.config
        if any(sentinel.config.id == config.id for sentinel in self._sentinels):
            raise SentinelInvalid([f"The id {config.id!r} is already used by another sentinel."])

        model = setting.models.open(config.model)
        milliseconds = instants.epoch_ms(setting.clock.now())
        outputs = outputs_of(
            config, loaded.settings, setting.layout, codon_id, milliseconds, setting.clean
        )
        outputs.begin()
        if config.conversational is None:
            return _Prepared(loaded, model, outputs, None, None)

        path = setting.layout.sentinel_conversations / f"{config.id}-codon-{codon_id}.json"
        trimming = config.conversational.trimming_strategy
        conversation = SentinelConversation(
            path, trimming, persists=setting.persists, clean=setting.clean
        )
        try:
            conversation.load(str(milliseconds))
        except ConversationDamaged as damage:
            return _Prepared(loaded, model, outputs, conversation, str(damage))

        return _Prepared(loaded, model, outputs, conversation, None)

    async def _start(
        self, prepared: _Prepared, ctx: SentinelContext, tasks: anyio.abc.TaskGroup
    ) -> None:
        earlier = self._setting.before.loaded
        sentinel = Sentinel(
            prepared.loaded,
            prepared.model,
            prepared.outputs,
            prepared.conversation,
            ctx,
            next((each for each in earlier if each.id == prepared.loaded.config.id), None),
        )
        self._sentinels.append(sentinel)
        tasks.start_soon(sentinel.work)
        await sentinel.voice.loaded()
        if prepared.damage is not None:
            await sentinel.report_damage(prepared.damage)

    async def _publish(self, *events: EventData) -> None:
        """Emit events, followed by the sentinels' states if they have changed."""
        states = self.states()
        if states == self._published_states:
            if events:
                await self._setting.publish(*events)

            return

        self._published_states = states
        setting = self._setting
        transition = SentinelStatesUpdated(
            run_id=setting.run_id, codon_id=setting.entry.codon_id, sentinels=states
        )
        await setting.publish(*events, transition)


def _warning_event(sentinel_id: str, warning: str, codon_id: CodonId) -> ErrorEvent:
    return ErrorEvent(
        message=f"Sentinel {sentinel_id}: {warning}",
        fatal=False,
        codon=codon_id,
        severity="warning",
    )


def _not_loaded(failure: FailedLoad, codon_id: CodonId) -> ErrorEvent:
    return ErrorEvent(
        message=f"Sentinel {failure.reference} was not loaded: {failure.message}",
        fatal=failure.is_required,
        codon=codon_id,
        severity="codon" if failure.is_required else "warning",
        code=ErrorCode.SENTINEL_LOAD_FAILURE,
    )
