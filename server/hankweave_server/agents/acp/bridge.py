"""Translate between the server (Claude's stream-json) and an ACP agent: the bridge program.

It runs in the place of an agent's program, below the keeper, and the ACP agent is its child. So
limits, signals, log and answers work as for every other agent. On stdin it gets the order, then the
answers to permission requests. On stdout it prints lines that `agents.stream_json` parses, and raw
messages as `{"type": "acp", …}`, which that parser ignores. SIGINT cancels the turn. The exit code
is 0 after a successful result, 2 for an invalid order, else 1.

The client offers neither a file system nor a terminal: the known agents write files and run
commands themselves in the work tree, where checkpoints see the changes.

It is a process of its own for three reasons. It opens files that the agent may have replaced by
links to anything, and reads messages of 32 MiB, so it works inside the agent's fence and not on the
server's loop. The SDK starts tasks that belong to no task group, and logs what an agent does wrong.
Loading it takes 32 MiB and half a second, in which the server would not answer.

Parts: `Child` is the agent's process, and the transport for the SDK's `Connection`, which numbers
requests and matches answers; it checks what the agent sends, because a message of a wrong shape
would end the SDK's loop. `Questions` forwards permission requests to the server and returns its
answers. `Bridge` puts them together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
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
    StandardOutput,
    as_list,
    as_object,
    cut,
    decoded,
    is_whole,
    whole,
)
from hankweave_server.agents.base import is_file_name
from hankweave_server.agents.process.stdio import Line, LineSplitter, PipeReader

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of a line from the agent; a longer one is ignored."""

_CHUNK = 64 * 1024
_LAST_LINES = 12
_LONGEST_STDERR_LINE = 2_000
"""Characters of a line of stderr that a result repeats."""

_EXIT_TIMEOUT = 3.0
"""Seconds for the agent to end by itself after its stdin is closed, and after each signal."""

_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class Child:
    """The agent's process and its messages; implements the SDK's `Transport`.

    It is in its own session, so that signals to the bridge do not reach it.
    """

    def __init__(self, process: anyio.abc.Process, output: BridgeOutput) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._output = output
        self._log = RawLog(output.emit, time.monotonic)
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._has_finished = anyio.Event()
        self._lines = LineSplitter(LONGEST_LINE)
        self._unread: deque[Message] = deque()
        self._writing = anyio.Lock()

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], output: BridgeOutput
    ) -> Child:
        """Start the program. Raises OSError if it cannot be run."""
        process = await anyio.open_process(command, env=environment, start_new_session=True)
        return cls(process, output)

    async def send(self, message: Message) -> None:
        """Write a message. Raises ConnectionError if the agent no longer reads."""
        line = whole(message)
        self._log.keep("out", message, len(line))
        async with self._writing:
            try:
                await self._stdin.send(line)
            except _LOST as error:
                raise ConnectionError("The agent stopped reading its input.") from error

    async def receive(self) -> Message | None:
        """Return the next message, or None at the end of the agent's stdout."""
        while not self._unread:
            try:
                lines = self._lines.feed(await self._stdout.receive(_CHUNK))
            except (anyio.EndOfStream, *_LOST):
                lines = self._lines.finish()
                if not lines:
                    return None

            for line in lines:
                self._take(line)

        return self._unread.popleft()

    async def close(self) -> None:
        """Do nothing; `shut_down` ends the process."""

    def _take(self, line: Line) -> None:
        if line.is_blank:
            return

        if line.dropped:
            size = len(line.content) + line.dropped
            self._remark(f"A message of {size} bytes was ignored.")
            return

        message = decoded(line.content)
        if message is None:
            self._remark(line.marked_text())
        elif (sound := _sound(message)) is not None:
            self._log.keep("in", message, len(line.content))
            self._unread.append(sound)

    async def listen(self) -> None:
        """Forward the agent's stderr, and keep its last lines."""
        splitter = LineSplitter(LONGEST_LINE)
        with contextlib.suppress(*_LOST):
            async for chunk in self._stderr:
                for line in splitter.feed(chunk):
                    self._remark(line.marked_text())

        for line in splitter.finish():
            self._remark(line.marked_text())

        self._has_finished.set()

    def _remark(self, text: str) -> None:
        """Print a remark, and keep it as one of the agent's last lines."""
        if text.strip():
            self._last.append(cut(text, _LONGEST_STDERR_LINE))

        self._output.note(text)

    async def stderr_tail(self) -> str:
        """Return the end of its stderr; call it only after the child has ended."""
        with anyio.move_on_after(_EXIT_TIMEOUT):  # One of its children may keep the pipe open.
            await self._has_finished.wait()

        return "\n".join(self._last)

    async def shut_down(self) -> int:
        """Close the agent's stdin, end the agent if it does not exit, and return its exit code."""
        with contextlib.suppress(*_LOST, OSError):
            await self._stdin.aclose()

        for deadly in (signal.SIGTERM, signal.SIGKILL):
            with anyio.move_on_after(_EXIT_TIMEOUT):
                return await self._process.wait()

            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, deadly)

        return await self._process.wait()


