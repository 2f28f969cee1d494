"""Journal queries give the same answers over the socket, as a viewer and in the CLI."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_raw

from hankweave_client.client import Client
from hankweave_client.discovery import discover
from hankweave_protocol import codec
from hankweave_protocol.commands import CheckpointCreate, EventsQuery
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import EventsPage
from hankweave_server.paths import Layout
from support.running_server import RunningServer, command, environment, running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import limited
from support.watching import after_plan, idle

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))

ASKED: dict[str, tuple[EventsQuery, list[str]]] = {
    "everything": (EventsQuery(), []),
    "a type": (EventsQuery(types=("codon.completed",)), ["--type", "codon.completed"]),
    "a codon": (EventsQuery(codon_id=CodonId("two")), ["--codon", "two"]),
    "a text": (EventsQuery(text="A.TXT"), ["--text", "A.TXT"]),
    "a window": (EventsQuery(since=3, until=9), ["--since", "3", "--until", "9"]),
}


@asynccontextmanager
async def after_the_plan(tmp_path: Path) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server that has run its two codons, and a client of it."""
    hank = write_hank(tmp_path / "hank", *HANK)
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, client):
        yield server, client


async def walk(client: Client, query: EventsQuery, limit: int) -> list[bytes]:
    """Return all pages of an answer."""
    found: list[bytes] = []
    fields: dict[str, Any] = {name: getattr(query, name) for name in query.__struct_fields__}
    while True:
        page = await client.send(EventsQuery(**{**fields, "limit": limit}))
        items = page.events
        assert items is not None
        assert len(items) <= limit
        found += map(bytes, items)
        if page.cursor is None:
            return found

        fields["cursor"] = page.cursor


@pytest.mark.command("events.query")
async def test_the_socket_and_the_command_line_give_the_same_answers(tmp_path: Path) -> None:
    """Pages from the server and the output from the journal's file are the same, line for line."""
    async with after_the_plan(tmp_path) as (server, client):
        for what, (query, options) in ASKED.items():
            seqs = await walk(client, query, limit=3)
            words = command("events", "-e", str(server.execution), "--json", *options)
            done = await anyio.to_thread.run_sync(
                partial(subprocess.run, words, env=environment(), capture_output=True, check=True)
            )
            assert seqs, what
            assert done.stdout.splitlines() == seqs, what


async def test_what_a_command_led_to_is_found(tmp_path: Path) -> None:
    """The result has the events that name the command's id, and all their consequences."""
    async with after_the_plan(tmp_path) as (_, client):
        await client.send(CheckpointCreate(label="before lunch"))
        found = await client.send(EventsQuery(types=("state.transition",), text="before lunch"))
        (record,) = map(codec.decode_event, map(bytes, found.events or ()))
        (command_id,) = record.causes
        direct = await client.send(EventsQuery(caused_by=command_id))
        all_of_it = await client.send(EventsQuery(descendants_of=command_id))
        assert record.seq in _seqs(direct)
        assert set(_seqs(direct)) <= set(_seqs(all_of_it))


BAD: list[tuple[dict[str, Any], str, str | None]] = [
    # data, path, part of the hint
    ({"where": {"field": "type", "op": "eq", "value": "info"}}, "$.data", "types"),
    ({"types": ["codon.complete"]}, "$.data.types[0]", "'codon.completed'"),
    ({"tpyes": []}, "$.data", "'types'"),
    ({"since": "noon"}, "$.data.since", "2025-01-04T12:00:00.000Z"),
    ({"causedBy": 10**9}, "$.data.causedBy", None),
    ({"limit": 5000}, "$.data.limit", None),
    ({"cursor": "nonsense"}, "$.data.cursor", "same query"),
]


async def test_a_bad_query_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    """The error has a code, the JSON path and the nearest valid word; the connection stays open."""
    hank = write_hank(tmp_path / "hank", *HANK)
    async with running_server(hank, None, tmp_path / "execution", "--no-autostart") as server:
        address = discover(server.execution)
        async with server.client(since_seq=0) as client:
            await idle(client, "startup")

        before = Layout.of_execution(server.execution).journal.read_bytes()
        async with connect_raw(f"{address.url}?token={address.token}") as socket:
            await socket.send(
                '{"type": "handshake", "data": {"mode": "readonly", "protocolVersion": 1}}'
            )
            for data, path, word in BAD:
                await socket.send(json.dumps({"id": "q", "type": "events.query", "data": data}))
                failed = await answered(socket)
                assert failed["data"]["code"] == ErrorCode.INVALID_COMMAND, data
                assert failed["data"]["path"] == path
                assert word is None or word in failed["data"]["hint"]

            await socket.send('{"id": "q", "type": "events.query", "data": {"limit": 1}}')
            assert (await answered(socket))["data"]["events"]

        assert Layout.of_execution(server.execution).journal.read_bytes() == before


async def answered(socket: ClientConnection) -> Any:
    """Return the reply to the last command; skip events and greetings."""
    with limited():
        while True:
            frame = json.loads(await socket.recv())
            if frame.get("inReplyTo") == "q":
                return frame


async def test_following_prints_only_what_was_asked_for(tmp_path: Path) -> None:
    """`events --follow --type` prints past matches, then new ones as they happen."""
    async with after_the_plan(tmp_path) as (server, client):
        past = await transitions(client)
        words = ("events", "-e", str(server.execution), "--follow", "--format", "jsonl")
        async with await anyio.open_process(
            command(*words, "--type", "state.transition"),
            env=environment(),
            stderr=subprocess.STDOUT,
        ) as following:
            assert following.stdout is not None
            text = ""
            with limited():
                while text.count("\n") < len(past):
                    text += (await following.stdout.receive()).decode()

                await client.send(CheckpointCreate(label="now"))
                now = await transitions(client)
                while text.count("\n") < len(now):
                    text += (await following.stdout.receive()).decode()

            following.kill()

    assert len(now) > len(past)
    assert [json.loads(line)["seq"] for line in text.splitlines()] == now


async def transitions(client: Client) -> list[int]:
    """Return the seqs of all changes of the state."""
    return _seqs(await client.send(EventsQuery(types=("state.transition",))))


def _seqs(page: EventsPage) -> list[int]:
    return [json.loads(bytes(event))["seq"] for event in page.events or ()]
