"""The directory of a map: its paths, its lock and its journal.

    map.jsonl       the journal: one record in each line, appended and flushed
    map.lock        held by the supervisor, and by a removal
    items/NAME      the execution of an item; NAME~2 after its hank or input has changed
    inputs/HASH     the content of a row
    variables/NAME.json  the variables of an item
    logs/NAME.out   what the servers of an item have printed
    results.jsonl, summary.csv    written at the end of a command

A record is durable when `append` returns. A power cut can leave a part of the last line, which the
next supervisor removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hankweave_protocol import codec
from hankweave_server import fsutil
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.plan import RECORD_TYPES, MapRecord, MapState, fold
from hankweave_server.paths import MAP_ITEMS, MAP_JOURNAL, REMOVED_MAP, Layout, is_map
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard
from hankweave_server.runtime_lock.lock_file import start_ticks

RESULTS = "results.jsonl"
SUMMARY = "summary.csv"
_decoder = msgspec.json.Decoder(MapRecord)


class _Typed(msgspec.Struct):
    type: str


class MapDirectory:
    """The paths of a map; reading it changes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = root / MAP_JOURNAL
        self.removed_journal = root / REMOVED_MAP
        self.lock = root / "map.lock"
        self.items = root / MAP_ITEMS
        self.inputs = root / "inputs"
        self.variables = root / "variables"
        self.logs = root / "logs"

    def layout(self, execution: str) -> Layout:
        """Return the layout of an execution, named as in the journal."""
        return Layout.of_execution(self.root / execution)

    def log_of(self, item: str) -> Path:
        return self.logs / f"{item}.out"

    def variables_of(self, item: str) -> Path:
        return self.variables / f"{item}.json"

    def supervisor(self) -> int | None:
        """Return the process that works on the map; None if there is none."""
        with contextlib.suppress(OSError, ValueError):
            pid, ticks = map(int, self.lock.read_text().split())
            return pid if start_ticks(pid) == ticks else None

        return None

    def state(self) -> MapState:
        """Fold the journal as it is now; an unfinished last line is left out. Raises Stop."""
        for path in (self.journal, self.removed_journal):
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()
                return fold(_decoded(path, content[: content.rfind(b"\n") + 1]))

        return MapState()


def _decoded(path: Path, content: bytes) -> list[MapRecord]:
    """Decode records; those of types that a newer version has added are left out."""
    records = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            if msgspec.json.decode(line, type=_Typed).type in RECORD_TYPES:
                records.append(_decoder.decode(line))
        except msgspec.MsgspecError as fault:
            raise Stop(
                f"{path}:{number}: The journal of the map is damaged: {fault}.",
                ExitCode.BAD_DATA,
                hint="Remove this line; what it says of an item is then found out again.",
            ) from None

    return records


class MapJournal:
    """The journal of a map that this process owns, until `close`."""

    def __init__(self, directory: MapDirectory) -> None:
        """Create what is missing, take the lock, and read the journal. Raises Stop and OSError."""
        fsutil.make_private_directory(directory.root)
        self.directory = directory
        self._lock = locked(directory)
        if directory.removed_journal.exists():
            release(self._lock)
            raise Stop(
                f"{directory.root} is only partly removed: a cleanup was interrupted there.",
                ExitCode.USAGE,
                hint=f"`hankweave cleanup -e {shlex.quote(str(directory.root))}` completes it.",
            )

        for folder in (directory.inputs, directory.variables, directory.logs, directory.items):
            fsutil.make_private_directory(folder)

        is_new = not directory.journal.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(directory.journal, flags, fsutil.PRIVATE_FILE)
        if is_new:
            fsutil.sync_directory(directory.root)

        _remove_torn_end(self._file)
        self.state = directory.state()

    def append(self, records: Sequence[MapRecord]) -> None:
        """Write records durably, then fold them into the state. Raises OSError."""
        if records:
            content = b"".join(codec.encode(record) + b"\n" for record in records)
            fsutil.append_whole(self._file, content)
            os.fdatasync(self._file)
            self.state = fold(records, self.state)

    def close(self) -> None:
        os.close(self._file)
        release(self._lock)


def locked(directory: MapDirectory) -> int:
    """Take the lock of a map until the descriptor is closed. Raises Stop and OSError."""
    try:
        lock = granted_guard(directory.lock)
    except GuardBusy:
        raise Stop(
            f"Another `hankweave map` is working on {directory.root}.",
            ExitCode.LOCK_HELD,
            hint="Wait for it, or name another --directory.",
        ) from None

    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {start_ticks(os.getpid())}\n".encode(), 0)
    return lock


def release(lock: int) -> None:
    """Give up the lock of a map."""
    os.ftruncate(lock, 0)  # This process may live on.
    os.close(lock)


def _remove_torn_end(file: int) -> None:
    size = os.fstat(file).st_size
    end = size
    while end and os.pread(file, 1, end - 1) != b"\n":
        end -= 1

    if end < size:
        os.ftruncate(file, end)
        os.fdatasync(file)


def default_root(executions: Path, hank: Path) -> Path:
    """Return the directory of a hank's map, if the command line names none."""
    place = hank.absolute().resolve()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", place.parent.name).strip(".-") or "hank"
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:6]
    return executions.expanduser() / f"map-{plain}-{digest}"


def maps_in(root: Path) -> list[Path]:
    """Return the directories of maps in a folder; symbolic links are not followed."""
    if not root.is_dir():
        return []

    with os.scandir(root) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    return [*filter(is_map, folders)]
