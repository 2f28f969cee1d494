"""The records of a map, the state that they fold to, and the decision what runs next.

The journal of a map has these records. `item.started` is written before a server is started, with
the amount that the item may cost: it is the intent and the reservation. `item.ended` settles it.
An item that was started and has not ended is `running` for the fold, whether or not its server
still lives; the supervisor finds out.

The budget covers the items of a command: what they have cost, in whatever run of the map, and what
those that run may still cost. Each server enforces its own share, so the sum stays within the
budget but for the last message of each agent that runs. An item gets an equal part of what is free,
at least twice the typical cost. When less than a typical cost is free, nothing is started until an
item ends and returns what it did not use; an item that would not be finished costs money for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, TypeAlias

import msgspec

from hankweave_protocol.executions import MapProgress
from hankweave_protocol.shapes import Value

ItemKind = Literal["file", "folder", "row"]
ItemOutcome = Literal["completed", "failed", "stopped", "crashed"]
"""`stopped`: its server was asked to end, and a start resumes it; `crashed`: it ended by itself."""
Status = Literal["waiting", "running", "completed", "failed", "stopped", "crashed"]
MapOutcome = Literal["completed", "failed", "interrupted", "budget"]
"""`failed`: some items are not completed; `budget`: because nothing was left for them."""

MOST_CRASHES = 3
"""How often the server of an item may end by itself until the item counts as failed."""

LEAST_SHARE = 2.0
"""An item gets at least so many times the typical cost, if that is free."""

NEXT_SHARE = 1.5
"""An item that has used up its share is run again with at least so many times that."""


# --- records --------------------------------------------------------------------------------------


class Placement(Value):
    """Where the items of a command run, and what each of them reserves there."""

    executor: str = "local"
    """`local`, `ray`, or `ray://HOST:PORT` for a certain cluster."""
    cpus: float | None = None
    resources: dict[str, float] = msgspec.field(default_factory=dict)
    """Resources of the cluster's own, by name."""
    storage: str | None = None
    """A path or a URL that all machines reach."""

    @property
    def kind(self) -> str:
        return self.executor.partition(":")[0]

    def requested(self, memory: int | None) -> dict[str, float]:
        """Return what an item reserves in a cluster."""
        of_memory = {} if memory is None else {"memory": float(memory)}
        cpus = 1.0 if self.cpus is None else self.cpus
        return {"CPU": cpus, **of_memory, **self.resources}


class MapBegun(Value, tag="map.begun", tag_field="type"):
    """A command begins to work on these items."""

    at: str
    hank: str
    hank_hash: str
    """Of the hank and all files that it refers to."""
    items: tuple[str, ...]
    """Their names, in the order in which they are started."""
    parallel: int
    max_cost: float | None = None
    """USD for all of them."""
    output: str | None = None
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """Options of `hankweave run` that every server gets, with their values."""
    memory: int | None = None
    """Bytes that one item may use, with all that it starts."""
    processes: int | None = None
    placement: Placement = Placement()


class ItemAdded(Value, tag="item.added", tag_field="type"):
    """An input got a name; a second record moves a row to its new content."""

    at: str
    item: str
    key: str
    """What identifies the input, so that later commands find its name."""
    kind: ItemKind
    path: str
    """The data: the input itself, or the file with the content of a row."""


class ItemStarted(Value, tag="item.started", tag_field="type"):
    """A server is about to be started for an item."""

    at: str
    item: str
    execution: str
    """The execution's directory, relative to that of the map."""
    input_hash: str
    hank_hash: str
    start: int = 1
    """Counts the starts of the item, from 1."""
    prior: float = 0.0
    """What this execution has cost before, in USD."""
    reserved: float | None = None
    """What it may cost in addition; null without a budget."""
    codon: str | None = None
    """The codon that a failed execution continues with."""


