"""The acts of a walk, as data: their `repr` is the script that is printed, and can be run again.

Every act is possible at any time: one that has no object, such as the deletion of an absent file,
does nothing. So any part of a script is a script, which is what `shrink` needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Literal, TypeAlias, TypeVar, get_args

FILES = ("a.txt", "b.txt", "d/c.txt", "d/e/f.txt", "g h/ä.txt", "ro/x.txt", "ro/y.txt")
"""What everybody edits."""
MAPPED = "m.bin"
LOG = "log/app.log"
HELD = "held.log"
IGNORED = "ignored/scratch.txt"
"""A path that no checkpoint tracks."""
MOUNTED = "ro"

GROUPS = ("rename", "fsync", "unlink", "write", "link", "mkdir", "open")
Tool = Literal["write", "shell", "delete", "rename"]
End = Literal["well", "fails", "retried", "killed"]
T = TypeVar("T")


@dataclass(frozen=True)
class Edit:
    """A person writes a file."""

    path: str
    word: str
    how: Literal["in place", "anew", "appended", "quietly"] = "in place"
    """`quietly` keeps the size and the modification time, if the file has this size."""


@dataclass(frozen=True)
class Delete:
    """A person deletes a file."""

    path: str


@dataclass(frozen=True)
class Map:
    """A person writes to a file through a mapping that stays open."""

    word: str


@dataclass(frozen=True)
class Log:
    """Another program begins or ends to append to its log all the time."""

    runs: bool


@dataclass(frozen=True)
class Hold:
    """Another program appends a line to a file that it holds open."""

    word: str


@dataclass(frozen=True)
class Fault:
    """A path becomes one that cannot be replaced."""

    kind: Literal["immutable", "bound", "read-only", "sticky"]
    """`bound` is a bind mount; `sticky` gives the path's folder, with the sticky bit, and the files
    in it to another user."""
    path: str
    """Unless the folder `ro` becomes read-only."""


@dataclass(frozen=True)
class Lift:
    """All faults end."""


@dataclass(frozen=True)
class Checkpoint:
    pass


@dataclass(frozen=True)
class Back:
    """A client rolls back to a checkpoint: the n-th, modulo their number."""

    to: int
    keep_edits: bool = False
    paths: tuple[str, ...] = ()
    """All, if empty."""
    undone: bool = False
    """Whether it is undone, and redone, at once, and the files compared."""
    meanwhile: tuple[Edit, ...] = ()
    """Edits that a person makes at the same moment."""


@dataclass(frozen=True)
class Undo:
    keep_edits: bool = False


@dataclass(frozen=True)
class Redo:
    keep_edits: bool = False


@dataclass(frozen=True)
class Op:
    """One tool call of the agent."""

    tool: Tool
    path: str
    word: str = ""
    """The content, or the new name."""


@dataclass(frozen=True)
class Step:
    """The agent's step; others act while it waits in the middle of it."""

    begins: tuple[Op, ...]
    meanwhile: tuple[Act, ...] = ()
    goes_on: tuple[Op, ...] = ()
    end: End = "well"
    """`killed` is the server, while the agent waits."""
    again: tuple[Op, ...] = ()
    """The second attempt of a retried one."""
    start: Start | None = None
    """After `killed`."""
    at_once: bool = False
    """Whether the server is killed right after the others' acts, so that nobody can tell theirs
    from the agent's."""


@dataclass(frozen=True)
class Start:
    """The server ends, others act, and it starts again."""

    how: Literal["stopped", "killed"]
    between: tuple[Act, ...] = ()
    struck: tuple[str, int] | None = None
    """The call at which the first start is killed; another follows."""
    undone: bool = False
    """Whether what the start took back is undone, and redone, afterwards."""


@dataclass(frozen=True)
class Kill:
    """The server is killed at its n-th call of a group during an act, then started again.

    If there are fewer calls, it is killed after the act, which is a client's or a step.
    """

    act: Act
    group: str
    at: int
    start: Start = Start("killed")


Act: TypeAlias = (
    Edit
    | Delete
    | Map
    | Log
    | Hold
    | Fault
    | Lift
    | Checkpoint
    | Back
    | Undo
    | Redo
    | Step
    | Start
    | Kill
)
Round: TypeAlias = tuple[Act, ...]


def draw(seed: int, rounds: int) -> list[Round]:
    """Return the rounds of a walk; the first of a longer walk are those of a shorter one.

    Every fifth walk has sticky folders: its servers start slowly, without a right of root.
    """
    drawn = [_Draw(random.Random(f"{seed} {number}")).round() for number in range(rounds)]
    if seed % 5 != 4:
        return drawn

    return [
        _Draw(random.Random(f"sticky {seed} {number}")).with_sticky_folder(acts)
        for number, acts in enumerate(drawn)
    ]


