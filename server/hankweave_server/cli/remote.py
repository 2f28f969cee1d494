"""Commands that talk to a running server, built on `hankweave_client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import click
import msgspec

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    GetServerStatus,
    ListCheckpoints,
    OnRunning,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import CheckpointPage, ServerStatus
from hankweave_server.cli.executions import newest_execution
from hankweave_server.cli.progress import line_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.layout import Layout

T = TypeVar("T")

_execution = click.option(
    "--execution", "-e", type=click.Path(path_type=Path), help="Default: the newest execution."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def ask(execution: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connects to the server of an execution, does the work, and turns refusals into sentences."""
    root = newest_execution() if execution is None else execution.expanduser().absolute()

    async def session() -> T:
        address = discover(root)
        async with connect(address.url, token=address.token, reconnect=False) as client:
            return await work(client)

    try:
        return anyio.run(session)
    except NotRunning as error:
        raise Stop(
            str(error),
            ExitCode.UNAVAILABLE,
            hint="Start it with `hankweave run`; `hankweave log` reads the files without a server.",
        ) from None
    except (ConnectionError, TimeoutError) as error:
        raise _unavailable(error) from None
    except CommandRefused as refused:
        raise _refusal(refused) from None


def _refusal(refused: CommandRefused) -> Stop:
    return Stop(f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=refused.hint)


def _unavailable(error: Exception) -> Stop:
    return Stop(f"The server does not answer: {error}", ExitCode.UNAVAILABLE)


@click.command()
@_execution
@_json
def status(execution: Path | None, as_json: bool) -> None:
    """Tell what the server is doing."""
    found = ask(execution, lambda client: client.send(GetServerStatus()))
    if as_json:
        _print_json(found)
        return

    answer = msgspec.convert(found, ServerStatus)
    doing = answer.active_codon_id or ("rolling back" if answer.is_rolling_back else "idle")
    click.echo(f"{answer.execution_path}")
    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    click.echo(f"  run         {answer.current_run_id or 'none'}")
    click.echo(f"  now         {doing}; next: {answer.next_codon_id or 'nothing'}")
    click.echo(f"  checkpoints {answer.checkpoints}, {answer.store_bytes / 1024:.0f} KiB on disk")
    click.echo(f"  cost        ${answer.total_cost:.4f}")
    click.echo(f"  heartbeat   {answer.lock.last_heartbeat}, event {answer.last_event_seq}")


@click.command()
@_execution
@click.option("--run", "run_id", help="Only those of this run.")
@_json
def checkpoints(execution: Path | None, run_id: str | None, as_json: bool) -> None:
    """List the checkpoints, newest first."""
    command = ListCheckpoints(run_id=run_id)  # type: ignore[arg-type]
    found = ask(execution, lambda client: client.send(command))
    if as_json:
        _print_json(found)
        return

    for record in msgspec.convert(found, CheckpointPage).checkpoints:
        codon = record.coordinate.codon_id or "-"
        when = f"{record.sha[:12]}  {record.kind:<10} {codon:<16} {record.timestamp}"
        click.echo(f"{when}  {record.codon_name}")


