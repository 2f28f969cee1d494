"""The snapshot of a long plan: bounded in size, newest codons first, with complete totals."""

from __future__ import annotations

import msgspec

from hankweave_server.execution.runs import NEWEST, snapshot_of
from support.histories import completed
from support.timelines import a_state, ended


def test_a_snapshot_shows_the_newest_codons_and_counts_all() -> None:
    """At each codon's end a snapshot of bounded size is journaled, however long the plan is."""
    names = [f"codon-{number}" for number in range(NEWEST + 50)]
    codons = (msgspec.structs.replace(completed(name), final_cost=0.5) for name in names)
    state = a_state(ended("run", *codons))
    shown = snapshot_of(state, uptime_ms=0, is_rolling_back=False)
    assert [codon.codon_id for codon in shown.completed_codons] == names[: -NEWEST - 1 : -1]
    assert shown.total_cost == 0.5 * len(names)
