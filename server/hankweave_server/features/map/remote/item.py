"""Work on an item where neither the map's directory nor its inputs are.

The machine that runs the map has put into the storage what a start needs. A *worker* unpacks it,
starts the server, and stores a snapshot of the execution after each checkpoint. When its machine
dies, another worker continues with the newest snapshot. What the map's machine reads in the end is
a snapshot as well.

    hank-HASH               hank.json, and what it refers to
    NAME.START/start        the input, the variables, and the execution that is continued
    NAME.START/N            the newest snapshot of the N-th worker
    NAME.START/ended        how the server has ended; stored last

*A snapshot is what kill -9 would leave.* The server is stopped (SIGSTOP) while it is taken, so the
files are those of one moment, and the next server recovers from it as from any crash. That takes a
twentieth of the time at most. Agents go on meanwhile: what they write is not part of the promise.

*One worker counts.* A worker may seem dead and live on. Before a new one does anything else, it
stores its own first snapshot under the next number; the highest number counts, whatever the former
worker stores later. On the same machine, the new one ends the former server first. A server is
killed with its worker in any case.

Every worker of an item uses the same path, because agents find conversations by the path of the
work tree.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.shapes import Value
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.domain.execution_thread import newest_run
from hankweave_server.features.map.executor import (
    ItemExit,
    ItemLaunch,
    ItemLimits,
    LocalPool,
    LocalServer,
)
from hankweave_server.features.map.remote.packages import Storage, pack, unpack
from hankweave_server.features.map.results import ItemCourse, course_of, read_state
from hankweave_server.hank.references import references_in
from hankweave_server.local.living import living_server
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source

POLL_SECONDS = 1.0
"""Seconds between two looks for a new checkpoint."""

_SHARE = 20
"""A snapshot is taken after so many times the time that the last one has taken."""

_START, _ENDED = "start", "ended"
_HANK, _INPUT, _EXECUTION, _OUTPUT = "hank", "input", "execution", "output"
_VARIABLES, _PRICES, _LOG, _NOTE = "variables.json", "prices.json", "log", "note.json"


@dataclass(frozen=True, slots=True)
class RemoteItem:
    """One start of an item, for any worker."""

    launch: ItemLaunch
    """With the paths of the map's machine."""
    folder: str
    """In the storage."""
    hank: str
    """The hank's package in the storage."""
    limits: ItemLimits


class SnapshotNote(Value):
    """A snapshot's own account."""

    taken: float
    """Seconds since 1970."""
    moves: int = 0
    """How many workers have died before."""
    lost_ms: int = 0
    """The sum of the times from their last snapshots to the resumptions."""


class EndNote(Value):
    """How a server has ended; see ItemExit."""

    exit_code: int | None
    overrun: str | None = None
    moves: int = 0
    lost_ms: int = 0


# --- the map's machine ----------------------------------------------------------------------------


def send(item: RemoteItem, storage: Storage, scratch: Path) -> None:
    """Store what a worker needs; `scratch` is an empty folder. Raises OSError."""
    launch, package = item.launch, scratch / "package"
    if item.hank not in storage.names(""):
        folder = launch.hank.parent
        named = {
            os.path.relpath(folder / reference, folder): path
            for reference, path in references_in(launch.hank)
        }
        pack(package, {launch.hank.name: launch.hank, **named})
        storage.put(item.hank, package)

    content = {
        f"{_INPUT}/{launch.data.name}": launch.data,
        _VARIABLES: launch.variables,
        _PRICES: launch.prices,
        _EXECUTION: launch.layout.root,
        _LOG: launch.log,
    }
    _pack(package, content, launch.layout)
    storage.put(f"{item.folder}/{_START}", package)


