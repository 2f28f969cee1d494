"""What the person who started the server asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from hankweave_protocol.ids import CodonId

DEFAULT_ROOT = Path("~/.hankweave-executions")
"""Where executions lie unless `--execution` or HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR says else."""

LOOPBACK = "127.0.0.1"

SafePoint: TypeAlias = Literal["rig-setup", "before-tool", "tool", "turn"]
"""A rig is set up; a tool asks leave to change files; a tool changed files; a message ended after
files had changed (seed 004, "How checkpoints get written")."""

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["console", "json"]

ALL_SAFE_POINTS: frozenset[SafePoint] = frozenset(get_args(SafePoint))


def safe_points_named(text: str) -> frozenset[SafePoint]:
    """Reads `all`, `none`, or names with commas between; raises ValueError with a sentence."""
    names = frozenset(name.strip() for name in text.split(","))
    if names == {"all"}:
        return ALL_SAFE_POINTS

    if names == {"none"}:
        return frozenset()

    if unknown := sorted(names - ALL_SAFE_POINTS):
        known = ", ".join(get_args(SafePoint))
        raise ValueError(f"{unknown[0]!r} is no safe point: name some of {known}, or all, or none.")

    return cast(frozenset[SafePoint], names)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One `hankweave run`."""

    hank: Path | None
    """None: the hank that the execution was last run with, if any."""
    data: Path | None
    execution: Path | None = None
    workspace: Path | None = None
    """A person's own project: the work tree is the directory itself."""
    executions_root: Path = DEFAULT_ROOT
    port: int = 0
    """0 lets the system choose."""
    headless: bool = False
    """Ends when the plan ends, with the run's exit code."""
    exit_on_complete: bool | None = None
    """Whether the server ends with its plan; None: where nobody watches, see `unattended`."""
    unattended: bool = False
    """Stdout is no terminal, so that without a client nobody watches the server."""
    autostart: bool = True
    begin_at: CodonId | None = None
    """The plan begins again with this codon, on the files as they are."""
    plan_on_record: bool = False
    """Follows the plan as it stands and reads no hank: nothing of it can run."""
    copy: bool = False
    new: bool = False
    force: bool = False
    """Goes on with other data or another hank; with `new`, sets aside what is in the way."""
    agent: str | None = None
    """Overrides who does every codon: a name of `hanks.named_agents.BY_NAME`."""
    model: str | None = None
    """Overrides what every codon's agent is told to use."""
    agent_check: bool = True
    """Refuses to start where an agent is missing, too old or not logged in."""
    no_token: bool = False
    json_output: bool = False
    plain: bool = False
    """Prints lines on a terminal too, instead of the live view."""
    safe_points: frozenset[SafePoint] = ALL_SAFE_POINTS
    """When checkpoints are taken unasked, besides at a codon's end."""
    max_cost: float | None = None
    """USD that the execution may cost, whatever its hank allows."""
    max_time: float | None = None
    """Seconds that its codons may take together."""
    prices: Path | None = None
    """A price list of one's own, laid over the packaged one; None: the usual place, if it is."""
    output: Path | None = None
    """Where output files are copied; None: nowhere."""
    overwrite_output: bool = False
    """Replaces files that lie in the way there; else the copy gets another name."""
    keep_work_tree: bool = False
    """With `new` and `force`: the new execution begins with the files of the former one."""
    yes: bool = False
    """Takes every question for answered with yes."""
    data_is_implied: bool = False
    """Nobody named the data: an execution that is there keeps its own."""
    idle_seconds: int | None = None
    """How long an agent may be silent in codons that do not say so; beats the hank's overrides."""
    default_idle_seconds: int | None = None
    """The same where the hank's overrides do not say it either."""
    ignore_rig_failures: bool = False
    sentinel_persistence: bool | None = None
    """Whether sentinels keep what they remember; None: as the hank says."""
    tool_result_limit: int = 2500
    """Characters of a tool's result that an event carries."""
    log_level: LogLevel = "info"
    """What server.log has at least."""
    log_format: LogFormat = "console"
    data_hash_seconds: float = 5.0
    """How long looking at the data may take before it is known by its place alone."""
