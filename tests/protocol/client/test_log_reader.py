"""WebSocketLogReader: seed 001's class, with Python's names and its own."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hankweave_client import log_reader
from hankweave_client.log_reader import (
    LogEntry,
    LogStatistics,
    TimeRange,
    WebSocketLogReader,
    get_websocket_log_stats,
    read_websocket_log,
)

LINES = (
    '{"loggedAt":"2025-01-04T12:00:00.000Z","direction":"in","message":{"type":"handshake",'
    '"data":{"mode":"readonly"}},"metadata":{"size":50}}',
    '{"loggedAt":"2025-01-04T12:00:01.000Z","direction":"out","message":{"id":"e","timestamp":"t",'
    '"type":"codon.started","data":{"codonId":"generate#0","codonName":"G","sessionId":"s1",'
    '"startTime":"t"}},"metadata":{"size":1234}}',
    "",
    "not a line",
    '{"loggedAt":"yesterday","direction":"in","message":{}}',
    '{"loggedAt":"2025-01-04T12:00:02.000Z","direction":"in","message":{"id":"1","type":"ping"},'
    '"metadata":{"size":25}}',
    '{"loggedAt":"2025-01-04T12:00:03.000Z","direction":"in","message":"{ broken",'
    '"metadata":{"size":8,"error":"not JSON"}}',
    '{"loggedAt":"2025-01-04T12:00:04.000Z","direction":"out","message":{"type":"later"}}',
    '{"loggedAt":"2025-01-04T12:00:05.000Z","dire',
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "websocket.log"
    path.write_text("\n".join(LINES))
    return path


async def test_both_readings_give_the_same_and_count_what_is_no_entry(log: Path) -> None:
    """Blank lines are ignored, bad ones skipped and counted."""
    reader = WebSocketLogReader(log)
    entries = await reader.read_log()
    assert entries == reader.read_log_sync() == reader.get_entries()
    assert [entry.type for entry in entries] == [
        "handshake",
        "codon.started",
        "ping",
        "unknown",
        "later",
    ]
    assert reader.skipped_lines == 3
    assert entries[3].error == "not JSON"
    assert await read_websocket_log(log) == entries


async def test_filters(log: Path) -> None:
    """Entries are filtered by direction, type, time (inclusive), codon, session, and schema."""
    reader = WebSocketLogReader(log)
    entries = await reader.read_log()
    assert reader.filter_by_direction("out") == [entries[1], entries[4]]
    assert reader.filter_by_message_type("ping") == [entries[2]]
    moment = datetime(2025, 1, 4, 12, 0, 1, tzinfo=UTC)
    assert reader.filter_by_time_range(moment, "2025-01-04T13:00:02+01:00") == entries[1:3]
    assert reader.get_codon_messages("generate#0") == [entries[1]]
    assert reader.get_session_messages("s1") == [entries[1]]
    assert reader.get_server_events() == [entries[1]]
    assert reader.get_client_commands() == [entries[2]]


async def test_statistics(log: Path) -> None:
    """They are counts, types, a rounded average (a missing size is 0), and a time range."""
    assert await get_websocket_log_stats(log) == LogStatistics(
        total_entries=5,
        incoming_count=3,
        outgoing_count=2,
        message_types={"handshake": 1, "codon.started": 1, "ping": 1, "unknown": 1, "later": 1},
        average_message_size=263,
        time_range=TimeRange("2025-01-04T12:00:00.000Z", "2025-01-04T12:00:04.000Z"),
    )


async def test_a_missing_file_is_an_empty_log(tmp_path: Path) -> None:
    """A missing file has no entries and empty statistics, and streams nothing."""
    path = tmp_path / "none.log"
    assert await read_websocket_log(path) == []
    assert await get_websocket_log_stats(path) == LogStatistics(0, 0, 0, {}, 0, None)
    await WebSocketLogReader(path).stream_read(lambda entry: pytest.fail("nothing to read"))


async def test_streaming_hands_over_each_entry(log: Path) -> None:
    """The consumer is a function or a coroutine function; no entry is kept."""
    reader = WebSocketLogReader(log)
    plain: list[LogEntry] = []
    waited: list[LogEntry] = []

    async def wait(entry: LogEntry) -> None:
        waited.append(entry)

    await reader.stream_read(plain.append)
    await reader.stream_read(wait)
    assert reader.get_entries() == []
    assert plain == waited == await reader.read_log()


async def test_an_export_can_be_read_again(log: Path, tmp_path: Path) -> None:
    """Exported entries form a log that the reader accepts."""
    reader = WebSocketLogReader(log)
    await reader.read_log()
    chosen = reader.filter_by_direction("in")
    reader.export_to_file(chosen, tmp_path / "in.log")
    assert await read_websocket_log(tmp_path / "in.log") == chosen


SNIPPET = """
reader = WebSocketLogReader(".hankweave/logs/websocket.log")
await reader.readLog()

# Get statistics
stats = reader.getStatistics()
print(f"Total messages: {stats.totalEntries}")
print(f"Message types:", stats.messageTypes)

# Filter messages for a specific codon
codonMessages = reader.getCodonMessages("generate#0")
"""
"""The lines of seed 001, with Python's quotes and comments."""


async def test_the_snippet_of_the_documentation_runs_with_its_own_names(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path is text; `readLog`, `getStatistics`, `totalEntries`, `getCodonMessages` exist."""
    folder = log.parent / ".hankweave" / "logs"
    folder.mkdir(parents=True)
    log.rename(folder / "websocket.log")
    monkeypatch.chdir(log.parent)
    code = compile(SNIPPET, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"WebSocketLogReader": WebSocketLogReader}
    await eval(code, names)
    assert capsys.readouterr().out.splitlines()[0] == "Total messages: 5"
    assert [entry.loggedAt for entry in names["codonMessages"]] == ["2025-01-04T12:00:01.000Z"]


CAMEL = re.compile(r"_([a-z])")


def test_each_name_has_its_camel_case_one(log: Path) -> None:
    """Methods, statistics and helpers have one; `getPhaseMessages` is the older name for codons."""
    pairs: list[tuple[object, str]] = [
        *((WebSocketLogReader, name) for name in vars(WebSocketLogReader) if name[0] != "_"),
        *((log_reader, name) for name in ("read_websocket_log", "get_websocket_log_stats")),
    ]
    for owner, name in pairs:
        if "_" in name:
            camel = CAMEL.sub(lambda found: found[1].upper(), name).replace(
                "Websocket", "WebSocket"
            )
            assert getattr(owner, camel) is getattr(owner, name), name

    assert WebSocketLogReader.getPhaseMessages is WebSocketLogReader.get_codon_messages
    reader = WebSocketLogReader(str(log))
    reader.readLogSync()
    stats = reader.getStatistics()
    for each in fields(LogStatistics):
        camel = CAMEL.sub(lambda found: found[1].upper(), each.name)
        assert getattr(stats, camel) == getattr(stats, each.name)


async def test_paths_may_be_text_everywhere(log: Path, tmp_path: Path) -> None:
    """Reading, exporting and the helpers accept the same paths as `open`."""
    copy = str(tmp_path / "copy.log")
    reader = WebSocketLogReader(str(log))
    reader.exportToFile(await reader.readLog(), copy)
    assert await log_reader.readWebSocketLog(copy) == reader.getEntries()
    assert await log_reader.getWebSocketLogStats(copy) == reader.getStatistics()
