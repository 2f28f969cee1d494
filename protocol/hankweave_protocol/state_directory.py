"""Where an execution keeps its state: in its own directory, or apart from it.

The state of a project that is served in place (`--workspace`) lies in the project, unless the user
wants it elsewhere (`--state-dir`), or agents could reach it there: some kernels confine a program
to a folder, but not to a part of it. The state is then below the user's `XDG_STATE_HOME`, in a
folder named after the project's path, or in the folder that a link of that name leads to.

A path alone does not say whose history it is: projects are moved and copied, and another one may
take their place. So each state has an `Identity`, which names the project's folder by device,
inode and time of creation, and the project has a marker with the same random id. The folder counts
first: agents can write the marker. They cannot guess the id of another project's state, and no link
is followed to read one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hankweave_protocol.shapes import Value

STATE_DIRECTORY = ".hankweave"
REMOVED_STATE = ".hankweave.removing"
"""The name of `.hankweave` while an execution is being removed, so that no start resumes it."""
MARKER = ".hankweave.id"
"""The folder of the marker, in a project whose state is outside of it."""
IDENTITY = "identity.json"
"""The file in a state directory that says whose it is, and the file in a marker's folder."""

_MOST_BYTES = 64 * 1024
_libc = ctypes.CDLL(None)


class Identity(Value):
    """identity.json. In the folder of a marker, it has only the id and the checkpoint."""

    id: str
    path: str | None = None
    """The project's path at its last start."""
    device: int | None = None
    inode: int | None = None
    born: int | None = None
    """When the project's folder was created, in nanoseconds; None if the disk does not say."""
    first_checkpoint: str | None = None
    """The `initial` checkpoint. It says whose a state is that has lost its identity."""


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A project's folder, as the file system knows it."""

    path: str
    device: int
    inode: int
    born: int | None

    @classmethod
    def at(cls, path: Path) -> ProjectFolder:
        """Look at a folder; raise OSError if there is none."""
        status = path.stat()
        shown = os.fsencode(os.path.realpath(path)).decode("utf-8", "replace")
        return cls(shown, status.st_dev, status.st_ino, _birth_time(path))


def _birth_time(path: Path) -> int | None:
    """Return the time of creation, which `os.stat` omits on Linux."""
    found = ctypes.create_string_buffer(256)  # struct statx
    try:
        failed = _libc.statx(-100, os.fsencode(path), 0, 0x800, found)  # STATX_BTIME
    except AttributeError:  # A C library without statx(2).
        return None

    if failed or not struct.unpack_from("=I", found)[0] & 0x800:
        return None

    seconds, nanoseconds = struct.unpack_from("=qI", found, 80)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def is_of_folder(identity: Identity, here: ProjectFolder) -> bool:
    """Return whether the state was last served for this very folder, under any path.

    The time of creation tells it from one that got the inode of a removed folder. Without it, the
    device has to agree, whose number may change at a boot.
    """
    if identity.inode != here.inode:
        return False

    if identity.born is None or here.born is None:
        return identity.device == here.device

    return identity.born == here.born


def belongs(kept: Identity | None, marker: Identity | None, here: ProjectFolder) -> bool:
    """Return whether the state that lies at a project's place is the project's.

    A state without an identity, of an older version, is unless a marker says that the project has
    another.
    """
    if kept is None:
        return marker is None

    return is_of_folder(kept, here) or (marker is not None and marker.id == kept.id)


def read_identity(folder: Path) -> Identity | None:
    """Read identity.json in a state directory or a marker's folder; None if there is no good one.

    No link is followed, because an agent could have made it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened = os.open(folder, flags | os.O_DIRECTORY)
        try:
            file = os.open(IDENTITY, flags | os.O_NONBLOCK, dir_fd=opened)
        finally:
            os.close(opened)

        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None

            return msgspec.json.decode(os.read(file, _MOST_BYTES), type=Identity)
        finally:
            os.close(file)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def identity_in(folder: Path) -> Identity | None:
    """Return the identity of the state that a folder contains, also while that is removed."""
    return read_identity(folder / STATE_DIRECTORY) or read_identity(folder / REMOVED_STATE)


def marker_of(project: Path) -> Identity | None:
    """Return the marker in a project whose state is outside of it."""
    return read_identity(project / MARKER)


def private_projects() -> Path:
    """Return the folder that holds the states of this user's projects; it may not exist."""
    return Path(os.path.realpath(_state_home()), "hankweave", "projects")


def _state_home() -> str:
    return os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")


def private_folder_of(project: Path) -> Path:
    """Return the place of a project's state outside of the project; it may not exist.

    It is a folder, or a link to one elsewhere.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:32]
    return private_projects() / name


def existing_private_folder(root: Path) -> Path | None:
    """Return the folder there, if there is one and it is this project's."""
    if not os.path.isdir(os.path.join(_state_home(), "hankweave", "projects")):
        return None  # As for most users; there may be many executions to look at.

    place = private_folder_of(root)
    if not os.path.isdir(place) or not os.listdir(place):
        return None

    folder = place.resolve() if place.is_symlink() else place
    if not os.path.isdir(root):
        return folder

    here = ProjectFolder.at(root)
    return folder if belongs(identity_in(folder), marker_of(root), here) else None


def state_directory_of(root: Path) -> Path:
    """Return the state directory of an execution or project; it may not exist."""
    return (existing_private_folder(root) or root) / STATE_DIRECTORY
