"""The questions of `attach`: each is a screen above the others, and ends with an answer or None.

What a question is about, such as the request for permission or the preview of a rollback, is fixed
when it is asked, so that an answer never applies to something that came up meanwhile. The keys at
the bottom of each can be clicked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import CodonRedo, CommandData, OnRunning, PermissionAnswer
from hankweave_protocol.errors import reason_of
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointRecord, PendingPermission, RollbackReport
from hankweave_server.cli.attach.block_view import BlockView
from hankweave_server.cli.attach.drawing import given_lines
from hankweave_server.cli.attach.requests import RollbackGoal
from hankweave_server.cli.attach.transcript import Block
from hankweave_server.cli.output.log_graph import MARKS
from hankweave_server.cli.output.rollback_report import report_lines
from hankweave_server.cli.output.text import clock, clock_with_zone
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.local.hints import terminal_hint
from hankweave_server.plain_text import one_line

T = TypeVar("T")

_BACK = Binding("escape,q", "dismiss", "back")


class Dialog(ModalScreen[T | None], Generic[T]):
    """A box with a title, a body and its keys."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        width: 96%; max-width: 110; height: auto; max-height: 96%;
        background: $surface; border: round $primary; padding: 0 1;
    }
    Dialog .title { text-style: bold; width: 1fr; }
    Dialog VerticalScroll { height: auto; max-height: 65vh; }
    Dialog #field { height: auto; }
    Dialog Footer { dock: none; height: 1; background: $surface; }
    Dialog OptionList, Dialog BlockView { height: auto; max-height: 70vh; }
    Dialog OptionList, Dialog OptionList:focus { border: none; padding: 0; background: $surface; }
    Dialog.-tall > Vertical { height: 96%; }
    Dialog.-tall BlockView, Dialog.-tall OptionList { height: 1fr; max-height: 100%; }
    Dialog Input { border: tall $border; }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._heading = title

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(Text(self._heading), classes="title")
            yield from self.body()
            yield Footer(show_command_palette=False, compact=True)

    @abstractmethod
    def body(self) -> ComposeResult:
        """Yield what is between the title and the keys."""

    async def action_dismiss(self, result: T | None = None) -> None:
        self.dismiss(result)


class Confirm(Dialog[bool]):
    """A question that only `y` answers with yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q", "dismiss", "no"),
    ]

    def body(self) -> ComposeResult:
        return iter(())


class Reading(Dialog[None]):
    """Blocks to be read: the help, or a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(self, title: str, blocks: Sequence[Block], *, is_open: bool = False) -> None:
        super().__init__(title)
        self._blocks = blocks
        self._is_open = is_open
        self.add_class("-tall")

    def body(self) -> ComposeResult:
        yield BlockView()

    def on_mount(self) -> None:
        view = self.query_one(BlockView)
        view.focus()
        view.show(self._blocks, starts=True)
        if self._is_open:
            view.open_all()


# --- permission -----------------------------------------------------------------------------------


class AskPermission(Dialog[PermissionAnswer]):
    """The whole call that an agent wants to make, and the ways to answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,y", "allow", "allow"),
        Binding("A", "rule", "always…"),
        Binding("d,n", "deny", "deny…"),
        _BACK,
    ]

    def __init__(self, asked: PendingPermission, begin: Literal["call", "rule", "deny"]) -> None:
        """Ask about a request; `begin` with a field for a rule or a reason, or with the call."""
        super().__init__(one_line(f"{asked.codon_id} asks for {asked.tool_name}"))
        self._asked = asked
        self._begin = begin
        self._wants: Literal["rule", "deny"] = "rule"

    def body(self) -> ComposeResult:
        asked = self._asked
        with VerticalScroll(id="call"):
            yield Static(Text("\n".join(given_lines(asked.tool_input))))

        decided = "allowed" if asked.on_expiry == "allow" else "denied"
        until = f"Without an answer it is {decided} at {clock_with_zone(asked.expires_at)}."
        yield Static(Text(one_line(f"{asked.reason} {until}".strip()), "dim"))
        yield Vertical(id="field")

    def on_mount(self) -> None:
        self.query_one("#call").focus()
        if self._begin == "rule":
            self.action_rule()
        elif self._begin == "deny":
            self.action_deny()

    def action_allow(self) -> None:
        self.dismiss(PermissionAnswer(request_id=self._asked.request_id, decision="allow"))

    def action_rule(self) -> None:
        self._show_field("rule", "Rule, such as Bash(git diff *)", self._asked.suggestion or "")

    def action_deny(self) -> None:
        self._show_field("deny", "Reason, which the agent is told; may be empty", "")

    def _show_field(self, wants: Literal["rule", "deny"], hint: str, value: str) -> None:
        self._wants = wants
        field = Input(value, placeholder=hint, select_on_focus=False)
        what = "Always allow every call of this rule" if wants == "rule" else "Deny"
        field.border_title = f"{what}: Enter; Esc: back"
        self.query_one("#field").mount(field)
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text, request = event.value.strip(), self._asked.request_id
        if self._wants == "deny":
            message = text or None
            self.dismiss(PermissionAnswer(request_id=request, decision="deny", message=message))
        elif text:
            self.dismiss(PermissionAnswer(request_id=request, decision="allow", always=text))

    async def action_dismiss(self, result: PermissionAnswer | None = None) -> None:
        """Leave the field first, then the dialog."""
        fields = self.query(Input)
        if fields and result is None and self._begin == "call":
            fields.remove()
            self.query_one("#call").focus()
        else:
            self.dismiss(result)


# --- rollback -------------------------------------------------------------------------------------

Previewer = Callable[[bool], Awaitable[RollbackReport]]
"""Returns the preview of a rollback, with or without keeping people's edits."""


