"""`hankweave ls`: list executions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.executions import ListedExecution
from hankweave_server.cli.output.text import (
    aligned,
    dollars,
    map_totals,
    print_line,
    short_age,
    size_text,
    span,
)
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.catalog import Catalog, measured
from hankweave_server.local.executions import executions_root
from hankweave_server.local.short_ids import named, short_ids
from hankweave_server.local.targeting import attach_line
from hankweave_server.plain_text import one_line

MEASURING_SECONDS = 1.0
"""Time limit of `ls --json` for measuring sizes; `--size` has none."""

MOST_ITEMS = 10
"""Items of each map that `ls` lists, unless it is asked for that map."""

_STYLES = {
    "running": "cyan",
    "waits": "yellow",
    "completed": "green",
    "failed": "red",
    "crashed": "red",
}


@click.command(name="ls")
@click.argument("chosen", metavar="[MAP]", required=False)
@click.option(
    "--size", "all_sizes", is_flag=True, help="List sizes, however long it takes to measure them."
)
@json_option
def ls(chosen: str | None, all_sizes: bool, as_json: bool) -> None:
    """List all executions, most recently used first; or a MAP with all of its items.

    -e of other commands takes the id, the name of the directory, a beginning of either, or a path.
    Those outside of the usual folder are listed as well, with their paths, if a server has served
    them. Attempts are listed below the execution that they explore, and items below their map,
    those first that run or have failed; MAP, a name or a directory, lists all of them. With --size,
    sizes and numbers of checkpoints are listed, too.

    \b
    hankweave ls
    hankweave ls --size
    hankweave ls map-review-1a2b3c
    """
    found = Catalog(executions_root()).rows()
    if chosen is not None:
        found = _of_map(found, chosen)
    elif not as_json:
        found = list(_brief(found))

    if all_sizes or as_json:
        found = list(measured(found, None if all_sizes else MEASURING_SECONDS))

    if as_json:
        print_json([_WholeRow(**msgspec.structs.asdict(each)) for each in found])
    elif not found:
        click.echo(f"There is no execution in {executions_root()}.")
    else:
        print_rows(found, with_sizes=all_sizes)
        for whole in found:
            if whole.map is not None and chosen is not None:
                click.echo(map_totals(whole.map, whole.cost or 0.0, whole.max_dollars))

        for each in [each for each in found if each.server_pid is not None][:1]:
            click.echo(one_line(f"The server that runs, live: {attach_line(Path(each.path))}"))


def _of_map(rows: list[ListedExecution], name: str) -> list[ListedExecution]:
    """Return the row of a map and those of its items; raise Stop if there is no such map."""
    maps = [Path(row.path) for row in rows if row.map]
    places = {str(executions_root() / name), str(Path(name).expanduser().absolute())}
    places |= {str(path) for path in named(name, maps)[:1]}
    found = [row for row in rows if {row.path if row.map else None, row.map_of} & places]
    if not found:
        raise Stop(
            f"There is no map {name}.",
            ExitCode.NO_INPUT,
            hint="`hankweave ls` lists all executions and maps.",
        )

    return found


def _brief(rows: list[ListedExecution]) -> Iterator[ListedExecution]:
    """Yield the rows with at most `MOST_ITEMS` items of each map."""
    for row in rows:
        if row.map_of is None:
            yield row

        if row.map is not None:
            items = [each for each in rows if each.map_of == row.path]
            items.sort(key=lambda each: each.state in ("completed", "new"))
            yield from items[:MOST_ITEMS]


class _WholeRow(ListedExecution, kw_only=True, omit_defaults=False):
    """A row of `ls --json`, which has every field."""


def print_rows(found: list[ListedExecution], *, with_sizes: bool) -> None:
    ids, now = short_ids([Path(each.path) for each in found]), datetime.now(UTC)
    paths = {each.path for each in found}
    head = ("id", "hank", "state", "progress", "cost", "last")
    rows = [
        (
            "  " * _is_below(each, paths) + one_line(ids[Path(each.path)]),
            one_line(_hank_text(each, paths)),
            _standing_text(each, now),
            f"{each.step} of {each.steps}" if each.steps else "-",
            dollars(each.cost) if each.cost else "-",
            "-" if each.last_activity is None else short_age(each.last_activity, now),
            *((_size_text(each), _count_text(each)) if with_sizes else ()),
        )
        for each in found
    ]
    table = [(*head, *(("size", "checkpoints") if with_sizes else ())), *rows]
    first, *lines = aligned(table, flexible=1, right={3, 4, 5, 6, 7})
    print_line(first, "bold")
    for each, row, line in zip(found, rows, lines, strict=True):
        print_line(line, _STYLES.get(row[2].split()[0].rstrip(","), ""))
        if Path(each.path).parent != executions_root() and not _is_below(each, paths):
            print_line(one_line(f"  in {each.path}"), "dim")

        if each.attempt_of is not None and not _is_below(each, paths):
            print_line(one_line(f"  attempt {each.attempt} of {Path(each.attempt_of).name}"), "dim")


def _is_below(each: ListedExecution, paths: set[str]) -> bool:
    return each.attempt_of in paths or each.map_of in paths


def _hank_text(each: ListedExecution, paths: set[str]) -> str:
    """Return the name of a hank; of a map, with a mark; of its items, their own."""
    if each.map_of in paths:
        return each.problem or Path(each.path).name

    name = each.problem or each.hank_name or each.hank or "-"
    return name if each.map is None else f"{name} (map)"


def _standing_text(each: ListedExecution, now: datetime) -> str:
    """Return what an execution does or waits for, in a few words."""
    if each.waits_for is not None:
        return "waits for you"

    if each.waits_until is not None and each.server_pid is not None:
        return f"waits {span((instants.from_text(each.waits_until) - now).total_seconds())}"

    if each.map is not None and each.map.failed:
        return f"{each.map.completed} done, {each.map.failed} failed"

    if each.is_idle:
        return "idle" if each.failure is None else "failed, served"

    is_served = each.server_pid is not None and each.state != "running"
    return f"{each.state}, served" if is_served else each.state


def _size_text(each: ListedExecution) -> str:
    return "-" if each.bytes is None else size_text(each.bytes)


def _count_text(each: ListedExecution) -> str:
    return "-" if each.checkpoints is None else str(each.checkpoints)


COMMANDS = (ls,)
