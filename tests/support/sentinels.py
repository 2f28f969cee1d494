"""An environment for sentinels in tests, with manual time and scripted models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import Event, EventData, Info
from hankweave_protocol.hank import Codon, SentinelEntry
from hankweave_protocol.ids import CodonId, EventSeq, RunId
from hankweave_protocol.state import NO_TOKENS, PlanEntry, SentinelState, Tokens
from hankweave_protocol.transitions import SentinelStatesUpdated, Transition
from hankweave_server.paths import Layout
from hankweave_server.sentinels.engine import LoadReport, SentinelSetting, Watch
from hankweave_server.sentinels.providers.base import Model, ModelAnswer, ModelCall, ModelMissing
from support.waiting import limited

RUN = RunId("1736000000000-abc123-def456")
CODON = CodonId("observe#0")
START = datetime(2025, 1, 4, 12, 0, tzinfo=UTC)


class ManualTime:
    """A clock and its waits: no time passes unless `advance` is called."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._waiting: list[tuple[float | None, anyio.Event]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    def boottime(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds
        for due, wake in self._waiting:
            if due is not None and due <= self._seconds:
                wake.set()

    async def wait(self, wake: anyio.Event, seconds: float | None) -> None:
        waiting = (None if seconds is None else self._seconds + seconds, wake)
        if seconds is not None and seconds <= 0:
            return

        self._waiting.append(waiting)
        try:
            await wake.wait()
        finally:
            self._waiting.remove(waiting)


@dataclass
class Actor:
    """A model played by the test; it uses no network, and answers only when it may."""

    answer: Callable[[ModelCall], str | Exception] = lambda call: (
        f"heard {call.messages[-1].content}"
    )
    calls: list[ModelCall] = field(default_factory=list)
    may_answer: anyio.Event = field(default_factory=anyio.Event)
    was_asked: anyio.Event = field(default_factory=anyio.Event)
    is_closed: bool = False
    tokens: Tokens = NO_TOKENS

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def ask(self, call: ModelCall) -> ModelAnswer:
        self.calls.append(call)
        self.was_asked.set()
        await self.may_answer.wait()
        answer = self.answer(call)
        if isinstance(answer, Exception):
            raise answer

        return ModelAnswer(answer, self.tokens)

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class Cast:
    """A registry that opens the actors by their names."""

    actors: Mapping[str, Actor]

    def open(self, model: str) -> Model:
        if model not in self.actors:
            raise ModelMissing(f"Nobody plays {model!r}.")

        return self.actors[model]


@dataclass
class Stage:
    """A watch, and everything that it reported."""

    watch: Watch
    report: LoadReport
    time: ManualTime
    actor: Actor
    layout: Layout
    published: list[EventData | Transition]
    seq: int = 0

    def show(self, *events: EventData) -> None:
        for data in events:
            self.seq += 1
            event = an_event(data, self.seq)
            self.watch.observe(event, codec.encode(event))

    def events_of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.published if isinstance(entry, kind)]

    async def drain(self) -> None:
        with limited():
            await self.watch.drain()

    async def process(self, *events: EventData) -> None:
        """Show the events, and wait until all that they cause is done."""
        self.show(*events)
        await self.drain()

    @property
    def prompts(self) -> list[str]:
        return [call.messages[-1].content for call in self.actor.calls]

    @property
    def state(self) -> SentinelState:
        """Return the state according to the last transition."""
        states: list[SentinelStatesUpdated] = self.events_of(SentinelStatesUpdated)
        return states[-1].sentinels.loaded[0]

    def outputs(self, name: str = "narrator") -> list[Path]:
        return sorted((self.layout.sentinel_outputs / name).iterdir())


def an_event(data: EventData, seq: int = 1) -> Event:
    return Event(
        id=f"event-{seq}",
        seq=EventSeq(seq),
        timestamp="2025-01-04T12:00:00.000Z",
        type=data.TYPE,
        data=data,
        run_id=RUN,
        codon_id=CODON,
    )


def info(message: str) -> Info:
    return Info(message=message)


def a_sentinel(**fields: Any) -> dict[str, Any]:
    """Return a configuration that watches every `info`, field by field as in a file."""
    sentinel: dict[str, Any] = {
        "id": "narrator",
        "name": "Narrator",
        "model": "play/actor",
        "trigger": {"type": "event", "on": ["info"]},
        "execution": {"strategy": "immediate"},
        "templateEngine": "jinja",
        "userPromptText": "{% for e in events %}{{ e.data.message }};{% endfor %}",
    }
    sentinel.update(fields)
    return {key: value for key, value in sentinel.items() if value is not None}


def entry_of(config: dict[str, Any] | str, **settings: Any) -> SentinelEntry:
    raw = {"sentinelConfig": config, "settings": settings}
    return msgspec.convert(raw, SentinelEntry)


def an_entry_of_the_plan(*entries: SentinelEntry) -> PlanEntry:
    codon = Codon(
        id="observe",
        name="Observe the data",
        description="Looks",
        model="scripted",
        continuation_mode="fresh",
        prompt_text="x",
        sentinels=entries,
    )
    return PlanEntry(codon=codon, codon_id=CODON)


@asynccontextmanager
async def on_stage(
    folder: Path,
    *entries: SentinelEntry,
    actor: Actor | None = None,
    price: Callable[[str, Tokens], float | None] = lambda model, tokens: 0.25,
    persists: bool = True,
) -> AsyncIterator[Stage]:
    """Load sentinels in a folder of their own; the folder is the hank's directory too."""
    layout = Layout.of_execution(folder)
    layout.work_tree.mkdir(parents=True, exist_ok=True)
    time, player, published = ManualTime(), actor or Actor(), list[EventData | Transition]()

    async def publish(*data: EventData | Transition) -> None:
        published.extend(data)

    setting = SentinelSetting(
        run_id=RUN,
        entry=an_entry_of_the_plan(*entries),
        start_time="2025-01-04T11:59:00.000Z",
        hank_directory=folder,
        layout=layout,
        clock=time,
        models=Cast({"play/actor": player}),
        price=price,
        publish=publish,
        wait=time.wait,
        persists=persists,
    )
    watch = Watch(setting)
    with limited():
        async with anyio.create_task_group() as tasks:
            report = await watch.load(tasks)
            yield Stage(watch, report, time, player, layout, published)
            await watch.unload("codon-complete")


def write(folder: Path, name: str, content: str | dict[str, Any]) -> str:
    """Write a file of the hank; return its reference."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return name
