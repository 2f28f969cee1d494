"""Workers on a Ray cluster: a detached actor for each item in flight.

Ray decides where actors live, and starts one again when its process or its machine has died. An
actor gets everything that a new machine needs with its creation, so this does not depend on the
map's command: that may have been killed meanwhile, and the next one finds the actor by its name.

Without `--storage`, packages travel through Ray's object store, in pieces, to and from an actor on
the map's machine, which keeps them in the map's directory. It outlives the command as well. Workers
wait for it while it is away.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.from_thread import start_blocking_portal

from hankweave_server import __version__, fsutil
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.executor import END_SECONDS, NICER
from hankweave_server.features.map.plan import Placement
from hankweave_server.features.map.remote.executor import RemoteWorker
from hankweave_server.features.map.remote.item import RemoteItem, Worker
from hankweave_server.features.map.remote.packages import FolderStorage, Storage, storage_at
from hankweave_server.features.map.results import ItemCourse

NAMESPACE = "hankweave"
MOST_RESTARTS = 20
"""How often Ray starts an actor again, before the item counts as crashed."""

_SCHEME = "ray://"
_CLIENT_PORT = 10001
_CONNECT_SECONDS = 5.0
_BETWEEN_TRIES = 1.0
_CALLS_AT_ONCE = 8
_PIECE = 4 << 20
_STORING_SECONDS = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS = 4

_PASSED_ON = (
    *("HANKWEAVE_", "ANTHROPIC_", "CLAUDE_CODE_", "OPENAI_", "CODEX_", "GEMINI_", "GOOGLE_"),
    *("OPENROUTER_", "OPENCODE_", "AWS_"),
)
"""Beginnings of variables that servers of items get from the map's command."""


# --- on the machines of the cluster ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Creation:
    """Everything that an actor needs to begin on any machine."""

    item: RemoteItem
    map_id: str
    storage: str | None
    """A path or a URL; None for the actor of the map's machine."""
    environment: Mapping[str, str]
    version: str


class ItemActor:
    """A worker as Ray runs it; its event loop has a thread of its own, which never ends."""

    def __init__(self, creation: Creation) -> None:
        self._problem: str | None = None
        if creation.version != __version__:
            self._problem = (
                f"{socket.gethostname()} has Hankweave {__version__}, and the map's machine "
                f"{creation.version}."
            )
            return

        os.environ.update(creation.environment)
        self._worker = Worker(
            creation.item, _storage_of(creation), _place_of(creation), SystemClock()
        )
        self._opened = ExitStack()
        self._portal = self._opened.enter_context(start_blocking_portal())
        self._end = self._portal.start_task_soon(self._worker.run)

    def begun(self) -> str | None:
        """Return when the actor has a machine; return why it cannot work there, if it cannot."""
        return self._problem

    def stop(self) -> None:
        self._portal.call(self._worker.stop)

    def course(self) -> ItemCourse | None:
        return self._worker.course()

    def result(self) -> None:
        """Wait until the item's end is stored. Raises OSError."""
        self._end.result()


def _place_of(creation: Creation) -> Path:
    """Return the item's folder, the same on all machines. Raises OSError if it is not private."""
    base = Path(fsutil.temporary_folder()) / f"hankweave-{os.getuid()}"
    fsutil.make_private_directory(base)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user")

    return base / creation.map_id / creation.item.launch.layout.root.name


def _storage_of(creation: Creation) -> Storage:
    if creation.storage is None:
        return ActorStorage(_storage_actor_name(creation.map_id))

    return storage_at(creation.storage)


class StorageActor:
    """A folder of the map's machine, for workers elsewhere."""

    def __init__(self, root: Path) -> None:
        self._storage = FolderStorage(root)
        self._incoming = root / ".incoming"
        fsutil.make_private_directory(self._incoming)

    def names(self, folder: str) -> list[str]:
        return self._storage.names(folder)

    def remove(self, name: str) -> None:
        self._storage.remove(name)

    def read(self, name: str, offset: int) -> bytes:
        return self._storage.read(name, offset, _PIECE)

    def write(self, token: str, offset: int, piece: bytes) -> None:
        """Write a piece of a package; a repetition does no harm."""
        file = os.open(self._incoming / token, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, piece, offset)
        finally:
            os.close(file)

    def keep(self, name: str, token: str) -> None:
        """Store what was written; a repetition after a lost answer does no harm."""
        incoming = self._incoming / token
        if incoming.exists():
            self._storage.put(name, incoming)
            incoming.unlink()


