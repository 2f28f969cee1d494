"""A client with the viewer token sees everything and changes nothing, whatever mode it claims."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as shapes
import pytest

from hankweave_client.discovery import discover
from hankweave_protocol.commands import COMMANDS, CodonSkip, CommandData
from intruders.servers import Target, target
from intruders.wire import frame, open_socket, peer, request, socket_peer
from support.running_server import appears, journal, running_server, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.small_server import small_server
from support.waiting import eventually

LOOKS = {name for name, kind in COMMANDS.members.items() if not (kind.MUTATES or kind.BEYOND)}
"""The commands a viewer may send; tests/golden/interfaces/protocol.txt has the rights of each."""

OF_NOTHING = {
    "mirror.status": "INVALID_COMMAND",
    "codon.readPrompt": "UNKNOWN_CODON",
    "codon.readResult": "INVALID_COMMAND",
    "exploration.compare": "INVALID_COMMAND",
    "exploration.show": "INVALID_COMMAND",
}
"""Those that are refused here, because what they name does not exist; never for the viewer's role.
"""

MEANT: dict[str, dict[str, Any]] = {"replay.view": {"seq": 1}}
"""Data that a command needs beyond its required fields."""

CLAIMS: list[dict[str, Any]] = [
    {"mode": "readandwrite"},
    {"mode": "readandwrite", "role": "controller", "admin": True},
    {"mode": "readandwrite", "scopes": ["*"], "clientId": "client-1"},
]


def least(command: type[CommandData], sha: str) -> dict[str, Any]:
    """Return the smallest data that a command accepts: its required fields, and real shas."""
    kind = shapes.type_info(command)
    assert isinstance(kind, shapes.StructType)
    return {
        field.encode_name: _value(field.type, field.encode_name, sha)
        for field in kind.fields
        if field.required
    }


def _value(kind: shapes.Type, name: str, sha: str) -> Any:
    match kind:
        case shapes.StrType() if name == "path":
            return "a.txt"
        case shapes.StrType():
            return sha
        case shapes.BoolType():
            return True
        case shapes.IntType():
            return 1
        case shapes.LiteralType(values=values):
            return values[0]
        case _:
            raise AssertionError(f"a command requires {kind}: say what to send")


def condition(aim: Target) -> tuple[Any, ...]:
    """Return all state that a viewer could have changed."""
    execution = aim.server.execution
    return len(journal(execution)), state(execution), tree(execution / "agentRoot")


@pytest.mark.story(
    "A client with the viewer's token sees everything and changes nothing.", of="SECURITY.md"
)
async def test_a_viewer_may_read_and_is_refused_every_other_command(tmp_path: Path) -> None:
    """Every command is refused with INSUFFICIENT_PERMISSIONS, or answered without a trace."""
    async with target(tmp_path) as aim:
        before = condition(aim)
        for claim in CLAIMS:
            async with peer(aim.url, aim.viewer) as viewer:
                await viewer.handshake(**claim)
                sha = await viewer.newest_checkpoint()
                for name, kind in COMMANDS.members.items():
                    reply = await viewer.command(name, **least(kind, sha), **MEANT.get(name, {}))
                    if name in OF_NOTHING:
                        assert reply["data"].get("code") == OF_NOTHING[name], (name, reply)
                    elif name in LOOKS:
                        assert reply["type"] == "command.succeeded", reply
                    else:
                        assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS", reply

            assert condition(aim) == before


TOOLS = {name for name, kind in COMMANDS.members.items() if kind.AGENTS == "tools"}
"""The commands behind the tools that every agent is offered."""

NARROW = {"paths": ["a.txt"], "onRunning": "pause", "keepEdits": True}
WIDE: list[dict[str, Any]] = [
    {},
    {**NARROW, "paths": None},
    {**NARROW, "keepEdits": False},
    {**NARROW, "onRunning": "stop"},
    {**NARROW, "autoRestart": True},
    {**NARROW, "rewindMemory": True},
]
"""Forms of `rollback.toCheckpoint` that no agent may send."""


@asynccontextmanager
async def agents_socket(folder: Path, **tools: bool) -> AsyncIterator[tuple[Target, Path]]:
    """Run an agent that waits; yield the server and the agent's own socket."""
    go_on, execution = folder / "go-on", folder / "execution"
    steps = (writes("a.txt", "first"), {"run": 'echo "$HANKWEAVE_AGENT_SOCKET" > socket'})
    hank = write_hank(
        folder / "hank",
        codon("one", *steps, waits_for(go_on), env={"SECRET_OF_THE_PLAN": "hush"}),
        overrides={"agentTools": tools},
    )
    async with running_server(hank, None, execution) as server:
        record = execution / "agentRoot" / "socket"
        await appears(record)
        address = discover(execution)
        assert address.token is not None
        aim = Target(server, address.url, address.token, "")
        path = await eventually(lambda: record.read_text().strip())
        yield aim, Path(path)
        go_on.touch()
        await eventually(lambda: not os.path.lexists(path))


