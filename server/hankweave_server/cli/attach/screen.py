"""`hankweave attach` on a terminal: the steps, what the selected one does, and the keys.

`Attached` arranges what `AttachSession` knows: the list of steps, the pane of the selected one, its
files, and a line for what waits for a person. One task takes the events in their order; another
requests what only the server knows, once for any number of events.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from hankweave_client.client import connect_to
from hankweave_client.errors import CommandRefused
from hankweave_protocol.errors import reason_of
from hankweave_protocol.events import (
    Event,
    FilesChanged,
    FileUpdated,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import Mode as Access
from hankweave_server.background_tasks import task_group
from hankweave_server.cli.attach.control import Controls
from hankweave_server.cli.attach.dialogs import Reading
from hankweave_server.cli.attach.requests import Note, outcome
from hankweave_server.cli.attach.session import NAME, AttachSession
from hankweave_server.cli.attach.step_pane import StepPane
from hankweave_server.cli.attach.steps import StepLine, followed, place_of, step_lines
from hankweave_server.cli.attach.transcript import Block
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.text import clock
from hankweave_server.plain_text import one_line

_FILES = 50
"""Files of a step that are listed below the steps."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 128 + signal.SIGINT
_GONE = 128 + signal.SIGHUP


class StepList(OptionList):
    """The steps, one row each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("space", "select", show=False),
    ]


class TerminalDriver(LinuxDriver):
    """The terminal, which is taken anew after a stop without notice.

    After ^Z the driver has given the terminal back before it stops. SIGSTOP leaves no time for
    that: at SIGCONT, Textual would start a second thread for the keys, and the first one may never
    end, which keeps the process from ending.
    """

    _is_taken = False

    def start_application_mode(self) -> None:
        if self._is_taken:
            self.suspend_application_mode()

        self._is_taken = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        self._is_taken = False
        super().stop_application_mode()


class Attached(Controls):
    """The application; its result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "hankweave attach"
    CSS = """
    Screen { background: $background; }
    #heading { height: 1; background: $panel; text-style: bold; padding: 0 1; }
    #left { width: 30; border-right: solid $panel; }
    StepList { height: auto; max-height: 1fr; border: none; padding: 0; background: $background; }
    #files { height: auto; max-height: 40%; border-top: solid $panel; padding: 0 1; }
    #facts { height: 1; padding: 0 1; text-style: bold; }
    #asks { height: auto; max-height: 4; padding: 0 1; background: $warning-muted; }
    #note { height: auto; max-height: 3; padding: 0 1; }
    #search { height: 3; border: round $border; display: none; }
    #search.-open { display: block; }
    Footer { height: 1; }
    .-wide #left { width: 46; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "changes", "changes"),
        Binding("slash", "search", "search"),
        Binding("question_mark", "help", "keys"),
        Binding("q", "leave(0)", "leave"),
        Binding("l", "live", "back to what happens now", show=False),
        Binding("t", "theme", "light or dark", show=False),
        Binding("ctrl+c", f"leave({_INTERRUPTED})", "leave", show=False, priority=True),
        Binding("ctrl+d", "leave(0)", "leave", show=False),
    ]

    def __init__(self, session: AttachSession) -> None:
        """Show a session that has begun."""
        super().__init__(driver_class=TerminalDriver)
        self.session = session
        self.selected: CodonId | None = None
        """The step that the reader has chosen; None for the one that runs or has failed."""
        self._row: str | None = None
        """The key of the row that the reader has chosen: a loop, or one of its rounds."""
        self._unfolded: frozenset[str] = frozenset()
        self._lines: tuple[StepLine, ...] = ()
        self._rows: list[tuple[str, str]] = []
        """The texts and styles of `_lines` as they were drawn."""
        self._pane = StepPane(session, self.show_note)
        self._note = Note("")
        self._is_due = False
        """Whether events have come since the screen was drawn."""
        self._stale = anyio.Event()
        self._files_stale = anyio.Event()
        self._renewing = 0
        """How many of the two are being read anew."""
        self.animation_level = "none"
        self.theme = "textual-light" if _has_light_terminal() else "textual-dark"

    @property
    def is_settled(self) -> bool:
        """Whether everything that was asked for is on the screen; for tests."""
        is_asking = any(
            not worker.is_finished and worker.name not in _FOREVER for worker in self.workers
        )
        is_stale = self._stale.is_set() or self._files_stale.is_set()
        return not (is_asking or is_stale or self._is_due or self._renewing)

    @property
    def _main(self) -> Screen[object]:
        """The screen below all questions."""
        return self.screen_stack[0]

    def compose(self) -> ComposeResult:
        yield Static(id="heading")
        with Horizontal():
            with Vertical(id="left"):
                yield StepList(id="steps", markup=False)
                yield Static(id="files")
            yield self._pane
        yield Static(id="asks")
        yield Static(id="note")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._main.query_one("#steps").focus()
        self.run_worker(self._receive_events(), name="events")
        self.run_worker(self._renew_status(), name="status")
        self.run_worker(self._renew_files(), name="files")
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Draw once the sizes of the parts are known."""
        self._draw()
        self._show_step()

    # --- events ------------------------------------------------------------------------------

    async def _receive_events(self) -> None:
        """Take the events until the session ends, which it does when the server refuses it."""
        try:
            async for event in self.session.news():
                self._receive(event)
        except (ConnectionError, TimeoutError, CommandRefused) as error:
            self.exit(1, message=f"hankweave: {one_line(reason_of(error))}")

    def _receive(self, event: Event) -> None:
        if self.session.is_stale:
            self._stale.set()

        self._pane.add_event(event)
        if isinstance(event.data, FileUpdated | FilesChanged | StateTransition):
            self._files_stale.set()

        if not self._is_due:
            self._is_due = True
            self.call_later(self._catch_up)

    def _catch_up(self) -> None:
        """Draw once what any number of events have changed."""
        self._is_due = False
        self._draw()
        self._show_step()
        if not self._pane.shows_changes:
            self._pane.show_blocks()

    async def _renew_status(self) -> None:
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            with self._at_work():
                if (await outcome(self.session.renew_status())).is_error:
                    continue  # The server is gone; the next one reports that it has started.

                self._draw()

    async def _renew_files(self) -> None:
        while True:
            await self._files_stale.wait()
            self._files_stale = anyio.Event()
            with self._at_work():
                await self._draw_files()
                await self._pane.draw_changes()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._renewing += 1
        try:
            yield
        finally:
            self._renewing -= 1

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _tick(self) -> None:
        """Draw what changes with the time."""
        if self._main.query("#heading"):  # Not while the application ends.
            self._draw()

    # --- drawing -----------------------------------------------------------------------------

    @property
    def step(self) -> CodonId | None:
        """The step that is shown."""
        return self.selected or followed(self.session.state)

    def _draw(self) -> None:
        session = self.session
        self._main.query_one("#heading", Static).update(Text(session.heading(), no_wrap=True))
        self._draw_steps()
        self._pane.draw_facts(self.step)
        self._draw_asks()
        self._draw_note()
        self.refresh_bindings()

    def _draw_steps(self) -> None:
        options = self._main.query_one(StepList)
        lines = step_lines(self.session, self._unfolded)
        width = max(20, options.size.width or 28)
        rows = [(line.text(width), line.style) for line in lines]
        place = place_of(lines, self.step, self._row)
        with self.prevent(OptionList.OptionHighlighted):
            if [line.key for line in lines] == [line.key for line in self._lines]:
                for number, row in enumerate(rows):
                    if row != self._rows[number]:
                        options.replace_option_prompt_at_index(number, Content.styled(*row))
            else:
                options.set_options(Option(Content.styled(*row)) for row in rows)

            if options.highlighted != place:
                options.highlighted = place

        self._lines, self._rows = lines, rows

    def _draw_asks(self) -> None:
        asks = self._main.query_one("#asks", Static)
        asked = self.session.asked
        asks.display = bool(asked)
        if asked:
            first, *others = asked
            what = one_line(
                f"{first.codon_id} asks: {call_text(first.tool_name, first.tool_input)}"
            )
            end = "allowed" if first.on_expiry == "allow" else "denied"
            more = f", {len(others)} more" if others else ""
            text = f"{what}  {end} at {clock(first.expires_at)}{more}"
            asks.update(Text(text, "bold"))

    def _draw_note(self) -> None:
        note = self._main.query_one("#note", Static)
        lost = "○ connection lost; reconnecting to the server. No events will be lost."
        text = Text(self._note.text, "red" if self._note.is_error else "")
        if not self.session.client.is_connected:
            text = Text(lost, "red")
        elif under_way := self.session.progress():
            text = Text("; ".join(under_way), "cyan")
        elif not self._note.text and not self.session.may_change:
            text = Text("read-only", "dim")

        note.display = bool(text)
        note.update(text)

    def request_status(self) -> None:
        self._stale.set()

    def show_note(self, note: Note) -> None:
        self._note = note
        self._draw_note()

    # --- steps -------------------------------------------------------------------------------

    def _show_step(self) -> None:
        """Show the execution of the selected step, unless it is shown already."""
        if self._pane.show(self.step):
            self._files_stale.set()

    async def _draw_files(self) -> None:
        files = self._main.query_one("#files", Static)
        try:
            page = await self._pane.difference(patch=False, limit=_FILES)
        except (CommandRefused, ConnectionError):
            return  # It is asked again with the next change.

        found = () if page is None else page.files
        width = max(10, files.content_size.width or 26)
        yours = self.session.state.edits
        lines = []
        for file in found:
            numbers = f" {'yours ' if file.path in yours else ''}+{file.added} −{file.removed}"
            path = one_line(file.path)
            room = width - len(numbers)
            name = path if len(path) <= room else f"…{path[-room + 1 :]}"
            lines.append(Text.assemble(f"{name:<{room}}", (numbers, "dim"), no_wrap=True))

        if page is not None and page.stats.files > len(found):
            lines.append(Text(f"{page.stats.files - len(found)} more", "dim"))

        files.display = bool(lines)
        files.update(Text("\n").join(lines))

    @on(OptionList.OptionHighlighted, "#steps")
    def _choose_step(self, event: OptionList.OptionHighlighted) -> None:
        line = self._lines[event.option_index]
        self.selected, self._row = line.codon_id, line.key
        self.show_note(Note(""))
        self._draw()
        self._show_step()

    @on(OptionList.OptionSelected, "#steps")
    def _fold(self, event: OptionList.OptionSelected) -> None:
        """Fold or unfold a loop; go to the transcript of another step."""
        line = self._lines[event.option_index]
        if line.is_folded is None:
            self._main.query_one("#transcript").focus()
            return

        self._unfolded ^= {line.key}
        self._draw()

    def action_live(self) -> None:
        self.selected = self._row = None
        self._pane.follow()
        self._draw()
        self._show_step()

    def action_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        lines = [f"{key:<10}  {what}" for key, what in _HELP]
        self.push_screen(Reading("Keys", [Block("output", 0, lines=lines)], is_open=True))

    def action_leave(self, code: int) -> None:
        self.exit(code)

    # --- the selected step ----------------------------------------------------------------------

    def action_changes(self) -> None:
        """Show what the step has changed, or its transcript again."""
        self._pane.toggle_changes()
        if self._pane.shows_changes:
            self._files_stale.set()

        self._draw()

    def action_search(self) -> None:
        if self._pane.shows_changes:
            self.action_changes()

        self._pane.open_search()

    def action_close_search(self) -> None:
        self._pane.close_search()

    def action_found(self, by: int) -> None:
        self._pane.go_to_found(by)


