"""`hankweave redact` on a system that refuses what it has to do."""

from __future__ import annotations

import errno
import itertools
import re
from pathlib import Path

import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import Event, ServerStarted
from hankweave_protocol.ids import EventSeq
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.redaction import command as redact
from hankweave_server.features.redaction import redaction
from hankweave_server.features.redaction.redaction import RedactionRequest
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import Redactor
from support.checkpointing import a_request
from support.refusing_system import ERRNOS, OPERATIONS, Refusals

VALUE = "Tr0ub4dor & three"
REQUEST = RedactionRequest(Redactor({"value": VALUE}, rules=()), ("value",), in_work_tree=True)
NOW = "2026-01-01T00:00:00.000Z"


def execution(folder: Path) -> Layout:
    """Return an execution with the value in its journal, a log, a checkpoint and a file."""
    layout = Layout.of_execution(folder)
    layout.work_tree.mkdir(parents=True)
    (layout.work_tree / "a.txt").write_text(VALUE)
    engine = CheckpointEngine.open(layout)
    engine.checkpoint(a_request())
    engine.close()
    layout.wal.unlink(missing_ok=True)
    data = ServerStarted(server_version=VALUE, pid=1)
    event = Event(id="1", seq=EventSeq(1), timestamp=NOW, type=data.TYPE, data=data)
    layout.journal.parent.mkdir(parents=True, exist_ok=True)
    layout.journal.write_bytes(codec.encode(event) + b"\n")
    layout.server_log.parent.mkdir(exist_ok=True)
    layout.server_log.write_text(VALUE)
    return layout


def redact_all(layout: Layout) -> Stop | None:
    try:
        redact._redact(layout, REQUEST, yes=True, as_json=True)
    except Stop as stop:
        return stop

    return None


def met(layout: Layout, operation: str, number: int, only: int | None = None) -> int:
    """Redact while the system refuses; return how many calls there were.

    Whatever is refused has a code, a path and a next step, and when the system allows it again, the
    same command does it.
    """
    refusals = Refusals(layout.root, only)
    with pytest.MonkeyPatch.context() as patch:
        refusals.install(patch, operation, number)
        error = redact_all(layout)

    if error is not None:
        assert error.exit_code is ExitCode.IO_ERROR
        assert f"({errno.errorcode[number]})" in error.message
        assert re.search(r"(?:^|[ '\"])/\w", error.message), "a path"
        assert error.hint

    with redaction.owned(layout, SystemClock()) as pending:
        if pending is not None:
            redaction.confirm(layout, pending)

    if pending is None:
        assert redact_all(layout) is None

    assert (layout.work_tree / "a.txt").read_text() == "[redacted:value]"
    assert VALUE not in layout.journal.read_text() + layout.server_log.read_text()
    return refusals.count


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
def test_a_system_that_refuses_everything_is_reported(
    tmp_path: Path, operation: str, number: int
) -> None:
    met(execution(tmp_path), operation, number)


@pytest.mark.full
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_system_that_refuses_one_call_is_reported(tmp_path: Path, operation: str) -> None:
    """Each call of each operation, with another error each time."""
    numbers = itertools.cycle(ERRNOS)
    only = calls = 1
    while only <= calls:
        calls = met(execution(tmp_path / str(only)), operation, next(numbers), only)
        only += 1
