"""Takes the lease before a server records anything, and keeps the mirror up to date."""

from __future__ import annotations

import os
import shlex
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import Sha
from hankweave_server.app import OpenedExecution
from hankweave_server.clock import Clock
from hankweave_server.daemon.observers import Observer, OpensObserver
from hankweave_server.daemon.shutdown import fence
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.mirror.contents import MirrorDamaged, MirrorRepository, Segments
from hankweave_server.features.mirror.lease import Lease, NotALease, renewal, taken
from hankweave_server.features.mirror.pushing import (
    CannotBeComposed,
    Composed,
    Mirroring,
    Position,
    Reactions,
)
from hankweave_server.features.mirror.record import (
    MirrorRecord,
    owner_of,
    place_of,
    read_record,
    repository_of,
    with_nonce,
    write_record,
)
from hankweave_server.features.mirror.remote import (
    STALLED_SECONDS,
    Remote,
    Unreachable,
    side_ref,
)
from hankweave_server.features.mirror.run_options import MirrorOptions
from hankweave_server.features.mirror.source import (
    ExecutionSource,
    files_of_data,
    hash_of_data,
    store_hank,
)
from hankweave_server.ledger.writer import Published
from hankweave_server.logs import logger
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted
from hankweave_server.runtime_lock.lock_file import LockLost
from hankweave_server.settings import RunSettings
from hankweave_server.worktree import data_source

log = logger(__name__)


def prepared(settings: RunSettings, layout: Layout, clock: Clock) -> OpensObserver | None:
    chosen = settings.of_features.get("mirror")
    wanted = chosen if isinstance(chosen, MirrorOptions) else MirrorOptions(None, None, None)
    former = _known(layout)
    if wanted.address is None and former is None:
        if wanted != MirrorOptions(None, None, None):
            raise Stop(
                "There is no mirror to which these options apply.",
                ExitCode.USAGE,
                hint="Name one with --mirror URL.",
            )

        return None

    if former is not None and wanted.address not in (None, former.address):
        raise Stop(
            f"This execution has another mirror: {former.address}.",
            ExitCode.USAGE,
            hint=f"End that one first: `hankweave mirror off -e {shlex.quote(str(layout.root))}`.",
        )

    return partial(_opened, _record(layout, wanted, former), clock)


def _known(layout: Layout) -> MirrorRecord | None:
    try:
        return read_record(layout)
    except (OSError, Refused) as error:
        raise Stop(
            f"The record of the mirror cannot be read: {error}",
            ExitCode.BAD_DATA,
            hint="Nothing was changed.",
        ) from None


def _record(layout: Layout, wanted: MirrorOptions, former: MirrorRecord | None) -> MirrorRecord:
    if former is None:
        assert wanted.address is not None, "without an address there is no mirror"
        return MirrorRecord(
            address=wanted.address,
            mode=wanted.mode_after(None),
            ttl=wanted.ttl_after(None),
            execution_id=str(uuid.uuid4()),
            data_in_mirror=wanted.has_data,
        )

    return msgspec.structs.replace(
        former,
        mode=wanted.mode_after(former.mode),
        ttl=wanted.ttl_after(former.ttl),
        data_in_mirror=wanted.has_data or former.data_in_mirror,
    )


async def _opened(record: MirrorRecord, clock: Clock, opened: OpenedExecution) -> Observer:
    start = LeaseAcquisition(record, opened, clock)
    mirror = await anyio.to_thread.run_sync(start.taken)
    opened.ledger.replicate(mirror)

    async def finish(within: float) -> None:
        with anyio.move_on_after(within):
            await mirror.release()

        opened.ledger.replicate(None)

    return Observer(_ignored, finish, run=mirror.run)


def _ignored(_published: Published) -> None:
    """Do nothing: the ledger calls the mirror before it publishes."""


