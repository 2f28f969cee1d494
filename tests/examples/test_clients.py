"""Claims of examples/clients: each program follows a real server, and rolls back when it idles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.streams.text import TextReceiveStream

from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    RollbackCompleted,
    ServerIdle,
)
from support.git_facts import GitWitness
from support.running_server import appears, environment, journal, running_server, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT, limited

TOP = Path(__file__).resolve().parents[2]
CLIENTS = TOP / "examples" / "clients"
NODE_FLAG = "--experimental-websocket"


@dataclass(frozen=True)
class Program:
    """One of the example programs, and how to start it here."""

    name: str
    words: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def node_with_websocket() -> tuple[str, ...]:
    """Return a node command with WebSocket; skip the test with a reason where there is none."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node program")

    for words in ((node,), (node, NODE_FLAG)):
        asked = subprocess.run([*words, "-e", "WebSocket"], capture_output=True, check=False)
        if asked.returncode == 0:
            return words

    pytest.skip("node knows no WebSocket: it is older than 20.10")


def program(name: str, tmp_path: Path) -> Program:
    paths = f"{TOP / 'protocol'}:{TOP / 'server'}"
    match name:
        case "python":
            words = (sys.executable, str(CLIENTS / "follow.py"))
            return Program(name, words, {"PYTHONPATH": paths})
        case "node":
            return Program(name, (*node_with_websocket(), str(CLIENTS / "follow.mjs")))
        case "shell with websockets":
            return Program(
                name, shell(), {"PYTHON": sys.executable, "PATH": without_websocat(tmp_path)}
            )
        case _:
            if shutil.which("websocat") is None:
                pytest.skip("there is no websocat program")

            return Program(name, shell(), {"PYTHON": "/none"})


def shell(top: Path = TOP) -> tuple[str, ...]:
    """Return the shell program in a folder without a Hankweave environment beside it."""
    for tool in ("bash", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} program")

    if top == TOP:
        return ("bash", str(CLIENTS / "follow.sh"))

    copy = top / "examples" / "clients" / "follow.sh"
    copy.parent.mkdir(parents=True)
    shutil.copy(CLIENTS / "follow.sh", copy)
    return ("bash", str(copy))


def without_websocat(folder: Path) -> str:
    """Return a PATH with only the programs that the shell program needs."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for tool in ("bash", "dirname", "jq", "sed"):
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)

    return str(programs)


@dataclass
class Running:
    process: anyio.abc.Process
    lines: list[str] = field(default_factory=list)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def prints(self, beginning: str, end: str = "") -> None:
        """Wait for a line."""
        with limited():
            while not any(line.startswith(beginning) and line.endswith(end) for line in self.lines):
                await self._changed.wait()

    async def ended(self) -> int:
        with limited():
            return await self.process.wait()

    async def listen(self) -> None:
        assert self.process.stdout is not None
        rest = ""
        async for text in TextReceiveStream(self.process.stdout):
            *lines, rest = (rest + text).split("\n")
            self.lines.extend(lines)
            changed, self._changed = self._changed, anyio.Event()
            changed.set()


@asynccontextmanager
async def started(client: Program, *arguments: str | Path) -> AsyncIterator[Running]:
    words = [*client.words, *map(str, arguments)]
    async with await anyio.open_process(
        words, env=environment(**client.env), stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as process:
        running = Running(process)
        async with anyio.create_task_group() as group:
            group.start_soon(running.listen)
            try:
                yield running
            finally:
                if process.returncode is None:
                    process.kill()


async def whole_output(client: Program, *arguments: str | Path) -> tuple[int, str]:
    async with started(client, *arguments) as running:
        code = await running.ended()

    return code, "\n".join(running.lines)


def two_codons(folder: Path, gate: Path) -> Path:
    return write_hank(
        folder / "hank",
        codon("one", writes("a.txt", "one")),
        codon("two", waits_for(gate), writes("a.txt", "two"), writes("b.txt", "two")),
    )


def journal_lines(execution: Path) -> list[str]:
    """Return the lines that a client prints of the journal, without the ends of rollbacks."""
    lines = []
    for event in journal(execution):
        match event.data:
            case CodonStartedEvent(codon_id=name) | CodonCompletedEvent(codon_id=name):
                lines.append(f"{event.seq} {event.type} {name}")
            case ServerIdle(reason="all-codons-completed", message=message):
                lines.append(f"{event.seq} {event.type} {message}")
            case _:
                pass

    return lines


ALL = ("python", "node", "shell with websockets", "shell with websocat")


@pytest.mark.parametrize("name", ALL)
async def test_a_program_follows_and_goes_back(name: str, tmp_path: Path) -> None:
    """A client prints each codon once, and leaves the files of the codon's end."""
    client = program(name, tmp_path)
    execution, gate = tmp_path / "execution", tmp_path / "gate"
    async with running_server(two_codons(tmp_path, gate), None, execution):
        await appears(execution / ".hankweave" / "server.token")
        async with started(client, execution, "one") as running:
            await running.prints("", "codon.started two")
            gate.touch()
            assert await running.ended() == 0, "\n".join(running.lines)

        safety = journal_rollback(execution).report
        assert safety.safety is not None
        assert running.lines[0].startswith("connected as client-")
        # Clients that read until the reply arrives also get the rollback's own end.
        shown = [line for line in running.lines[1:] if not line.endswith(" waiting for a command.")]
        assert shown == [
            *journal_lines(execution),
            "back at the end of one: 0 added, 1 updated, 1 removed",
            f"what was there is kept in {safety.safety.checkpoint_sha}",
        ]
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        GitWitness(execution).assert_sound()


