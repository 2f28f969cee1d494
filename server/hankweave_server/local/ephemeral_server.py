"""An ephemeral server, for commands that change an idle execution.

It is a `hankweave run` like any other, in a process of its own: it takes the lock, recovers what a
crash has left, and journals what is done. It differs in two ways. It follows the recorded plan and
never reads the hank, so that an execution can be rolled back whose hank is gone. And it ends when
the pipe on its stdin closes, so that it does not outlive a caller that is killed.

Several programs may use one directory. A caller holds a lock on the directory while it works, and
again while it ends the server it has started. So no caller is refused because of another one's
rollback, and no server ends in the middle of an operation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from hankweave_client.errors import NotRunning
from hankweave_protocol.state_directory import state_directory_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.fsutil import opened, temporary_folder
from hankweave_server.local.detached_server import own_command
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source

T = TypeVar("T")

START_SECONDS = 90.0
"""Time for a server to recover and listen, or for another one to release the lock.

It is longer than the lock of another program is watched for signs of life
(`FOREIGN_WATCH` in `runtime_lock.held`).
"""

END_SECONDS = 15.0
"""Time for an orderly end, which takes eight seconds (`daemon/shutdown.py`, LAST_SECONDS)."""

_BETWEEN_TRIES = 0.05
_SAYS, _HINTS = "hankweave: ", "  hint: "


class EphemeralServer:
    """The server of a directory, found or started; `end` ends only a server started here."""

    def __init__(self, root: Path, *, founds: bool = False, waits: bool = True) -> None:
        """Create one; with `founds`, a directory without an execution is served in place.

        With `waits`, a server that starts or ends in the directory is waited for.
        """
        self._root = root
        self._founds = founds
        self._waits = waits
        self._pid = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._has_served = False

    def do(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt until it finds a server; raise Stop if none can be had.

        The attempt raises NotRunning or ConnectionRefusedError if there is no server, and must have
        had no effect by then.
        """
        deadline = time.monotonic() + START_SECONDS
        with _locked(self._directory()):
            while True:
                try:
                    done = attempt()
                except (NotRunning, ConnectionRefusedError) as nobody:
                    if time.monotonic() > deadline:
                        raise Stop(str(nobody), ExitCode.UNAVAILABLE) from None
                else:
                    self._has_served = True
                    return done

                self._ensure_server()
                time.sleep(_BETWEEN_TRIES)

    def end(self) -> None:
        """End a server started here as soon as no other caller uses it; idempotent."""
        child, self._child = self._child, None
        if child is None or self._pid != os.getpid():
            return

        if child.poll() is None:
            # A caller that uses it for longer than the timeout is disconnected, as by any server.
            with contextlib.suppress(Stop, OSError), _locked(self._root):
                _end(child)

            _end(child)

        self._close_pipes(child)

    def _directory(self) -> Path:
        if not self._root.is_dir() or not (self._founds or self._has_execution()):
            raise Stop(
                f"There is no execution in {self._root}.",
                ExitCode.NO_INPUT,
                hint="Start one with `hankweave run`, or name one with --execution.",
            )

        return self._root

    def _has_execution(self) -> bool:
        return state_directory_of(self._root).is_dir()

    def _ensure_server(self) -> None:
        """Start a server unless one is starting already; raise Stop if it could not start."""
        if self._child is not None:
            if self._child.poll() is None:
                return

            failure = self._failure(self._child)
            self._close_pipes(self._child)
            self._child = None
            # Another server was faster and will listen or end soon, or this one was killed.
            is_held = failure.exit_code == ExitCode.LOCK_HELD
            if not (is_held and self._waits) and not self._has_served:
                raise failure

        self._has_served = False
        self._stderr = tempfile.TemporaryFile(  # noqa: SIM115  # `_close_pipes` closes it.
            dir=temporary_folder()
        )
        self._child = subprocess.Popen(
            _command(self._root),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,  # Signals of the terminal go to this process, which ends it.
        )

    def _failure(self, child: subprocess.Popen[bytes]) -> Stop:
        """Return the error that the server printed before it ended."""
        assert self._stderr is not None
        self._stderr.seek(0)
        said = self._stderr.read().decode("utf-8", "replace").rstrip()
        message, _, hint = said.removeprefix(_SAYS).partition(f"\n{_HINTS}")
        try:
            code = ExitCode(child.returncode)
        except ValueError:
            message = f"The temporary server exited with code {child.returncode}.\n{said}"
            return Stop(message.rstrip(), ExitCode.UNAVAILABLE)

        return Stop(message or "The temporary server exited immediately.", code, hint=hint or None)

    def _close_pipes(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin is not None:
            child.stdin.close()

        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


def through_server(root: Path, attempt: Callable[[], T], *, waits: bool = True) -> T:
    """Run an attempt with the server of an execution, or with an ephemeral one."""
    server = EphemeralServer(root, waits=waits)
    try:
        return server.do(attempt)
    finally:
        server.end()


def end_with_stdin() -> None:
    """End this process, as SIGTERM does, as soon as its stdin is closed."""
    threading.Thread(target=_await_the_end, name="stdin", daemon=True).start()


def _await_the_end() -> None:
    while os.read(0, 4096):
        pass

    os.kill(os.getpid(), signal.SIGTERM)


def _command(root: Path) -> list[str]:
    place = "--workspace" if _is_in_place(root) else "--execution"
    return own_command("run", place, str(root), "--for-a-moment")


def _is_in_place(root: Path) -> bool:
    """Return whether to serve in place: a directory without metadata is a workspace.

    Commands that need an execution check for one before.
    """
    return (
        data_source.layout_of(root).is_in_place
        or data_source.read_meta(Layout.of_execution(root)) is None
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return

    child.terminate()
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()  # The next start recovers.
        child.wait()


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold a lock on the directory itself; raise Stop if it is not free in time."""
    with opened(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as descriptor:
        _lock(descriptor, root)
        yield


def _lock(descriptor: int, root: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Stop(
                    f"Another command is still running in {root}.",
                    ExitCode.LOCK_HELD,
                    hint="Nothing was changed. Try again when it has ended.",
                ) from None
        else:
            return

        time.sleep(_BETWEEN_TRIES)
