"""Servers that are struck at a system call, started again, and checked for the invariants."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import psutil

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import CheckpointCreate, GetServerStatus
from hankweave_protocol.events import (
    CheckpointRollback,
    Event,
    RollbackCompleted,
    ServerDegraded,
)
from hankweave_server import wal
from hankweave_server.local.short_ids import MANAGED_NAME
from hankweave_server.paths import Layout
from support.copies import copy_execution
from support.invariants import Acknowledged, leftovers, tree_violations, violations
from support.nth_call import Strike, StrikeAction
from support.running_server import (
    IS_MEASURED,
    command,
    environment,
    journal,
    running_server,
    tree,
)
from support.tally import Tally
from support.waiting import eventually, limited

ENDS = frozenset({0, 69, 73, 74, -9, 128 + 9, 128 + 15})
"""Exit codes after a disk fault: done, unavailable, cannot create, I/O error; or killed.

The last one is a SIGTERM that arrives during the server's own exit, when it no longer handles
signals.
"""

LONGEST_START = 1.0
"""Seconds of processor time: more than a start needs."""

ONE_MORE = "One more."

ACTIONS: dict[StrikeAction, str] = {
    "kill": "killed in",
    "fail": "a call fails in",
    "cut": "short writes in",
}
"""The names of the campaigns in the table."""

BESIDE = "beside"
"""The folder next to an execution that holds its branches."""

Tree = dict[str, bytes]

Act = Callable[[Client, Acknowledged], Awaitable[None]]
Aftermath = Callable[[Path, Acknowledged], Awaitable[list[str]]]
"""Returns additional faults of an execution that has been started again."""

Lost = (ConnectionError, OSError, TimeoutError, CommandRefused)
"""Errors of a client whose server dies or refuses during a call."""


@dataclass(frozen=True)
class Scenario:
    """The work of a server while it is struck."""

    name: str
    prepare: Callable[[Path], Awaitable[None]]
    """Write the hank, and create the initial execution; no server runs at its end."""
    act: Act | None = None
    """None: the whole life of a server is struck, from its start to its stop."""
    aftermath: Aftermath | None = None
    flags: tuple[str, ...] = ("--no-autostart",)
    """The options of the server that is struck."""

    @property
    def is_at_work(self) -> bool:
        """Return True if codons run while the server is struck; each is done, or has not begun."""
        return "--no-autostart" not in self.flags


@dataclass
class Output:
    """A process's output, with a wait for a text in it."""

    process: anyio.abc.Process
    lines: list[str] = field(default_factory=list)

    async def until(self, text: str) -> bool:
        """Read up to a line with the text in it; return False if the process ended before."""
        assert self.process.stdout is not None
        rest = b""
        with limited():
            async for chunk in self.process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                self.lines += [line.decode() for line in lines]
                if any(text in line for line in self.lines[-len(lines) - 1 :]):
                    return True

        return False

    def is_ready(self) -> bool:
        """Return True if the output, which another task reads, shows that the server serves."""
        return '"server.ready"' in "".join(self.lines)

    def has_ended(self) -> bool:
        return self.process.returncode is not None

    async def has_worked(self, seconds: float, unless: Callable[[], bool]) -> None:
        """Wait until the process has used this much more processor time, or a condition holds.

        It is a moment of the server's work, which a busy machine reaches as well, only later.
        """
        with contextlib.suppress(psutil.NoSuchProcess):  # It has ended by itself.
            process = psutil.Process(self.process.pid)
            end = _processor_time(process) + seconds
            await eventually(lambda: _processor_time(process) >= end or unless())

    async def to_its_end(self) -> None:
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            self.lines.append(chunk.decode(errors="replace"))


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@asynccontextmanager
async def process_of(argv: list[str]) -> AsyncIterator[Output]:
    """Run a process whose output is read; kill it at the end if it still lives."""
    async with await anyio.open_process(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield Output(process)
        finally:
            kill(process)


def kill(process: anyio.abc.Process) -> None:
    # Not `process.kill()`: that polls for the exit, and so takes the exit code from its waiter.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGUSR2 if IS_MEASURED else signal.SIGKILL)


@asynccontextmanager
async def session(execution: Path, since_seq: int | None = None) -> AsyncIterator[Client]:
    """Connect a client that notices when its server is gone."""
    address = discover(execution)
    async with connect(
        address.url, token=address.token, since_seq=since_seq, reconnect=False
    ) as client:
        yield client


def attempts_beside(execution: Path) -> list[Path]:
    """Return the executions of attempts, whose servers have ended."""
    beside = execution.parent.iterdir()
    return sorted(path for path in beside if MANAGED_NAME.fullmatch(path.name))


class Grounds:
    """One scenario, restored from a copy for every strike."""

    def __init__(self, folder: Path, scenario: Scenario, tally: Tally) -> None:
        self.folder = folder
        self.execution = folder / "execution"
        self.hank = folder / "hank" / "hank.json"
        self.scenario = scenario
        self.tally = tally
        self._template = folder / "template"
        self._prepared = folder / "prepared"
        """Exists once the template is complete: scenarios that begin alike share a folder."""
        self._armed = folder / "armed"
        self._before: Tree = {}
        self._after: Tree = {}
        self._journeys = 0
        self._travels = False
        self._found: list[str] = []

    async def build(self) -> dict[str, int]:
        """Prepare, act once without a fault, and count the calls of each group."""
        if not self._prepared.exists():
            await self.scenario.prepare(self.folder)
            if self.execution.exists():
                copy_execution(self.execution, self._template)

            self._prepared.touch()

        self._lay_out()
        if self.execution.exists():
            self._journeys = len(_journeys(self.execution))
            self._before = tree(self.execution / "agentRoot")

        strike = self.strike("write", 0)
        acknowledged = await self._act(strike)
        self._after = tree(self.execution / "agentRoot")
        self._travels = self._has_travelled()
        assert acknowledged.is_done, "nothing was struck, and yet it was not done"
        assert self._found == []
        return strike.counted

    def strike(self, group: str, at: int, **how: object) -> Strike:
        return Strike(
            group=group,
            below=str(self.folder),
            report=str(self.folder / "report.json"),
            at=at,
            switch=str(self._armed),
            **how,  # type: ignore[arg-type]
        )

    async def survive(self, strike: Strike, *, arrives: bool = False) -> bool:
        """Strike, start again, check; return False if there was no such call any more.

        With `arrives` the fault is no excuse for an incomplete action.
        """
        acknowledged = await self._act(strike)
        is_a_start = self.scenario.act is None and not self.scenario.is_at_work
        arrives = arrives or is_a_start or bool(acknowledged.rollbacks)
        arrives = arrives or self._has_travelled()
        found = [*self._found, *await self._start_again(acknowledged, *self._expected(arrives))]
        where = f"{self.scenario.name}, {strike}"
        self.tally.add(
            f"{ACTIONS[strike.action]} {self.scenario.name}",
            of="points",
            acknowledged=acknowledged.count,
            violations=[f"{where}: {what}" for what in found],
        )
        if found:
            kept = Path(tempfile.gettempdir()) / "hankweave-faults" / where.replace(" ", "-")
            shutil.rmtree(kept, ignore_errors=True)
            copy_execution(self.folder, kept)
            (kept / "found.txt").write_text("\n".join(found))

        return strike.was_met

    async def only_struck(self, strike: Strike) -> None:
        """Strike, and leave everything unchanged afterwards."""
        await self._act(strike)

    def forget(self) -> None:
        """Free the folder for other grounds."""
        shutil.rmtree(self._template, ignore_errors=True)
        self._prepared.unlink()

    def _expected(self, arrives: bool) -> list[Tree]:
        """Return the possible files: known for a rollback; a codon may have written or not."""
        if arrives:
            return [self._after]

        return [self._before] if self._travels else [self._before, self._after]

    def _has_travelled(self) -> bool:
        """Return True if a rollback had been committed, so that a start has to complete it."""
        is_intended = _is_intended(Layout.of_execution(self.execution))
        return is_intended or len(_journeys(self.execution)) > self._journeys

    def _lay_out(self) -> None:
        shutil.rmtree(self.execution, ignore_errors=True)
        shutil.rmtree(self.folder / BESIDE, ignore_errors=True)
        (self.folder / BESIDE).mkdir()
        for attempt in attempts_beside(self.execution):
            shutil.rmtree(attempt)

        if self._template.exists():
            copy_execution(self._template, self.execution)

    # --- under the strike ---------------------------------------------------------------------

    async def _act(self, strike: Strike) -> Acknowledged:
        self._lay_out()
        self._found.clear()
        Path(strike.report).unlink(missing_ok=True)
        self._armed.touch()
        argv = command("run", str(self.hank), "--execution", str(self.execution), "--json")
        argv += self.scenario.flags
        if "--headless" not in self.scenario.flags:
            argv.append("--no-exit-on-complete")

        acknowledged = Acknowledged()
        if self.scenario.act is None:
            await self._whole_life(strike, [*strike.argv(), "--", *argv], acknowledged)
        else:
            await self._one_act(strike, argv, self.scenario.act, acknowledged)

        return acknowledged

    async def _whole_life(
        self, strike: Strike, argv: list[str], acknowledged: Acknowledged
    ) -> None:
        async with process_of(argv) as output:
            if await output.until('"server.ready"'):
                await self._listening(acknowledged, _rest if self.scenario.is_at_work else _nothing)
                if output.process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(output.process.pid, signal.SIGTERM)

            await output.to_its_end()
            with limited():
                code = await output.process.wait()

            assert Path(strike.report).exists(), output.lines
            self._judge(strike, code, output)

    async def _one_act(
        self, strike: Strike, argv: list[str], act: Act, acknowledged: Acknowledged
    ) -> None:
        async with process_of(argv) as server:
            assert await server.until('"server.ready"'), server.lines
            async with process_of([*strike.argv(), str(server.process.pid)]) as tracer:
                assert await tracer.until("attached"), tracer.lines
                async with anyio.create_task_group() as group:
                    group.start_soon(server.to_its_end)
                    await self._listening(acknowledged, act)
                    self._armed.unlink(missing_ok=True)
                    if strike.action != "kill":
                        await self._goes_on_or_ends(server, acknowledged)

                    kill(server.process)

                with limited():
                    await tracer.process.wait()
                    code = await server.process.wait()

                await tracer.to_its_end()
                assert Path(strike.report).exists(), tracer.lines
                self._judge(strike, code, server)

    async def _goes_on_or_ends(self, server: Output, acknowledged: Acknowledged) -> None:
        """Check that the server either works after a temporary fault or has ended."""

        async def works_or_has_ended() -> bool:
            if server.process.returncode is None:
                await self._listening(acknowledged, _one_more)

            works = (
                bool(acknowledged.checkpoints) and acknowledged.checkpoints[-1].label == ONE_MORE
            )
            return works or server.process.returncode is not None

        try:
            await eventually(works_or_has_ended)
        except TimeoutError:
            self._found.append("It lives on after the fault, and takes no checkpoint.")

    def _judge(self, strike: Strike, code: int, output: Output) -> None:
        """Check that a server that ends because of a fault gives the reason in a sentence."""
        if any("Traceback" in line for line in output.lines):
            lines = [line for line in output.lines if not line.startswith('{"')]
            self._found.append("\n".join(["It ended with a traceback:", *lines[-40:]]))

        if code not in ENDS:
            self._found.append(f"It ended with exit code {code}.")

    async def _listening(self, acknowledged: Acknowledged, act: Act) -> None:
        """Act, and record all events meanwhile."""
        try:
            async with (
                session(self.execution, since_seq=0) as client,
                anyio.create_task_group() as group,
            ):
                group.start_soon(self._receive, client, acknowledged)
                await _acted(client, acknowledged, act)
                group.cancel_scope.cancel()
        except Lost:
            return

    async def _receive(self, client: Client, acknowledged: Acknowledged) -> None:
        """Record the events; free some space when the server reports a full disk."""
        try:
            async for event in client.events():
                acknowledged.receive(event)
                if isinstance(event.data, ServerDegraded):
                    self._armed.unlink(missing_ok=True)
        except Lost:
            return

    # --- after the restart --------------------------------------------------------------------

    async def _start_again(self, acknowledged: Acknowledged, *expected: Tree) -> list[str]:
        try:
            async with running_server(self.hank, None, self.execution, "--no-autostart") as server:
                found = [
                    *await self._left_over(),
                    *tree_violations(self.execution, *expected),
                ]
                async with server.client() as client:
                    try:
                        acknowledged.checkpoints.append(
                            await client.send(CheckpointCreate(label="It still works."))
                        )
                    except CommandRefused as refusal:
                        found.append(f"It takes no checkpoint after the next start: {refusal}")

                code = await server.stop()
        except (AssertionError, *Lost) as problem:
            return [f"It does not start again: {problem}"]

        if code != 0:
            found.append(f"It stopped with exit code {code}.")

        if self.scenario.aftermath is not None:
            found += await self.scenario.aftermath(self.execution, acknowledged)

        return [*found, *violations(self.execution, acknowledged)]

    async def _left_over(self) -> list[str]:
        """Return leftovers of a start; a server that has just begun may be saving its state."""
        try:
            await eventually(lambda: not leftovers(self.execution, serving=True))
        except TimeoutError:
            return leftovers(self.execution, serving=True)

        return []


async def _nothing(client: Client, acknowledged: Acknowledged) -> None:
    """Only connect a client."""
    await client.send(GetServerStatus())


async def _rest(client: Client, acknowledged: Acknowledged) -> None:
    """Wait until the plan has ended."""

    async def is_at_rest() -> bool:
        await client.send(GetServerStatus())
        return acknowledged.is_at_rest

    await eventually(is_at_rest)


async def _one_more(client: Client, acknowledged: Acknowledged) -> None:
    acknowledged.checkpoints.append(await client.send(CheckpointCreate(label=ONE_MORE)))


async def _acted(client: Client, acknowledged: Acknowledged, act: Act) -> None:
    try:
        with limited():
            await act(client, acknowledged)

        acknowledged.is_done = True
    except Lost:
        return


def ends_rollback(data: object) -> bool:
    """Return True for the last event of a rollback: the one with the report."""
    if isinstance(data, CheckpointRollback):
        return data.report is not None

    return isinstance(data, RollbackCompleted)


def _is_intended(layout: Layout) -> bool:
    """Return whether a start will find the intent of a rollback: as a file, or in the log."""
    images = [image for record in wal.read_records(layout.wal) for image in record.images]
    name = os.fsencode(layout.rollback_intent.name)
    newest = next((image for image in reversed(images) if image.name == name), None)
    return layout.rollback_intent.exists() if newest is None else newest.content is not None


def _journeys(execution: Path) -> list[Event]:
    """Return the rollbacks whose end is in the journal; its last line may be torn."""
    kinds = (RollbackCompleted, CheckpointRollback)
    names = tuple(json.dumps(kind.TYPE).encode() for kind in kinds)
    path = Layout.of_execution(execution).journal
    if not path.exists() or not any(name in path.read_bytes() for name in names):
        return []

    torn = path.read_bytes().rpartition(b"\n")[2]
    if torn:
        return []  # A batch is one write: the torn part was the rollback itself.

    return [event for event in journal(execution) if ends_rollback(event.data)]
