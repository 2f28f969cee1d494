"""`hankweave attach` on a terminal: the steps, what the selected one does, and the keys.

`Attached` arranges what `AttachSession` knows: the list of steps, the blocks of the selected one,
its files, and a line for what waits for a person. One task takes the events in their order; another
requests what only the server knows, once for any number of events. A key asks its question with
what is on the screen at that moment, and `requests` sends the answer.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Literal

import anyio
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from hankweave_client.client import connect_to
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointDiff,
    CodonForceStop,
    CodonNext,
    CodonReadResult,
    CodonSkip,
    ListCheckpoints,
    PermissionAnswer,
)
from hankweave_protocol.errors import reason_of
from hankweave_protocol.events import (
    Event,
    FilesChanged,
    FileUpdated,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import DiffPage
from hankweave_protocol.replies import Mode as Access
from hankweave_protocol.state import CodonExecution, FailedCodon
from hankweave_server.background_tasks import task_group
from hankweave_server.cli.attach.block_view import BlockView
from hankweave_server.cli.attach.dialogs import (
    Answer,
    AskPermission,
    AskRollback,
    ChooseCheckpoint,
    Chosen,
    Confirm,
    Reading,
)
from hankweave_server.cli.attach.requests import Journey, Note, Redo, RollbackGoal, outcome
from hankweave_server.cli.attach.session import NAME, AttachSession
from hankweave_server.cli.attach.steps import (
    StepLine,
    execution_of,
    facts_of,
    followed,
    place_of,
    reason_of_end,
    step_lines,
    title_of_step,
)
from hankweave_server.cli.attach.transcript import (
    Block,
    History,
    ToolCall,
    blocks_of_diff,
    history_of,
)
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.text import clock
from hankweave_server.domain.execution_thread import active_codon, next_codon, span_of, thread
from hankweave_server.plain_text import one_line

LOOK_ONLY = "This connection is read-only."

_CHOICE = 500
"""Checkpoints in the list; `hankweave rollback --to` takes older ones."""

_FILES = 50
"""Files of a step that are listed below the steps."""

_DIFFERENCES = 200
"""Files of a comparison that are shown."""

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


class SearchField(Input):
    """The field for what is searched for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.close_search", "close"),
        Binding("up", "app.found(-1)", "next above"),
        Binding("down", "app.found(1)", "next below"),
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


