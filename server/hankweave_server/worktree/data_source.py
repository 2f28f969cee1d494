"""The data of an execution: finding the execution of a data set, and making the data reachable.

An execution is found again by the hash of its data, and reaches the data through
`read_only_data_source`, a symbolic link or a copy (seed 001).

Since Hankweave 0.2 the data is reached from inside the agents' working directory, and the prompts,
rigs and checks of public hanks say `read_only_data_source/...`. The data, or the link to it, lies
beside the work tree (seed 001), where no agent works; the work tree contains only a link. No
checkpoint holds that link and no rollback touches it (`names.AT_THE_TOP`), so it is recreated: at
each start, before and after each agent, after a rollback and in a new branch.

An agent can put something else in its place. A link holds nothing, so it is replaced; anything
else is moved out of the work tree and reported, because it may be the agent's work.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import ExecutionMeta
from hankweave_server import fsutil
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import DATA_SOURCE, Layout

if TYPE_CHECKING:
    from hashlib import _Hash

TIME_LIMIT = timedelta(seconds=5)  # Hankweave's dataHashTimeLimit.
_DEPTH = 3
_ENTRIES = 100  # Of each folder, in the order of their names.
_PASSED_OVER = frozenset({b"node_modules", b"__pycache__", b"dist", b"build"})
META_VERSION = "1.0.0"
_NO_DATA = "nodata"
_ALPHABET = string.digits + string.ascii_lowercase
_WRITE_BITS = 0o222


# --- finding --------------------------------------------------------------------------------------


def data_hash(
    path: Path,
    time_limit: timedelta = TIME_LIMIT,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> str:
    """Hash the outside of the data: 12 hex digits over names, sizes and times.

    Contents are not read, and only three levels of folders are visited (Hankweave, dataHash). Data
    that takes longer than the time limit is identified by its path alone: a partial result would
    depend on the speed of the disk. Raises OSError if there is nothing at the path.
    """
    resolved = path.resolve(strict=True)
    deadline = monotonic() + time_limit.total_seconds()
    lines: list[bytes] = []
    for line in _lines_of(resolved):
        lines.append(line)
        if monotonic() > deadline:
            lines = [b"timeout", os.fsencode(resolved)]
            break

    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()[:12]


def content_hash(path: Path) -> str:
    """Hash a file or a folder with everything below it: names, kinds and contents.

    Links within a folder are hashed as links. Raises OSError.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        for name, item in _below(path, ""):
            _feed(digest, name, item)
    else:
        _feed(digest, path.name, path.resolve())

    return digest.hexdigest()


def _below(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)

    for entry in found:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield f"{name}/", Path(entry.path)
            yield from _below(Path(entry.path), f"{name}/")
        elif entry.is_symlink() or entry.is_file():
            yield name, Path(entry.path)


def _feed(digest: _Hash, name: str, path: Path) -> None:
    digest.update(b"\0%d:%b" % (len(os.fsencode(name)), os.fsencode(name)))
    if path.is_symlink():
        digest.update(b"link:" + os.fsencode(os.readlink(path)))
    elif path.is_file():
        digest.update(b"file:%d:" % path.stat().st_size)
        with path.open("rb") as file:
            while chunk := file.read(fsutil.CHUNK):
                digest.update(chunk)


def managed_name(now_ms: int, data_hash: str | None) -> str:
    """Return the name of a new execution directory: `{ms}-{rand4}-{dataHash6}` (seed 001)."""
    random = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{now_ms}-{random}-{_short(data_hash)}"


def find_execution(root: Path, data_hash: str) -> Path | None:
    """Return the newest execution directory of that data, by its name; None if there is none.

    Branches are skipped.
    """
    if not root.is_dir():
        return None

    ours = (path for path in root.iterdir() if path.name.endswith(f"-{_short(data_hash)}"))
    newest_first = sorted(ours, key=lambda path: path.name, reverse=True)
    return next((path for path in newest_first if _hash_in(path) == data_hash), None)


def _short(data_hash: str | None) -> str:
    return _NO_DATA if data_hash is None else data_hash[:6]


def _hash_in(execution: Path) -> str | None:
    # One with damage could not be resumed; opening it by name reports the reason. A branch is
    # resumed by its name: the same data means the execution it was made from.
    meta = known_meta(Layout.of_execution(execution))
    return None if meta is None or meta.origin is not None else meta.data_hash


def _lines_of(path: Path) -> Iterator[bytes]:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        yield from _lines_below(os.fsencode(path), b"", _DEPTH)
    else:
        yield _line(b"f", os.fsencode(path.name), status)


def _lines_below(folder: bytes, prefix: bytes, depth: int) -> Iterator[bytes]:
    with os.scandir(folder) as entries:
        shown = sorted((e for e in entries if not _is_passed_over(e.name)), key=lambda e: e.name)

    for entry in shown[:_ENTRIES]:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            # Its time would change with every hidden file in it.
            yield b"d:%b:0:0" % name
            if depth > 1:
                with contextlib.suppress(PermissionError):
                    yield from _lines_below(entry.path, name + b"/", depth - 1)
        else:
            with contextlib.suppress(FileNotFoundError):
                kind = b"l" if entry.is_symlink() else b"f"
                yield _line(kind, name, entry.stat(follow_symlinks=False))


