"""A client that sends invalid input gets an error with a code, and its socket stays open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import Command
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.api.caller import Caller, CommandAnswer
from support.sentinels import ManualTime
from support.small_server import SmallRest, small_server
from support.waiting import limited

NESTED = '{"id":"n","type":"ping","data":' + "[" * 70 + "]" * 70 + "}"
BAD: dict[str, tuple[str | bytes, str, str | None, str | None]] = {
    # what: frame, code, inReplyTo, path
    "not JSON": ("{", "MALFORMED_JSON", None, "$"),
    "not even close": ("hello", "MALFORMED_JSON", None, "$"),
    "NaN": ('{"id":"x","type":"ping","data":NaN}', "MALFORMED_JSON", None, "$"),
    "a list": ("[]", "INVALID_COMMAND", None, "$"),
    "deep nesting": (NESTED, "MALFORMED_JSON", None, "$"),
    "no type": ('{"id":"a"}', "INVALID_COMMAND", "a", "$"),
    "no id": ('{"type":"ping"}', "INVALID_COMMAND", None, "$.id"),
    "an id that is a number": ('{"type":"ping","id":1}', "INVALID_COMMAND", None, "$.id"),
    "an unknown type": ('{"id":"b","type":"codon.strat"}', "UNKNOWN_COMMAND", "b", "$.type"),
    "a missing field": (
        '{"id":"c","type":"codon.start","data":{}}',
        "INVALID_COMMAND",
        "c",
        "$.data",
    ),
    "a wrong type": (
        '{"id":"d","type":"codon.start","data":{"codonId":7}}',
        "INVALID_COMMAND",
        "d",
        "$.data.codonId",
    ),
    "a wrong choice": (
        '{"id":"e","type":"rollback.toCodon","data":{"codonId":"x","checkpointType":"y"}}',
        "INVALID_COMMAND",
        "e",
        "$.data.checkpointType",
    ),
    "a binary frame": (b'{"id":"f","type":"ping"}', "INVALID_COMMAND", "f", "$"),
    "a huge frame": (
        '{"id":"g","type":"ping","data":{"x":"' + "x" * 1_100_000 + '"}}',
        "FRAME_TOO_LARGE",
        "g",
        "$",
    ),
    "a bad second handshake": (
        '{"type":"handshake","data":{"mode":"root"}}',
        "INVALID_COMMAND",
        None,
        "$.data.mode",
    ),
    "a seq the journal has not": (
        '{"type":"handshake","data":{"mode":"readonly","protocolVersion":1,"sinceSeq":9}}',
        "INVALID_COMMAND",
        None,
        "$.data.sinceSeq",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_bad_input_is_refused_with_a_code_and_a_path(tmp_path: Path, what: str) -> None:
    """Each kind of bad frame has its code and JSON path; the next command is served as usual."""
    frame, code, in_reply_to, path = BAD[what]
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readandwrite") as client,
        server.follower(mode="readonly") as other,
    ):
        await client.send(frame)
        failed = await client.receive()
        assert failed["type"] == "command.failed"
        assert failed["inReplyTo"] == in_reply_to
        assert failed["data"]["code"] == code
        assert failed["data"].get("path") == path
        assert failed["data"]["message"]

        await client.send({"id": "after", "type": "ping"})
        assert (await client.receive())["inReplyTo"] == "after"
        assert [command.id for command in server.rest.handled] == ["after"]
        server.rest.publish()
        assert (await other.receive())["seq"] == 1, "the other client receives events only"


@pytest.mark.parametrize("what", [what for what in BAD if "a seq" not in what])
async def test_a_client_of_hankweave_gets_the_error_event(tmp_path: Path, what: str) -> None:
    """Without protocolVersion the same faults come as targeted `error` events without a seq."""
    frame, code, _, _ = BAD[what]
    async with small_server(tmp_path) as server, server.raw(mode="readandwrite") as client:
        await client.send(frame)
        error = await client.receive()
        assert error.keys() == {"id", "timestamp", "type", "data"}
        assert (error["type"], error["data"]["code"]) == ("error", code)
        assert server.rest.handled == []


async def test_a_command_before_the_handshake_is_refused(tmp_path: Path) -> None:
    """The error is HANDSHAKE_REQUIRED, and the handshake is still possible."""
    async with small_server(tmp_path) as server, server.raw() as client:
        await client.send({"id": "1", "type": "ping"})
        error = await client.receive()
        assert error["data"]["code"] == "HANDSHAKE_REQUIRED"
        await client.send({"type": "handshake", "data": {"mode": "readonly"}})
        assert (await client.receive())["type"] == "handshake.response"


async def test_a_readonly_client_of_hankweave_may_change_nothing(tmp_path: Path) -> None:
    """A client that gets no replies is refused all the same, by an event."""
    async with (
        small_server(tmp_path) as server,
        server.raw(mode="readonly") as client,
    ):
        await client.send({"id": "1", "type": "codon.next"})
        error = await client.receive()
        assert error["data"]["code"] == "INSUFFICIENT_PERMISSIONS"
        assert server.rest.handled == []


async def test_a_readonly_client_may_change_nothing(tmp_path: Path) -> None:
    """Every command that MUTATES is refused; commands that only read are served."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readonly") as client,
    ):
        for command in ("codon.next", "rollback.toLastSuccess", "server.shutdown"):
            await client.send({"id": command, "type": command})
            failed = await client.receive()
            assert failed["inReplyTo"] == command
            assert failed["data"]["code"] == "INSUFFICIENT_PERMISSIONS"

        await client.send({"id": "p", "type": "ping"})
        assert (await client.receive())["type"] == "command.succeeded"


