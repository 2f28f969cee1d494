"""The execution directory that a run uses: choosing it, preparing it, and its metadata.

A run resumes the execution of the same data, uses a named directory, or serves the user's own
project as a work tree, in place (`--workspace DIR`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.events import DataChanged, HistoryIdentified
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.state_directory import marker_of, private_folder_of, state_directory_of
from hankweave_server import config, fsutil
from hankweave_server.clock import Clock
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import probe
from hankweave_server.domain.budget.allowance import dollar_limit
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.project_history import LocatedHistory, locate
from hankweave_server.local.project_state import SettledHistory, record, settle
from hankweave_server.paths import HANK_FILE, Layout
from hankweave_server.settings import DEFAULT_ROOT, RunSettings
from hankweave_server.worktree import data_source
from hankweave_server.worktree.data_source import DisplacedData

if TYPE_CHECKING:
    from hankweave_server.hank.load import LoadedHank


def layout_in(workspace: Path) -> Layout:
    """Return the layout of a project, changing nothing; raise Stop if it is not one."""
    return located_in(workspace).layout


def located_in(
    workspace: Path, state_folder: Path | None = None, adopted: Path | None = None
) -> LocatedHistory:
    """Find the history of a project, changing nothing; raise Stop if it is not one."""
    root = workspace.expanduser().absolute()
    if not root.is_dir():
        raise Stop(
            f"{root} is not a directory.",
            ExitCode.NO_INPUT,
            hint="Name an existing project directory.",
        )

    root = root.resolve()
    _refuse_too_much(root)
    for folder in (root, *root.parents):
        meta = data_source.read_meta(Layout.of_execution(folder))
        if meta is not None and not meta.in_place:
            raise Stop(
                f"{root} belongs to the execution {folder}; it is not a project.",
                ExitCode.USAGE,
                hint=f"Serve it with `hankweave run --execution {shlex.quote(str(folder))}`.",
            )

    return _history_of(root, state_folder, adopted)


def _history_of(root: Path, state_folder: Path | None, adopted: Path | None) -> LocatedHistory:
    if state_folder is not None:
        state_folder = Path(os.path.realpath(state_folder))
        if state_folder.is_relative_to(root):
            raise Stop(
                f"{state_folder} is in the project {root}, where agents can change it.",
                ExitCode.USAGE,
                hint="Name a directory outside of the project with --state-dir.",
            )

        above = (state_folder, *state_folder.parents)
        existing = next(folder for folder in above if os.path.lexists(folder))
        if not existing.is_dir():
            raise Stop(
                f"{existing} is not a directory, so the history cannot be kept in {state_folder}.",
                ExitCode.USAGE,
                hint="Name a directory with --state-dir; it is created if it does not exist.",
            )

    return locate(root, state_folder, adopted, is_private=lambda: _needs_private_folder(root))


def _needs_private_folder(root: Path) -> bool:
    """Return whether agents could reach a new state in the project, or it has a place outside."""
    if private_folder_of(root).is_dir():
        return True

    return _configured(_CONFINEMENT) != "none" and probe().level is Level.LANDLOCK


def _refuse_too_much(root: Path) -> None:
    """Refuse the home directory and the file system's root, which are never what was meant."""
    home = Path("~").expanduser().resolve()
    if root == Path(root.anchor) or root == home or root in home.parents:
        raise Stop(
            f"{root} cannot be a workspace: every file below it would be tracked.",
            ExitCode.USAGE,
            hint="Name the directory of one project.",
        )


def enclosing(folder: Path) -> Path | None:
    """Return the execution or in-place project that contains a folder."""
    for root in (folder, *folder.parents):
        if data_source.known_meta(Layout.in_place(root)) is not None:
            return root

    return None


def is_in_git(folder: Path) -> bool:
    """Return whether a directory lies in a git repository, going by names alone."""
    return any(os.path.lexists(each / ".git") for each in (folder, *folder.parents))


_BACKUP = re.compile(r".+\.backup-\d{13}")


_ROOT = config.SETTINGS["executionBaseDir"]
_CONFINEMENT = config.SETTINGS["confinement"]


