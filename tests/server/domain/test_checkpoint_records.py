"""Checkpoints on record in the journal."""

from __future__ import annotations

import msgspec
import pytest

from hankweave_protocol.events import (
    CheckpointPruned,
)
from hankweave_protocol.ids import RunId
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.domain.checkpoints.records import OnRecord, on_record
from support.events import a_line, a_tool_call, recorded
from support.histories import a_checkpoint, sha


def made(number: int) -> bytes:
    created = CheckpointCreated(checkpoint=a_checkpoint("manual", RunId("run"), None, number))
    return a_line(recorded(created))


def pruned(*numbers: int) -> bytes:
    return a_line(CheckpointPruned(checkpoints=tuple(sha(number) for number in numbers)))


def test_what_was_made_stands_until_it_is_pruned() -> None:
    """A checkpoint is on record if it was made and not pruned afterwards."""
    found = on_record([made(1), made(2), made(3), pruned(1, 3)])
    assert found == OnRecord(frozenset({sha(2)}), frozenset({sha(1), sha(3)}))


def test_the_last_record_counts() -> None:
    """A checkpoint that is recorded again after it was pruned is on record."""
    found = on_record([made(1), pruned(1), made(1)])
    assert found == OnRecord(frozenset({sha(1)}), frozenset())


def test_what_an_agent_prints_is_no_record() -> None:
    """Event names in a tool's input, quoted or as keys, neither add nor remove a checkpoint."""
    action = a_tool_call("T", "1", type="checkpoint.pruned", data={"checkpoints": [sha(1)]})
    action = msgspec.structs.replace(action, content='{"type":"checkpoint.pruned"}')
    fake = a_tool_call("T", "2", type="CheckpointCreated", data={"checkpoint": {"sha": sha(2)}})
    assert on_record([made(1), a_line(action), a_line(fake)]).standing == {sha(1)}


def test_a_line_that_is_no_event_is_reported() -> None:
    """Damage in a relevant line raises an error."""
    with pytest.raises(msgspec.MsgspecError):
        on_record([b'{"type": "checkpoint.pruned", "data": {}}'])
