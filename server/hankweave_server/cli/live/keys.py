"""Interpret key presses: a pure state machine from keys to requests.

`keys_of` turns terminal input into names of keys. `step` takes the current mode and a key, and
returns the next mode and a request (`Wish`), if any; `session` sends it to the server. A request
that destroys something or cannot be undone needs a confirmation; any key but `y` cancels it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from hankweave_protocol.commands import OnRunning
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointRecord

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
}
_LETTERS = {"\r": "enter", "\n": "enter", "k": "up", "j": "down", "\x04": "q"}


def keys_of(text: str) -> Iterator[str]:
    """Yield the names of the keys in terminal input; unknown escape sequences are skipped."""
    while text:
        key, text = _first(text)
        if key is not None:
            yield key


def _first(text: str) -> tuple[str | None, str]:
    for sequence, name in _SEQUENCES.items():
        if text.startswith(sequence):
            return name, text[len(sequence) :]

    if text[0] != "\x1b":
        return _LETTERS.get(text[0], text[0]), text[1:]

    if text[1:2] in ("[", "O"):
        return None, _after_sequence(text[2:])

    return "escape", text[1:]


def _after_sequence(text: str) -> str:
    """Return the text after a control sequence, which ends with a character from `@` to `~`."""
    for at, letter in enumerate(text):
        if "@" <= letter <= "~":
            return text[at + 1 :]

    return ""


Direction = Literal["undo", "redo"]


@dataclass(frozen=True, slots=True)
class Steer:
    """A request to start, skip, stop or redo a codon of the run that is on the screen."""

    what: Literal["next", "skip", "stop", "redo"]
    run_id: RunId | None


@dataclass(frozen=True, slots=True)
class Consider:
    """A request to show the complete tool call of a permission request and ask for an answer."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a permission request."""

    request_id: str
    decision: Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class List:
    """A request for the list of checkpoints."""


@dataclass(frozen=True, slots=True)
class Foresee:
    """A request for the preview of a rollback to a checkpoint, an undo or a redo."""

    sha: str | None = None
    direction: Direction | None = None


@dataclass(frozen=True, slots=True)
class TravelRequest:
    """A request for a rollback, undo or redo that was previewed for this run."""

    sha: str | None
    direction: Direction | None
    run_id: RunId | None
    on_running: OnRunning


@dataclass(frozen=True, slots=True)
class Quit:
    """A request to leave; the server keeps running."""


Wish: TypeAlias = Steer | Consider | Answer | List | Foresee | TravelRequest | Quit


PAGE = 10
"""Checkpoints by which page-up and page-down move."""

LOOK_ONLY = "This connection is read-only."


@dataclass(frozen=True, slots=True)
class Watching:
    """The mode without an open question; `note` is the result of the last request."""

    note: str = ""
    is_complaint: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The mode while the server handles a request."""

    what: str


@dataclass(frozen=True, slots=True)
class Confirming:
    """A question; only `y` confirms."""

    question: str
    wish: Wish
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choosing:
    """A list of checkpoints, newest first, with the selected one."""

    records: tuple[CheckpointRecord, ...]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """Lines that any key closes."""

    lines: tuple[str, ...]


Mode: TypeAlias = Watching | Waiting | Confirming | Choosing | Reading


@dataclass(frozen=True, slots=True)
class Sight:
    """The contents of the screen when a key is pressed, on which the key acts."""

    may_change: bool
    run_id: RunId | None = None
    active: str | None = None
    """The running codon."""
    next: str | None = None
    asking: tuple[str, ...] = ()
    """Ids of the pending permission requests, oldest first."""


HELP = (
    "n  start the next codon           s  skip the running codon",
    "x  stop it by force               r  run the newest codon again",
    "p  choose a checkpoint, preview the rollback, roll back",
    "u  undo the last rollback         U  redo it",
    "a  allow a permission request     d  deny it",
    "q  quit; the server keeps running ?  this help",
)

_Turn: TypeAlias = tuple[Mode, Wish | None]


def step(mode: Mode, key: str, sight: Sight) -> _Turn:
    """Return the next mode and the request, if any, after a key."""
    match mode:
        case Watching():
            return _watch(key, sight)
        case Waiting():
            return mode, Quit() if key == "q" else None
        case Confirming(wish=wish):
            return (Waiting("…"), wish) if key == "y" else (Watching("Nothing was done."), None)
        case Choosing():
            return _choose(mode, key)
        case Reading():
            return Watching(), Quit() if key == "q" else None
        case _:
            assert_never(mode)


def _watch(key: str, sight: Sight) -> _Turn:
    match key:
        case "q":
            return Watching(), Quit()
        case "?":
            return Reading(HELP), None
        case "p":
            return Waiting("Loading checkpoints …"), List()
        case "u":
            return _foresee("undo")
        case "U":
            return _foresee("redo")
        case "n" | "s" | "x" | "r" | "a" | "d" if not sight.may_change:
            return Watching(LOOK_ONLY, is_complaint=True), None
        case "n" | "s" | "x" | "r":
            return _steer(key, sight)
        case "a":
            return _answer("allow", sight)
        case "d":
            return _answer("deny", sight)
        case _:
            return Watching(), None


def _foresee(direction: Direction) -> _Turn:
    return Waiting("Previewing the rollback …"), Foresee(direction=direction)


def _steer(key: Literal["n", "s", "x", "r"], sight: Sight) -> _Turn:
    codon, run = sight.active, sight.run_id
    match key:
        case "n":
            return Waiting(f"Starting {sight.next or 'the next codon'} …"), Steer("next", run)
        case "r" if codon is not None:
            return Watching(f"{codon} is running: skip or stop it first.", is_complaint=True), None
        case "r":
            return Confirming("Run the newest codon again? [y/N]", Steer("redo", run)), None
        case _ if codon is None:
            return Watching("No codon is running.", is_complaint=True), None
        case "s":
            question = f"Skip {codon}? This stops its agent, and the plan continues after it. [y/N]"
            return Confirming(question, Steer("skip", run)), None
        case "x":
            question = (
                f"Stop {codon} by force? It will be marked as failed, and the plan "
                "will pause. [y/N]"
            )
            return Confirming(question, Steer("stop", run)), None
        case _:
            assert_never(key)


def _answer(decision: Literal["allow", "deny"], sight: Sight) -> _Turn:
    """Deny at once, but ask before allowing, with the complete call on the screen."""
    if not sight.asking:
        return Watching("No permission request is pending."), None

    request = sight.asking[0]
    if decision == "deny":
        return Waiting("Denying …"), Answer(request, "deny")

    return Waiting("Loading the call …"), Consider(request)


def _choose(mode: Choosing, key: str) -> _Turn:
    last = len(mode.records) - 1
    moves = {"up": -1, "down": 1, "page-up": -PAGE, "page-down": PAGE}
    if key in moves:
        return Choosing(mode.records, min(max(mode.at + moves[key], 0), last)), None

    if key == "enter" and mode.records:
        sha = mode.records[mode.at].sha
        return Waiting("Previewing the rollback …"), Foresee(sha=sha)

    return Watching(), Quit() if key == "q" else None