def _sound(message: Message) -> Message | None:
    """Return the message in a form that JSON-RPC allows, or None."""
    name, method, error = (message.get(each) for each in ("id", "method", "error"))
    if "method" in message:
        is_id = name is None or isinstance(name, str | int | float)
        return message if isinstance(method, str) and is_id else None

    if type(name) is not int:
        return None

    if "result" not in message and not isinstance(error, dict):
        return message | {"error": {"code": -32603, "message": str(error)}}

    return message


_ALLOWING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")
"""In order of preference: an answer is for one call."""

_CANCELLED: Message = {"outcome": {"outcome": "cancelled"}}


class Questions:
    """The agent's permission requests."""

    def __init__(self, translator: AcpTranslator, output: BridgeOutput) -> None:
        self._translator = translator
        self._output = output
        self._open: dict[str, asyncio.Future[bool | None]] = {}
        """The pending requests; an answer of None means that one was cancelled."""
        self._asked = 0
        self._is_closed = False

    async def ask(self, asked: Mapping[str, Any]) -> Message:
        """Ask the server, and return its answer in the agent's terms."""
        self._asked += 1
        name = f"permission-{self._asked}"
        line = self._translator.question(name, asked)
        if self._is_closed:
            return _CANCELLED

        if not is_whole(line):
            # The answer must be based on the complete request.
            self._output.note(
                "Permission for a tool call was refused: the call is too long to be shown."
            )
            return _chosen(asked, allowed=False)

        question = self._open[name] = asyncio.get_running_loop().create_future()
        self._output.emit(line)
        allowed = await question
        del self._open[name]
        return _CANCELLED if allowed is None else _chosen(asked, allowed=allowed)

    def answered(self, message: Mapping[str, Any]) -> None:
        """Handle a line from the server; anything but a clear yes is a no."""
        match message:
            case {"type": "control_response", "response": {"request_id": str() as name, **given}}:
                behavior = as_object(given.get("response")).get("behavior")
                self._settle(name, behavior == "allow")

    def close(self) -> None:
        """Cancel all pending requests, and those that still come: there is no one to answer."""
        self._is_closed = True
        for name in self._open:
            self._output.emit({"type": "control_cancel_request", "request_id": name})
            self._settle(name, None)

    def _settle(self, name: str, allowed: bool | None) -> None:
        question = self._open.get(name)
        if question is not None and not question.done():
            question.set_result(allowed)