def _is_passed_over(name: bytes) -> bool:
    return name.startswith(b".") or name in _PASSED_OVER


def _line(kind: bytes, name: bytes, status: os.stat_result) -> bytes:
    return b"%b:%b:%d:%d" % (kind, name, status.st_size, int(status.st_mtime))


# --- linking --------------------------------------------------------------------------------------


def link_data(layout: Layout, source: Path, *, copy: bool) -> None:
    """Make the data reachable in the execution: a symbolic link, or a read-only copy.

    A single file is reached as `read_only_data_source/NAME`, as in Hankweave. A previous link and
    the remains of an interrupted copy are replaced; the data itself is never touched. Raises Stop
    if data and execution lie within each other.
    """
    resolved = source.resolve(strict=True)
    _refuse_nested(resolved, layout.root.resolve(), copy=copy)
    partial = layout.data_source.with_name(layout.data_source.name + ".partial")
    _remove(partial)
    if resolved.is_dir():
        place = partial
    else:
        partial.mkdir()
        place = partial / source.name

    if copy:
        _copy(resolved, place)
    else:
        place.symlink_to(resolved)

    if not partial.is_symlink():
        set_read_only(partial)

    _remove(layout.data_source)
    partial.rename(layout.data_source)
    fsutil.sync_directory(layout.data_source.parent)


def linked_file(layout: Layout) -> Path | None:
    """Return the path of the data if that is a single file with a link to it; raise Stop.

    It is the path that was recorded, because a link in a copy of data may lead anywhere.
    """
    if layout.data_source.is_symlink() or not layout.data_source.is_dir():
        return None

    meta = read_meta(layout)
    if meta is None or meta.link_type != "symlink":
        return None

    path = meta.read_only_source_resolved_data_path
    return None if path is None else Path(path)


def _refuse_nested(source: Path, root: Path, *, copy: bool) -> None:
    if source.is_relative_to(root):
        raise Stop(
            f"The data {source} is inside the execution directory {root}.",
            ExitCode.USAGE,
            hint="Name data outside of it, or another --execution directory.",
        )

    if copy and root.is_relative_to(source):
        raise Stop(
            (
                f"The execution directory {root} is inside the data {source}, so the data "
                "cannot be copied."
            ),
            ExitCode.USAGE,
            hint="Name an --execution directory elsewhere.",
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=_special_files)
    else:
        shutil.copy2(source, target)


def _special_files(folder: str, names: list[str]) -> list[str]:
    """Return what is neither file, folder nor link: reading a FIFO would block forever."""
    modes = ((name, os.lstat(os.path.join(folder, name)).st_mode) for name in names)
    return [
        name
        for name, mode in modes
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]


def set_read_only(path: Path) -> None:
    """Remove the permissions to write a copy of data; links stay as they are."""
    for item in _inside_out(path):
        if not item.is_symlink():
            item.chmod(stat.S_IMODE(item.stat().st_mode) & ~_WRITE_BITS)


