"""Run one agent: its processes, pipes, log and time limits, as one `AgentSession`.

The codon runner wants a simple view of an agent: an ordered stream of signals, then one outcome.
Agents do not make that easy. This module turns what they do into that view, and it has to hold
four properties:

1. *Nothing outlives the session.* When `at_work` is left, for whatever reason, every process of the
   agent has ended, or AgentUnkillable names the survivors. The work is done by the keeper
   (`process/keeper.py`); `at_work` makes sure that `AgentProcess.end` runs on every path out of it.
2. *The log comes first.* `_take_in` writes what the agent printed to its log before it delivers any
   signal. A full disk or the log's size limit leaves a marked gap. Any other write error ends the
   agent, and `signals` raises it at its end.
3. *Memory is bounded.* A reader that is slow makes the agent wait: the queue holds 16 batches,
   then the pipes fill up, then the agent blocks. During a stop that would be a deadlock, because
   the reader may be the task that waits for the stop. `stop` therefore calls
   `SignalQueue.stop_blocking` first, and from then on batches that do not fit are dropped (the log
   has them).
4. *Only the agent's own time counts.* The limits for start, idleness and total time run on one
   clock that can be paused (`AgentTimeouts`): while the agent is paused, while it waits for an
   answer to a permission request, and while the reader is slow. Time in which this process itself
   did not run (suspended, frozen, starved of CPU) is excluded afterwards: the watching task
   measures how late it wakes up.

An agent's end is not the end of its pipes. A grandchild may keep stdout open for ever, so
`_read_pipes` waits for the keeper's report, makes sure that the tree is empty, and only then
abandons the pipes: the readers finish what is there and stop without an end of file.

Agents differ in what they print. A program that speaks stream-json names its session first and
reports a result last. A *plain* program does neither. `AgentConversation` gives it a made-up
session when its first line of stdout arrives, or after `quiet_start` without one, and makes a
result of its exit code, so the runner sees the same order of signals from every agent. A program
that speaks the protocol and ends without a result gets none made up: for the runner, that is a
failure, as in Hankweave.

An agent's stdin carries the prompt. Where the agent can ask for permission (`takes_answers`), it
stays open for answers and is closed when the agent reports its result, which lets it exit. Writes
have a deadline of 10 seconds. An agent that does not read its prompt gets no more of it; one that
does not read an answer is ended by a time limit sooner or later.

Tasks, all children of `at_work`: `follow` (keeper reports), `watch_keeper`, and `_run` with
`_give_prompt`, `_watch_the_time`, `_ensure_session`, the hook server if there is one, and one
reader for each of stdout and stderr.

Read `AgentConversation` and `AgentTimeouts` first; both are pure. Then `Session.at_work`,
`_run`, `_read_pipes`, `_take_in`, and last `_stop`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, assert_never

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.instants import to_text
from hankweave_server.agents import stream_json
from hankweave_server.agents.agent_log import AgentLog, entries_of, wrapped
from hankweave_server.agents.base import (
    AgentKilled,
    AgentLimits,
    AgentOutcome,
    AgentOutOfControl,
    AgentSignal,
    AgentTask,
    AgentUnkillable,
    Exited,
    PermissionAsked,
    PermissionWithdrawn,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    TimedOut,
    TimeLimit,
    ToolCalled,
    ToolReturned,
    Verdict,
)
from hankweave_server.agents.hook_server import HookServer
from hankweave_server.agents.process.child import AgentProcess
from hankweave_server.agents.process.stdio import Line, LineSplitter, PipeReader, SignalQueue
from hankweave_server.clock import Clock
from hankweave_server.fsutil import append_private, is_full
from hankweave_server.redaction.redactor import LineRedactor

CALLS_REMEMBERED = 10_000
"""Calls whose results are pending; bounds the memory for an agent that never returns any."""


class AgentConversation:
    """The state of one agent's output, from its first line to its end. Pure."""

    def __init__(self, *, default_session: SessionStarted | None) -> None:
        """Start; `default_session` is the session of a program that may be plain, else None."""
        self._default_session = default_session
        self._session: SessionStarted | None = None
        self._tool_names: dict[str, str] = {}
        self._has_result = False
        self._last_stderr = ""

    @property
    def has_begun(self) -> bool:
        return self._session is not None

    def receive(self, signals: Iterable[AgentSignal]) -> Iterator[AgentSignal]:
        """Add what the signals lack: the session of a plain program, the names of tools."""
        for signal in signals:
            match signal:
                case SessionStarted():
                    if signal == self._session:
                        continue

                    self._session = signal
                case Stderr():
                    # Many agents warn on stderr before their first message, so this does not
                    # mean that the program is plain.
                    self._last_stderr = signal.line or self._last_stderr
                case _:
                    yield from self.ensure_session()

            yield self._completed(signal)

    def ensure_session(self) -> Iterator[SessionStarted]:
        """Start the default session if the program has not started one itself."""
        if self._session is None and self._default_session is not None:
            self._session = self._default_session
            yield self._session

    def conclude(self, outcome: AgentOutcome) -> Iterator[AgentSignal]:
        """End the conversation; a plain program without a result is judged by its outcome."""
        yield from self.ensure_session()
        if self._session is self._default_session is not None and not self._has_result:
            yield ResultReported(
                success=outcome == Exited(0),
                text=self._verdict(outcome),
                cost_usd=None,
                tokens=None,
                session_id=self._default_session.session_id,
                model_usage={},
            )

    def _completed(self, signal: AgentSignal) -> AgentSignal:
        match signal:
            case ToolCalled():
                self._remember(signal)
            case ToolReturned():
                return replace(signal, name=self._tool_names.pop(signal.tool_use_id, ""))
            case ResultReported():
                self._has_result = True

        return signal

    def _remember(self, call: ToolCalled) -> None:
        self._tool_names[call.tool_use_id] = call.name
        if len(self._tool_names) > CALLS_REMEMBERED:
            del self._tool_names[next(iter(self._tool_names))]

    def _verdict(self, outcome: AgentOutcome) -> str:
        match outcome:
            case Exited(0):
                return ""
            case Exited(code):
                return self._last_stderr or f"The program ended with exit code {code}."
            case AgentKilled(number):
                return f"The program was terminated by signal {number}."
            case TimedOut(which):
                return f"The program exceeded its {which} time limit."
            case _:
                assert_never(outcome)


