"""The selected step in `hankweave attach`: its transcript or its changes, and the search in it.

The events of a step are read a page at a time, the newest first, while new ones are added at the
end. `StepPane` holds what was read of the step that is shown, and drops it for another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import CheckpointDiff, CodonReadResult
from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import DiffPage
from hankweave_protocol.state import CodonExecution, FailedCodon
from hankweave_server.cli.attach.block_view import BlockView
from hankweave_server.cli.attach.requests import DIFFERENCES, Note, outcome
from hankweave_server.cli.attach.session import AttachSession
from hankweave_server.cli.attach.steps import execution_of, facts_of, reason_of_end
from hankweave_server.cli.attach.transcript import (
    Block,
    ToolCall,
    Transcript,
    blocks_of_diff,
    transcript_of,
)
from hankweave_server.domain.execution_thread import active_codon, span_of
from hankweave_server.plain_text import one_line


class SearchField(Input):
    """The field for what is searched for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.close_search", "close"),
        Binding("up", "app.found(-1)", "next above"),
        Binding("down", "app.found(1)", "next below"),
    ]


class StepPane(Vertical):
    """The facts of a step, and its transcript or its changes."""

    def __init__(self, session: AttachSession, show_note: Callable[[Note], None]) -> None:
        """`show_note` shows a sentence to the person."""
        super().__init__()
        self._session = session
        self._show_note = show_note
        self._step: CodonId | None = None
        self._transcript: Transcript | None = None
        self._shown: tuple[CodonId | None, int, str] | None = None
        """The execution that is shown: step, attempt and start; None before the first one."""
        self._ending: Block | None = None
        self.shows_changes = False
        self._found: list[int] = []
        """The seqs that the last search has found."""
        self._place = 0
        self._sought = ""

    def compose(self) -> ComposeResult:
        yield Static(id="facts")
        yield BlockView(id="transcript", follows=True)
        yield SearchField(id="search", placeholder="Search in this step")

    def on_mount(self) -> None:
        field = self.query_one("#search")
        field.border_title = "Enter, Up: the next above; Down: below; Esc: close"

    @property
    def _view(self) -> BlockView:
        return self.query_one("#transcript", BlockView)

    def draw_facts(self, step: CodonId | None) -> None:
        """Draw the line above the transcript."""
        facts = "" if step is None else " · ".join(facts_of(self._session, step))
        what = " · changes" if self.shows_changes else ""
        self.query_one("#facts", Static).update(Text(facts + what, no_wrap=True))

    # --- the transcript ----------------------------------------------------------------------

    def add_event(self, event: Event) -> None:
        """Add an event to the transcript, if it belongs to the execution that is shown."""
        active = active_codon(self._session.state)
        is_shown = active is not None and self._shown == _identity(active.codon_id, active)
        if self._transcript is not None and is_shown:
            self._transcript.add(event)

    def show(self, step: CodonId | None) -> bool:
        """Show the execution of a step; return whether it was not shown already."""
        self._step = step
        codon = None if step is None else execution_of(self._session.state, step)
        shown = _identity(step, codon)
        if self._shown == shown:
            self._end_with(codon)
            return False

        self._shown, self._transcript, self._ending, self._found = shown, None, None, []
        if codon is not None:
            self._read(codon)
        elif not self.shows_changes:
            self._view.show([Block("note", 0, text="This step has not run yet.")], starts=True)

        return True

    @work(exclusive=True, group="transcript")
    async def _read(self, codon: CodonExecution) -> None:
        client = self._session.client

        async def read() -> None:
            # Events that come while its first page is read are added to it.
            self._transcript = await transcript_of(client, codon)
            await self._transcript.read_older()

        note = await outcome(read())
        if note.is_error:
            self._show_note(note)
            return

        self._end_with(codon)
        if not self.shows_changes:
            self._view.follows = True
            self.show_blocks(starts=True)

    def _end_with(self, codon: CodonExecution | None) -> None:
        """Show at the end why the step has failed."""
        reason = reason_of_end(codon)
        if reason and self._ending is None:
            is_failure = isinstance(codon, FailedCodon)
            text = f"{'✗' if is_failure else '»'} {reason}"
            self._ending = Block(
                "note", _LAST, text=text, severity="error" if is_failure else "info"
            )
            if self._transcript is not None and not self.shows_changes:
                self.show_blocks()

    def show_blocks(self, *, starts: bool = False) -> None:
        """Draw the transcript as it was read so far."""
        if self._transcript is not None:
            ending = [] if self._ending is None else [self._ending]
            root = self._session.client.ready.agent_root_path
            blocks = [*self._transcript.blocks, *ending]
            empty = Block("note", _LAST, text="Nothing has been said yet.")
            self._view.show(blocks or [empty], root=root, starts=starts)

    @on(BlockView.TopReached, "#transcript")
    def _load_older(self) -> None:
        if self._transcript is not None and self._transcript.has_more and not self.shows_changes:
            self._read_older(self._transcript)

    @work(exclusive=True, group="older")
    async def _read_older(self, transcript: Transcript) -> None:
        note = await outcome(transcript.read_older())
        if note.is_error:
            self._show_note(note)
        elif transcript is self._transcript:
            self.show_blocks()

    @on(BlockView.Opened, "#transcript")
    def _load_results(self, event: BlockView.Opened) -> None:
        for call in event.block.calls:
            if call.result is not None and call.result.truncated and call.whole is None:
                self._read_whole(event.block, call)

    @work(group="results")
    async def _read_whole(self, block: Block, call: ToolCall) -> None:
        async def read() -> None:
            call.whole = (
                await self._session.client.send(CodonReadResult(seq=call.result_seq))
            ).content

        note = await outcome(read())
        block.touch()
        if note.is_error:
            self._show_note(note)
        else:
            self.show_blocks()

    # --- changes -----------------------------------------------------------------------------

    async def difference(self, *, patch: bool, limit: int) -> DiffPage | None:
        """Compare the beginning and the end of the step; None if it has none."""
        step = self._step
        span = None if step is None else span_of(self._session.state, step)
        if span is None:
            return None

        begin, end = span
        return await self._session.client.send(
            CheckpointDiff(from_sha=begin, to_sha=end, patch=patch, limit=limit)
        )

    async def draw_changes(self) -> None:
        """Show what the step has changed, if that is what is shown."""
        if not self.shows_changes:
            return

        try:
            page = await self.difference(patch=True, limit=DIFFERENCES)
        except CommandRefused as refused:
            self._show_note(Note(one_line(refused.message), is_error=True))
            return
        except ConnectionError:
            return

        if not self.shows_changes:
            return

        nothing = [Block("note", 0, text="There is no checkpoint of this step yet.")]
        view = self._view
        view.show(nothing if page is None else blocks_of_diff(page))
        view.open_all()
        view.refresh()

    def toggle_changes(self) -> None:
        """Show what the step has changed, or its transcript again."""
        self.shows_changes = not self.shows_changes
        self._view.follows = not self.shows_changes
        self._view.focus()
        if self.shows_changes:
            self._view.show([Block("note", 0, text="Comparing …")], starts=True)
        else:
            self.show_blocks(starts=True)

    def follow(self) -> None:
        """Begin again at the end of the transcript, which is followed."""
        self.shows_changes = False
        self._view.follows = True
        self._shown = None

    # --- search ------------------------------------------------------------------------------

    def open_search(self) -> None:
        field = self.query_one("#search", Input)
        field.add_class("-open")
        field.focus()

    def close_search(self) -> None:
        self.query_one("#search", Input).remove_class("-open")
        self._view.mark_text("")
        self._view.focus()
        self._show_note(Note(""))

    def go_to_found(self, by: int) -> None:
        """Go to the next place that the search has found, or the one before."""
        if self._found:
            self._place = (self._place + by) % len(self._found)
            self._read_to(self._found[self._place])

    @on(Input.Submitted, "#search")
    def _search(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if text and text == self._sought and self._found:
            self.go_to_found(-1)
        elif text:
            self._find(text)

    @work(exclusive=True, group="search")
    async def _find(self, text: str) -> None:
        transcript = self._transcript
        if transcript is None:
            return

        async def find() -> None:
            self._found = await transcript.find(text)

        note = await outcome(find())
        self._sought, self._place = text, len(self._found)
        self._view.mark_text(text)
        if note.is_error:
            self._show_note(note)
        elif self._found:
            self.go_to_found(-1)
        else:
            self._show_note(Note(f"{one_line(text)} is not in this step.", is_error=True))

    @work(exclusive=True, group="search")
    async def _read_to(self, seq: int) -> None:
        transcript = self._transcript
        if transcript is None:
            return

        view = self._view
        view.follows = False
        note = await outcome(transcript.read_to(seq))
        self.show_blocks()
        if note.is_error:
            self._show_note(note)
        elif block := transcript.block_of(seq):
            view.select(block)
            self._show_note(Note(f"{self._place + 1} of {len(self._found)}"))


_LAST = 1 << 62
"""The key of the block after all events."""


def _identity(
    step: CodonId | None, codon: CodonExecution | None
) -> tuple[CodonId | None, int, str]:
    return (step, 0, "") if codon is None else (step, codon.attempt, codon.start_time)
