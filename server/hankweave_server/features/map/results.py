"""Read the state of an item from the files of its execution; write the tables of all items."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import CodonExecution, CompletedCodon, FailedCodon, State
from hankweave_server import fsutil
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.execution_thread import (
    active_codon,
    answers_of,
    is_done,
    newest_run,
    next_codon,
    thread,
)
from hankweave_server.domain.lifecycle import was_stopped
from hankweave_server.features.map.directory import RESULTS, SUMMARY, MapDirectory
from hankweave_server.features.map.plan import Item, ItemOutcome
from hankweave_server.paths import Layout

_TAIL = 4096
_LONGEST_MESSAGE = 500
_ALMOST = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class ItemFindings:
    """How far an execution is."""

    outcome: ItemOutcome
    cost: float = 0.0
    codons_done: int = 0
    codons_planned: int = 0
    message: str | None = None
    codon: str | None = None
    is_cut: bool = False
    answers: dict[str, str] = field(default_factory=dict)


def read_state(layout: Layout) -> State | None:
    """Read the state of an execution; None if it has none, or none that can be read."""
    try:
        return codec.decoder_of(State).decode(layout.state.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class ItemCourse:
    """The present activity of an execution."""

    codon: str | None
    """The codon that runs."""
    cost: float
    """USD."""


def course_of(layout: Layout) -> ItemCourse | None:
    """Return what an execution does; None if it has not begun."""
    state = read_state(layout)
    if state is None:
        return None

    active = active_codon(state)
    return ItemCourse(None if active is None else active.codon_id, total_cost(state))


def cost_of(layout: Layout) -> float:
    """Return what an execution has cost, in USD; 0 if it has not begun."""
    state = read_state(layout)
    return 0.0 if state is None else total_cost(state)


def found(layout: Layout, exit_code: int | None, max_cost: float | None, log: Path) -> ItemFindings:
    """Return how far an execution is whose server has ended.

    `max_cost` is the most that it was allowed to cost, in USD. Its plan may be complete because
    nothing was left of that: codons then complete without an agent. Such an item is `is_cut`.
    """
    state = read_state(layout)
    if state is None or not thread(state):
        # It has refused to start, or was killed before it had begun.
        if exit_code is None or exit_code < 0:
            return ItemFindings("crashed", message="Its server ended before it had begun.")

        words = _last_line(log) or f"The server ended with exit code {exit_code}."
        return ItemFindings("failed", message=words)

    cost = total_cost(state)
    entries = [entry.codon for entry in thread(state)]
    plan = state.execution_plan
    at_limit = max_cost is not None and cost >= max_cost * _ALMOST
    cut = next((each for each in entries if at_limit and _is_out_of_money(each)), None)
    outcome, message, codon = _outcome(state, entries[-1], exit_code, log)
    if cut is not None:
        outcome, codon = "failed", cut.codon_id
        message = f"Its share of the budget, ${max_cost:.4f}, was used up in {cut.codon_id}."

    return ItemFindings(
        outcome,
        cost=cost,
        codons_done=len({each.codon_id for each in entries if is_done(each, plan)}),
        codons_planned=len(plan),
        message=message,
        codon=codon,
        is_cut=cut is not None,
        answers=answers_of(thread(state)),
    )


def _is_out_of_money(codon: CodonExecution) -> bool:
    if not isinstance(codon, CompletedCodon | FailedCodon) or codon.budget_exceeded is None:
        return False

    return codon.budget_exceeded.currency == "cost"


def _outcome(
    state: State, newest: CodonExecution, exit_code: int | None, log: Path
) -> tuple[ItemOutcome, str | None, str | None]:
    run = newest_run(state)
    if active_codon(state) is not None or run is None or run.status == "running":
        if next_codon(state) is None and active_codon(state) is None:
            return "completed", None, None

        return "crashed", _last_line(log) or "Its server ended by itself.", None

    if isinstance(newest, FailedCodon) and not is_done(newest, state.execution_plan):
        reason = newest.failure_reason
        if was_stopped(reason):
            return "stopped", reason.message, None

        message = reason.message or f"Codon {newest.codon_id} failed."
        return "failed", f"{newest.codon_id}: {message}"[:_LONGEST_MESSAGE], newest.codon_id

    if next_codon(state) is None:
        return "completed", None, None

    if exit_code is not None and exit_code < 0:
        return "crashed", f"Its server was killed by signal {-exit_code}.", None

    return "stopped", "Its server was stopped.", None


def _last_line(log: Path) -> str | None:
    """Return the last message that a server has printed for people."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None

    said = (line for line in reversed(lines) if line.strip() and not line.startswith(" "))
    found = next(said, None)
    return None if found is None else found.removeprefix("hankweave: ")[:_LONGEST_MESSAGE]


# --- tables ---------------------------------------------------------------------------------------


class ItemResult(Value, kw_only=True, omit_defaults=False):
    """One line of results.jsonl."""

    item: str
    input: str
    state: str
    cost: float
    """USD of all its executions."""
    duration_ms: int | None
    """From the start of its last server to its end."""
    codons_done: int
    codons_planned: int
    starts: int
    """How many servers were started for it."""
    execution: str | None
    """The directory of its execution."""
    output: str | None
    """The directory with its output files, if the command has one."""
    message: str | None
    answers: dict[str, str]
    moves: int
    """How often its last server was resumed after its machine had died."""
    lost_ms: int
    """The time from each last checkpoint that was kept to the resumption from it."""


def result_of(item: Item, directory: MapDirectory, output: Path | None) -> ItemResult:
    started, ended = item.started, item.ended
    return ItemResult(
        item=item.name,
        input=item.key,
        state=item.status,
        cost=item.spent,
        duration_ms=None if ended is None else ended.duration_ms,
        codons_done=0 if ended is None else ended.codons_done,
        codons_planned=0 if ended is None else ended.codons_planned,
        starts=0 if started is None else started.start,
        execution=None if started is None else str(directory.root / started.execution),
        output=None if output is None else str(output / item.name),
        message=None if ended is None else ended.message,
        answers={} if ended is None else ended.answers,
        moves=0 if ended is None else ended.moves,
        lost_ms=0 if ended is None else ended.lost_ms,
    )


def write_results(items: Iterable[Item], directory: MapDirectory, output: Path | None) -> Path:
    """Write results.jsonl and summary.csv; return their folder. Raises OSError."""
    folder = directory.root if output is None else output
    folder.mkdir(parents=True, exist_ok=True)
    results = [result_of(item, directory, output) for item in items]
    lines = b"".join(codec.encode(result) + b"\n" for result in results)
    fsutil.replace_durably(folder / RESULTS, lines)
    fsutil.replace_durably(folder / SUMMARY, _table(results).encode())
    return folder


def _table(results: Iterable[ItemResult]) -> str:
    """Return the results as CSV, with a column for each answer."""
    rows = list(results)
    names = sorted({name for row in rows for name in row.answers})
    plain = [name for name in ItemResult.__struct_fields__ if name != "answers"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*plain, *names])
    for row in rows:
        values = (getattr(row, name) for name in plain)
        shown = ("" if value is None else value for value in values)
        table.writerow([*shown, *(row.answers.get(name, "") for name in names)])

    return text.getvalue()