def journal_rollback(execution: Path) -> RollbackCompleted:
    (done,) = [e.data for e in journal(execution) if isinstance(e.data, RollbackCompleted)]
    assert done.reason == "An example went back."
    return done


@pytest.mark.parametrize("name", ALL)
async def test_a_program_can_be_run_again(name: str, tmp_path: Path) -> None:
    """Past events cause no action: on an idle server it reads to the end, then rolls back."""
    client = program(name, tmp_path)
    execution, gate = tmp_path / "execution", tmp_path / "gate"
    gate.touch()
    async with running_server(two_codons(tmp_path, gate), None, execution) as server:
        async with server.client(since_seq=0) as watching:
            await watching.until(ServerIdle, timeout=LIMIT)

        for _ in range(2):
            code, output = await whole_output(client, execution, "one")
            assert (code, output.count("back at the end of one")) == (0, 1), output

    rollbacks = [e for e in journal(execution) if isinstance(e.data, RollbackCompleted)]
    assert len(rollbacks) == 2


@pytest.mark.parametrize("name", ALL)
async def test_a_program_says_why_it_was_refused(name: str, tmp_path: Path) -> None:
    """The server's code, sentence and hint are printed, and the exit code is 1."""
    client = program(name, tmp_path)
    execution, gate = tmp_path / "execution", tmp_path / "gate"
    gate.touch()
    async with running_server(two_codons(tmp_path, gate), None, execution):
        code, output = await whole_output(client, execution, "three")

    assert code == 1
    assert "UNKNOWN_CODON: " in output
    assert "one" in output.splitlines()[-1], "the hint lists the codons that there are"


@pytest.mark.parametrize("name", ["python", "shell with websockets", "shell with websocat"])
async def test_a_program_says_that_there_is_no_server(name: str, tmp_path: Path) -> None:
    """A program ends with 69; the one in JavaScript waits half a minute for a server to return."""
    code, output = await whole_output(program(name, tmp_path), tmp_path / "none", "one")
    assert code == 69
    assert str(tmp_path / "none") in output


@pytest.mark.parametrize("name", ["python", "shell with websockets"])
async def test_a_program_says_that_a_server_does_not_listen_yet(name: str, tmp_path: Path) -> None:
    """A lock without a port is no address; the program in JavaScript retries."""
    folder = tmp_path / "execution" / ".hankweave"
    folder.mkdir(parents=True)
    (folder / "server.token").write_text("0\n")
    lock = {"pid": os.getpid(), "runId": None, "startTime": "t", "lastHeartbeat": "t"}
    (folder / "runtime.lock").write_text(json.dumps(lock))
    code, output = await whole_output(program(name, tmp_path), folder.parent, "one")
    assert (code, "does not listen yet" in output) == (69, True), output


@pytest.mark.parametrize("name", ["shell with websockets", "shell with websocat"])
async def test_the_shell_program_ends_with_its_server(name: str, tmp_path: Path) -> None:
    """The program does not reconnect: it reports that the server is gone, and ends with 69."""
    client = program(name, tmp_path)
    execution, gate = tmp_path / "execution", tmp_path / "gate"
    async with (
        running_server(two_codons(tmp_path, gate), None, execution) as server,
        started(client, execution, "one") as running,
    ):
        await running.prints("", "codon.started two")
        server.kill()
        assert await running.ended() == 69

    assert "The server went away." in running.lines


async def test_the_shell_program_says_which_tool_it_lacks(tmp_path: Path) -> None:
    """Without websocat and without a Python that has websockets it ends with 69."""
    env = {"PYTHON": "/none", "PATH": without_websocat(tmp_path)}
    client = Program("shell", shell(top=tmp_path), env)
    folder = tmp_path / "execution" / ".hankweave"
    folder.mkdir(parents=True)
    (folder / "runtime.lock").write_text('{"port": 9}')
    (folder / "server.token").write_text("0\n")
    code, output = await whole_output(client, folder.parent, "one")
    assert (code, "follow.sh needs websocat" in output) == (69, True), output


@pytest.mark.parametrize("name", ["python", "node"])
@pytest.mark.story(
    "The example client follows an execution, reconnects and misses nothing.", cases=("python",)
)
async def test_a_program_misses_nothing_when_the_server_dies(name: str, tmp_path: Path) -> None:
    """After `kill -9` and a new start it continues where it was: no duplicate and no gap."""
    client = program(name, tmp_path)
    execution, gate = tmp_path / "execution", tmp_path / "gate"
    hank = two_codons(tmp_path, gate)
    async with (
        running_server(hank, None, execution) as first,
        started(client, execution, "one") as running,
    ):
        await running.prints("", "codon.started two")
        first.kill()
        await first.ended()
        async with running_server(hank, None, execution):
            gate.touch()
            assert await running.ended() == 0, "\n".join(running.lines)

    shown = [line for line in running.lines if line[0].isdigit()]
    assert [
        line for line in shown if not line.endswith(" waiting for a command.")
    ] == journal_lines(execution)
    assert tree(execution / "agentRoot") == {"a.txt": b"one"}
