"""A client with the viewer token sees everything and changes nothing, whatever mode it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as shapes
import pytest

from hankweave_protocol.commands import COMMANDS, CommandData
from intruders.servers import Target, target
from intruders.wire import frame, peer
from support.running_server import journal, state, tree
from support.small_server import small_server

LOOKS = {
    "checkpoint.diff",
    "checkpoint.list",
    "checkpoint.readFile",
    "events.query",
    "history.sync",
    "ping",
    "replay.view",
    "rollback.preview",
    "server.status",
    "state.get",
}
"""The commands a viewer may send. A new command that is missing here must be refused to viewers."""

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
        case shapes.LiteralType(values=values):
            return values[0]
        case _:
            raise AssertionError(f"a command requires {kind}: say what to send")


def condition(aim: Target) -> tuple[Any, ...]:
    """Return all state that a viewer could have changed."""
    execution = aim.server.execution
    return len(journal(execution)), state(execution), tree(execution / "agentRoot")


def test_every_command_says_whether_it_only_looks() -> None:
    """The list of viewer commands is maintained here by hand, beside the one in the code."""
    assert {name for name, kind in COMMANDS.members.items() if not kind.MUTATES} == LOOKS


@pytest.mark.quick
async def test_a_viewer_may_look_and_is_refused_every_other_command(tmp_path: Path) -> None:
    """Every command is refused with INSUFFICIENT_PERMISSIONS, or answered without a trace."""
    async with target(tmp_path) as aim:
        before = condition(aim)
        for claim in CLAIMS:
            async with peer(aim.url, aim.viewer) as viewer:
                await viewer.greet(**claim)
                sha = await viewer.newest_checkpoint()
                for name, kind in COMMANDS.members.items():
                    reply = await viewer.command(name, **least(kind, sha), **MEANT.get(name, {}))
                    if name in LOOKS:
                        assert reply["type"] == "command.succeeded", reply
                    else:
                        assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS", reply

            assert condition(aim) == before


async def test_a_viewer_of_hankweaves_dialect_writes_no_event(tmp_path: Path) -> None:
    """A viewer's checkpoint.list is answered to it alone; a controller's is an event to all."""
    async with target(tmp_path) as aim, peer(aim.url, aim.viewer) as viewer:
        before = condition(aim)
        viewer.send(frame(b'{"type":"handshake","data":{"mode":"readandwrite"}}'))
        assert (await viewer.message())["data"]["mode"] == "readonly"
        assert (await viewer.message())["type"] == "server.ready"
        for name in COMMANDS.members:
            viewer.send(frame(b'{"id":"1","type":"checkpoint.list"}'))
            told = await viewer.message()
            assert (told["type"], "seq" in told) == ("checkpoint.list", False)
            assert len(told["data"]["checkpoints"]) > 0
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

        assert (server.rest.greeted, server.rest.handled) == ([], [])


async def test_a_second_handshake_raises_nobody(tmp_path: Path) -> None:
    """A viewer that shakes hands again, in any mode, stays a viewer; a guessed token closes it."""
    async with target(tmp_path) as aim, peer(aim.url, aim.viewer) as viewer:
        before = condition(aim)
        await viewer.greet()
        await viewer.greet(role="controller")
        reply = await viewer.command("rollback.undo")
        assert reply["data"]["code"] == "INSUFFICIENT_PERMISSIONS"
        hello = {"mode": "readandwrite", "protocolVersion": 1, "token": "0" * 64}
        viewer.send(frame(msgspec.json.encode({"type": "handshake", "data": hello})))
        viewer.send(frame(b'{"id":"s","type":"server.shutdown"}'))
        assert (await viewer.message())["data"]["code"] == "UNAUTHORIZED"
        assert await viewer.close_code() == 1008
        assert condition(aim) == before