_FOREVER = frozenset({"events", "status", "files"})
"""Tasks that end with the application."""

_HELP = (
    ("↑ ↓ j k", "from step to step, or from block to block"),
    ("Tab", "to the transcript, and to the steps"),
    ("Enter", "the rounds of a loop; all of a call and its result"),
    ("PgUp PgDn", "page by page; Home, End: beginning and end"),
    ("l", "back to what happens now"),
    ("c", "what the step has changed, or its transcript again"),
    ("/", "search in the step: Enter, Up, Down from one to the next"),
    ("a A d", "a call that asks: allow, always allow, deny with a reason"),
    ("z", "go back to before the step; shows what happens first"),
    ("p", "checkpoints: Enter goes back, Space marks, v compares"),
    ("u U", "undo the last rollback; redo it"),
    ("r", "run the selected step again"),
    ("n s x", "start the next step; skip or stop the one that runs"),
    ("t", "light or dark colours"),
    ("q", "leave; the server keeps running"),
)


def _has_light_terminal() -> bool:
    """Return whether the terminal says that its background is light, as many do."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return background in ("7", "15")


# --- the program ----------------------------------------------------------------------------------


async def watch(root: Path, access: Access) -> int:
    """Show a server on the terminal until the user leaves; return the exit code.

    A lost connection is reopened, for as long as it takes. Raises the errors of the first one. Ends
    the process at once when the terminal is gone.
    """
    threading.excepthook = _end_without_terminal
    async with connect_to(root, mode=access, name=NAME, progress=True) as client:
        session = AttachSession(client)
        await session.begin()
        app = Attached(session)
        async with task_group() as tasks:
            tasks.start_soon(_watch_signals, app)
            await app.run_async()
            tasks.cancel_scope.cancel()

        return app.return_value if app.return_value is not None else app.return_code or 0


async def _watch_signals(app: Attached) -> None:
    with anyio.open_signal_receiver(*_ENDS) as signals:
        async for number in signals:
            app.exit(128 + number)


def _end_without_terminal(failure: threading.ExceptHookArgs) -> None:
    """End the process: the thread that writes to the terminal has failed.

    The event loop waits for that thread as soon as its queue is full, and would never end.
    """
    os._exit(_GONE)
