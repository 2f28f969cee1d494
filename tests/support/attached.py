"""The screen of `attach`, without a terminal and without a server.

`FixedClient` answers from a journal in memory, with the server's own query engine, and from fixed
replies. It is unrealistic in that a request changes nothing: it is recorded in `sent`, and a test
publishes what it wants to follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
from textual.pilot import Pilot

from hankweave_client.client import Client
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CheckpointDiff,
    CodonNext,
    CodonReadResult,
    CodonRedo,
    CommandData,
    EventsQuery,
    GetServerStatus,
    GetState,
    ListCheckpoints,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import (
    AssistantAction,
    Event,
    EventData,
    PermissionRequested,
    ServerReady,
    ToolResult,
)
from hankweave_protocol.ids import CodonId, EventSeq, RunId, Sha
from hankweave_protocol.instants import to_text
from hankweave_protocol.records import (
    CheckpointRecord,
    Coordinate,
    KeptFile,
    PendingPermission,
    RollbackReport,
    RunsAgain,
    RuntimeLock,
    TouchedFile,
    Travel,
)
from hankweave_protocol.replies import (
    CheckpointPage,
    CodonChosen,
    DiffPage,
    DiffStats,
    FileDifference,
    Forecast,
    Mode,
    ServerStatus,
    StepForecast,
    ToolOutput,
)
from hankweave_protocol.state import CodonExecution, RunningCodon, State
from hankweave_server.cli.attach.screen import Attached
from hankweave_server.cli.attach.session import AttachSession
from hankweave_server.clock import Clock
from hankweave_server.domain.event_filter import events_page
from support.histories import completed, running, sha
from support.showing import NOW, state_of
from support.waiting import eventually


class StillClock:
    """A clock that stands still."""

    def __init__(self, moment: datetime = NOW) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return 0.0


class FixedClient(Client):
    """A session with a server that holds a state and a journal."""

    def __init__(
        self,
        state: State,
        events: tuple[tuple[float, EventData], ...] = (),
        *,
        status: ServerStatus,
        replies: Mapping[type[CommandData], object] | None = None,
        mode: Mode = "readandwrite",
    ) -> None:
        """Hold events with their seconds before `NOW`, and a reply for each type of a command."""
        self.state_now = state
        self.status_now = status
        self.replies = dict(replies or {})
        self.sent: list[CommandData] = []
        self.is_up = True
        self._granted: Mode = mode
        self._journal: list[bytes] = []
        self._pending: asyncio.Queue[Event] = asyncio.Queue()
        for seconds, data in events:
            self._append(data, NOW - timedelta(seconds=seconds))

    @property
    def mode(self) -> Mode:
        return self._granted

    @property
    def is_connected(self) -> bool:
        return self.is_up

    @property
    def last_seq(self) -> int:
        return len(self._journal)

    @property
    def ready(self) -> ServerReady:
        return READY

    def publish(self, data: EventData, **changes: Any) -> None:
        """Append an event and send it; `changes` are fields of the status from then on."""
        self.status_now = msgspec.structs.replace(self.status_now, **changes)
        self._pending.put_nowait(self._append(data, NOW))

    def _append(self, data: EventData, at: datetime) -> Event:
        seq = len(self._journal) + 1
        event = Event(
            id=f"e{seq}", seq=EventSeq(seq), timestamp=to_text(at), type=data.TYPE, data=data
        )
        self._journal.append(codec.encode(event))
        return event

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._pending.get()

    async def send(self, command: CommandData) -> Any:
        reply: Any
        match command:
            case EventsQuery():
                lines = self._journal
                page = events_page(command, lambda since, n: lines[since : since + n], len(lines))
                reply = msgspec.json.decode(codec.encode(page), type=type(page))
            case GetState():
                reply = msgspec.structs.replace(self.state_now, last_event_seq=len(self._journal))
            case GetServerStatus():
                reply = self.status_now
            case _:
                if command.MUTATES:
                    self.sent.append(command)

                reply = self.replies.get(type(command))
                reply = reply(command) if callable(reply) else reply

        return reply


READY = ServerReady(
    server_version="0",
    execution_path="/home/ann/.hankweave-executions/1795233600000-k3f9-a1b2c3",
    agent_root_path="/work/agentRoot",
    data_path=None,
    port=43127,
    url="ws://127.0.0.1:43127/ws",
)


def a_status(
    active: str | None = None, asked: tuple[PendingPermission, ...] = (), **fields: Any
) -> ServerStatus:
    """Return the status of a server; only what `attach` shows of it is of interest."""
    known: dict[str, Any] = {
        "server_version": "0",
        "pid": 1,
        "execution_path": READY.execution_path,
        "started_at": to_text(NOW),
        "uptime_ms": 0,
        "current_run_id": RunId("run-1"),
        "active_codon_id": None if active is None else CodonId(active),
        "next_codon_id": None,
        "is_rolling_back": False,
        "last_event_seq": 0,
        "total_cost": 0.0,
        "checkpoints": 0,
        "clients": 1,
        "lock": RuntimeLock(pid=1, run_id=None, start_time="", last_heartbeat=""),
        "store_bytes": 0,
        "store_packs": 0,
        "store_loose_objects": 0,
        "containment": "subreaper",
        "hank_name": "Orders to model",
        "pending_permissions": asked,
    }
    return ServerStatus(**(known | fields))


@asynccontextmanager
async def attached_to(
    client: Client, columns: int = 80, lines: int = 24, *, clock: Clock | None = None
) -> AsyncIterator[Pilot[int]]:
    """Show a session on a screen in memory, and wait until it is drawn."""
    session = AttachSession(client, clock or StillClock())
    await session.begin()
    app = Attached(session)
    async with app.run_test(size=(columns, lines)) as pilot:
        await at_rest(pilot)
        yield pilot


async def at_rest(pilot: Pilot[int]) -> None:
    """Wait until the screen shows everything that was asked for."""
    app = pilot.app
    assert isinstance(app, Attached)
    before = ""

    async def stays() -> bool:
        """Return whether nothing is asked for, and the screen is what it was before a pause."""
        nonlocal before
        await pilot.pause()
        last, before = before, text_of(pilot)
        return app.is_settled and before == last

    await eventually(stays)


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys one after the other, as a person does who looks at the screen."""
    for key in keys:
        await pilot.press(key)
        await at_rest(pilot)


