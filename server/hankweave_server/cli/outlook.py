"""What `hankweave validate` tells, as its JSON has it."""

from __future__ import annotations

from typing import Literal

from hankweave_protocol.shapes import Value
from hankweave_server.agents.preflight import AgentCheck


class ProblemTold(Value, kw_only=True):
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
    """Its first words."""
    prompt_words: int
    rig: tuple[str, ...] = ()
    on_failure: str
    tracks: tuple[str, ...] = ()
    """The patterns that this codon adds."""
    sentinels: tuple[str, ...] = ()


class LoopOutlook(Value, kw_only=True):
    loop_id: str
    name: str
    ends: str


class BudgetOutlook(Value, kw_only=True):
    """What a codon may use at most; null is as much as there is."""

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


class TrackedFiles(Value, kw_only=True):
    """The files of a folder, and those that the patterns of the whole plan mean."""

    folder: str
    role: Literal["workspace", "data"]
    """Data is read through `read_only_data_source` and never tracked."""
    files: int
    tracked: int
    bytes_tracked: int


class Outlook(Value, kw_only=True, omit_defaults=False):
    """All that `hankweave validate` says."""

    file: str
    valid: bool
    problems: tuple[ProblemTold, ...] = ()
    name: str | None = None
    hank_hash: str | None = None
    plan: tuple[CodonOutlook, ...] = ()
    loops: tuple[LoopOutlook, ...] = ()
    budgets: tuple[BudgetOutlook, ...] = ()
    requirements: tuple[RequirementOutlook, ...] = ()
    agents: tuple[AgentCheck, ...] = ()
    """The agents that its codons need, as they are on this machine."""
    patterns: tuple[str, ...] = ()
    """What is tracked when the plan has ended."""
    folders: tuple[TrackedFiles, ...] = ()
    warnings: tuple[str, ...] = ()
