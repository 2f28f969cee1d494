"""Maps among the executions of a user: a row for each, before those of its items."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from hankweave_protocol import instants
from hankweave_protocol.executions import ListedExecution, Standing
from hankweave_server.errors import Stop
from hankweave_server.features.map.directory import MapDirectory, maps_in
from hankweave_server.features.map.plan import Figures, MapState, figures
from hankweave_server.local.register import executions_outside
from hankweave_server.paths import map_of
from hankweave_server.plain_text import one_line


def grouped(rows: Sequence[ListedExecution], root: Path) -> list[ListedExecution]:
    """Return the rows with one for each map in a folder or with an item among them.

    The rows of a map's items follow its own, and are no longer among the others.
    """
    items: dict[str, list[ListedExecution]] = {str(path): [] for path in maps_in(root)}
    others: list[ListedExecution] = []
    for row in rows:
        whose = others if row.map_of is None else items.setdefault(row.map_of, [])
        whose.append(row)

    if not items:
        return others

    groups = [[map_row(MapDirectory(Path(path)), own), *own] for path, own in items.items()]
    found = [*groups, *_with_attempts(others)]
    found.sort(key=lambda group: group[0].last_used or "", reverse=True)
    return [row for group in found for row in group]


def _with_attempts(rows: Iterable[ListedExecution]) -> list[list[ListedExecution]]:
    """Return each row with the attempts that follow it."""
    groups: list[list[ListedExecution]] = []
    for row in rows:
        if groups and row.attempt_of in {each.path for each in groups[-1]}:
            groups[-1].append(row)
        else:
            groups.append([row])

    return groups


def all_maps(root: Path) -> list[Path]:
    """Return the maps in a folder, and those with an item in the register."""
    outside = [whole for path in executions_outside(root) if (whole := map_of(path)) is not None]
    return [*dict.fromkeys([*maps_in(root), *outside])]


def map_row(directory: MapDirectory, own: Sequence[ListedExecution]) -> ListedExecution:
    """Return the row of a map, which those of its items follow."""
    try:
        state, problem = directory.state(), None
    except (OSError, Stop) as fault:
        state, problem = MapState(), str(fault)

    counted, begun = figures(list(state.items.values()), parallel=1, durations=()), state.begun
    used = max([_used(directory) or "", *(row.last_used or "" for row in own)]) or None
    asking = next((row for row in own if row.waits_for is not None), None)
    return ListedExecution(
        path=str(directory.root),
        state="unreadable" if problem else _standing(directory, counted),
        hank=None if begun is None else begun.hank,
        hank_name=next((row.hank_name for row in own if row.hank_name), None),
        codons_done=counted.completed,
        codons_planned=counted.total,
        step=counted.completed,
        steps=counted.total,
        last_used=used,
        last_activity=max([used or "", *(row.last_activity or "" for row in own)]) or None,
        problem=problem,
        cost=_cost(state, directory, own),
        max_dollars=None if begun is None else begun.max_cost,
        waits_for=None
        if asking is None
        else one_line(f"{Path(asking.path).name}: {asking.waits_for}"),
        answer_until=None if asking is None else asking.answer_until,
        failure=_failure(counted),
        map=counted.progress,
    )


def _standing(directory: MapDirectory, counted: Figures) -> Standing:
    if directory.removed_journal.exists():
        return "removing"

    if not counted.total:
        return "new"

    if directory.supervisor() is not None:
        return "running"

    if counted.completed == counted.total:
        return "completed"

    return "failed" if counted.completed + counted.failed == counted.total else "stopped"


def _failure(counted: Figures) -> str | None:
    if not counted.failed:
        return None

    return f"{counted.failed} of {counted.total} inputs failed; --retry-failed runs them again."


def _cost(state: MapState, directory: MapDirectory, own: Sequence[ListedExecution]) -> float:
    """Return what all items have cost; of one that runs, what its execution says."""
    now = {row.path: row.cost or 0.0 for row in own}
    total = 0.0
    for item in state.items.values():
        here = None if item.started is None else item.started.execution
        if item.status == "running" and here is not None:
            costs = {**item.costs, here: now.get(str(directory.root / here), 0.0)}
            total += sum(costs.values())
        else:
            total += item.spent

    return total


def _used(directory: MapDirectory) -> str | None:
    with contextlib.suppress(OSError):
        changed = directory.journal.stat().st_mtime
        return instants.to_text(instants.from_epoch(changed))

    return None
