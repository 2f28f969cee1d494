"""Hostile JSON through the socket of a real server and into its log.

The codec's own answer to each of them is in `tests/protocol/test_json_hazards.py`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hankweave_protocol.records import TrafficRecord
from intruders.servers import target
from intruders.wire import frame, peer
from support.waiting import limited

PING = '{"id":"h","type":"ping","data":{"x":%s}}'
LABEL = '{"id":"h","type":"checkpoint.create","data":{"label":%s}}'
HAZARDS: dict[str, tuple[str, str | None]] = {
    # Hazard: text, and code of the refusal; None: accepted
    "nothing": ("", "MALFORMED_JSON"),
    "null": ("null", "INVALID_COMMAND"),
    "a text": ('"ping"', "INVALID_COMMAND"),
    "a byte order mark": ("\ufeff" + PING % 1, "MALFORMED_JSON"),
    "half a million brackets": (PING % ("[" * 500_000), "MALFORMED_JSON"),
    "a tower of objects": (PING % ('{"a":' * 1_000 + "1" + "}" * 1_000), "MALFORMED_JSON"),
    "NaN": (PING % "NaN", "MALFORMED_JSON"),
    "a number beyond every float": (PING % "1e999999999", None),
    "a number of 100,000 digits": (PING % ("9" * 100_000), None),
    "the same as a limit": (
        '{"id":"h","type":"checkpoint.list","data":{"limit":%s}}' % ("9" * 100_000),
        "INVALID_COMMAND",
    ),
    "a seq beyond 64 bits": (
        '{"id":"h","type":"history.sync","data":{"sinceSeq":1180591620717411303424}}',
        None,
    ),
    "a limit beyond 64 bits": (
        '{"id":"h","type":"checkpoint.list","data":{"limit":1180591620717411303424}}',
        None,
    ),
    "a negative zero": ('{"id":"h","type":"history.sync","data":{"sinceSeq":-0}}', None),
    "a NUL in a text": (LABEL % '"a\0b"', "MALFORMED_JSON"),
    "an escaped NUL": (LABEL % '"a\\u0000b"', None),
    "a lone surrogate": (LABEL % '"\\ud800"', "MALFORMED_JSON"),
    "two surrogates the wrong way": (LABEL % '"\\udc00\\ud800"', "MALFORMED_JSON"),
    "a text that turns around": (LABEL % '"\u202egnp.exe\\u001b[2J"', None),
    "keys that stand twice": ('{"id":"x","id":"h","type":"server.shutdown","type":"ping"}', None),
    "a key of Python": (PING % '{"__class__":{"__init__":1},"__proto__":2}', None),
    "two lines": (PING % 1 + "\n" + PING % 2, "MALFORMED_JSON"),
}


async def test_every_hazard_is_answered_and_the_log_stays_readable(tmp_path: Path) -> None:
    """Each input gets its code, the connection stays open, and every log line is still JSON."""
    async with target(tmp_path) as aim:
        async with peer(aim.url, aim.controller) as client:
            await client.handshake()
            for what, (text, code) in HAZARDS.items():
                client.send(frame(text.encode()))
                with limited():
                    while not (reply := await client.message())["type"].startswith("command."):
                        pass

                assert reply["data"] is None or reply["data"].get("code") == code, (what, reply)
                assert (reply["type"] == "command.succeeded") == (code is None), (what, reply)

            assert (await client.command("ping"))["type"] == "command.succeeded"

        assert await aim.server.stop() == 0
        assert "Traceback" not in aim.log("server.log")
        assert all(" [" in line for line in aim.log("server.log").splitlines())
        lines = aim.log("websocket.log").splitlines()
        entries = [msgspec.json.decode(line, type=TrafficRecord) for line in lines]
        received = [entry for entry in entries if entry.direction == "in"]
        assert len(received) >= len(HAZARDS) + 2