class ItemEnded(Value, tag="item.ended", tag_field="type"):
    """A server has ended, and its execution's files have been read."""

    at: str
    item: str
    outcome: ItemOutcome
    cost: float = 0.0
    """Of the whole execution, in USD."""
    duration_ms: int = 0
    """From the start of the server to its end."""
    exit_code: int | None = None
    """Null if the supervisor was not its parent."""
    codons_done: int = 0
    codons_planned: int = 0
    message: str | None = None
    """Why it is not completed."""
    codon: str | None = None
    """The codon with which a retry begins; null to resume where the execution stopped."""
    is_cut: bool = False
    """True if its share of the budget was not enough."""
    answers: dict[str, str] = msgspec.field(default_factory=dict)
    """The answers of its codons, by variable."""
    moves: int = 0
    """How often it was resumed on another machine, or by another worker, after its own had died."""
    lost_ms: int = 0
    """The time from each last checkpoint that was kept to the resumption from it."""


class MapEnded(Value, tag="map.ended", tag_field="type"):
    """The command has ended."""

    at: str
    outcome: MapOutcome
    completed: int
    failed: int
    waiting: int
    """Items that are not finished: never started, stopped, or still running."""
    cost: float
    """Of all items of the command, earlier runs included, in USD."""


MapRecord: TypeAlias = MapBegun | ItemAdded | ItemStarted | ItemEnded | MapEnded
RECORD_TYPES = frozenset({"map.begun", "item.added", "item.started", "item.ended", "map.ended"})


# --- state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """One item as the journal has it."""

    name: str
    key: str
    kind: ItemKind
    path: str
    status: Status = "waiting"
    started: ItemStarted | None = None
    """The newest start."""
    ended: ItemEnded | None = None
    """The end of the newest start; None while it runs."""
    crashes: int = 0
    """How often its server has ended by itself since the newest command began."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """The cost of each of its executions, in USD."""

    @property
    def spent(self) -> float:
        """Return what all its executions have cost."""
        return sum(self.costs.values())

    @property
    def committed(self) -> float:
        """Return what it has cost, or may have cost when it ends."""
        if self.status != "running" or self.started is None:
            return self.spent

        here = self.started.execution
        others = sum(cost for path, cost in self.costs.items() if path != here)
        return others + self.started.prior + (self.started.reserved or 0.0)


@dataclass(frozen=True, slots=True)
class MapState:
    """All items of a map, by name, and the newest command."""

    items: Mapping[str, Item] = field(default_factory=dict)
    begun: MapBegun | None = None

    def by_key(self) -> dict[str, Item]:
        return {item.key: item for item in self.items.values()}


def fold(records: Iterable[MapRecord], state: MapState = MapState()) -> MapState:
    """Return the state after these records; records of unknown items are ignored."""
    items, begun = dict(state.items), state.begun
    for record in records:
        match record:
            case MapBegun():
                begun = record
                items = {name: replace(item, crashes=0) for name, item in items.items()}
            case ItemAdded(item=name):
                items[name] = _added(items.get(name), record)
            case ItemStarted(item=name) if name in items:
                items[name] = _started(items[name], record)
            case ItemEnded(item=name) if name in items:
                items[name] = _ended(items[name], record)
            case _:
                pass

    return MapState(items, begun)


def _added(item: Item | None, record: ItemAdded) -> Item:
    if item is None:
        return Item(record.item, record.key, record.kind, record.path)

    return replace(item, path=record.path)


def _started(item: Item, record: ItemStarted) -> Item:
    costs = {**item.costs, record.execution: record.prior}
    return replace(item, status="running", started=record, ended=None, costs=costs)


def _ended(item: Item, record: ItemEnded) -> Item:
    costs = dict(item.costs)
    if item.started is not None:
        costs[item.started.execution] = record.cost

    crashes = item.crashes + 1 if record.outcome == "crashed" else item.crashes
    return replace(item, status=record.outcome, ended=record, crashes=crashes, costs=costs)


# --- decisions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedItem:
    """An item of a command, with the present content of its input."""

    name: str
    input_hash: str


@dataclass(frozen=True, slots=True)
class Start:
    """The decision to start an item."""

    item: Item
    input_hash: str
    execution: str
    reserved: float | None
    codon: str | None


def is_current(item: Item, wanted: WantedItem, hank_hash: str) -> bool:
    """Return whether the newest start of an item had the present hank and input."""
    started = item.started
    return started is not None and (started.input_hash, started.hank_hash) == (
        wanted.input_hash,
        hank_hash,
    )


def is_due(item: Item, wanted: WantedItem, hank_hash: str, *, retry_failed: bool) -> bool:
    """Return whether a command that begins now has to run an item."""
    match item.status:
        case "running":
            return True
        case "completed":
            return not is_current(item, wanted, hank_hash)
        case "failed":
            is_cut = item.ended is not None and item.ended.is_cut
            return retry_failed or is_cut or not is_current(item, wanted, hank_hash)
        case _:
            return True


def typical_cost(items: Iterable[Item]) -> float:
    """Return the median cost of the completed items; 0 if there is none."""
    costs = [item.spent for item in items if item.status == "completed"]
    return median(costs) if costs else 0.0


def free_of(budget: float | None, items: Iterable[Item]) -> float | None:
    """Return what of the budget is neither spent nor reserved; None without a budget."""
    return None if budget is None else budget - sum(item.committed for item in items)


def next_start(
    queue: Sequence[tuple[Item, WantedItem]],
    hank_hash: str,
    *,
    slots: int,
    free: float | None,
    typical: float,
) -> Start | None:
    """Return the first item of the queue that the budget allows; None if there is none."""
    sharers = min(slots, len(queue))
    for item, wanted in queue if slots > 0 else ():
        reserved = None if free is None else _share(item, sharers, free, typical)
        if reserved is None and free is not None:
            continue

        continues = item.started is not None and is_current(item, wanted, hank_hash)
        ended = item.ended
        return Start(
            item,
            wanted.input_hash,
            item.started.execution if continues and item.started else next_execution(item),
            reserved,
            ended.codon if continues and ended is not None and ended.outcome == "failed" else None,
        )

    return None


def _share(item: Item, sharers: int, free: float, typical: float) -> float | None:
    """Return what an item may cost; None if it is not worth a start now."""
    least = typical
    if item.ended is not None and item.ended.is_cut and item.started is not None:
        least = max(least, NEXT_SHARE * (item.started.reserved or 0.0))

    if free <= 0 or free < least:
        return None

    return max(free / sharers, min(free, LEAST_SHARE * least))


def next_execution(item: Item) -> str:
    """Return the directory of a fresh execution of an item, relative to the map's."""
    number = len(item.costs) + 1
    return f"items/{item.name}" if number == 1 else f"items/{item.name}~{number}"


