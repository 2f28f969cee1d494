"""Claims about journals of the TypeScript Hankweave: nothing is lost, everything is verified."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import FileUpdated
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.moments import has_past, open_for_reading, whole_lines
from hankweave_server.ledger.typescript_format import Importing, find
from hankweave_server.paths import Layout
from support.typescript_execution import (
    BODY,
    TypescriptExecution,
    stringified,
    write_execution,
)


@pytest.fixture
def compressed(tmp_path: Path) -> TypescriptExecution:
    execution = write_execution(tmp_path)
    execution.compress()
    return execution


def read(execution: TypescriptExecution) -> list[bytes]:
    found = find(execution.events / "events.jsonl")
    assert found is not None
    return list(found.lines())


def test_a_compressed_journal_is_restored_byte_for_byte(compressed: TypescriptExecution) -> None:
    """Bodies are put back into their lines, escaped as JSON.stringify escapes them."""
    assert b"contentRef" not in b"".join(read(compressed))
    assert b"".join(line + b"\n" for line in read(compressed)) == compressed.journal


def test_without_its_manifest_it_is_read_all_the_same(compressed: TypescriptExecution) -> None:
    """A journal without its manifest is read, but not verified."""
    (compressed.events / "journal.meta.json").unlink()
    assert b"".join(line + b"\n" for line in read(compressed)) == compressed.journal


def test_a_manifest_of_another_journal_is_damage(compressed: TypescriptExecution) -> None:
    """Verification happens after the last line, before the journal is reported as read."""
    path = compressed.events / "journal.meta.json"
    manifest = json.loads(path.read_text()) | {"originalSha256": "0" * 64}
    path.write_text(json.dumps(manifest))
    with pytest.raises(JournalCorrupt, match="not the journal"):
        read(compressed)


@pytest.mark.parametrize("damage", [b"", b"nothing that zstd wrote"])
def test_a_body_that_is_gone_stays_a_pointer(
    compressed: TypescriptExecution, damage: bytes
) -> None:
    """The event is read with the fingerprint of the pointer, and is counted."""
    (body,) = compressed.events.glob("cas/*/*.zst")
    body.write_bytes(damage)
    importing = Importing()
    lines = list(importing.lines(iter(read(compressed))))
    assert importing.without_body == 1
    event = codec.decode_event(lines[3])
    assert isinstance(event.data, FileUpdated)
    assert event.data.bytes == len(BODY.encode())
    assert "contentRef" in json.loads(lines[3])["data"]


def test_lines_that_are_no_events_are_left_out_and_counted() -> None:
    """Torn lines are skipped, as in Hankweave's own readers, and counted; blank ones are not."""
    good = {"id": "a", "timestamp": "2025-01-04T12:00:00.000Z", "type": "info"}
    events = [{**good, "data": {"message": str(number)}} for number in range(2)]
    torn = [b'{"id":"a","ti', b"[]", b'"text"', b'{"type":"info","data":[]}', b"\xff", b""]
    importing = Importing()
    lines = list(importing.lines(iter([stringified(events[0]), *torn, stringified(events[1])])))
    assert [codec.decode_event(line).seq for line in lines] == [1, 2]
    assert importing.skipped == 5


def test_a_pointer_in_what_an_agent_says_stays_as_it_is(compressed: TypescriptExecution) -> None:
    """Only file.updated and state.snapshot have bodies; elsewhere a pointer is ordinary text."""
    (body,) = compressed.events.glob("cas/*/*.zst")
    pointer = {"sha256": body.stem, "bytes": 9, "encoding": "utf-8", "ref": "cas"}
    event = {
        "id": "x",
        "timestamp": "2025-01-04T12:00:00.000Z",
        "type": "assistant.action",
        "data": {"codonId": "one", "action": "tool_use", "content": "", "toolInput": {}},
    }
    event["data"]["toolInput"] = {"contentRef": pointer}  # type: ignore[index]
    journal = compressed.journal + stringified(event) + b"\n"
    again = TypescriptExecution(
        compressed.root, compressed.hank, compressed.data, compressed.sha, journal
    )
    (again.events / "events.jsonl").write_bytes(journal)
    again.compress()
    assert b"".join(line + b"\n" for line in read(again)) == journal


def test_each_line_can_be_decoded_and_is_numbered(compressed: TypescriptExecution) -> None:
    """Fields of another shape have another name here; seqs begin with 1 and have no gap."""
    layout = Layout.of_execution(compressed.root)
    events = [codec.decode_event(line) for line in whole_lines(layout)]
    assert [event.seq for event in events] == [seq for seq, _ in zip(count(1), events)]
    assert events[1].type == "hankweave.state.transition"


def test_a_state_without_a_journal_is_a_past(tmp_path: Path) -> None:
    """An execution whose events were lost is still read from its state."""
    execution = write_execution(tmp_path)
    (execution.events / "events.jsonl").unlink()
    layout = Layout.of_execution(execution.root)
    assert has_past(layout)
    journal = open_for_reading(layout)
    assert journal.last_seq > 0
    journal.close()
    (execution.state_folder / "state.json").unlink()
    assert not has_past(layout)
    with pytest.raises(FileNotFoundError):
        open_for_reading(layout)
