"""One agent at work: its processes, its pipes, its log and its limits, as one `AgentSession`.

What an agent's lines amount to: whose session it is, and what its silence or exit means.

A *plain* program never names its session. It gets a made-up name, so that the runner meets the same
order from every agent, and its exit code is its verdict. A program that does speak the protocol and
ends without a result gets none made up: that is a failure (facts of Hankweave, "Completion").

When an agent has taken too long: three limits on one clock that can be held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
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
    AgentLimits,
    AgentOutcome,
    AgentOutOfControl,
    AgentSignal,
    AgentTask,
    AgentUnkillable,
    Exited,
    Killed,
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
from hankweave_server.agents.process.stdio import Line, LineSplitter, Mailbox, PipeReader
from hankweave_server.clock import Clock
from hankweave_server.fsutil import append_private, is_full

CALLS_REMEMBERED = 10_000
"""Calls whose results are awaited; an agent that never returns any cannot fill our memory."""


class Conversation:
    """Follows one agent from its first line to its end; pure, it reads no clock and no file."""

    def __init__(self, *, made_up_session: SessionStarted | None) -> None:
        """Expects a program that may be plain if it is given a session to presume."""
        self._made_up_session = made_up_session
        self._session: SessionStarted | None = None
        self._tool_names: dict[str, str] = {}
        self._has_result = False
        self._last_words = ""

    @property
    def has_begun(self) -> bool:
        return self._session is not None

    def hear(self, signals: Iterable[AgentSignal]) -> Iterator[AgentSignal]:
        """Adds what the signals lack: the session of a plain program, the names of tools."""
        for signal in signals:
            match signal:
                case SessionStarted():
                    if signal == self._session:
                        continue

                    self._session = signal
                case Stderr():
                    # Warnings precede the first message of many agents: no sign of a plain one.
                    self._last_words = signal.line or self._last_words
                case _:
                    yield from self.presume_session()

            yield self._completed(signal)

    def presume_session(self) -> Iterator[SessionStarted]:
        """Begins the made-up session of a program that has not begun one itself."""
        if self._session is None and self._made_up_session is not None:
            self._session = self._made_up_session
            yield self._session

    def conclude(self, outcome: AgentOutcome) -> Iterator[AgentSignal]:
        """Ends the conversation; a plain program that reported no result is judged by its end."""
        yield from self.presume_session()
        if self._session is self._made_up_session is not None and not self._has_result:
            yield ResultReported(
                success=outcome == Exited(0),
                text=self._verdict(outcome),
                cost_usd=None,
                tokens=None,
                session_id=self._made_up_session.session_id,
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
                return self._last_words or f"The program ended with exit code {code}."
            case Killed(number):
                return f"The program was ended by signal {number}."
            case TimedOut(which):
                return f"The program exceeded its {which} time limit."
            case _:
                assert_never(outcome)


PAUSE_TOLERANCE = 5.0
"""Seconds that we may come late on a busy machine; more, and it was us who did not listen."""


@dataclass(frozen=True, slots=True)
class Remaining:
    which: TimeLimit
    seconds: float

    @property
    def is_over(self) -> bool:
        return self.seconds <= 0


class Patience:
    """Judges the start, idle and total limits; every moment is the caller's, in seconds."""

    def __init__(self, limits: AgentLimits, now: float) -> None:
        self._limits = limits
        self._born = now
        self._last_heard = now
        self._session_began = False
        self._held = 0.0
        self._holds = 0
        self._held_since = now

    def heard(self, now: float) -> None:
        self._last_heard = self._own_time(now)

    def session_began(self) -> None:
        self._session_began = True

    def hold(self, now: float) -> None:
        """Stops the clock until as many releases; what is not the agent's fault does not count."""
        if self._holds == 0:
            self._held_since = now

        self._holds += 1

    def release(self, now: float) -> None:
        self._holds -= 1
        if self._holds == 0:
            self._held += now - self._held_since

    def excuse(self, late: float, now: float) -> None:
        """Leaves out the seconds up to now for which we did not run: stopped, frozen, or starved.

        What the agent said meanwhile may still wait to be read.
        """
        is_held_already = self._holds > 0 and self._held_since <= now - late
        if late > PAUSE_TOLERANCE and not is_held_already:
            self._held += late
            self._last_heard = min(self._last_heard, self._own_time(now))

    def remaining(self, now: float) -> Remaining | None:
        """Returns the limit that will be reached first, or None if there will be none."""
        own_time = self._own_time(now)
        limits: tuple[tuple[TimeLimit, timedelta | None, float], ...] = (
            ("start", None if self._session_began else self._limits.start, self._born),
            ("idle", self._limits.idle, self._last_heard),
            ("total", self._limits.total, self._born),
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
        moment = now if self._holds == 0 else self._held_since
        return moment - self._held


PROMPT_DEADLINE = 10.0
"""Seconds; an agent that has not read its prompt by then does not want the rest of it."""

ANSWER_DEADLINE = 10.0
"""Seconds; one that does not read its answer waits until a time limit ends it."""

_SHORTEST_NAP = 0.05  # Seconds; while the clock is held, a limit can stay about to be reached.
_LONGEST_NAP = 1.0  # Seconds; so that a pause of ours is noticed before a limit that it hides.

_Understood: TypeAlias = tuple[list[AgentSignal], list[bytes]]
"""What a line says, and the lines of the log that hold it."""


class Session:
    """Implements `AgentSession`; `at_work` has to be entered before anything else is asked of it.

    Its tasks: one follows the keeper, one gives the prompt, one watches the clock, two read.
    """

    def __init__(
        self,
        process: AgentProcess,
        log: AgentLog,
        task: AgentTask,
        clock: Clock,
        *,
        prompt: str,
        presumed: SessionStarted | None,
        quiet_start: timedelta,
        parse: Callable[[bytes], list[AgentSignal]] = stream_json.parse,
        takes_answers: bool = False,
        hooks: HookServer | None = None,
    ) -> None:
        self._process = process
        self._log = log
        self._task = task
        self._clock = clock
        self._prompt = prompt
        self._quiet_start = quiet_start
        self._parse = parse
        self._takes_answers = takes_answers
        self._hooks = hooks
        self._stdin = anyio.Lock()
        """Held by who writes to stdin, or closes it."""
        self._conversation = Conversation(made_up_session=presumed)
        self._patience = Patience(task.limits, anyio.current_time())
        self._mailbox = Mailbox()
        self._unread: deque[AgentSignal] = deque()
        self._stopping_once = anyio.Lock()
        self._is_paused = False
        self._awaited: set[str] = set()
        """Requests that the agent waits for an answer to; each of them holds the clock."""
        self._timed_out: TimedOut | None = None
        self._log_fault: OSError | None = None

    @property
    def pid(self) -> int:
        return self._process.record.pid

    @property
    def log_path(self) -> Path:
        return self._task.log_path

    async def signals(self) -> AsyncIterator[AgentSignal]:
        while True:
            while self._unread:  # Also what an earlier reader of the same batch has left.
                yield self._unread.popleft()

            batch = await self._mailbox.take()
            if batch is None:
                break

            self._unread.extend(batch)

        if self._log_fault is not None:
            raise self._log_fault

        if self._process.has_disabled_keeper:
            raise AgentOutOfControl

    async def wait(self) -> AgentOutcome:
        await self._process.ended()
        await self._process.end()
        return self._outcome()

    async def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._patience.hold(anyio.current_time())
            await self._process.pause()

    async def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            await self._process.resume()
            self._patience.release(anyio.current_time())

    def processes(self) -> frozenset[int]:
        return self._process.tree()

    async def leave_word(self, operation_id: str, text: str) -> None:
        line = msgspec.json.encode({"operationId": operation_id, "text": text}) + b"\n"
        try:
            await anyio.to_thread.run_sync(append_private, self._task.notices_path, line)
        except OSError as error:
            # Until one agent has acknowledged the word, the next one is told as well.
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
            self._patience.release(anyio.current_time())

    async def stop(self) -> None:
        if survivors := await self._stop():
            raise AgentUnkillable(survivors)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Attends to the agent until the context is left, and ends it then. Raises as `start`."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._process.follow)
            tasks.start_soon(self._process.watch_keeper, self._report)
            try:
                await self._process.started()
                self._process.record.remember(self._task.processes_dir)
                tasks.start_soon(self._attend)
                yield
            except Exception as error:
                failure = error  # Raised below: the group would wrap it for our caller.
            finally:
                survivors = await self._process.end()
                tasks.cancel_scope.cancel()

        if survivors:
            raise AgentUnkillable(survivors) from failure

        self._process.record.forget(self._task.processes_dir)
        if failure is not None:
            raise failure

    async def _report(self, sentence: str) -> None:
        """Log a sentence about the agent's processes, and tell it as if the agent had."""
        timestamp = to_text(self._clock.now())
        await self._keep([wrapped("stderr", sentence, timestamp)], timestamp)
        await self._deliver([Stderr(sentence)])

    async def _stop(self) -> tuple[int, ...]:
        """Asks twice, with patience, and then kills; returns the pids of survivors."""
        self._mailbox.hurry()
        async with self._stopping_once:
            await self._process.interrupt()
            await self.resume()  # A stopped process would not hear the signal.
            await self._grace()
            await self._process.terminate()
            await self._grace()
            return await self._process.end()

    async def _grace(self) -> None:
        with anyio.move_on_after(self._task.limits.kill_grace.total_seconds()):
            await self._process.ended()

    async def _attend(self) -> None:
        try:
            async with anyio.create_task_group() as companions:
                companions.start_soon(self._give_prompt)
                companions.start_soon(self._watch_the_time)
                companions.start_soon(self._presume_session)
                if self._hooks is not None:
                    companions.start_soon(self._hooks.serve, self._hear)

                await self._listen()
                companions.cancel_scope.cancel()

            await self._mailbox.put(list(self._conversation.conclude(self._outcome())))
        finally:
            self._mailbox.close()

    async def _give_prompt(self) -> None:
        async with self._stdin:
            try:
                with anyio.move_on_after(PROMPT_DEADLINE) as patience:
                    await self._process.stdin.write(self._prompt.encode())
            finally:
                if not self._takes_answers or patience.cancelled_caught:
                    self._process.stdin.close()

    async def _mind_stdin(self, heard: Iterable[AgentSignal]) -> None:
        """Waits with an agent that has asked, and lets one end that has reported its result."""
        for signal in heard:
            match signal:
                case PermissionAsked(request_id=request_id) if request_id not in self._awaited:
                    self._awaited.add(request_id)
                    self._patience.hold(anyio.current_time())
                case PermissionWithdrawn(request_id=request_id):
                    self._await_no_more(request_id)
                case ResultReported() if self._takes_answers:
                    async with self._stdin:
                        self._process.stdin.close()
                case _:
                    pass

    async def _watch_the_time(self) -> None:
        while (left := self._patience.remaining(anyio.current_time())) is not None:
            if left.is_over:
                self._timed_out = TimedOut(left.which)
                await self._stop()
                return

            nap = min(max(left.seconds, _SHORTEST_NAP), _LONGEST_NAP)
            due = anyio.current_time() + nap
            await anyio.sleep(nap)
            now = anyio.current_time()
            self._patience.excuse(now - due, now)

    async def _presume_session(self) -> None:
        await anyio.sleep(self._quiet_start.total_seconds())
        await self._deliver(list(self._conversation.presume_session()))

    async def _listen(self) -> None:
        """Reads both pipes until they end, or nothing of the agent lives that could write more."""
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._read, self._process.stdout, self._understand_stdout)
            readers.start_soon(self._read, self._process.stderr, _understand_stderr)
            await self._process.ended()
            await self._process.end()
            self._process.stdout.abandon()
            self._process.stderr.abandon()

    async def _read(self, pipe: PipeReader, understand: Callable[[Line, str], _Understood]) -> None:
        splitter = LineSplitter(self._task.limits.line_bytes)
        async for chunk in pipe.chunks():
            self._patience.heard(anyio.current_time())
            await self._take_in(splitter.feed(chunk), understand)

        await self._take_in(splitter.finish(), understand)

    async def _take_in(
        self, lines: Iterable[Line], understand: Callable[[Line, str], _Understood]
    ) -> None:
        timestamp = to_text(self._clock.now())
        understood = [understand(line, timestamp) for line in lines if not line.is_blank]
        await self._keep([entry for _, entries in understood for entry in entries], timestamp)
        await self._hear(*(signal for said, _ in understood for signal in said))

    async def _hear(self, *signals: AgentSignal) -> None:
        await self._mind_stdin(signals)
        await self._deliver(list(self._conversation.hear(signals)))

    async def _keep(self, entries: list[bytes], timestamp: str) -> None:
        """Logs what was said; if that fails it ends the agent, and `signals` says why."""
        if self._log_fault is None:
            try:
                self._log.append(entries, timestamp)
            except OSError as error:
                self._log_fault = error
                await self._process.end()

    async def _deliver(self, batch: list[AgentSignal]) -> None:
        if self._conversation.has_begun:
            self._patience.session_began()

        self._patience.hold(anyio.current_time())
        await self._mailbox.put(batch)
        self._patience.release(anyio.current_time())

    def _outcome(self) -> AgentOutcome:
        return self._timed_out or self._process.ending

    def _understand_stdout(self, line: Line, timestamp: str) -> _Understood:
        signals = [PlainOutput(line.marked_text())] if line.dropped else self._parse(line.content)
        match signals:
            case [PlainOutput(text)]:
                return list(signals), [wrapped("stdout", text, timestamp)]
            case _:
                return list(signals), entries_of(line.content, signals, timestamp)


def _understand_stderr(line: Line, timestamp: str) -> _Understood:
    text = line.marked_text()
    return [Stderr(text)], [wrapped("stderr", text, timestamp)]
