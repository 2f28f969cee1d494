"""Report the events of `hankweave run` on stdout: as lines, as JSON or in a live view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from hankweave_protocol import codec
from hankweave_protocol.events import ServerReady
from hankweave_protocol.state import State
from hankweave_server.cli.output.event_lines import RunLines
from hankweave_server.cli.output.server_lines import LineWriter
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
    from hankweave_server.cli.live.frame import StyledText
    from hankweave_server.cli.live.view import LiveVoice


class Teller(Protocol):
    """An output of a running server; its methods return at once."""

    def greet(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        """Start the output with the addresses of the server; earlier events follow."""

    def tell(self, published: Published) -> None:
        """Report an event; events come in the journal's order."""

    def speaking(self) -> AbstractContextManager[None]:
        """Return a context in which output is written; leaving it writes the rest."""


def is_drawn(settings: RunSettings) -> bool:
    """Return whether stdout shows a live view."""
    return not (settings.json_output or settings.plain) and can_be_drawn_on()


def teller_for(
    settings: RunSettings,
    hank: LoadedHank,
    clock: Clock,
    foot: Callable[[], tuple[StyledText, ...]] = lambda: (),
) -> Teller:
    """Return the output for stdout, depending on the options and on whether it is a terminal.

    `foot` returns lines to show below a live view.
    """
    if settings.json_output:
        return JsonTeller()

    if not is_drawn(settings):
        return LineTeller()

    # Imported here because a server without a terminal does not need rich.
    from hankweave_server.cli.live.view import LiveVoice

    ceilings = Ceilings(settings.max_cost, settings.max_time)
    budget = capped(hank.hank, ceilings).max_dollars
    voice = LiveVoice(
        clock,
        lambda entry, state: figures_of(allowance(hank.hank, entry, state, ceilings)),
        foot=foot,
        budget=lambda: budget,
    )
    return LiveTeller(voice)


class LineTeller:
    """Output as plain lines."""

    def __init__(self) -> None:
        self._voice = LineWriter()
        self._story = RunLines()

    def greet(self, layout: Layout, ready: ServerReady, _state: Callable[[], State]) -> None:
        self._voice.open(greeting(layout, ready))

    def tell(self, published: Published) -> None:
        for line in self._story.lines(published.event):
            self._voice.say(line)

    def speaking(self) -> AbstractContextManager[None]:
        return self._voice.speaking()


class JsonTeller:
    """Output of every event as a JSON line; the first line is `server.ready`."""

    def __init__(self) -> None:
        self._voice = LineWriter()

    def greet(self, _layout: Layout, ready: ServerReady, _state: Callable[[], State]) -> None:
        self._voice.open(codec.encode({"type": ready.TYPE, "data": ready}).decode())

    def tell(self, published: Published) -> None:
        self._voice.say(published.frame.decode())

    def speaking(self) -> AbstractContextManager[None]:
        return self._voice.speaking()


class LiveTeller:
    """Output as a live table of the plan, below the lines of the log."""

    def __init__(self, voice: LiveVoice) -> None:
        self._voice = voice

    def greet(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        self._voice.open(greeting(layout, ready), state)

    def tell(self, published: Published) -> None:
        self._voice.hear(published.event)

    def speaking(self) -> AbstractContextManager[None]:
        return self._voice.speaking()


def greeting(layout: Layout, ready: ServerReady) -> str:
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
