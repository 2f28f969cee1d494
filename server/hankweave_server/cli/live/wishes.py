"""What a person at the keys may want of a server, as values; `doing` asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hankweave_protocol.commands import OnRunning
from hankweave_protocol.ids import RunId

Direction = Literal["undo", "redo"]


@dataclass(frozen=True, slots=True)
class Steer:
    """Next, skip, stop or redo a codon, of the run that is in sight."""

    what: Literal["next", "skip", "stop", "redo"]
    run_id: RunId | None


@dataclass(frozen=True, slots=True)
class Consider:
    """Shows the whole call that an agent asks leave for, and asks whether it may."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To what an agent asks for."""

    request_id: str
    decision: Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class List:
    """Shows what can be gone back to."""


@dataclass(frozen=True, slots=True)
class Foresee:
    """Shows what going back would do: to a checkpoint, or in a direction."""

    sha: str | None = None
    direction: Direction | None = None


@dataclass(frozen=True, slots=True)
class Travel:
    """Goes back, as it was foreseen for this run."""

    sha: str | None
    direction: Direction | None
    run_id: RunId | None
    on_running: OnRunning


@dataclass(frozen=True, slots=True)
class Quit:
    """Leaves; the server goes on."""


Wish: TypeAlias = Steer | Consider | Answer | List | Foresee | Travel | Quit
