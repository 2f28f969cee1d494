"""A checkpoint on a system that refuses what it has to do."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.fsutil import described, next_step, os_error_in
from hankweave_server.git.errors import is_out_of_space
from hankweave_server.paths import Layout
from support.checkpointing import a_request
from support.refusing_system import ERRNOS, OPERATIONS, Refusals


def met(folder: Path, operation: str, number: int, only: int | None = None) -> int:
    """Take a checkpoint while the system refuses; return how many calls there were.

    It is taken, or the error comes from the system's, which is what a client is told. When the
    system allows it again, the next checkpoint has everything.
    """
    layout = Layout.of_execution(folder)
    layout.work_tree.mkdir(parents=True)
    engine = CheckpointEngine.open(layout)
    try:
        engine.checkpoint(a_request(1))
        for name in ("a.txt", "b.txt"):
            (layout.work_tree / name).write_text(name)

        refusals, error = Refusals(layout.root, only), None
        with pytest.MonkeyPatch.context() as patch:
            refusals.install(patch, operation, number)
            try:
                engine.checkpoint(a_request(2))
            except Exception as raised:
                error = raised

        if error is not None:
            problem = os_error_in(error)
            assert problem is not None
            assert problem.errno == number
            assert is_out_of_space(error) == (number in (errno.ENOSPC, errno.EDQUOT))
            assert "/" in described(problem, layout.root)
            assert next_step(problem)

        made = engine.checkpoint(a_request(3))
        assert {file.path for file in engine.tree(made.sha)} == {b"a.txt", b"b.txt"}
    finally:
        engine.close()

    return refusals.count


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
def test_a_system_that_refuses_everything_is_named(
    tmp_path: Path, operation: str, number: int
) -> None:
    met(tmp_path, operation, number)


@pytest.mark.full
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_system_that_refuses_one_call_is_named(tmp_path: Path, operation: str) -> None:
    numbers = itertools.cycle(ERRNOS)
    only = calls = 1
    while only <= calls:
        calls = met(tmp_path / str(only), operation, next(numbers), only)
        only += 1
