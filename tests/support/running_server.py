"""The real server as a real process: start it, talk to it over a real socket, kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_protocol import codec
from hankweave_protocol.events import Event
from hankweave_protocol.state import State
from hankweave_server.domain.reducer import fold
from support.waiting import eventually, limited

IS_MEASURED = "COVERAGE_PROCESS_CONFIG" in os.environ
"""True if coverage is measured: then `measured_server` runs, which saves its data when killed."""

CONFINEMENT = "HANKWEAVE_RUNTIME_CONFINEMENT"
CONFINED = {CONFINEMENT: ""}
"""The environment of a server that confines its agents as a user's does."""

_PACKAGES = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
_ABSOLUTE = os.pathsep.join(map(os.path.abspath, _PACKAGES))
"""As they were when the tests began: a program may be started in another folder."""

SCRIPT = Path(sys.executable).with_name("hankweave")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "earthquakes"


@dataclass
class RunningServer:
    """One `hankweave run` process."""

    process: anyio.abc.Process
    execution: Path
    output: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @asynccontextmanager
    async def client(self, since_seq: int | None = None) -> AsyncIterator[Client]:
        address = discover(self.execution)
        async with connect(address.url, token=address.token, since_seq=since_seq) as client:
            yield client

    def kill(self) -> None:
        """Send SIGKILL: the server cannot shut down in order."""
        self.process.send_signal(signal.SIGKILL)

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        with limited():
            return await self.process.wait()


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of the tests without variables that change a server's behaviour.

    A variable that disables bytecode is removed: each of thousands of starts would compile all
    modules. The size of the tests' own terminal must not reach those that they open.

    Agents are not confined, because tests let them leave files beside the work tree, or break the
    state directory; `CONFINED` is for those that are about confinement.
    """
    without = ("HANKWEAVE", "GIT_", "PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(without)}
    packages = {"PYTHONPATH": _ABSOLUTE} if _PACKAGES else {}
    return kept | {CONFINEMENT: "none"} | packages | extra


def command(*arguments: str, trace: Path | None = None) -> list[str]:
    """Return the installed console script; in a bare checkout, the module behind it."""
    if trace is not None:
        traced = Path(__file__).with_name("traced_server.py")
        return [sys.executable, str(traced), str(trace), *arguments]

    if IS_MEASURED:
        return [sys.executable, str(Path(__file__).with_name("measured_server.py")), *arguments]

    if SCRIPT.exists():
        return [str(SCRIPT), *arguments]

    return [sys.executable, "-c", "from hankweave_server.cli.app import main; main()", *arguments]


@asynccontextmanager
async def running_server(
    hank: Path | None,
    data: Path | None,
    execution: Path,
    *options: str,
    env: dict[str, str] | None = None,
    place: str = "--execution",
    may_end: bool = False,
    trace: Path | None = None,
    within: Sequence[str] = (),
    start: Sequence[str] = ("run",),
) -> AsyncIterator[RunningServer]:
    """Start `hankweave run` and wait until it serves; kill it at the end if it still lives.

    `start` are the words of another command that serves an execution.

    Its stdout is a pipe, so it would end with its plan; it keeps serving unless it `may_end`. With
    `trace` it is a `traced_server` that writes its trace to that file. `within` is a command that
    executes the one after it.
    """
    if not may_end and not {"--headless", "--exit-on-complete", "--no-exit-on-complete"} & set(
        options
    ):
        options = ("--no-exit-on-complete", *options)

    words = [*(str(path) for path in (hank, data) if path), place, str(execution)]
    state_home = os.environ.get("XDG_STATE_HOME", str(execution.parent / "state-home"))
    async with await anyio.open_process(
        [*within, *command(*start, *words, "--json", *options, trace=trace)],
        env=environment(**{"XDG_STATE_HOME": state_home} | (env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        server = RunningServer(process, execution)
        async with anyio.create_task_group() as readers:
            ready = anyio.Event()
            readers.start_soon(_read, server, ready)
            try:
                with limited():
                    await ready.wait()

                assert any('"server.ready"' in line for line in server.output), server.output
                yield server
            finally:
                await _end(process)
                readers.cancel_scope.cancel()


@asynccontextmanager
async def served(
    hank: Path | None,
    execution: Path,
    *options: str,
    env: dict[str, str] | None = None,
    place: str = "--execution",
    since_seq: int | None = None,
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server and connect a client to it."""
    async with (
        running_server(hank, None, execution, *options, env=env, place=place) as server,
        server.client(since_seq) as client,
    ):
        yield server, client


async def run_headless(
    hank: Path | None, execution: Path, *options: str, env: dict[str, str] | None = None
) -> int:
    """Run a plan to its end without a client, and return the exit code."""
    async with running_server(hank, None, execution, "--headless", *options, env=env) as server:
        return await server.ended()


async def _end(process: anyio.abc.Process) -> None:
    if IS_MEASURED and process.returncode is None:
        process.send_signal(signal.SIGUSR2)
        with anyio.CancelScope(shield=True), limited():
            await process.wait()

    if process.returncode is None:
        process.kill()


async def _read(server: RunningServer, ready: anyio.Event) -> None:
    assert server.process.stdout is not None
    rest = b""
    async for chunk in server.process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        server.output.extend(line.decode() for line in lines)
        if any('"server.ready"' in line for line in server.output[-len(lines) - 1 :]):
            ready.set()

    server.output.append(rest.decode())
    ready.set()


def journal(execution: Path) -> list[Event]:
    """Return every event of an execution's journal, as stored on the disk."""
    path = execution / ".hankweave" / "events" / "events.jsonl"
    return [codec.decode_event(line) for line in path.read_bytes().splitlines()]


def state(execution: Path) -> State:
    """Return the state of an execution: state.json, and on top of it the rest of the journal.

    A start reads it in the same way: state.json follows the journal, and nobody waits for it.
    """
    folder = execution / ".hankweave"
    saved = msgspec.json.decode((folder / "state.json").read_bytes(), type=State)
    path = folder / "events" / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return fold(map(codec.decode_event, lines[saved.last_event_seq :]), saved)


async def at_rest(execution: Path) -> None:
    """Wait until an idle server has written what it writes after its replies.

    That is state.json, and the index of the shadow repository.
    """
    state = execution / ".hankweave" / "state.json"
    repository = execution / ".hankweave" / "checkpoints" / ".hankweavecheckpoints"

    def tree_of_head() -> bytes:
        words = ("git", "--git-dir", str(repository), "rev-parse", "HEAD^{tree}")
        return subprocess.run(words, check=True, capture_output=True).stdout

    def is_written() -> bool:
        saved = msgspec.json.decode(state.read_bytes())["lastEventSeq"]
        lines = (state.parent / "events" / "events.jsonl").read_bytes().splitlines()
        is_whole = not any(b'"type":"state.transition"' in line for line in lines[saved:])
        marker = repository / "hankweave-index"
        return is_whole and marker.exists() and marker.read_bytes() == tree_of_head()

    await eventually(is_written)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


async def appears(path: Path) -> None:
    """Wait until a file that another process creates, or moves there with its content, exists."""
    await eventually(path.exists)
