"""The record of an execution's mirror: `mirror/mirror.json` in its state directory.

The nonces decide whether the lease in the remote is this directory's. Each is written before the
push that puts it there. A directory that was copied has the same record, but not the same place.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.shapes import Value
from hankweave_server import fsutil
from hankweave_server.features.mirror.lease import Mode
from hankweave_server.paths import Layout

RESTORED = "restored"
"""An empty file beside the record: conversations are still to be put in their places."""

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


class MirrorRecord(Value):
    """mirror.json."""

    address: str
    mode: Mode
    ttl: float
    execution_id: str
    """Identifies the execution wherever it is continued."""
    nonces: tuple[str, ...] = ()
    """Those of the leases that servers here have taken or were about to take, the newest last."""
    place: str = ""
    """The machine and the directory that the nonces are good for."""
    data_in_mirror: bool = False


def folder_of(layout: Layout) -> Path:
    """Return the folder of the record and of the repository that is pushed from."""
    return layout.state_directory / "mirror"


def repository_of(layout: Layout) -> Path:
    return folder_of(layout) / "repository"


def file_of(layout: Layout) -> Path:
    return folder_of(layout) / "mirror.json"


def read_record(layout: Layout) -> MirrorRecord | None:
    """Return the record; None if the execution has no mirror. Raises OSError and Refused."""
    try:
        content = file_of(layout).read_bytes()
    except FileNotFoundError:
        return None

    return codec.decode_value(MirrorRecord, content)


def write_record(layout: Layout, record: MirrorRecord) -> None:
    """Write the record durably."""
    fsutil.make_private_directory(folder_of(layout))
    fsutil.replace_durably(file_of(layout), codec.encode(record))


def forget(layout: Layout) -> None:
    """Remove the record, durably, and the repository that was pushed from; idempotent.

    What a restored execution still needs is kept.
    """
    fsutil.remove_durably(file_of(layout))
    if repository_of(layout).exists():
        shutil.rmtree(repository_of(layout))

    with suppress(OSError):  # It is not empty, or not there.
        folder_of(layout).rmdir()

    fsutil.sync_directory(layout.state_directory)


def with_nonce(record: MirrorRecord, layout: Layout) -> MirrorRecord:
    """Return the record with a new nonce, for a lease that is about to be taken here."""
    place, nonce = place_of(layout), secrets.token_hex(8)
    known = record.nonces if record.place == place else ()
    return msgspec.structs.replace(record, nonces=(*known[-9:], nonce), place=place)


def place_of(layout: Layout) -> str:
    """Return what no copy of the directory has, and what stays if it is renamed."""
    return f"{_machine_id()}:{layout.state_directory.stat().st_ino}"


def owner_of(layout: Layout) -> str:
    """Return the machine and the directory for people."""
    return f"{socket.gethostname()}:{os.path.realpath(layout.root)}"


def _machine_id() -> str:
    for file in _MACHINE_IDS:
        try:
            return file.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue

    return socket.gethostname()
