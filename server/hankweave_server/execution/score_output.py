"""A program that runs a score command and passes on the beginning and the end of its output.

Only the last line of it counts, and each line becomes an event: a command that prints ten million
of them would keep the server busy for minutes, and one that never stops printing for ever. It is a
file of its own that imports nothing of the server, because it runs inside the fence, without the
server's environment:

    python -I -S score_output.py COMMAND

The exit code is that of the command. What the command has started in the background is not waited
for.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys

FIRST = 64 << 10
"""Bytes of each stream that are passed on as they come."""

LAST = 64 << 10
"""Bytes of each stream that are passed on at its end."""

MOST = 1 << 30
"""Bytes of both streams after which the command is ended: it would never stop by itself."""

_BLOCK = 64 << 10


class Excerpt:
    """The part of a stream that is passed on."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self._target = target
        self._passed = 0
        self._end = bytearray()
        self._left_out = 0
        os.set_blocking(source, False)

    def read(self) -> int | None:
        """Take what there is; return its length, 0 at the end, and None if there is nothing now."""
        try:
            data = os.read(self.source, _BLOCK)
        except BlockingIOError:
            return None

        now = data[: FIRST - self._passed]
        self._write(now)
        self._passed += len(now)
        self._end += data[len(now) :]
        if len(self._end) > 2 * LAST:
            self._shorten()

        return len(data)

    def finish(self) -> None:
        """Pass on the end of the stream."""
        self._shorten()
        if self._left_out:
            self._write(b"\n[%d bytes are left out]\n" % self._left_out)

        self._write(self._end)

    def _shorten(self) -> None:
        excess = max(0, len(self._end) - LAST)
        del self._end[:excess]
        self._left_out += excess

    def _write(self, data: bytes | bytearray) -> None:
        while data:
            data = data[os.write(self._target, data) :]


def run(command: str, most: int = MOST) -> int:
    """Run a command in a shell; return its exit code, or 1 if it has printed too much."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    excerpts = [Excerpt(process.stdout.fileno(), 1), Excerpt(process.stderr.fileno(), 2)]
    exit_code = _followed(process, excerpts, most)
    for excerpt in excerpts:
        excerpt.finish()

    if exit_code is None:
        os.write(2, b"The score command was ended: it printed more than %d bytes.\n" % most)
        return 1

    return exit_code if exit_code >= 0 else 128 - exit_code


def _followed(process: subprocess.Popen[bytes], excerpts: list[Excerpt], most: int) -> int | None:
    """Read until the process has ended; return its exit code, None if it was ended for its output.

    What is left in the pipes then is read, too, but no more than fits into them: a process that the
    command has left behind may write on.
    """
    end, printed = os.pidfd_open(process.pid), 0
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        for excerpt in excerpts:
            selector.register(excerpt.source, selectors.EVENT_READ, excerpt)

        while True:
            ready = [key.data for key, _ in selector.select()]
            for excerpt in filter(None, ready):
                size = excerpt.read()
                printed += size or 0
                if size == 0:
                    selector.unregister(excerpt.source)

            if printed > most:
                process.kill()
                process.wait()
                return None

            if None in ready:
                break

    for excerpt in excerpts:
        left = 1 << 20
        while left > 0 and (size := excerpt.read()):
            left -= size

    os.close(end)
    return process.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run(sys.argv[1]))