@pytest.mark.story(
    "Over its socket, an agent can do what its tools do and nothing else.",
    of="SECURITY.md",
    cases=("False",),
)
@pytest.mark.parametrize("rollback", [False, True])
async def test_an_agent_may_do_what_its_tools_do_and_nothing_else(
    tmp_path: Path, rollback: bool
) -> None:
    """The server refuses every other command on an agent's socket, whatever token comes with it.

    An agent gets no events and no state. What it reads of the past has no plan, whose environment
    holds secrets of other codons.
    """
    async with agents_socket(tmp_path, rollbackPaths=rollback) as (aim, path):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        async with socket_peer(path) as agent:
            hello = {"mode": "readandwrite", "protocolVersion": 1, "token": aim.controller}
            agent.send(frame(msgspec.json.encode({"type": "handshake", "data": hello})))
            greeting = [(await agent.message())["type"] for _ in range(2)]
            assert greeting == ["handshake.response", "server.ready"]
            sha = await agent.newest_checkpoint()
            for name, kind in COMMANDS.members.items():
                reply = await agent.command(name, **least(kind, sha), **MEANT.get(name, {}))
                if name in TOOLS | {"ping", "server.status"}:
                    assert reply["type"] == "command.succeeded", reply
                else:
                    assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS", reply

                assert "hush" not in str(reply)

            for form in WIDE:
                reply = await agent.command("rollback.toCheckpoint", checkpointSha=sha, **form)
                assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS", reply

            reply = await agent.command("rollback.toCheckpoint", checkpointSha=sha, **NARROW)
            assert (reply["type"] == "command.succeeded") == rollback, reply


async def test_an_agents_socket_is_for_its_codon_alone(tmp_path: Path) -> None:
    """When the codon ends, open connections end, and the socket is gone.

    Pages are not served on it, and an agent cannot use up the server's connections.
    """
    async with agents_socket(tmp_path) as (aim, path), AsyncExitStack() as stack:
        reader, writer = await open_socket(path)
        writer.write(request(0, "/metrics"))
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
        writer.close()
        agents = [await stack.enter_async_context(socket_peer(path)) for _ in range(16)]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stack.enter_async_context(socket_peer(path))

        async with aim.server.client() as client:
            await client.send(CodonSkip())

        for agent in agents:
            assert await agent.close_code() is None

        with pytest.raises(FileNotFoundError):
            await stack.enter_async_context(socket_peer(path))


async def test_a_viewer_of_hankweaves_dialect_writes_no_event(tmp_path: Path) -> None:
    """A viewer's checkpoint.list is answered to it alone; a controller's is an event to all."""
    async with target(tmp_path) as aim, peer(aim.url, aim.viewer) as viewer:
        before = condition(aim)
        viewer.send(frame(b'{"type":"handshake","data":{"mode":"readandwrite"}}'))
        assert (await viewer.message())["data"]["mode"] == "readonly"
        assert (await viewer.message())["type"] == "server.ready"
        for name in COMMANDS.members:
            viewer.send(frame(b'{"id":"1","type":"checkpoint.list"}'))
            reply = await viewer.message()
            assert (reply["type"], "seq" in reply) == ("checkpoint.list", False)
            assert len(reply["data"]["checkpoints"]) > 0
            viewer.send(frame(msgspec.json.encode({"id": "2", "type": name, "data": {}})))
            viewer.send(frame(b'{"id":"3","type":"ping"}'))
            while (await viewer.message())["type"] != "pong":
                pass

            if name == "ping":
                assert (await viewer.message())["type"] == "pong"

        assert condition(aim) == before


async def test_a_mode_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """Only the two modes are accepted, and an unknown mode grants nothing."""
    async with small_server(tmp_path) as server:
        for mode in ("admin", "readwrite", "READANDWRITE", "", None, 1, ["readandwrite"]):
            async with peer(server.url, server.viewer) as client:
                hello = {"type": "handshake", "data": {"mode": mode, "protocolVersion": 1}}
                client.send(frame(msgspec.json.encode(hello)))
                assert (await client.message())["data"]["code"] == "INVALID_COMMAND"
                client.send(frame(b'{"id":"1","type":"server.shutdown"}'))
                assert (await client.message())["data"]["code"] == "HANDSHAKE_REQUIRED"

        assert (server.rest.callers, server.rest.handled) == ([], [])


async def test_a_second_handshake_raises_no_role(tmp_path: Path) -> None:
    """A viewer that shakes hands again, in any mode, stays a viewer; a guessed token closes it."""
    async with target(tmp_path) as aim, peer(aim.url, aim.viewer) as viewer:
        before = condition(aim)
        await viewer.handshake()
        await viewer.handshake(role="controller")
        reply = await viewer.command("rollback.undo")
        assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS"
        hello = {"mode": "readandwrite", "protocolVersion": 1, "token": "0" * 64}
        viewer.send(frame(msgspec.json.encode({"type": "handshake", "data": hello})))
        viewer.send(frame(b'{"id":"s","type":"server.shutdown"}'))
        assert (await viewer.message())["data"]["code"] == "UNAUTHORIZED"
        assert await viewer.close_code() == 1008
        assert condition(aim) == before
