"""Expansion of abbreviated checkpoint ids that Hankweave recorded."""

from __future__ import annotations

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_protocol.state import EMPTY_STATE, FreshStart
from hankweave_server.domain.checkpoints.records import with_full_shas
from support.histories import a_run

ONE, TWO, LIKE_TWO = Sha("a" * 40), Sha("b" * 40), Sha("b" * 39 + "c")


def completed_of(first: Sha) -> Sha | None:
    run = msgspec.structs.replace(
        a_run(), starting_conditions=FreshStart(initial_checkpoint_sha=first)
    )
    state = with_full_shas(msgspec.structs.replace(EMPTY_STATE, runs=(run,)), [TWO, LIKE_TWO, ONE])
    start = state.runs[0].starting_conditions
    assert isinstance(start, FreshStart)
    return start.initial_checkpoint_sha


def test_a_unique_beginning_becomes_the_whole_id() -> None:
    """An abbreviation is the seven digits that `git commit` prints."""
    assert completed_of(Sha("aaaaaaa")) == ONE


def test_anything_else_stays_as_it_is() -> None:
    """Ambiguous, unknown, empty and full ids stay unchanged."""
    for text in ("bbbbbbb", "ccccccc", "", "a" * 40, "f" * 40):
        assert completed_of(Sha(text)) == text