class ActorStorage:
    """The storage of the map's machine, as workers reach it."""

    def __init__(self, actor: str) -> None:
        self._actor = actor

    def put(self, name: str, file: Path) -> None:
        token, offset = secrets.token_hex(8), 0
        with file.open("rb") as content:
            while (piece := content.read(_PIECE)) or not offset:
                self._call("write", token, offset, piece)
                offset += len(piece) or 1

        self._call("keep", name, token)

    def get(self, name: str, file: Path) -> None:
        with file.open("wb") as content:
            while piece := self._call("read", name, content.tell()):
                content.write(piece)

    def names(self, folder: str) -> list[str]:
        found: list[str] = self._call("names", folder)
        return found

    def remove(self, name: str) -> None:
        self._call("remove", name)

    def _call(self, method: str, *arguments: object) -> Any:
        """Call the actor; wait while it, or its machine, is away."""
        import ray

        while True:
            try:
                actor = ray.get_actor(self._actor, namespace=NAMESPACE)
                return ray.get(getattr(actor, method).remote(*arguments))
            except (ray.exceptions.RayActorError, ray.exceptions.RayTaskError) as fault:
                if isinstance(fault, OSError):
                    raise

                if isinstance(fault, ray.exceptions.RayTaskError):
                    raise OSError(str(fault)) from fault
            except ValueError:  # There is no such actor now.
                pass

            time.sleep(_BETWEEN_TRIES)


def _storage_actor_name(map_id: str) -> str:
    return f"{map_id}/storage"


# --- the map's machine ----------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class RayWorker:
    """An actor of an item, which exists or will."""

    name: str
    actor: Any
    _has_begun: bool = False
    _is_asked: anyio.Event = field(default_factory=anyio.Event)
    _course: ItemCourse | None = None
    _answer: Any = None
    """The pending answer of the actor to the question what it does."""

    def course(self) -> ItemCourse | None:
        """Return the actor's last answer, and ask again. A restarted actor answers late."""
        import ray

        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            with contextlib.suppress(ray.exceptions.RayError):  # It is lost, or moves.
                self._course = ray.get(self._answer)

            self._answer = None

        if self._answer is None and self._has_begun:
            self._answer = self.actor.course.remote()

        return self._course

    def stop(self) -> None:
        """Ask it to end; kill it if it has no machine, or takes too long."""
        self._is_asked.set()
        if self._has_begun:
            self.actor.stop.remote()
        else:
            _kill(self.actor)

    async def ended(self) -> str | None:
        """Wait for its end; return why it was lost, if it was. Raises Stop; see RemoteWorker."""
        import ray

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._kill_late)
                lost = await self._lost_worker(ray)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

        return lost

    async def _lost_worker(self, ray: Any) -> str | None:
        while True:
            try:
                problem = await self.actor.begun.remote()
                if problem is not None:
                    raise _unusable_machine(problem)

                self._has_begun = True
                if self._is_asked.is_set():  # A worker that has died meanwhile had been asked.
                    self.actor.stop.remote()

                await self.actor.result.remote()
                return None
            except ray.exceptions.RayActorError as fault:
                if "creation task" in str(fault):
                    raise _unusable_machine(_last_line(fault)) from None

                # It is started again on another machine, unless that has been done too often.
                if await anyio.to_thread.run_sync(_actor_named, self.name) is None:
                    return f"Its worker was lost: {_last_line(fault)}"
            except ray.exceptions.RayTaskError as fault:
                return f"Its worker has failed: {_last_line(fault)}"

            await anyio.sleep(_BETWEEN_TRIES)

    async def _kill_late(self) -> None:
        await self._is_asked.wait()
        await anyio.sleep(END_SECONDS + _STORING_SECONDS)
        _kill(self.actor)


def _unusable_machine(problem: str) -> Stop:
    return Stop(
        f"A machine of the cluster cannot work on items: {problem}",
        ExitCode.UNAVAILABLE,
        hint="Install the same version there, for the Python that Ray runs with: "
        f"pip install 'hankweave[ray]=={__version__}'",
    )


def _last_line(fault: BaseException) -> str:
    return [*filter(None, map(str.strip, str(fault).splitlines()))][-1]


def _actor_named(name: str) -> Any | None:
    """Return an actor that lives or is started again."""
    import ray

    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)

    return None


def _kill(actor: Any) -> None:
    import ray

    ray.kill(actor, no_restart=True)


class RayCluster:
    """The cluster that this process is connected to."""

    def __init__(self, wanted: Mapping[str, float], new: Callable[[RemoteItem], Creation]) -> None:
        """`wanted` is what an item reserves; `new` returns what its actor needs."""
        self._wanted = wanted
        self._new = new

    @property
    def slots(self) -> int:
        import ray

        return slots_of(ray.cluster_resources(), self._wanted)

    def begin(self, item: RemoteItem) -> RemoteWorker:
        import ray

        own = {name: n for name, n in self._wanted.items() if name not in ("CPU", "GPU", "memory")}
        creation = self._new(item)
        name = _actor_name(creation)
        actor = ray.remote(ItemActor).options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=MOST_RESTARTS,
            max_concurrency=_CALLS_AT_ONCE,
            num_cpus=self._wanted["CPU"],
            num_gpus=self._wanted.get("GPU", 0),
            memory=self._wanted.get("memory"),
            resources=own,
            scheduling_strategy="SPREAD",
        )
        return RayWorker(name, actor.remote(creation))

    def look_up(self, item: RemoteItem) -> RemoteWorker | None:
        name = _actor_name(self._new(item))
        actor = _actor_named(name)
        return None if actor is None else RayWorker(name, actor)

    def end(self, item: RemoteItem) -> None:
        actor = _actor_named(_actor_name(self._new(item)))
        if actor is not None:
            _kill(actor)