def text_of(pilot: Pilot[int]) -> str:
    """Return what is on the screen, line by line."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def until(pilot: Pilot[int], holds: Callable[[str], bool]) -> None:
    """Wait until the text on the screen is as it should be."""

    async def holds_now() -> bool:
        await pilot.pause()
        return holds(text_of(pilot))

    try:
        await eventually(holds_now)
    except TimeoutError:
        raise AssertionError(text_of(pilot)) from None


# --- a scene --------------------------------------------------------------------------------------

PLAN = ("fetch", "review#0", "review#1", "review#2", "check", "report", "charts")
CHECK = CodonId("check")


def done() -> tuple[CodonExecution, ...]:
    """Return the steps before `check`, each with a cost and a checkpoint."""
    names = ("fetch", "review#0", "review#1", "review#2")
    return tuple(
        msgspec.structs.replace(completed(name, number), final_cost=0.4 * number)
        for number, name in enumerate(names, start=1)
    )


def call(number: int, tool: str, **given: object) -> AssistantAction:
    return AssistantAction(
        codon_id=CHECK,
        action="tool_use",
        content="",
        tool_name=tool,
        tool_input=given,
        tool_use_id=f"call-{number}",
    )


def result(number: int, text: str = "", *, ms: int = 20, **fields: Any) -> ToolResult:
    known: dict[str, Any] = {
        "codon_id": CHECK,
        "tool_use_id": f"call-{number}",
        "tool_name": "",
        "result": text,
        "truncated": False,
        "original_length": len(text),
        "execution_time_ms": ms,
        "is_error": False,
    }
    return ToolResult(**(known | fields))


def message(text: str) -> AssistantAction:
    return AssistantAction(codon_id=CHECK, action="message", content=text)


RAW = '    raw = row["depth"].strip()\n'
EVENTS: tuple[tuple[float, EventData], ...] = (
    (88, message("The schema from the last review allows an **empty** depth. I check every row.")),
    (87, call(1, "Read", file_path="/work/agentRoot/src/records.py")),
    (86, result(1, ms=900)),
    (85, call(2, "Read", file_path="/work/agentRoot/schema/orders.json")),
    (84, result(2, ms=1200)),
    (83, call(3, "Grep", pattern="depth")),
    (82, result(3)),
    (
        80,
        call(
            4,
            "Edit",
            file_path="/work/agentRoot/src/records.py",
            old_string='    depth = float(row["depth"])\n    return depth\n',
            new_string=f"{RAW}    depth = float(raw or 0)\n    return depth\n",
        ),
    ),
    (79, result(4)),
    (78, call(5, "Bash", command="python3 -m pytest -q tests")),
    (72, result(5, "....F\n1 failed, 4 passed", ms=6400, is_error=True)),
    (
        70,
        message("One row has no depth. The rule has to be:\n\n- no depth: 0\n- else a number"),
    ),
)

PUSH = PermissionRequested(
    codon_id=CHECK,
    request_id="r1",
    tool_name="Bash",
    tool_input={"command": "git push origin main"},
    expires_at=to_text(NOW + timedelta(minutes=9)),
    reason="No rule covers it.",
    suggestion="Bash(git push *)",
)


def pending(asked: PermissionRequested) -> PendingPermission:
    return PendingPermission(**msgspec.structs.asdict(asked))


def at(number: int, codon: str | None) -> Coordinate:
    codon_id = None if codon is None else CodonId(codon)
    return Coordinate(
        checkpoint_sha=sha(number), event_seq=number, run_id=RunId("run-1"), codon_id=codon_id
    )


def a_checkpoint(number: int, kind: str, codon: str, summary: str) -> CheckpointRecord:
    return CheckpointRecord(
        sha=sha(number),
        kind=kind,  # type: ignore[arg-type]
        coordinate=at(number, codon),
        codon_name="",
        timestamp=to_text(NOW + timedelta(minutes=number)),
        operation_id=f"op-{number}",
        summary=summary,
    )


CHECKPOINTS = CheckpointPage(
    checkpoints=(
        a_checkpoint(6, "tool", "check", "Edit src/records.py +2 −1"),
        a_checkpoint(4, "completed", "review#2", "codon completed · 3 files +40 −31"),
        a_checkpoint(3, "tool", "review#2", "Edit schema/orders.json +9 −30"),
        a_checkpoint(1, "completed", "fetch", "codon completed · 12 files +1,204"),
    ),
    current_branch=None,
)


def touched(*paths: str) -> tuple[TouchedFile, ...]:
    return tuple(TouchedFile(path=path, bytes=1200) for path in paths)


def preview(command: RollbackPreview) -> RollbackReport:
    """Return what a rollback would do; people's edits are kept if the command says so."""
    yours = (KeptFile(path="notes.md", reason=""),)
    return RollbackReport(
        target=at(4, "review#2"),
        source=at(6, "check"),
        safety=None,
        added=(),
        updated=touched("src/records.py", "schema/orders.json"),
        removed=touched("out/check.json"),
        kept=yours if command.keep_edits else (),
        conflicts=yours,
        skipped=(),
        recovered=False,
        runs_again=RunsAgain(codon_ids=(CHECK,), total=1, estimated_cost=0.2, estimated_ms=64_000),
        target_title="codon completed · 3 files +40 −31",
    )