async def test_refusals_of_the_rooms_keep_code_path_and_hint(tmp_path: Path) -> None:
    """A handler's refusal reaches the client with its code, path and hint unchanged."""

    async def refuse(command: Command, caller: Caller) -> CommandAnswer:
        raise Refused(
            ErrorCode.AMBIGUOUS_CHECKPOINT, "Two match.", path="$.data.checkpointSha", hint="abc1"
        )

    async with (
        small_server(tmp_path, SmallRest(handler=refuse)) as server,
        server.follower(mode="readandwrite") as client,
    ):
        await client.send(
            {"id": "r", "type": "rollback.toCheckpoint", "data": {"checkpointSha": "abc"}}
        )
        failed = await client.receive()
        assert failed["data"] == {
            "code": "AMBIGUOUS_CHECKPOINT",
            "message": "Two match.",
            "path": "$.data.checkpointSha",
            "hint": "abc1",
        }


@pytest.mark.parametrize("command", ["ping", "codon.next"])
async def test_an_unforeseen_exception_discloses_nothing_to_the_peer(
    tmp_path: Path, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets INTERNAL_ERROR without details; the log gets the traceback."""

    async def break_down(command: Command, caller: Caller) -> CommandAnswer:
        raise RuntimeError("the secret of the house")

    async with (
        small_server(tmp_path, SmallRest(handler=break_down)) as server,
        server.follower(mode="readandwrite") as client,
    ):
        await client.send({"id": "1", "type": command})
        failed: Any = await client.receive()

    assert failed["data"]["code"] == "INTERNAL_ERROR"
    assert "secret" not in str(failed)
    assert "the secret of the house" in caplog.text


async def test_an_answer_that_cannot_be_encoded_is_an_internal_error(tmp_path: Path) -> None:
    """A fault in the server's own reply is answered too."""

    async def answer(command: Command, caller: Caller) -> CommandAnswer:
        return CommandAnswer(data=object())

    async with (
        small_server(tmp_path, SmallRest(handler=answer)) as server,
        server.follower(mode="readandwrite") as client,
    ):
        await client.send({"id": "1", "type": "ping"})
        assert (await client.receive())["data"]["code"] == "INTERNAL_ERROR"


async def test_talking_too_fast_is_refused_not_punished(tmp_path: Path) -> None:
    """Messages beyond the burst are refused as RATE_LIMITED; the socket stays open."""
    async with (
        small_server(tmp_path, clock=ManualTime()) as server,
        server.follower(mode="readonly") as client,
    ):
        codes = []
        with limited():
            for number in range(900):
                await client.send({"id": str(number), "type": "ping"})

            for _ in range(900):
                frame = await client.receive()
                codes.append(frame["data"].get("code", "ok"))

        # The handshake is a message too.
        assert Counter(codes) == {"ok": 399, "RATE_LIMITED": 501}
        assert len(server.rest.handled) == 399