class Attached(App[int]):
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
        Binding("a", "allow", "allow"),
        Binding("A", "always", "always"),
        Binding("d", "deny", "deny"),
        Binding("z", "before", "back"),
        Binding("r", "retry", "retry"),
        Binding("u", "undo", "undo"),
        Binding("c", "changes", "changes"),
        Binding("slash", "search", "search"),
        Binding("question_mark", "help", "keys"),
        Binding("q", "leave(0)", "leave"),
        Binding("p", "checkpoints", "checkpoints", show=False),
        Binding("U", "redo", "redo the rollback that was undone", show=False),
        Binding("n", "next", "start the next step", show=False),
        Binding("s", "skip", "skip the running step", show=False),
        Binding("x", "stop", "stop the running step", show=False),
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
        self._history: History | None = None
        self._shown: tuple[CodonId | None, int, str] | None = None
        """The execution that is shown: step, attempt and start; None before the first one."""
        self._ending: Block | None = None
        self._shows_changes = False
        self._found: list[int] = []
        """The seqs that the last search has found."""
        self._place = 0
        self._sought = ""
        self._note = Note("")
        self._is_due = False
        """Whether events have come since the screen was drawn."""
        self._stale = anyio.Event()
        self._files_stale = anyio.Event()
        self.animation_level = "none"
        self.theme = "textual-light" if _has_light_terminal() else "textual-dark"

    @property
    def is_at_rest(self) -> bool:
        """Whether everything that was asked for is on the screen; for tests."""
        return all(worker.is_finished or worker.name in _FOREVER for worker in self.workers)

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
            with Vertical():
                yield Static(id="facts")
                yield BlockView(id="transcript", follows=True)
                yield SearchField(id="search", placeholder="Search in this step")
        yield Static(id="asks")
        yield Static(id="note")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._main.query_one("#steps").focus()
        self._main.query_one(
            "#search"
        ).border_title = "Enter, Up: the next above; Down: below; Esc: close"
        self.run_worker(self._listen(), name="events")
        self.run_worker(self._renew_status(), name="status")
        self.run_worker(self._renew_files(), name="files")
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Draw once the sizes of the parts are known."""
        self._draw()
        self._show_step()

    # --- events ------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Take the events until the session ends, which it does when the server refuses it."""
        try:
            async for event in self.session.news():
                self._hear(event)
        except (ConnectionError, TimeoutError, CommandRefused) as error:
            self.exit(1, message=f"hankweave: {one_line(reason_of(error))}")

    def _hear(self, event: Event) -> None:
        if self.session.is_stale:
            self._stale.set()

        if self._history is not None and self._is_of_shown(event):
            self._history.add(event)

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
        if not self._shows_changes:
            self._show_blocks()

    def _is_of_shown(self, event: Event) -> bool:
        """Return whether an event belongs to the execution that is shown."""
        active = active_codon(self.session.state)
        return active is not None and self._shown == _identity(active.codon_id, active)

    async def _renew_status(self) -> None:
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            if (await outcome(self.session.renew_status())).is_complaint:
                continue  # The server is gone; the next one tells that it has started.

            self._draw()

    async def _renew_files(self) -> None:
        while True:
            await self._files_stale.wait()
            self._files_stale = anyio.Event()
            await self._draw_files()
            if self._shows_changes:
                await self._draw_changes()

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
        step = self.step
        facts = "" if step is None else " · ".join(facts_of(session, step))
        what = " · changes" if self._shows_changes else ""
        self._main.query_one("#facts", Static).update(Text(facts + what, no_wrap=True))
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
        text = Text(self._note.text, "red" if self._note.is_complaint else "")
        if not self.session.client.is_connected:
            text = Text(lost, "red")
        elif under_way := self.session.progress():
            text = Text("; ".join(under_way), "cyan")
        elif not self._note.text and not self.session.may_change:
            text = Text("read-only", "dim")

        note.display = bool(text)
        note.update(text)

    def say(self, note: Note) -> None:
        self._note = note
        self._draw_note()

    # --- the selected step -------------------------------------------------------------------

    def _show_step(self) -> None:
        """Show the execution of the selected step, unless it is shown already."""
        step = self.step
        codon = None if step is None else execution_of(self.session.state, step)
        shown = _identity(step, codon)
        if self._shown == shown:
            self._end_with(codon)
            return

        self._shown, self._history, self._ending, self._found = shown, None, None, []
        self._files_stale.set()
        if codon is not None:
            self._read(codon)
        elif not self._shows_changes:
            view = self._main.query_one("#transcript", BlockView)
            view.show([Block("note", 0, text="This step has not run yet.")], starts=True)

    @work(exclusive=True, group="history")
    async def _read(self, codon: CodonExecution) -> None:
        client = self.session.client

        async def read() -> None:
            # Events that come while its first page is read are added to it.
            self._history = await history_of(client, codon)
            await self._history.read_older()

        note = await outcome(read())
        if note.is_complaint:
            self.say(note)
            return

        self._end_with(codon)
        if not self._shows_changes:
            view = self._main.query_one("#transcript", BlockView)
            view.follows = True
            self._show_blocks(starts=True)

    def _end_with(self, codon: CodonExecution | None) -> None:
        """Show at the end why the step has failed."""
        reason = reason_of_end(codon)
        if reason and self._ending is None:
            is_failure = isinstance(codon, FailedCodon)
            text = f"{'✗' if is_failure else '»'} {reason}"
            self._ending = Block(
                "note", _LAST, text=text, severity="error" if is_failure else "info"
            )
            if self._history is not None and not self._shows_changes:
                self._show_blocks()

    def _show_blocks(self, *, starts: bool = False) -> None:
        if self._history is not None:
            ending = [] if self._ending is None else [self._ending]
            view = self._main.query_one("#transcript", BlockView)
            root = self.session.client.ready.agent_root_path
            blocks = [*self._history.blocks, *ending]
            empty = Block("note", _LAST, text="Nothing has been said yet.")
            view.show(blocks or [empty], root=root, starts=starts)

    @on(BlockView.TopReached, "#transcript")
    def _want_older(self) -> None:
        if self._history is not None and self._history.has_more and not self._shows_changes:
            self._read_older(self._history)

    @work(exclusive=True, group="older")
    async def _read_older(self, history: History) -> None:
        note = await outcome(history.read_older())
        if note.is_complaint:
            self.say(note)
        elif history is self._history:
            self._show_blocks()

    @on(BlockView.Opened, "#transcript")
    def _want_whole(self, event: BlockView.Opened) -> None:
        for call in event.block.calls:
            if call.result is not None and call.result.truncated and call.whole is None:
                self._read_whole(event.block, call)

    @work(group="results")
    async def _read_whole(self, block: Block, call: ToolCall) -> None:
        async def read() -> None:
            call.whole = (
                await self.session.client.send(CodonReadResult(seq=call.result_seq))
            ).content

        note = await outcome(read())
        block.touch()
        if note.is_complaint:
            self.say(note)
        else:
            self._show_blocks()

    async def _difference(self, *, patch: bool, limit: int) -> DiffPage | None:
        """Compare the beginning and the end of the selected step; None if it has none."""
        step = self.step
        span = None if step is None else span_of(self.session.state, step)
        if span is None:
            return None

        begin, end = span
        return await self.session.client.send(
            CheckpointDiff(from_sha=begin, to_sha=end, patch=patch, limit=limit)
        )

    async def _draw_files(self) -> None:
        files = self._main.query_one("#files", Static)
        try:
            page = await self._difference(patch=False, limit=_FILES)
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

    async def _draw_changes(self) -> None:
        view = self._main.query_one("#transcript", BlockView)
        try:
            page = await self._difference(patch=True, limit=_DIFFERENCES)
        except CommandRefused as refused:
            self.say(Note(one_line(refused.message), is_complaint=True))
            return
        except ConnectionError:
            return

        if not self._shows_changes:
            return

        nothing = [Block("note", 0, text="There is no checkpoint of this step yet.")]
        view.show(nothing if page is None else blocks_of_diff(page))
        view.open_all()
        view.refresh()

    @on(OptionList.OptionHighlighted, "#steps")
    def _choose_step(self, event: OptionList.OptionHighlighted) -> None:
        line = self._lines[event.option_index]
        self.selected, self._row = line.codon_id, line.key
        self._say_nothing()
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
        self._shows_changes = False
        self._main.query_one("#transcript", BlockView).follows = True
        self._shown = None
        self._draw()
        self._show_step()

    def action_changes(self) -> None:
        """Show what the step has changed, or its transcript again."""
        self._shows_changes = not self._shows_changes
        view = self._main.query_one("#transcript", BlockView)
        view.follows = not self._shows_changes
        view.focus()
        if self._shows_changes:
            view.show([Block("note", 0, text="Comparing …")], starts=True)
            self._files_stale.set()
        else:
            self._show_blocks(starts=True)

        self._draw()

    def action_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        lines = [f"{key:<10}  {what}" for key, what in _HELP]
        self.push_screen(Reading("Keys", [Block("output", 0, lines=lines)], is_open=True))

    def action_leave(self, code: int) -> None:
        self.exit(code)

    # --- search ------------------------------------------------------------------------------

    def action_search(self) -> None:
        if self._shows_changes:
            self.action_changes()

        field = self._main.query_one("#search", Input)
        field.add_class("-open")
        field.focus()

    @on(Input.Submitted, "#search")
    def _search(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if text and text == self._sought and self._found:
            self._go_to_found(-1)
        elif text:
            self._find(text)

    @work(exclusive=True, group="search")
    async def _find(self, text: str) -> None:
        history = self._history
        if history is None:
            return

        async def find() -> None:
            self._found = await history.find(text)

        note = await outcome(find())
        self._sought, self._place = text, len(self._found)
        self._main.query_one("#transcript", BlockView).look_for(text)
        if note.is_complaint:
            self.say(note)
        elif self._found:
            self._go_to_found(-1)
        else:
            self.say(Note(f"{one_line(text)} is not in this step.", is_complaint=True))

    def _go_to_found(self, by: int) -> None:
        self._place = (self._place + by) % len(self._found)
        self._read_to(self._found[self._place])

    @work(exclusive=True, group="search")
    async def _read_to(self, seq: int) -> None:
        history = self._history
        if history is None:
            return

        view = self._main.query_one("#transcript", BlockView)
        view.follows = False
        note = await outcome(history.read_to(seq))
        self._show_blocks()
        if note.is_complaint:
            self.say(note)
        elif block := history.block_of(seq):
            view.select(block)
            self.say(Note(f"{self._place + 1} of {len(self._found)}"))

    def action_close_search(self) -> None:
        field = self._main.query_one("#search", Input)
        field.remove_class("-open")
        view = self._main.query_one("#transcript", BlockView)
        view.look_for("")
        view.focus()
        self._say_nothing()

    def action_found(self, by: int) -> None:
        if self._found:
            self._go_to_found(by)

    # --- requests ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("allow", "always", "deny"):
            return bool(self.session.asked) and self.session.may_change

        return True

    def _say_nothing(self) -> None:
        self.say(Note(""))

    def _may(self) -> bool:
        if not self.session.may_change:
            self.say(Note(LOOK_ONLY, is_complaint=True))

        return self.session.may_change

    @work(group="requests")
    async def _send(self, request: Awaitable[object], doing: str, done: str = "") -> None:
        self.say(Note(doing))
        self.say(await outcome(request, done))
        self._stale.set()

    def _permission(self, begin: Literal["call", "rule", "deny"]) -> None:
        asked = self.session.asked
        if asked and self._may():
            self.push_screen(AskPermission(asked[0], begin), self._answer)

    def _answer(self, answer: Answer | None) -> None:
        if answer is not None:
            request = self.session.client.send(
                PermissionAnswer(
                    request_id=answer.request_id,
                    decision=answer.decision,
                    message=answer.message,
                    always=answer.always,
                )
            )
            also = f", and every {answer.always} from now on" if answer.always else ""
            done = f"{'Allowed' if answer.decision == 'allow' else 'Denied'}{also}."
            self._send(request, "Answering …", one_line(done))

    def action_allow(self) -> None:
        self._permission("call")

    def action_always(self) -> None:
        self._permission("rule")

    def action_deny(self) -> None:
        self._permission("deny")

    def _steer(self, question: str, request: Callable[[], Awaitable[object]], done: str) -> None:
        """Ask about the running step, and send a request after a yes."""
        if not self._may():
            return

        active = active_codon(self.session.state)
        if active is None:
            self.say(Note("No step is running.", is_complaint=True))
            return

        name = title_of_step(self.session.state, active.codon_id)

        def answered(yes: bool | None) -> None:
            if yes:
                self._send(request(), "…", done)

        self.push_screen(Confirm(question.format(name)), answered)

    def action_skip(self) -> None:
        run = self.session.state.current_run_id
        client = self.session.client
        self._steer(
            "Skip {}? This stops its agent, and the plan continues after it.",
            lambda: client.send(CodonSkip(expected_run_id=run)),
            "Skipped.",
        )

    def action_stop(self) -> None:
        run = self.session.state.current_run_id
        client = self.session.client
        self._steer(
            "Stop {} by force? It will be marked as failed, and the plan will pause.",
            lambda: client.send(
                CodonForceStop(reason="stopped from a terminal", expected_run_id=run)
            ),
            "Stopped. r runs it again, n continues.",
        )

    def action_next(self) -> None:
        if self._may():
            run = self.session.state.current_run_id
            name = next_codon(self.session.state) or "the next step"
            request = self.session.client.send(CodonNext(expected_run_id=run))
            self._send(request, one_line(f"Starting {name} …"), "Started.")

    def _ask_back(self, target: RollbackGoal, *, can_redo: bool = False) -> None:
        state = self.session.state
        active = active_codon(state)
        client = self.session.client

        def agreed(journey: Journey | Redo | None) -> None:
            if journey is not None:
                self._send(journey.go(client), "Working …", "Started again.")

        self.push_screen(
            AskRollback(
                target,
                lambda keep: target.preview(client, keep_edits=keep),
                run_id=state.current_run_id,
                active=None if active is None else active.codon_id,
                may_change=self.session.may_change,
                can_redo=can_redo,
            ),
            agreed,
        )

    def action_before(self) -> None:
        step = self._begun_step()
        if step is not None:
            self._ask_back(RollbackGoal.before(self.session.state, step))

    def action_retry(self) -> None:
        step = self._begun_step()
        if step is None or not self._may():
            return

        active = active_codon(self.session.state)
        if active is not None:
            name = title_of_step(self.session.state, active.codon_id)
            self.say(Note(f"{name} is running: skip or stop it first.", is_complaint=True))
            return

        newest = thread(self.session.state)[-1].codon.codon_id
        self._ask_back(RollbackGoal.again(self.session.state, step), can_redo=step == newest)

    def _begun_step(self) -> CodonId | None:
        """Return the selected step; complain if it has not run."""
        step = self.step
        if step is None or execution_of(self.session.state, step) is None:
            self.say(Note("This step has not run yet.", is_complaint=True))
            return None

        return step

    def action_undo(self) -> None:
        if self.session.state.undo:
            self._ask_back(RollbackGoal("Undo the last rollback", direction="undo"))
        else:
            self.say(Note("There is no rollback to undo.", is_complaint=True))

    def action_redo(self) -> None:
        if self.session.state.redo:
            self._ask_back(RollbackGoal("Redo the rollback that was undone", direction="redo"))
        else:
            self.say(Note("There is no undo to redo.", is_complaint=True))

    @work(exclusive=True, group="checkpoints")
    async def action_checkpoints(self) -> None:
        async def ask() -> None:
            page = await self.session.client.send(ListCheckpoints(limit=_CHOICE))
            if page.checkpoints:
                self.push_screen(ChooseCheckpoint(page.checkpoints), self._chosen)
            else:
                self.say(Note("There are no checkpoints."))

        note = await outcome(ask())
        if note.is_complaint:
            self.say(note)

    def _chosen(self, chosen: Chosen | None) -> None:
        if chosen is None:
            return

        if chosen.compares:
            self._compare(chosen)
        else:
            title = one_line(f"Back to {chosen.title} ({chosen.sha[:12]})")
            self._ask_back(RollbackGoal(title, sha=chosen.sha))

    @work(exclusive=True, group="compare")
    async def _compare(self, chosen: Chosen) -> None:
        async def compare() -> None:
            page = await self.session.client.send(
                CheckpointDiff(
                    from_sha=chosen.sha, to_sha=chosen.other, patch=True, limit=_DIFFERENCES
                )
            )
            self.push_screen(Reading("Comparison", blocks_of_diff(page), is_open=True))

        note = await outcome(compare())
        if note.is_complaint:
            self.say(note)


_LAST = 1 << 62
"""The key of the block after all events."""

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


def _identity(
    step: CodonId | None, codon: CodonExecution | None
) -> tuple[CodonId | None, int, str]:
    return (step, 0, "") if codon is None else (step, codon.attempt, codon.start_time)


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
