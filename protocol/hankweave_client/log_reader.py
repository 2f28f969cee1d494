"""A reader of websocket.log.

The names are those of Hankweave's `WebSocketLogReader`, in Python's spelling and in its own, so
that its snippets work unchanged. A log may be written while it is read, and may end in the middle
of a line. A line that cannot be read is skipped and counted, never an error, because the log is
used to find faults.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal

import msgspec
from anyio import open_file, to_thread

from hankweave_protocol.codec import (
    UnknownEvent,
    decode_command,
    decode_event,
    decode_value,
    encode,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import TrafficMetadata, TrafficRecord

Direction = Literal["in", "out"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One logged frame."""

    logged_at: str
    """The time of logging, not the message's own timestamp."""
    direction: Direction
    """`in`: client to server; `out`: server to client."""
    message: Any
    """The decoded frame: a dict, or any other JSON value that a client sent."""
    size: int
    """Bytes on the wire."""
    error: str | None = None

    @property
    def type(self) -> str:
        """The message's type, or `unknown`."""
        kind = self.message.get("type") if isinstance(self.message, dict) else None
        return kind if isinstance(kind, str) else "unknown"

    @property
    def loggedAt(self) -> str:
        return self.logged_at

    def field(self, name: str) -> Any:
        """Return one field of the message's data; None if there is none."""
        data = self.message.get("data") if isinstance(self.message, dict) else None
        return data.get(name) if isinstance(data, dict) else None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """First and last entry in file order."""

    start: str
    end: str


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """The result of `get_statistics`."""

    total_entries: int
    incoming_count: int
    outgoing_count: int
    message_types: dict[str, int]
    average_message_size: int
    """Bytes, rounded."""
    time_range: TimeRange | None = None
    """None for an empty log."""

    @property
    def totalEntries(self) -> int:
        return self.total_entries

    @property
    def incomingCount(self) -> int:
        return self.incoming_count

    @property
    def outgoingCount(self) -> int:
        return self.outgoing_count

    @property
    def messageTypes(self) -> dict[str, int]:
        return self.message_types

    @property
    def averageMessageSize(self) -> int:
        return self.average_message_size

    @property
    def timeRange(self) -> TimeRange | None:
        return self.time_range


