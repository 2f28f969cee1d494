"""The ways in which a server ends: by a request, by a signal, by force.

A request flips the switch, and the daemon then ends in order. From that moment a timer makes sure
that the process ends, whatever a thread is still busy with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import anyio
import anyio.abc
import anyio.to_thread
from anyio.abc import TaskStatus

from hankweave_server.errors import ExitCode
from hankweave_server.execution.runner import Runner
from hankweave_server.logs import flush, logger
from hankweave_server.runtime_lock.held import HeldLock
from hankweave_server.runtime_lock.lock_file import LockLost

log = logger(__name__)

LAST_SECONDS = 7.8
"""Seconds until the process exits, whatever still runs: a shutdown may take eight in all."""


class StopSwitch:
    """The first request to stop, and the exit code of the process."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.exit_code = ExitCode.DONE
        self._since = 0.0
        self._requested = anyio.Event()
        self._lock: HeldLock | None = None

    def set_lock(self, lock: HeldLock) -> None:
        """Set the lock that even a forced end has to give up."""
        self._lock = lock

    def request_stop(self, reason: str, exit_code: ExitCode = ExitCode.DONE) -> None:
        """Request the end; only the first request counts."""
        if self.reason is None:
            self.reason, self.exit_code = reason, exit_code
            self._since = anyio.current_time()
            self._requested.set()
            self._start_deadline()

    def end_with(self, exit_code: ExitCode) -> None:
        """Replace the exit code: the end did not go as it should."""
        self.exit_code = exit_code

    def left_of(self, seconds: float) -> float:
        """Return the seconds left of a time span that began with the request to stop."""
        return max(0.0, self._since + seconds - anyio.current_time())

    async def wait(self) -> str:
        await self._requested.wait()
        assert self.reason is not None
        return self.reason

    def _start_deadline(self) -> None:
        """Make sure that the process ends, whatever a thread is still busy with.

        It is a timer in its own thread, because the event loop may be blocked. It outlives the
        loop: the interpreter waits for all other threads before it exits.
        """
        timer = threading.Timer(LAST_SECONDS, self._end_at_once)
        timer.daemon = True
        timer.start()

    def _end_at_once(self) -> None:
        """End as in a crash, from which the next start recovers, but remove the lock file."""
        if self._lock is None or self._lock.is_released:
            os._exit(self.exit_code)  # Everything is recorded; remaining threads only read.

        log.error("The shutdown took too long; the next start recovers")
        flush()
        self._lock.abandon()
        os._exit(ExitCode.SOFTWARE)


Choice = Literal["finish", "stop", "go on"]
"""Choices at Ctrl-C: end after this codon, end at once, or continue."""


class AsksAtInterrupt(Protocol):
    """Asks the user what to do with the running codon."""

    async def ask(self) -> Choice: ...


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)

_WITHOUT_MEANING = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that end a program by default. The server goes on: a stray one must not end its agents.

