"""Which execution directory a command means (seed 001, "Execution Directory Location")."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.records import ExecutionMeta
from hankweave_server import files
from hankweave_server.cli import workspaces
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hanks.load import LoadedHank
from hankweave_server.layout import STATE_DIRECTORY, Layout
from hankweave_server.settings import DEFAULT_ROOT, RunSettings
from hankweave_server.workspace import data

META_VERSION = "1.0.0"


def executions_root() -> Path:
    configured = os.environ.get("HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR")
    return Path(configured or DEFAULT_ROOT).expanduser()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The directory a run will own; nothing of it is made or changed yet."""

    layout: Layout
    data_hash: str | None
    source: Path | None


def choose(settings: RunSettings, clock: Clock) -> Chosen:
    """Finds the execution to resume, or names a new one; touches nothing."""
    source = _existing(settings.data)
    data_hash = None if source is None else data.data_hash(source)
    if settings.workspace is not None:
        return Chosen(workspaces.layout_in(settings.workspace), data_hash, source)

    if settings.execution is not None:
        root = settings.execution.expanduser().absolute()
        _refuse_foreign(root)
        return Chosen(data.layout_of(root), data_hash, source)

    found = None
    if data_hash is not None and not settings.new:
        found = data.find_execution(settings.executions_root, data_hash)

    name = data.managed_name(instants.epoch_ms(clock.now()), data_hash)
    return Chosen(Layout.of_execution(found or settings.executions_root / name), data_hash, source)


def _existing(path: Path | None) -> Path | None:
    if path is None:
        return None

    source = path.expanduser().absolute()
    if not source.exists():
        raise Stop(f"There is no data at {source}.", ExitCode.NO_INPUT)

    return source


def _refuse_foreign(root: Path) -> None:
    """Refuses a directory that holds something which is not an execution of ours."""
    if not root.exists() or (root / STATE_DIRECTORY).is_dir():
        return

    if not root.is_dir() or any(root.iterdir()):
        raise Stop(
            f"{root} is not empty and is no execution directory.",
            ExitCode.USAGE,
            hint="Name an empty or a new directory.",
        )


def prepare(chosen: Chosen, hank: LoadedHank, settings: RunSettings, clock: Clock) -> str | None:
    """Makes what is missing of the directory; returns the former hank hash if it has changed.

    Called by the owner of the lock. Raises Stop where the data is not that of this execution.
    """
    layout = chosen.layout
    layout.work_tree.mkdir(exist_ok=True)
    layout.rig_archive.mkdir(exist_ok=True)
    for folder in (layout.runs, layout.sentinel_outputs, layout.sentinel_history):
        files.make_private_directory(folder)

    former = data.read_meta(layout)
    now = instants.to_text(clock.now())
    if former is not None:
        _same_data(former, chosen, layout)
        data.write_meta(layout, _used(former, hank, settings, now))
        changed = former.hank_hash != (hank.hank_hash or None)
        return former.hank_hash if changed else None

    if chosen.source is not None:
        data.link_data(layout, chosen.source, copy=settings.copy)

    data.write_meta(
        layout,
        ExecutionMeta(
            version=META_VERSION,
            read_only_source_data_path=None if settings.data is None else str(settings.data),
            read_only_source_resolved_data_path=(
                None if chosen.source is None else str(chosen.source.resolve())
            ),
            data_hash=chosen.data_hash,
            hank_hash=hank.hank_hash or None,
            hank_path=_path_of(settings),
            link_type=_link_type(chosen, settings),
            created_at=now,
            last_used=now,
            in_place=layout.is_in_place,
        ),
    )
    return None


def _path_of(settings: RunSettings) -> str | None:
    return None if settings.hank is None else str(settings.hank.absolute())


def _link_type(chosen: Chosen, settings: RunSettings) -> Literal["symlink", "copy", "none"]:
    if chosen.source is None:
        return "none"

    return "copy" if settings.copy else "symlink"


def _same_data(former: ExecutionMeta, chosen: Chosen, layout: Layout) -> None:
    if chosen.data_hash is not None and former.data_hash != chosen.data_hash:
        raise Stop(
            f"{layout.root} was made for other data: {former.read_only_source_data_path}.",
            ExitCode.USAGE,
            hint="Name another --execution directory for this data, or start with --new.",
        )


def _used(
    former: ExecutionMeta, hank: LoadedHank, settings: RunSettings, now: str
) -> ExecutionMeta:
    return msgspec.structs.replace(
        former,
        hank_hash=hank.hank_hash or None,
        hank_path=_path_of(settings) or former.hank_path,
        last_used=now,
    )


def hank_of(settings: RunSettings, chosen: Chosen) -> Path | None:
    """The hank to run: the one that was named, else the one that ran here last.

    None where the directory has none: it is served without a plan. Raises Stop where only a hank
    could say what to do.
    """
    if settings.hank is not None:
        return settings.hank

    former = data.read_meta(chosen.layout)
    if former is not None and former.hank_path is not None:
        return Path(former.hank_path)

    if settings.headless:
        raise Stop("Without a hank there is no plan that could end: no --headless.", ExitCode.USAGE)

    return None


def hide(layout: Layout) -> None:
    """Keeps what is ours out of sight of the git of a person's project.

    Done before anything else is written there, so that no `git status` ever shows it.
    """
    if layout.is_in_place and not layout.ignore_file.exists():
        files.replace_durably(layout.ignore_file, b"*\n")


def newest_execution() -> Path:
    """What commands mean that name no execution: the project they are called in, if it is served
    in place, else the execution that was used last."""
    here = workspaces.around(Path.cwd())
    if here is not None:
        return here

    root = executions_root()
    names = (
        [path for path in root.iterdir() if (path / STATE_DIRECTORY).is_dir()]
        if root.is_dir()
        else []
    )
    if not names:
        raise Stop(
            f"There is no execution in {root}.",
            ExitCode.NO_INPUT,
            hint="Start one with `hankweave run`, or name one with --execution.",
        )

    return max(names, key=_last_used)


def _last_used(path: Path) -> tuple[str, bool]:
    """When an execution was last served; a branch that never was comes after its original."""
    try:
        meta = data.read_meta(Layout.of_execution(path))
    except (OSError, Stop):
        meta = None

    if meta is None:
        return instants.to_text(datetime.fromtimestamp(path.stat().st_mtime, UTC)), False

    return meta.last_used, meta.origin is None
