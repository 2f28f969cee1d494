"""A session on a terminal, from the first line to the last; and the same story in a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from hankweave_client.client import Client, connect_to
from hankweave_client.errors import CommandRefused
from hankweave_client.reconnect import Backoff
from hankweave_protocol.events import CodonStartedEvent
from hankweave_protocol.replies import Mode as Access
from hankweave_server.cli.live.session_inner import Session
from hankweave_server.cli.live.terminal import Keyboard
from hankweave_server.cli.live.view import LiveVoice, Terminal
from hankweave_server.cli.live.wishes import Quit
from hankweave_server.clock import SystemClock
from hankweave_server.plain_text import one_line

NAME = "attach"
"""What the server's logs call us."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRIES_IN_A_PIPE = 8
"""Some five seconds: a program that reads us wants an end where the server has one."""


async def watch(root: Path, access: Access) -> int:
    """Shows a server on the terminal until somebody leaves; gives the exit code.

    A lost connection is opened anew for as long as it takes. Raises what a first connection does.
    """
    async with connect_to(root, mode=access, name=NAME, progress=True) as client:
        return await _Watch(client, Session(client)).live(root)


async def tell(root: Path, say: Callable[[str], None]) -> None:
    """Says the last lines of the story, then those that follow, until the server ends."""
    backoff = Backoff(attempts=_TRIES_IN_A_PIPE)
    async with connect_to(root, mode="readonly", reconnect=backoff, name=NAME) as client:
        session = Session(client)
        for line in (await session.begin()).lines:
            say(line)

        try:
            async for event in session.news():
                for line in session.story.lines(event):
                    say(line)
        except (ConnectionError, TimeoutError):
            return  # The server is gone: there is nothing more to tell.


class _Watch:
    def __init__(self, client: Client, session: Session) -> None:
        self._client = client
        self._session = session
        self._keyboard = Keyboard(sys.stdin.fileno())
        self._exit_code = 0
        console = Terminal(highlight=False)
        self._voice = LiveVoice(
            SystemClock(),
            lambda entry, _state: session.allowed(entry.codon_id),
            console,
            foot=lambda: session.foot(console.width),
        )

    async def live(self, root: Path) -> int:
        past = await self._session.begin()
        greeting = f"Attached to {one_line(str(root))}\n  {self._client.ready.url}"
        self._voice.open(
            "\n".join((*past.lines, greeting)), lambda: self._session.state, past.heard
        )
        failure: Exception | None = None
        with self._keyboard.taken(), self._voice.speaking():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals, tasks.cancel_scope)
                tasks.start_soon(self._take_keys, tasks)
                try:
                    async for event in self._session.news():
                        self._voice.hear(event)
                        if isinstance(event.data, CodonStartedEvent):
                            tasks.start_soon(self._learn_budget)
                except (ConnectionError, CommandRefused) as lost:
                    failure = lost  # Raised again outside: a task group would wrap it.

                tasks.cancel_scope.cancel()

        if failure is not None:
            raise failure

        return self._exit_code

    async def _learn_budget(self) -> None:
        await self._session.learn_budget()
        self._voice.wake()

    async def _take_keys(self, tasks: TaskGroup) -> None:
        async for key in self._keyboard.keys():
            wish = self._session.press(key)
            self._voice.wake()
            if isinstance(wish, Quit):
                break

            if wish is not None:
                tasks.start_soon(self._session.fulfil, wish)

        tasks.cancel_scope.cancel()

    async def _watch_signals(self, scope: CancelScope) -> None:
        with anyio.open_signal_receiver(*_ENDS, signal.SIGCONT) as signals:
            async for number in signals:
                if number == signal.SIGCONT:
                    self._keyboard.take()
                    continue

                self._exit_code = 128 + number
                scope.cancel()
