"""Replies to a rollback that cannot start or cannot finish; the fault comes from a test double."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hankweave_protocol.commands import RollbackPreview, RollbackToCheckpoint, RollbackUndo
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import RollbackReport
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.model import Damage
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.restoration import CutShort
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.paths import Layout
from support.callers import A_REQUEST
from support.histories import completed, sha
from support.timelines import a_state, checkpoints_of, ended

STATE = a_state(ended("first", completed("one", 0x11)))
TO_ONE = RollbackToCheckpoint(checkpoint_sha=sha(0x11))


class Failing:
    """A rollback that fails; `asked` records the requests."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault
        self.asked: list[RollbackRequest] = []

    async def perform(
        self, rollback_request: RollbackRequest, _causes: tuple[int | str, ...]
    ) -> RollbackReport:
        self.asked.append(rollback_request)
        raise self._fault


def rollbacks(fault: Exception, known_paths: Any = None) -> tuple[Rollbacks, Failing]:
    failing = Failing(fault)

    engine = SimpleNamespace(known_paths=known_paths)

    async def call(work: Callable[[Any], Any]) -> Any:
        return work(engine)

    checkpointer = SimpleNamespace(known=checkpoints_of(STATE), call=call, missing=(), renamed={})
    guard = SimpleNamespace(is_half_restored=True)
    layout = Layout.of_execution(Path("/an/execution"))
    ctx = SimpleNamespace(state=STATE, checkpointer=checkpointer, guard=guard, layout=layout)
    return Rollbacks(cast(ExecutionContext, ctx), cast(Rollback, failing)), failing


async def refusal(made: Rollbacks, command: RollbackToCheckpoint = TO_ONE) -> Refused:
    with pytest.raises(Refused) as refused:
        await made.perform(command, A_REQUEST)

    return refused.value


async def test_a_full_disk_midway_is_reported_with_what_follows() -> None:
    """The client learns that the rollback will be finished, and which event reports it."""
    made, _ = rollbacks(CutShort(100, 10))
    refused = await refusal(made)
    assert refused.code is ErrorCode.INSUFFICIENT_SPACE
    assert "rollback.completed" in (refused.hint or "")


async def test_a_broken_disk_midway_is_reported_with_its_path() -> None:
    """The client learns that the server stops, and that the next start completes the rollback."""
    fault = ShadowRepositoryError("it failed")
    fault.__cause__ = OSError(errno.EIO, "Input/output error", "d/a")
    made, _ = rollbacks(fault)
    refused = await refusal(made)
    assert refused.code is ErrorCode.SHUTTING_DOWN
    assert "d/a below /an/execution: Input/output error (EIO)" in refused.message
    assert "next start completes" in (refused.hint or "")


async def test_no_path_at_all_is_refused() -> None:
    """An empty list of paths is an error and does not mean the whole work tree."""
    made, failing = rollbacks(AssertionError())
    refused = await refusal(made, RollbackToCheckpoint(checkpoint_sha=sha(0x11), paths=()))
    assert (refused.code, refused.path) == (ErrorCode.INVALID_PATH, "$.data.paths")
    assert failing.asked == []


async def test_paths_of_a_damaged_checkpoint_are_left_to_the_plan() -> None:
    """If the checkpoint's paths cannot be read, the planner refuses and names the damage."""

    def known_paths(*_: Any) -> Any:
        raise CheckpointDamaged(sha(0x11), (Damage(sha(0x99), "tree", b"d", (sha(0x11),)),))

    refusal_raised = Refused(ErrorCode.CHECKPOINT_DAMAGED, "It cannot be read.")
    made, failing = rollbacks(refusal_raised, known_paths)
    command = RollbackToCheckpoint(checkpoint_sha=sha(0x11), paths=("d/a",))
    assert await refusal(made, command) is refusal_raised
    assert failing.asked[0].paths == frozenset({b"d/a"})


async def test_nothing_to_undo_is_refused() -> None:
    """Without an earlier rollback, an undo is refused."""
    made, _ = rollbacks(AssertionError())
    with pytest.raises(Refused) as refused:
        await made.undo_or_redo(RollbackUndo(), A_REQUEST)

    assert refused.value.code is ErrorCode.NOTHING_TO_UNDO


async def test_a_preview_of_an_undo_has_no_second_target() -> None:
    """The preview of an undo accepts no target, because the undo determines it."""
    made, _ = rollbacks(AssertionError())
    with pytest.raises(Refused) as refused:
        await made.preview(RollbackPreview(direction="undo", checkpoint_sha=sha(0x11)), A_REQUEST)

    assert refused.value.code is ErrorCode.INVALID_COMMAND
