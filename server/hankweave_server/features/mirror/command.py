"""`hankweave mirror`: how far the mirror of an execution is, push to it, or end it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import click
import msgspec

from hankweave_client.errors import NotRunning
from hankweave_protocol.commands import GetMirrorStatus, MirrorNow, MirrorOff
from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import MirrorEnded, MirrorStatus
from hankweave_protocol.shapes import Value
from hankweave_server.cli.output.text import size_text, span
from hankweave_server.cli.remote import ask, execution_option, json_option, print_json, root_of
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.mirror.contents import MirrorDamaged, MirrorRepository
from hankweave_server.features.mirror.lease import Lease, Mode, NotALease
from hankweave_server.features.mirror.record import (
    MirrorRecord,
    file_of,
    forget,
    read_record,
    repository_of,
)
from hankweave_server.features.mirror.remote import Remote, Unreachable
from hankweave_server.fsutil import described, temporary_folder
from hankweave_server.ledger.moments import has_past
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.server_session import at_server
from hankweave_server.local.targeting import require_execution, root_to_change
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.runtime_lock.held import acquire
from hankweave_server.worktree.data_source import layout_of

Action = Literal["status", "now", "off"]

replace = msgspec.structs.replace

REQUEST_SECONDS = 30.0
"""Timeout for a request to the remote."""


class OfflineMirror(Value, kw_only=True, omit_defaults=False):
    """How a mirror stands while no server of this directory keeps it up to date."""

    address: str
    mode: Mode
    ttl_seconds: float
    owner: str | None = None
    """The machine and the directory that have the lease; None if the remote does not say."""
    epoch: int | None = None
    owned_here: bool | None = None
    """Whether a server of this directory was the last one to have the lease."""
    released: bool | None = None
    """Whether the owner has ended in order: anyone may go on at once."""
    mirrored_seq: int | None = None
    mirrored_bytes: int | None = None
    events_behind: int | None = None
    """Events that only this directory has; None if the execution goes on elsewhere."""
    problem: str | None = None
    """Why the remote does not say more."""


@click.command()
@click.argument("action", type=click.Choice(get_args(Action)), default="status")
@execution_option
@json_option
def mirror(action: Action, execution: Path | None, as_json: bool) -> None:
    """Show how far the mirror of an execution is, push to it, or end it.

    `status` needs no server: it asks the repository who has the lease. `now` returns when
    everything is in the mirror. `off` pushes the rest, releases the lease, and forgets the
    repository; what is in it stays. Without a server, `off` only forgets it.

    \b
    hankweave mirror
    hankweave mirror now
    hankweave mirror off -e ~/runs/quakes
    """
    match action:
        case "status":
            _show(_status(root_of(execution)), as_json=as_json)
        case "now":
            _show(ask(execution, lambda client: client.send(MirrorNow())), as_json=as_json)
        case "off":
            _print_end(_end(root_to_change(execution)), as_json=as_json)


def _status(root: Path) -> MirrorStatus | OfflineMirror:
    try:
        return at_server(root, lambda client: client.send(GetMirrorStatus()))
    except (NotRunning, ConnectionRefusedError):
        require_execution(root)
        return _read_offline(layout_of(root))


def _end(root: Path) -> MirrorEnded:
    try:
        return at_server(root, lambda client: client.send(MirrorOff()))
    except (NotRunning, ConnectionRefusedError):
        return _end_offline(layout_of(root), SystemClock())


def _show(stands: MirrorStatus | OfflineMirror, *, as_json: bool) -> None:
    if as_json:
        print_json(stands)
        return

    lines = _lines(stands) if isinstance(stands, MirrorStatus) else _offline_lines(stands)
    for line in lines:
        click.echo(one_line(line))


def _lines(stands: MirrorStatus) -> Iterator[str]:
    yield f"mirror   {stands.address} ({stands.mode})"
    if stands.events_behind:
        events, size = counted(stands.events_behind, "event"), size_text(stands.bytes_behind)
        yield f"behind   {events}, {size}, at most {span(stands.seconds_behind)}"
    else:
        yield f"behind   nothing: event {stands.mirrored_seq} is in it"

    left = f"for {span(stands.lease_seconds_left)}" if stands.lease_held else "run out"
    yield f"lease    {stands.owner}, {left} (epoch {stands.epoch})"
    pushes, sent = counted(stands.pushes, "push", "pushes"), size_text(stands.sent_bytes)
    yield f"pushed   {span(stands.seconds_since_push)} ago ({pushes}, {sent})"
    if stands.problem is not None:
        yield f"problem  {stands.problem}"


def _offline_lines(stands: OfflineMirror) -> Iterator[str]:
    yield f"mirror   {stands.address} ({stands.mode})"
    if stands.problem is not None:
        yield f"problem  {stands.problem}"
    elif stands.events_behind is None:
        yield f"behind   unknown: event {stands.mirrored_seq} is in it, and it goes on elsewhere"
    elif stands.events_behind:
        yield f"behind   {counted(stands.events_behind, 'event')}"
    else:
        yield f"behind   nothing: event {stands.mirrored_seq} is in it"

    if stands.owner is not None:
        how = "released" if stands.released else "not released"
        yield f"lease    {stands.owner}, {how} (epoch {stands.epoch})"


def _print_end(ended: MirrorEnded, *, as_json: bool) -> None:
    if as_json:
        print_json(ended)
        return

    click.echo(one_line(f"The mirror {ended.address} has ended; what is in it stays."))
    if not ended.released:
        click.echo("The lease was not released now: a resume may have to wait until it runs out.")


# --- without a server -----------------------------------------------------------------------------


def _record_of(layout: Layout) -> MirrorRecord:
    """Return the record of a mirror; raise Stop if there is none, or if it cannot be read."""
    try:
        record = read_record(layout)
    except (OSError, Refused) as error:
        raise Stop(
            f"The record of the mirror cannot be read: {error}",
            ExitCode.BAD_DATA,
            hint=f"Remove {file_of(layout)}; the mirror ends with it.",
        ) from None

    if record is None:
        raise Stop(
            "This execution has no mirror.",
            ExitCode.FAILED,
            hint="A start with `hankweave run --mirror URL` begins one.",
        )

    return record


def _read_offline(layout: Layout) -> OfflineMirror:
    """Ask the remote for the lease; write nothing. Raises Stop if there is no mirror."""
    record = _record_of(layout)
    stands = OfflineMirror(address=record.address, mode=record.mode, ttl_seconds=record.ttl)
    try:
        lease = _lease(record, layout)
    except (Unreachable, MirrorDamaged, NotALease) as problem:
        return replace(stands, problem=str(problem))

    if lease is None:
        return replace(stands, problem="there is no mirror at this address")

    is_here = lease.nonce in record.nonces
    return replace(
        stands,
        owner=lease.owner,
        epoch=lease.epoch,
        owned_here=is_here,
        released=lease.released,
        mirrored_seq=lease.last_event_seq,
        mirrored_bytes=lease.journal_bytes,
        events_behind=max(0, _last_seq(layout) - lease.last_event_seq) if is_here else None,
    )


def _end_offline(layout: Layout, clock: Clock) -> MirrorEnded:
    """Remove the record, durably; nothing changes in the remote.

    Raises LockHeld if a server runs, and Stop if there is no mirror or the disk fails.
    """
    record = _record_of(layout)
    try:
        held = acquire(layout, clock)
        try:
            forget(layout)
        finally:
            held.release()
    except OSError as error:
        raise Stop(
            f"{described(error, layout.root)}.",
            ExitCode.IO_ERROR,
            hint="Correct the cause, and try again.",
        ) from None

    return MirrorEnded(address=record.address, released=False)


def _lease(record: MirrorRecord, layout: Layout) -> Lease | None:
    """Return the lease in the remote; None if there is none.

    The commit of a lease that was taken here is known here. Another one is fetched into a temporary
    repository.
    """
    with TemporaryDirectory(dir=temporary_folder()) as folder:
        fetched = MirrorRepository(Path(folder) / "repository", None)
        remote = Remote(record.address, fetched.path, os.environ)
        tip = remote.tip(REQUEST_SECONDS)
        if tip is None:
            return None

        return _known(layout, tip) or fetched.lease(remote.fetch(REQUEST_SECONDS, only_commit=True))


def _known(layout: Layout, tip: Sha) -> Lease | None:
    if not repository_of(layout).exists():
        return None

    try:
        return MirrorRepository(repository_of(layout), None).lease(tip)
    except MirrorDamaged:
        return None


def _last_seq(layout: Layout) -> int:
    if not has_past(layout):
        return 0

    with searching_journal(layout) as journal:
        return journal.last_seq


COMMANDS = (mirror,)