class _Draw:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def round(self) -> Round:
        acts: list[Act] = [self._any() for _ in range(self._chance.randint(2, 5))]
        if self._happens(0.5):
            acts.append(Lift())

        return tuple(acts)

    def with_sticky_folder(self, acts: Round) -> Round:
        if self._happens(0.4):
            return acts

        path = self._one(tuple(path for path in FILES if "/" in path))
        at = self._chance.randrange(len(acts))
        return (*acts[:at], Fault("sticky", path), *acts[at:])

    def _any(self) -> Act:
        return self._weighed(
            (8, self._persons),
            (5, self._step),
            (5, self._clients),
            (3, self._kill),
            (2, self._fault),
            (2, self._start),
            (1, lambda: Log(self._happens(0.5))),
        )

    def _persons(self) -> Act:
        return self._weighed((7, self._edit), (2, self._delete), (3, self._map), (1, self._hold))

    def _edit(self) -> Edit:
        path = self._one((*FILES, MAPPED, IGNORED))
        return Edit(path, self._word(), self._one(("in place", "anew", "appended", "quietly")))

    def _delete(self) -> Delete:
        return Delete(self._one(FILES))

    def _map(self) -> Map:
        return Map(self._word())

    def _hold(self) -> Hold:
        return Hold(self._word())

    def _fault(self) -> Fault:
        return Fault(self._one(("immutable", "bound", "read-only")), self._one((*FILES, MAPPED)))

    def _clients(self) -> Act:
        return self._weighed(
            (3, Checkpoint),
            (5, self._back),
            (2, lambda: Undo(self._happens(0.3))),
            (1, lambda: Redo(self._happens(0.3))),
        )

    def _back(self) -> Back:
        paths = (*FILES, MAPPED, "d", "g h", MOUNTED)
        return Back(
            self._chance.randrange(1000),
            keep_edits=self._happens(0.3),
            paths=self._some(paths, 3) if self._happens(0.3) else (),
            undone=self._happens(0.4),
            meanwhile=self._several(self._rival, 4) if self._happens(0.2) else (),
        )

    def _rival(self) -> Edit:
        """Return an edit that can be made at any moment of a rollback: it replaces the file."""
        return Edit(self._one(FILES), self._word(), "anew")

    def _step(self) -> Step:
        ends: tuple[End, ...] = ("well", "well", "fails", "retried", "killed")
        end = self._one(ends)
        return Step(
            self._several(self._op, 3),
            self._several(self._beside_a_step, 3),
            () if end == "killed" else self._several(self._op, 2),
            end,
            self._several(self._op, 2) if end == "retried" else (),
            self._start() if end == "killed" else None,
            at_once=end == "killed" and self._happens(0.3),
        )

    def _op(self) -> Op:
        tools: tuple[Tool, ...] = ("write", "write", "shell", "delete", "rename")
        tool = self._one(tools)
        to = self._one(FILES) if tool == "rename" else self._word()
        return Op(tool, self._one(FILES), "" if tool == "delete" else to)

    def _beside_a_step(self) -> Act:
        return self._weighed((8, self._persons), (2, Checkpoint), (1, self._fault), (1, Lift))

    def _start(self) -> Start:
        return Start(
            self._one(("stopped", "killed")),
            self._several(self._between, 3),
            (self._one(GROUPS), self._chance.randint(1, 30)) if self._happens(0.15) else None,
            undone=self._happens(0.5),
        )

    def _between(self) -> Act:
        return self._weighed((8, self._persons), (1, self._fault), (1, Lift))

    def _kill(self) -> Kill:
        act = self._weighed((3, self._clients), (2, self._step))
        if isinstance(act, Step):
            act = replace(act, end="well", start=None, at_once=False) if act.start else act

        return Kill(act, self._one(GROUPS), self._chance.randint(1, 24), self._start())

    # --- chance ---------------------------------------------------------------------------------

    def _happens(self, share: float) -> bool:
        return self._chance.random() < share

    def _one(self, choices: Sequence[T]) -> T:
        return self._chance.choice(choices)

    def _some(self, choices: Sequence[T], most: int) -> tuple[T, ...]:
        return tuple(self._chance.sample(choices, self._chance.randint(1, most)))

    def _several(self, make: Callable[[], T], most: int) -> tuple[T, ...]:
        return tuple(make() for _ in range(self._chance.randint(0, most)))

    def _weighed(self, *choices: tuple[int, Callable[[], Act]]) -> Act:
        weights = [weight for weight, _ in choices]
        ((_, make),) = self._chance.choices(choices, weights)
        return make()

    def _word(self) -> str:
        """Return a word that occurs once, often as long as others."""
        return f"{self._chance.getrandbits(40):010x}*{self._one((1, 1, 1, 40, 900))}"


def text(word: str) -> str:
    """Return the content that a word stands for: `abc*2` is abcabc."""
    part, _, times = word.partition("*")
    return part * int(times or 1)


def script(rounds: Sequence[Round]) -> str:
    """Return the rounds as Python, an act in a line."""
    lines = ((*map(spelled, acts), "") for acts in rounds)
    return "\n".join(line for acts in lines for line in acts)


def parsed(text: str) -> list[Round]:
    """Return the rounds of a script; empty lines divide them, and `#` begins a comment."""
    known = {kind.__name__: kind for kind in (*get_args(Act), Op)}
    rounds = (part.splitlines() for part in text.split("\n\n"))
    acts = ([line for line in lines if line.strip() and line[0] != "#"] for lines in rounds)
    return [tuple(eval(line, known) for line in lines) for lines in acts if lines]


def spelled(act: object) -> str:
    """Return an act as Python, without what is as usual."""
    if isinstance(act, tuple):
        return f"({''.join(f'{spelled(each)}, ' for each in act)})"

    if not is_dataclass(act):
        return repr(act)

    pairs = ((each.name, getattr(act, each.name), each.default) for each in fields(act))
    shown = (f"{name}={spelled(value)}" for name, value, usual in pairs if value != usual)
    return f"{type(act).__name__}({', '.join(shown)})"
