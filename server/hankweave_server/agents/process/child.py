"""The server's side of one agent's processes: start, signal and end them through their keeper.

Nothing here waits for end of file on a pipe to find out whether a process has ended, because a
grandchild may hold the pipe open for ever. The keeper's reports say when the agent has ended, and a
pidfd says when the keeper itself has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server import fsutil
from hankweave_server.agents.base import (
    AgentKilled,
    AgentStartFailed,
    AgentUnkillable,
    Exited,
)
from hankweave_server.agents.process import keeper, peers, process_table
from hankweave_server.agents.process.leftovers import (
    ENDED,
    KILL_DEADLINE,
    AgentRecord,
    kill_members,
)
from hankweave_server.agents.process.stdio import LineSplitter, PipeReader, PipeWriter
from hankweave_server.background_tasks import task_group
from hankweave_server.confinement.own_program import own_program
from hankweave_server.confinement.policy import Fence
from hankweave_server.confinement.probe import prepared

_ORDER_DEADLINE = 5.0  # Seconds; a keeper that the agent has stopped or killed answers nothing.
_LONGEST_REPORT = 8192
_CHECK_INTERVAL = 1.0  # Seconds between two checks that the keeper is not stopped.
_MOST_STOPS = 3
"""Number of times a stopped keeper is continued; an agent that stops it again is ended."""

KEEPER_STOPPED = "The agent's process keeper was stopped (SIGSTOP) and has been continued."


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters that start an agent's program and identify its processes."""

    command: Sequence[str]
    environment: Mapping[str, str]
    work_tree: Path
    mark: str
    run_id: RunId
    codon_id: CodonId
    fence: Fence | None = None
    """What confines the program; None leaves it unconfined."""
    records: Path | None = None
    """The folder of the records of running agents."""

    @property
    def ended(self) -> str:
        """The file in which its keeper leaves when its processes had ended; or empty."""
        return "" if self.records is None else str(self.records / f"{self.mark}{ENDED}")