def executions_root() -> Path:
    """Return the folder of executions: from the environment, hankweave.json, or the default."""
    found = _configured(_ROOT)
    return Path(str(found)).expanduser().absolute() if found else DEFAULT_ROOT.expanduser()


def _configured(setting: config.Setting) -> object:
    """Return a setting from the environment or hankweave.json; None if neither has it."""
    if os.environ.get(setting.variable):
        return os.environ[setting.variable]

    file = config.read_file(Path.cwd() / config.FILE)
    return None if file is None else file.layer.values.get(setting.key)


@dataclass(frozen=True, slots=True)
class ChosenExecution:
    """The directory that a run will own; nothing in it has been created or changed yet."""

    layout: Layout
    data_hash: str | None
    source: Path | None
    set_aside: tuple[str, ...] = ()
    """The names under which the former execution there was set aside."""
    located: LocatedHistory | None = None
    """The history of a project, as it was found."""
    settled: SettledHistory | None = None
    """The same in its place."""


@dataclass(frozen=True, slots=True)
class ExecutionChanges:
    """Changes since the execution was last used."""

    hank_hash: str | None = None
    """The former hash, if the hank has changed."""
    data: DataChanged | None = None
    set_aside: tuple[str, ...] = ()
    history: HistoryIdentified | None = None
    displaced: DisplacedData | None = None
    """What the work tree had in place of the link to the data."""


def choose(settings: RunSettings, clock: Clock) -> ChosenExecution:
    """Return the execution to resume, or a name for a new one; nothing is changed."""
    source = _existing(settings.data)
    if settings.data_is_implied and settings.execution is not None:
        former = data_source.read_meta(
            Layout.of_execution(settings.execution.expanduser().absolute())
        )
        source = source if former is None else None

    limit = timedelta(seconds=settings.data_hash_seconds)
    data_hash = None if source is None else data_source.data_hash(source, limit)
    if settings.workspace is not None:
        located = located_in(settings.workspace, settings.state_folder, settings.adopted_state)
        return ChosenExecution(located.layout, data_hash, source, located=located)

    if settings.execution is not None:
        return _chosen_by_name(settings, settings.execution, data_hash, source)

    found = None
    if data_hash is not None and not settings.new:
        found = data_source.find_execution(settings.executions_root, data_hash)

    name = data_source.managed_name(instants.epoch_ms(clock.now()), data_hash)
    return ChosenExecution(
        Layout.of_execution(found or settings.executions_root / name), data_hash, source
    )


def _chosen_by_name(
    settings: RunSettings, execution: Path, data_hash: str | None, source: Path | None
) -> ChosenExecution:
    root = execution.expanduser().absolute()
    _refuse_foreign(root, settings)
    layout = data_source.layout_of(root)
    former = data_source.read_meta(layout)
    located = None
    if layout.is_in_place and not settings.new:
        located = _history_of(root.resolve(), settings.state_folder, settings.adopted_state)
        layout = located.layout
    elif settings.adopted_state is not None:
        raise Stop(
            f"{root} is not a project, so it cannot adopt the history of one.",
            ExitCode.USAGE,
            hint="Name the project with --workspace.",
        )

    if not settings.new or not layout.state_directory.is_dir():
        return ChosenExecution(layout, data_hash, source, located=located)

    _require_force(layout, settings)
    if source is None and former is not None and former.read_only_source_resolved_data_path:
        source = _existing(Path(former.read_only_source_resolved_data_path))
        assert source is not None
        data_hash = data_source.data_hash(source, timedelta(seconds=settings.data_hash_seconds))

    return ChosenExecution(layout, data_hash, source)


def settled(chosen: ChosenExecution) -> ChosenExecution:
    """Put the history of a project in its place; raise Stop if a server is in the way."""
    if chosen.located is None:
        return chosen

    done = settle(chosen.located)
    return replace(chosen, layout=done.layout, settled=done)


def refuse_misplaced(root: Path) -> None:
    """Raise Stop for a project whose history has to be found by a start."""
    if marker_of(root) is not None:
        raise Stop(
            f"The history of {root} is not at its place: the project was moved or copied.",
            ExitCode.NO_INPUT,
            hint=f"A start finds it: `hankweave run --workspace {shlex.quote(str(root))}`.",
        )