def runs_again(item: Item) -> bool:
    """Return whether an item that has just ended is to be started again by the same command."""
    ended = item.ended
    return ended is not None and (ended.outcome == "crashed" or ended.is_cut)


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """The items of a command, counted."""

    total: int
    completed: int
    failed: int
    running: int
    cost: float
    """USD, earlier runs of the items included, without what those that run have cost since."""
    seconds_left: float | None
    """An estimate; None while no item of the command has ended."""
    cost_at_end: float | None
    """USD, an estimate; None while no item is completed."""

    @property
    def progress(self) -> MapProgress:
        return MapProgress(
            inputs=self.total,
            completed=self.completed,
            failed=self.failed,
            running=self.running,
        )


def figures(items: Sequence[Item], *, parallel: int, durations: Sequence[float]) -> Figures:
    """Count the items of a command; `durations` are seconds of those that it has finished."""
    completed = sum(item.status == "completed" for item in items)
    failed = sum(item.status == "failed" for item in items)
    running = sum(item.status == "running" for item in items)
    left = len(items) - completed - failed
    spent = sum(item.spent for item in items)
    seconds = None
    if durations:
        # A running item is on average half done.
        seconds = max(0.0, left - running / 2) * (sum(durations) / len(durations)) / parallel

    return Figures(
        total=len(items),
        completed=completed,
        failed=failed,
        running=running,
        cost=spent,
        seconds_left=seconds if left else 0.0,
        cost_at_end=None if not completed else spent + left * typical_cost(items),
    )


def outcome_of(counted: Figures, *, interrupted: bool, is_exhausted: bool) -> MapOutcome:
    """Return how a command ends."""
    if counted.completed == counted.total:
        return "completed"

    if interrupted:
        return "interrupted"

    return "budget" if is_exhausted else "failed"