class AgentProcess:
    """An agent's process tree, from construction to `close`; `follow` must run as a task."""

    def __init__(self, launch: Launch) -> None:
        """Start the keeper, which starts the agent. Raises AgentStartFailed."""
        is_confined = launch.fence is not None and not launch.fence.is_open
        group = process_table.place(launch.mark, is_confined=is_confined)
        self._keeper, stdin, stdout, stderr, report, orders = _start_keeper(launch, group)
        self._keeper_pidfd = os.pidfd_open(self._keeper.pid)
        self.stdin = PipeWriter(stdin)
        self.stdout = PipeReader(stdout)
        self.stderr = PipeReader(stderr)
        self._reports = PipeReader(report)
        self._orders = PipeWriter(orders)
        self._answers: deque[anyio.Event] = deque()
        self._started = anyio.Event()
        self._has_ended = anyio.Event()
        self._start_error: str | None = None
        self._following = anyio.CancelScope(shield=True)
        self._ending_once = anyio.Lock()
        self._is_tree_empty = False
        self.has_disabled_keeper = False
        """True if the agent was ended because it kept stopping its keeper."""
        self.ending: Exited | AgentKilled = AgentKilled(signal.SIGKILL)
        """How the agent ended; without a report it died together with the keeper."""

        self.record = _record_of(launch, self._keeper.pid, group)

    @asynccontextmanager
    async def at_work(
        self, records: Path, report: Callable[[str], Awaitable[None]] | None = None
    ) -> AsyncIterator[TaskGroup]:
        """Provide a task group while the program runs; leaving the block ends all its processes.

        The processes are on record in `records` meanwhile; `report` is that of `watch_keeper`.
        Raises AgentStartFailed, and AgentUnkillable on leaving.
        """
        survivors: tuple[int, ...] | None = None
        try:
            async with task_group() as tasks:
                tasks.start_soon(self.follow)
                tasks.start_soon(self.watch_keeper, report)
                try:
                    await self.started()
                    self.record.remember(records)
                    yield tasks
                finally:
                    survivors = await self.end()

                tasks.cancel_scope.cancel()
        except Exception as failure:
            if survivors:
                raise AgentUnkillable(survivors) from failure

            raise
        finally:
            if survivors == ():
                self.record.forget(records, is_served=True)

        if survivors:
            raise AgentUnkillable(survivors)

    async def started(self) -> None:
        """Wait until the program runs. Raises AgentStartFailed if the kernel refused it."""
        await self._started.wait()
        if self._start_error is not None:
            raise AgentStartFailed(self._start_error)

        if self.record.pid == 0:
            raise AgentStartFailed(
                "The agent's process keeper exited before it could start the agent.",
                hint="The codon's env may prevent Python from running; see its log.",
            )

    async def ended(self) -> None:
        """Wait until the keeper has ended, and with it, in all but hostile cases, the tree."""
        await self._has_ended.wait()

    async def follow(self) -> None:
        """Read the keeper's reports until it ends; shielded from cancellation until then.

        `end` makes sure that it ends.
        """
        reports = LineSplitter(_LONGEST_REPORT)
        try:
            with self._following:
                async for chunk in self._reports.chunks():
                    for report in reports.feed(chunk):
                        self._note(report.content.split())

                await anyio.wait_readable(self._keeper_pidfd)
                self._keeper.wait()
        finally:
            self._has_ended.set()
            self._started.set()
            for answer in self._answers:
                answer.set()

    async def watch_keeper(self, report: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Continue a keeper that was stopped (SIGSTOP), and end an agent that keeps stopping it.

        A stopped keeper cannot report that the agent has ended, and the codon would wait for ever.
        `report` is called with a sentence each time. Runs until it is cancelled.
        """
        for _ in range(_MOST_STOPS):
            await self._keeper_stopped()
            try:
                # Before it goes on: it may then end the session that gets the report.
                if report is not None:
                    await report(KEEPER_STOPPED)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._keeper_pidfd, signal.SIGCONT)

        await self._keeper_stopped()
        self.has_disabled_keeper = True
        await self.end()

    async def _keeper_stopped(self) -> None:
        while True:
            await anyio.sleep(_CHECK_INTERVAL)
            facts = process_table.read(self._keeper.pid)
            if facts is not None and facts.state == "T":
                return

    def tree(self) -> frozenset[int]:
        """Return the pids of the processes below the keeper. Thread-safe."""
        if self._has_ended.is_set():
            return frozenset()

        group = process_table.members(self.record.group_folder) - {self._keeper.pid}
        return frozenset(group | process_table.below(self._keeper.pid))

    async def interrupt(self) -> None:
        await self._order(keeper.INTERRUPT)

    async def terminate(self) -> None:
        await self._order(keeper.TERMINATE)

    async def pause(self) -> None:
        await self._order(keeper.PAUSE)

    async def resume(self) -> None:
        await self._order(keeper.RESUME)

    async def end(self) -> tuple[int, ...]:
        """Kill the tree and return the pids of processes that survived.

        Bounded: the keeper gets KILL_DEADLINE. If it fails (the agent may have killed it), the
        processes are hunted as leftovers are. Idempotent; cannot be cancelled.
        """
        survivors: tuple[int, ...] = ()
        with anyio.CancelScope(shield=True):
            async with self._ending_once:
                self._orders.close()
                with anyio.move_on_after(KILL_DEADLINE):
                    await self._has_ended.wait()

                if not self._is_tree_empty:
                    survivors = await self._kill_members()

                process_table.remove(self.record.group_folder)

        return survivors

    def close(self) -> None:
        """Close the descriptors; no task may use them afterwards."""
        for pipe_end in (self.stdin, self.stdout, self.stderr, self._reports, self._orders):
            pipe_end.close()

        os.close(self._keeper_pidfd)
        self._keeper.poll()

    async def _kill_members(self) -> tuple[int, ...]:
        killed = await anyio.to_thread.run_sync(kill_members, self.record)
        survivors = tuple(leftover.pid for leftover in killed if leftover.survived)
        self._is_tree_empty = not survivors
        with anyio.move_on_after(KILL_DEADLINE):
            await self._has_ended.wait()

        self._following.cancel()  # Do not wait for a keeper that survived SIGKILL.
        return survivors

    async def _order(self, order: bytes) -> None:
        """Send an order and wait for its answer; does nothing once the tree is being ended."""
        if self._orders.is_closed or self._has_ended.is_set():
            return

        answer = anyio.Event()
        self._answers.append(answer)
        with anyio.move_on_after(_ORDER_DEADLINE):
            await self._orders.write(order)
            await answer.wait()

    def _note(self, report: list[bytes]) -> None:
        match report:
            case [b"started", pid]:
                self.record = _with_agent(self.record, int(pid))
                self._started.set()
            case [b"failed", number]:
                reason = os.strerror(int(number))
                self._note_failure(f"The agent's program could not be run: {reason}")
            case [b"unconfined", *words]:
                reason = b" ".join(words).decode(errors="replace")
                self._note_failure(f"The program could not be confined and was not run: {reason}")
            case [b"exited", code]:
                self.ending = Exited(int(code))
            case [b"killed", number]:
                self.ending = AgentKilled(int(number))
            case [b"done"]:
                self._answers.popleft().set()
            case [b"empty"]:
                self._is_tree_empty = True

    def _note_failure(self, message: str) -> None:
        self._start_error = message
        self._is_tree_empty = True
        self._started.set()


def _start_keeper(
    launch: Launch, group: Path | None
) -> tuple[subprocess.Popen[bytes], int, int, int, int, int]:
    """Start the keeper; return it and our ends of stdin, stdout, stderr, reports and orders."""
    with contextlib.ExitStack() as kept, contextlib.ExitStack() as handed_over:
        stdin, own_stdin = _pipe(handed_over, kept)
        own_stdout, stdout = _pipe(kept, handed_over)
        own_stderr, stderr = _pipe(kept, handed_over)
        own_report, report = _pipe(kept, handed_over)
        orders, own_orders = _pipe(handed_over, kept)
        try:
            if launch.records is not None:  # The keeper opens it at once.
                fsutil.make_private_directory(launch.records)

            is_recognized = group is not None and peers.can_recognize()
            confinement = handed_over.enter_context(
                prepared(launch.fence, is_recognized=is_recognized)
            )
            process = subprocess.Popen(
                [
                    *own_program(keeper.__name__),
                    str(report),
                    str(orders),
                    str(group or ""),
                    ",".join(map(str, confinement)),
                    launch.ended,
                    *launch.command,
                ],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=launch.work_tree,
                env=launch.environment,
                pass_fds=(report, orders, *confinement),
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise AgentStartFailed(f"The agent could not be started: {error}") from error

        kept.pop_all()  # From here on the pipes' readers and writers own them.
        return process, own_stdin, own_stdout, own_stderr, own_report, own_orders


def _pipe(read_owner: contextlib.ExitStack, write_owner: contextlib.ExitStack) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    read_owner.callback(os.close, read_end)
    write_owner.callback(os.close, write_end)
    return read_end, write_end


def _record_of(launch: Launch, keeper_pid: int, group: Path | None) -> AgentRecord:
    """Return the record as far as it is known before the agent runs."""
    return AgentRecord(
        mark=launch.mark,
        boot_id=process_table.boot_id(),
        keeper_pid=keeper_pid,
        keeper_starttime=_start_ticks(keeper_pid),
        run_id=launch.run_id,
        codon_id=launch.codon_id,
        control_group=None if group is None else str(group),
    )


def _with_agent(record: AgentRecord, pid: int) -> AgentRecord:
    return msgspec.structs.replace(record, pid=pid, starttime=_start_ticks(pid), pgid=pid)


def _start_ticks(pid: int) -> int:
    facts = process_table.read(pid)
    return facts.start_ticks if facts is not None else 0