@click.command()
@_execution
@click.option("--to", "sha", help="A checkpoint: its sha or a unique beginning of it.")
@click.option("--codon", help="A codon of the thread.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["start", "end", "rig-setup", "completed", "error", "skipped"]),
    default="end",
    help="Which checkpoint of the codon.",
)
@click.option("--restart", is_flag=True, help="Go on with the plan at once.")
@click.option("--stop", "stop_running", is_flag=True, help="Stop a running codon first.")
@click.option("--preview", is_flag=True, help="Only say what would change.")
@_json
def rollback(
    execution: Path | None,
    sha: str | None,
    codon: str | None,
    kind: Any,
    restart: bool,
    stop_running: bool,
    preview: bool,
    as_json: bool,
) -> None:
    """Go back: to the last success, or to a checkpoint or codon.

    What the rollback overwrites or removes is kept in a safety checkpoint.
    """
    if sha is not None and codon is not None:
        raise click.UsageError("--to and --codon exclude each other.")

    on_running: OnRunning = "stop" if stop_running else "refuse"
    command: Any
    if preview:
        command = RollbackPreview(
            checkpoint_sha=sha,
            codon_id=None if codon is None else CodonId(codon),
            checkpoint_type=None if codon is None else kind,
        )
    elif sha is not None:
        command = RollbackToCheckpoint(
            checkpoint_sha=sha, auto_restart=restart, on_running=on_running
        )
    elif codon is not None:
        command = RollbackToCodon(
            codon_id=CodonId(codon),
            checkpoint_type=kind,
            auto_restart=restart,
            on_running=on_running,
        )
    else:
        command = RollbackToLastSuccess(auto_restart=restart, on_running=on_running)

    found = ask(execution, lambda client: client.send(command))
    if as_json:
        _print_json(found)
    else:
        _print_report(msgspec.convert(found, RollbackReport), preview)


def _print_report(report: RollbackReport, preview: bool) -> None:
    verb = "would be" if preview else "were"
    for title, listed in (
        ("added", report.added),
        ("updated", report.updated),
        ("removed", report.removed),
    ):
        click.echo(f"{len(listed)} files {verb} {title}")
        for file in listed:
            click.echo(f"  {file.path}  {file.bytes} bytes")

    for kept in (*report.kept, *report.skipped):
        click.echo(f"kept: {kept.path} ({kept.reason})")

    if report.safety is not None:
        click.echo(f"All of it is kept in safety checkpoint {report.safety.checkpoint_sha[:12]}.")


@click.command()
@_execution
@click.option("--since", type=int, default=0, help="Only events after this seq.")
@click.option("--follow", "-f", is_flag=True, help="Go on with the live ones.")
@_json
def events(execution: Path | None, since: int, follow: bool, as_json: bool) -> None:
    """Print the events of the journal."""
    root = newest_execution() if execution is None else execution.expanduser().absolute()
    seq = since

    def text_of(event: Event) -> str:
        if as_json:
            return codec.encode(event).decode()

        return f"{event.seq:>6}  {event.timestamp}  {event.type}"

    for event in _journal(root):
        if event.seq > since:
            seq = event.seq
            click.echo(text_of(event))

    if follow:
        _follow(root, seq, text_of)


@click.command()
@_execution
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens now.")
def log(execution: Path | None, follow: bool) -> None:
    """Tell the story so far, one line for each thing that matters."""
    root = newest_execution() if execution is None else execution.expanduser().absolute()
    seq = 0
    for event in _journal(root):
        seq = event.seq
        text = line_of(event)
        if text is not None:
            click.echo(text)

    if follow:
        _follow(root, seq, line_of)


def _journal(root: Path) -> Iterator[Event]:
    """Reads the journal's file; a last line that is still being written is left out."""
    path = Layout.of_execution(root).journal
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise Stop(f"There is no execution in {root}.", ExitCode.NO_INPUT) from None

    for number, line in enumerate(lines, start=1):
        try:
            yield codec.decode_event(line)
        except Refused as fault:
            raise Stop(
                f"{path}, line {number}, is no event: {fault.message}",
                ExitCode.BAD_DATA,
                hint="Start the server on this execution: it repairs or names what is damaged.",
            ) from None


def _follow(root: Path, seq: int, text_of: Callable[[Event], str | None]) -> None:
    async def session() -> None:
        address = discover(root)
        async with connect(address.url, token=address.token, since_seq=seq) as client:
            async for event in client.events():
                text = text_of(event)
                if text is not None:
                    click.echo(text)

    try:
        anyio.run(session)
    except CommandRefused as refused:
        raise _refusal(refused) from None
    except (ConnectionError, TimeoutError) as error:
        raise _unavailable(error) from None


def _print_json(value: object) -> None:
    click.echo(msgspec.json.format(codec.encode(value)).decode())


COMMANDS = (status, checkpoints, rollback, events, log)
