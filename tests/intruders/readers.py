"""The parsers of untrusted input, their valid inputs, and the contract each keeps for any bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import EVENTS, StateTransition
from hankweave_protocol.hank import Hank
from hankweave_protocol.records import RollbackIntent, RuntimeLock, TrafficRecord
from hankweave_protocol.state import State
from hankweave_server.hank.load import HankInvalid, load
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from support.outcomes import outcome

READ: Counter[str] = Counter()
"""The number of inputs each parser has received."""

# --- the codec ------------------------------------------------------------------------------------

COMMAND = (
    '{"id":"c","type":"%s","data":{"checkpointSha":"abcd","path":"a","paths":["a"],"limit":1}}'
)
QUERY = (
    b'{"id":"q","type":"events.query","data":{"types":["info","error"],"codonId":"one",'
    b'"runId":"r","text":"x","since":1,"until":"2025-01-04T12:00:00.000Z","limit":5,'
    b'"newestFirst":true,"count":false,"cursor":"9-3"}}'
)
HELLO = b'{"type":"handshake","data":{"mode":"readonly","protocolVersion":1,"sinceSeq":3}}'
EVENT = (
    '{"id":"e","seq":1,"timestamp":"2025-01-04T12:00:00.000Z","type":"%s",'
    '"data":{"message":"m","codonId":"one","transition":{"type":"RunStarted","data":{}}}}'
)
FRAMES = [
    HELLO,
    QUERY,
    *((COMMAND % name).encode() for name in COMMANDS.names),
    *((EVENT % name).encode() for name in EVENTS.names),
]


def read_transition(data: bytes) -> object:
    event = codec.decode_event(data)
    return codec.decode_transition(event.data) if isinstance(event.data, StateTransition) else None


READERS: dict[str, Callable[[bytes], object]] = {
    "envelope": codec.decode_envelope,
    "handshake": codec.decode_handshake,
    "command": codec.decode_command,
    "event": codec.decode_event,
    "transition": read_transition,
    **{
        shape.__name__: lambda data, shape=shape: codec.decode_value(shape, data)  # type: ignore[misc]
        for shape in (State, RuntimeLock, RollbackIntent, TrafficRecord, Hank)
    },
}


def assert_decoded_or_refused(data: bytes) -> None:
    """Assert that the input decodes to a value that can be encoded again, or raises `Refused`."""
    READ["codec"] += 1
    for read in READERS.values():
        value = outcome(Refused, read, data)
        if isinstance(value, Refused):
            assert value.message
            assert value.path
        else:
            codec.encode(value)


# --- the journal ----------------------------------------------------------------------------------

WHOLE = b"".join(
    b'{"id":"e%d","seq":%d,"type":"info","data":{"message":"\xc3\xa9 %d"}}\n' % (n, n, n)
    for n in range(1, 6)
)


def assert_opened_or_corrupt(path: Path, content: bytes, durable: int | None = None) -> None:
    """Assert that the journal opens with seqs 1..n and every byte, or is corrupt and unchanged."""
    READ["journal"] += 1
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.iterdir():
        old.unlink()

    path.write_bytes(content)
    opened = outcome(JournalCorrupt, Journal.open, path, known_durable=durable)
    if isinstance(opened, JournalCorrupt):
        assert opened.line >= 1
        assert path.read_bytes() == content
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        return

    journal, repair = opened
    lines = journal.read(0)
    journal.close()
    assert [json.loads(line.decode("utf-8", "replace"))["seq"] for line in lines] == list(
        range(1, len(lines) + 1)
    )
    kept = b"" if repair is None else repair.quarantine.read_bytes()
    assert path.read_bytes() + kept == content


# --- the hank -------------------------------------------------------------------------------------


def hank_text(**more: Any) -> bytes:
    codon = {
        "id": "one",
        "name": "One",
        "model": "m",
        "continuationMode": "fresh",
        "promptFile": "prompt.md",
        "trackedFiles": ["**"],
        "rigSetup": [{"type": "copy", "copy": {"from": "prompt.md", "to": "b"}}],
        "budget": {"maxDollars": 1},
        "env": {"A": "b"},
    }
    loop = {
        "type": "loop",
        "id": "l",
        "name": "L",
        "terminateOn": {"type": "iterationLimit", "limit": 2},
        "codons": [codon | {"id": "two"}],
        "budget": {"maxDollars": 1, "allocation": "proportional", "shares": {"two": 0.5}},
    }
    return json.dumps(
        {"hank": [codon, loop], "meta": {"name": "n", "version": "1"}} | more
    ).encode()


def assert_loaded_or_rejected(file: Path, content: bytes) -> None:
    """Assert that a hank loads, or that HankInvalid has a place and a sentence for each fault."""
    READ["hank"] += 1
    file.write_bytes(content)
    found = outcome(HankInvalid, load, file)
    if isinstance(found, HankInvalid):
        assert found.problems
        assert all(problem.message and problem.path for problem in found.problems)
