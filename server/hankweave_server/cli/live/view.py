"""The live view of `hankweave run` and `attach`: a table of the plan below the lines of the log.

A separate thread draws, at most five times a second, and pauses forty times as long as a drawing
took. Whatever the length of the plan, it therefore needs less than 3 % of a core. Lines stay in the
scrollback; the table is redrawn in place, and its last version stays at the end. The cursor is
never hidden, so that even a killed process leaves the terminal with one.
"""

from __future__ import annotations

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hankweave_protocol.events import Event, StateTransition, TokenUsage
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server.cli.live.frame import StyledText, Terminal, frame, line
from hankweave_server.cli.live.model import NOTHING, AllowanceOf, Heard, LiveState, hear, view
from hankweave_server.cli.output.event_lines import RunLines
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.server_lines import LAST_WORDS_SECONDS, WAITING
from hankweave_server.clock import Clock
from hankweave_server.plain_text import one_line

REDRAW_SECONDS = 0.2
STILL_SECONDS = 1.0
"""Seconds between drawings when nothing but the time has changed."""

REST = 40
"""The pause after a drawing, as a multiple of the time it took."""

LONGEST_REST = 5.0

_AROUND = 11
"""Screen lines that are not rows: title, omissions, totals, address, messages, requests."""

_FINAL_ROWS = 40


Foot = Callable[[], tuple[StyledText, ...]]


class LiveVoice:
    """A writer of lines in order, like `Voice`, that draws the view below them."""

    def __init__(
        self,
        clock: Clock,
        allowance_of: AllowanceOf,
        console: Console | None = None,
        foot: Foot = lambda: (),
        budget: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Draw with `foot` as the last lines, and with the hank's budget in USD.

        The drawing thread calls both.
        """
        self._clock = clock
        self._allowance_of = allowance_of
        self._foot = foot
        self._budget = budget
        self._console = console or Terminal(highlight=False)
        self._waiting: deque[str | Event] = deque()
        self._story = RunLines()
        self._heard = NOTHING
        self._state: Callable[[], State] = lambda: EMPTY_STATE
        self._drawn: tuple[State, Heard, tuple[StyledText, ...]] | None = None
        self._drawn_at = 0.0
        self._address = ""
        self._is_open = threading.Event()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._silent = threading.Event()

    def hear(self, event: Event) -> None:
        """Queue an event; return at once."""
        if self._silent.is_set() or isinstance(event.data, StateTransition | TokenUsage):
            return

        if len(self._waiting) < WAITING:
            self._waiting.append(event)
        else:
            # The terminal does not accept output (Ctrl-S). Every event is in the journal.
            self._silent.set()

    def open(self, first: str, state: Callable[[], State], heard: Heard = NOTHING) -> None:
        """Start with a greeting, whose last line stays visible, and with what is known already."""
        self._address = first.splitlines()[-1].strip()
        self._state, self._heard = state, heard
        for each in reversed(first.splitlines()):
            self._waiting.appendleft(each)

        self._is_open.set()

    def wake(self) -> None:
        """Draw the view at once, in response to a key."""
        self._woken.set()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._speak, name="live view", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._woken.set()
            self._is_open.set()
            thread.join(LAST_WORDS_SECONDS)

    # --- the thread ------------------------------------------------------------------------------

    def _speak(self) -> None:
        try:
            with waiting("Getting ready"):
                self._is_open.wait()

            if not self._ended.is_set():
                self._live()

            self._say(self._news())
            if self._address:
                self._console.print(frame(self._view(_FINAL_ROWS), self._console.width, ""))
        except (OSError, ValueError):
            self._silent.set()  # The terminal has been closed.

    def _live(self) -> None:
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
                rest = min(LONGEST_REST, max(REDRAW_SECONDS, REST * worked))
                self._woken.wait(rest)
                self._woken.clear()

    def _draw(self, live: Live) -> None:
        lines = self._news()
        foot = self._foot()
        known = self._state(), self._heard, foot
        is_still = self._drawn is not None and self._drawn[2] == foot
        is_still = is_still and all(map(operator.is_, known[:2], self._drawn or ()))
        if not lines and is_still and time.monotonic() - self._drawn_at < STILL_SECONDS:
            return

        live.update(self._framed(foot))
        if lines:
            self._say(lines)  # This also redraws the view below them.
        else:
            live.refresh()

        self._drawn, self._drawn_at = known, time.monotonic()

    def _framed(self, foot: tuple[StyledText, ...]) -> Group:
        """Return the view with the lines of `foot`; only those if the screen is too small."""
        room = self._console.height - _AROUND - len(foot)
        if foot and room < 0:
            return Group(*(line(each.text, each.style) for each in foot[-self._console.height :]))

        return frame(self._view(max(1, room)), self._console.width, self._address, foot)

    def _news(self) -> list[str]:
        """Process the queue and return its lines."""
        lines: list[str] = []
        for _ in range(len(self._waiting)):
            each = self._waiting.popleft()
            if isinstance(each, Event):
                self._heard = hear(self._heard, each)
                lines += self._story.lines(each)
            else:
                lines.append(one_line(each))

        return lines

    def _say(self, lines: list[str]) -> None:
        if lines:
            self._console.print(Text("\n".join(lines)), soft_wrap=True)

    def _view(self, room: int) -> LiveState:
        return view(
            self._state(),
            self._heard,
            self._clock.now(),
            room,
            self._allowance_of,
            self._budget(),
        )
