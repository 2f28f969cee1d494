"""The raw log of an agent."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hankweave_server.agents.agent_log import AgentLog, wrapped


def test_the_log_is_appended_to_and_private(tmp_path: Path) -> None:
    """A resumed codon goes on in the same file, which its owner alone can read."""
    path = tmp_path / "runs" / "r" / "c-claude.log"
    for line in (b"one", b"two"):
        with AgentLog(path, limit=100) as log:
            log.append([line])

    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_last_line_is_ended_first(tmp_path: Path) -> None:
    """What a crash left half written is not fused with the next line."""
    path = tmp_path / "log"
    path.write_bytes(b'{"torn')
    with AgentLog(path, limit=100) as log:
        log.append([b"next"])

    assert path.read_bytes() == b'{"torn\nnext\n'


def test_a_full_log_says_so_once(tmp_path: Path) -> None:
    """At the limit a marker is written, and then nothing more."""
    path = tmp_path / "log"
    with AgentLog(path, limit=10) as log:
        for _ in range(5):
            log.append([b"12345678"])

    first, marker = path.read_bytes().splitlines()
    assert first == b"12345678"
    assert json.loads(marker)["type"] == "truncated"


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Nobody can lead the log elsewhere."""
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="log"):
        AgentLog(tmp_path / "log", limit=10)


def test_plain_text_is_wrapped() -> None:
    """Every line of the log is a JSON object with a type."""
    assert json.loads(wrapped("stderr", 'a "b"', "2025-01-04T12:00:00.000Z")) == {
        "type": "stderr",
        "timestamp": "2025-01-04T12:00:00.000Z",
        "message": 'a "b"',
    }
