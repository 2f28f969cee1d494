"""Translate between the server (Claude's stream-json) and an ACP agent: the bridge program.

It runs in the place of an agent's program, below the keeper, and the ACP agent is its child. So
limits, signals, log and answers work as for every other agent. On stdin it gets the order, then the
answers to permission requests. On stdout it prints lines that `agents.stream_json` parses, and raw
messages as `{"type": "acp", …}`, which that parser ignores. SIGINT cancels the turn. The exit code
is 0 after a successful result, 2 for an invalid order, else 1.

The client offers neither a file system nor a terminal: the known agents write files and run
commands themselves in the work tree, where checkpoints see the changes.

Parts: `Child` is the agent's process. `AgentConnection` is the transport for the SDK's
`Connection`, which numbers requests and matches answers; it checks what the agent sends, because a
message of a wrong shape would end the SDK's loop. `Questions` forwards permission requests to the
server and returns its answers. `Bridge` puts them together.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from acp.connection import Connection
from acp.exceptions import RequestError

from hankweave_server.agents.acp import json_lines
from hankweave_server.agents.acp.conversations import Memory, memory_in
from hankweave_server.agents.acp.dialogue import Dialogue, Ended
from hankweave_server.agents.acp.events import AcpTranslator
from hankweave_server.agents.acp.json_lines import (
    BridgeOrder,
    BridgeOutput,
    Message,
    RawLog,
    StandardVoice,
    cut,
    decoded,
    is_whole,
    whole,
)
from hankweave_server.agents.base import is_file_name
from hankweave_server.agents.process.stdio import LineSplitter, PipeReader

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of a line from the agent; a longer one is ignored."""

_CHUNK = 64 * 1024
_LAST_LINES = 12
_LONGEST_WORD = 2_000
"""Characters of a line of stderr that a result repeats."""

_FAREWELL = 3.0
"""Seconds for the agent to end by itself after its stdin is closed, and after each signal."""


class Child:
    """The agent's process; in its own session, so that signals to the bridge do not reach it."""

    def __init__(self, process: anyio.abc.Process, voice: BridgeOutput) -> None:
        self._process = process
        self._voice = voice
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._has_finished = anyio.Event()

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], voice: BridgeOutput
    ) -> Child:
        """Start the program. Raises OSError if it cannot be run."""
        process = await anyio.open_process(command, env=environment, start_new_session=True)
        return cls(process, voice)

    async def last_words(self) -> str:
        """Return the end of its stderr; call it only after the child has ended."""
        with anyio.move_on_after(_FAREWELL):  # One of its children may keep the pipe open.
            await self._has_finished.wait()

        return "\n".join(self._last)

    async def write(self, line: bytes) -> None:
        """Write a line. Raises ConnectionError if the agent no longer reads."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionError("The agent stopped reading its input.") from error

    async def chunk(self) -> bytes:
        """Return the next piece of stdout, empty at its end."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.receive(_CHUNK)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def listen(self) -> None:
        """Forward the agent's stderr, and keep its last lines."""
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
        """Print a remark, and keep it as one of the agent's last lines."""
        if text.strip():
            self._last.append(cut(text, _LONGEST_WORD))

        self._voice.note(text)

    async def farewell(self) -> int:
        """Close the agent's stdin, end the agent if it does not exit, and return its exit code."""
        assert self._process.stdin is not None
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._process.stdin.aclose()

        for deadly in (signal.SIGTERM, signal.SIGKILL):
            with anyio.move_on_after(_FAREWELL):
                return await self._process.wait()

            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, deadly)

        return await self._process.wait()


class AgentConnection:
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
        """Do nothing; the owner of the child ends it."""

    def _take(self, line: bytes, dropped: int) -> None:
        if not line.strip():
            return

        if dropped:
            self._child.remark(f"A message of {len(line) + dropped} bytes was ignored.")
            return

        message = decoded(line)
        if message is None:
            self._child.remark(line.decode(errors="replace"))
        elif (sound := _sound(message)) is not None:
            self._log.keep("in", message, len(line))
            self._unread.append(sound)


def _sound(message: Message) -> Message | None:
    """Return the message in a form that JSON-RPC allows, or None."""
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


_ALLOWING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")
"""In order of preference: an answer is for one call."""

