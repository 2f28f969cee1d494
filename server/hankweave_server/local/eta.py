"""How long the rest of a plan takes, from what its codons have taken before.

An estimate is a range, because an agent's work varies: each remaining execution of a codon takes
between the shortest and the longest time of earlier ones, and probably their median. Those are the
executions that came to their own end, in this execution (rounds of its loop, earlier runs) if there
are any, else in earlier executions of the same hank. Waits for the end of limits count nowhere,
except for one that goes on now, whose end is known.

Where nothing is known, no number is made up. A codon that has never come to its end, or a loop that
ends with a full context, leaves the range without an upper end.

Earlier executions of the same hank are those in the folder of executions, and those beside this
one. Of one that cannot be read, nothing is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TypeAlias

from hankweave_protocol.hank import Hank
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import State
from hankweave_server.domain.budget.estimates import rounds_to_come, was_whole
from hankweave_server.domain.budget.spending import ended
from hankweave_server.domain.execution_thread import (
    active_codon,
    next_codon,
    places,
    suspended_codon,
)
from hankweave_server.domain.lifecycle import wait_of, waited_ms_at
from hankweave_server.hank.load import load_unchecked
from hankweave_server.ledger.moments import saved_state
from hankweave_server.local.executions import executions_root
from hankweave_server.local.register import executions_in
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import known_meta

Durations: TypeAlias = Mapping[str, Sequence[int]]
"""Milliseconds of executions that came to their own end, by the codon's id in the hank."""

NO_DURATIONS: Durations = MappingProxyType({})


class Eta(Value, kw_only=True, omit_defaults=False):
    """The time that the rest of a plan takes, in milliseconds."""

    shortest_ms: int
    """Only of the codons that are known, if `unknown` names others."""
    likely_ms: int | None
    longest_ms: int | None
    """Null if there is no upper end, because something is unknown."""
    earliest: str | None
    """When the plan ends at the earliest; null if no server is running it."""
    latest: str | None
    codons_left: int
    """Executions that remain at least, the current one included."""
    unknown: tuple[str, ...]
    """Codons that have never finished, and loops whose number of iterations is unknown."""
    durations: int
    """The number of durations in this execution that the range comes from."""
    earlier_durations: int
    """The number of durations in earlier executions of the same hank that it comes from."""


def durations_in(states: Iterable[State]) -> Durations:
    """Return what codons have taken in some executions of a hank."""
    found = defaultdict[str, list[int]](list)
    for each in (each for state in states for each in ended(state)):
        if was_whole(each.codon):
            name = each.codon.codon_id.partition("#")[0]
            found[name].append(round(each.spent.seconds * 1000))

    return found


def eta(
    state: State,
    now: datetime,
    *,
    hank: Hank | None = None,
    earlier: Durations = NO_DURATIONS,
    is_running: bool = True,
) -> Eta | None:
    """Return what is known about the rest of a plan; None if it has ended, or nothing is known.

    Without the hank, the number of a loop's iterations is unknown. `is_running` is false if no
    server is running: then the active codon will start again.
    """
    plan, upcoming = state.execution_plan, next_codon(state)
    if upcoming is None or upcoming not in places(plan):
        return None

    first = places(plan)[upcoming]
    left = Counter(entry.codon.id for entry in plan[first:])
    endless: dict[str, None] = {}
    for loop, entry, rounds in rounds_to_come(plan, first, hank):
        if rounds is None:
            endless[loop] = None
        else:
            left[entry.codon.id] += rounds

    own = durations_in([state])
    known = {name: own.get(name) or earlier.get(name, ()) for name in left}
    wait = _wait_left(state, now)
    if not (wait or any(known.values())):
        return None

    active = active_codon(state) if is_running else None
    worked = 0
    if active is not None:
        lasted = milliseconds_between(from_text(active.start_time), now)
        worked = max(0, lasted - waited_ms_at(active, to_text(now)))

    def total(typical: Callable[[Sequence[int]], float]) -> int:
        took = {name: typical(found) if found else 0 for name, found in known.items()}
        begun = min(worked, took[plan[first].codon.id])
        return round(sum(took[name] * count for name, count in left.items()) - begun) + wait

    unknown = (*(name for name, found in known.items() if not found), *endless)
    shortest, longest = total(min), None if unknown else total(max)
    return Eta(
        shortest_ms=shortest,
        likely_ms=None if unknown else total(median),
        longest_ms=longest,
        earliest=None if active is None else _after(now, shortest),
        latest=None if active is None or longest is None else _after(now, longest),
        codons_left=left.total(),
        unknown=unknown,
        durations=sum(len(own.get(name, ())) for name in left),
        earlier_durations=sum(len(earlier.get(name, ())) for name in left if name not in own),
    )


def _wait_left(state: State, now: datetime) -> int:
    """Return the milliseconds until the wait for the end of a limit is over; 0 without one."""
    codon = active_codon(state) or suspended_codon(state)
    wait = None if codon is None else wait_of(codon)
    return 0 if wait is None else max(0, milliseconds_between(now, from_text(wait.until)))


def _after(now: datetime, milliseconds: int) -> str | None:
    """Return a timestamp; None beyond the year 9999."""
    try:
        return to_text(now + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


MOST_EARLIER = 10
"""Earlier executions that an estimate uses: the newest ones."""

MOST_EXAMINED = 300
"""Executions of which the metadata is read to find them."""


def eta_of(root: Path, state: State, now: datetime, *, is_running: bool) -> Eta | None:
    """Return how long the plan of an execution still takes; None if nothing is known about it."""
    meta = known_meta(Layout.of_execution(root))
    earlier = _earlier(root, meta)
    return eta(state, now, hank=_hank_of(meta), earlier=earlier, is_running=is_running)


def _hank_of(meta: ExecutionMeta | None) -> Hank | None:
    """Return the hank that an execution runs; None if its file is gone, or is another one now."""
    if meta is None or meta.hank_path is None:
        return None

    return load_unchecked(Path(meta.hank_path), meta.hank_hash)


def _earlier(root: Path, meta: ExecutionMeta | None) -> Durations:
    """Return what codons took in the newest other executions of the same hank."""
    if meta is None or (meta.hank_path is None and meta.hank_hash is None):
        return NO_DURATIONS

    others = map(Layout.of_execution, _others(root))
    states = (saved_state(other) for other in others if _runs_same_hank(other, meta))
    return durations_in(islice(filter(None, states), MOST_EARLIER))


def _others(root: Path) -> list[Path]:
    """Return the executions that may be earlier ones, the last saved first."""
    own = root.resolve()
    saved: dict[Path, float] = {}
    for folder in (executions_root().resolve(), own.parent):
        with suppress(OSError):  # Its contents may not be listed.
            for place in executions_in(folder):
                with suppress(OSError):  # Nothing was ever saved there.
                    saved[place] = Layout.of_execution(place).state.stat().st_mtime

    saved.pop(own, None)
    return sorted(saved, key=lambda place: saved[place], reverse=True)[:MOST_EXAMINED]


def _runs_same_hank(layout: Layout, meta: ExecutionMeta) -> bool:
    other = known_meta(layout)
    if other is None:
        return False

    is_same_file = meta.hank_path is not None and other.hank_path == meta.hank_path
    return is_same_file or (bool(meta.hank_hash) and other.hank_hash == meta.hank_hash)
