"""`hankweave ls` and `hankweave cleanup`: list executions, and remove them.

An execution is removed in three steps: take its runtime lock, rename `.hankweave`, delete the parts
one by one. The rename is the commit point. A crash before it leaves the execution as it was. After
it, no start resumes what is left, and the next cleanup recognises the new name and finishes.

Only the parts of an execution are removed. Other files in its directory stay, and so does the
directory then. Of a project that is served in place, only `.hankweave` is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.shapes import Value
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server import fsutil
from hankweave_server.agents.process import leftovers
from hankweave_server.cli.map.view import totals
from hankweave_server.cli.output.text import (
    AGE_IN_DAYS,
    aligned,
    date,
    dollars,
    say,
    short_age,
    size_text,
    span,
)
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.catalog import Catalog, listed, measured
from hankweave_server.local.executions import executions_root, nothing_at
from hankweave_server.local.project_state import forget, remove_place
from hankweave_server.local.register import executions_in, state_folder_of
from hankweave_server.local.short_ids import MANAGED_NAME, short_ids
from hankweave_server.local.targeting import attach_line, named
from hankweave_server.map.listing import with_maps
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard
from hankweave_server.runtime_lock.held import acquire
from hankweave_server.runtime_lock.lock_file import LockHeld
from hankweave_server.worktree import data_source
from hankweave_server.worktree.data_source import data_hash, find_execution
from hankweave_server.worktree.removal import DEEP, mounted_below, remove, size_of

_PARTS = re.compile(
    r"(?:agentRoot|rigArchive|read_only_data_source|\.hankweave)\.backup-\d{13}"
    r"|agentRoot|rigArchive|read_only_data_source(?:\.partial|\.(?:backup|replaced)-\d{13})?"
    rf"|{re.escape(DEEP)}[0-9a-f]{{16}}"
)


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal."""

    bytes: int
    stays: tuple[str, ...] = ()
    """Names in the directory that are not part of an execution."""


def require_execution(root: Path, *, managed: bool) -> None:
    """Raise Stop unless `root` is an execution that is safe to remove; change nothing."""
    if root.is_symlink():
        raise Stop(
            f"{root} is a link.",
            ExitCode.USAGE,
            hint=f"Name the directory that it points to: {root.resolve()}.",
        )

    state = state_folder_of(root)
    if state is None:
        raise Stop(
            f"There is no execution in {root}.",
            ExitCode.NO_INPUT,
            hint="`hankweave ls` lists all executions.",
        )

    if state.name == STATE_DIRECTORY and not _is_known(root, state, managed=managed):
        raise Stop(
            f"{state} has no readable metadata, so it may not be an execution.",
            ExitCode.BAD_DATA,
            hint="If you are sure that it is one, remove it by hand.",
        )

    mounted = mounted_below(root)
    if mounted is not None:
        raise Stop(
            f"Something is mounted at {mounted}.",
            ExitCode.UNAVAILABLE,
            hint="Unmount it first; otherwise its contents would be removed.",
        )


def _is_known(root: Path, state: Path, *, managed: bool) -> bool:
    is_ours = managed and MANAGED_NAME.fullmatch(root.name) is not None
    return is_ours or _meta_in(state) is not None


def remove_execution(root: Path, clock: Clock, *, managed: bool) -> Removed:
    """Remove an execution permanently.

    Raises LockHeld while another process serves or removes it, and OSError if a disk error or the
    permissions of a file prevent it. After an error or a crash, another call continues.
    """
    require_execution(root, managed=managed)
    with _owned(root, clock):
        layout = Layout.of_execution(root)
        state = layout.removed_state
        meta = _meta_in(state)
        in_place = meta is not None and meta.in_place
        freed = 0
        if in_place:
            forget(layout)

        if not in_place and _is_known(root, state, managed=managed):
            freed += sum(remove(part) for part in _parts_of(root))

        freed += _remove_state(state)
        remove_place(layout)
        stays = tuple(sorted(os.listdir(root)))
        if in_place or stays:
            return Removed(freed, () if in_place else stays)

    with contextlib.suppress(FileNotFoundError):
        root.rmdir()

    fsutil.sync_directory(root.parent)
    return Removed(freed)


