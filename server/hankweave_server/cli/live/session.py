"""A session of `hankweave attach`, on a terminal (`watch`) or in a pipe (`tell`).

Everything comes over the public protocol. The state is requested once and then updated from the
events; the client library delivers every event, even if the connection is lost and reopened.
`AttachSession` holds the state and the mode of the keys, and `perform` sends what a key asks for.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import assert_never

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from hankweave_client.client import Client, connect_to
from hankweave_client.errors import CommandRefused
from hankweave_client.reconnect import Backoff
from hankweave_protocol import codec
from hankweave_protocol.errors import reason_of
from hankweave_protocol.events import (
    BudgetFigures,
    CodonStartedEvent,
    Event,
    ServerReady,
    StateTransition,
    StoreProgress,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import Mode as Access
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.background_tasks import task_group
from hankweave_server.cli.live.frame import StyledText, Terminal, foot
from hankweave_server.cli.live.keyboard import Keyboard
from hankweave_server.cli.live.keys import (
    Answer,
    Choosing,
    Confirming,
    Consider,
    Foresee,
    List,
    Mode,
    Quit,
    Reading,
    Sight,
    Steer,
    TravelRequest,
    Waiting,
    Watching,
    Wish,
    step,
)
from hankweave_server.cli.live.model import NOTHING, Heard, hear
from hankweave_server.cli.live.view import LiveVoice
from hankweave_server.cli.output.event_lines import RunLines, asking_line
from hankweave_server.cli.output.progress_bar import line_of_progress
from hankweave_server.cli.output.rollback_report import again_text
from hankweave_server.cli.output.text import forecast_text, section_on, size_text
from hankweave_server.clock import SystemClock
from hankweave_server.domain.execution_thread import active_codon, next_codon
from hankweave_server.domain.reducer import apply
from hankweave_server.plain_text import acted_on, counted, harmless, one_line

RECENT = 200
"""Maximum number of past events that are shown first."""


@dataclass(frozen=True, slots=True)
class Past:
    """The history that is known and shown when a session begins."""

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
        self.budget: float | None = None
        """What the hank may use, in USD."""
        self._forecast = ""
        """What the server foresaw when the codon began."""
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
        self.budget = status.budget_usd
        seen = status.forecast
        self._forecast = "" if seen is None else forecast_text(seen, status.total_cost)
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
        if self._forecast and active_codon(self.state) is not None:
            going_on += (StyledText(f"forecast: {self._forecast}", "dim"),)

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
            budget=lambda: session.budget,
        )

    async def live(self, root: Path) -> int:
        past = await self._session.begin()
        greeting = f"Attached to {one_line(str(root))}\n  {self._client.ready.url}"
        self._voice.open(
            "\n".join((*past.lines, greeting)), lambda: self._session.state, past.heard
        )
        with self._keyboard.taken(), self._voice.speaking():
            async with task_group() as tasks:
                tasks.start_soon(self._watch_signals, tasks.cancel_scope)
                tasks.start_soon(self._take_keys, tasks)
                async for event in self._session.news():
                    self._voice.hear(event)
                    if isinstance(event.data, CodonStartedEvent):
                        tasks.start_soon(self._learn_budget)

                tasks.cancel_scope.cancel()

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


# --- requests -------------------------------------------------------------------------------------

CHOICE = 200
"""Maximum checkpoints in the list; `hankweave rollback --to` takes older ones."""

LONGEST_CALL = 8
"""Maximum lines of a tool call, to fit on any terminal."""

_LETTERS = 60

_NAMED = 6
"""Maximum files named under a question."""


async def perform(client: Client, wish: Wish) -> Mode:
    """Send a request and return what to show; a refusal or a lost connection is shown as well."""
    try:
        return await _done(client, wish)
    except CommandRefused as refused:
        section = section_on(refused.code)
        hint = one_line(" ".join(filter(None, (refused.hint, section and f"See docs: {section}"))))
        return Watching(one_line(refused.message), is_complaint=True, hint=hint)
    except ConnectionError as lost:
        return Watching(
            one_line(
                "The connection was lost, and the command may or may not "
                f"have been executed: {reason_of(lost)}"
            ),
            is_complaint=True,
        )


async def _done(client: Client, wish: Wish) -> Mode:
    match wish:
        case Steer():
            return await _steered(client, wish)
        case Consider(request_id=request):
            return await _considered(client, request)
        case Answer(request_id=request, decision=decision):
            await client.answer_permission(request, decision)
            return Watching("Allowed." if decision == "allow" else "Denied.")
        case List():
            page = await client.list_checkpoints(limit=CHOICE)
            return (
                Choosing(page.checkpoints)
                if page.checkpoints
                else Watching("There are no checkpoints.")
            )
        case Foresee():
            return await _foreseen(client, wish)
        case TravelRequest():
            return Watching(_told(await _travelled(client, wish)))
        case Quit():
            return Watching()
        case _:
            assert_never(wish)


async def _steered(client: Client, wish: Steer) -> Mode:
    match wish.what:
        case "next":
            await client.next_codon(expected_run_id=wish.run_id)
        case "skip":
            await client.skip_codon(expected_run_id=wish.run_id)
        case "stop":
            await client.force_stop_codon("stopped from a terminal", expected_run_id=wish.run_id)
        case "redo":
            await client.redo_codon(expected_run_id=wish.run_id)
        case _:
            assert_never(wish.what)

    return Watching({"next": "Started.", "redo": "Started again."}.get(wish.what, "Done."))


async def _considered(client: Client, request: str) -> Mode:
    """Show the complete call and ask; a call that is too long to show cannot be allowed here."""
    pending = (await client.status()).pending_permissions
    asked = next((each for each in pending if each.request_id == request), None)
    if asked is None:
        return Watching("This request has already been answered.")

    lines = [f"{one_line(asked.codon_id)} asks for {one_line(asked.tool_name)}:"]
    for name, value in asked.tool_input.items():
        text = value if isinstance(value, str) else codec.encode(value).decode()
        lines += [f"  {one_line(name)}: {line}" for line in _shown(text)]

    if len(lines) > LONGEST_CALL or sum(map(len, lines)) > LONGEST_CALL * _LETTERS:
        return Watching(
            "The call is too long to show here.",
            is_complaint=True,
            hint=(
                "`hankweave permissions --json` shows it; `hankweave allow "
                f"{one_line(request)}` allows it."
            ),
        )

    wish = Answer(request, "allow")
    return Confirming("Allow it? This cannot be undone. [y/N]", wish, tuple(lines))


def _shown(text: str) -> list[str]:
    return harmless(text).expandtabs(4).split("\n")


# --- rollback -------------------------------------------------------------------------------------


async def _foreseen(client: Client, wish: Foresee) -> Mode:
    """Show a preview and ask; the answer is valid only for the run that was current before it."""
    status = await client.status()
    report = await client.preview_rollback(checkpoint_sha=wish.sha, direction=wish.direction)
    lines = _lines_of(report)
    if client.mode == "readonly":
        return Reading(lines)

    active = status.active_codon_id
    what = {"undo": "Undo the rollback?", "redo": "Redo it?", None: "Go back?"}[wish.direction]
    stops = (
        "" if active is None else (f" {one_line(active)} is running, and will be stopped first.")
    )
    go = TravelRequest(
        wish.sha, wish.direction, status.current_run_id, "refuse" if active is None else "stop"
    )
    return Confirming(f"{what}{stops} [y/N]", go, lines)


async def _travelled(client: Client, wish: TravelRequest) -> RollbackReport:
    run, on_running = wish.run_id, wish.on_running
    if wish.direction == "undo":
        return await client.undo(on_running=on_running, expected_run_id=run)

    if wish.direction == "redo":
        return await client.redo(on_running=on_running, expected_run_id=run)

    if wish.sha is None:
        return await client.roll_back_to_last_success(on_running=on_running, expected_run_id=run)

    return await client.roll_back_to_checkpoint(
        wish.sha, on_running=on_running, expected_run_id=run
    )


def _lines_of(report: RollbackReport) -> tuple[str, ...]:
    at = report.target
    of = f" of {one_line(at.codon_id)}" if at.codon_id else ""
    touched = (
        *((f"+ {one_line(file.path)}", file.bytes) for file in report.added),
        *((f"~ {one_line(file.path)}", file.bytes) for file in report.updated),
        *((f"- {one_line(file.path)}", file.bytes) for file in report.removed),
    )
    named = [f"  {name}  {size_text(size)}" for name, size in touched[:_NAMED]]
    counts = report.counts
    more = counts.added + counts.updated + counts.removed - len(named)
    edited = acted_on(counts.conflicts, "of these", "of these")
    unrestored = counted(counts.cannot_restore, "path")
    return (
        f"to checkpoint {at.checkpoint_sha[:12]}{of}: {_count(report)}",
        *named,
        *([f"  and {more} more"] if more else []),
        *([f"  {edited} edited by people"] * bool(counts.conflicts)),
        *([f"  {unrestored} cannot be restored"] * bool(counts.cannot_restore)),
        *([f"  {again}"] if (again := again_text(report)) else []),
    )


def _count(report: RollbackReport) -> str:
    counts = report.counts
    return (
        f"{counted(counts.added, 'file')} added, {counts.updated} updated, {counts.removed} removed"
    )


def _told(report: RollbackReport) -> str:
    left = report.counts.cannot_restore
    but = f", {counted(left, 'path')} could not be restored (see the log)" if left else ""
    return f"At {report.target.checkpoint_sha[:12]}: {_count(report)}{but}. Press u to undo."
