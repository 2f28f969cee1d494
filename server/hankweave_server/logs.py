"""server.log: one readable line for each action of the server.

structlog creates the entries, the standard library's rotating handler writes the file, in a thread
of its own, so that the event loop does not wait for the disk. The format is Hankweave's:
`2025-01-04T12:00:00.000Z [INFO] Beginning codon: observe#0`; or, for programs, one JSON object per
line. A message is always a single line, whatever it quotes.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import queue
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog

from hankweave_protocol import instants
from hankweave_server.fsutil import PRIVATE_FILE
from hankweave_server.plain_text import counted

MAX_BYTES = 16 * 1024 * 1024
BACKUPS = 4

QUEUED = 10_000
"""Entries that may wait for the disk; a caller that logs more than that waits, too."""

FLUSH_SECONDS = 1.0
"""How long the end of the process waits for a disk that does not answer."""

FILES = "hankweave.files"
"""The logger of changed files: its lines are DEBUG, but are written at level info, too."""

Logger = structlog.stdlib.BoundLogger


def logger(name: str) -> Logger:
    """Return the logger of a module; its entries go to server.log once that is open."""
    bound: Logger = structlog.stdlib.get_logger(name)
    return bound


class _PrivateRotatingHandler(RotatingFileHandler):
    """A rotating file that only its owner can read; `clean` removes secrets from each line.

    On a full or broken disk it drops lines, and logs how many when it can write again: the writers
    of important data report the disk's fault.
    """

    _lost_lines = 0
    clean: Callable[[str], str] = staticmethod(str)

    def format(self, record: logging.LogRecord) -> str:
        return self.clean(super().format(record))

    def _open(self) -> Any:
        descriptor = os.open(
            self.baseFilename,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
            PRIVATE_FILE,
        )
        return os.fdopen(descriptor, self.mode, encoding=self.encoding)

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Return whether the file is full; the record itself, which may exceed it, is not counted.

        It would be formatted twice.
        """
        self.stream = self.stream or self._open()
        return self.stream.tell() >= self.maxBytes

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost_lines:
            lost, self._lost_lines = self._lost_lines, 0
            super().emit(_note_of_loss(record, lost))
            if self._lost_lines:
                self._lost_lines = lost + 1
                return

        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return

        self._lost_lines += 1
        self._close_stream()

    def _close_stream(self) -> None:
        """Close the file, to be opened again for the next line; its buffer is lost."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def _note_of_loss(record: logging.LogRecord, lost: int) -> logging.LogRecord:
    lines = counted(lost, "line is", "lines are")
    text = f"{lines} missing here: writing to the disk failed"
    return logging.LogRecord(
        record.name, logging.WARNING, record.pathname, record.lineno, text, None, None
    )


class _Queue(QueueHandler):
    """Passes entries to the thread that formats and writes them."""

    queue: queue.Queue[logging.LogRecord | None]

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        if record.args:  # They may change before the entry is written.
            record = copy.copy(record)
            record.msg, record.args = record.getMessage(), None

        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.put(record)

    def flush(self) -> None:
        """Wait until everything is written, but not long."""
        with self.queue.all_tasks_done:
            self.queue.all_tasks_done.wait_for(self._is_done, FLUSH_SECONDS)

    def _is_done(self) -> bool:
        return not self.queue.unfinished_tasks


class _Writer(QueueListener):
    queue: queue.Queue[logging.LogRecord | None]

    def enqueue_sentinel(self) -> None:
        self.queue.put(None)


def flush() -> None:
    """Write what was logged until now, before the process ends without an orderly end."""
    for handler in logging.getLogger().handlers:
        handler.flush()


@contextmanager
def server_log(
    path: Path,
    level: int = logging.INFO,
    *,
    as_json: bool = False,
    clean: Callable[[str], str] = str,
) -> Iterator[None]:
    """Send everything logged to the file while the context lasts; its folder must exist.

    `clean` removes secrets from an entry's text. Everything is written when the context ends.
    """
    handler = _PrivateRotatingHandler(
        path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8"
    )
    handler.clean = clean
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[_forget_record, _render_json if as_json else _render],
        )
    )
    _configure()
    root, entries = logging.getLogger(), queue.Queue[logging.LogRecord | None](QUEUED)
    queued, writer = _Queue(entries), _Writer(entries, handler)
    writer.start()
    root.addHandler(queued)
    root.setLevel(level)
    logging.getLogger(FILES).setLevel(logging.DEBUG if level <= logging.INFO else level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)  # Its debug lines are about selectors.
    try:
        yield
    finally:
        root.removeHandler(queued)
        writer.stop()
        handler.close()


def _configure() -> None:
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _stamp(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")  # Of a library's entry, which is stamped in the writer's thread.
    moment = datetime.now(UTC) if record is None else datetime.fromtimestamp(record.created, UTC)
    event["timestamp"] = instants.to_text(moment)
    return event


def _forget_record(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    stamp, level = event.pop("timestamp"), str(event.pop("level")).upper()
    message, trace = event.pop("event"), event.pop("exception", None)
    facts = "".join(f" {key}={value!r}" for key, value in sorted(event.items()))
    line = f"{stamp} [{level}] {_on_one_line(str(message))}{facts}"
    return line if trace is None else f"{line}\n{trace}"


def _render_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """Write timestamp, level and message first, then all other fields."""
    names = {"timestamp": "timestamp", "level": "level", "event": "message"}
    found = {new: event.pop(old) for old, new in names.items()}
    return json.dumps({**found, **event}, ensure_ascii=False, default=str)


def _on_one_line(text: str) -> str:
    """Escape control characters, and marks that change the text direction."""
    if text.isprintable():
        return text

    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


_SHARED: list[Any] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.PositionalArgumentsFormatter(),
    _stamp,
    structlog.processors.format_exc_info,
]