_CANCELLED: Message = {"outcome": {"outcome": "cancelled"}}


class _Question:
    """A pending permission request; an answer of None means that it was cancelled."""

    def __init__(self) -> None:
        self._given = anyio.Event()
        self.is_allowed: bool | None = None

    def settle(self, allowed: bool | None) -> None:
        if not self._given.is_set():
            self.is_allowed = allowed
            self._given.set()

    async def wait(self) -> bool | None:
        await self._given.wait()
        return self.is_allowed


class Questions:
    """The agent's permission requests."""

    def __init__(self, story: AcpTranslator, voice: BridgeOutput) -> None:
        self._story = story
        self._voice = voice
        self._open: dict[str, _Question] = {}
        self._asked = 0
        self._is_closed = False

    async def ask(self, asked: Mapping[str, Any]) -> Message:
        """Ask the server, and return its answer in the agent's terms."""
        self._asked += 1
        name = f"permission-{self._asked}"
        line = self._story.question(name, asked)
        options = _options(asked)
        if self._is_closed:
            return _CANCELLED

        if not is_whole(line):
            # The answer must be based on the complete request.
            self._voice.note(
                "Permission for a tool call was refused: the call is too long to be shown."
            )
            return _chosen(options, allowed=False)

        question = self._open[name] = _Question()
        self._voice.say(line)
        allowed = await question.wait()
        del self._open[name]
        return _CANCELLED if allowed is None else _chosen(options, allowed=allowed)

    def answered(self, message: Mapping[str, Any]) -> None:
        """Handle a line from the server; anything but a clear yes is a no."""
        match message:
            case {
                "type": "control_response",
                "response": {"request_id": str() as name, **given},
            } if name in self._open:
                behavior = given.get("response")
                is_yes = isinstance(behavior, dict) and behavior.get("behavior") == "allow"
                self._open[name].settle(is_yes)

    def close(self) -> None:
        """Cancel all pending requests, and those that still come: there is no one to answer."""
        self._is_closed = True
        for name, question in self._open.items():
            self._voice.say({"type": "control_cancel_request", "request_id": name})
            question.settle(None)


def _options(asked: Mapping[str, Any]) -> list[tuple[str, str]]:
    options = asked.get("options")
    return [
        (each["kind"], each["optionId"])
        for each in (options if isinstance(options, list) else [])
        if isinstance(each, dict)
        and isinstance(each.get("kind"), str)
        and isinstance(each.get("optionId"), str)
    ]


def _chosen(options: list[tuple[str, str]], *, allowed: bool) -> Message:
    for wanted in _ALLOWING if allowed else _REFUSING:
        for kind, option in options:
            if kind == wanted:
                return {"outcome": {"outcome": "selected", "optionId": option}}

    return _CANCELLED


_LONGEST_ANSWER = 64 * 1024 * 1024  # Bytes; an order includes its prompt.


def main(_arguments: list[str]) -> int:
    logging.disable()  # The result reports what the SDK would log about a failing agent.
    return anyio.run(_run)


async def _run() -> int:
    voice = StandardVoice()
    lines = _StandardInput()
    try:
        order = json_lines.from_line(await lines.next() or b"")
    except (ValueError, KeyError, TypeError) as error:
        voice.note(f"The request is invalid: {error!r}")
        return 2

    return await Bridge(order, voice, lines).run()


class _StandardInput:
    """The lines of stdin, as they arrive."""

    def __init__(self) -> None:
        self._chunks = PipeReader(0).chunks()
        self._splitter = LineSplitter(_LONGEST_ANSWER)
        self._lines: list[bytes] = []

    async def next(self) -> bytes | None:
        while not self._lines:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                return None

            self._lines = [line.content for line in self._splitter.feed(chunk)]

        return self._lines.pop(0)


