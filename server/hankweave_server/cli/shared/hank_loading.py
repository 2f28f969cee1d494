"""Find and load the hank that a command line names, and check it against this machine.

`run` refuses to start a hank if this machine lacks something that the hank needs: a required
variable or program, an agent, or what a required sentinel needs. `validate` reports the same, and
ends with the same exit code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hankweave_protocol.hank import Codon, Hank
from hankweave_protocol.state import State
from hankweave_server.agents.preflight import AgentCheck, AgentFault, check_agents
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import probe
from hankweave_server.domain.confinement import confinement_of
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.execution_thread import next_codon
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.load import LoadedHank, load
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.hank.references import Requirement, requirements_of
from hankweave_server.ledger.moments import saved_state
from hankweave_server.paths import HANK_FILE, Layout
from hankweave_server.settings import RunSettings
from hankweave_server.worktree.patterns import UnifiedFileResolver, UnsupportedPattern

if TYPE_CHECKING:
    from hankweave_server.sentinels.preflight import SentinelCheck

_ORDINARY_PATTERN = re.compile(r"!?[\w.*/@+ -]*[\w*/]")
"""Patterns that are always valid, as most are; only others need a trial run of the resolver."""


def file_of(path: Path) -> Path:
    """Return the path of the hank.json; raise Stop if there is none."""
    file = path / HANK_FILE if path.is_dir() else path
    if not file.exists():
        raise Stop(
            f"There is no hank at {file}.",
            ExitCode.NO_INPUT,
            hint="Name a hank.json, or a directory that holds one; `hankweave init` writes one.",
        )

    return file


def in_folder(folder: Path) -> Path | None:
    """Return the hank.json of a directory, or None."""
    file = folder / HANK_FILE
    return file if file.is_file() else None


def read(path: Path, model_override: str | None = None) -> LoadedHank:
    """Load a hank; raise Stop if there is none, and HankInvalid with all of its problems."""
    return load(
        file_of(path), fault_of_pattern, model_override=model_override, models=_known_models
    )


def _known_models() -> Collection[str]:
    return load_prices(None, usual_place(os.environ.get("XDG_CONFIG_HOME"))).by_name


def fault_of_pattern(pattern: str) -> str | None:
    """Return why the resolver of the work tree cannot use a pattern, or None."""
    if _ORDINARY_PATTERN.fullmatch(pattern):
        return None

    try:
        UnifiedFileResolver([pattern])
    except UnsupportedPattern as problem:
        return f"{pattern!r} is not a valid pattern: {problem}."

    return None


_ABOUT_REQUIREMENTS = "The hank's 'requirements' name what it needs."
_ABOUT_AGENTS = (
    "`hankweave agents` shows what is installed; --agent NAME selects another agent for all codons."
)
_ABOUT_CHECKS = "--no-agent-check skips the check of agents and sentinels."


def agent_selector(hank: LoadedHank, agent: str | None, model: str | None) -> AgentSelector:
    """Return the agents of a hank for inspection; the selector cannot start them."""
    nowhere = Path("/nonexistent")
    return AgentSelector(
        chosen=agent,
        hank_directory=hank.directory,
        sessions=nowhere,
        homes=nowhere,
        asks_first=False,
        model=model,
    )


def agents_of(
    hank: LoadedHank, agent: str | None, model: str | None, prices: Prices
) -> tuple[AgentCheck, ...]:
    """Check the agents of all codons of a hank; `prices` lists the known models."""
    selector = agent_selector(hank, agent, model)
    return check_agents(hank.hank.codons, selector, hank.hank.overrides, prices.by_name)


def sentinels_of(
    hank: LoadedHank, codons: Iterable[Codon], prices: Prices
) -> tuple[SentinelCheck, ...]:
    """Check the sentinels of codons of a hank; `prices` lists the known models."""
    watched = [codon for codon in codons if codon.sentinels]
    if not watched:
        return ()

    # Imported late: templates and schemas take ten megabytes that a server without sentinels saves.
    from hankweave_server.sentinels.preflight import check_sentinels

    return check_sentinels(watched, hank.directory, os.environ, prices.by_name)


def require(
    hank: LoadedHank,
    layout: Layout,
    settings: RunSettings,
    prices: Prices,
    warn: Callable[[str], None],
) -> None:
    """Raise Stop with everything that the codons still to run need and this machine lacks.

    This runs before a new execution creates its directory, so a refusal leaves none behind. A
    sentinel that its codon can do without is passed to `warn`.
    """
    requirements = requirements_of(hank.hank, os.environ)
    if not settings.agent_check:
        refuse(requirements)
        return

    state = None if settings.new or settings.begin_at is not None else saved_state(layout)
    codons = codons_to_run(hank.hank, state)
    selector = agent_selector(hank, settings.agent, settings.model)
    agents = check_agents(codons, selector, hank.hank.overrides, prices.by_name)
    sentinels = sentinels_of(hank, codons, prices)
    refuse(requirements, agents, sentinels)
    for check in sentinels:
        for complaint in check.problem_lines():
            warn(complaint)


def require_confinement(hank: LoadedHank, settings: RunSettings) -> None:
    """Raise Stop if confinement is required, and a codon of the hank would run without it."""
    if not settings.require_confinement:
        return

    overrides, chosen = hank.hank.overrides, settings.confinement
    for codon in hank.hank.codons:
        wanted = confinement_of(
            codon, overrides, chosen=chosen, default=settings.default_confinement
        )
        if wanted.profile == "none":
            raise Stop(
                f"Codon {codon.id} opts out of confinement, but confinement is required.",
                ExitCode.CONFIGURATION,
                hint='Remove its "confinement": "none", or use --confinement workspace.',
            )

    found = probe()
    if found.level is Level.NONE:
        reasons = "".join(f"\n  {level}: {why}" for level, why in found.reasons.items())
        raise Stop(
            f"Agents cannot be confined on this machine, but confinement is required:{reasons}",
            ExitCode.CONFIGURATION,
            hint="Run on a kernel with Landlock (5.13), or install bubblewrap.",
        )


def refuse(
    requirements: Sequence[Requirement],
    agents: Sequence[AgentCheck] = (),
    sentinels: Sequence[SentinelCheck] = (),
) -> None:
    """Raise Stop with everything that keeps a hank from running here; return if nothing does."""
    missing = [each.sentence for each in requirements if not each.is_met]
    unready = list(problem_lines(agents))
    unloadable = [line for each in sentinels if each.is_required for line in each.problem_lines()]
    lines = [*missing, *unready, *unloadable]
    if not lines:
        return

    hints = (
        (_ABOUT_REQUIREMENTS, missing),
        (_ABOUT_AGENTS, unready),
        (_ABOUT_CHECKS, [*unready, *unloadable]),
    )
    raise Stop(
        "\n  ".join(("This hank cannot run here:", *lines)),
        ExitCode.CONFIGURATION,
        hint=" ".join(hint for hint, concerned in hints if concerned),
    )


def problem_lines(checks: Sequence[AgentCheck]) -> Iterator[str]:
    """Yield a line for each fault: its codons, the message and the hint."""
    codons: dict[AgentFault, list[str]] = {}
    for check in checks:
        for fault in check.faults:
            codons.setdefault(fault, []).extend(check.codons)

    for fault, concerned in codons.items():
        yield f"{_named(concerned)}: {fault.message} {fault.hint}"


def codons_to_run(hank: Hank, state: State | None) -> tuple[Codon, ...]:
    """Return the codons that are still to run.

    A loop with a codon still to run is included as a whole: it may begin another iteration.
    """
    if state is None or not state.execution_plan:
        return hank.codons

    plan, upcoming = state.execution_plan, next_codon(state)
    position = next((i for i, each in enumerate(plan) if each.codon_id == upcoming), len(plan))
    planned = {entry.codon.id for entry in plan}
    ahead = {entry.codon.id for entry in plan[position:]}
    found: list[Codon] = []
    for step in hank.hank:
        if any(codon.id in ahead or codon.id not in planned for codon in step.codons):
            found += step.codons

    return tuple(found)


def _named(codons: Sequence[str], most: int = 5) -> str:
    more = len(codons) - most
    shown = ", ".join(codons[:most])
    return f"{shown} and {more} more" if more > 0 else shown
