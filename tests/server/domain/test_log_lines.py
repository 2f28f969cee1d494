"""The lines of server.log: the format of seed 001 at info level, without any contents."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_protocol.codec import decode_event, encode
from hankweave_protocol.events import EVENTS, Event, EventData
from hankweave_protocol.ids import EventSeq
from hankweave_server.execution.event_log import log_line
from support.protocol_values import values_of

NOON = "2025-01-04T12:00:00.000Z"


def log_line_of(event_type: str, data: dict[str, Any]) -> tuple[str, str]:
    event = {"id": "e", "seq": 1, "timestamp": NOON, "type": event_type, "data": data}
    line = log_line(decode_event(encode(event)), "agentRoot/")
    return logging.getLevelName(line.level), line.text


@pytest.mark.parametrize(
    ("kind", "data", "level", "text"),
    [
        (
            "file.updated",
            {
                "path": "notes/observations.md",
                "filename": "observations.md",
                "action": "modified",
                "sha256": "",
                "bytes": 1,
                "source": {"kind": "tool_use"},
            },
            "DEBUG",
            "File change detected: agentRoot/notes/observations.md",
        ),
        ("info", {"message": "All codons completed."}, "INFO", "All codons completed."),
        (
            "error",
            {"message": "odd", "fatal": False, "severity": "warning"},
            "WARNING",
            "odd",
        ),
        ("error", {"message": "bad", "fatal": True}, "ERROR", "bad"),
        (
            "codon.warning",
            {"codonId": "a", "kind": "tools-refused", "message": "Every tool was refused."},
            "WARNING",
            "Codon a: Every tool was refused.",
        ),
        (
            "agent.confined",
            {
                "codonId": "a",
                "path": "/x",
                "operation": "read",
                "setting": None,
                "message": "It may not read /x.",
            },
            "WARNING",
            "Codon a: It may not read /x.",
        ),
        (
            "codon.waiting",
            {
                "codonId": "a",
                "until": "2026-11-22T03:00:00.000Z",
                "reason": "usage",
                "source": "event",
                "number": 1,
            },
            "WARNING",
            "Codon a waits for the end of a usage limit until 2026-11-22T03:00:00.000Z "
            "(wait 1, source: event)",
        ),
        (
            "codon.resumed",
            {"codonId": "a", "by": "time", "waitedMs": 7200000},
            "INFO",
            "Codon a continues after 7200 s (time)",
        ),
        (
            "codon.retrying",
            {
                "codonId": "a",
                "attempt": 2,
                "maxAttempts": 3,
                "delayMs": 1500,
                "failureReason": {"type": "rate-limit", "message": "slow down", "retriable": True},
            },
            "WARNING",
            "Retrying codon a (attempt 2/3) in 1.5 s: slow down",
        ),
        (
            "state.recovered",
            {
                "source": "backup",
                "errors": [],
                "warnings": [{"type": "missing_checkpoint", "message": "abc is gone"}],
            },
            "WARNING",
            "Recovery: the state was restored from backup: abc is gone",
        ),
        (
            "rollback.failed",
            {
                "target": {"checkpointSha": "1" * 40, "runId": "r", "codonId": "a"}
                | {"codonState": "completed", "eventSeq": 3, "loopContext": None},
                "message": "no room",
            },
            "ERROR",
            "Rollback failed: no room",
        ),
        (
            "assistant.action",
            {"codonId": "a", "action": "message", "content": "a secret plan"},
            "DEBUG",
            "Codon a: message of 13 characters",
        ),
        ("filetree.updated", {"tree": []}, "DEBUG", "filetree.updated"),
    ],
)
def test_an_event_is_one_line(kind: str, data: dict[str, Any], level: str, text: str) -> None:
    assert log_line_of(kind, data) == (level, text)


@pytest.mark.parametrize("member", EVENTS.members.values(), ids=lambda member: member.TYPE)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_event_of_the_protocol_has_a_line(
    member: type[EventData], data: st.DataObject
) -> None:
    """Every event can be logged, whatever values it contains."""
    drawn = data.draw(values_of(member))
    event = Event(id="e", seq=EventSeq(1), timestamp=NOON, type=member.TYPE, data=drawn)
    line = log_line(decode_event(encode(event)), "")
    assert isinstance(line.text, str)
    assert line.level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
