"""websocket.log: the frames sent and received, one `TrafficRecord` per line.

A frame to or from one client is one line. A broadcast is one line in all, because the frame is the
same for each client and a thousand copies would fill the log. Recording appends to a list;
redaction and writing happen in a worker thread a moment later. Frames not yet written when the
process is killed are lost: the log is for diagnosis, the journal is the record.

Secrets are removed from frames before they are written: what the server's redactor finds, as in
the journal, and in addition the values of fields and variables that are named like a secret. Such a
rule would be too broad for the journal, which is a record; this log is only for diagnosis, and it
has the frames of clients that were refused. `redact` works on encoded JSON: parsing every frame
would cost more than the log is worth, and text that a tool printed into a string must be cleaned as
well. A rule is tried only if its marker occurs in the frame, because a search for a few bytes costs
next to nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from anyio import to_thread

from hankweave_protocol.codec import encode
from hankweave_protocol.instants import to_text
from hankweave_protocol.records import TrafficMetadata, TrafficRecord
from hankweave_server.clock import Clock
from hankweave_server.fsutil import append_whole, make_private_directory, opened
from hankweave_server.plain_text import acted_on
from hankweave_server.redaction.redactor import NOTHING_KNOWN, Redactor

REDACTED = b"[redacted]"

_KEYS = (
    rb"(?:[\w.-]*token|authorization|proxy-authorization|set-cookie|cookie|[\w.-]*secret"
    rb"|[\w.-]*password|passwd|[\w.-]*api[_-]?key|x-api-key|private[_-]?key)"
)
_BEGIN = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
"""Start of a word, also after an escaped line break, whose last character is a letter."""


@dataclass(frozen=True, slots=True)
class _Rule:
    markers: tuple[bytes, ...]
    """Lower case; the rule is tried if one of them occurs in the frame."""
    pattern: re.Pattern[bytes]
    replacement: bytes


_KEY_MARKERS = (
    b'token"',
    b'token\\"',
    b"authorization",
    b"cookie",
    b"secret",
    b"passw",
    b"api",
    b"private",
)
_RULES = (
    # "token": "..." as JSON writes it.
    _Rule(
        _KEY_MARKERS,
        re.compile(rb'(?i)((?<!\\)"' + _KEYS + rb'"\s*:\s*")(?:[^"\\]|\\.)+(?="|\Z)'),
        rb"\1" + REDACTED,
    ),
    # The same inside a string: a tool's output that is JSON itself. No rule may begin with a
    # repetition: in a megabyte of the repeated text, each position would start a search.
    _Rule(
        _KEY_MARKERS,
        re.compile(rb'(?i)(\\"' + _KEYS + rb'\\+"\s*:\s*\\+")[^"\\]+'),
        rb"\1" + REDACTED,
    ),
    _Rule(
        (b"token=", b"key=", b"password=", b"secret="),
        re.compile(
            rb"(?i)((?:token|api[_-]?key|password|secret)=)"
            rb"(?:'[^'\"\\]+|\\+\"[^\"\\]+|[^&\s\"'\\]+)"
        ),
        rb"\1" + REDACTED,
    ),
    _Rule(
        (b"bearer", b"basic"),
        re.compile(rb"(?i)" + _BEGIN + rb"(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"),
        rb"\1 " + REDACTED,
    ),
)


def redact(frame: bytes, redactor: Redactor = NOTHING_KNOWN) -> bytes:
    """Return the frame without secrets.

    Valid JSON stays valid JSON: only characters inside strings are replaced.
    """
    frame = redactor.data(frame)
    lowered = frame.lower()
    for rule in _RULES:
        if any(marker in lowered for marker in rule.markers):
            frame = rule.pattern.sub(rule.replacement, frame)

    return frame


ROTATE_AT = 64 * 1024 * 1024
KEPT_FILES = 5  # websocket.log and .1 to .4: at most 320 MiB beside an execution.
FLUSH_INTERVAL = 0.2  # Seconds: long enough to write many lines at once, short enough for `tail`.
PENDING_LIMIT = 32 * 1024 * 1024  # Bytes that may wait for a slow disk; more is only counted.
HISTORY_LIMIT = 1024 * 1024
"""Pending bytes up to which frames that repeat the journal are logged as well."""

Direction = Literal["in", "out"]
_raw_decoder = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class _Pending:
    logged_at: str
    direction: Direction
    frame: bytes


class TrafficLog:
    """The log's writer. `record` is for the event loop's thread; only `run` writes."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        redactor: Redactor = NOTHING_KNOWN,
        rotate_at: int = ROTATE_AT,
        report: Callable[[OSError], None],
    ) -> None:
        """Create a log; `report` is called, in the worker thread, if a batch cannot be written."""
        self._path = path
        self._clock = clock
        self._redactor = redactor
        self._rotate_at = rotate_at
        self._report = report
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._left_out = 0
        self._is_failing = False
        """The last batch could not be written; reported once, not for each batch."""
        self._wake = anyio.Event()

    def record(self, direction: Direction, frame: bytes) -> None:
        """Accept a frame for the log; never waits and never fails."""
        if self._pending_bytes + len(frame) > PENDING_LIMIT:
            self._left_out += 1
            return

        self._pending.append(_Pending(to_text(self._clock.now()), direction, frame))
        self._pending_bytes += len(frame)
        if len(self._pending) == 1:
            self._wake.set()

    def has_room_for(self, size: int) -> bool:
        """Return whether a frame that repeats the journal should be recorded."""
        return self._pending_bytes + size <= HISTORY_LIMIT

    def leave_out(self) -> None:
        """Count a frame that is not recorded."""
        self._left_out += 1

    async def run(self) -> None:
        """Write recorded frames until cancelled, then write the rest."""
        try:
            while True:
                await self._wake.wait()
                await anyio.sleep(FLUSH_INTERVAL)
                await self._flush()
        finally:
            with anyio.CancelScope(shield=True):
                await self._flush()

    async def _flush(self) -> None:
        self._wake = anyio.Event()
        batch, self._pending = self._pending, []
        left_out, self._left_out = self._left_out, 0
        self._pending_bytes = 0
        if batch:
            self._left_out += await to_thread.run_sync(self._write, batch, left_out)

    def _write(self, batch: list[_Pending], left_out: int) -> int:
        """Write a batch; return the number of dropped frames that are still unreported."""
        lines = [self._line(pending) for pending in batch]
        if left_out:
            lines.append(_left_out_line(batch[-1].logged_at, left_out))

        try:
            self._append(b"".join(lines))
        except OSError as error:
            if not self._is_failing:
                self._report(error)

            self._is_failing = True
            return left_out + len(batch)

        self._is_failing = False
        return 0

    def _line(self, pending: _Pending) -> bytes:
        message, error = _as_json(redact(pending.frame, self._redactor))
        record = TrafficRecord(
            logged_at=pending.logged_at,
            direction=pending.direction,
            message=msgspec.Raw(message),
            metadata=TrafficMetadata(size=len(pending.frame), error=error),
        )
        return encode(record) + b"\n"

    def _append(self, data: bytes) -> None:
        if self._path.parent.parent.is_dir():  # Do not recreate state that was moved away.
            make_private_directory(self._path.parent)

        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with opened(self._path, flags) as descriptor:
            append_whole(descriptor, data)
            size = os.fstat(descriptor).st_size

        if size >= self._rotate_at:
            self._rotate()

    def _rotate(self) -> None:
        """Rename the files; nothing is copied, so a reader with an open file keeps a whole one."""
        for number in range(KEPT_FILES - 1, 1, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _as_json(frame: bytes) -> tuple[bytes, str | None]:
    """Return the frame as one line of JSON; a frame that is not JSON becomes a JSON string."""
    try:
        _raw_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return encode(frame.decode("utf-8", "replace")), "not JSON"

    # Between the tokens of valid JSON a line break is white space, and strings contain none.
    # Replacing them keeps the meaning, and one record on one line.
    return frame.replace(b"\n", b" ").replace(b"\r", b" "), None


def _left_out_line(logged_at: str, count: int) -> bytes:
    record = TrafficRecord(
        logged_at=logged_at,
        direction="out",
        message=msgspec.Raw(b"null"),
        metadata=TrafficMetadata(
            size=0,
            error=(
                f"{acted_on(count, 'frame')} not logged: the disk could not write as fast as they "
                "arrived"
            ),
        ),
    )
    return encode(record) + b"\n"
