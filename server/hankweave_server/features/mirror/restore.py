"""Make an execution from a mirror, as it was when its last owner pushed.

The refs, the journal, the small files of the state, the hank, the archive and the data come from
the mirror or from this machine; the work tree is that of HEAD. What the former owner had since its
last checkpoint is lost, as a crash of a server loses what an agent does until a new one goes on.

An execution is always restored as an ordinary one: a project that was served in place is still
where it was.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import ExecutionMeta
from hankweave_server import fsutil
from hankweave_server.checkpoints import repo_init
from hankweave_server.checkpoints.clone import fill_work_tree
from hankweave_server.features.mirror.contents import (
    MirrorContents,
    MirrorDamaged,
    MirrorRepository,
    target_of,
)
from hankweave_server.features.mirror.record import (
    RESTORED,
    MirrorRecord,
    file_of,
    folder_of,
    repository_of,
)
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import EXECUTABLE, LINK
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source
from hankweave_server.worktree.names import is_reserved

_T = TypeVar("_T")
_HEAD = re.compile("ref: refs/heads/[^/]+|[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class LocalData:
    """Data on this machine."""

    path: Path
    is_copied: bool
    """True if the execution gets a copy of them."""


@dataclass(frozen=True, slots=True)
class LocalParts:
    """The parts of an execution that are taken from this machine instead of the mirror."""

    data: LocalData | None = None
    """None if there are none, or if the mirror has them."""
    hank: Path | None = None
    """None for the hank in the mirror, if there is one."""


def restore(
    fetched: MirrorRepository,
    contents: MirrorContents,
    layout: Layout,
    final: Path,
    local: LocalParts,
    meter: Meter = UNWATCHED,
) -> None:
    """Build the execution, and flush it; its directory will be renamed to `final`.

    The repository that was fetched into becomes the one that the execution is pushed from. Raises
    MirrorDamaged, RestoreIncomplete, InsufficientSpace, ShadowRepositoryError, OSError, and Stop
    for data that cannot be linked.
    """
    fsutil.make_private_directory(layout.state_directory)
    meta = meta_in(contents)
    for path, content in contents.state.items():
        file = _below(layout.state_directory, path)
        if file != file_of(layout):  # The new owner has its own record.
            fsutil.make_private_directory(file.parent)
            fsutil.replace(file, content)

    if meta.in_place:  # It names places in the project.
        layout.archive_manifest.unlink(missing_ok=True)

    _write_journal(fetched, contents, layout)
    _fill_repository(fetched, contents, layout)
    layout.work_tree.mkdir(exist_ok=True)
    layout.rig_archive.mkdir(exist_ok=True)
    head = _head_of(layout)
    if head is not None:
        fill_work_tree(head, layout, meter)

    if contents.archive is not None:
        _write_files(fetched, contents.archive, layout.rig_archive)

    if local.data is not None:
        data_source.link_data(layout, local.data.path, copy=local.data.is_copied)
    elif contents.data is not None:
        _write_data(fetched, contents.data, layout)

    hank = local.hank
    if hank is None and contents.hank is not None and meta.hank_path is not None:
        folder = layout.state_directory / "hank"
        _write_files(fetched, contents.hank, folder)
        hank = final / folder.relative_to(layout.root) / Path(meta.hank_path).name

    _write_meta(layout, meta, local.data, hank)
    fsutil.make_private_directory(folder_of(layout))
    (folder_of(layout) / RESTORED).touch()
    fetched.move(repository_of(layout), borrowed=layout.shadow_repository / "objects")
    meter.begin("flushing", "files")
    fsutil.sync_filesystem(layout.root)


def meta_in(contents: MirrorContents) -> ExecutionMeta:
    """Return the metadata as the former owner had them; raise MirrorDamaged."""
    return _read(ExecutionMeta, contents, "execution-meta.json")


def record_in(contents: MirrorContents) -> MirrorRecord:
    """Return the former owner's record of the mirror; raise MirrorDamaged."""
    return _read(MirrorRecord, contents, "mirror/mirror.json")