def _require_force(layout: Layout, settings: RunSettings) -> None:
    if layout.is_in_place:
        raise Stop(
            f"{layout.root} is a project, so its files cannot be set aside.",
            ExitCode.USAGE,
            hint=f"Serve it with `hankweave run --workspace {shlex.quote(str(layout.root))}`.",
        )

    if not settings.force:
        raise Stop(
            f"{layout.root} already contains an execution.",
            ExitCode.USAGE,
            hint="Without --new, it is resumed; with --new --force, it is set aside and kept.",
        )


def _existing(path: Path | None) -> Path | None:
    if path is None:
        return None

    source = path.expanduser().absolute()
    if not source.exists():
        raise nothing_at("data", source)

    return source


def nothing_at(what: str, path: Path) -> Stop:
    return Stop(
        f"There is no {what} at {path}.",
        ExitCode.NO_INPUT,
        hint="Name a file or directory that exists.",
    )


def _refuse_foreign(root: Path, settings: RunSettings) -> None:
    """Refuse a directory that is not an execution, unless it is empty or the user agrees.

    A new execution must not take a name among the managed ones either, because their names encode
    their time and data (Hankweave's safety tiers).
    """
    if state_directory_of(root).is_dir():
        return

    refuse_misplaced(root)
    if Layout.of_execution(root).removed_state.is_dir():
        raise Stop(
            f"{root} is only partly removed: a cleanup was interrupted there.",
            ExitCode.USAGE,
            hint=f"`hankweave cleanup --execution {shlex.quote(str(root))}` completes it.",
        )

    managed = settings.executions_root.expanduser().resolve()
    if root.resolve().is_relative_to(managed) and not settings.yes:
        raise Stop(
            f"{root} is in the directory for executions that Hankweave creates and names itself.",
            ExitCode.USAGE,
            hint="Omit --execution, name a directory elsewhere, or confirm with --yes.",
        )

    if not root.exists():
        return

    if not root.is_dir():
        raise Stop(f"{root} is a file.", ExitCode.USAGE, hint="Name a directory.")

    is_empty = all(_BACKUP.fullmatch(path.name) for path in root.iterdir())
    if is_empty or settings.yes:
        return

    if can_ask() and click.confirm(f"{root} is not empty. Create an execution in it?"):
        return

    raise Stop(
        f"{root} is not empty and is not an execution directory.",
        ExitCode.USAGE,
        hint=(
            "Name an empty or new directory, or add --yes to create an execution next to "
            "the existing files."
        ),
    )


def prepare(
    chosen: ChosenExecution, hank: LoadedHank, settings: RunSettings, clock: Clock
) -> ExecutionChanges:
    """Create what is missing in the directory; return what has changed since the last use.

    Called by the owner of the lock. Raises Stop if the data is not this execution's, unless forced.
    A changed hank is reported, but recorded in the metadata only by `take_hank`.
    """
    layout = chosen.layout
    history = None
    if chosen.settled is not None:
        record(chosen.settled)
        history = chosen.settled.note

    layout.work_tree.mkdir(exist_ok=True)
    layout.rig_archive.mkdir(exist_ok=True)
    for folder in (layout.runs, layout.sentinel_outputs, layout.sentinel_conversations):
        fsutil.make_private_directory(folder)

    _link_runs(layout)
    former = data_source.read_meta(layout)
    now = instants.to_text(clock.now())
    if former is None:
        if chosen.source is not None:
            data_source.link_data(layout, chosen.source, copy=settings.copy)

        displaced = _restore_link(layout, clock)
        data_source.write_meta(layout, _founded(chosen, hank, settings, now))
        return ExecutionChanges(set_aside=chosen.set_aside, history=history, displaced=displaced)

    if data_source.is_foreign(layout):
        fsutil.keep_original(layout.meta)
        former = _taken_over(former)

    if former.link_type != "none":
        data_source.adopt(layout)

    meta = _with_data(former, chosen, layout, settings, now)
    if not is_other_hank(former, hank):
        meta = _with_hank(meta, hank, settings)

    variables = {**meta.variables, **dict(settings.variables)}
    meta = msgspec.structs.replace(meta, last_used=now, variables=variables)
    data_source.write_meta(layout, meta)
    return ExecutionChanges(
        hank_hash=former.hank_hash if is_other_hank(former, hank) else None,
        data=_changed_data(former, meta),
        set_aside=chosen.set_aside,
        history=history,
        displaced=_restore_link(layout, clock),
    )