class Bridge:
    """One agent, one session, one prompt."""

    def __init__(self, order: BridgeOrder, voice: BridgeOutput, lines: _StandardInput) -> None:
        self._order = order
        self._voice = voice
        self._lines = lines
        self._memory = _memory_for(order)
        self._session = ""
        self._story = AcpTranslator(voice.say, self._remember)
        self._questions = Questions(self._story, voice)
        self._ended: Ended | None = None

    async def run(self) -> int:
        try:
            child = await self._start()
        except OSError as error:
            self._conclude(Ended(False, f"The agent could not be started: {error}"))
            return 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.listen)
            tasks.start_soon(self._take_answers)
            ended = await self._converse(child, tasks)
            self._story.end()
            self._remember(finally_=True)
            self._conclude(ended)
            await child.farewell()
            self._remember(finally_=True)
            tasks.cancel_scope.cancel()

        if self._memory is not None:
            self._memory.end()

        return 0 if ended.success else 1

    async def _start(self) -> Child:
        environment = dict(os.environ)
        if self._memory is not None:
            self._memory.begin(self._order.resume)
            environment[self._order.memory_variable] = str(self._memory.place)

        return await Child.start(self._order.command, environment, self._voice)

    async def _converse(self, child: Child, tasks: anyio.abc.TaskGroup) -> Ended:
        """Hold the dialogue until one side ends it."""
        wire = AgentConnection(child, RawLog(self._voice.say, time.monotonic))
        connection = Connection(self._handle, wire)
        dialogue = Dialogue(self._order, connection, self._story, self._voice, self._began)
        tasks.start_soon(self._await_interrupt, dialogue)
        try:
            return await dialogue.hold()
        except RequestError as error:
            return Ended(False, said(error))
        except ConnectionError:
            return Ended(False, await self._epitaph(child, dialogue))
        finally:
            await connection.close()

    async def _epitaph(self, child: Child, dialogue: Dialogue) -> str:
        code = await child.farewell()
        how = f"was terminated by signal {-code}" if code < 0 else f"ended with exit code {code}"
        first = f"The agent {how} before it answered {dialogue.doing}."
        return "\n".join(each for each in (first, await child.last_words()) if each)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer one call of the agent; invalid parameters do not raise."""
        given = params if isinstance(params, dict) else {}
        match method:
            case "session/update":
                update = given.get("update")
                self._story.heard(update if isinstance(update, dict) else {})
            case "session/request_permission":
                return await self._questions.ask(given)
            case "fs/write_text_file" if self._order.announces_writes:
                return {}  # A notice for an editor; the agent writes the file itself.
            case _ if not is_notification:
                raise RequestError.method_not_found(method)

        return None

    async def _take_answers(self) -> None:
        while (line := await self._lines.next()) is not None:
            message = decoded(line)
            if message is not None:
                self._questions.answered(message)

        self._questions.close()

    async def _await_interrupt(self, dialogue: Dialogue) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self._questions.close()
                await dialogue.cancel()

    def _began(self, session: str, model: str) -> None:
        self._session, self._story.model = session, model
        line: Message = {"type": "system", "subtype": "init", "session_id": session}
        self._voice.say(line | {"cwd": self._order.work_tree, "model": model, "tools": []})

    def _remember(self, *, finally_: bool = False) -> None:
        if self._memory is None or not is_file_name(self._session):
            return

        try:
            self._memory.keep(self._session)
        except (sqlite3.Error, OSError) as error:
            if finally_:
                self._memory.forget(self._session)
                self._voice.note(f"The conversation could not be saved: {error}")

    def _conclude(self, ended: Ended) -> None:
        story = self._story
        line: Message = {
            "type": "result",
            "subtype": "success" if ended.success else "error_during_execution",
            "is_error": not ended.success,
            "num_turns": story.messages,
            "result": story.last_words if ended.success else ended.text,
            "session_id": self._session,
        }
        self._voice.say(line | ended.spent)


def _memory_for(order: BridgeOrder) -> Memory | None:
    if order.memory is None or order.memory_variable in os.environ:
        return None

    return memory_in(order.memory, Path(order.memory_folder), Path(order.work_tree))


def said(error: RequestError) -> str:
    """Return the text of a JSON-RPC error: its message and the details in its data."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [data.get(name) for name in ("details", "message", "errorName")]
    message = str(error)
    added = [each for each in details if isinstance(each, str) and each and each not in message]
    text = ": ".join((message or f"Error {error.code}", *added))
    # OpenCode's name for a full context; `context_length_exceeded` is recognized everywhere here.
    return f"{text} (context_length_exceeded)" if "ContextOverflow" in text else text