def _remove(path: Path) -> None:
    """Remove a link itself, or a read-only copy with its contents."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)

        shutil.rmtree(path)


def _inside_out(path: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(path, topdown=False):
        for name in (*names, *folders):
            yield Path(folder, name)

    yield path


def size_of_copy(layout: Layout) -> int:
    """Return the bytes of the data, if it is a copy, and of the rig archive."""
    found = 0
    for top in (layout.data_source, layout.rig_archive):
        if not top.is_symlink():
            found += sum(item.lstat().st_size for item in _inside_out(top) if item.is_file())

    return found


def inherit(original: Layout, layout: Layout) -> None:
    """Give a new execution the data of another, by the same link or a copy of the copy.

    The archive is copied as well, with its manifest: it belongs to codons of the past.
    """
    if original.data_source.is_symlink():
        layout.data_source.symlink_to(original.data_source.readlink())
    elif original.data_source.exists():
        link_data(layout, original.data_source, copy=True)

    if original.rig_archive.is_dir():
        _copy(original.rig_archive, layout.rig_archive)
    else:
        layout.rig_archive.mkdir()

    if original.archive_manifest.is_file() and original.is_in_place == layout.is_in_place:
        fsutil.make_private_directory(layout.state_directory)
        fsutil.replace_durably(layout.archive_manifest, original.archive_manifest.read_bytes())


# --- execution-meta.json --------------------------------------------------------------------------


def read_meta(layout: Layout) -> ExecutionMeta | None:
    """Read execution-meta.json (seed 001); return None if there is none. Raise Stop for damage."""
    return read_meta_in(layout.state_directory)


def known_meta(layout: Layout) -> ExecutionMeta | None:
    """Return the metadata; None if there is none, or if it is damaged or cannot be read."""
    try:
        return read_meta(layout)
    except (OSError, Stop):
        return None


def read_meta_in(state_folder: Path) -> ExecutionMeta | None:
    """Read it from a state directory that may have another name."""
    path = state_folder / Layout.of_execution(state_folder.parent).meta.name
    try:
        raw = codec.decode_value(dict[str, Any], path.read_bytes())
        # Hankweave omits what it does not know: the hash before 1.2.0, the path without a hank.
        known = {"hankHash": None, "hankPath": None} | raw
        return codec.decode_value(ExecutionMeta, codec.encode(known))
    except FileNotFoundError:
        return None
    except Refused as fault:
        raise Stop(
            f"{path} is damaged: {fault.message}",
            ExitCode.BAD_DATA,
            hint="Move it away to start with new metadata; state and checkpoints are kept.",
        ) from None


def is_foreign(layout: Layout) -> bool:
    """Return whether the TypeScript Hankweave wrote execution-meta.json, or the state beside it."""
    try:
        meta = codec.decode_value(dict[str, Any], layout.meta.read_bytes())
        if meta.get("version") != META_VERSION or "hankHash" not in meta:
            return True

        return "schemaVersion" not in codec.decode_value(dict[str, Any], layout.state.read_bytes())
    except (FileNotFoundError, Refused):
        return False


def layout_of(root: Path) -> Layout:
    """Return the layout of an execution directory; its metadata says whether it is in place."""
    meta = read_meta(Layout.of_execution(root))
    in_place = meta is not None and meta.in_place
    return Layout.in_place(root) if in_place else Layout.of_execution(root)


def write_meta(layout: Layout, meta: ExecutionMeta) -> None:
    """Write execution-meta.json durably, indented for readability."""
    content = msgspec.json.format(codec.encode(meta), indent=2)
    fsutil.replace_durably(layout.meta, content + b"\n")


_REPLACED = ".replaced-"
"""Separates name and time in the new name of something found in place of the link."""


@dataclass(frozen=True, slots=True)
class DisplacedData:
    """The link, file or folder found in place of the link to the data."""

    led_to: str | None = None
    """Target of another link, which is gone."""
    moved_to: Path | None = None
    """Present location of a file or folder."""

    @property
    def sentence(self) -> str:
        if self.moved_to is None:
            return (
                f"{DATA_SOURCE} in the work tree pointed to {self.led_to}; it points to "
                "the data again."
            )

        return (
            f"{DATA_SOURCE} in the work tree had been replaced; it points to the data "
            f"again. The replacement is kept as {self.moved_to}."
        )


def restore_link(layout: Layout, now_ms: int) -> DisplacedData | None:
    """Make the link lead to the execution's data; return what was in its place, if anything.

    Does nothing in an in-place project, or if the execution has no data. Raises OSError.
    """
    link = layout.data_link
    if link is None or not os.path.lexists(layout.data_source):
        return None

    target = _target(layout)
    found = _found(link)
    if found == target:
        return None

    # Create the new link first: a full disk is noticed before anything has moved.
    new = layout.data_source.with_name(f"{DATA_SOURCE}.partial")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    displaced = None
    if isinstance(found, str):
        displaced = DisplacedData(led_to=found)
    elif found is not None:
        kept = layout.root / f"{DATA_SOURCE}{_REPLACED}{now_ms}"
        _move(link, kept, found)
        displaced = DisplacedData(moved_to=kept)

    new.replace(link)
    return displaced


def _found(link: Path) -> str | int | None:
    """Return the target of a link, the mode of anything else, or None if nothing is there."""
    try:
        mode = os.lstat(link).st_mode
    except FileNotFoundError:
        return None

    return os.readlink(link) if stat.S_ISLNK(mode) else mode


def point(link: Path, target: str) -> None:
    """Replace a link by one that leads to `target`; a crash in between leaves none."""
    link.unlink()
    link.symlink_to(target)


def adopt(layout: Layout) -> None:
    """Move the data of a TypeScript execution out of its work tree; leave a link in its place.

    Hankweave keeps the link, or the copy, in the work tree alone. Does nothing if there is data
    beside the work tree already. Raises OSError.
    """
    link = layout.data_link
    if link is None or os.path.lexists(layout.data_source) or not os.path.lexists(link):
        return

    if link.is_symlink():
        layout.data_source.symlink_to(layout.work_tree / os.readlink(link))
    else:
        _move(link, layout.data_source, os.lstat(link).st_mode)


def _move(path: Path, to: Path, mode: int) -> None:
    """Rename into another folder; a folder that its owner may not write is unlocked for that."""
    is_locked = stat.S_ISDIR(mode) and not mode & stat.S_IWUSR
    if is_locked:
        path.chmod(stat.S_IMODE(mode) | stat.S_IWUSR)

    path.rename(to)
    if is_locked:
        to.chmod(stat.S_IMODE(mode))


def _target(layout: Layout) -> str:
    """Return the target of the link in the work tree.

    For linked data it is the data's own absolute path, as in Hankweave: an agent may copy the link
    to any depth. For a copy it is a relative path, so that an execution can be moved with its
    data.
    """
    if layout.data_source.is_symlink():
        return os.readlink(layout.data_source)

    return os.path.relpath(layout.data_source, layout.work_tree)