def _link_runs(layout: Layout) -> None:
    """Link `claudeLogPath` for readers that start at the execution directory.

    Hankweave documents the path as relative to `.hankweave`, but its own readers resolve it against
    the execution directory. A user's project gets no link, and existing files are not replaced.
    """
    if layout.runs_link is not None and not os.path.lexists(layout.runs_link):
        layout.runs_link.symlink_to(layout.runs.relative_to(layout.root))


def _taken_over(foreign: ExecutionMeta) -> ExecutionMeta:
    """Convert Hankweave's metadata, whose hash of the data is computed differently.

    Data that changed after Hankweave's last use is therefore not detected.
    """
    known = foreign.data_hash
    if foreign.read_only_source_resolved_data_path is not None:
        with contextlib.suppress(OSError):
            known = data_source.data_hash(Path(foreign.read_only_source_resolved_data_path))

    return msgspec.structs.replace(foreign, version=data_source.META_VERSION, data_hash=known)


def _restore_link(layout: Layout, clock: Clock) -> DisplacedData | None:
    try:
        return data_source.restore_link(layout, instants.epoch_ms(clock.now()))
    except OSError as error:
        raise Stop(
            f"The link to the data cannot be created in {layout.work_tree}: {error.strerror}.",
            ExitCode.IO_ERROR,
            hint=f"Make {layout.work_tree} writable, then start again.",
        ) from None


def is_other_hank(former: ExecutionMeta, hank: LoadedHank) -> bool:
    """Return whether an execution that had a hank is given a different one (hankHash)."""
    known = former.hank_hash
    return known not in (None, hank.hank_hash or None) and known not in hank.foreign_hashes


def take_hank(layout: Layout, hank: LoadedHank, settings: RunSettings) -> None:
    """Record that the plan follows this hank from now on."""
    former = data_source.read_meta(layout)
    if former is not None and is_other_hank(former, hank):
        data_source.write_meta(layout, _with_hank(former, hank, settings))


def _founded(
    chosen: ChosenExecution, hank: LoadedHank, settings: RunSettings, now: str
) -> ExecutionMeta:
    founded = ExecutionMeta(
        version=data_source.META_VERSION,
        read_only_source_data_path=None,
        read_only_source_resolved_data_path=None,
        data_hash=None,
        hank_hash=hank.hank_hash or None,
        hank_path=_path_of(settings),
        hank_name=_name_of(hank),
        max_dollars=dollar_limit(hank.hank, settings.max_cost),
        link_type="none",
        created_at=now,
        last_used=now,
        in_place=chosen.layout.is_in_place,
        variables=dict(settings.variables),
    )
    if chosen.source is None:
        return founded

    return _linked_to(founded, chosen, settings, copy=settings.copy)


def _linked_to(
    meta: ExecutionMeta, chosen: ChosenExecution, settings: RunSettings, *, copy: bool
) -> ExecutionMeta:
    assert chosen.source is not None
    return msgspec.structs.replace(
        meta,
        read_only_source_data_path=str(settings.data or chosen.source),
        read_only_source_resolved_data_path=str(chosen.source.resolve()),
        data_hash=chosen.data_hash,
        link_type="copy" if copy else "symlink",
    )


def _with_hank(meta: ExecutionMeta, hank: LoadedHank, settings: RunSettings) -> ExecutionMeta:
    if settings.plan_on_record:  # It has neither the name nor the budget of the hank.
        return meta

    return msgspec.structs.replace(
        meta,
        hank_hash=hank.hank_hash or None,
        hank_path=_path_of(settings) or meta.hank_path,
        hank_name=_name_of(hank),
        max_dollars=dollar_limit(hank.hank, settings.max_cost),
    )


