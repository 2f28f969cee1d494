"""Define a sentinel's context (codon, work tree, clock, callbacks), and render its questions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.events import EventData
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import Tokens
from hankweave_protocol.transitions import Transition
from hankweave_server.clock import Clock
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.sentinels.strategies import PendingTrigger
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent

LARGEST_CONTENT = 256 * 1024
"""Bytes of a file that a template sees."""


@dataclass(frozen=True, slots=True)
class Question:
    """The rendered prompts for one call."""

    prompt: str
    system: str | None


@dataclass(frozen=True, slots=True)
class CodonFacts:
    """Facts about the codon for templates."""

    id: str
    name: str
    description: str | None
    start_time: str

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "startTime": self.start_time,
        }


def question_of(
    loaded: LoadedConfig, codon: CodonFacts, trigger: PendingTrigger, work_tree: Path
) -> Question:
    """Render the prompts of a trigger. Blocks; raises NotRendered.

    `codon` has the name and description of the codon. (In Hankweave it has those of the sentinel.)
    """
    config = loaded.config
    context = {
        "events": [_event(frame, work_tree) for frame in trigger.frames],
        "codon": codon.shown,
        "sentinel": {"id": config.id, "name": config.name, "description": config.description},
        "world": {"currentTime": trigger.queued_at},
    }
    system = loaded.system_prompt
    return Question(
        prompt=loaded.user_prompt.render(context),
        system=None if system is None else system.render(context),
    )


def _event(frame: bytes, work_tree: Path) -> dict[str, Any]:
    event: dict[str, Any] = msgspec.json.decode(frame)
    if event["type"] == "file.updated":
        event["data"] = _WithContent(event["data"], work_tree)

    return event


class _WithContent(dict[str, Any]):
    """The data of a `file.updated` event; `content` is read when a template accesses it."""

    def __init__(self, data: dict[str, Any], work_tree: Path) -> None:
        super().__init__(data)
        self._read = functools.cache(lambda: _content(work_tree, data["path"]))

    def __missing__(self, key: str) -> str:
        if key != "content":
            raise KeyError(key)

        return self._read()


def _content(work_tree: Path, path: str) -> str:
    """Return a file's current content without following links; empty if it cannot be read."""
    descent = Descent(work_tree)
    try:
        name = os.fsencode(path)
        file = os.open(os.path.basename(name), FILE_FLAGS, dir_fd=descent.folder_of(name))
        with open(file, "rb") as opened:
            return opened.read(LARGEST_CONTENT).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        descent.close()


Price: TypeAlias = Callable[[str, Tokens], float | None]
"""A function that returns the price of a call in USD; None if it is unknown."""


class PublishEvents(Protocol):
    """A callback that emits a sentinel's events, together with the sentinels' new states."""

    async def __call__(self, *events: EventData) -> None: ...


class PublishEntries(Protocol):
    """A callback that emits events and the transition of the sentinels' states, in order."""

    async def __call__(self, *entries: EventData | Transition) -> None: ...


class Wait(Protocol):
    """A function that waits for an event or a timeout in seconds (None: no timeout)."""

    async def __call__(self, wake: anyio.Event, seconds: float | None) -> None: ...


async def wait_for(wake: anyio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or for some seconds (None: without a limit)."""
    with anyio.move_on_after(seconds):
        await wake.wait()


@dataclass(frozen=True, slots=True)
class SentinelContext:
    """The context of one codon's sentinels."""

    codon: CodonFacts
    work_tree: Path
    clock: Clock
    price: Price
    publish: PublishEvents
    wait: Wait
    threads: anyio.CapacityLimiter
    """Limits the threads for sentinels' files and templates, so that other work never waits."""

    @property
    def codon_id(self) -> CodonId:
        return CodonId(self.codon.id)

    def now_text(self) -> str:
        return instants.to_text(self.clock.now())
