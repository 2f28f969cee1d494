"""The ACP agent as a child process, and JSON-RPC to it: lines in and out that never raise.

The SDK's `Connection` numbers requests and finds their answers; this is its transport. What comes
from the agent is checked here, for a message of a wrong shape would end the SDK's loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.abc

from hankweave_server.agents.acp.json_lines import Message, RawLog, Voice, cut, decoded, whole
from hankweave_server.agents.process.stdio import LineSplitter

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of a line from the agent; a longer one is passed over."""

_CHUNK = 64 * 1024
_LAST_LINES = 12
_LONGEST_WORD = 2_000
"""Characters of a line of stderr that are repeated in a result."""

_FAREWELL = 3.0
"""Seconds in which an agent that nobody speaks to any more may end by itself."""


class Child:
    """The agent's process; in a session of its own, so that a signal to us is none to it."""

    def __init__(self, process: anyio.abc.Process, voice: Voice) -> None:
        self._process = process
        self._voice = voice
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._has_finished = anyio.Event()

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], voice: Voice
    ) -> Child:
        """Raises OSError where the program cannot be run."""
        process = await anyio.open_process(command, env=environment, start_new_session=True)
        return cls(process, voice)

    async def last_words(self) -> str:
        """Gives the end of its stderr, once that is known; not for a child that still lives."""
        with anyio.move_on_after(_FAREWELL):  # One of its own children may keep the pipe open.
            await self._has_finished.wait()

        return "\n".join(self._last)

    async def write(self, line: bytes) -> None:
        """Raises ConnectionError when the agent does not read any more."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionError("The agent does not read any more.") from error

    async def chunk(self) -> bytes:
        """Gives the next piece of stdout, or nothing at its end."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.receive(_CHUNK)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def listen(self) -> None:
        """Passes on what the agent says on stderr, and remembers the end of it."""
        assert self._process.stderr is not None
        splitter = LineSplitter(LONGEST_LINE)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in self._process.stderr:
                for line in splitter.feed(chunk):
                    self.remark(line.marked_text())

        for line in splitter.finish():
            self.remark(line.marked_text())

        self._has_finished.set()

    def remark(self, text: str) -> None:
        """Keeps a line for people as one of the agent's last words."""
        if text.strip():
            self._last.append(cut(text, _LONGEST_WORD))

        self._voice.note(text)

    async def farewell(self) -> int:
        """Lets the agent end, ends it if it does not, and gives its exit code."""
        assert self._process.stdin is not None
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._process.stdin.aclose()

        for deadly in (signal.SIGTERM, signal.SIGKILL):
            with anyio.move_on_after(_FAREWELL):
                return await self._process.wait()

            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, deadly)

        return await self._process.wait()


class Wire:
    """The messages of one child; implements the SDK's `Transport`."""

    def __init__(self, child: Child, log: RawLog) -> None:
        self._child = child
        self._log = log
        self._splitter = LineSplitter(LONGEST_LINE)
        self._unread: deque[Message] = deque()
        self._writing = anyio.Lock()

    async def send(self, message: Message) -> None:
        line = whole(message)
        self._log.keep("out", message, len(line))
        async with self._writing:
            await self._child.write(line)

    async def receive(self) -> Message | None:
        while not self._unread:
            chunk = await self._child.chunk()
            lines = self._splitter.feed(chunk) if chunk else self._splitter.finish()
            for line in lines:
                self._take(line.content, line.dropped)

            if not chunk and not self._unread:
                return None

        return self._unread.popleft()

    async def close(self) -> None:
        """The child is ended by who started it."""

    def _take(self, line: bytes, dropped: int) -> None:
        if not line.strip():
            return

        if dropped:
            self._child.remark(f"A message of {len(line) + dropped} bytes was passed over.")
            return

        message = decoded(line)
        if message is None:
            self._child.remark(line.decode(errors="replace"))
        elif (sound := _sound(message)) is not None:
            self._log.keep("in", message, len(line))
            self._unread.append(sound)


def _sound(message: Message) -> Message | None:
    """The message in a shape that JSON-RPC allows; None for what has none."""
    if "method" in message:
        is_call = isinstance(message["method"], str) and _is_id(message.get("id"))
        return message if is_call else None

    if type(message.get("id")) is not int:
        return None

    if "result" not in message and not isinstance(message.get("error"), dict):
        return message | {"error": {"code": -32603, "message": str(message.get("error"))}}

    return message


def _is_id(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)