def _name_of(hank: LoadedHank) -> str | None:
    return None if hank.hank.meta is None else hank.hank.meta.name


def _path_of(settings: RunSettings) -> str | None:
    """Return the path that a later start finds; the project may be somewhere else by then."""
    if settings.hank is None:
        return None

    path = settings.hank.absolute()
    return str(path.parent.resolve() / path.name)


def _with_data(
    former: ExecutionMeta, chosen: ChosenExecution, layout: Layout, settings: RunSettings, now: str
) -> ExecutionMeta:
    """Link other data if that is forced, and replace a link by a copy if requested."""
    is_other = chosen.data_hash not in (None, former.data_hash)
    if is_other and not settings.force:
        raise Stop(
            f"{layout.root} was created for other data: {former.read_only_source_data_path}.",
            ExitCode.USAGE,
            hint="--force switches it to this data; --new or another --execution directory "
            "leaves it unchanged.",
        )

    is_gone = not os.path.lexists(layout.data_source)  # Interrupted between the next two steps.
    wants_copy = settings.copy and former.link_type != "copy"
    if chosen.source is None or not (is_other or is_gone or wants_copy):
        return former

    copy = settings.copy or former.link_type == "copy"
    if layout.data_source.exists() and not layout.data_source.is_symlink():
        # Set aside, not removed: the source of the copy may be gone.
        stamp = instants.epoch_ms(instants.from_text(now))
        kept = layout.data_source.with_name(f"{layout.data_source.name}.backup-{stamp}")
        layout.data_source.rename(kept)

    data_source.link_data(layout, chosen.source, copy=copy)
    return _linked_to(former, chosen, settings, copy=copy)


def _changed_data(former: ExecutionMeta, meta: ExecutionMeta) -> DataChanged | None:
    if former.data_hash == meta.data_hash:
        return None

    return DataChanged(
        previous_hash=former.data_hash,
        current_hash=meta.data_hash or "",
        previous_path=former.read_only_source_data_path,
        current_path=meta.read_only_source_data_path or "",
    )


def hank_of(settings: RunSettings, chosen: ChosenExecution) -> Path | None:
    """Return the hank to run: the named one, else the one that ran here last.

    Returns None if the directory has none: it is served without a plan. Raises Stop if the run
    cannot work without a hank.
    """
    if settings.hank is not None:
        return settings.hank

    former = data_source.read_meta(chosen.layout)
    if former is not None and former.hank_path is not None:
        return Path(former.hank_path)

    if settings.headless:
        raise _without_plan(settings)

    return None


def _without_plan(settings: RunSettings) -> Stop:
    """Return the error for --headless without a hank; its hint names a hank.json that is there."""
    option, place = "-w", settings.workspace
    if place is None:
        option, place = "-e", settings.execution or Path()

    named = f"{option} {shlex.quote(str(place))} --headless"
    hint = f"Name one: `hankweave run HANK {named}`. `hankweave init my-hank` writes one."
    for file in (Path(HANK_FILE), place / HANK_FILE):
        if file.is_file():
            hint = f"Name the one that is there: `hankweave run {shlex.quote(str(file))} {named}`."
            break

    return Stop(
        "--headless requires a hank: without one, there is no plan to run.",
        ExitCode.USAGE,
        hint=hint,
    )


def former_hank(execution: Path) -> Path | None:
    """Return the hank that an execution ran last, if it exists and had one."""
    try:
        meta = data_source.read_meta(data_source.layout_of(execution.expanduser().absolute()))
    except (OSError, Stop):
        return None

    return None if meta is None or meta.hank_path is None else Path(meta.hank_path)


def hide(layout: Layout) -> None:
    """Hide the server's files from the git of a user's project.

    Called before anything else is written there, so that `git status` never shows them.
    """
    is_visible = layout.is_in_place and layout.private_folder is None
    if is_visible and not layout.ignore_file.exists():
        fsutil.replace_durably(layout.ignore_file, b"*\n")


def can_ask() -> bool:
    """Return whether a user can see questions and answer them."""
    return sys.stdin.isatty() and sys.stdout.isatty()
