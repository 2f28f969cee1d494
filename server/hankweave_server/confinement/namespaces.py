"""A mount namespace in which only the writable folders can be changed.

Landlock checks who opens, makes, removes and renames files, but not who changes their mode, times
or attributes, and it knows no exception inside an allowed folder. Mounts do both: everything is
read-only except for some folders, which are mounted on themselves, and hidden folders have an empty
one on top.

The order matters. A folder that stays reachable below a hidden one has to be taken hold of before
it is covered (`open_tree`), and a copy taken before the rest becomes read-only stays writable.

Where Landlock is missing or too old (`landlock.IS_USABLE_SINCE`), it does not decide what may be
read. There the namespace gets a new root with nothing in it but what the policy lists.

A process that may not mount (CAP_SYS_ADMIN) makes a user namespace first, in which it may.
Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from hankweave_server.confinement import kernel

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 1, 1 << 2, 1 << 12, 1 << 14, 1 << 18
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY = 1
_CAP_SYS_ADMIN = 21

_PTS, _PTMX = "/dev/pts", "/dev/ptmx"
_LINKS_IN_DEV = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}

_UNREACHABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""What a process cannot reach needs no mount."""

_TEMPORARY = "/tmp"
_SHARED_MEMORY = "/dev/shm"


class MountContent(Enum):
    """The content of a path inside the namespace."""

    READABLE = "readable"
    WRITABLE = "writable"
    PROTECTED = "protected"
    """Readable, even in a writable folder: this server's own programs."""

    HIDDEN = "hidden"
    CONCEALED = "concealed"
    """An empty folder, but for what is readable or writable below it."""

    TEMPORARY = "temporary"
    """The private folder for temporary files."""

    SCRATCH = "scratch"
    """An empty writable folder in memory."""

    TERMINALS = "terminals"
    """Terminals of its own: who can open those of the user can read what is typed there."""

    NOTHING = "nothing"


class Step(NamedTuple):
    """One mount; `below_cover` if the path has to be created in an empty folder first."""

    path: str
    content: MountContent
    below_cover: bool


_EXPOSED = (MountContent.READABLE, MountContent.WRITABLE, MountContent.PROTECTED)
_FRESH = (MountContent.TEMPORARY, MountContent.SCRATCH, MountContent.TERMINALS)
_COVERS = (MountContent.HIDDEN, MountContent.CONCEALED, *_FRESH)


def steps(
    *,
    read: Iterable[str],
    write: Iterable[str],
    hidden: Iterable[str],
    concealed: Iterable[str],
    granted: Sequence[str],
    protected: Iterable[str],
    temporary: str | None,
    otherwise: MountContent = MountContent.READABLE,
) -> list[Step]:
    """Return the mounts for a policy, parents first. Paths are absolute and have no links.

    `otherwise` is what is to be found where no list says anything: READABLE, because Landlock
    decides there, or NOTHING, in a new and empty tree.
    """
    wanted = dict.fromkeys(concealed, MountContent.CONCEALED)
    wanted |= dict.fromkeys(read, MountContent.READABLE)
    wanted |= dict.fromkeys(write, MountContent.WRITABLE)
    wanted |= dict.fromkeys(protected, MountContent.PROTECTED)
    wanted |= dict.fromkeys(hidden, MountContent.HIDDEN)
    wanted[_SHARED_MEMORY] = MountContent.SCRATCH
    wanted[_PTS] = MountContent.TERMINALS
    wanted.pop(_PTMX, None)
    if temporary is not None and not is_below(_TEMPORARY, temporary):
        wanted[_TEMPORARY] = MountContent.TEMPORARY

    done: dict[str, MountContent] = {}
    needed = []
    for path in sorted(wanted, key=lambda path: path.split("/")):
        around = _around(path, done, otherwise)
        content = wanted[path]
        if (
            path.startswith("/dev/")
            and around is MountContent.READABLE
            and content is MountContent.WRITABLE
        ):
            continue  # A device can be written to on a read-only mount.

        is_needed = _is_needed(path, content, around, granted)
        if is_needed:
            needed.append(Step(path, content, around in (*_COVERS, MountContent.NOTHING)))

        # What is hidden below a cover needs no mount, but nothing below it may show.
        if is_needed or content is MountContent.HIDDEN:
            done[path] = content

    return needed


def _around(path: str, done: Mapping[str, MountContent], otherwise: MountContent) -> MountContent:
    while path not in ("/", ""):
        path = os.path.dirname(path)
        if path in done:
            return done[path]

    return otherwise


