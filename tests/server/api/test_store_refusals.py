"""Errors of store maintenance when the disk refuses a write."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hankweave_protocol.commands import CheckpointPin, StoreFsck, StoreGc
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.api.maintenance import StoreMaintenance
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.paths import Layout
from support.callers import A_REQUEST
from support.histories import completed
from support.timelines import a_state, checkpoints_of, ended

STATE = a_state(ended("run", completed("one", 0x11)))
KNOWN = checkpoints_of(STATE)

FULL = OSError(errno.ENOSPC, "No space left on device")
QUOTA = OSError(errno.EDQUOT, "Disk quota exceeded")
OTHER = OSError(errno.EIO, "Input/output error")


class Failing:
    """A garbage collector whose every operation fails with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error

    preview = collect = repair = pin = _fail


COMMANDS = [
    StoreGc(),
    StoreGc(dry_run=True),
    StoreFsck(repair=True),
    CheckpointPin(checkpoint_sha=next(iter(KNOWN)), pinned=True),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.TYPE))
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FULL, ErrorCode.INSUFFICIENT_SPACE),
        (QUOTA, ErrorCode.INSUFFICIENT_SPACE),
        (InsufficientSpace(10, 5), ErrorCode.INSUFFICIENT_SPACE),
        (OTHER, ErrorCode.IO_ERROR),
        (ShadowRepositoryError("torn"), ErrorCode.STORE_UNUSABLE),
    ],
)
async def test_a_disk_that_takes_nothing_is_a_refusal_with_a_next_step(
    command: Any, error: Exception, code: ErrorCode, tmp_path: Path
) -> None:
    """For gc, repair and pin alike, a full disk or quota is named as such, and every other fault
    names the store or its place; none becomes an internal error."""
    store = StoreMaintenance(
        Layout.of_execution(tmp_path),
        SimpleNamespace(state=STATE),  # type: ignore[arg-type]
        SimpleNamespace(known=KNOWN, missing=(), renamed={}, clean=str),  # type: ignore[arg-type]
        Failing(error),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
    )
    handlers: dict[type, Any] = {
        StoreGc: store.gc,
        StoreFsck: store.fsck,
        CheckpointPin: store.pin,
    }
    with pytest.raises(Refused) as refused:
        await handlers[type(command)](command, A_REQUEST)

    assert refused.value.code is code
    named = "store" if code is not ErrorCode.IO_ERROR else str(tmp_path)
    assert named in refused.value.message
    assert refused.value.hint