PAUSE_TOLERANCE = 5.0
"""Seconds of delay that a busy machine may cause; a longer one means that this process paused."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The limit that is reached next, and the seconds until then."""

    which: TimeLimit
    seconds: float

    @property
    def is_over(self) -> bool:
        return self.seconds <= 0


class AgentTimeouts:
    """The start, idle and total limits on one clock that can be paused.

    The caller passes the current time, in seconds of a monotonic clock.
    """

    def __init__(self, limits: AgentLimits, now: float) -> None:
        self._limits = limits
        self._started = now
        self._last_output = now
        self._session_began = False
        self._paused_seconds = 0.0
        self._pauses = 0
        self._paused_since = now

    def note_output(self, now: float) -> None:
        self._last_output = self._own_time(now)

    def session_began(self) -> None:
        self._session_began = True

    def pause(self, now: float) -> None:
        """Stop the clock until `resume` has been called as often as `pause`."""
        if self._pauses == 0:
            self._paused_since = now

        self._pauses += 1

    def resume(self, now: float) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self._paused_seconds += now - self._paused_since

    def exclude(self, late: float, now: float) -> None:
        """Exclude the last `late` seconds, in which this process did not run.

        It was stopped, frozen or starved. Output of the agent from that time may still be unread.
        """
        is_paused_already = self._pauses > 0 and self._paused_since <= now - late
        if late > PAUSE_TOLERANCE and not is_paused_already:
            self._paused_seconds += late
            self._last_output = min(self._last_output, self._own_time(now))

    def remaining(self, now: float) -> Remaining | None:
        """Return the limit that is reached first, or None if there is no limit."""
        own_time = self._own_time(now)
        limits: tuple[tuple[TimeLimit, timedelta | None, float], ...] = (
            ("start", None if self._session_began else self._limits.start, self._started),
            ("idle", self._limits.idle, self._last_output),
            ("total", self._limits.total, self._started),
        )
        return min(
            (
                Remaining(which, since + limit.total_seconds() - own_time)
                for which, limit, since in limits
                if limit is not None
            ),
            key=lambda remaining: remaining.seconds,
            default=None,
        )

    def _own_time(self, now: float) -> float:
        moment = now if self._pauses == 0 else self._paused_since
        return moment - self._paused_seconds