class WebSocketLogReader:
    """A log file, read into memory, with queries."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.skipped_lines = 0
        """The number of lines of the last reading that were not entries."""
        self._entries: list[LogEntry] = []

    async def read_log(self) -> list[LogEntry]:
        """Read the file in a worker thread; a missing one is an empty log."""
        return await to_thread.run_sync(self.read_log_sync)

    def read_log_sync(self) -> list[LogEntry]:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = []

        parsed = [_entry_in(line) for line in lines if line.strip()]
        self._entries = [entry for entry in parsed if entry is not None]
        self.skipped_lines = len(parsed) - len(self._entries)
        return self.get_entries()

    async def stream_read(self, callback: Callable[[LogEntry], Awaitable[None] | None]) -> None:
        """Pass each entry to the callback without keeping any: for logs larger than memory."""
        try:
            file = await open_file(self.path, "rb")
        except FileNotFoundError:
            return

        async with file:
            async for line in file:
                entry = _entry_in(line)
                result = None if entry is None else callback(entry)
                if isawaitable(result):
                    await result

    def get_entries(self) -> list[LogEntry]:
        return list(self._entries)

    def filter_by_direction(self, direction: Direction) -> list[LogEntry]:
        return [entry for entry in self._entries if entry.direction == direction]

    def filter_by_message_type(self, message_type: str) -> list[LogEntry]:
        return [entry for entry in self._entries if entry.type == message_type]

    def filter_by_time_range(self, start: str | datetime, end: str | datetime) -> list[LogEntry]:
        """Return entries in a time range, ends included; texts are ISO 8601 with a time zone."""
        first, last = _moment(start), _moment(end)
        return [entry for entry in self._entries if first <= from_text(entry.logged_at) <= last]

    def get_codon_messages(self, codon_id: str) -> list[LogEntry]:
        return [entry for entry in self._entries if entry.field("codonId") == codon_id]

    def get_session_messages(self, session_id: str) -> list[LogEntry]:
        return [entry for entry in self._entries if entry.field("sessionId") == session_id]

    def get_server_events(self) -> list[LogEntry]:
        """Return outgoing frames that are events of the protocol."""
        return [entry for entry in self.filter_by_direction("out") if _is_event(entry)]

    def get_client_commands(self) -> list[LogEntry]:
        """Return incoming frames that are commands of the protocol."""
        return [entry for entry in self.filter_by_direction("in") if _is_command(entry)]

    def get_statistics(self) -> LogStatistics:
        entries = self._entries
        incoming = len(self.filter_by_direction("in"))
        return LogStatistics(
            total_entries=len(entries),
            incoming_count=incoming,
            outgoing_count=len(entries) - incoming,
            message_types=dict(Counter(entry.type for entry in entries)),
            average_message_size=_average(entry.size for entry in entries),
            time_range=TimeRange(entries[0].logged_at, entries[-1].logged_at) if entries else None,
        )

    def export_to_file(self, entries: Iterable[LogEntry], path: str | os.PathLike[str]) -> None:
        """Write entries as a log that this reader can read."""
        Path(path).write_bytes(b"".join(_lines_of(entries)))

    # Hankweave's own names, and those of its older versions, in which codons were phases.
    readLog = read_log
    readLogSync = read_log_sync
    streamRead = stream_read
    getEntries = get_entries
    filterByDirection = filter_by_direction
    filterByMessageType = filter_by_message_type
    filterByTimeRange = filter_by_time_range
    getCodonMessages = get_codon_messages
    getPhaseMessages = get_codon_messages
    getSessionMessages = get_session_messages
    getServerEvents = get_server_events
    getClientCommands = get_client_commands
    getStatistics = get_statistics
    exportToFile = export_to_file


async def read_websocket_log(path: str | os.PathLike[str]) -> list[LogEntry]:
    return await WebSocketLogReader(path).read_log()


async def get_websocket_log_stats(path: str | os.PathLike[str]) -> LogStatistics:
    reader = WebSocketLogReader(path)
    await reader.read_log()
    return reader.get_statistics()


readWebSocketLog = read_websocket_log
getWebSocketLogStats = get_websocket_log_stats


class _Record(TrafficRecord):
    """A line as another writer may leave it: in Hankweave, metadata is optional."""

    metadata: TrafficMetadata = TrafficMetadata(size=0)


def _entry_in(line: bytes) -> LogEntry | None:
    try:
        record = decode_value(_Record, line)
        from_text(record.logged_at)
        return LogEntry(
            logged_at=record.logged_at,
            direction=record.direction,
            message=msgspec.json.decode(record.message),
            size=record.metadata.size,
            error=record.metadata.error,
        )
    except (Refused, msgspec.DecodeError, ValueError):
        return None


def _lines_of(entries: Iterable[LogEntry]) -> Iterator[bytes]:
    for entry in entries:
        record = TrafficRecord(
            logged_at=entry.logged_at,
            direction=entry.direction,
            message=msgspec.Raw(encode(entry.message)),
            metadata=TrafficMetadata(size=entry.size, error=entry.error),
        )
        yield encode(record) + b"\n"


def _is_event(entry: LogEntry) -> bool:
    try:
        return not isinstance(decode_event(encode(entry.message)).data, UnknownEvent)
    except Refused:
        return False


def _is_command(entry: LogEntry) -> bool:
    try:
        decode_command(encode(entry.message))
    except Refused:
        return False

    return True


def _moment(given: str | datetime) -> datetime:
    return from_text(given) if isinstance(given, str) else given


def _average(sizes: Iterable[int]) -> int:
    counted = list(sizes)
    return round(sum(counted) / len(counted)) if counted else 0
