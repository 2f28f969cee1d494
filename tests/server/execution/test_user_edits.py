"""The edits of people that a restore would take away."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from hankweave_protocol.events import AssistantAction, EventData, Info
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.transitions import CodonStarted, Transition
from hankweave_server.execution.rollback import user_edits
from hankweave_server.execution.rollback.user_edits import conflicts
from support.checkpointing import a_restore_plan
from support.events import a_line, recorded
from support.histories import preparing
from support.timelines import a_state

DIGEST = "d" * 64
RUN = RunId("run")


class Journal:
    """A ledger that has these entries."""

    def __init__(self, *entries: EventData | Transition) -> None:
        events = (each if isinstance(each, EventData) else recorded(each) for each in entries)
        self._lines = [a_line(data, seq) for seq, data in enumerate(events, start=1)]
        self.last_seq = len(self._lines)

    async def lines(self, since: int, count: int) -> list[bytes]:
        return self._lines[since : since + count]


def begun(name: str) -> CodonStarted:
    return CodonStarted(run_id=RUN, codon=preparing(name))


def action(text: str) -> AssistantAction:
    return AssistantAction(codon_id=CodonId("one"), action="message", content=text)


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_the_events_since_a_start_come_in_order(
    monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Only those of the newest attempt count, and only those about calls."""
    monkeypatch.setattr(user_edits, "PAGE", page)
    journal = Journal(
        *(begun("one"), action("before"), begun("one"), action("first"), Info(message="no call")),
        *(begun("two"), action("second")),
    )
    found = await user_edits.events_since_start(cast(Any, journal), CodonId("one"))
    assert found == [action("first"), action("second")]


def plan(*changed: bytes, unsaved: tuple[bytes, ...] = (), databases: tuple[bytes, ...] = ()):
    return a_restore_plan(
        *changed, unsaved=frozenset(unsaved), databases=dict.fromkeys(databases, ())
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
