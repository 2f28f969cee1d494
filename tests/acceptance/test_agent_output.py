"""Claims about the output of agents: their codon ends with the right reason in every case."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from hankweave_protocol.commands import CodonNext
from hankweave_protocol.events import AgentOutput, AssistantAction
from hankweave_protocol.state import CodonExecution, CompletedCodon, FailedCodon
from support.invariants import Acknowledged, violations
from support.running_server import RunningServer, run_headless, running_server, state
from support.scripted_hank import codon, write_hank
from support.waiting import eventually, limited
from support.watching import events_of

MEGABYTE = 1_000_000


def line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def assistant_line(*content: Mapping[str, Any], **fields: Any) -> bytes:
    message = {"id": "m1", "model": "m", "content": list(content), **fields}
    return line({"type": "assistant", "message": message})


def calls(arguments: object, number: int = 1) -> bytes:
    """Return a tool call and its result, with the input as JSON text or as a value."""
    block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": arguments}
    back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "fine"}
    return assistant_line(block) + line({"type": "user", "message": {"content": [back]}})


def nested(depth: int) -> dict[str, Any]:
    return {"deeper": nested(depth - 1)} if depth else {"deepest": 1}


TEXT = {"type": "text", "text": "hello"}
BEGIN = line({"type": "system", "subtype": "init", "session_id": "s", "model": "m"})
RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
DONE = line({**RESULT, "total_cost_usd": 0.25})
REFUSED = line({**RESULT, "is_error": True, "result": "Invalid API key"})
RAW = DONE.replace(b"0.25", b"%s")


@dataclass(frozen=True)
class Hazard:
    """The output of an agent, and how its codon must end; without a reason: completed."""

    prints: bytes
    reason: str | None = None
    cost: float = 0.25


NO_RESULT = "without reporting a result"

HAZARDS = {
    "no JSON at all": Hazard(b"no JSON\n{]\n", cost=0),
    "no JSON in a session": Hazard(BEGIN + b"no JSON\n{]\n", NO_RESULT),
    "JSON of no message": Hazard(BEGIN + b'[1]\nnull\n7\n"x"\n{}\n{"type":5}\n' + DONE),
    "half a message at the end": Hazard(BEGIN + DONE[:40], NO_RESULT),
    "no line end at the end": Hazard(BEGIN + DONE.rstrip()),
    "line ends of Windows": Hazard((BEGIN + DONE).replace(b"\n", b"\r\n")),
    "UTF-16": Hazard((BEGIN + DONE).decode().encode("utf-16"), cost=0),
    "UTF-16 from the middle on": Hazard(BEGIN + DONE.decode().encode("utf-16"), NO_RESULT),
    "a byte order mark": Hazard(b"\xef\xbb\xbf" + BEGIN + DONE),
    "latin-1": Hazard(BEGIN + assistant_line(TEXT).replace(b"hello", b"caf\xe9") + DONE),
    "latin-1 result": Hazard(BEGIN + DONE.replace(b"done", b"caf\xe9"), NO_RESULT),
    "NULs": Hazard(BEGIN + b"\0" * 5_000 + b"\n" + assistant_line({**TEXT, "text": "a\0b"}) + DONE),
    "lone surrogates": Hazard(BEGIN + assistant_line(TEXT).replace(b"hello", b"\\ud800") + DONE),
    "no result": Hazard(BEGIN + assistant_line(TEXT), NO_RESULT),
    "the same result twice": Hazard(BEGIN + DONE + DONE),
    "a result, then a refusal": Hazard(BEGIN + DONE + REFUSED, "Invalid API key"),
    "output after the result": Hazard(
        BEGIN + DONE + assistant_line(TEXT) + calls({"a": 1}) + b"tail\n"
    ),
    "a result before the session": Hazard(DONE + BEGIN),
    "two sessions": Hazard(BEGIN + BEGIN.replace(b'"s"', b'"s2"') + DONE),
    "20 levels": Hazard(BEGIN + calls(nested(20)) + DONE),
    "500 levels": Hazard(BEGIN + calls(nested(500)) + DONE),
    "100,000 levels": Hazard(BEGIN + b'{"type":' + b"[" * 100_000 + b"\n" + DONE),
    "duplicate keys": Hazard(BEGIN + DONE.replace(b'"type"', b'"type": "stderr", "type"')),
    "a cost of 1e999": Hazard(BEGIN + RAW % b"1e999", NO_RESULT),
    "a cost of NaN": Hazard(BEGIN + RAW % b"NaN", NO_RESULT),
    "a cost of a thousand digits": Hazard(BEGIN + RAW % (b"9" * 1_000), cost=0),
    "a cost of 1e308 on a cost": Hazard(BEGIN + RAW % b"1e308" + RAW % b"1e308", cost=0),
    "a negative cost": Hazard(BEGIN + RAW % b"-1", cost=0),
    "a thousand digits in a tool's input": Hazard(
        BEGIN + calls("N").replace(b'"N"', b'{"n":' + b"9" * 1_000 + b"}") + DONE
    ),
    "1e999 in a tool's input": Hazard(BEGIN + calls("N").replace(b'"N"', b'{"n":1e999}') + DONE),
    "tokens beyond 64 bits": Hazard(
        BEGIN + assistant_line(TEXT, usage={"input_tokens": 10**30}) + DONE
    ),
    "tokens that add up beyond 64 bits": Hazard(
        BEGIN
        + assistant_line(TEXT, id="m1", usage={"input_tokens": 2**63 - 1})
        + assistant_line(TEXT, id="m2", usage={"input_tokens": 2**63 - 1})
        + DONE
    ),
    "model usage of any shape": Hazard(
        BEGIN + line({**RESULT, "total_cost_usd": 0.25, "modelUsage": {"m": [10**30, None]}})
    ),
}


async def test_whatever_an_agent_prints_its_codon_ends_with_the_right_reason(
    tmp_path: Path, execution: Path
) -> None:
    """Each codon is completed, or failed with its reason and cost.

    One server runs all of it in turn. The plan continues to its end, and journal, state and
    checkpoints agree.
    """
    codons = [
        codon(f"c{number}", onFailure="ignore") | _prints(tmp_path, f"c{number}", hazard.prints)
        for number, hazard in enumerate(HAZARDS.values())
    ]
    hank = write_hank(tmp_path / "hank", *codons)
    async with running_server(hank, None, execution, "--headless") as server:
        with limited():
            assert await server.process.wait() == 0, server.output[-5:]

    (run,) = state(execution).runs
    ends = {name: _end(each) for name, each in zip(HAZARDS, run.codons, strict=True)}
    assert ends == {
        name: (hazard.reason, hazard.cost if hazard.reason is None else None)
        for name, hazard in HAZARDS.items()
    }
    assert violations(execution, Acknowledged()) == []


async def test_a_line_that_is_no_message_becomes_plain_output(
    tmp_path: Path, execution: Path
) -> None:
    """Each line that cannot be parsed reaches clients as text, with its bad bytes replaced.

    So does a line that nests too deep for a frame, or holds a number that no frame can.
    """
    prints = b"".join(
        (
            BEGIN,
            b"caf\xe9 \0\n",
            DONE[:20] + b"\n",
            calls(nested(20), 1),
            calls(nested(500), 2),
            calls("N", 3).replace(b'"N"', b'{"n":' + b"9" * 40 + b"}"),
            DONE,
        )
    )
    hank = write_hank(tmp_path / "hank", codon("one") | _prints(tmp_path, "one", prints))
    assert await run_headless(hank, execution) == 0

    assert [event.line for event in events_of(execution, AgentOutput)] == [
        "caf\ufffd \0",
        DONE[:20].decode(),
    ]
    inputs = [event.tool_input for event in events_of(execution, AssistantAction)]
    assert inputs == [
        nested(20),
        {"json": json.dumps(nested(500), separators=(",", ":"))},
        {"n": "9" * 40},
    ]


LONG_LINE = """
import os, sys
sys.stdin.read()
os.write(1, {begin!r})
block = b"x" * 1_000_000
for _ in range(100):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
os.write(1, {end!r})
"""


@pytest.mark.parametrize(
    ("end", "reason"), [(b"\n" + DONE, None), (b"", NO_RESULT)], ids=["ended", "torn"]
)
@pytest.mark.executed
async def test_a_line_of_a_hundred_megabytes_needs_no_memory(
    tmp_path: Path, execution: Path, end: bytes, reason: str | None
) -> None:
    """A line of 100 MB is read whole and needs little memory.

    Clients receive its beginning with the number of bytes dropped, journal and log stay small, and
    the next line is parsed.
    """
    source = LONG_LINE.format(begin=BEGIN, end=end)
    agent = {"type": "command", "command": [sys.executable, "-c", source]}
    hank = write_hank(tmp_path / "hank", codon("one", onFailure="ignore") | {"agent": agent})
    async with running_server(hank, None, execution, "--headless", "--no-autostart") as server:
        idle = _resident(server)
        async with server.client() as client:
            await client.send(CodonNext())
            peak = await _peak(server)

    ((found, _),) = (_end(each) for each in state(execution).runs[0].codons)
    assert found == reason
    (output,) = events_of(execution, AgentOutput)
    assert output.line.startswith("xxx")
    assert output.line.endswith(" bytes dropped]")
    assert len(output.line) < 2 * MEGABYTE
    assert peak - idle < 64 * MEGABYTE
    assert sum(path.stat().st_size for path in execution.rglob("*.log")) < 5 * MEGABYTE
    assert violations(execution, Acknowledged()) == []


def _prints(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Return an agent that prints a file verbatim."""
    path = folder / f"{name}.out"
    path.write_bytes(content)
    return {"agent": {"type": "command", "command": ["cat", str(path)]}}


def _end(ended: CodonExecution) -> tuple[str | None, float | None]:
    """Return the part of the failure reason that the table names, or the cost."""
    match ended:
        case CompletedCodon(final_cost=cost):
            return None, cost
        case FailedCodon(failure_reason=reason):
            text = reason.message or ""
            return (NO_RESULT if NO_RESULT in text else text), None
        case _:
            raise AssertionError(f"{ended.codon_id} has not ended")


def _resident(server: RunningServer) -> int:
    return psutil.Process(server.pid).memory_info().rss


async def _peak(server: RunningServer) -> int:
    """Return the server's peak resident memory until it ended."""
    peak = 0

    def has_ended() -> bool:
        nonlocal peak
        with contextlib.suppress(psutil.Error):
            peak = max(peak, _resident(server))

        return server.process.returncode is not None

    await eventually(has_ended)
    return peak
