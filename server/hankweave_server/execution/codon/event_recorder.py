"""Turn the signals of a codon's agent into events, costs and checkpoints, in their order.

The recorder also counts the agent's steps, because a checkpoint may be due after every so many of
them (`every_n_steps`); one step is an answer of the model and the tools it called with it. And it
keeps the answer of the agent: the text of its result, else its last message, else what it printed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

import anyio
import anyio.to_thread

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    FileSource,
    ToolResult,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import Captured, Tokens
from hankweave_server.agents.base import (
    AgentSaid,
    AgentSession,
    AgentSignal,
    ContextExceeded,
    LimitReported,
    MessageNamed,
    MessageReceived,
    PermissionAsked,
    PermissionWithdrawn,
    PlainOutput,
    RequestTimedOut,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    ToolAnnounced,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from hankweave_server.agents.process.process_table import has_older, ticks_now
from hankweave_server.domain.effects import calls
from hankweave_server.domain.effects.tools import READ_ONLY_TOOLS
from hankweave_server.domain.limits import LimitFacts
from hankweave_server.execution.codon.authorship import NOTHING, AgentCalls, Reach
from hankweave_server.execution.codon.costs import CodonCosts
from hankweave_server.execution.codon.file_changes import (
    SHORTEST,
    SHORTEST_BETWEEN_LINES,
    SHORTEST_IN_A_CALL,
    FileChangeReporter,
    News,
    ScanSchedule,
    picture,
)
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits
from hankweave_server.ledger.batch import Entry
from hankweave_server.settings import SafePoint

LABEL = "architect:checkpoint:step-"
"""Label of a step's checkpoint, before the step's number."""


class AgentSteps:
    """The steps of one codon's agent; counting continues through its extensions."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._ended = 0
        self._calls: set[str] = set()

    def note_message(self) -> None:
        """Forget the calls of earlier answers: what has not returned by now never will."""
        self._calls.clear()

    def called(self, tool_use_id: str) -> None:
        self._calls.add(tool_use_id)

    def returned(self, tool_use_id: str) -> str | None:
        """Note a tool's return; return the label of a checkpoint if one is due now."""
        self._calls.discard(tool_use_id)
        if self._calls:
            return None  # Its answer called other tools too.

        self._ended += 1
        is_due = self._every is not None and self._ended % self._every == 0
        return f"{LABEL}{self._ended}" if is_due else None


LIMIT = 64 * 1024
"""Characters of an answer that go into the state; the codon's log has all of it."""

LONGEST_SECRET = 4096
"""Characters beyond a limit that are read to recognize a secret that the limit would cut."""

STDERR_LINES_KEPT = 20
"""Lines of stderr kept to say why an agent failed."""


class ConversationResult:
    """The result of one conversation with the agent: its answer, and how it ended.

    `clean` removes secrets from its answer.
    """

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self._clean = clean
        self.result: ResultReported | None = None
        self.request_timed_out = False
        self.context_exceeded = False
        self.compacted = False
        self.facts = LimitFacts()
        """The facts that the agent has reported about limits of its provider."""
        self.has_worked = False
        """The model has answered: it called a tool, thought, or spent tokens on an answer."""
        self._last_text = ""
        self._printed: list[str] = []
        self._printed_characters = 0
        self._error_lines: deque[str] = deque(maxlen=STDERR_LINES_KEPT)

    @property
    def failure_text(self) -> str:
        """The text that says why the agent failed."""
        if self.result is not None and self.result.text:
            return self.result.text

        return "\n".join(self._error_lines)

    def worked(self) -> None:
        """Note that the model has answered; an error that was reported before is over."""
        self.has_worked = True
        self.facts = LimitFacts()

    def reported(self, facts: LimitFacts) -> None:
        self.facts = self.facts.merged(facts)

    def note_text(self, text: str) -> None:
        self._last_text = text or self._last_text

    def printed(self, line: str) -> None:
        """Add a line of a program that sends no messages; drop lines beyond the limit."""
        if self._printed_characters <= LIMIT:
            self._printed.append(line)
            self._printed_characters += len(line) + 1

    def note_error_line(self, line: str) -> None:
        """Keep a line that may say why the agent failed."""
        self._error_lines.append(line)

    def captured_as(self, name: str) -> Captured:
        """Return the answer as a variable's value."""
        result = self.result.text if self.result is not None and self.result.success else ""
        text = result or self._last_text or "\n".join(self._printed)
        text = self._clean(text)  # Before it is cut, as a part would not be recognized.
        return Captured(name=name, value=text[:LIMIT], truncated=len(text) > LIMIT)