@contextlib.contextmanager
def _owned(root: Path, clock: Clock) -> Iterator[None]:
    """Hold the lock of an execution, with its state directory renamed for removal."""
    layout = Layout.of_execution(root)
    if state_folder_of(root) == layout.state_directory:
        held = acquire(layout, clock)
        try:
            _end_agents(layout)
            layout.state_directory.rename(layout.removed_state)
            fsutil.sync_directory(layout.removed_state.parent)
            yield
        finally:
            held.release()
    else:
        try:
            guard = granted_guard(layout.removed_state / layout.lock_guard.name)
        except GuardBusy:
            raise Stop(
                f"{root} is being removed by another process.",
                ExitCode.LOCK_HELD,
                hint="If it does not complete that, another `hankweave cleanup` does.",
            ) from None

        try:
            yield
        finally:
            os.close(guard)


def _end_agents(layout: Layout) -> None:
    """Kill the agents that a dead server left behind: they would keep writing to the execution."""
    killed = anyio.run(leftovers.sweep, layout.agent_processes)
    survivors = [str(each.pid) for each in killed if each.survived]
    if survivors:
        raise Stop(
            f"Agents of the previous server cannot be killed: pids {', '.join(survivors)}.",
            ExitCode.UNAVAILABLE,
            hint="Kill these processes, then try again.",
        )


def _parts_of(root: Path) -> list[Path]:
    parts = [root / name for name in sorted(os.listdir(root)) if _PARTS.fullmatch(name)]
    runs = Layout.of_execution(root).runs_link
    if runs is not None and runs.is_symlink() and os.readlink(runs) == f"{STATE_DIRECTORY}/runs":
        parts.append(runs)

    return parts


def _remove_state(state: Path) -> int:
    """Remove the state directory; the metadata goes last, since an unfinished removal needs it."""
    meta = Layout.of_execution(state.parent).meta.name
    guard = Layout.of_execution(state.parent).lock_guard.name
    last = (".gitignore", guard, meta)
    freed = sum(remove(state / name) for name in sorted(os.listdir(state)) if name not in last)
    freed += sum(remove(state / name) for name in last)
    try:
        state.rmdir()
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise

    return freed


def _meta_in(state: Path) -> ExecutionMeta | None:
    """Read the metadata in a state directory, under its usual name or renamed for removal."""
    try:
        return data_source.read_meta_in(state)
    except (OSError, Stop):
        return None


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


class Gone(Value, kw_only=True):
    path: str
    bytes: int
    stays: tuple[str, ...] = ()
    """Other names in the directory, which are kept."""


class Kept(Value, kw_only=True):
    path: str
    reason: str


class CleanupReport(Value, kw_only=True, omit_defaults=False):
    """The output of `hankweave cleanup --json`; with `dryRun`, nothing has been removed."""

    dry_run: bool
    removed: tuple[Gone, ...]
    kept: tuple[Kept, ...]
    failed: tuple[Kept, ...]
    """Executions that could not be removed completely, and why; another cleanup continues."""
    freed_bytes: int


# --- ls -------------------------------------------------------------------------------------------


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
    found = with_maps(Catalog(executions_root()).rows(), executions_root())
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
                click.echo(totals(whole.map, whole.cost or 0.0, whole.max_dollars))

        for each in [each for each in found if each.server_pid is not None][:1]:
            click.echo(one_line(f"The server that runs, live: {attach_line(Path(each.path))}"))


def _of_map(rows: list[ListedExecution], name: str) -> list[ListedExecution]:
    """Return the row of a map and those of its items; raise Stop if there is no such map."""
    places = {str(executions_root() / name), str(Path(name).expanduser().absolute())}
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


