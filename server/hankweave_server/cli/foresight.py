"""What a hank would do, worked out without running or making anything: `hankweave validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal

from hankweave_protocol.hank import (
    Codon,
    Hank,
    IterationLimit,
    Loop,
    RetryConfig,
    RigCopy,
    SentinelEntry,
)
from hankweave_protocol.state import PlanEntry
from hankweave_server.agents.preflight import agent_named
from hankweave_server.agents.registry import Roster
from hankweave_server.cli.outlook import (
    BudgetOutlook,
    CodonOutlook,
    LoopOutlook,
    Outlook,
    ProblemTold,
    RequirementOutlook,
    TrackedFiles,
)
from hankweave_server.cli.shared import agent_checks
from hankweave_server.domain.budget.report import planned_budgets
from hankweave_server.domain.budget.warnings import warnings as budget_warnings
from hankweave_server.domain.plan import initial_plan, tracked_patterns
from hankweave_server.domain.prices import Prices
from hankweave_server.hank.advice import advice
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.load import LoadedHank, Problem
from hankweave_server.hank.requirements import requirements_of
from hankweave_server.sentinels.config import SentinelInvalid, load_config, reference_of
from hankweave_server.sentinels.templates.quickjs_process import QuickJs
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.parent_gitignore import rules_above
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex

FIRST_WORDS = 8
EVERYTHING = ("**",)


def of_problems(file: Path, problems: tuple[Problem, ...]) -> Outlook:
    told = (
        ProblemTold(
            path=each.path,
            line=each.line,
            column=each.column,
            message=each.message,
            suggestion=each.suggestion,
        )
        for each in problems
    )
    return Outlook(file=str(file), valid=False, problems=tuple(told))


def of_hank(
    file: Path,
    loaded: LoadedHank,
    environment: Mapping[str, str],
    prices: Prices,
    workspace: Path | None,
    data: Path | None,
    *,
    agent: str | None = None,
    model: str | None = None,
) -> Outlook:
    """Works out what a hank would do; looks at the folders, which must be there.

    `agent` and `model` are those of the command line, which win over the hank's.
    """
    hank, roster = loaded.hank, agent_checks.roster_of(loaded, agent, model)
    plan = initial_plan(hank)
    patterns = tracked_patterns(plan, plan[-1].codon_id)
    folders = [
        *([_tracked_in(workspace, "workspace", patterns)] if workspace else ()),
        *([_tracked_in(data, "data", patterns)] if data else ()),
    ]
    return Outlook(
        file=str(file),
        valid=True,
        name=None if hank.meta is None else hank.meta.name,
        hank_hash=loaded.hank_hash,
        plan=tuple(_codon(entry, loaded, roster) for entry in plan),
        loops=tuple(_loops(hank)),
        budgets=tuple(_budgets(hank)),
        requirements=tuple(
            RequirementOutlook(kind=each.kind, name=each.name, is_met=each.is_met)
            for each in requirements_of(hank, environment)
        ),
        agents=agent_checks.agents_of(loaded, agent, model),
        patterns=patterns,
        folders=tuple(folders),
        warnings=(*advice(loaded), *_of_sentinels(loaded), *_of_budgets(hank, prices)),
    )


def _codon(entry: PlanEntry, loaded: LoadedHank, roster: Roster) -> CodonOutlook:
    codon = entry.codon
    words = loaded.prompts[codon.id].text.split()
    more = " …" if len(words) > FIRST_WORDS else ""
    return CodonOutlook(
        codon_id=entry.codon_id,
        name=codon.name,
        loop_id=None if entry.loop_context is None else entry.loop_context.loop_id,
        agent=agent_named(roster.select(codon)),
        model=roster.model or codon.model,
        continuation_mode=codon.continuation_mode,
        prompt=" ".join(words[:FIRST_WORDS]) + more,
        prompt_words=len(words),
        rig=tuple(_rig(codon)),
        on_failure=_policy(codon),
        tracks=codon.patterns,
        sentinels=tuple(map(_sentinel, codon.sentinels)),
    )


def _rig(codon: Codon) -> Iterator[str]:
    for item in codon.rig_setup:
        if isinstance(item, RigCopy):
            yield f"copy {item.copy.source} to {item.copy.to}"
        else:
            yield f"run {item.command.run}"


def _policy(codon: Codon) -> str:
    if codon.on_failure != "retry":
        return codon.on_failure

    retry = codon.retry_config or RetryConfig()
    return f"retry, {retry.max_attempts} attempts, {retry.delay_ms / 1000:g} s apart at first"


def _sentinel(entry: SentinelEntry) -> str:
    config = entry.sentinel_config
    return config if isinstance(config, str) else str(config.get("id"))


def _loops(hank: Hank) -> Iterator[LoopOutlook]:
    for step in hank.hank:
        if isinstance(step, Loop):
            end = step.terminate_on
            limit = f"after {end.limit} iterations" if isinstance(end, IterationLimit) else None
            ends = limit or "when a context is full"
            yield LoopOutlook(loop_id=step.id, name=step.name, ends=ends)


def _of_sentinels(loaded: LoadedHank) -> Iterator[str]:
    """Load every sentinel as a run does: a codon runs without one that cannot be loaded."""
    files = HankFiles(loaded.directory)
    with closing(QuickJs()) as quickjs:
        for step in loaded.hank.hank:
            for codon in step.codons if isinstance(step, Loop) else (step,):
                for index, entry in enumerate(codon.sentinels):
                    yield from _of_sentinel(
                        codon, entry, reference_of(entry, index), files, quickjs
                    )


def _of_sentinel(
    codon: Codon, entry: SentinelEntry, name: str, files: HankFiles, quickjs: QuickJs
) -> Iterator[str]:
    try:
        found = load_config(entry, files, quickjs)
    except SentinelInvalid as invalid:
        needed = entry.settings is not None and entry.settings.fail_codon_if_not_loaded
        end = "the codon will fail" if needed else "the codon will run without it"
        for problem in invalid.problems:
            yield f"{codon.id}: sentinel {name}, {end}: {problem}"
    else:
        yield from (f"{codon.id}: sentinel {name}: {warning}" for warning in found.warnings)


def _of_budgets(hank: Hank, prices: Prices) -> Iterator[str]:
    return (f"{each.path}: {each.message}" for each in budget_warnings(hank, prices))


def _budgets(hank: Hank) -> Iterator[BudgetOutlook]:
    for row in planned_budgets(hank):
        if row.is_limited:
            yield BudgetOutlook(
                codon_id=row.codon_id,
                max_dollars=row.max_dollars,
                max_time_seconds=row.max_time_seconds,
                max_output_tokens=row.max_output_tokens,
                max_context_tokens=row.max_context_tokens,
                on_exceeded=row.on_exceeded,
            )


def _tracked_in(
    folder: Path, role: Literal["workspace", "data"], patterns: tuple[str, ...]
) -> TrackedFiles:
    """Counts as a checkpoint would: ignore rules, reserved names and all."""
    everything = _sizes(folder, EVERYTHING)
    wanted = _sizes(folder, patterns or EVERYTHING)
    return TrackedFiles(
        folder=str(folder),
        role=role,
        files=len(everything),
        tracked=len(wanted),
        bytes_tracked=sum(wanted),
    )


def _sizes(folder: Path, patterns: tuple[str, ...]) -> list[int]:
    if not folder.is_dir():
        return [folder.stat().st_size]

    with closing(Descent(folder, at_the_top=frozenset(AT_THE_TOP))) as descent:
        table = StatIndex()
        scan = WorkTreeScan(descent, table, above=rules_above(folder))
        scan.refresh(UnifiedFileResolver(patterns))
        statuses = (descent.status(path) for path in table.files)
        return [status.st_size for status in statuses if status is not None]
