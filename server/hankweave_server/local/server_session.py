"""A session with the server of an execution, for one operation.

Errors become Stop, except for the lack of a server; hints name commands in place of wire messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from hankweave_client.calls import Calls
from hankweave_client.client import Client, connect_to
from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_client.reconnect import Backoff
from hankweave_protocol.errors import reason_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.hints import command, stop_at, terminal_hint
from hankweave_server.local.progress import ReportProgress, discard_progress, watched
from hankweave_server.local.targeting import require_execution
from hankweave_server.worktree.data_source import layout_of

T = TypeVar("T")


def _with_aim(stop: Stop, root: Path) -> Stop:
    hint = terminal_hint(stop.hint, root)
    return Stop(stop.message, stop.exit_code, hint=hint, code=stop.code)


_RECONNECT = Backoff(longest=2.0, attempts=8)
"""About seven seconds: a lost connection is reopened at the first or second attempt."""


def at_server(
    root: Path,
    work: Callable[[Client], Awaitable[T]],
    report_progress: ReportProgress = discard_progress,
) -> T:
    """Run an operation with a server, and report its progress to `report_progress`.

    A lost connection is reopened, and unanswered commands are sent again under their ids; the
    server executes each of them once. Raises NotRunning if there is no server,
    ConnectionRefusedError if the lock file names one that does not listen, and Stop for any other
    error.
    """

    is_watched = report_progress is not discard_progress
    has_connected = False

    async def session() -> T:
        nonlocal has_connected
        async with connect_to(root, reconnect=_RECONNECT, progress=is_watched) as client:
            has_connected = True
            return await (watched(client, work, report_progress) if is_watched else work(client))

    try:
        return anyio.run(session)
    except (ConnectionError, TimeoutError) as error:
        if has_connected:
            raise _unanswered(error, root) from None

        if isinstance(error, NotRunning | ConnectionRefusedError):
            raise

        raise unavailable(error, root) from None
    except CommandRefused as refused:
        raise refusal(refused, root) from None
    except Stop as stop:
        raise _with_aim(stop, root) from None


def refusal(refused: CommandRefused, root: Path | None = None) -> Stop:
    return stop_at(refused, terminal_hint(refused.hint, root))


def _unanswered(error: Exception, root: Path) -> Stop:
    """Return the error for an unknown outcome: a command was sent, and its server is gone."""
    return Stop(
        f"The server was lost before it answered: {reason_of(error)}",
        ExitCode.UNAVAILABLE,
        hint=f"The command may have been executed; {command('log', root)} shows whether it was.",
    )


def unavailable(error: Exception, root: Path) -> Stop:
    return Stop(
        f"The server does not answer: {reason_of(error)}",
        ExitCode.UNAVAILABLE,
        hint=f"It may be busy or suspended; try again. {command('log', root)} reads its files.",
    )


def run_read_only(
    root: Path,
    work: Callable[[Calls], Awaitable[T]],
    report_progress: ReportProgress = discard_progress,
) -> T:
    """Run a read-only operation with a server or on the files; raise Stop if neither works.

    Nothing is written. A server reports its progress to `report_progress`.
    """
    try:
        return at_server(root, work, report_progress)
    except (NotRunning, ConnectionRefusedError):
        return run_on_files(root, work)


def run_on_files(root: Path, work: Callable[[Calls], Awaitable[T]]) -> T:
    """Run a read-only operation on the files, even if a server runs; raise Stop if it fails."""
    require_execution(root)
    # Imported here because only this needs the libraries that read checkpoints.
    from hankweave_server.local.reader import on_files

    try:
        return on_files(layout_of(root), work)
    except Stop as stop:
        raise _with_aim(stop, root) from None
