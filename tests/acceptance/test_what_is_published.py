"""Claims of protocol/asyncapi.json on a real server: its frames match the document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket

from codegen.catalogue import FILES
from hankweave_client.discovery import discover
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import limited

DOCUMENT = json.loads((Path(__file__).resolve().parents[2] / "protocol/asyncapi.json").read_text())


@cache
def validator(schema: str) -> Draft7Validator:
    root = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    return Draft7Validator(root)


class Talk:
    """A client that validates every frame, in and out, against the document."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.received: list[dict[str, Any]] = []

    async def ask(self, command: str, **data: Any) -> Any:
        """Send a command and return its reply's data, or the reason for its refusal."""
        frame = {"id": f"c-{len(self.received)}", "type": command, "data": data}
        validator(f"command.{command}").validate(frame)
        await self._socket.send(json.dumps(frame))
        return (await self.receive_reply(command, frame["id"]))["data"]

    async def receive_reply(self, command: str, command_id: str) -> dict[str, Any]:
        while True:
            frame = await self.receive()
            if frame.get("inReplyTo") != command_id:
                continue

            if frame["type"] == "command.succeeded":
                validator(f"reply.{command}").validate(frame)

            return frame

    async def until(self, event: str, **data: Any) -> None:
        while True:
            frame = await self.receive()
            if frame["type"] == event and data.items() <= frame["data"].items():
                return

    async def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self._socket.recv())
        self.received.append(frame)
        match frame["type"]:
            case "handshake.response":
                validator("HandshakeResponse").validate(frame)
            case "command.failed":
                validator("CommandFailed").validate(frame)
            case "command.succeeded":
                validator("CommandSucceeded").validate(frame)
            case event:
                validator(f"event.{event}").validate(frame)

        return frame


@pytest.mark.story(
    "Every frame of the server fits the published description of the wire.", of="protocol/README.md"
)
async def test_every_frame_of_a_server_fits_the_document(tmp_path: Path, execution: Path) -> None:
    """A run, all views, a rollback, its undo, and the files a server leaves match the document."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "one")),
        codon("two", writes("a.txt", "two"), writes("b.txt", "two")),
    )
    async with running_server(hank, None, execution):
        address = discover(execution)
        async with connect_websocket(address.url, proxy=None, max_size=None) as socket:
            with limited():
                talk = Talk(socket)
                await handshake(talk, socket, address.token)
                await talk.until("server.idle", reason="all-codons-completed")
                await send_queries(talk)
                validate_files(execution / ".hankweave")
                await travel(talk)

    types = {frame["type"] for frame in talk.received}
    assert {"server.ready", "state.snapshot", "state.transition", "history.batch"} <= types
    assert {"rollback.completed", "workspace.invalidated", "command.failed", "pong"} <= types
    for line in (execution / ".hankweave" / "events" / "events.jsonl").read_text().splitlines():
        validator("AnyEvent").validate(json.loads(line))


async def handshake(talk: Talk, socket: ClientConnection, token: str | None) -> None:
    hello = {"mode": "readandwrite", "protocolVersion": 1, "sinceSeq": 0, "token": token}
    frame = {"type": "handshake", "data": hello | {"sendPreviousEvents": True}}
    validator("Handshake").validate(frame)
    await socket.send(json.dumps(frame))


async def send_queries(talk: Talk) -> None:
    page = await talk.ask("checkpoint.list", limit=50)
    newest, oldest = page["checkpoints"][0]["sha"], page["checkpoints"][-1]["sha"]
    await talk.ask("checkpoint.diff", **{"from": oldest, "to": newest}, patch=True)
    await talk.ask("checkpoint.readFile", checkpointSha=newest, path="a.txt")
    view = await talk.ask("replay.view", checkpointSha=newest, compare=["previous", "now"])
    assert [file["path"] for file in view["tree"]] == ["a.txt", "b.txt"]
    found = await talk.ask("events.query", types=["codon.completed"])
    assert len(found["events"]) == 2
    assert (await talk.ask("events.query", count=True))["counts"]
    for command in ("state.get", "server.status", "store.fsck", "ping", "history.sync"):
        await talk.ask(command)

    assert (await talk.ask("checkpoint.readFile", checkpointSha=newest, path="none"))["code"]


def validate_files(folder: Path) -> None:
    for name in ("state.json", "execution-meta.json", "runtime.lock"):
        validator(FILES[name].__name__).validate(json.loads((folder / name).read_text()))


async def travel(talk: Talk) -> None:
    record = await talk.ask("checkpoint.create", label="before")
    await talk.ask("checkpoint.pin", checkpointSha=record["sha"], pinned=True, name="here")
    await talk.ask("rollback.preview", codonId="one", patch=True)
    report = await talk.ask("rollback.toCodon", codonId="one", checkpointType="end")
    assert [file["path"] for file in report["removed"]] == ["b.txt"]
    await talk.ask("rollback.undo")
    await talk.ask("rollback.redo")
    await talk.ask("store.gc", dryRun=True, maxCount=1)
    assert (await talk.ask("codon.next"))["codonId"] == "two"
    await talk.until("server.idle", reason="all-codons-completed")
    assert (await talk.ask("codon.redo"))["codonId"] == "two"
    await talk.until("server.idle", reason="all-codons-completed")
    assert await talk.ask("server.shutdown", reason="enough") is None
