"""The program between the server and an ACP agent: speaks ACP below, Claude's stream-json above.

It runs where an agent's program runs (below the keeper), and the ACP agent is its child: so limits,
signals, log and answers are those of every agent. On stdin comes the order, then the answers to
what the agent asked; on stdout go lines that `transcript` understands, and the raw messages as
`{"type": "acp", …}`, which it passes over. SIGINT cancels the turn. It ends with 0 after a result
that is a success, else with 1.

The client offers no file system and no terminal: the agents that are known write and run by
themselves, in the work tree, under the eyes of the checkpoints.
"""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from acp.connection import Connection
from acp.exceptions import RequestError

from hankweave_server.agents.acp import acp_order
from hankweave_server.agents.acp.acp_order import Order
from hankweave_server.agents.acp.acp_questions import Questions
from hankweave_server.agents.acp.acp_wire import Child, Wire
from hankweave_server.agents.acp.conversations import Memory, memory_in
from hankweave_server.agents.acp.dialogue import Dialogue, Ended
from hankweave_server.agents.acp.events import Story
from hankweave_server.agents.acp.json_lines import Message, RawLog, StandardVoice, Voice, decoded
from hankweave_server.agents.base import is_file_name
from hankweave_server.agents.process.stdio import LineSplitter, PipeReader

_LONGEST_ANSWER = 64 * 1024 * 1024  # Bytes; an order holds its prompt, too.


def main(_arguments: list[str]) -> int:
    logging.disable()  # What the SDK would tell of an agent that fails, the result tells.
    return anyio.run(_run)


async def _run() -> int:
    voice = StandardVoice()
    lines = _StandardInput()
    try:
        order = acp_order.from_line(await lines.next() or b"")
    except (ValueError, KeyError, TypeError) as error:
        voice.note(f"The order is wrong: {error!r}")
        return 2

    return await Bridge(order, voice, lines).run()


class _StandardInput:
    """Lines of stdin, as they come."""

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

    def __init__(self, order: Order, voice: Voice, lines: _StandardInput) -> None:
        self._order = order
        self._voice = voice
        self._lines = lines
        self._memory = _memory_for(order)
        self._session = ""
        self._story = Story(voice.say, self._remember)
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
        """Has the dialogue until it ends, whoever ends it."""
        wire = Wire(child, RawLog(self._voice.say, time.monotonic))
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
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        first = f"The agent {how} before it had answered {dialogue.doing}."
        return "\n".join(each for each in (first, await child.last_words()) if each)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answers one call of the agent; never raises for what is in it."""
        given = params if isinstance(params, dict) else {}
        match method:
            case "session/update":
                update = given.get("update")
                self._story.heard(update if isinstance(update, dict) else {})
            case "session/request_permission":
                return await self._questions.ask(given)
            case "fs/write_text_file" if self._order.announces_writes:
                return {}  # The agent has told its editor; it writes the file itself.
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
                self._voice.note(f"The conversation could not be kept: {error}")

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


def _memory_for(order: Order) -> Memory | None:
    if order.memory is None or order.memory_variable in os.environ:
        return None

    return memory_in(order.memory, Path(order.memory_folder), Path(order.work_tree))


def said(error: RequestError) -> str:
    """What an error of JSON-RPC says: its message, and what its data adds."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [data.get(name) for name in ("details", "message", "errorName")]
    message = str(error)
    added = [each for each in details if isinstance(each, str) and each and each not in message]
    text = ": ".join((message or f"Error {error.code}", *added))
    # What OpenCode calls it; the word by which every reader of ours knows a full context.
    return f"{text} (context_length_exceeded)" if "ContextOverflow" in text else text
