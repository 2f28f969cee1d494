"""The keys that a supervisor presses for ten tasks: with commands, and in `hankweave attach`.

The table in docs/how-to/terminal.md has the same numbers. Commands are counted as they are typed,
with Enter and with the answers to their questions, but without completion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonRedo,
    CodonSkip,
    CommandData,
    PermissionAnswer,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import EventData, PermissionRequested
from hankweave_protocol.state import CodonExecution
from support.attached import (
    PUSH,
    UNDOABLE,
    FixedClient,
    a_scene,
    attached_to,
    call,
    message,
    press,
    result,
    text_of,
)
from support.histories import failed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "terminal.md"
FAILED: tuple[CodonExecution, ...] = (failed("check"),)


class Task(NamedTuple):
    """Something that a supervisor wants to know or to do."""

    what: str
    before: Sequence[str]
    """The commands, and what is typed at their questions."""
    keys: Sequence[str]
    shows: Sequence[str] = ()
    """What is on the screen after the keys."""
    sends: Callable[[CommandData], bool] | None = None
    """What the only request has to be."""
    codons: tuple[CodonExecution, ...] = ()
    asked: PermissionRequested | None = None
    events: tuple[tuple[float, EventData], ...] = ()
    changes: dict[str, Any] = {}  # noqa: RUF012


def goes_back(sent: CommandData) -> bool:
    return isinstance(sent, RollbackToCodon) and sent.codon_id == "check" and sent.keep_edits


def allows(sent: CommandData) -> bool:
    return isinstance(sent, PermissionAnswer) and sent.decision == "allow"


LONG = tuple((80.0, message(f"Sentence {number}.")) for number in range(40))
CALLED = (
    (81.0, call(7, "Bash", command="make all\nmake check")),
    (80.5, result(7, "one\ntwo\nthree\nfour\nfive")),
    (80.0, message("Done.")),
)

TASKS = (
    Task(
        "Which hank is it, and how far?",
        ["hankweave status"],
        [],
        ["Orders to model · run 1 · 3 of 5 · running"],
    ),
    Task(
        "Why did it fail?",
        ["hankweave status"],
        [],
        ["✗ API request timed out — 30 s"],
        codons=FAILED,
    ),
    Task(
        "What did the review change?",
        ["hankweave checkpoints", "hankweave diff 3c6ef372fe94 78dde6e5fd29"],
        ["up", "c"],
        ["Review #2", "+    raw = row"],
    ),
    Task(
        "Go back to before the check, keep my edits",
        ["hankweave rollback --before check --stop --keep-edits", "y"],
        ["z", "y"],
        sends=goes_back,
    ),
    Task("What did it cost?", ["hankweave status"], [], ["$4 of $25"]),
    Task(
        "Let the agent do what it asks for",
        ["hankweave permissions", "hankweave allow"],
        ["a", "a"],
        sends=allows,
        asked=PUSH,
    ),
    Task(
        "Read the call before the last words",
        ["hankweave events --limit 20", "hankweave events --limit 20 --json | less", "q"],
        ["tab", "up", "enter"],
        ["command: make all", "make check", "one", "five"],
        events=CALLED,
    ),
    Task(
        "Compare two checkpoints",
        ["hankweave checkpoints", "hankweave diff 3c6ef372fe94 78dde6e5fd29"],
        ["p", "space", "down", "v"],
        ["Comparison", "+    raw = row"],
    ),
    Task(
        "Find a word in what the step said",
        ["hankweave events --text needle"],
        ["slash", *"needle", "enter"],
        ["The needle."],
        events=((85.0, message("The needle.")), *LONG),
    ),
    Task(
        "Stop the step",
        ["hankweave stop", "y"],
        ["x", "y"],
        sends=lambda sent: isinstance(sent, CodonForceStop),
    ),
    Task(
        "Skip the step",
        ["hankweave skip", "y"],
        ["s", "y"],
        sends=lambda sent: isinstance(sent, CodonSkip),
    ),
    Task(
        "Run it again on the files as they are",
        ["hankweave retry"],
        ["r", "w"],
        sends=lambda sent: isinstance(sent, CodonRedo),
        codons=FAILED,
    ),
    Task(
        "Undo the last rollback",
        ["hankweave undo", "y"],
        ["u", "y"],
        sends=lambda sent: isinstance(sent, RollbackUndo),
        changes={"undo": UNDOABLE},
    ),
)


def typed(task: Task) -> int:
    """Return the number of keys of the commands, with Enter after each."""
    return sum(len(line) + 1 for line in task.before)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.what)
async def test_a_task_is_done_with_the_keys_of_the_table(task: Task) -> None:
    """After these keys the answer is on the screen, or the request is sent."""
    events = {"events": task.events} if task.events else {}
    client = a_scene(*task.codons, asked=task.asked, **events, **task.changes)
    async with attached_to(client) as pilot:
        await press(pilot, *task.keys)
        assert_done(task, client, pilot)


def assert_done(task: Task, client: FixedClient, pilot: Pilot[int]) -> None:
    shown = text_of(pilot)
    for text in task.shows:
        assert text in shown, shown

    if task.sends is None:
        assert client.sent == []
    else:
        (sent,) = client.sent
        assert task.sends(sent)


def test_the_table_of_the_documents_has_the_numbers() -> None:
    """Each task with its keys in commands and in `attach`, and their sums."""
    rows = [f"| {task.what} | {typed(task)} | {len(task.keys)} |" for task in TASKS]
    before, after = sum(map(typed, TASKS)), sum(len(task.keys) for task in TASKS)
    rows.append(f"| all | {before} | {after} |")
    table = re.findall(r"^\| .* \| \d+ \| \d+ \|$", PAGE.read_text(), re.MULTILINE)
    assert table == rows


def test_no_task_takes_more_keys_than_its_commands() -> None:
    """Eight keys and a word are enough for the longest one."""
    assert all(len(task.keys) < typed(task) for task in TASKS)
    assert max(len(task.keys) for task in TASKS) == len(["slash", *"needle", "enter"])
