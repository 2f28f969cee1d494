"""Paths that a rollback could not restore, as its report has them."""

from __future__ import annotations

import errno

import pytest

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.execution.rollback.unrestored import exceptions_of, in_one, may_succeed_later


@pytest.mark.parametrize(
    ("left", "may"),
    [
        (Skipped(b"a", "changed"), True),
        (Skipped(b"a", "in-the-way"), True),
        (Skipped(b"a", "os-error", errno.EINTR), True),
        (Skipped(b"a", "os-error", errno.ENOMEM), True),
        (Skipped(b"a", "os-error", errno.ENOENT), True),
        (Skipped(b"a", "os-error", errno.EPERM), False),
        (Skipped(b"a", "immutable", errno.EPERM), False),
        (Skipped(b"a", "damaged"), False),
    ],
)
def test_what_another_attempt_may_restore_is_tried_again(left: Skipped, may: bool) -> None:
    """A path that the system refuses for good is not."""
    assert may_succeed_later(left) == may


def test_paths_whose_content_differs_come_first() -> None:
    """A report may list only the first ones, and a log names one."""
    left = (
        Skipped(b"a", "permissions", errno.EPERM),
        Skipped(b"c", "os-error", errno.EACCES),
        Skipped(b"b", "changed"),
    )
    found = exceptions_of(left)
    assert [(each.path, each.content_differs) for each in found] == [
        ("b", True),
        ("c", True),
        ("a", False),
    ]
    assert in_one(found, len(found)).startswith("3 paths could not be restored: 'b' was changed")
    assert in_one(found[:1], 1).endswith("then roll back again.")