def _chosen(asked: Mapping[str, Any], *, allowed: bool) -> Message:
    for wanted in _ALLOWING if allowed else _REFUSING:
        for each in map(as_object, as_list(asked.get("options"))):
            if each.get("kind") == wanted and isinstance(each.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": each["optionId"]}}

    return _CANCELLED


_LONGEST_ANSWER = 64 * 1024 * 1024  # Bytes; an order includes its prompt.


def main(_arguments: list[str]) -> int:
    logging.disable()  # The result reports what the SDK would log about a failing agent.
    return anyio.run(_run)


async def _run() -> int:
    output, lines = StandardOutput(), _standard_input()
    try:
        order = json_lines.from_line(await anext(lines, b""))
    except (ValueError, msgspec.ValidationError) as error:
        output.note(f"The request is invalid: {error!r}")
        return 2

    return await Bridge(order, output, lines).run()


async def _standard_input() -> AsyncIterator[bytes]:
    """Yield the lines of stdin, as they arrive."""
    splitter = LineSplitter(_LONGEST_ANSWER)
    async for chunk in PipeReader(0).chunks():
        for line in splitter.feed(chunk):
            yield line.content


class Bridge:
    """One agent, one session, one prompt."""

    def __init__(
        self, order: BridgeOrder, output: BridgeOutput, lines: AsyncIterator[bytes]
    ) -> None:
        self._order = order
        self._output = output
        self._lines = lines
        self._memory = _memory_for(order)
        self._session = ""
        self._translator = AcpTranslator(output.emit, self._remember)
        self._questions = Questions(self._translator, output)
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
            self._translator.end()
            self._remember(finally_=True)
            self._conclude(ended)
            await child.shut_down()
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

        return await Child.start(self._order.command, environment, self._output)

    async def _converse(self, child: Child, tasks: anyio.abc.TaskGroup) -> Ended:
        """Hold the dialogue until one side ends it."""
        connection = Connection(self._handle, child)
        dialogue = Dialogue(self._order, connection, self._translator, self._output, self._began)
        tasks.start_soon(self._await_interrupt, dialogue)
        try:
            return await dialogue.run()
        except RequestError as error:
            return Ended(False, error_text(error))
        except ConnectionError:
            return Ended(False, await self._exit_message(child, dialogue))
        finally:
            await connection.close()

    async def _exit_message(self, child: Child, dialogue: Dialogue) -> str:
        code = await child.shut_down()
        how = f"was terminated by signal {-code}" if code < 0 else f"ended with exit code {code}"
        first = f"The agent {how} before it answered {dialogue.doing}."
        return "\n".join(each for each in (first, await child.stderr_tail()) if each)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer one call of the agent; invalid parameters do not raise."""
        given = as_object(params)
        match method:
            case "session/update":
                self._translator.receive(as_object(given.get("update")))
            case "session/request_permission":
                return await self._questions.ask(given)
            case "fs/write_text_file" if self._order.announces_writes:
                return {}  # A notice for an editor; the agent writes the file itself.
            case _ if not is_notification:
                raise RequestError.method_not_found(method)

        return None

    async def _take_answers(self) -> None:
        async for line in self._lines:
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
        self._session, self._translator.model = session, model
        line: Message = {"type": "system", "subtype": "init", "session_id": session}
        self._output.emit(line | {"cwd": self._order.work_tree, "model": model, "tools": []})

    def _remember(self, *, finally_: bool = False) -> None:
        if self._memory is None or not is_file_name(self._session):
            return

        try:
            self._memory.keep(self._session)
        except (sqlite3.Error, OSError) as error:
            if finally_:
                self._memory.forget(self._session)
                self._output.note(f"The conversation could not be saved: {error}")

    def _conclude(self, ended: Ended) -> None:
        translator = self._translator
        line: Message = {
            "type": "result",
            "subtype": "success" if ended.success else "error_during_execution",
            "is_error": not ended.success,
            "num_turns": translator.messages,
            "result": translator.last_text if ended.success else ended.text,
            "session_id": self._session,
        }
        self._output.emit(line | ended.spent)


def _memory_for(order: BridgeOrder) -> Memory | None:
    if order.memory is None or order.memory_variable in os.environ:
        return None

    return memory_in(order.memory, Path(order.memory_folder), Path(order.work_tree))


def error_text(error: RequestError) -> str:
    """Return the text of a JSON-RPC error: its message and the details in its data."""
    data = as_object(error.data)
    details = [data.get(name) for name in ("details", "message", "errorName")]
    message = str(error)
    added = [each for each in details if isinstance(each, str) and each and each not in message]
    text = ": ".join((message or f"Error {error.code}", *added))
    # OpenCode's name for a full context; `context_length_exceeded` is recognized everywhere here.
    return f"{text} (context_length_exceeded)" if "ContextOverflow" in text else text