def _actor_name(creation: Creation) -> str:
    return f"{creation.map_id}/{creation.item.folder}"


def slots_of(available: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """Return how many workers fit into the resources of a cluster; at least one."""
    fits = [available.get(name, 0.0) / amount for name, amount in wanted.items() if amount > 0]
    return max(1, math.floor(min(fits, default=available.get("CPU", 1.0))))


# --- connecting -----------------------------------------------------------------------------------


@contextmanager
def ray_cluster(
    placement: Placement, directory: Path, memory: int | None
) -> Iterator[tuple[RayCluster, Storage]]:
    """Connect to a cluster, or begin one on this machine; yield it with its storage. Raises Stop.

    `directory` keeps what has to be found by a later command; `memory` is what an item reserves. At
    the end all packages are removed, unless there was an error.
    """
    fsutil.make_private_directory(directory)
    map_id = _identity(directory / "id")
    place = None if placement.storage is None else f"{placement.storage}/hankweave-{map_id}"
    kept = directory / "storage"
    storage = FolderStorage(kept) if place is None else storage_at(place)
    ray = _connected(placement.executor)
    try:
        if place is None:
            _begin_storage(ray, map_id, kept)

        environment = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
        cluster = RayCluster(
            placement.requested(memory),
            lambda item: Creation(item, map_id, place, environment, __version__),
        )
        yield cluster, storage
        storage.remove("")
        _end_storage(map_id)
    finally:
        ray.shutdown()


def _identity(file: Path) -> str:
    """Return the map's id in the cluster, which is made once."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text().strip()

    made = secrets.token_hex(6)
    fsutil.replace_durably(file, made.encode())
    return made


def _begin_storage(ray: Any, map_id: str, root: Path) -> None:
    """Begin the storage's actor on this machine, instead of one that an earlier command left."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    _end_storage(map_id)
    machine = ray.get_runtime_context().get_node_id()
    actor = ray.remote(StorageActor).options(
        name=_storage_actor_name(map_id),
        namespace=NAMESPACE,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=-1,
        num_cpus=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(machine, soft=False),
    )
    ray.get(actor.remote(root).names.remote(""))


def _end_storage(map_id: str) -> None:
    actor = _actor_named(_storage_actor_name(map_id))
    if actor is not None:
        _kill(actor)


def _connected(executor: str) -> Any:
    """Connect this process to the cluster that an executor names, and return Ray. Raises Stop."""
    if find_spec("ray") is None:
        raise Stop(
            "The executor ray needs the package ray, which is not installed.",
            ExitCode.UNAVAILABLE,
            hint="Install it, here and on every machine of the cluster: "
            "pip install 'hankweave[ray]'",
        )

    address = executor.removeprefix("ray").removeprefix("://")
    if address:
        require_cluster(address)

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    options = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(address=address or "auto", **options)
    except Exception as fault:
        if address:
            raise Stop(
                f"The cluster at {address} does not take this machine in: {_last_line(fault)}",
                ExitCode.UNAVAILABLE,
                hint="Run the command on a machine of the cluster, where `ray status` works.",
            ) from None

        # There is none on this machine. With the niceness of Ray's workers, 15, items would starve
        # beside anything else that runs here.
        os.environ.setdefault("RAY_worker_niceness", str(NICER))
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **options)

    return ray


def require_cluster(address: str) -> None:
    """Raise Stop if nothing answers there as a cluster does: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    hint = "`ray start --head` begins a cluster and prints its address; the port is usually 6379."
    if int(port) == _CLIENT_PORT:
        raise Stop(
            f"{address} is the address for Ray's clients, not that of the cluster.",
            ExitCode.UNAVAILABLE,
            hint=f"On a machine of the cluster, name its own address: ray://{host}:6379",
        )

    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS) as connection:
            connection.sendall(_PREFACE)
            answer = connection.recv(9, socket.MSG_WAITALL)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise Stop(
            f"There is no Ray cluster at {address}: {reason}.", ExitCode.UNAVAILABLE, hint=hint
        ) from None

    if len(answer) < 9 or answer[3] != _SETTINGS:
        raise Stop(f"What answers at {address} is no Ray cluster.", ExitCode.UNAVAILABLE, hint=hint)
