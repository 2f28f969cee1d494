"""The server of an attempt: a process of its own, which outlives the one that started it.

An attempt is an execution like any other, and its server a `hankweave run --headless`. Its parent
only starts it, waits for its end, and reads what it has recorded. A parent that is started again
finds the server by the guard of its lock, and waits for it as before.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_protocol import codec
from hankweave_protocol.attempts import SCORE_CODON
from hankweave_protocol.state import CompletedCodon, FailedCodon, State
from hankweave_server import fsutil
from hankweave_server.domain.execution_thread import newest_run, next_codon, thread
from hankweave_server.errors import ExitCode
from hankweave_server.local.detached_server import own_command, start_detached
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard
from hankweave_server.runtime_lock.lock_file import read_record
from hankweave_server.settings import RunSettings

_ERROR = "hankweave: "
"""Begins an error on the terminal."""
_LAST_BYTES = 1 << 16
"""Bytes at the end of the output in which the newest error is looked for."""
_WARNING = f"{_ERROR}warning: "
_REFUSALS = frozenset(
    {
        *(ExitCode.USAGE, ExitCode.BAD_DATA, ExitCode.NO_INPUT, ExitCode.UNAVAILABLE),
        *(ExitCode.CANNOT_CREATE, ExitCode.NO_PERMISSION, ExitCode.CONFIGURATION),
    }
)
"""Exit codes of a server that will not start, however often it is tried."""

END_SECONDS = 15.0
"""Time for an orderly end; see `local/ephemeral_server.py`."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The progress of an attempt, as its files show it."""

    state: State
    is_over: bool
    """False if its server has to be started (again)."""
    failure: str | None = None
    """Why its codons could not be done; None if they were, or still may be."""
    score_output: str | None = None
    """The output of the score command; None if it has not run, or has failed."""
    score_error: str | None = None
    """Why the score command failed."""


def start_server(layout: Layout, options: Sequence[str]) -> int:
    """Start the server of an attempt, detached from this process; return its pid.

    `ended` reaps it. Its output goes to `logs/attempt.out`. Raises OSError.
    """
    fsutil.make_private_directory(layout.server_log.parent)
    output = output_of(layout)
    command = ["run", "--execution", str(layout.root), "--headless", "--plain", *options]
    with output.open("ab") as sink:
        return start_detached(command, sink.fileno())


def output_of(layout: Layout) -> Path:
    """Return the file with what the servers of an attempt have printed."""
    return layout.server_log.with_name("attempt.out")


def last_error(layout: Layout) -> str | None:
    """Return the newest error that the servers of an attempt have printed, if any."""
    try:
        with output_of(layout).open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _LAST_BYTES))
            lines = output.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return None

    for line in reversed(lines):
        if line.startswith(_ERROR) and not line.startswith(_WARNING):
            return one_line(line.removeprefix(_ERROR))

    return None


def attempt_options(settings: RunSettings) -> tuple[str, ...]:
    """Return the options with which the servers of attempts run as this one does."""
    values = {
        "--agent": settings.agent,
        "--model": settings.model,
        "--confinement": settings.confinement,
        "--max-wait": None if settings.max_wait is None else f"{settings.max_wait:.3f}",
        "--prices": settings.prices,
        "--watch": settings.watch,
        "--log-level": settings.log_level,
        "--shim-idle-timeout": settings.idle_seconds,
        "--safe-points": ",".join(sorted(settings.safe_points)) or "none",
    }
    flags = {
        "--no-agent-check": not settings.agent_check,
        "--ignore-rig-failures": settings.ignore_rig_failures,
        "--require-confinement": settings.require_confinement,
    }
    given = ((name, str(value)) for name, value in values.items() if value is not None)
    chosen = (name for name, is_given in flags.items() if is_given)
    # An attempt that took over the result of another one would try nothing.
    return (*(word for pair in given for word in pair), *chosen, "--no-reuse")


def server_of(layout: Layout) -> int | None:
    """Return the pid of the server that owns an execution; None if there is none."""
    try:
        guard = granted_guard(layout.lock_guard)
    except GuardBusy as busy:
        record = read_record(layout.runtime_lock)
        if busy.owner is not None:
            return busy.owner.pid

        return None if record is None else record.pid
    except OSError:
        return None

    os.close(guard)
    return None


async def ended(pid: int) -> int | None:
    """Wait until a process has ended; return its exit code if it is a child of this process.

    A child is reaped. The code is negative if a signal ended it.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None

    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)

    return _reap(pid)


def is_refusal(exit_code: int | None) -> bool:
    """Return whether a server has ended because it cannot start: a person has to mend something."""
    return exit_code in _REFUSALS


def _reap(pid: int) -> int | None:
    with contextlib.suppress(ChildProcessError):  # An earlier server has started it.
        reaped, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if reaped else None

    return None


def end_server(pid: int) -> None:
    """End a server in an orderly way, or after `END_SECONDS` at once; blocks until it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return

    try:
        end_process(descriptor)
    finally:
        os.close(descriptor)
        _reap(pid)


def end_process(descriptor: int) -> None:
    """Do the same with the process of a pidfd, without reaping it."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    with contextlib.suppress(ProcessLookupError):
        for number, timeout in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, None)):
            signal.pidfd_send_signal(descriptor, number)
            if waiting.poll(None if timeout is None else timeout * 1000):
                return


def remove_execution(root: Path) -> None:
    """Remove an execution as `hankweave cleanup` does. Raises OSError."""
    done = subprocess.run(
        own_command("cleanup", "--execution", str(root), "--yes"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise OSError(said.decode(errors="replace"))


def result_of(layout: Layout) -> AttemptResult:
    """Read how far an attempt is whose server has ended. Raises OSError, msgspec.MsgspecError."""
    state = codec.decoder_of(State).decode(layout.state.read_bytes())
    entries = [entry.codon for entry in thread(state)]
    run = newest_run(state)
    newest = entries[-1] if entries else None
    if newest is not None and newest.codon_id == SCORE_CODON:
        if isinstance(newest, FailedCodon):
            return AttemptResult(state, is_over=True, score_error=_reason_of(newest))

        if isinstance(newest, CompletedCodon):
            output = "" if newest.captured is None else newest.captured.value
            return AttemptResult(state, is_over=True, score_output=output)

    elif isinstance(newest, FailedCodon) and run is not None and run.status == "failed":
        return AttemptResult(state, is_over=True, failure=_reason_of(newest))

    return AttemptResult(state, is_over=next_codon(state) is None)


def _reason_of(codon: FailedCodon) -> str:
    return codon.failure_reason.message or f"Codon {codon.codon_id} failed."
