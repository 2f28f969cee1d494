"""A session of `hankweave attach`, on a terminal (`watch`) or in a pipe (`tell`).

Everything comes over the public protocol. The state is requested once and then updated from the
events; the client library delivers every event, even if the connection is lost and reopened.
`AttachSession` holds the state and the mode of the keys, `foot` formats the lines below the table
(question, connection, keys), and `Keyboard` reads single keys without echo and restores the
terminal's settings afterwards.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import assert_never

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup
from rich.cells import chop_cells

from hankweave_client.client import Client, connect_to
from hankweave_client.errors import CommandRefused
from hankweave_client.reconnect import Backoff
from hankweave_protocol import codec
from hankweave_protocol.events import (
    BudgetFigures,
    CodonStartedEvent,
    Event,
    ServerReady,
    StateTransition,
    StoreProgress,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import Mode as Access
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.cli.live.actions import perform
from hankweave_server.cli.live.frame import StyledText, Terminal
from hankweave_server.cli.live.keyboard import Keyboard
from hankweave_server.cli.live.keys import (
    Choosing,
    Confirming,
    Mode,
    Quit,
    Reading,
    Sight,
    Waiting,
    Watching,
    Wish,
    step,
)
from hankweave_server.cli.live.model import NOTHING, Heard, hear
from hankweave_server.cli.live.view import LiveVoice
from hankweave_server.cli.output.event_lines import RunLines, asking_line
from hankweave_server.cli.output.progress_bar import line_of_progress
from hankweave_server.cli.output.text import clock
from hankweave_server.clock import SystemClock
from hankweave_server.domain.history import active_codon, next_codon
from hankweave_server.domain.reducer import apply
from hankweave_server.plain_text import one_line

_CHOICES = 7
"""Checkpoints shown at a time."""

_WIDE = 76


def foot(mode: Mode, sight: Sight, *, is_connected: bool, width: int) -> tuple[StyledText, ...]:
    """Return the lines below the table; the last one, the keys, is always present."""
    lines = _of_mode(mode)
    if not isinstance(mode, Choosing):
        lines = _whole(lines, width)

    return (*lines, _connection(sight, is_connected), _keys(mode, sight, width))


def _whole(lines: Iterable[StyledText], width: int) -> Iterator[StyledText]:
    """Wrap long lines instead of truncating them: a question must be readable completely."""
    for line in lines:
        pieces = chop_cells(line.text, max(1, width)) or [""]
        yield from (StyledText(piece, line.style) for piece in pieces)


def _of_mode(mode: Mode) -> Iterator[StyledText]:
    match mode:
        case Watching(note=""):
            return
        case Watching(note=note, is_complaint=is_complaint, hint=hint):
            yield StyledText(note, "bold red" if is_complaint else "bold")
            yield from [StyledText(f"  {hint}")] * bool(hint)
        case Waiting(what=what):
            yield StyledText(what, "dim")
        case Confirming(question=question, lines=lines):
            yield from map(StyledText, lines)
            yield StyledText(question, "bold yellow")
        case Choosing():
            yield from _choices(mode)
        case Reading(lines=lines):
            yield from map(StyledText, lines)
        case _:
            assert_never(mode)


def _choices(mode: Choosing) -> Iterator[StyledText]:
    start = max(0, min(mode.at - _CHOICES // 2, len(mode.records) - _CHOICES))
    for place, record in enumerate(mode.records[start : start + _CHOICES], start):
        is_chosen = place == mode.at
        mark = "›" if is_chosen else " "
        yield StyledText(f"{mark} {_line_of(record)}", "bold reverse" if is_chosen else "")

    yield StyledText(f"{mode.at + 1} of {len(mode.records)}, newest first", "dim")


def _line_of(record: CheckpointRecord) -> str:
    codon = record.coordinate.codon_id or "-"
    pin = f"  [{record.name or 'pinned'}]" if record.pinned else ""
    told = f"{record.sha[:12]}  {clock(record.timestamp)}  {record.kind:<10} {codon}{pin}"
    return one_line(f"{told}  {record.label or record.codon_name}")


def _connection(sight: Sight, is_connected: bool) -> StyledText:
    if not is_connected:
        return StyledText(
            "○ connection lost; reconnecting to the server. No event is missed.", "red"
        )

    return StyledText(f"● connected{'' if sight.may_change else ', readonly'}", "green")


def _keys(mode: Mode, sight: Sight, width: int) -> StyledText:
    if isinstance(mode, Confirming):
        return StyledText("y yes   any other key no", "dim")

    if isinstance(mode, Choosing):
        return StyledText("↑ ↓ choose   enter look   esc back", "dim")

    words = ["? keys", "q quit"]
    if sight.may_change and sight.asking:
        words = ["a allow", "d deny", *words]
    elif sight.may_change and width >= _WIDE:
        words = ["n next", "s skip", "x stop", "r redo", "p go back", "u undo", *words]
    elif width >= _WIDE:
        words = ["p look back", *words]

    return StyledText("   ".join(words), "dim")


RECENT = 200
"""Maximum number of past events that are shown first."""


@dataclass(frozen=True, slots=True)
class Past:
    """What is known and shown when a session begins."""

    heard: Heard
    lines: tuple[str, ...]
    """The lines of the last events."""


class AttachSession:
    """A connection, the state that follows from its events, and the mode of the keys."""

    def __init__(self, client: Client) -> None:
        self.state = EMPTY_STATE
        self.story = RunLines()
        self._client = client
        self._known = 0
        """Sequence number of the requested state, which includes all earlier events."""
        self._heard = NOTHING
        self._mode: Mode = Watching()
        self._allowed: dict[CodonId, BudgetFigures] = {}
        """The budget of the running codon; only the server knows the budgets of the hank."""
        self._progress: dict[str, tuple[ServerReady, StoreProgress]] = {}
        """Long operations by id, with their connection; those of a lost one are ignored."""

    async def begin(self) -> Past:
        """Request the state, the last events and the pending permission requests."""
        self.state = await self._client.state()
        self._known = self.state.last_event_seq
        since = max(0, self._known - RECENT)
        page = await self._client.query_events(since=since, until=self._known, limit=RECENT)
        recent = [codec.decode_event(bytes(line)) for line in page.events or ()]
        status = await self._client.status()
        self._note_budget(status)
        asking = {each.request_id: asking_line(each) for each in status.pending_permissions}
        self._heard = replace(reduce(hear, recent, NOTHING), asking=asking)
        lines = (line for event in recent for line in self.story.lines(event))
        return Past(self._heard, tuple(lines))

    async def news(self) -> AsyncIterator[Event]:
        """Yield the events after `begin`, and update the state with each."""
        async for event in self._client.events():
            if 0 < event.seq <= self._known:
                continue

            if isinstance(event.data, StateTransition):
                self.state = apply(self.state, codec.decode_transition(event.data), event.seq)

            if isinstance(event.data, StoreProgress):
                self._note_progress(event.data)

            self._heard = hear(self._heard, event)
            yield event

    def _note_progress(self, told: StoreProgress) -> None:
        """Replace the dictionary instead of changing it: the drawing thread may be reading it."""
        others = {key: each for key, each in self._progress.items() if key != told.operation_id}
        now = {} if told.ended else {told.operation_id: (self._client.ready, told)}
        self._progress = others | now

    # --- budget of the running codon ---------------------------------------------------------

    def allowed(self, codon_id: CodonId) -> BudgetFigures:
        """Return the total budget of a running codon, as far as the server has reported it."""
        return self._allowed.get(codon_id, BudgetFigures())

    async def learn_budget(self) -> None:
        """Request the budget of a codon that has just begun; until then, none is shown."""
        with suppress(ConnectionError, CommandRefused):
            self._note_budget(await self._client.status())

    def _note_budget(self, status: ServerStatus) -> None:
        codon, allowed = status.active_codon_id, status.active_allowance
        self._allowed = {} if codon is None or allowed is None else {codon: allowed}

    # --- keys --------------------------------------------------------------------------------

    def sight(self) -> Sight:
        """Return what a key acts on if it is pressed now."""
        active, coming = active_codon(self.state), next_codon(self.state)
        return Sight(
            may_change=self._client.mode == "readandwrite",
            run_id=self.state.current_run_id,
            active=None if active is None else one_line(active.codon_id),
            next=None if coming is None else one_line(coming),
            asking=tuple(self._heard.asking),
        )

    def foot(self, width: int) -> tuple[StyledText, ...]:
        """Return the lines below the table; called by the drawing thread."""
        latest = self._client.ready
        going_on = tuple(
            StyledText(line_of_progress(told), "cyan")
            for connection, told in self._progress.values()
            if connection is latest
        )
        is_connected = self._client.is_connected
        return going_on + foot(self._mode, self.sight(), is_connected=is_connected, width=width)

    def press(self, key: str) -> Wish | None:
        """Process a key and return the resulting request, if any."""
        self._mode, wish = step(self._mode, key, self.sight())
        return wish

    async def fulfil(self, wish: Wish) -> None:
        """Send a request, and show its result below the table."""
        done = await perform(self._client, wish)
        if isinstance(self._mode, Waiting):
            self._mode = done


NAME = "attach"
"""The client name in the server's logs."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRIES_IN_A_PIPE = 8
"""About five seconds: in a pipe, output should end when the server has ended."""


async def watch(root: Path, access: Access) -> int:
    """Show a server on the terminal until the user leaves; return the exit code.

    A lost connection is reopened, for as long as it takes. Raises the errors of the first one.
    """
    async with connect_to(root, mode=access, name=NAME, progress=True) as client:
        return await _Watch(client, AttachSession(client)).live(root)


async def tell(root: Path, say: Callable[[str], None]) -> None:
    """Print the last lines of the log, then new ones, until the server ends."""
    backoff = Backoff(attempts=_TRIES_IN_A_PIPE)
    async with connect_to(root, mode="readonly", reconnect=backoff, name=NAME) as client:
        session = AttachSession(client)
        for line in (await session.begin()).lines:
            say(line)

        try:
            async for event in session.news():
                for line in session.story.lines(event):
                    say(line)
        except (ConnectionError, TimeoutError):
            return  # The server has ended.


class _Watch:
    def __init__(self, client: Client, session: AttachSession) -> None:
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
                    failure = lost  # Raised again outside the task group, which would wrap it.

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