DEEPEST_INPUT = codec.MAX_DEPTH // 2
"""Levels of a tool's input that go into an event unchanged: frames may nest twice as deep."""

TREE_INTERVAL = 5.0
"""Seconds between two `filetree.updated` events while an agent works; each takes kilobytes."""

CHATTER = 16
"""Messages in a row without a changed file after which the agent counts as only talking."""

CHATTER_INTERVAL = 0.1
"""Seconds between two scans for an agent that only talks: it may send thousands a second."""


class EventRecorder:
    """A recorder of one codon's events, which also keeps what the verdict on it needs."""

    def __init__(
        self,
        ctx: ExecutionContext,
        run_id: RunId,
        codon_id: CodonId,
        *,
        on_safe_point: Callable[[SafePoint, str | None], Awaitable[None]],
        on_turn: Callable[[Tokens], None],
        written_by_sentinels: Callable[[], frozenset[bytes]] = frozenset,
        saves_before_tools: bool = False,
    ) -> None:
        """`saves_before_tools` overrides the settings for an agent that asks for permission.

        `written_by_sentinels` returns paths in the work tree.
        """
        overrides = ctx.hank.hank.overrides
        self._steps = AgentSteps(None if overrides is None else overrides.checkpoint_every_steps)
        self.conversation = ConversationResult(ctx.ledger.redactor.text)
        self.files = anyio.Lock()
        """Held while the work tree is scanned, and by any task that needs it to stand still."""
        self._saving = anyio.Lock()
        """Held while a safe point is reached, so that one change makes one checkpoint."""
        self._ctx = ctx
        self._on_safe_point = on_safe_point
        self._points = ctx.safe_points
        if saves_before_tools:
            self._points |= {"before-tool"}

        self._on_turn = on_turn
        """Called with the tokens of a message when they are counted."""
        self._written_by_sentinels = written_by_sentinels
        self._news = FileChangeReporter(ctx)
        self._inside = ctx.layout.inside
        self._run_id = run_id
        self._codon_id = codon_id
        self._costs = CodonCosts(run_id, codon_id, ctx.price)
        self._called_at: dict[str, float] = {}
        self._calls = AgentCalls(waits=True)
        self._session: AgentSession | None = None
        self._first_processes: frozenset[int] | None = None
        self._scanned_ticks = 0
        self._waits = False
        """The agent waits before it calls a tool that may change files."""
        self._asked_ahead = 0
        """Calls that the agent has waited for and that have not returned."""
        self._unasked: set[str] = set()
        """Tools that the agent was seen to call without waiting."""
        self._schedule = ScanSchedule(0.0)
        self._announced = ""
        """The call that caused the last scan ahead of a tool."""
        self._is_unsaved = False
        """Files changed since the last checkpoint of this codon."""
        self._tools: dict[str, None] = {}
        """The tools whose calls changed them, in order."""
        self._has_changed = False
        """Files changed since the last checkpoint of its steps."""
        self._fruitless_scans = 0
        self._scanned_at = -math.inf
        self._is_tree_sent = False
        self._tree_sent_at = -math.inf
        self.session_id: str | None = None
        self.message_id: str | None = None
        """The newest message after which no tool call is open: one to fork after."""
        self._naming: str | None = None
        """The message that signals belong to now."""

    def take_over(self, session_id: str, cost: float, tokens: Tokens) -> None:
        """Continue a codon of an earlier server, which was in this conversation."""
        self.session_id = session_id
        self._costs.carry_over(cost, tokens)

    def begin_conversation(self, *, waits: bool = False) -> None:
        """Reset what belongs to a conversation; the cost of earlier ones stays counted.

        `waits`: the agent announces each tool that may change files, and waits for an answer.
        """
        self._waits = waits
        self._calls = AgentCalls(waits=waits)
        self._session = None
        self._first_processes = None
        self._asked_ahead = 0
        self._schedule = ScanSchedule(anyio.current_time())
        self._called_at.clear()
        self._costs.begin_conversation()
        self.conversation = ConversationResult(self._ctx.ledger.redactor.text)

    async def record(self, signal: AgentSignal) -> None:
        """Record the events of one signal; the caller handles a session's start."""
        match signal:
            case SessionStarted(session_id=session_id, model=model):
                self.session_id = session_id
                self._costs.begin_session(model)
            case MessageNamed(message_id=message_id):
                self._naming = message_id
            case AgentSaid(text=text):
                self._calls.note_message()
                self._note_message()
                self.conversation.note_text(text)
                self._steps.note_message()
                await self._act("message", text)
                await self._message_ended()
            case Thought(text=text):
                self._calls.note_message()
                self.conversation.worked()
                self._note_message()
                await self._act("thinking", text)
            case ToolAnnounced(tool_use_id=tool_use_id, name=name):
                await self._scan_ahead_of(tool_use_id, name)
            case ToolCalled():
                await self._tool_called(signal)
            case ToolReturned():
                await self._tool_returned(signal)
            case LimitReported(facts=facts):
                self.conversation.reported(facts)
            case UsageReported():
                if signal.tokens.output_tokens:
                    self.conversation.worked()

                if entries := self._costs.count(signal):
                    await self._post(*entries)
                    self._on_turn(signal.tokens)
            case ResultReported():
                self.conversation.result = signal
                if entries := self._costs.conclude(signal):
                    await self._post(*entries)
            case PlainOutput(line=line):
                self._calls.printed()
                self.conversation.printed(line)
                await self._post(AgentOutput(codon_id=self._codon_id, stream="stdout", line=line))
                await self._scan_between_lines()
            case Stderr(line=line):
                self.conversation.note_error_line(line)
                await self._post(AgentOutput(codon_id=self._codon_id, stream="stderr", line=line))
                await self._scan_between_lines()
            case ContextExceeded(reason="compact_boundary"):
                self.conversation.compacted = True
            case ContextExceeded(reason=reason):
                self.conversation.context_exceeded = True
                self.conversation.note_error_line(reason)
            case RequestTimedOut(reason=reason):
                self.conversation.request_timed_out = True
                self.conversation.note_error_line(reason)
            case PermissionAsked():
                await self._tool_asked(signal)
            case PermissionWithdrawn() | MessageReceived():
                pass  # Journaled by the task that waits for an answer or left the notice.
            case _:
                assert_never(signal)

    def _note_message(self) -> None:
        if not self._called_at:
            self.message_id = self._naming or self.message_id

    async def announce_files(self, source: FileSource) -> None:
        """Report what changed in the tracked files since the last scan, and the resulting tree.

        All of it was changed by the source: a rig, or the commands of checks.
        """
        async with self.files:
            news = await self._news.scan_and_report(source, self._run_id, self._codon_id)

        await self._note_news(news, source)

    async def announce_work(
        self, source: FileSource, first: tuple[Entry, ...] = (), *, is_frequent: bool = False
    ) -> None:
        """Report what the agent changed since the last scan, and what people did meanwhile.

        `first` is posted before.
        """
        async with self.files:
            news = await self._scan_work(source, first, is_frequent=is_frequent)

        await self._note_news(news, source)

    async def _scan_work(
        self, source: FileSource, first: tuple[Entry, ...] = (), *, is_frequent: bool = False
    ) -> News:
        calls = self._calls
        tools = calls.tools
        before = calls.scans() | Reach(paths=self._written_by_sentinels())

        async def by_people(paths: Iterable[bytes]) -> frozenset[bytes]:
            reach = before | calls.reach  # A call may have begun while the files were scanned.
            people = frozenset(path for path in paths if not reach.covers(path))
            if people and not self._waits:
                reach = await self._reach_of_unread_calls()
                people = frozenset(path for path in people if not reach.covers(path))

            return frozenset() if people and await self._has_left_processes() else people

        news = await self._news.scan_and_report(
            source,
            self._run_id,
            self._codon_id,
            first=first,
            by_people=by_people,
            is_frequent=is_frequent,
        )
        taken = calls.credit(news.people)
        if taken:
            await self._post(*user_edits.by_agents(self._ctx.state, taken))
            news = replace(news, people=news.people - taken, agents=True)

        if news.agents:
            self._tools |= dict.fromkeys(tools)

        self._scanned_ticks = ticks_now()
        return news

    def follow(self, session: AgentSession) -> None:
        """Take notice of an agent's processes, and of calls that it has printed already."""
        self._session = session

    async def _reach_of_unread_calls(self) -> Reach:
        """Return what an agent that does not wait may have changed in calls that are not read yet.

        A call that may change anything counts only if it is the next one: before it, the agent has
        changed what the calls before it name.
        """
        reach = NOTHING
        for signal in () if self._session is None else await self._session.unread_signals():
            if isinstance(signal, ToolCalled):
                more = await self._reach_of(signal.name, signal.input)
                if reach == NOTHING or not more.anything:
                    reach |= more

        return reach

    async def _has_left_processes(self) -> bool:
        """Return whether a process runs that a call has left behind: it may have changed files.

        One that was started after the last scan is none, but for example a hook.
        """
        known, session = self._first_processes, self._session
        if known is None or session is None:
            return False

        def has_left() -> bool:
            return has_older(session.processes() - known, self._scanned_ticks)

        return await anyio.to_thread.run_sync(has_left)

    async def _note_first_processes(self, reach: Reach) -> None:
        """Remember which processes the agent has before its first call of a command."""
        if reach.anything and self._first_processes is None and self._session is not None:
            self._first_processes = await anyio.to_thread.run_sync(self._session.processes)

    async def _note_news(self, news: News, source: FileSource) -> None:
        self._is_unsaved |= news.any
        self._has_changed |= news.any
        self._fruitless_scans = 0 if news.any else self._fruitless_scans + 1
        self._is_tree_sent &= not news.moved
        now = self._scanned_at = self._ctx.clock.monotonic()
        is_late = now - self._tree_sent_at >= TREE_INTERVAL or source.kind != "tool_use"
        if not self._is_tree_sent and is_late:
            self._is_tree_sent, self._tree_sent_at = True, now
            await self._post(await picture(self._ctx))

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose calls have changed files since the last checkpoint."""
        return tuple(self._tools)

    def has_saved(self) -> None:
        """Note that a checkpoint holds everything recorded until now."""
        self._is_unsaved = False
        self._tools.clear()

    def has_unsaved(self) -> None:
        """Note changes that no checkpoint holds: the agent must not overwrite them unsaved."""
        self._is_unsaved = True

    async def announce_frozen_work(self) -> None:
        """Report what the agent did until it was frozen; the caller holds `files`."""
        await self._scan_work(FileSource(kind="tool_use"))

    async def _act(self, action: str, content: str) -> None:
        await self._post(
            AssistantAction(
                codon_id=self._codon_id,
                action="message" if action == "message" else "thinking",
                content=content,
            )
        )

    async def _message_ended(self) -> None:
        """Handle the end of a message, a boundary people see: make it a target to go back to."""
        since = self._ctx.clock.monotonic() - self._scanned_at
        is_chatter = self._fruitless_scans > CHATTER and since < CHATTER_INTERVAL
        if "turn" in self._points and not is_chatter:
            await self.announce_work(FileSource(kind="tool_use"), is_frequent=True)
            await self._reach("turn")

    # --- scans before the agent writes -----------------------------------------------------------

    async def watch(self) -> None:
        """Scan the files while the agent works without waiting; runs until cancelled.

        The files of an agent that waits are scanned only during its calls: a shell command can take
        minutes, and a person may edit what it is going to overwrite.
        """
        while "before-tool" in self._points:
            shortest = SHORTEST_IN_A_CALL if self._waits else SHORTEST
            due_in = self._schedule.due_in(anyio.current_time(), shortest)
            if due_in > 0:
                await anyio.sleep(due_in)
            elif self._waits and not self._called_at:
                await anyio.sleep(shortest)
            else:
                await self._scan()

    async def _scan_between_lines(self) -> None:
        due_in = self._schedule.due_in(anyio.current_time(), SHORTEST_BETWEEN_LINES)
        if not self._waits and due_in <= 0:
            await self._scan()

    async def _tool_asked(self, asked: PermissionAsked) -> None:
        """Handle an agent that waits: nothing that this tool will do has been done."""
        if asked.name not in READ_ONLY_TOOLS:
            self._asked_ahead += 1
            await self._scan()
            reach = await self._reach_of(asked.name, asked.input)
            await self._note_first_processes(reach)
            self._calls.asked(asked.name, reach)
            # Durable before it begins: after a crash, the journal says what it may have changed.
            await self._ctx.ledger.catch_up(waits_for_space=False)

    async def _scan_ahead_of(self, tool_use_id: str, name: str) -> None:
        """Scan the files of an agent that announces its calls but does not wait.

        It works on meanwhile: the checkpoint may hold a part of what the call does.
        """
        if tool_use_id == self._announced or name in READ_ONLY_TOOLS:
            return

        if not self._waits or name in self._unasked:
            self._announced = tool_use_id
            await self._scan()

    async def _scan(self) -> None:
        """Save the present files, if anything has changed, before an agent changes more."""
        if "before-tool" in self._points:
            started = anyio.current_time()
            await self.announce_work(FileSource(kind="tool_use"), is_frequent=True)
            cost = anyio.current_time() - started
            await self._reach("before-tool")
            self._schedule.note_scan(anyio.current_time(), cost)

    def _note_whether_it_waited(self, done: ToolReturned) -> None:
        """Count an answered request off, or remember a tool that is called without one.

        A failed call proves nothing: one with wrong arguments is refused before it is asked.
        """
        if self._asked_ahead > 0:
            self._asked_ahead -= 1
        elif self._waits and not done.is_error:
            self._unasked.add(done.name)

    async def _reach(self, point: SafePoint) -> None:
        async with self._saving:
            if self._is_unsaved and point in self._points:
                await self._on_safe_point(point, None)

    async def _reach_of(self, tool: str, given: Mapping[str, object]) -> Reach:
        """Return what a call may change; links in its paths are resolved."""
        if tool in READ_ONLY_TOOLS:
            return NOTHING

        work_tree = self._ctx.layout.work_tree
        return await anyio.to_thread.run_sync(user_edits.reach_in, work_tree, tool, given)

    async def _tool_called(self, call: ToolCalled) -> None:
        self.conversation.worked()
        reach = await self._reach_of(call.name, call.input)
        await self._note_first_processes(reach)
        asks = call.name not in self._unasked
        taken = self._calls.called(call.tool_use_id, call.name, call.input, reach, asks=asks)
        await self._scan_ahead_of(call.tool_use_id, call.name)
        self._called_at[call.tool_use_id] = self._ctx.clock.monotonic()
        self._steps.called(call.tool_use_id)
        await self._post(
            *user_edits.by_agents(self._ctx.state, taken),
            AssistantAction(
                codon_id=self._codon_id,
                action="tool_use",
                content="",
                tool_name=call.name,
                tool_input=readable(call.input),
                tool_use_id=call.tool_use_id,
                external=bool(calls.of_call(call.name, call.input, self._inside)),
            ),
        )

    async def _tool_returned(self, done: ToolReturned) -> None:
        called_at = self._called_at.pop(done.tool_use_id, None)
        if called_at is None:
            return

        self._note_message()
        limit = self._ctx.tool_result_limit
        result, cut = done.result, len(done.result) > limit
        if cut:  # A secret at the limit would not be recognized later.
            result = self._ctx.ledger.redactor.text(result[: limit + LONGEST_SECRET])

        entries: tuple[Entry, ...] = (
            *user_edits.by_agents(self._ctx.state, self._calls.returned(done.tool_use_id)),
            ToolResult(
                codon_id=self._codon_id,
                tool_use_id=done.tool_use_id,
                tool_name=done.name,
                result=result[:limit] + "..." if cut else result,
                truncated=cut,
                original_length=len(done.result),
                execution_time_ms=round((self._ctx.clock.monotonic() - called_at) * 1000),
                is_error=done.is_error,
            ),
        )
        has_written = done.name not in READ_ONLY_TOOLS
        if has_written:
            self._note_whether_it_waited(done)
            source = FileSource(kind="tool_use", tool_use_id=done.tool_use_id)
            # In one piece: after a crash, a call with a result has been followed by a scan.
            await self.announce_work(source, first=entries, is_frequent=True)
        else:
            await self._post(*entries)

        label = self._steps.returned(done.tool_use_id)
        if label is not None and self._has_changed:
            self._has_changed = False
            await self._on_safe_point("turn", label)
        elif has_written:
            await self._reach("tool")

    async def _post(self, *entries: Entry) -> None:
        await self._ctx.ledger.post(*entries, run_id=self._run_id, codon_id=self._codon_id)


def readable(tool_input: dict[str, object]) -> dict[str, object]:
    """Return the input unchanged, or as text if it nests deeper than any client has to read."""
    if _depth(tool_input) <= DEEPEST_INPUT:
        return tool_input

    return {"json": codec.encode(tool_input).decode("utf-8", "replace")}


def _depth(value: object) -> int:
    """Return how deep a JSON value nests, level by level, so that no depth exhausts the stack."""
    level, depth = [value], 0
    while level := [child for each in level for child in _children(each)]:
        depth += 1

    return depth


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()

    return value if isinstance(value, list) else ()
