"""Refuse to start a hank whose agents cannot do their work here; show them in `validate`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from hankweave_protocol.hank import Codon, Hank, Loop
from hankweave_protocol.state import State
from hankweave_server.agents.preflight import AgentCheck, AgentFault, check_agents
from hankweave_server.agents.registry import Roster
from hankweave_server.domain.history import next_codon
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.load import LoadedHank
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings

HINT = (
    "`hankweave agents` shows what is installed; --agent NAME has another agent do every codon; "
    "--no-agent-check starts without this check."
)


def roster_of(hank: LoadedHank, agent: str | None, model: str | None) -> Roster:
    """Return the agents of a hank for looking at them; none can be started with it."""
    nowhere = Path("/nonexistent")
    return Roster(
        chosen=agent,
        hank_directory=hank.directory,
        sessions=nowhere,
        homes=nowhere,
        asks_first=False,
        model=model,
    )


def agents_of(hank: LoadedHank, agent: str | None, model: str | None) -> tuple[AgentCheck, ...]:
    """Check the agents of all codons of a hank."""
    roster = roster_of(hank, agent, model)
    return check_agents(_codons(hank.hank), roster, hank.hank.overrides)


def require_agents(hank: LoadedHank, layout: Layout, settings: RunSettings) -> None:
    """Check the agents of the codons that are still to run; raise Stop if one is not ready.

    Nothing has been made yet: a new execution leaves no directory behind.
    """
    if not settings.agent_check:
        return

    state = None if settings.new or settings.begin_at is not None else _state_of(layout)
    codons = codons_to_run(hank.hank, state)
    roster = roster_of(hank, settings.agent, settings.model)
    refuse(check_agents(codons, roster, hank.hank.overrides))


def refuse(checks: Sequence[AgentCheck]) -> None:
    """Raise Stop with everything that keeps agents from their work."""
    lines = list(complaints(checks))
    if lines:
        message = "\n  ".join(("Not every agent of this hank can do its work here:", *lines))
        raise Stop(message, ExitCode.CONFIGURATION, hint=HINT)


def complaints(checks: Sequence[AgentCheck]) -> Iterator[str]:
    """Say for each fault which codons it concerns, what it is, and what helps."""
    codons: dict[AgentFault, list[str]] = {}
    for check in checks:
        for fault in check.faults:
            codons.setdefault(fault, []).extend(check.codons)

    for fault, concerned in codons.items():
        yield f"{_named(concerned)}: {fault.message} {fault.hint}"


def codons_to_run(hank: Hank, state: State | None) -> tuple[Codon, ...]:
    """Return the codons that a start has before it: all that no run has done.

    A loop with a codon still to run comes as a whole, for it may begin another iteration.
    """
    if state is None or not state.execution_plan:
        return tuple(_codons(hank))

    plan, upcoming = state.execution_plan, next_codon(state)
    position = next((i for i, each in enumerate(plan) if each.codon_id == upcoming), len(plan))
    planned = {entry.codon.id for entry in plan}
    ahead = {entry.codon.id for entry in plan[position:]}
    found: list[Codon] = []
    for step in hank.hank:
        codons = step.codons if isinstance(step, Loop) else (step,)
        if any(codon.id in ahead or codon.id not in planned for codon in codons):
            found += codons

    return tuple(found)


def _codons(hank: Hank) -> Iterator[Codon]:
    for step in hank.hank:
        yield from step.codons if isinstance(step, Loop) else (step,)


def _state_of(layout: Layout) -> State | None:
    """Return the state as it was saved; without one, every codon counts as still to run."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(layout.state.read_bytes(), type=State)

    return None


def _named(codons: Sequence[str], most: int = 5) -> str:
    more = len(codons) - most
    shown = ", ".join(codons[:most])
    return f"{shown} and {more} more" if more > 0 else shown