class AskRollback(Dialog[CommandData]):
    """The consequences of a rollback, and the question whether to do it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "go", "go back"),
        Binding("e", "keep", "keep edits"),
        Binding("o", "running", "stop or pause"),
        Binding("f", "files", "files"),
        Binding("w", "redo", "on files as they are"),
        Binding("n,escape,q", "dismiss", "no"),
    ]

    def __init__(
        self,
        target: RollbackGoal,
        preview: Previewer,
        *,
        run_id: RunId | None,
        active: str | None,
        may_change: bool,
        can_redo: bool = False,
    ) -> None:
        """Ask about a rollback from a run in which `active` is running.

        With `can_redo`, the newest step may run again on the files as they are instead.
        """
        super().__init__(target.title)
        self._target = target
        self._preview = preview
        self._run_id = run_id
        self._active = active
        self._may_change = may_change
        self._can_redo = can_redo
        self._keep_edits = True
        self._on_running: OnRunning = "refuse" if active is None else "stop"
        self._report: RollbackReport | None = None
        self._lists_files = False

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("Working out what would change …", id="report")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._renew()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("go", "keep"):
            return self._may_change

        if action == "redo":
            return self._may_change and self._can_redo

        return self._active is not None if action == "running" else True

    def _renew(self) -> None:
        self._report = None
        self.run_worker(self._ask(), exclusive=True)

    async def _ask(self) -> None:
        try:
            self._report = await self._preview(self._keep_edits)
        except CommandRefused as refused:
            hint = terminal_hint(refused.hint) or ""
            self._show_text(Text(one_line(f"{refused.message} {hint}"), "red"))
        except ConnectionError as lost:
            self._show_text(Text(one_line(reason_of(lost)), "red"))
        else:
            self._draw()

    def _draw(self) -> None:
        if self._report is None:
            return

        width = None if self._lists_files else min(self.app.size.width - 10, 104)
        lines = [
            Text(line.text, line.style)
            for line in report_lines(self._report, is_preview=True, reverse="u", width=width)
        ]
        if self._active is not None:
            does = "is stopped first" if self._on_running == "stop" else "is paused meanwhile"
            lines += [Text(), Text(f"{one_line(self._active)} is running: it {does}.", "yellow")]

        if not self._may_change:
            lines += [Text(), Text("This connection is read-only.", "yellow")]
        elif self._report.counts.conflicts:
            lines.append(Text(f"Your edits are {'kept' if self._keep_edits else 'not kept'} (e)."))

        self._show_text(Text("\n").join(lines))

    def _show_text(self, text: Text) -> None:
        self.query_one("#report", Static).update(text)

    def action_keep(self) -> None:
        self._keep_edits = not self._keep_edits
        self._renew()

    def action_running(self) -> None:
        self._on_running = "pause" if self._on_running == "stop" else "stop"
        self._draw()

    def action_files(self) -> None:
        self._lists_files = not self._lists_files
        self._draw()

    def action_redo(self) -> None:
        self.dismiss(CodonRedo(expected_run_id=self._run_id))

    def action_go(self) -> None:
        """Agree, once the preview is there."""
        if self._report is not None:
            command = self._target.command(
                keep_edits=self._keep_edits, on_running=self._on_running, run_id=self._run_id
            )
            self.dismiss(command)


# --- checkpoints ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """A checkpoint to go back to, or with `other`, two to compare."""

    sha: str
    title: str
    other: str | None = None
    compares: bool = False
    """Compare; without `other`, with the files as they are."""


class ChooseCheckpoint(Dialog[Chosen]):
    """The checkpoints, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "go back"),
        Binding("space", "mark", "mark"),
        Binding("v", "compare", "compare with it, or with now"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
        _BACK,
    ]

    def __init__(self, records: Iterable[CheckpointRecord]) -> None:
        super().__init__("Checkpoints, newest first: Enter goes back to one")
        self._records = tuple(records)
        self._marked: int | None = None
        self.add_class("-tall")

    def body(self) -> ComposeResult:
        yield OptionList(
            *(Option(self._row(number)) for number in range(len(self._records))), markup=False
        )

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.focus()
        options.highlighted = 0 if self._records else None

    def _row(self, number: int) -> Text:
        record = self._records[number]
        sign, _, colour = MARKS[record.kind]
        codon = one_line(record.coordinate.codon_id or "-")
        mark = "▌" if number == self._marked else " "
        title = one_line(title_of(record))
        text = f" {record.sha[:12]}  {clock(record.timestamp)}  {codon:<14}  {title}"
        return Text.assemble((f"{mark}{sign}", colour), text, no_wrap=True, overflow="ellipsis")

    @property
    def _at(self) -> int | None:
        return self.query_one(OptionList).highlighted

    def action_down(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        self.query_one(OptionList).action_cursor_up()

    def action_mark(self) -> None:
        before, self._marked = self._marked, None if self._marked == self._at else self._at
        for number in {before, self._at} - {None}:
            assert number is not None
            self.query_one(OptionList).replace_option_prompt_at_index(number, self._row(number))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        record = self._records[event.option_index]
        self.dismiss(Chosen(record.sha, title_of(record)))

    def action_choose(self) -> None:
        self.query_one(OptionList).action_select()

    def action_compare(self) -> None:
        if self._at is None:
            return

        if self._marked is None or self._marked == self._at:
            record = self._records[self._at]
            self.dismiss(Chosen(record.sha, title_of(record), compares=True))
        else:
            newer, older = sorted((self._marked, self._at))
            record = self._records[older]
            self.dismiss(
                Chosen(record.sha, title_of(record), self._records[newer].sha, compares=True)
            )
