"""`hankweave run` and `attach` on a terminal: the plan as a table that lives, under the story.

A thread of its own draws, at most five times a second, and rests forty times as long as it worked:
whatever the plan's length, it takes less than three hundredths of a core. The lines stay in the
scrollback; the table goes, and its last version stays. The cursor is never hidden, so that no end
of the process, however sudden, leaves a terminal without one.
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
from hankweave_server.cli.live.frame import Said, Terminal, frame, line
from hankweave_server.cli.live.model import NOTHING, AllowanceOf, Heard, View, hear, view
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.run_lines import Story
from hankweave_server.cli.output.server_lines import LAST_WORDS_SECONDS, WAITING
from hankweave_server.clock import Clock
from hankweave_server.plain_text import one_line

REDRAW_SECONDS = 0.2
STILL_SECONDS = 1.0
"""How long a table may stand in which nothing but the time has changed."""

REST = 40
"""How many times as long as a drawing took nothing is drawn."""

LONGEST_REST = 5.0

_AROUND = 11
"""Lines of the screen that are not rows: title, omissions, totals, address, words, sentinel, and
what agents ask for."""

_FINAL_ROWS = 40


Foot = Callable[[], tuple[Said, ...]]


class LiveVoice:
    """Says lines in order, as `Voice` does, and shows how things stand below them."""

    def __init__(
        self,
        clock: Clock,
        allowance_of: AllowanceOf,
        console: Console | None = None,
        foot: Foot = lambda: (),
    ) -> None:
        """`foot` gives the last lines, below all others; it is called by the thread that draws."""
        self._clock = clock
        self._allowance_of = allowance_of
        self._foot = foot
        self._console = console or Terminal(highlight=False)
        self._waiting: deque[str | Event] = deque()
        self._story = Story()
        self._heard = NOTHING
        self._state: Callable[[], State] = lambda: EMPTY_STATE
        self._drawn: tuple[State, Heard, tuple[Said, ...]] | None = None
        self._drawn_at = 0.0
        self._address = ""
        self._is_open = threading.Event()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._silent = threading.Event()

    def hear(self, event: Event) -> None:
        """Takes an event; costs its caller next to nothing."""
        if self._silent.is_set() or isinstance(event.data, StateTransition | TokenUsage):
            return

        if len(self._waiting) < WAITING:
            self._waiting.append(event)
        else:
            # The terminal stands still (Ctrl-S): everything is in the journal.
            self._silent.set()

    def open(self, first: str, state: Callable[[], State], heard: Heard = NOTHING) -> None:
        """Begins, with the greeting; its last line stays in sight. `heard` is known already."""
        self._address = first.splitlines()[-1].strip()
        self._state, self._heard = state, heard
        for each in reversed(first.splitlines()):
            self._waiting.appendleft(each)

        self._is_open.set()

    def wake(self) -> None:
        """Has the view drawn at once: somebody pressed a key, and waits."""
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
        with waiting("Getting ready"):
            self._is_open.wait()

        try:
            if not self._ended.is_set():
                self._live()

            self._say(self._news())
            if self._address:
                self._console.print(frame(self._view(_FINAL_ROWS), self._console.width, ""))
        except (OSError, ValueError):
            self._silent.set()  # The terminal went away.

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
            self._say(lines)  # Which draws what is below them, too.
        else:
            live.refresh()

        self._drawn, self._drawn_at = known, time.monotonic()

    def _framed(self, foot: tuple[Said, ...]) -> Group:
        """The view with its last lines; those alone where there is no room for more."""
        room = self._console.height - _AROUND - len(foot)
        if foot and room < 0:
            return Group(*(line(each.text, each.style) for each in foot[-self._console.height :]))

        return frame(self._view(max(1, room)), self._console.width, self._address, foot)

    def _news(self) -> list[str]:
        """Takes what was said since, and gives the lines of it."""
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

    def _view(self, room: int) -> View:
        return view(self._state(), self._heard, self._clock.now(), room, self._allowance_of)
