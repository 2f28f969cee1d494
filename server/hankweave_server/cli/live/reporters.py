"""The terminal of `hankweave run`: events as lines, as JSON or in a live view; and keys.

The live view is a table of the plan below the lines of the log. A separate thread draws, at most
five times a second, and pauses forty times as long as a drawing took. Whatever the length of the
plan, it therefore needs less than 3 % of a core. Lines stay in the scrollback; the table is redrawn
in place, and its last version stays at the end. The cursor is never hidden, so that even a killed
process leaves the terminal with one.
"""

from __future__ import annotations

import codecs
import operator
import os
import re
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import anyio
from rich.console import Console, Group
from rich.text import Text

from hankweave_protocol import codec
from hankweave_protocol.events import Event, ServerReady, StateTransition, TokenUsage
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server.cli.live.frame import StyledText, Terminal, frame, line
from hankweave_server.cli.live.model import (
    NOTHING,
    AllowanceOf,
    LiveState,
    ObservedFacts,
    observe,
    view,
)
from hankweave_server.cli.output.event_lines import RunLines
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.server_lines import FLUSH_SECONDS, WAITING, LineWriter
from hankweave_server.cli.output.text import can_be_drawn_on
from hankweave_server.clock import Clock
from hankweave_server.domain.budget.allowance import Ceilings, allowance, capped
from hankweave_server.domain.budget.report import figures_of
from hankweave_server.hank.load import LoadedHank
from hankweave_server.ledger.writer import Published
from hankweave_server.local.page_address import page_of, token_in
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line
from hankweave_server.settings import RunSettings

if TYPE_CHECKING:
    from rich.live import Live


Foot = Callable[[], tuple[StyledText, ...]]