def _newest_first() -> list[ListedExecution]:
    """Return the executions that a cleanup may choose: in the usual folder, and no others."""
    every = [listed(path) for path in executions_in(executions_root())]
    return sorted(every, key=lambda each: (each.last_used or "", each.path), reverse=True)


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
    say(first, "bold")
    for each, row, line in zip(found, rows, lines, strict=True):
        say(line, _STYLES.get(row[2].split()[0], ""))
        if Path(each.path).parent != executions_root() and not _is_below(each, paths):
            say(one_line(f"  in {each.path}"), "dim")

        if each.attempt_of is not None and not _is_below(each, paths):
            say(one_line(f"  attempt {each.attempt} of {Path(each.attempt_of).name}"), "dim")


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

    is_idle = each.server_pid is not None and each.state != "running"
    return f"{each.state}, served" if is_idle else each.state


def _size_text(each: ListedExecution) -> str:
    return "-" if each.bytes is None else size_text(each.bytes)


def _count_text(each: ListedExecution) -> str:
    return "-" if each.checkpoints is None else str(each.checkpoints)


def _state_text(each: ListedExecution) -> str:
    if each.map is not None:
        return f"{each.state}, {each.map.failed} failed" if each.map.failed else each.state

    state = each.state if each.server_pid is None else f"{each.state} (pid {each.server_pid})"
    if each.attempt is None:
        return state

    whose = "" if each.attempt_of is None else f" of {Path(each.attempt_of).name}"
    return one_line(f"{state}, attempt {each.attempt}{whose}")


# --- cleanup --------------------------------------------------------------------------------------