def fetch(item: RemoteItem, storage: Storage, scratch: Path) -> ItemExit | None:
    """Put the newest snapshot in its place; return how the server has ended, if it has.

    `scratch` is an empty folder on the same file system. Without a snapshot nothing changes. Raises
    OSError and Stop.
    """
    ended = _read_end(item, storage, scratch)
    _unpack_newest(item, storage, scratch)
    launch = item.launch
    if (scratch / _EXECUTION).is_dir():
        _adopt(Layout.of_execution(scratch / _EXECUTION), launch)
        fsutil.sync_filesystem(scratch)
        fsutil.make_private_directory(launch.layout.root.parent)
        with contextlib.suppress(FileNotFoundError):
            launch.layout.root.rename(scratch / "former")

        (scratch / _EXECUTION).rename(launch.layout.root)
        fsutil.sync_directory(launch.layout.root.parent)

    if (scratch / _LOG).exists():
        (scratch / _LOG).replace(launch.log)

    if ended is not None and launch.output is not None and (scratch / _OUTPUT).is_dir():
        shutil.copytree(scratch / _OUTPUT, launch.output, symlinks=True, dirs_exist_ok=True)

    return None if ended is None else exit_of(ended)


def _adopt(layout: Layout, launch: ItemLaunch) -> None:
    """Let an execution from a worker refer to the input and the hank of this machine."""
    meta = data_source.read_meta(layout)
    if meta is None:
        return

    adopted = msgspec.structs.replace(
        meta,
        hank_path=str(launch.hank),
        read_only_source_data_path=str(launch.data),
        read_only_source_resolved_data_path=str(launch.data.resolve()),
    )
    data_source.write_meta(layout, adopted)
    data_source.link_data(layout, launch.data, copy=meta.link_type == "copy")
    data_source.restore_link(layout, 0)


def _read_end(item: RemoteItem, storage: Storage, scratch: Path) -> EndNote | None:
    try:
        storage.get(f"{item.folder}/{_ENDED}", scratch / _ENDED)
    except FileNotFoundError:
        return None

    return codec.decode_value(EndNote, (scratch / _ENDED).read_bytes())


def _unpack_newest(item: RemoteItem, storage: Storage, folder: Path) -> int:
    """Unpack the newest snapshot, if there is one; return its number, else 0."""
    numbers = [int(name) for name in storage.names(item.folder) if name.isdigit()]
    newest = max(numbers, default=0)
    if newest:
        package = folder / "package"
        storage.get(f"{item.folder}/{newest}", package)
        unpack(package, folder)
        package.unlink()

    return newest


def _pack(package: Path, content: Mapping[str, Path | None], layout: Layout) -> None:
    """Pack what exists, without the execution's data, and without what is of one server alone."""
    own = (layout.runtime_lock, layout.lock_guard, layout.reserve, layout.server_address)
    tokens = (layout.controller_token, layout.viewer_token, layout.way_to_page)
    inner = [layout.data_source, layout.agent_access, layout.agent_temporary]
    if layout.data_link is not None and layout.data_link.is_symlink():
        inner.append(layout.data_link)  # Alone, it would seem to be data from Hankweave 0.12.

    present = {name: path for name, path in content.items() if path is not None and path.exists()}
    pack(package, present, [*inner, *own, *tokens])


# --- a worker -------------------------------------------------------------------------------------