class RunOutput(Protocol):
    """An output of a running server; its methods return at once."""

    def begin(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        """Start the output with the addresses of the server; earlier events follow."""

    def report(self, published: Published) -> None:
        """Report an event; events come in the journal's order."""

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which output is written; leaving it writes the rest."""


def is_drawn(settings: RunSettings) -> bool:
    """Return whether stdout shows a live view."""
    return not (settings.json_output or settings.plain) and can_be_drawn_on()


def output_for(
    settings: RunSettings,
    hank: LoadedHank,
    clock: Clock,
    foot: Foot,
) -> RunOutput:
    """Return the output for stdout, depending on the options and on whether it is a terminal.

    `foot` returns lines to show below a live view.
    """
    if settings.json_output:
        return JsonOutput()

    if not is_drawn(settings):
        return LineOutput()

    ceilings = Ceilings(settings.max_cost, settings.max_time)
    return LiveOutput(
        clock,
        lambda entry, state: figures_of(allowance(hank.hank, entry, state, ceilings)),
        foot=foot,
        budget=capped(hank.hank, ceilings).max_dollars,
    )


class LineOutput:
    """Output as plain lines."""

    def __init__(self) -> None:
        self._display = LineWriter()
        self._run_lines = RunLines()

    def begin(self, layout: Layout, ready: ServerReady, _state: Callable[[], State]) -> None:
        self._display.open(start_lines(layout, ready))

    def report(self, published: Published) -> None:
        for text in self._run_lines.lines(published.event):
            self._display.write(text)

    def writing(self) -> AbstractContextManager[None]:
        return self._display.writing()


class JsonOutput:
    """Output of every event as a JSON line; the first line is `server.ready`."""

    def __init__(self) -> None:
        self._display = LineWriter()

    def begin(self, _layout: Layout, ready: ServerReady, _state: Callable[[], State]) -> None:
        self._display.open(codec.encode({"type": ready.TYPE, "data": ready}).decode())

    def report(self, published: Published) -> None:
        self._display.write(published.frame.decode())

    def writing(self) -> AbstractContextManager[None]:
        return self._display.writing()


def start_lines(layout: Layout, ready: ServerReady) -> str:
    """Return the first lines of output, with the addresses; the last line stays visible."""
    page = f"{ready.page_url}/"
    others = token_in(layout.viewer_token)
    apart = f"  state, out of agents' reach: {one_line(str(layout.state_directory))}"
    lines = (
        f"Hankweave serves {one_line(ready.execution_path)}",
        *([apart] * (layout.private_folder is not None)),
        *([f"  read-only, to share: {page}{others}"] * bool(others)),
        f"  watch it: {page_of(layout.root, page)}   WebSocket: {ready.url}",
    )
    return "\n".join(lines)


# --- the live view -------------------------------------------------------------------------------

REDRAW_SECONDS = 0.2
STILL_SECONDS = 1.0
"""Seconds between drawings when nothing but the time has changed."""

REST = 40
"""The pause after a drawing, as a multiple of the time it took."""

LONGEST_REST = 5.0

_AROUND = 11
"""Screen lines that are not rows: title, omissions, totals, address, messages, requests."""

_FINAL_ROWS = 40


class LiveOutput:
    """Output as a live table of the plan, below the lines of the log."""

    def __init__(
        self,
        clock: Clock,
        allowance_of: AllowanceOf,
        console: Console | None = None,
        foot: Foot = lambda: (),
        budget: float | None = None,
    ) -> None:
        """Draw with `foot` as the last lines, and with the hank's budget in USD.

        The drawing thread calls `foot`.
        """
        self._clock = clock
        self._allowance_of = allowance_of
        self._foot = foot
        self._budget = budget
        self._console = console or Terminal(highlight=False)
        self._waiting: deque[str | Event] = deque()
        self._run_lines = RunLines()
        self._facts = NOTHING
        self._state: Callable[[], State] = lambda: EMPTY_STATE
        self._drawn: tuple[State, ObservedFacts, tuple[StyledText, ...]] | None = None
        self._drawn_at = 0.0
        self._address = ""
        self._is_open = threading.Event()
        self._ended = threading.Event()
        self._stopped = threading.Event()

    def begin(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        self.open(start_lines(layout, ready), state)

    def report(self, published: Published) -> None:
        event = published.event
        if self._stopped.is_set() or isinstance(event.data, StateTransition | TokenUsage):
            return

        if len(self._waiting) < WAITING:
            self._waiting.append(event)
        else:
            # The terminal does not accept output (Ctrl-S). Every event is in the journal.
            self._stopped.set()

    def open(self, first: str, state: Callable[[], State]) -> None:
        """Start with the addresses of the server, whose last line stays visible."""
        self._address = first.splitlines()[-1].strip()
        self._state = state
        for each in reversed(first.splitlines()):
            self._waiting.appendleft(each)

        self._is_open.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="live view", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._is_open.set()
            thread.join(FLUSH_SECONDS)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with waiting("Getting ready"):
                self._is_open.wait()

            if not self._ended.is_set():
                self._live()

            self._print(self._take_lines())
            if self._address:
                self._console.print(frame(self._view(_FINAL_ROWS), self._console.width, ""))
        except (OSError, ValueError):
            self._stopped.set()  # The terminal has been closed.

    def _live(self) -> None:
        # Imported here: a server without a terminal imports this module, too.
        from rich.live import Live

        with Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while not self._ended.is_set():
                began = time.thread_time()
                self._draw(live)
                worked = time.thread_time() - began
                self._ended.wait(min(LONGEST_REST, max(REDRAW_SECONDS, REST * worked)))

    def _draw(self, live: Live) -> None:
        lines = self._take_lines()
        foot = self._foot()
        known = self._state(), self._facts, foot
        is_still = self._drawn is not None and self._drawn[2] == foot
        is_still = is_still and all(map(operator.is_, known[:2], self._drawn or ()))
        if not lines and is_still and time.monotonic() - self._drawn_at < STILL_SECONDS:
            return

        live.update(self._framed(foot))
        if lines:
            self._print(lines)  # This also redraws the view below them.
        else:
            live.refresh()

        self._drawn, self._drawn_at = known, time.monotonic()

    def _framed(self, foot: tuple[StyledText, ...]) -> Group:
        """Return the view with the lines of `foot`; only those if the screen is too small."""
        room = self._console.height - _AROUND - len(foot)
        if foot and room < 0:
            return Group(*(line(each.text, each.style) for each in foot[-self._console.height :]))

        return frame(self._view(max(1, room)), self._console.width, self._address, foot)

    def _take_lines(self) -> list[str]:
        """Process the queue and return its lines."""
        lines: list[str] = []
        for _ in range(len(self._waiting)):
            each = self._waiting.popleft()
            if isinstance(each, Event):
                self._facts = observe(self._facts, each)
                lines += self._run_lines.lines(each)
            else:
                lines.append(one_line(each))

        return lines

    def _print(self, lines: list[str]) -> None:
        if lines:
            self._console.print(Text("\n".join(lines)), soft_wrap=True)

    def _view(self, room: int) -> LiveState:
        return view(
            self._state(),
            self._facts,
            self._clock.now(),
            room,
            self._allowance_of,
            self._budget,
        )


# --- keys -----------------------------------------------------------------------------------------

_AT_ONCE = 1024


class Keyboard:
    """A terminal that is read key by key."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Read single keys while the block runs; restore the terminal's settings afterwards."""
        before = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)
            yield
        finally:
            with suppress(termios.error):  # A terminal that was closed has no settings.
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    async def keys(self) -> AsyncIterator[str]:
        """Yield keys until the terminal is closed."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            await anyio.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, _AT_ONCE)
            except OSError:
                return

            if not data:
                return

            for key in without_sequences(decoder.decode(data)):
                yield key


_CONTROL_SEQUENCE = re.compile(r"\x1b[\[O][^@-~]*[@-~]?")
"""An arrow, say. A sequence ends with a character from `@` to `~`."""


def without_sequences(text: str) -> str:
    """Return the letters, control characters and Escapes in terminal input, one for each key."""
    return _CONTROL_SEQUENCE.sub("", text)
