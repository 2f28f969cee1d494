"""`hankweave validate`: check a hank, and show what it would do, without running anything.

The result is an `ValidationReport`, which is also the output of `--json`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import click
import msgspec
from rich.table import Table
from rich.text import Text

from hankweave_protocol.hank import (
    Codon,
    Hank,
    IterationLimit,
    Loop,
    RetryConfig,
    RigCopy,
    SentinelEntry,
)
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import PlanEntry
from hankweave_server import config
from hankweave_server.agents.preflight import AgentCheck, agent_named
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.cli.output.text import console, size_text
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.cli.run import run
from hankweave_server.cli.shared import hank_loading, run_settings
from hankweave_server.config import WEBHOOK_SECRET
from hankweave_server.domain.budget.report import planned_budgets
from hankweave_server.domain.budget.report import warnings as budget_warnings
from hankweave_server.domain.confinement import confinement_of
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.plan import initial_plan, tracked_patterns
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.advice import advice
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.load import HankInvalid, HankProblem, LoadedHank
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.hank.references import requirements_of
from hankweave_server.local.executions import nothing_at
from hankweave_server.plain_text import counted, printable
from hankweave_server.sentinels.preflight import SentinelCheck
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.parent_gitignore import rules_above
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex


class ValidationProblem(Value, kw_only=True):
    path: str
    line: int | None = None
    column: int | None = None
    message: str
    suggestion: str | None = None


class CodonOutlook(Value, kw_only=True):
    """One entry of the plan."""

    codon_id: str
    name: str
    loop_id: str | None = None
    agent: str
    model: str
    continuation_mode: str
    prompt: str
    """The first words of the prompt."""
    prompt_words: int
    rig: tuple[str, ...] = ()
    on_failure: str
    tracks: tuple[str, ...] = ()
    """The patterns that this codon adds to the tracked files."""
    sentinels: tuple[str, ...] = ()
    confinement: str
    """The profile of what its agent and commands can reach."""
    extra_read: tuple[str, ...] = ()
    extra_write: tuple[str, ...] = ()
    connect: tuple[int, ...] | None = None
    """The only TCP ports that they can connect to; null: all but the server's."""


class LoopOutlook(Value, kw_only=True):
    loop_id: str
    name: str
    ends: str


class BudgetOutlook(Value, kw_only=True):
    """The limits of a codon; null: unlimited."""

    codon_id: str
    max_dollars: float | None = None
    max_time_seconds: float | None = None
    max_output_tokens: int | None = None
    max_context_tokens: int | None = None
    on_exceeded: str


class RequirementOutlook(Value, kw_only=True):
    kind: str
    name: str
    is_met: bool


class TrackedFilesReport(Value, kw_only=True):
    """Counts of all files in a directory, and of those that the whole plan's patterns match."""

    folder: str
    role: Literal["workspace", "data"]
    """Agents read data through `read_only_data_source`; it is never tracked."""
    files: int
    tracked: int
    bytes_tracked: int


class ValidationReport(Value, kw_only=True, omit_defaults=False):
    """The result of `hankweave validate`, and its output with `--json`."""

    file: str
    valid: bool
    problems: tuple[ValidationProblem, ...] = ()
    name: str | None = None
    hank_hash: str | None = None
    plan: tuple[CodonOutlook, ...] = ()
    loops: tuple[LoopOutlook, ...] = ()
    budgets: tuple[BudgetOutlook, ...] = ()
    requirements: tuple[RequirementOutlook, ...] = ()
    agents: tuple[AgentCheck, ...] = ()
    """The agents that the codons need, as found on this machine."""
    sentinels: tuple[SentinelCheck, ...] = ()
    """The sentinels of the codons, and what keeps them from being loaded on this machine."""
    patterns: tuple[str, ...] = ()
    """The patterns of tracked files at the end of the plan."""
    folders: tuple[TrackedFilesReport, ...] = ()
    warnings: tuple[str, ...] = ()


FIRST_WORDS = 8
EVERYTHING = ("**",)


def of_problems(file: Path, problems: tuple[HankProblem, ...]) -> ValidationReport:
    listed = (
        ValidationProblem(
            path=each.path,
            line=each.line,
            column=each.column,
            message=each.message,
            suggestion=each.suggestion,
        )
        for each in problems
    )
    return ValidationReport(file=str(file), valid=False, problems=tuple(listed))


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
) -> ValidationReport:
    """Return what a hank would do; count the files of `workspace` and `data`, which must exist.

    `agent` and `model` come from the command line and override the hank's.
    """
    hank, selector = loaded.hank, hank_loading.agent_selector(loaded, agent, model)
    plan = initial_plan(hank)
    sentinels = hank_loading.sentinels_of(loaded, hank.codons, prices)
    patterns = tracked_patterns(plan, plan[-1].codon_id)
    folders = [
        *([_tracked_in(workspace, "workspace", patterns)] if workspace else ()),
        *([_tracked_in(data, "data", patterns)] if data else ()),
    ]
    return ValidationReport(
        file=str(file),
        valid=True,
        name=None if hank.meta is None else hank.meta.name,
        hank_hash=loaded.hank_hash,
        plan=tuple(_codon(entry, loaded, selector) for entry in plan),
        loops=tuple(_loops(hank)),
        budgets=tuple(_budgets(hank)),
        requirements=tuple(
            RequirementOutlook(kind=each.kind, name=each.name, is_met=each.is_met)
            for each in requirements_of(hank, environment)
        ),
        agents=hank_loading.agents_of(loaded, agent, model, prices),
        sentinels=sentinels,
        patterns=patterns,
        folders=tuple(folders),
        warnings=(*advice(loaded), *_of_sentinels(sentinels), *_of_budgets(hank, prices)),
    )


