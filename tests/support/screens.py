"""A terminal of a given size with the real console script on it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from support.running_server import command, environment
from support.waiting import eventually_blocking

SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A terminal of a given size, and the program that runs on it."""

    def __init__(
        self,
        *words: str,
        columns: int = 100,
        lines: int = 30,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        """Start the console script with these words, or another program."""
        self.master, slave = os.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            program or command(*words),
            env=environment(**{"TERM": "xterm-256color", **(env or {})}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.set_blocking(self.master, False)
        self.bytes = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type text, as a user does."""
        os.write(self.master, keys.encode())

    def forget(self) -> None:
        """Discard the output so far: later waits see only new output."""
        self.bytes = b""

    def text(self) -> str:
        return SEQUENCE.sub(b"", self.bytes).decode(errors="replace")

    def until(self, holds: Callable[[str], bool]) -> None:
        self._wait(lambda: holds(self.text()))

    def ended(self) -> int:
        self._wait(lambda: self.process.poll() is not None)
        self._read()
        return int(self.process.returncode)

    def close(self) -> None:
        """Close the terminal; the program gets errors from then on."""
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    def left(self) -> int:
        """Return the exit code of a program whose terminal was closed."""
        eventually_blocking(lambda: self.process.poll() is not None)
        return int(self.process.returncode)

    def _wait(self, holds: Callable[[], bool]) -> None:
        def holds_now() -> bool:
            self._read()
            return holds()

        try:
            eventually_blocking(holds_now)
        except TimeoutError:
            raise AssertionError(self.text()) from None

    def _read(self) -> None:
        if select.select([self.master], [], [], 0)[0]:
            self.bytes += os.read(self.master, 65536)


@contextmanager
def screen(
    *words: str,
    columns: int = 100,
    lines: int = 30,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
) -> Iterator[Screen]:
    shown = Screen(*words, columns=columns, lines=lines, env=env, program=program)
    try:
        yield shown
    finally:
        if shown.process.poll() is None:
            shown.process.kill()
            shown.process.wait()

        if shown.master >= 0:
            shown.close()
