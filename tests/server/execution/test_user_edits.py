"""The edits of people that a restore would take away."""

from __future__ import annotations

import msgspec
import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.model import PathEntry, RestorePlan
from hankweave_server.execution.rollback.user_edits import conflicts
from support.timelines import a_state

DIGEST = "d" * 64


def plan(*changed: bytes, unsaved: tuple[bytes, ...] = (), databases: tuple[bytes, ...] = ()):
    return RestorePlan(
        target=Sha("0" * 40),
        added=(),
        updated=tuple(PathEntry(path, 1, 0o100644) for path in changed),
        removed=(),
        unchanged_count=0,
        kept=(),
        bytes_to_write=0,
        unsaved=frozenset(unsaved),
        databases=dict.fromkeys(databases, ()),
    )


def edited(*paths: str):
    return msgspec.structs.replace(a_state(), edits=dict.fromkeys(paths, DIGEST))


def test_recorded_edits_are_found_where_the_plan_changes_them() -> None:
    assert conflicts(edited("a", "c"), plan(b"a", b"b")) == {b"a": DIGEST}


@pytest.mark.parametrize(
    ("rested", "leftovers", "found"),
    [(True, (), {b"rig/a", b"b"}), (True, ("rig",), {b"b"}), (False, (), set())],
)
def test_unsaved_content_is_a_persons_unless_an_agent_or_rig_may_have_written_it(
    rested: bool, leftovers: tuple[str, ...], found: set[bytes]
) -> None:
    wanted = plan(b"rig/a", b"b", b"c", unsaved=(b"rig/a", b"b"))
    assert conflicts(a_state(), wanted, leftovers=leftovers, agents_rested=rested).keys() == found


def test_an_edit_of_one_file_of_a_database_is_an_edit_of_all() -> None:
    """Some of them alone would be malformed."""
    wanted = plan(b"a.db", b"a.db-wal", b"b.db", databases=(b"a.db",))
    assert conflicts(edited("a.db-wal"), wanted) == {b"a.db": "", b"a.db-wal": DIGEST}
