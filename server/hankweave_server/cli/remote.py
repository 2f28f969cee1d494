"""Common options, requests to a server, and the address of its page.

`ask` starts a temporary server where none runs; `ask_running` requires a running one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    RollbackCommand,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
)
from hankweave_protocol.events import Event
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.ephemeral_server import through_server
from hankweave_server.local.hints import command
from hankweave_server.local.living import dead_server
from hankweave_server.local.server_session import at_server, refusal, unavailable
from hankweave_server.local.targeting import require_execution, root_of, start_line
from hankweave_server.paths import Layout

__all__ = ["root_of"]

T = TypeVar("T")


execution_option = click.option(
    *("--execution", "-e", "--workspace", "-w", "execution"),
    type=click.Path(path_type=Path),
    help="Execution or project directory. Default: the current one, else the only one with a "
    "server, else the one used last.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def ask(
    execution: Path | None,
    work: Callable[[Client], Awaitable[T]],
    what: str | None = None,
    *,
    waits: bool = True,
) -> T:
    """Return the result of `work` with the server of an execution; start a temporary one if needed.

    `what` is the text of the progress bar; without it, there is none. Without `waits`, another
    owner of the directory is an error at once. Raises Stop for every failure, refused commands
    included.
    """
    root = root_of(execution)
    report_dead_server(root)
    with waiting(what) as report_progress:
        return through_server(root, lambda: at_server(root, work, report_progress), waits=waits)


def report_dead_server(root: Path) -> None:
    """Print on stderr which server has died; the next owner of the directory hides its traces."""
    pid = dead_server(Layout.of_execution(root))
    if pid is not None:
        click.echo(f"found a dead server: pid {pid}", err=True)


def ask_running(execution: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Return the result of `work` with the server that runs; raise Stop if none does."""
    root = root_of(execution)
    try:
        return at_server(root, work)
    except NotRunning:
        require_execution(root)
        raise Stop(
            f"No server is running for {root}.",
            ExitCode.UNAVAILABLE,
            hint=f"Start one with `{start_line(root)}`; "
            f"{command('log', root)} shows what has happened so far.",
        ) from None
    except ConnectionRefusedError as error:
        raise unavailable(error, root) from None


def rollback_command(
    target: RollbackPreview, **fields: Any
) -> RollbackCommand | RollbackUndo | RollbackRedo:
    """Return the command whose preview is `target`."""
    if target.direction is not None:
        return RollbackUndo(**fields) if target.direction == "undo" else RollbackRedo(**fields)

    if target.checkpoint_sha is not None:
        return RollbackToCheckpoint(checkpoint_sha=target.checkpoint_sha, **fields)

    if target.codon_id is not None:
        kind = target.checkpoint_type or "end"
        return RollbackToCodon(codon_id=target.codon_id, checkpoint_type=kind, **fields)

    return RollbackToLastSuccess(**fields)


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(codec.encode(value)).decode())


def follow_from(root: Path, seq: int, on_event: Callable[[Event], None]) -> None:
    """Call `on_event` with every event after `seq`, as they happen, until the server ends."""

    async def session() -> None:
        address = discover(root)
        async with connect(address.url, token=address.token, since_seq=seq) as client:
            async for event in client.events():
                on_event(event)

    try:
        anyio.run(session)
    except CommandRefused as refused:
        raise refusal(refused, root) from None
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error, root) from None
