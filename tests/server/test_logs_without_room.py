"""Logs on a full disk omit whole lines, never half of one, and report how many are missing."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

import pytest

from hankweave_server.agents.agent_log import AgentLog
from hankweave_server.clock import SystemClock
from hankweave_server.logs import flush, server_log
from hankweave_server.transport.traffic_log import TrafficLog

Switch = Callable[[bool], None]

NOW = "2025-01-04T12:00:00.000Z"


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Switch:
    """Make writes to the logs store half their bytes and then fail, or work again."""
    write, is_full = os.write, [False]

    def half(descriptor: int, data: bytes) -> int:
        if is_full[0] and len(data) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return write(descriptor, data[: len(data) // 2] if is_full[0] else data)

    monkeypatch.setattr(os, "write", half)
    return lambda full: is_full.__setitem__(0, full)


def test_an_agents_log_says_how_many_lines_are_missing(tmp_path: Path, fill: Switch) -> None:
    """The agent continues; its missing output is counted at the right place."""
    path = tmp_path / "log"
    with AgentLog(path, limit=1_000) as log:
        log.append([b"before"], NOW)
        fill(True)
        log.append([b"lost", b"lost as well"], NOW)
        log.append([b"lost too"], NOW)
        assert path.read_bytes() == b"before\n"
        fill(False)
        log.append([b"after"], NOW)
        log.append([b"and after"], NOW)

    before, gap, *rest = path.read_bytes().splitlines()
    assert (before, rest) == (b"before", [b"after", b"and after"])
    assert json.loads(gap) == {
        "type": "gap",
        "timestamp": NOW,
        "message": "The disk was full: 3 lines are missing here.",
    }


def test_an_agents_log_on_a_broken_disk_is_a_fault(tmp_path: Path) -> None:
    """Only a lack of space is tolerated."""
    with AgentLog(tmp_path / "log", limit=1_000) as log:
        reading = os.open(tmp_path / "log", os.O_RDONLY)
        os.dup2(reading, log._descriptor)
        os.close(reading)
        with pytest.raises(OSError, match="Bad file descriptor"):
            log.append([b"never"], NOW)


async def test_the_traffic_log_says_how_many_frames_are_missing(
    tmp_path: Path, fill: Switch
) -> None:
    """The shortage is reported once; no torn record stays, and the gap is a record of its own."""
    path, reported = tmp_path / "logs" / "websocket.log", list[OSError]()
    log = TrafficLog(path, SystemClock(), report=reported.append)
    log.record("in", b'{"n":1}')
    await log._flush()
    fill(True)
    for _ in range(2):
        log.record("in", b'{"n":2}')
        log.record("in", b'{"n":3}')
        await log._flush()

    fill(False)
    log.record("out", b'{"n":4}')
    await log._flush()
    log.record("out", b'{"n":5}')
    await log._flush()
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [record["message"] for record in records] == [{"n": 1}, {"n": 4}, None, {"n": 5}]
    assert records[2]["metadata"]["error"].startswith("4 frames were not logged")
    assert len(reported) == 1


def test_server_log_says_how_many_lines_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers see no error, and no lost line appears later in the wrong place."""
    path, log = tmp_path / "server.log", logging.getLogger("hankweave.test")

    def full(handler: logging.FileHandler) -> TextIO:
        return Path("/dev/full").open("w")

    with server_log(path):
        log.warning("before")
        flush()
        (writer,) = _file_handlers(path)
        with monkeypatch.context() as patched:
            patched.setattr(type(writer), "_open", full)
            writer.close()
            for text in ("lost", "lost as well"):
                log.warning(text)

            flush()

        log.warning("after")

    lines = [line.partition("] ")[2] for line in path.read_text().splitlines()]
    assert lines == [
        "before",
        "2 lines are missing here: writing to the disk failed",
        "after",
    ]


def test_the_caller_of_server_log_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are written in their order, as they were when they were logged; none is lost."""
    path, log = tmp_path / "server.log", logging.getLogger("hankweave.test")
    goes_on, facts = threading.Event(), ["first"]
    emit = RotatingFileHandler.emit

    def slow(handler: RotatingFileHandler, record: logging.LogRecord) -> None:
        assert goes_on.wait(60)
        emit(handler, record)

    monkeypatch.setattr(RotatingFileHandler, "emit", slow)
    with server_log(path):
        log.warning("%s", facts)
        facts[0] = "changed"
        for number in range(500):
            log.warning("%d", number)

        assert path.read_text() == ""
        goes_on.set()

    lines = [line.partition("] ")[2] for line in path.read_text().splitlines()]
    assert lines == ["['first']", *map(str, range(500))]


def test_what_was_logged_before_the_process_gives_up_is_in_server_log(tmp_path: Path) -> None:
    """`kill` and `fence` leave no time for an orderly end."""
    path = tmp_path / "server.log"
    program = (
        "import pathlib, sys; from hankweave_server.daemon.shutdown import kill\n"
        "from hankweave_server.logs import server_log\n"
        "with server_log(pathlib.Path(sys.argv[1])): kill('a test')"
    )
    assert subprocess.run([sys.executable, "-c", program, path], check=False).returncode == 1
    assert "Forced to stop: a test" in path.read_text()


def _file_handlers(path: Path) -> list[logging.FileHandler]:
    """Return the open handlers of a file."""
    found = (reference() for reference in logging._handlerList)  # type: ignore[attr-defined]
    return [
        each
        for each in found
        if isinstance(each, logging.FileHandler) and each.baseFilename == str(path)
    ]
