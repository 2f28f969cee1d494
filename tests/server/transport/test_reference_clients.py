"""Claims about the two kinds of clients: those of Hankweave, and those of this protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol import reference
from hankweave_protocol.commands import Command
from hankweave_protocol.events import (
    EventData,
    IncompleteCodon,
    Info,
    Pong,
    ServerIdle,
    ServerStopping,
)
from hankweave_protocol.ids import ClientId, CodonId, RunId
from hankweave_server.api.caller import Caller, CommandAnswer
from support.calls import noted
from support.reference_schema import faults_of
from support.small_server import RawClient, SmallRest, small_server


def info(number: int) -> Info:
    return Info(message=f"event {number}")


async def messages(client: RawClient, count: int) -> list[str]:
    return [(await client.receive())["data"]["message"] for _ in range(count)]


async def test_each_client_gets_an_event_in_its_protocol(tmp_path: Path) -> None:
    """Clients of this protocol get the journal's event, Hankweave's a projection or none."""
    rest = SmallRest()
    async with (
        small_server(tmp_path, rest) as server,
        server.raw(mode="readonly") as theirs,
        server.follower(mode="readonly") as ours,
    ):
        rest.publish(ServerStopping(reason="x"))
        rest.publish(info(2))
        assert [(await ours.receive())["type"] for _ in range(2)] == ["server.stopping", "info"]
        event = await theirs.receive()

    assert event.keys() == {"id", "timestamp", "type", "data"}
    assert (event["type"], event["id"]) == ("info", "e2")


async def test_an_event_is_projected_once_for_all_and_not_at_all_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One projection serves all Hankweave clients; without such a client there is none."""
    projected = noted(monkeypatch, reference, "project")
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server:
        async with server.follower(mode="readonly") as ours:
            rest.publish(info(1))
            assert await messages(ours, 1) == ["event 1"]
            assert projected == []

        async with server.raw(mode="readonly") as one, server.raw(mode="readonly") as two:
            await one.send({"type": "handshake", "data": {"mode": "readonly"}})
            assert [(await one.receive())["type"] for _ in range(2)] == [
                "handshake.response",
                "server.ready",
            ]
            projected.clear()
            rest.publish(info(2))
            assert await messages(one, 1) == await messages(two, 1) == ["event 2"]

    assert len(projected) == 1


async def test_a_second_handshake_changes_the_audience(tmp_path: Path) -> None:
    """Each handshake decides anew whether the client knows this protocol."""
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server, server.raw(mode="readonly") as client:
        rest.publish(info(1))
        assert "seq" not in await client.receive()
        hello = {"mode": "readonly", "protocolVersion": 1}
        await client.send({"type": "handshake", "data": hello})
        for _ in range(3):
            await client.receive()

        rest.publish(info(2))
        assert (await client.receive())["seq"] == 2


@pytest.mark.parametrize("count", [0, 3, 49, 50, 51, 130])
async def test_the_history_of_a_handshake_holds_what_the_client_can_parse(
    tmp_path: Path, count: int
) -> None:
    """The history has the newest fifty such events, newest first, and the total number."""
    rest = SmallRest()
    for number in range(count):
        rest.publish(ServerStopping(reason="between"))
        rest.publish(info(number))

    async with small_server(tmp_path, rest) as server, server.raw() as client:
        hello = {"mode": "readonly", "sendPreviousEvents": True}
        await client.send({"type": "handshake", "data": hello})
        response = (await client.receive())["data"]

    shown = [event["data"]["message"] for event in response["eventHistory"]]
    assert shown == [f"event {number}" for number in reversed(range(count))][:50]
    assert (len(shown) < response["totalEvents"]) == (count > 50)


async def test_a_resuming_client_receives_missed_events_of_its_protocol(tmp_path: Path) -> None:
    """Events read from the journal are projected too, and only known ones are sent."""
    rest = SmallRest()
    rest.publish(info(1))
    rest.publish(ServerStopping(reason="x"))
    rest.publish(info(3))
    async with (
        small_server(tmp_path, rest) as server,
        server.raw(mode="readonly", sinceSeq=0) as client,
    ):
        assert await messages(client, 2) == ["event 1", "event 3"]


@pytest.mark.parametrize(
    ("answer", "types"),
    [
        (Pong(message="pong", timestamp="t", client_id=ClientId("c")), ["pong"]),
        (ServerIdle(reason="stopped", message="x"), []),
        (
            IncompleteCodon(
                codon_id=CodonId("one"),
                codon_name="One",
                status="running",
                run_id=RunId("r"),
                run_status="running",
            ),
            ["incomplete.codon"],
        ),
    ],
)
async def test_an_answer_to_one_client_is_projected_for_it(
    tmp_path: Path, answer: EventData, types: list[str]
) -> None:
    """A reply that it cannot parse is not sent, and the connection stays usable."""

    async def reply(command: Command, caller: Caller) -> CommandAnswer:
        return CommandAnswer(data=None, events=(answer, Info(message="end")))

    async with (
        small_server(tmp_path, SmallRest(handler=reply)) as server,
        server.raw(mode="readonly") as client,
    ):
        await client.send({"id": "1", "type": "ping"})
        received: list[Any] = []
        while not received or received[-1]["type"] != "info":
            frame = await client.socket.recv()
            assert faults_of(frame) == []
            received.append(json.loads(frame))

    assert [event["type"] for event in received[:-1]] == types
