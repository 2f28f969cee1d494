"""Bytes from anywhere, into the three readers of foreign text: only their own errors come out.

Each begins with something valid and spoils it, because noise alone is refused at the first byte.
That every hank whose *values* are strange is loaded or told is `tests/server/hanks/test_load.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import EVENTS, StateTransition
from hankweave_protocol.hank import Hank
from hankweave_protocol.records import RollbackIntent, RuntimeLock, TrafficRecord
from hankweave_protocol.state import State
from hankweave_protocol.transitions import TRANSITIONS
from hankweave_server.hanks.load import HankInvalid, load
from hankweave_server.hanks.prompts import PromptFault, PromptFile, read_prompt_file
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from intruders.tier import rounds

often = settings(
    max_examples=rounds(400, 20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

NASTY = [
    b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\n", b"\r", b"\xe2\x80\xa8", b'"', b"\\", b"{",
    b"}", b"[", b"[" * 70, b"]", b",", b":", b"-", b"1e999", b"9" * 400, b"9" * 5_000, b"NaN",
    b"null", b"true", b"../", b'"type"', b'"seq"', b'"id":1,', b"\xef\xbb\xbf", b"---\n", b"&a ",
    b"*a", b"!!python/object:os.system ", b"0x" + b"f" * 6_000,
]  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with parts cut out, doubled, overwritten or put in."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["cut", "double", "put", "overwrite", "end"])):
            case "cut":
                del data[at:until]
            case "double":
                data[at:at] = data[at:until]
            case "put":
                data[at:at] = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
            case "overwrite":
                data[at:until] = draw(st.binary(min_size=until - at, max_size=until - at))
            case "end":
                del data[at:]

    return bytes(data)


T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def outcome(error: type[E], read: Callable[..., T], *arguments: object, **options: object) -> T | E:
    """Gives what reading gives, or the one error it may raise; any other one is a bug."""
    try:
        return read(*arguments, **options)
    except error as told:
        return told


# --- the codec ------------------------------------------------------------------------------------

COMMAND = (
    '{"id":"c","type":"%s","data":{"checkpointSha":"abcd","path":"a","paths":["a"],"limit":1}}'
)
QUERY = (
    b'{"id":"q","type":"events.query","data":{"where":{"and":[{"field":"data.x","op":"eq",'
    b'"value":1},{"not":{"field":"seq","op":"in","value":[1,2]}}]},"since":1,"limit":5,'
    b'"orderBy":{"field":"seq"},"reduce":{"type":"count","groupBy":["type"]}}}'
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


def _transition(data: bytes) -> object:
    event = codec.decode_event(data)
    return codec.decode_transition(event.data) if isinstance(event.data, StateTransition) else None


READERS: dict[str, Callable[[bytes], object]] = {
    "envelope": codec.decode_envelope,
    "handshake": codec.decode_handshake,
    "command": codec.decode_command,
    "event": codec.decode_event,
    "transition": _transition,
    **{
        shape.__name__: lambda data, shape=shape: codec.decode_value(shape, data)  # type: ignore[misc]
        for shape in (State, RuntimeLock, RollbackIntent, TrafficRecord, Hank)
    },
}


@often
@given(data=spoiled(FRAMES) | st.binary(max_size=300))
def test_the_codec_reads_or_refuses(data: bytes) -> None:
    """Whatever bytes, by whichever reader: a value that can be written again, or `Refused`."""
    for read in READERS.values():
        value = outcome(Refused, read, data)
        if isinstance(value, Refused):
            assert value.message
            assert value.path
        else:
            codec.encode(value)


@often
@given(name=st.sampled_from(TRANSITIONS.names), body=spoiled([b'{"codonId":"one","state":{}}']))
def test_a_transition_is_read_or_refused(name: str, body: bytes) -> None:
    """The part of the journal that becomes state is no exception."""
    text = (EVENT % "state.transition").encode().replace(b"RunStarted", name.encode())
    value = outcome(Refused, _transition, text.replace(b'"data":{}', b'"data":' + body))
    assert not isinstance(value, Refused) or value.path


# --- the journal ----------------------------------------------------------------------------------

WHOLE = b"".join(
    b'{"id":"e%d","seq":%d,"type":"info","data":{"message":"\xc3\xa9 %d"}}\n' % (n, n, n)
    for n in range(1, 6)
)


@often
@given(content=spoiled([WHOLE, b"", WHOLE[:-1]]), durable=st.none() | st.integers(0, 6))
@example(content=WHOLE[:-30] + bytes(30), durable=5)
@example(content=WHOLE + b"[" * 200_000 + b"\n", durable=None)
def test_a_journal_is_opened_or_said_to_be_corrupt(
    tmp_path: Path, content: bytes, durable: int | None
) -> None:
    """Opened: seqs 1..n, and no byte lost; corrupt: the file is as it was."""
    path = tmp_path / "events" / "events.jsonl"
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


@often
@given(content=spoiled([WHOLE, WHOLE[:-1]]))
def test_looking_at_a_journal_changes_nothing(tmp_path: Path, content: bytes) -> None:
    """A reader opens what the writer would open, or says that it is corrupt."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with contextlib.suppress(JournalCorrupt):
        Journal.for_reading(path).close()

    assert path.read_bytes() == content


# --- the hank -------------------------------------------------------------------------------------


def _hank(**more: Any) -> bytes:
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


@pytest.fixture(scope="module")
def hank_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hank")
    (folder / "prompt.md").write_text("Do it.\n")
    return folder


@often
@given(content=spoiled([_hank(), _hank(overrides={"budget": {"maxDollars": 1}})]))
@example(content=_hank().replace(b'"maxDollars": 1}, "env"', b'"maxDollars": %d}, "env"' % 10**400))
@example(content=_hank().replace(b"0.5", b"1" + b"0" * 400))
@example(content=b"[" * 100_000)
def test_a_hank_is_loaded_or_its_problems_are_told(hank_folder: Path, content: bytes) -> None:
    """Any bytes for a hank.json: a hank, or HankInvalid with a place and a sentence for each."""
    file = hank_folder / "hank.json"
    file.write_bytes(content)
    found = outcome(HankInvalid, load, file)
    if isinstance(found, HankInvalid):
        assert found.problems
        assert all(problem.message and problem.path for problem in found.problems)


PROMPT = (
    b"---\nname: One\ntags: [a, 2]\nversion: 1.0\ndescription: |\n  x\n---\nDo <!-- not --> it.\n"
)
LAUGHS = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n" % (n + 1, n + 1, *[n] * 9)
    for n in range(ord("a"), ord("l"))
)


@often
@given(content=spoiled([PROMPT]))
@example(content=b"---\n" + LAUGHS + b"tags: *l\n---\n")
@example(content=b"---\nversion: 0x" + b"f" * 6_000 + b"\n---\n")
@example(content=b"---\nname: &a [*a]\n---\n")
def test_a_prompt_is_read_or_its_fault_is_told(tmp_path: Path, content: bytes) -> None:
    """Any bytes for a prompt with frontmatter: a prompt, or PromptFault, and at once."""
    file = tmp_path / "prompt.md"
    file.write_bytes(content)
    found = outcome(PromptFault, read_prompt_file, file)
    assert isinstance(found, PromptFile) or str(found)