PATCH = """--- a/src/records.py
+++ b/src/records.py
@@ -41,2 +41,3 @@
-    depth = float(row["depth"])
+    raw = row["depth"].strip()
+    depth = float(raw or 0)
     return depth
"""


def difference(command: CheckpointDiff) -> DiffPage:
    return DiffPage(
        from_sha=Sha(command.from_sha),
        to_sha=None if command.to_sha is None else Sha(command.to_sha),
        from_title="codon completed · 3 files +40 −31",
        files=(
            FileDifference(path="notes.md", status="created", added=2, removed=0),
            FileDifference(
                path="src/records.py",
                status="modified",
                added=2,
                removed=1,
                patch=PATCH if command.patch else None,
            ),
        ),
        stats=DiffStats(files=2, added=4, removed=1),
    )


REPLIES: Mapping[type[CommandData], object] = {
    CheckpointDiff: difference,
    ListCheckpoints: CHECKPOINTS,
    RollbackPreview: preview,
    **dict.fromkeys(
        (RollbackToCheckpoint, RollbackToCodon, RollbackUndo, RollbackRedo),
        lambda _: preview(RollbackPreview(keep_edits=True)),
    ),
    CodonRedo: CodonChosen(codon_id=CHECK),
    CodonNext: CodonChosen(codon_id=CHECK),
    CodonReadResult: ToolOutput(content="the whole result\n" * 60, size=1020),
}


def a_scene(
    *codons: CodonExecution,
    asked: PermissionRequested | None = None,
    events: tuple[tuple[float, EventData], ...] = EVENTS,
    mode: Mode = "readandwrite",
    **changes: Any,
) -> FixedClient:
    """Return a session whose step `check` runs, or the last of `codons`; it may ask for a push."""
    steps = codons or (running("check"),)
    state = state_of(*done(), *steps, plan=PLAN)
    state = msgspec.structs.replace(state, initial_checkpoint=sha(9), edits={"notes.md": ""})
    is_active = isinstance(steps[-1], RunningCodon)
    if asked is not None:
        given = asked.tool_input
        events = (*events, (60, call(6, asked.tool_name, **given)), (59, asked))

    return FixedClient(
        msgspec.structs.replace(state, **changes),
        events,
        status=a_status(
            "check" if is_active else None,
            () if asked is None else (pending(asked),),
            budget_usd=25.0,
            forecast=FORECAST,
        ),
        replies=REPLIES,
        mode=mode,
    )


FORECAST = Forecast(
    remaining_ms=240_000,
    cost_at_end=6.1,
    basis="from 3 earlier runs",
    steps=(
        StepForecast(codon_id=CHECK, ms=20_000, cost=0.1),
        StepForecast(codon_id=CodonId("report"), ms=130_000, cost=0.4),
        StepForecast(codon_id=CodonId("charts"), ms=90_000, cost=0.3),
    ),
)
UNDOABLE = (Travel(operation_id="op-1", safety=sha(8), source=None),)