def _is_needed(
    path: str, content: MountContent, around: MountContent, granted: Sequence[str]
) -> bool:
    if content in _FRESH:
        return True

    if content in (MountContent.HIDDEN, MountContent.CONCEALED):
        return around not in (*_COVERS, MountContent.NOTHING)

    if around is MountContent.HIDDEN:
        return any(is_below(path, folder) for folder in granted)

    if content is MountContent.PROTECTED:
        return around is not MountContent.READABLE

    return around not in (content, MountContent.WRITABLE)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is the folder or below it; both absolute and without links."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def enclose(mounts: Sequence[Step], temporary: str | None, *, in_new_root: bool = False) -> None:
    """Move this process into a namespace with these mounts; raises FenceError.

    The process must have a single thread. Its working directory stays the same.
    """
    here = os.getcwd()
    with _reporting("The namespaces"):
        _unshare()
        kernel.mount("none", "/", None, _MS_REC | _MS_PRIVATE)

    taken = {step: _take(step, temporary) for step in mounts}
    with _reporting("The read-only mounts"):
        if in_new_root:
            _change_root()
        else:
            _make_read_only("/", recursive=True)

    covers = ["/"] if in_new_root else []
    for step, content in taken.items():
        with _reporting(f"The mount on {step.path}"):
            if _place(step, content):
                covers.append(step.path)

    for path in covers:
        with _reporting(f"The cover of {path}"):
            _make_read_only(path, recursive=False)

    with _reporting("The working directory"):
        os.chdir(here)  # The old one is on a mount of the former namespace.


def _change_root() -> None:
    """Replace the root by an empty folder with the links that programs expect in /dev."""
    kernel.mount("hankweave", _TEMPORARY, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    os.chdir(_TEMPORARY)
    kernel.call(kernel.PIVOT_ROOT, b".", b".")
    kernel.detach(".")  # The old root, which is on top of the new one here.
    os.chdir("/")
    os.mkdir("/dev")
    for name, target in _LINKS_IN_DEV.items():
        os.symlink(target, f"/dev/{name}")


def _unshare() -> None:
    if kernel.has_capability(_CAP_SYS_ADMIN):
        kernel.unshare(_CLONE_NEWNS | _CLONE_NEWIPC)
        return

    user, group = os.geteuid(), os.getegid()
    kernel.unshare(_CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWIPC)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _take(step: Step, temporary: str | None) -> int | str | None:
    """Return a copy of the mount at a path, or the target of the link there; None: nothing."""
    if step.content not in (*_EXPOSED, MountContent.TEMPORARY):
        return None

    source = temporary if step.content is MountContent.TEMPORARY and temporary else step.path
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    with _reporting(f"The mount of {source}"):
        try:
            if os.path.islink(source):
                return os.readlink(source)

            return kernel.call(kernel.OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
        except OSError as error:
            if error.errno in _UNREACHABLE:
                return None

            raise


def _place(step: Step, taken: int | str | None) -> bool:
    """Mount one thing; return whether it is a cover, to be made read-only afterwards."""
    if step.content in (MountContent.HIDDEN, MountContent.CONCEALED):
        return _cover(step.path)

    if step.content in (MountContent.SCRATCH, MountContent.TERMINALS):
        if step.below_cover:
            os.makedirs(step.path, exist_ok=True)

        if step.content is MountContent.SCRATCH:
            _mount_empty(step.path, "mode=1777")
        else:
            _mount_terminals(step)

        return False

    if isinstance(taken, int):
        _attach(step, taken)
    elif taken is not None and step.below_cover:
        os.makedirs(os.path.dirname(step.path), mode=0o755, exist_ok=True)
        if os.path.islink(step.path):  # The private /tmp is that of the last program, too.
            os.unlink(step.path)

        os.symlink(taken, step.path)

    return False


def _mount_terminals(step: Step) -> None:
    if not os.path.isdir(step.path):
        return

    kernel.mount("devpts", step.path, "devpts", _MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
    if step.below_cover:
        os.symlink("pts/ptmx", _PTMX)
    elif os.path.exists(_PTMX):
        kernel.mount(f"{step.path}/ptmx", _PTMX, None, _MS_BIND)


def _attach(step: Step, tree: int) -> None:
    if step.content in (MountContent.READABLE, MountContent.PROTECTED):
        _set_read_only(tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE)

    if step.below_cover:
        _make_mount_point(step.path, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))

    target = os.fsencode(step.path)
    kernel.call(kernel.MOVE_MOUNT, tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)


def _cover(path: str) -> bool:
    """Put an empty folder, or the null device, on top of what is at a path."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False  # It does not exist or cannot be reached.

    if is_folder:
        return _mount_empty(path, "mode=755")

    kernel.mount(os.devnull, path, None, _MS_BIND)
    return False  # The null device is not a file system of its own that could be read-only.


def _mount_empty(path: str, options: str) -> bool:
    if not os.path.isdir(path):
        return False

    kernel.mount("hankweave", path, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    return True


def _make_mount_point(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.makedirs(path, mode=0o755, exist_ok=True)
        return

    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _make_read_only(path: str, *, recursive: bool) -> None:
    _set_read_only(_AT_FDCWD, os.fsencode(path), _AT_RECURSIVE if recursive else 0)


def _set_read_only(folder: int, path: bytes, flags: int) -> None:
    attribute = struct.pack("<QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    kernel.call(kernel.MOUNT_SETATTR, folder, path, flags, attribute, len(attribute))


@contextlib.contextmanager
def _reporting(part: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise kernel.FenceError.at(part, error) from error