class Worker:
    """The work on one item, in a folder of this machine that is its own."""

    def __init__(self, item: RemoteItem, storage: Storage, place: Path, clock: Clock) -> None:
        self._clock = clock
        self._item = item
        self._storage = storage
        self._place = place
        self._launch = replace(
            item.launch,
            layout=Layout.of_execution(place / _EXECUTION),
            hank=place / _HANK / item.launch.hank.name,
            data=place / _INPUT / item.launch.data.name,
            variables=place / _VARIABLES,
            log=place / _LOG,
            output=None if item.launch.output is None else place / _OUTPUT,
            prices=None if item.launch.prices is None else place / _PRICES,
        )
        self._number = 1
        self._note = SnapshotNote(taken=0.0)
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """Ask the server to end in order."""
        self._stopping.set()

    def course(self) -> ItemCourse | None:
        """Return what the server does; None if it has not begun."""
        return course_of(self._launch.layout)

    async def run(self) -> ItemExit:
        """Work until the server has ended and that is stored. Raises OSError.

        The thread that calls this has to live until then: the server ends with it.
        """
        ended = await anyio.to_thread.run_sync(self._prepare)
        if ended is not None:
            return ended

        server = LocalPool(self._item.limits).started(self._launch, is_tied=True)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._store_checkpoints, server)
                tasks.start_soon(self._stop_when_asked, server)
                result = await server.result()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

        return await anyio.to_thread.run_sync(self._conclude, result)

    def _prepare(self) -> ItemExit | None:
        """Fetch everything, and take the item over; return how it has ended if it has."""
        _end_former(self._launch.layout)
        _remove(self._place)
        fsutil.make_private_directory(self._place)
        if (ended := _read_end(self._item, self._storage, self._place)) is not None:
            return exit_of(ended)

        package = self._place / "package"
        self._storage.get(self._item.hank, package)
        unpack(package, self._place / _HANK)
        self._storage.get(f"{self._item.folder}/{_START}", package)
        unpack(package, self._place)
        before = self._newest_run()
        self._number = self._take_newest() + 1
        if self._newest_run() != before:
            # Another worker has begun with the codon; this one goes on.
            self._launch = replace(self._launch, codon=None)

        self._store()
        return None

    def _newest_run(self) -> str | None:
        state = read_state(self._launch.layout)
        run = None if state is None else newest_run(state)
        return None if run is None else run.run_id

    def _take_newest(self) -> int:
        """Put the newest snapshot in the place of what the start has brought."""
        incoming = self._place / "incoming"
        incoming.mkdir()
        newest = _unpack_newest(self._item, self._storage, incoming)
        if newest:
            note = codec.decode_value(SnapshotNote, (incoming / _NOTE).read_bytes())
            lost = max(0, round(1000 * (self._clock.now().timestamp() - note.taken)))
            self._note = msgspec.structs.replace(
                note, moves=note.moves + 1, lost_ms=note.lost_ms + lost
            )
            for name in (_EXECUTION, _OUTPUT, _LOG):
                _remove(self._place / name)
                if (incoming / name).exists():
                    (incoming / name).rename(self._place / name)

        _remove(incoming)
        return newest

    def _store(self) -> None:
        """Store a snapshot of the files as they are."""
        note, package = self._place / _NOTE, self._place / "package"
        self._note = msgspec.structs.replace(self._note, taken=self._clock.now().timestamp())
        note.write_bytes(codec.encode(self._note))
        content = {name: self._place / name for name in (_EXECUTION, _OUTPUT, _LOG, _NOTE)}
        _pack(package, content, self._launch.layout)
        self._put(str(self._number), package)

    def _put(self, name: str, package: Path) -> None:
        self._storage.put(f"{self._item.folder}/{name}", package)

    def _conclude(self, result: ItemExit) -> ItemExit:
        self._store()
        ended = EndNote(
            exit_code=result.exit_code,
            overrun=result.overrun,
            moves=self._note.moves,
            lost_ms=self._note.lost_ms,
        )
        package = self._place / "package"
        package.write_bytes(codec.encode(ended))
        self._put(_ENDED, package)
        _remove(self._place)
        with contextlib.suppress(OSError):  # Of the map's other items, some may still be there.
            self._place.parent.rmdir()

        return exit_of(ended)

    async def _stop_when_asked(self, server: LocalServer) -> None:
        await self._stopping.wait()
        server.stop()

    async def _store_checkpoints(self, server: LocalServer) -> None:
        """Store a snapshot whenever the journal has grown, in a part of the time."""
        known = None
        while True:
            await anyio.sleep(POLL_SECONDS)
            grown = _size_of(self._launch.layout.journal)
            if grown is None or grown == known:
                continue

            known, began = grown, self._clock.monotonic()
            await anyio.to_thread.run_sync(self._store_stopped, server)
            await anyio.sleep(_SHARE * (self._clock.monotonic() - began))

    def _store_stopped(self, server: LocalServer) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            signal.pidfd_send_signal(server.pidfd, signal.SIGSTOP)
            try:
                # All its threads have stopped when the kernel reports it.
                os.waitid(os.P_PIDFD, server.pidfd, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                self._store()
            finally:
                signal.pidfd_send_signal(server.pidfd, signal.SIGCONT)


def exit_of(ended: EndNote) -> ItemExit:
    return ItemExit(ended.exit_code, ended.overrun, moves=ended.moves, lost_ms=ended.lost_ms)


def _end_former(layout: Layout) -> None:
    """End the server of a worker that has died, or seems to have, on this machine."""
    pid = living_server(layout)
    if pid is None:
        return

    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    """Remove a file or a folder, also one with write-protected folders in it."""
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