PROMPT_DEADLINE = 10.0
"""Seconds; the rest of the prompt is dropped if the agent has not read it by then.

A pause does not count, and the time begins anew after it.
"""

ANSWER_DEADLINE = 10.0
"""Seconds; an agent that does not read its answer waits until a time limit ends it."""

_SHORTEST_NAP = 0.05  # Seconds; avoids a busy loop while the clock is held just before a limit.
_LONGEST_NAP = 1.0  # Seconds; a pause of this process must be noticed before a limit fires.

_Understood: TypeAlias = tuple[list[AgentSignal], list[bytes]]
"""The signals of a line, and its lines in the log."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program that one kind of agent runs for one task."""

    command: tuple[str, ...]
    stdin: str
    hint: str
    """Advice for the case that the program is not installed."""

    extra_environment: Mapping[str, str] = field(default_factory=dict)
    default_session: SessionStarted | None = None
    """The session of a program that may be plain; None if it always names its own."""

    quiet_start: timedelta = timedelta(0)
    """Silence after which a program that may be plain gets its presumed session."""

    parse: Callable[[bytes], list[AgentSignal]] = stream_json.parse
    """The parser of one line of its stdout, without the line end."""

    takes_answers: bool = False
    """If true, stdin stays open for answers until the program has reported its result."""

    hook_socket: Path | None = None
    """The socket on which its hooks wait for an answer before a tool call (`hook_server`)."""

    needs: str | None = None
    """Another program that it needs."""