class LeaseAcquisition:
    """The taking of the lease for a server that is about to start; blocking."""

    def __init__(self, record: MirrorRecord, opened: OpenedExecution, clock: Clock) -> None:
        self._record = record
        self._opened = opened
        self._clock = clock
        self._layout = opened.layout
        borrowed = opened.layout.shadow_repository / "objects"
        self._repository = MirrorRepository(repository_of(opened.layout), borrowed)
        self._remote = Remote(record.address, self._repository.path, os.environ)
        self._folders: dict[str, Sha] = {}
        self._source = ExecutionSource(
            opened.layout,
            self._repository,
            quiesced=opened.engine.quiesced,
            newest=self._newest,
            clean=partial(_cleaned, opened),
            folders=self._folders,
            data_hash=self._data_hash(),
        )

    def _data_hash(self) -> str | None:
        # The start reports data that cannot be read.
        with suppress(OSError):
            return hash_of_data(self._layout)

        return None

    def _newest(self) -> Position:
        return Position(*self._opened.ledger.durable)

    def taken(self) -> Mirroring:
        """Take the lease; raise Stop if another owner has it, or the remote cannot be reached."""
        tip, former, segments = self._found()
        self._store_hank()
        self._store_data()
        record = with_nonce(self._record, self._layout)
        lease = taken(
            former,
            execution_id=record.execution_id,
            owner=owner_of(self._layout),
            nonce=record.nonces[-1],
            ttl=record.ttl,
        )
        # From here on, the nonce tells the next start that the lease may be its own.
        write_record(self._layout, record)
        # After a redaction, nothing is to lead to what the mirror has.
        known = () if tip is None or segments.tip is None else (tip,)
        composed = self._composed(lease, segments, known)
        began = self._clock.boottime()
        done = self._remote.push(composed.sha, tip)
        if done.outcome == "not done":
            raise self._unreachable(done.problem)

        if done.outcome == "refused":
            raise Stop(
                f"Another server has just taken the lease of {record.address}.",
                ExitCode.UNAVAILABLE,
                hint="Nothing was changed there. Start again to see who has it.",
            )

        mirror = self._mirror(record, composed, began)
        mirror.tally.sent_bytes = done.sent_bytes
        return mirror

    def _composed(self, lease: Lease, segments: Segments, known: tuple[Sha, ...] = ()) -> Composed:
        try:
            return self._source.composed(lease, segments, known)
        except CannotBeComposed as problem:
            raise Stop(
                f"The execution cannot be sent to its mirror: {problem}",
                ExitCode.IO_ERROR,
                hint="Nothing was started. Free some space or mend the disk, then start again.",
            ) from None

    def _found(self) -> tuple[Sha | None, Lease | None, Segments]:
        """Return what the remote has, if this directory may go on from there."""
        try:
            if self._remote.tip(STALLED_SECONDS) is None:
                return None, None, Segments()

            tip = self._remote.fetch()
            found = self._repository.contents(tip)
        except Unreachable as problem:
            raise self._unreachable(str(problem)) from None
        except (MirrorDamaged, NotALease) as problem:
            raise Stop(
                f"{self._record.address} cannot be the mirror: {problem}.",
                ExitCode.BAD_DATA,
                hint="Nothing was changed there. Name another repository.",
            ) from None

        if found.lease.execution_id != self._record.execution_id:
            raise Stop(
                f"{self._record.address} is the mirror of another execution: that of "
                f"{found.lease.owner}.",
                ExitCode.USAGE,
                hint="Nothing was changed there. Name another repository.",
            )

        is_here = self._record.place == place_of(self._layout)
        if not is_here or found.lease.nonce not in self._record.nonces:
            raise self._foreign(found.lease)

        if found.hank is not None:
            self._folders["hank"] = found.hank

        segments = Segments(found.journal, found.lease.journal_bytes)
        if not self._repository.agrees(segments, self._layout.journal):
            segments = Segments()  # Secrets were removed from it: it is mirrored anew.

        return tip, found.lease, segments

    def _store_hank(self) -> None:
        """Store the hank that runs; without one that can be read, the mirror keeps its own.

        A hank with a secret is not stored.
        """
        settings = self._opened.settings
        meta = data_source.read_meta(self._layout)
        hank = settings.hank
        if hank is None and meta is not None and meta.hank_path is not None:
            hank = Path(meta.hank_path)

        if hank is None or settings.plan_on_record:
            return

        with suppress(OSError):
            tree = store_hank(self._repository, hank, self._opened.ledger.redactor.is_needed)
            self._folders.pop("hank", None)
            if tree is not None:
                self._folders["hank"] = tree

    def _store_data(self) -> None:
        """Store the data, if they are to be in the mirror; raise Stop if they cannot be read."""
        if not self._record.data_in_mirror:
            return

        try:
            files = files_of_data(self._layout)
            if files is not None:
                self._folders["data"] = self._repository.store(files)
        except OSError as error:
            raise Stop(
                f"The data cannot be put into the mirror: {error}",
                ExitCode.IO_ERROR,
                hint="Make them readable, or start without --data-in-mirror.",
            ) from None

    def _foreign(self, lease: Lease) -> Stop:
        """Keep what only this directory has on a ref of its own; return why it may not go on."""
        composed = self._composed(lease, Segments())
        side = side_ref(self._record.execution_id, composed.sha)
        is_kept = self._remote.keep(composed.sha, side)
        kept = f" What was done here is kept there as {side}." if is_kept else ""
        address, root = self._record.address, shlex.quote(str(self._layout.root))
        return Stop(
            f"This execution goes on elsewhere: {lease.owner} has the lease of {address}.{kept}",
            ExitCode.UNAVAILABLE,
            hint=f"`hankweave resume {shlex.quote(address)}` continues it from there; "
            f"`hankweave mirror off -e {root}` ends the mirror for this directory.",
        )

    def _unreachable(self, problem: str) -> Stop:
        return Stop(
            f"The mirror {self._record.address} cannot be reached: {problem}",
            ExitCode.UNAVAILABLE,
            hint="Nothing was started, because the execution may go on elsewhere. Try again, or "
            f"`hankweave mirror off -e {shlex.quote(str(self._layout.root))}`.",
        )

    def _mirror(self, record: MirrorRecord, composed: Composed, began: float) -> Mirroring:
        return Mirroring(
            composed,
            began,
            record=record,
            remote=self._remote,
            source=self._source,
            reactions=Reactions(lost=partial(self._on_lease_lost, record)),
            clock=self._clock,
            newest=self._newest,
        )

    async def _on_lease_lost(
        self, record: MirrorRecord, found: Sha | None, events_behind: int
    ) -> None:
        """End this process: another server goes on with the execution."""
        owner = await anyio.to_thread.run_sync(self._owner, found)
        lost = f"{owner} has taken the lease of {record.address}"
        if events_behind:
            lost += f", which has all but the last {counted(events_behind, 'event')} of this server"

        fence(LockLost(lost, hint="The execution goes on there. Nothing here was removed."))

    def _owner(self, found: Sha | None) -> str:
        try:
            self._remote.fetch(renewal(self._record.ttl))
            return "Another server" if found is None else self._repository.lease(found).owner
        except (Unreachable, MirrorDamaged, NotALease):
            return "Another server"


def _cleaned(opened: OpenedExecution, content: bytes) -> bytes:
    redactor = opened.ledger.redactor
    if not redactor.is_needed(content):
        return content

    return redactor.text(content.decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )
