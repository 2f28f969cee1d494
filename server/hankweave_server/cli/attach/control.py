"""The keys of `hankweave attach` that ask the server for something.

Each asks the person first, with what is on the screen at that moment, and `requests` sends the
answer. `Controls` is the part of the application that knows these keys; `screen` draws the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType

from hankweave_protocol.commands import (
    CheckpointDiff,
    CodonForceStop,
    CodonNext,
    CodonSkip,
    CommandData,
    ListCheckpoints,
    PermissionAnswer,
    RollbackPreview,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.attach.dialogs import (
    AskPermission,
    AskRollback,
    ChooseCheckpoint,
    Chosen,
    Confirm,
    Reading,
)
from hankweave_server.cli.attach.requests import (
    DIFFERENCES,
    Note,
    RollbackGoal,
    outcome,
)
from hankweave_server.cli.attach.session import AttachSession
from hankweave_server.cli.attach.steps import execution_of, title_of_step
from hankweave_server.cli.attach.transcript import blocks_of_diff
from hankweave_server.domain.execution_thread import active_codon, next_codon, thread
from hankweave_server.plain_text import one_line

READ_ONLY = "This connection is read-only."

_CHOICE = 500
"""Checkpoints in the list; `hankweave rollback --to` takes older ones."""


class Controls(App[int]):
    """An application with the keys that change something."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "allow", "allow"),
        Binding("A", "always", "always"),
        Binding("d", "deny", "deny"),
        Binding("z", "before", "back"),
        Binding("r", "retry", "retry"),
        Binding("u", "undo", "undo"),
        Binding("p", "checkpoints", "checkpoints", show=False),
        Binding("U", "redo", "redo the rollback that was undone", show=False),
        Binding("n", "next", "start the next step", show=False),
        Binding("s", "skip", "skip the running step", show=False),
        Binding("x", "stop", "stop the running step", show=False),
    ]

    session: AttachSession

    @property
    @abstractmethod
    def step(self) -> CodonId | None:
        """The step that is shown."""

    @abstractmethod
    def show_note(self, note: Note) -> None:
        """Show a sentence below the steps."""

    @abstractmethod
    def request_status(self) -> None:
        """Ask the server for its status soon."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("allow", "always", "deny"):
            return bool(self.session.asked) and self.session.may_change

        return True

    def _may(self) -> bool:
        if not self.session.may_change:
            self.show_note(Note(READ_ONLY, is_error=True))

        return self.session.may_change

    @work(group="requests")
    async def _send(self, request: Awaitable[object], doing: str, done: str = "") -> None:
        self.show_note(Note(doing))
        self.show_note(await outcome(request, done))
        self.request_status()

    def _permission(self, begin: Literal["call", "rule", "deny"]) -> None:
        asked = self.session.asked
        if asked and self._may():
            self.push_screen(AskPermission(asked[0], begin), self._answer)

    def _answer(self, answer: PermissionAnswer | None) -> None:
        if answer is not None:
            also = f", and every {answer.always} from now on" if answer.always else ""
            done = f"{'Allowed' if answer.decision == 'allow' else 'Denied'}{also}."
            self._send(self.session.client.send(answer), "Answering …", one_line(done))

    def action_allow(self) -> None:
        self._permission("call")

    def action_always(self) -> None:
        self._permission("rule")

    def action_deny(self) -> None:
        self._permission("deny")

    def _send_for_active(
        self, question: str, request: Callable[[], Awaitable[object]], done: str
    ) -> None:
        """Ask about the running step, and send a request after a yes."""
        if not self._may():
            return

        active = active_codon(self.session.state)
        if active is None:
            self.show_note(Note("No step is running.", is_error=True))
            return

        name = title_of_step(self.session.state, active.codon_id)

        def answered(yes: bool | None) -> None:
            if yes:
                self._send(request(), "…", done)

        self.push_screen(Confirm(question.format(name)), answered)

    def action_skip(self) -> None:
        run = self.session.state.current_run_id
        client = self.session.client
        self._send_for_active(
            "Skip {}? This stops its agent, and the plan continues after it.",
            lambda: client.send(CodonSkip(expected_run_id=run)),
            "Skipped.",
        )

    def action_stop(self) -> None:
        run = self.session.state.current_run_id
        client = self.session.client
        self._send_for_active(
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

        def agreed(command: CommandData | None) -> None:
            if command is not None:
                self._send(client.send(command), "Working …", "Started again.")

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
            self.show_note(Note(f"{name} is running: skip or stop it first.", is_error=True))
            return

        newest = thread(self.session.state)[-1].codon.codon_id
        self._ask_back(RollbackGoal.again(self.session.state, step), can_redo=step == newest)

    def _begun_step(self) -> CodonId | None:
        """Return the selected step; show an error if it has not run."""
        step = self.step
        if step is None or execution_of(self.session.state, step) is None:
            self.show_note(Note("This step has not run yet.", is_error=True))
            return None

        return step

    def action_undo(self) -> None:
        if self.session.state.undo:
            self._ask_back(
                RollbackGoal("Undo the last rollback", RollbackPreview(direction="undo"))
            )
        else:
            self.show_note(Note("There is no rollback to undo.", is_error=True))

    def action_redo(self) -> None:
        if self.session.state.redo:
            target = RollbackPreview(direction="redo")
            self._ask_back(RollbackGoal("Redo the rollback that was undone", target))
        else:
            self.show_note(Note("There is no undo to redo.", is_error=True))

    @work(exclusive=True, group="checkpoints")
    async def action_checkpoints(self) -> None:
        async def ask() -> None:
            page = await self.session.client.send(ListCheckpoints(limit=_CHOICE))
            if page.checkpoints:
                self.push_screen(ChooseCheckpoint(page.checkpoints), self._chosen)
            else:
                self.show_note(Note("There are no checkpoints."))

        note = await outcome(ask())
        if note.is_error:
            self.show_note(note)

    def _chosen(self, chosen: Chosen | None) -> None:
        if chosen is None:
            return

        if chosen.compares:
            self._compare(chosen)
        else:
            title = one_line(f"Back to {chosen.title} ({chosen.sha[:12]})")
            self._ask_back(RollbackGoal(title, RollbackPreview(checkpoint_sha=chosen.sha)))

    @work(exclusive=True, group="compare")
    async def _compare(self, chosen: Chosen) -> None:
        async def compare() -> None:
            page = await self.session.client.send(
                CheckpointDiff(
                    from_sha=chosen.sha, to_sha=chosen.other, patch=True, limit=DIFFERENCES
                )
            )
            self.push_screen(Reading("Comparison", blocks_of_diff(page), is_open=True))

        note = await outcome(compare())
        if note.is_error:
            self.show_note(note)