@click.command()
@click.option("--execution", "-e", type=click.Path(path_type=Path), help="Remove this execution.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Remove the newest execution of this data."
)
@click.option(
    "--older-than",
    type=AGE_IN_DAYS,
    metavar="DAYS",
    help="Remove executions not used for this many days, or for a time like 12h.",
)
@click.option("--keep", type=click.IntRange(min=0), help="Keep this many, the most recently used.")
@click.option("--all", "every", is_flag=True, help="Remove all executions.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def cleanup(
    execution: Path | None,
    data: Path | None,
    older_than: int | None,
    keep: int | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove executions permanently.

    Checkpoints and the files of agents are removed as well. Linked data is never touched, nor are
    files that are not part of an execution. Of a project that is served in place, only .hankweave
    is removed. An execution with a running server is kept.

    \b
    hankweave cleanup --older-than 30 --dry-run
    hankweave cleanup --all --keep 3 -y
    """
    if data is not None:
        if execution is not None:
            raise click.UsageError("--data and --execution exclude each other.")

        execution = _made_of(data)

    if execution is None and not every and older_than is None and keep is None:
        raise click.UsageError("Specify --execution, --older-than, --keep or --all.")

    if execution is not None and (every or older_than is not None or keep is not None):
        raise click.UsageError("--execution excludes --older-than, --keep and --all.")

    if as_json and not (yes or dry_run):
        raise click.UsageError("--json requires --yes or --dry-run.")

    if execution is not None:
        doomed, kept = [_named(execution)], list[Kept]()
    else:
        doomed, kept = _selected(older_than, keep)

    doomed = [msgspec.structs.replace(one, bytes=size_of(Path(one.path))) for one in doomed]
    if not as_json:
        _print_doomed(doomed, dry_run=dry_run)

    if not dry_run and doomed and not yes:
        _ask(doomed)

    report = _foreseen(doomed, kept) if dry_run else _done(doomed, kept, alone=execution)
    if as_json:
        print_json(report)
    else:
        _print_report(report)

    sys.exit(ExitCode.FAILED if report.failed else ExitCode.DONE)


def _made_of(data: Path) -> Path:
    """Return the newest execution of `data`; raise Stop if there is none."""
    if not data.exists():
        raise nothing_at("data", data)

    found = find_execution(executions_root(), data_hash(data))
    if found is None:
        raise Stop(
            f"There is no execution of {data.absolute()} in {executions_root()}.",
            ExitCode.NO_INPUT,
            hint="`hankweave ls` lists all; --execution names one.",
        )

    return found


def _named(execution: Path) -> ListedExecution:
    root = named(execution)
    require_execution(root, managed=_is_managed(root))
    return listed(root)


def _is_managed(root: Path) -> bool:
    return root.parent.resolve() == executions_root().resolve()


def _selected(older_than: int | None, keep: int | None) -> tuple[list[ListedExecution], list[Kept]]:
    doomed: list[ListedExecution] = []
    kept: list[Kept] = []
    limit = None
    if older_than is not None:
        limit = instants.to_text(datetime.now(UTC) - timedelta(seconds=older_than))

    for number, each in enumerate(_newest_first()):
        reason = _reason_to_keep(each, number, limit, keep)
        if reason is None:
            doomed.append(each)
        else:
            kept.append(Kept(path=each.path, reason=reason))

    return doomed, kept


def _reason_to_keep(
    each: ListedExecution, number: int, limit: str | None, keep: int | None
) -> str | None:
    if keep is not None and number < keep:
        return f"one of the {keep} most recently used"

    if limit is not None and (each.last_used or "") >= limit:
        return "used more recently"

    if each.server_pid is not None:
        return f"it has a running server (pid {each.server_pid})"

    if each.in_place:
        return "it is a project that is served in place"

    if each.state == "unreadable":
        return f"it cannot be read: {each.problem}; name it with --execution"

    return None


def _print_doomed(doomed: list[ListedExecution], *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "will be"
    click.echo(f"{counted(len(doomed), 'execution')} {verb} removed")
    for each in doomed:
        size = size_text(each.bytes or 0)
        used = "-" if each.last_used is None else date(each.last_used)
        aside = "  only .hankweave: the project's own files are kept" if each.in_place else ""
        click.echo(f"  {one_line(each.path)}  {_state_text(each)}  {used}  {size}{aside}")


def _ask(doomed: list[ListedExecution]) -> None:
    total = size_text(sum(each.bytes or 0 for each in doomed))
    try:
        agreed = click.confirm(
            f"Remove {counted(len(doomed), 'execution')} for good, {total} in all?"
        )
    except click.Abort:
        agreed = False  # stdin is closed or Ctrl-C was pressed.

    if not agreed:
        raise Stop("Nothing was removed.", ExitCode.FAILED, hint="--yes skips this question.")


def _foreseen(doomed: list[ListedExecution], kept: list[Kept]) -> CleanupReport:
    gone = tuple(Gone(path=each.path, bytes=each.bytes or 0) for each in doomed)
    return CleanupReport(
        dry_run=True,
        removed=gone,
        kept=tuple(kept),
        failed=(),
        freed_bytes=sum(each.bytes for each in gone),
    )


def _done(doomed: list[ListedExecution], kept: list[Kept], *, alone: Path | None) -> CleanupReport:
    gone: list[Gone] = []
    failed: list[Kept] = []
    for each in doomed:
        root = Path(each.path)
        try:
            removed = remove_execution(root, SystemClock(), managed=_is_managed(root))
            gone.append(Gone(path=each.path, bytes=removed.bytes, stays=removed.stays))
        except (Stop, OSError) as error:
            if alone is not None:
                raise

            is_held = isinstance(error, LockHeld)
            (kept if is_held else failed).append(Kept(path=each.path, reason=str(error)))

    return CleanupReport(
        dry_run=False,
        removed=tuple(gone),
        kept=tuple(kept),
        failed=tuple(failed),
        freed_bytes=sum(each.bytes for each in gone),
    )


def _print_report(report: CleanupReport) -> None:
    for kept in report.kept:
        click.echo(f"  kept: {one_line(kept.path)}  ({one_line(kept.reason)})")

    for each in report.removed:
        if each.stays:
            names = ", ".join(map(one_line, each.stays))
            click.echo(f"  {one_line(each.path)} is kept, because it contains other files: {names}")

    for failure in report.failed:
        click.echo(f"  not removed: {one_line(failure.path)}  ({one_line(failure.reason)})")

    verb = "would be" if report.dry_run else "were"
    click.echo(f"{size_text(report.freed_bytes)} {verb} freed")


COMMANDS = (ls, cleanup)