They are caught, not ignored: agents would inherit that.
"""


class Signals:
    """SIGTERM, SIGQUIT, SIGHUP and SIGINT end the server in order.

    The first Ctrl-C may ask what to do with the running codon. SIGHUP, sent when a terminal is
    closed, has no effect under `nohup`, and calls `detach` if the server is to go on.
    """

    def __init__(
        self,
        switch: StopSwitch,
        interrupts: AsksAtInterrupt | None,
        *,
        is_headless: bool,
        detach: Callable[[], None] | None = None,
    ) -> None:
        self._switch = switch
        self._detach = detach
        self._interrupts = interrupts
        self._is_headless = is_headless
        self._runner: Runner | None = None
        self._asking: anyio.CancelScope | None = None
        self.ends_after_codon = False
        """True if the user chose to end when the running codon has."""

    def attach(self, runner: Runner) -> None:
        """Set the runner: a codon may run from now on."""
        self._runner = runner

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as asking:
            with anyio.open_signal_receiver(*_to_be_caught()) as received:
                task_status.started()
                async for number in received:
                    if number in _WITHOUT_MEANING:
                        log.info("%s has no meaning here and is ignored", number.name)
                        continue

                    if number == signal.SIGHUP and self._detach is not None:
                        self._continue_without_terminal(self._detach)
                        continue

                    if number == signal.SIGHUP:
                        detach_from_closed_terminal()

                    if number == signal.SIGINT and self._may_ask():
                        self._asking = anyio.CancelScope()
                        asking.start_soon(self._ask_what_to_do, self._asking)
                    else:
                        if self._asking is not None:
                            self._asking.cancel()  # An answer would come too late.

                        self.request_stop(number.name)

    def _continue_without_terminal(self, detach: Callable[[], None]) -> None:
        """Go on without the terminal: no question can be answered from now on."""
        if self._asking is not None:
            self._asking.cancel()

        self._interrupts = None
        detach()

    def _may_ask(self) -> bool:
        """Return whether a Ctrl-C asks: on a terminal, the first time, while a codon runs."""
        is_first = self._asking is None and not self.ends_after_codon
        is_working = self._runner is not None and self._runner.is_busy
        return self._interrupts is not None and is_first and is_working

    async def _ask_what_to_do(self, asking: anyio.CancelScope) -> None:
        assert self._interrupts is not None
        chosen: Choice = "stop" if self._detach is None else "go on"
        with asking:
            chosen = await self._interrupts.ask()

        self._asking = None
        match chosen:
            case "stop":
                self.request_stop("SIGINT")
            case "finish" if self._runner is not None:
                self.ends_after_codon = True
                self._runner.stop_after_codon()
                if not self._runner.is_busy:
                    self.request_stop("SIGINT")
            case _:
                return

    def request_stop(self, name: str) -> None:
        self._switch.request_stop(name, ExitCode.FAILED if self._is_headless else ExitCode.DONE)


def _to_be_caught() -> list[signal.Signals]:
    """Return the signals to handle: not a SIGHUP that `nohup` ignores, nor what has a handler."""
    free = (each for each in _WITHOUT_MEANING if signal.getsignal(each) is signal.SIG_DFL)
    is_kept_alive = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [each for each in _ENDING if each != signal.SIGHUP or not is_kept_alive] + [*free]


def detach_from_closed_terminal() -> None:
    """Redirect the standard streams from a closed terminal to /dev/null.

    Each later write would fail, and even the exit code would be that of a failed write.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in range(3):
            with contextlib.suppress(OSError):  # It may be closed.
                is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
                if is_device and not os.isatty(descriptor):
                    os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


def leave_terminal(errors: Path) -> None:
    """Go on in a session of its own, without the terminal; Python's errors go to a file.

    What is printed is not kept: the server log has it.
    """
    with contextlib.ExitStack() as opened:
        nowhere = opened.enter_context(open(os.devnull, "r+b", buffering=0))
        kept = nowhere
        with contextlib.suppress(OSError):  # The server has not opened its log yet.
            kept = opened.enter_context(open(errors, "ab", buffering=0))

        for descriptor, place in ((0, nowhere), (1, nowhere), (2, kept)):
            with contextlib.suppress(OSError):  # It may be closed.
                if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                    os.dup2(place.fileno(), descriptor)

    with contextlib.suppress(OSError):  # It leads a session already, or shares its group.
        _begin_session()


def _begin_session() -> None:
    """Begin a session; a process that leads a group must join the group of another one first."""
    if os.getpgrp() != os.getpid():
        os.setsid()
        return

    waits = [sys.executable, "-ISc", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, process_group=0) as other:
        os.setpgid(0, other.pid)
        os.setsid()


def kill(reason: str) -> None:
    """Exit at once; agents die with this process, and the next start recovers."""
    log.error("Forced to stop: %s", reason)
    flush()
    os._exit(ExitCode.FAILED)


def require_lock(lock: HeldLock) -> None:
    """End this process if it does not own the directory any more."""
    try:
        lock.verify()
    except LockLost as lost:
        fence(lost)


def fence(lost: LockLost) -> None:
    """Fence this server: the new owner of the directory must find no second writer."""
    log.error("The runtime lock is lost: %s", lost)
    hint = "" if lost.hint is None else f"\n  hint: {lost.hint}"
    os.write(2, f"hankweave: {lost}{hint}\n".encode())
    flush()
    os._exit(ExitCode.SOFTWARE)
