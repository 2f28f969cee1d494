"""What a client is shown of the whole: the `state.snapshot` (Hankweave's payload, and ours)."""

from __future__ import annotations

from itertools import islice

from hankweave_protocol.events import StateSnapshot
from hankweave_protocol.state import State
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.history import active_codon, end_state, next_codon, thread

NEWEST = 100
"""Ended codons in a snapshot: each codon's end journals one, and a plan may have ten thousand."""


def snapshot_of(state: State, *, uptime_ms: int, is_rolling_back: bool) -> StateSnapshot:
    ended = (entry.codon for entry in reversed(thread(state)) if end_state(entry.codon))
    return StateSnapshot(
        completed_codons=tuple(islice(ended, NEWEST)),
        file_tree=(),
        total_cost=total_cost(state),
        total_time=uptime_ms,
        is_rolling_back=is_rolling_back,
        current_codon=active_codon(state),
        current_run_id=state.current_run_id,
        next_codon_id=next_codon(state),
        last_event_seq=state.last_event_seq,
    )
