"""A server for a moment: for what changes an execution that nobody serves.

It is a `hankweave run` like any other, in a process of its own: it takes the lock, recovers what a
crash has left, and puts on record what is done. Two things set it apart. It follows the plan that
is on record and never reads the hank, so that an execution can be rolled back whose hank is gone;
and it ends with the pipe on its stdin, so that it outlives nobody who is killed.

Several programs may meet in one directory. Whoever wants something done takes a lock on the
directory meanwhile, and so does whoever ends the server that it has started: nobody is refused
because of another one's rollback, and nobody's server ends in the midst of something.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from hankweave_client.errors import NotRunning
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source

T = TypeVar("T")

START_SECONDS = 90.0
"""How long a server may take to recover and listen, or another one to let go of the lock; longer
than the lock of another program is watched for signs of life (`runtime_lock.FOREIGN_WATCH`)."""

END_SECONDS = 15.0
"""An orderly end takes eight (`daemon.LAST_SECONDS`)."""

_BETWEEN_TRIES = 0.05
_MAIN = "from hankweave_server.cli.app import main; main()"
_SAYS, _HINTS = "hankweave: ", "  hint: "


class PassingServer:
    """Finds the server of a directory or starts one; `end` ends the one that was started here."""

    def __init__(self, root: Path, *, founds: bool = False) -> None:
        """`founds`: a directory that has no execution becomes a workspace served in place."""
        self._root = root
        self._founds = founds
        self._pid = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self._has_served = False

    def do(self, attempt: Callable[[], T]) -> T:
        """Repeats an attempt until it finds a server; raises Stop where none can be had.

        The attempt raises NotRunning or ConnectionRefusedError for want of one, and must have done
        nothing by then.
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

                self._see_to_a_server()
                time.sleep(_BETWEEN_TRIES)

    def end(self) -> None:
        """Ends what was started here, as soon as nobody else uses it; may be repeated."""
        child, self._child = self._child, None
        if child is None or self._pid != os.getpid():
            return

        if child.poll() is None:
            # Who uses it for longer than we wait is told goodbye like the client of any server.
            with contextlib.suppress(Stop, OSError), _locked(self._root):
                _end(child)

            _end(child)

        self._let_go(child)

    def _directory(self) -> Path:
        if not self._root.is_dir() or not (self._founds or self._has_execution()):
            raise Stop(
                f"There is no execution in {self._root}.",
                ExitCode.NO_INPUT,
                hint="Start one with `hankweave run`, or name one with --execution.",
            )

        return self._root

    def _has_execution(self) -> bool:
        return Layout.of_execution(self._root).state_directory.is_dir()

    def _see_to_a_server(self) -> None:
        """Starts one, unless one is starting already; raises Stop where it could not start."""
        if self._child is not None:
            if self._child.poll() is None:
                return

            failure = self._failure(self._child)
            self._let_go(self._child)
            self._child = None
            # Somebody else was quicker, who will soon listen or be gone; or ours was killed.
            if failure.exit_code != ExitCode.LOCK_HELD and not self._has_served:
                raise failure

        self._has_served = False
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # `_let_go` closes it.
        self._child = subprocess.Popen(
            _command(self._root),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            start_new_session=True,  # What a terminal sends is for us, who end it in order.
        )

    def _failure(self, child: subprocess.Popen[bytes]) -> Stop:
        """What it said before it ended."""
        assert self._complaints is not None
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace").rstrip()
        message, _, hint = said.removeprefix(_SAYS).partition(f"\n{_HINTS}")
        try:
            code = ExitCode(child.returncode)
        except ValueError:
            message = f"The server that was started for this ended with {child.returncode}.\n{said}"
            return Stop(message.rstrip(), ExitCode.UNAVAILABLE)

        return Stop(message or "The server ended at once.", code, hint=hint or None)

    def _let_go(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin is not None:
            child.stdin.close()

        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None


def through_server(root: Path, attempt: Callable[[], T]) -> T:
    """Makes an attempt with the server of an execution, or with one for just as long."""
    server = PassingServer(root)
    try:
        return server.do(attempt)
    finally:
        server.end()


def end_with_stdin() -> None:
    """Ends this process as SIGTERM does, as soon as its stdin does."""
    threading.Thread(target=_await_the_end, name="stdin", daemon=True).start()


def _await_the_end() -> None:
    while os.read(0, 4096):
        pass

    os.kill(os.getpid(), signal.SIGTERM)


def _command(root: Path) -> list[str]:
    place = "--workspace" if _is_in_place(root) else "--execution"
    # -P: nothing that lies in the directory we are called in is imported.
    return [sys.executable, "-P", "-c", _MAIN, "run", place, str(root), "--for-a-moment"]


def _is_in_place(root: Path) -> bool:
    """A directory without metadata is a workspace: commands ask for an execution before."""
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
    """Holds a lock on the directory itself; raises Stop where somebody keeps it for too long."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, root)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, root: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Stop(
                    f"Another command works in {root}, and does not end.", ExitCode.LOCK_HELD
                ) from None
        else:
            return

        time.sleep(_BETWEEN_TRIES)
