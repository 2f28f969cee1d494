"""A session with the server of an execution, for one operation.

Errors become Stop, except for the lack of a server; hints name commands in place of wire messages.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from hankweave_client.calls import Calls
from hankweave_client.client import Client, connect_to
from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_client.reconnect import Backoff
from hankweave_protocol.errors import reason_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.progress import ReportProgress, tell_nobody, watched
from hankweave_server.local.targeting import is_default, require_execution
from hankweave_server.worktree.data_source import layout_of

T = TypeVar("T")


_PHRASES: Final[tuple[tuple[str, str], ...]] = (
    (r"`executions\.list` has the paths", "`hankweave ls` lists executions"),
    (r"Wait for codon\.started", "Wait until the codon has started"),
    (r"Wait for codon\.completed", "Wait until the codon has ended"),
    (r"Wait for rollback\.completed", "Wait until the rollback has ended"),
    (r"rollback\.completed confirms it", "`hankweave log` confirms it"),
    (r"see the rollback\.failed event", "`hankweave log` shows why it failed"),
    (r"send the command again after server\.recovered", "run the command again"),
    (r"send the command again", "run the command again"),
    (r"permission\.resolved shows how", "`hankweave log` shows how"),
    (r"send codon\.skip or codon\.forceStop", "run `hankweave skip` or `hankweave stop`"),
    (
        r"restart the server to complete (it|the rollback)",
        r"complete \1 with `hankweave stop --server`, then `hankweave run`",
    ),
    (r"codon\.redo", "`hankweave retry`"),
    (r"codon\.skip", "`hankweave skip`"),
    (r"codon\.forceStop", "`hankweave stop`"),
    (r"codon\.next", "`hankweave next`"),
    (r"exploration\.show", "`hankweave attempts`"),
    (r"with onConflict `ours` or `theirs`", "with --ours or --theirs"),
    (r"rollback\.toCheckpoint", "`hankweave rollback --to SHA`"),
    (r"rollback\.toCodon", "`hankweave rollback --codon CODON`"),
    (r"rollback\.toLastSuccess", "`hankweave rollback`"),
    (r"rollback\.undo", "`hankweave undo`"),
    (r"rollback\.redo", "`hankweave redo`"),
    (r"rollback\.preview", "`hankweave rollback --preview`"),
    (r"checkpoint\.list", "`hankweave checkpoints`"),
    (r"replay\.view", "`hankweave replay SHA --tree`"),
    (r"store\.fsck with repair: true \((`[^`]+`)\)", r"\1"),
    (r"store\.fsck", "`hankweave fsck`"),
    (r"store\.gc", "`hankweave gc`"),
    (r"onRunning: stop", "--stop"),
    (r"onRunning: pause", "--pause"),
    (r"rewindMemory", "--rewind-memory"),
    (r"as `good` and `bad`", "with --good and --bad"),
    (r"as `(good|bad)`", r"with --\1"),
    (r"keepEdits: true", "--keep-edits"),
    (r"autoRestart", "--restart"),
    (r"maxAgeSeconds", "--max-age"),
    (r"maxCount", "--max-count"),
    (r"maxBytes", "--max-bytes"),
    (r"Leave out paths", "Leave out --path"),
    (r"or leave paths out", "or leave --path out"),
    (r"\bsinceSeq\b", "--since"),
)


def for_a_person(hint: str | None, root: Path | None = None) -> str | None:
    """Return a hint with commands in place of wire names.

    The commands name the execution `root`, unless it is the default.
    """
    if hint is None:
        return None

    hint = with_commands(hint)
    return hint if root is None else _aimed(hint, root)


def with_commands(text: str) -> str:
    """Return a text with commands and their options in place of wire names."""
    for pattern, words in _PHRASES:
        text = re.sub(pattern, words, text)

    return text


def command(words: str, root: Path) -> str:
    """Return a command line for the execution `root`, in backquotes."""
    return f"`hankweave {words}{_option(root)}`"


def _aimed(hint: str, root: Path) -> str:
    option = _option(root)

    def aimed(found: re.Match[str]) -> str:
        _, verb, *words = found[1].split()
        if verb in _WITHOUT_EXECUTION or not _NAMES_EXECUTION.isdisjoint(words):
            return found[0]

        if verb == "run":  # Without the option, it may begin a new execution.
            return f"`{found[1]} -e {shlex.quote(str(root))}`"

        return f"`{found[1]}{option}`"

    return re.sub(r"`(hankweave [^`]+)`", aimed, hint)


def _with_aim(stop: Stop, root: Path) -> Stop:
    hint = for_a_person(stop.hint, root)
    return Stop(stop.message, stop.exit_code, hint=hint, code=stop.code)


_WITHOUT_EXECUTION: Final = frozenset(
    {"ls", "agents", "init", "validate", "config", "help", "demo", "completion"}
)
_NAMES_EXECUTION: Final = frozenset({"-e", "--execution", "-w", "--workspace", "--new"})


def _option(root: Path) -> str:
    return "" if is_default(root) else f" -e {shlex.quote(str(root))}"


_PATIENCE = Backoff(longest=2.0, attempts=8)
"""About seven seconds: a lost connection is reopened at the first or second attempt."""


def at_server(
    root: Path, work: Callable[[Client], Awaitable[T]], tell: ReportProgress = tell_nobody
) -> T:
    """Run an operation with a server, reporting its progress to `tell`.

    A lost connection is reopened, and unanswered commands are sent again under their ids; the
    server executes each of them once. Raises NotRunning if there is no server,
    ConnectionRefusedError if the lock file names one that does not listen, and Stop for any other
    error.
    """

    is_watched = tell is not tell_nobody
    has_connected = False

    async def session() -> T:
        nonlocal has_connected
        async with connect_to(root, reconnect=_PATIENCE, progress=is_watched) as client:
            has_connected = True
            return await (watched(client, work, tell) if is_watched else work(client))

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
    hint = for_a_person(refused.hint, root)
    return Stop(
        f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=hint, code=refused.code
    )


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


def look(
    root: Path, work: Callable[[Calls], Awaitable[T]], tell: ReportProgress = tell_nobody
) -> T:
    """Run a read-only operation with a server or on the files; raise Stop if neither works.

    Nothing is written. A server reports its progress to `tell`.
    """
    try:
        return at_server(root, work, tell)
    except (NotRunning, ConnectionRefusedError):
        return look_at_files(root, work)


def look_at_files(root: Path, work: Callable[[Calls], Awaitable[T]]) -> T:
    """Run a read-only operation on the files, even if a server runs; raise Stop if it fails."""
    require_execution(root)
    # Imported here because only this needs the libraries that read checkpoints.
    from hankweave_server.local.reader import on_files

    try:
        return on_files(layout_of(root), work)
    except Stop as stop:
        raise _with_aim(stop, root) from None