def _codon(entry: PlanEntry, loaded: LoadedHank, selector: AgentSelector) -> CodonOutlook:
    codon = entry.codon
    words = loaded.prompts[codon.id].text.split()
    more = " …" if len(words) > FIRST_WORDS else ""
    confinement = confinement_of(codon, loaded.hank.overrides)
    return CodonOutlook(
        codon_id=entry.codon_id,
        name=codon.name,
        loop_id=None if entry.loop_context is None else entry.loop_context.loop_id,
        agent=agent_named(selector.select(codon)),
        model=selector.model or codon.model,
        continuation_mode=codon.continuation_mode,
        prompt=" ".join(words[:FIRST_WORDS]) + more,
        prompt_words=len(words),
        rig=tuple(_rig(codon)),
        on_failure=_policy(codon),
        tracks=codon.patterns,
        sentinels=tuple(map(_sentinel, codon.sentinels)),
        confinement=confinement.profile,
        extra_read=confinement.extra_read,
        extra_write=confinement.extra_write,
        connect=confinement.connect,
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
    attempts = counted(retry.max_attempts, "attempt")
    return f"retry, {attempts}, first delay {retry.delay_ms / 1000:g} s"


def _sentinel(entry: SentinelEntry) -> str:
    config = entry.sentinel_config
    return config if isinstance(config, str) else str(config.get("id"))


def _loops(hank: Hank) -> Iterator[LoopOutlook]:
    for step in hank.hank:
        if isinstance(step, Loop):
            end = step.terminate_on
            limit = f"after {end.limit} iterations" if isinstance(end, IterationLimit) else None
            ends = limit or "when the context is full"
            yield LoopOutlook(loop_id=step.id, name=step.name, ends=ends)


def _of_sentinels(checks: Iterable[SentinelCheck]) -> Iterator[str]:
    for check in checks:
        yield from check.problem_lines()
        yield from (f"{check.codon}: sentinel {check.sentinel}: {each}" for each in check.warnings)


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
) -> TrackedFilesReport:
    """Count files as a checkpoint would, with ignore rules and reserved names."""
    everything = _sizes(folder, EVERYTHING)
    wanted = _sizes(folder, patterns or EVERYTHING)
    return TrackedFilesReport(
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


@click.command()
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Count the tracked files in it."
)
@click.option("--agent", type=click.Choice(sorted(BY_NAME)), help="Agent for all codons.")
@click.option("--model", "-m", help="Model for all codons; overrides the hank.")
@click.option(
    "--no-agent-check",
    is_flag=True,
    help="Report what this machine lacks, but do not fail.",
)
@click.option("--prices", type=click.Path(path_type=Path), help="File with your own model prices.")
@json_option
def validate(
    hank: Path | None,
    data: Path | None,
    workspace: Path | None,
    agent: str | None,
    model: str | None,
    no_agent_check: bool,
    prices: Path | None,
    as_json: bool,
) -> None:
    """Check HANK and show what it would do, without running it.

    HANK is a hank.json or its directory, and defaults to the hank.json of the current directory.
    Nothing is written, and the network is not used. All errors are printed at once, each with its
    line, JSON path and a suggestion; the exit code is then 2. For a valid hank, the output shows
    the plan, budgets, tracked files and requirements, and warnings, which do not make it invalid.
    The exit code is 78 if `hankweave run` would refuse to start on this machine: a variable or
    program of the hank's requirements is missing; a required agent is missing, outdated, not logged
    in or unable to run its model; or a required sentinel cannot be loaded. --no-agent-check allows
    checking a hank on a machine other than the one that will run it.

    \b
    hankweave validate hank.json
    hankweave validate hank.json data/ --json
    hankweave validate hank.json --agent codex --model gpt-5.4
    """
    file = hank_loading.in_folder(Path.cwd()) if hank is None else hank_loading.file_of(hank)
    if file is None:
        raise click.UsageError(
            "There is no hank.json in this directory. Name a HANK; `hankweave init my-hank` writes "
            "one."
        )

    _must_exist(data, "data")
    _must_exist(workspace, "workspace")
    try:
        loaded = hank_loading.read(file, model)
    except HankInvalid as invalid:
        if not as_json:
            raise

        print_json(of_problems(file, invalid.problems))
        sys.exit(ExitCode.USAGE)

    variables = config.unknown_variables(
        os.environ, run_settings.variables_of(run) | {WEBHOOK_SECRET}
    )
    known = load_prices(prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    found = of_hank(file, loaded, os.environ, known, workspace, data, agent=agent, model=model)
    found = msgspec.structs.replace(found, warnings=(*found.warnings, *variables))
    print_json(found) if as_json else _show(found)
    if no_agent_check:
        return

    requirements = requirements_of(loaded.hank, os.environ)
    try:
        hank_loading.refuse(requirements, found.agents, found.sentinels)
    except Stop as stop:
        if not as_json:
            raise

        sys.exit(stop.exit_code)


def _must_exist(path: Path | None, what: str) -> None:
    if path is not None and not path.exists():
        raise nothing_at(what, path)


def _show(found: ValidationReport) -> None:
    codons, loops = len(found.plan), len(found.loops)
    called = f" ({printable(found.name)})" if found.name else ""
    size = f"{counted(codons, 'codon')}, {counted(loops, 'loop')}"
    click.echo(f"{found.file}{called} is valid: {size}.")
    _section("Plan")
    _table(("codon", "agent", "model", "prompt", "on failure"), map(_row, found.plan))
    _section("Agents")
    _table(("agent", "model", "version", "key or login", "codons"), map(_agent_row, found.agents))
    _lines("Loops", (f"{each.loop_id}: ends {each.ends}" for each in found.loops))
    _lines("Rigs", (f"{each.codon_id}: {line}" for each in found.plan for line in each.rig))
    watched = (each for each in found.plan if each.sentinels)
    _lines("Sentinels", (f"{each.codon_id}: {', '.join(each.sentinels)}" for each in watched))
    _lines("Confinement", _confinements(found.plan))
    _show_budgets(found)
    _show_tracked(found)
    states = (f"{each.kind} {each.name}: {_met(each.is_met)}" for each in found.requirements)
    _lines("Requirements", states)
    _lines("Not checked", (note for each in found.agents for note in each.notes))
    _lines("Warnings", found.warnings)


def _row(codon: CodonOutlook) -> Sequence[str]:
    prompt = f"{codon.prompt} ({codon.prompt_words} words)"
    return codon.codon_id, codon.agent, codon.model, prompt, codon.on_failure


def _confinements(plan: Sequence[CodonOutlook]) -> Iterator[str]:
    """Yield a line for each kind of confinement, with the codons that have it."""
    codons: dict[str, list[str]] = {}
    for each in plan:
        codons.setdefault(_confinement(each), []).append(each.codon_id)

    for said, concerned in codons.items():
        yield f"{'all codons' if len(codons) == 1 else ', '.join(concerned)}: {said}"


def _confinement(codon: CodonOutlook) -> str:
    lists = (("reads", codon.extra_read), ("changes", codon.extra_write))
    parts = [f"also {verb} {', '.join(paths)}" for verb, paths in lists if paths]
    if codon.connect is not None:
        ports = ", ".join(map(str, codon.connect))
        parts.append(f"connects to ports {ports}" if ports else "connects to no port")

    return "; ".join([codon.confinement, *parts])


def _agent_row(agent: AgentCheck) -> Sequence[str]:
    is_plain = agent.agent.startswith(("command ", "scripted"))
    login = "-" if is_plain else ", ".join(agent.logged_in_by) or "none seen"
    model = "-" if is_plain else agent.model or "its own"
    version = agent.version or ("missing" if agent.path is None and agent.faults else "-")
    return agent.agent, model, version, login, ", ".join(agent.codons)


def _show_budgets(found: ValidationReport) -> None:
    if not found.budgets:
        return

    _section("Budgets")
    columns = ("codon", "at most", "seconds", "output tokens", "context tokens", "when exceeded")
    rows = (
        (
            each.codon_id,
            "-" if each.max_dollars is None else f"${each.max_dollars:.2f}",
            _amount(each.max_time_seconds),
            _amount(each.max_output_tokens),
            _amount(each.max_context_tokens),
            each.on_exceeded,
        )
        for each in found.budgets
    )
    _table(columns, rows)


def _show_tracked(found: ValidationReport) -> None:
    adding = (f"{each.codon_id}: {'  '.join(each.tracks)}" for each in found.plan if each.tracks)
    _lines("Tracked files, cumulative over the codons", adding)
    for each in found.folders:
        size = size_text(each.bytes_tracked)
        if each.role == "workspace":
            line = f"in {each.folder}: {each.tracked} of {counted(each.files, 'file')}, {size}"
        else:
            line = (
                f"{each.folder}: none, because data is not tracked; as a --workspace, "
                f"{each.tracked} of {counted(each.files, 'file')} would be, {size}"
            )

        click.echo(f"  {printable(line)}")


def _met(is_met: bool) -> str:
    return "there" if is_met else "missing"


def _amount(number: float | None) -> str:
    return "-" if number is None else f"{number:,g}"


def _lines(title: str, lines: Iterable[str]) -> None:
    shown = [f"  {printable(line)}" for line in lines]
    if shown:
        _section(title)
        click.echo("\n".join(shown))


def _section(title: str) -> None:
    click.echo()
    click.echo(click.style(title, bold=True))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")

    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))

    out = console()
    with out.capture() as captured:
        out.print(table, soft_wrap=False)

    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


COMMANDS = (validate,)
