"""What sentinels need from around them, handed over by whoever runs the codon.

From the events of a trigger to what a model is asked.
"""

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
from hankweave_server.sentinels.strategies import Waiting
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent

LARGEST_CONTENT = 256 * 1024
"""Bytes of a file that a template is shown."""


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    system: str | None


@dataclass(frozen=True, slots=True)
class CodonFacts:
    """What a template may say about the codon."""

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
    loaded: LoadedConfig, codon: CodonFacts, trigger: Waiting, work_tree: Path
) -> Question:
    """Renders the prompts of a trigger, blocking; raises NotRendered.

    The codon is the codon: Hankweave shows the sentinel's own name and description under its name.
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
    """The data of a `file.updated`; its `content` is read where a template asks for it."""

    def __init__(self, data: dict[str, Any], work_tree: Path) -> None:
        super().__init__(data)
        self._read = functools.cache(lambda: _content(work_tree, data["path"]))

    def __missing__(self, key: str) -> str:
        if key != "content":
            raise KeyError(key)

        return self._read()


def _content(work_tree: Path, path: str) -> str:
    """A file as it is now, without following a link; empty where it is gone."""
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
"""What a call of a model cost in USD; None where its price is not known."""


class Tell(Protocol):
    """Takes what a sentinel has to say; the sentinels' new states go with it."""

    async def __call__(self, *events: EventData) -> None: ...


class TellAll(Protocol):
    """Takes events and the transition of the sentinels' states, in order."""

    async def __call__(self, *entries: EventData | Transition) -> None: ...


class Wait(Protocol):
    """Waits until an event is set, or until so many seconds have passed (None: for ever)."""

    async def __call__(self, wake: anyio.Event, seconds: float | None) -> None: ...


async def wait_for(wake: anyio.Event, seconds: float | None) -> None:
    with anyio.move_on_after(seconds):
        await wake.wait()


@dataclass(frozen=True, slots=True)
class Around:
    """One codon, as its sentinels see it."""

    codon: CodonFacts
    work_tree: Path
    clock: Clock
    price: Price
    tell: Tell
    wait: Wait
    threads: anyio.CapacityLimiter
    """Sentinels' files and templates wait for each other, and nobody else for them."""

    @property
    def codon_id(self) -> CodonId:
        return CodonId(self.codon.id)

    def now_text(self) -> str:
        return instants.to_text(self.clock.now())
