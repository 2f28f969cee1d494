"""States for display tests: a run with some codons, under a plan of others."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from hankweave_protocol.instants import from_text
from hankweave_protocol.state import EMPTY_STATE, CodonExecution, State
from support.histories import MOMENT, a_plan, a_run

NOW = from_text(MOMENT) + timedelta(seconds=90)
"""A minute and a half after the start."""


def state_of(*codons: CodonExecution, plan: tuple[str, ...]) -> State:
    run = a_run(codons=codons)
    return msgspec.structs.replace(
        EMPTY_STATE, runs=(run,), current_run_id=run.run_id, execution_plan=a_plan(*plan)
    )