def _read(kind: type[_T], contents: MirrorContents, name: str) -> _T:
    try:
        return codec.decode_value(kind, contents.state[name])
    except KeyError:
        raise MirrorDamaged(f"the mirror has no {name}") from None
    except Refused as refused:
        raise MirrorDamaged(f"{name} cannot be read: {refused.message}") from None


def _below(folder: Path, path: str) -> Path:
    """Return a path below a folder; raise MirrorDamaged for one that leads elsewhere."""
    for part in path.split("/"):
        if part in ("", ".", "..") or is_reserved(os.fsencode(part)):
            raise MirrorDamaged(f"{path!r} is not the name of a file in an execution")

    return folder / path


def _write_journal(fetched: MirrorRepository, contents: MirrorContents, layout: Layout) -> None:
    fsutil.make_private_directory(layout.journal.parent)
    with layout.journal.open("xb") as journal:
        os.fchmod(journal.fileno(), fsutil.PRIVATE_FILE)
        for segment in fetched.journal(contents.journal):
            journal.write(segment)

        size = journal.tell()

    if size != contents.lease.journal_bytes:
        expected = contents.lease.journal_bytes
        raise MirrorDamaged(f"the journal has {size} bytes, and should have {expected}")


def _fill_repository(fetched: MirrorRepository, contents: MirrorContents, layout: Layout) -> None:
    """Copy the objects that the refs lead to, and create the refs.

    Lease and journal stay where they were fetched: to the shadow repository they would be garbage,
    which the other one borrows until it is collected.
    """
    if _HEAD.fullmatch(contents.head) is None:
        raise MirrorDamaged(f"{contents.head!r} is not the content of HEAD")

    for name in contents.refs:
        if not _below(layout.shadow_repository, name).is_relative_to(
            layout.shadow_repository / "refs"
        ):
            raise MirrorDamaged(f"{name!r} is not the name of a ref")

    repo_init.make_ready(layout)
    packs = layout.shadow_repository / "objects" / "pack"
    tagged = (target_of(tag) for tag in contents.tags.values())
    fetched.pack((*(set(contents.refs.values()) - contents.tags.keys()), *tagged), packs)
    for file in packs.iterdir():
        file.chmod(0o400)

    repo = ShadowRepo(layout.shadow_repository)
    staging = repo.staging()
    try:
        staging.add("tree", b"")  # The work tree is filled starting from it.
        for tag in contents.tags.values():
            staging.add("tag", tag)

        repo.publish(staging, {**contents.refs, "HEAD": contents.head})
    finally:
        staging.abandon()
        repo.close()


def _head_of(layout: Layout) -> Sha | None:
    with closing(ShadowRepo(layout.shadow_repository)) as repo:
        return repo.head()


def _write_data(fetched: MirrorRepository, tree: Sha, layout: Layout) -> None:
    folder = folder_of(layout) / "data"
    folder.mkdir(mode=fsutil.PRIVATE_DIRECTORY, parents=True)
    _write_files(fetched, tree, folder)
    folder.rename(layout.data_source)
    data_source.set_read_only(layout.data_source)


def _write_files(fetched: MirrorRepository, tree: Sha, folder: Path) -> None:
    for path, mode, content in fetched.files(tree):
        file = _below(folder, path)
        file.parent.mkdir(mode=fsutil.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        if mode == LINK:
            file.symlink_to(os.fsdecode(content))
        else:
            file.write_bytes(content)
            file.chmod(0o700 if mode == EXECUTABLE else fsutil.PRIVATE_FILE)


def _write_meta(
    layout: Layout, meta: ExecutionMeta, data: LocalData | None, hank: Path | None
) -> None:
    """Write the metadata as they are true on this machine."""
    meta = msgspec.structs.replace(
        meta, in_place=False, hank_path=None if hank is None else str(hank)
    )
    if data is not None:
        meta = msgspec.structs.replace(
            meta,
            link_type="copy" if data.is_copied else "symlink",
            read_only_source_data_path=str(data.path),
            read_only_source_resolved_data_path=str(data.path.resolve()),
            data_hash=data_source.data_hash(data.path),
        )
    elif meta.link_type != "none":
        meta = msgspec.structs.replace(meta, link_type="copy")

    data_source.write_meta(layout, meta)