class Session:
    """An `AgentSession`; enter `at_work` before you use anything else."""

    def __init__(
        self,
        process: AgentProcess,
        log: AgentLog,
        task: AgentTask,
        clock: Clock,
        program: Program,
        hooks: HookServer | None,
    ) -> None:
        self._process = process
        self._log = log
        self._task = task
        self._clock = clock
        self._program = program
        self._hooks = hooks
        self._printed = LineRedactor(task.redactor)
        self._warned = LineRedactor(task.redactor)
        self._stdin = anyio.Lock()
        """Held while stdin is written to or closed."""
        self._prompting = anyio.CancelScope()
        """Around the writing of the prompt."""
        self._conversation = AgentConversation(default_session=program.default_session)
        self._timeouts = AgentTimeouts(task.limits, anyio.current_time())
        self._signal_queue = SignalQueue()
        self._unread: deque[AgentSignal] = deque()
        self._bytes_delivered = 0
        """Of the agent's stdout: their signals are in the queue, or further."""
        self._stopping_once = anyio.Lock()
        self._is_paused = False
        self._awaited: set[str] = set()
        """Ids of unanswered permission requests; each of them holds the clock."""
        self._timed_out: TimedOut | None = None
        self._log_fault: OSError | None = None
        self._log_thread = anyio.CapacityLimiter(1)
        """Only one thread at a time appends to the log, in the order of the output."""

    @property
    def pid(self) -> int:
        return self._process.record.pid

    @property
    def log_path(self) -> Path:
        return self._task.log_path

    async def signals(self) -> AsyncIterator[AgentSignal]:
        while True:
            while self._unread:  # A cancelled earlier reader may have left some.
                yield self._unread.popleft()

            batch = await self._signal_queue.take()
            if batch is None:
                break

            self._unread.extend(batch)

        if self._log_fault is not None:
            raise self._log_fault

        if self._process.has_disabled_keeper:
            raise AgentOutOfControl

    async def unread_signals(self) -> Sequence[AgentSignal]:
        written = self._process.stdout.bytes_written()
        await self._signal_queue.wait_until(lambda: self._bytes_delivered >= written)
        return (*self._unread, *self._signal_queue.waiting)

    async def wait(self) -> AgentOutcome:
        await self._process.ended()
        await self._process.end()
        return self._outcome()

    async def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._timeouts.pause(anyio.current_time())
            self._await_reader()
            await self._process.pause()

    async def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            await self._process.resume()
            self._await_reader()
            self._timeouts.resume(anyio.current_time())

    def processes(self) -> frozenset[int]:
        return self._process.tree()

    async def leave_message(self, operation_id: str, text: str) -> None:
        text = self._task.redactor.text(text)
        line = msgspec.json.encode({"operationId": operation_id, "text": text}) + b"\n"
        try:
            await anyio.to_thread.run_sync(append_private, self._task.notices_path, line)
        except OSError as error:
            # The next agent gets the message too, until one has acknowledged it.
            if not is_full(error):
                raise

    async def answer(self, asked: PermissionAsked, verdict: Verdict) -> None:
        if asked.request_id not in self._awaited:
            return

        if self._hooks is None or not self._hooks.answer(asked, verdict):
            await self._write_answer(asked, verdict)

        self._await_no_more(asked.request_id)

    async def _write_answer(self, asked: PermissionAsked, verdict: Verdict) -> None:
        async with self._stdin:
            if not self._process.stdin.is_closed:
                with anyio.move_on_after(ANSWER_DEADLINE):
                    await self._process.stdin.write(stream_json.answer_to(asked, verdict))

    def _await_no_more(self, request_id: str) -> None:
        if request_id in self._awaited:
            self._awaited.discard(request_id)
            self._timeouts.resume(anyio.current_time())

    async def stop(self) -> None:
        if survivors := await self._stop():
            raise AgentUnkillable(survivors)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run the session; leaving the context ends the agent. Raises like `Agent.start`."""
        async with self._process.at_work(self._task.processes_dir, self._report) as tasks:
            tasks.start_soon(self._run)
            yield

    async def _report(self, sentence: str) -> None:
        """Log a sentence about the agent's processes, and deliver it as a line of its stderr."""
        timestamp = to_text(self._clock.now())
        await self._keep([wrapped("stderr", sentence, timestamp)], timestamp)
        await self._deliver([Stderr(sentence)])

    async def _stop(self) -> tuple[int, ...]:
        """Send SIGINT, then SIGTERM, then kill; return the pids of survivors.

        The agent gets `kill_grace` after each of the first two.
        """
        self._signal_queue.stop_blocking()
        async with self._stopping_once:
            await self._process.interrupt()
            await self.resume()  # A stopped process does not handle signals.
            await self._grace()
            await self._process.terminate()
            await self._grace()
            return await self._process.end()

    async def _grace(self) -> None:
        with anyio.move_on_after(self._task.limits.kill_grace.total_seconds()):
            await self._process.ended()

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._give_prompt)
                tasks.start_soon(self._watch_the_time)
                tasks.start_soon(self._ensure_session)
                if self._hooks is not None:
                    tasks.start_soon(self._hooks.serve, self._receive)

                await self._read_pipes()
                tasks.cancel_scope.cancel()

            await self._signal_queue.put(list(self._conversation.conclude(self._outcome())))
        finally:
            self._signal_queue.close()

    async def _give_prompt(self) -> None:
        async with self._stdin:
            try:
                with self._prompting:
                    self._await_reader()
                    await self._process.stdin.write(self._program.stdin.encode())
            finally:
                if not self._program.takes_answers or self._prompting.cancelled_caught:
                    self._process.stdin.close()

    def _await_reader(self) -> None:
        """Give the agent time to read its prompt from now on; a paused one has all the time."""
        limit = math.inf if self._is_paused else anyio.current_time() + PROMPT_DEADLINE
        self._prompting.deadline = limit

    async def _manage_stdin(self, signals: Iterable[AgentSignal]) -> None:
        """Pause the clock while a permission request is open; close stdin after the result."""
        for signal in signals:
            match signal:
                case PermissionAsked(request_id=request_id) if request_id not in self._awaited:
                    self._awaited.add(request_id)
                    self._timeouts.pause(anyio.current_time())
                case PermissionWithdrawn(request_id=request_id):
                    self._await_no_more(request_id)
                case ResultReported() if self._program.takes_answers:
                    async with self._stdin:
                        self._process.stdin.close()
                case _:
                    pass

    async def _watch_the_time(self) -> None:
        while (left := self._timeouts.remaining(anyio.current_time())) is not None:
            if left.is_over:
                self._timed_out = TimedOut(left.which)
                await self._stop()
                return

            nap = min(max(left.seconds, _SHORTEST_NAP), _LONGEST_NAP)
            due = anyio.current_time() + nap
            await anyio.sleep(nap)
            now = anyio.current_time()
            self._timeouts.exclude(now - due, now)

    async def _ensure_session(self) -> None:
        await anyio.sleep(self._program.quiet_start.total_seconds())
        await self._deliver(list(self._conversation.ensure_session()))

    async def _read_pipes(self) -> None:
        """Read both pipes until they end or no process of the agent is left that could write."""
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._read, self._process.stdout, self._understand_stdout)
            readers.start_soon(self._read, self._process.stderr, self._understand_stderr)
            await self._process.ended()
            await self._process.end()
            self._process.stdout.abandon()
            self._process.stderr.abandon()

    async def _read(self, pipe: PipeReader, understand: Callable[[Line, str], _Understood]) -> None:
        splitter = LineSplitter(self._task.limits.line_bytes)
        async for chunk in pipe.chunks():
            self._timeouts.note_output(anyio.current_time())
            await self._take_in(splitter.feed(chunk), understand)
            if pipe is self._process.stdout:
                self._bytes_delivered += len(chunk)
                self._signal_queue.notify()

        await self._take_in(splitter.finish(), understand)

    async def _take_in(
        self, lines: Iterable[Line], understand: Callable[[Line, str], _Understood]
    ) -> None:
        timestamp = to_text(self._clock.now())
        understood = [understand(line, timestamp) for line in lines if not line.is_blank]
        await self._keep([entry for _, entries in understood for entry in entries], timestamp)
        await self._receive(*(signal for signals, _ in understood for signal in signals))

    async def _receive(self, *signals: AgentSignal) -> None:
        await self._manage_stdin(signals)
        await self._deliver(list(self._conversation.receive(signals)))

    async def _keep(self, entries: list[bytes], timestamp: str) -> None:
        """Write lines to the log; if that fails, end the agent, and `signals` raises the error.

        They are logged before their signals are delivered, and even if the reader is cancelled.
        """
        if self._log_fault is None and entries:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(
                        self._log.append, entries, timestamp, limiter=self._log_thread
                    )
            except OSError as error:
                self._log_fault = error
                await self._process.end()

    async def _deliver(self, batch: list[AgentSignal]) -> None:
        if self._conversation.has_begun:
            self._timeouts.session_began()

        self._timeouts.pause(anyio.current_time())
        await self._signal_queue.put(batch)
        self._timeouts.resume(anyio.current_time())

    def _outcome(self) -> AgentOutcome:
        return self._timed_out or self._process.ending

    def _understand_stdout(self, line: Line, timestamp: str) -> _Understood:
        signals = [PlainOutput("")] if line.dropped else self._program.parse(line.content)
        match signals:
            case [PlainOutput()]:
                text = _redacted(line, self._printed)
                return [PlainOutput(text)], [wrapped("stdout", text, timestamp)]
            case _:
                return list(signals), entries_of(line.content, signals, timestamp)

    def _understand_stderr(self, line: Line, timestamp: str) -> _Understood:
        text = _redacted(line, self._warned)
        return [Stderr(text)], [wrapped("stderr", text, timestamp)]


def _redacted(line: Line, redactor: LineRedactor) -> str:
    """Return a line of text without secrets: only here are the lines of a key still together."""
    content = redactor.redact(line.content, is_cut=line.dropped > 0)
    return replace(line, content=content).marked_text()
