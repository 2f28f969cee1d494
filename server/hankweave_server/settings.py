"""The settings of one start of the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from hankweave_protocol.hank import ConfinementProfile
from hankweave_protocol.ids import CodonId

DEFAULT_ROOT = Path("~/.hankweave-executions")
"""The directory of executions without `--execution` or HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR."""

LOOPBACK = "127.0.0.1"

IDLE_SECONDS = 600
"""How long an agent may be silent by default.

Hankweave ends Claude Code after 180 s and other agents after 120 s. But an agent is silent while it
runs one long command, such as a test suite, and to end it then loses its work.
"""

SafePoint: TypeAlias = Literal["rig-setup", "before-tool", "tool", "turn"]
"""A rig is set up; a tool asks permission to change files; a tool changed files; a message ended
after files had changed.
"""

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["console", "json"]
WatchMode: TypeAlias = Literal["auto", "off"]
"""`auto`: scans of the work tree look only where something happened, if the kernel can tell."""

ALL_SAFE_POINTS: frozenset[SafePoint] = frozenset(get_args(SafePoint))


def safe_points_named(text: str) -> frozenset[SafePoint]:
    """Parse `all`, `none`, or names separated by commas; raise ValueError with a sentence."""
    names = frozenset(name.strip() for name in text.split(","))
    if names == {"all"}:
        return ALL_SAFE_POINTS

    if names == {"none"}:
        return frozenset()

    if unknown := sorted(names - ALL_SAFE_POINTS):
        known = ", ".join(get_args(SafePoint))
        raise ValueError(f"{unknown[0]!r} is not a safe point. Use all, none, or some of {known}.")

    return cast(frozenset[SafePoint], names)


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> float:
    """Parse a duration such as `90`, `30m`, `8h` or `2d` into seconds; raise ValueError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; use seconds, or a form like 30m, 8h or 2d")

    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One `hankweave run`."""

    hank: Path | None
    """None: the hank that the execution was last run with, if any."""
    data: Path | None
    execution: Path | None = None
    workspace: Path | None = None
    """A user's own project: the work tree is the directory itself."""
    state_folder: Path | None = None
    """Where the state of a project is kept; None: where it is, or where agents cannot reach it."""
    adopted_state: Path | None = None
    """A state directory that the project takes as its own."""
    executions_root: Path = DEFAULT_ROOT
    port: int = 0
    """0: the port of the execution's last server if it is free, or else any other."""
    host: str = LOOPBACK
    """The IP address to listen on."""
    public_url: str | None = None
    """The page's address in browsers, where that is not `host` and `port`."""
    without_tls: bool = False
    """Send tokens over a network without encryption."""
    headless: bool = False
    """End when the plan ends, with the run's exit code."""
    exit_on_complete: bool | None = None
    """End the server when its plan ends; None: only if `unattended` and without clients."""
    unattended: bool = False
    """Stdout is not a terminal, so without a client the server is not watched."""
    keep_running: bool = False
    """Go on without the terminal if that is closed."""
    autostart: bool = True
    begin_at: CodonId | None = None
    """Begin the plan again with this codon, on the files as they are."""
    until: CodonId | None = None
    """End the plan after this codon, although more follow."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values of variables of the hank, above those of the hank and of earlier starts."""
    plan_on_record: bool = False
    """Use the recorded plan and read no hank: none of it can run."""
    copy: bool = False
    new: bool = False
    force: bool = False
    """Continue with other data or another hank; with `new`, set aside what is in the way."""
    agent: str | None = None
    """The agent of every codon: a name of `hank.agents.BY_NAME`."""
    model: str | None = None
    """The model of every codon's agent."""
    agent_check: bool = True
    """Refuse to start if an agent is missing, too old or not logged in."""
    confinement: ConfinementProfile | None = None
    """The profile of every codon, whatever the hank says; None: the hank decides."""
    default_confinement: ConfinementProfile = "workspace"
    """The profile of codons for which the hank sets none."""
    require_confinement: bool = False
    """Refuse to start where codons would run unconfined."""
    no_token: bool = False
    new_tokens: bool = False
    """Make new tokens: those of earlier servers of the execution open nothing any more."""
    json_output: bool = False
    plain: bool = False
    """Print lines on a terminal too, instead of the live view."""
    safe_points: frozenset[SafePoint] = ALL_SAFE_POINTS
    """When checkpoints are taken automatically, besides at a codon's end."""
    max_cost: float | None = None
    """The most USD that the execution may cost, whatever its hank allows."""
    max_time: float | None = None
    """The most seconds that its codons may take together."""
    max_wait: float | None = None
    """The most seconds to wait for the end of one limit of a provider; None: any time."""
    of_features: Mapping[str, object] = field(default_factory=dict, repr=False)
    """What was chosen for each feature with options of its own, by the feature's name."""
    prices: Path | None = None
    """A price list laid over the packaged one; None: the user's usual one, if it exists."""
    output: Path | None = None
    """Where output files are copied; None: nowhere."""
    overwrite_output: bool = False
    """Replace existing files there; otherwise the copy gets another name."""
    keep_work_tree: bool = False
    """With `new` and `force`: begin the new execution with the files of the previous one."""
    yes: bool = False
    """Answer every question with yes."""
    data_is_implied: bool = False
    """The data was not named: an existing execution keeps its own."""
    idle_seconds: int | None = None
    """How long an agent may be silent in codons that set no limit; beats the hank's overrides."""
    default_idle_seconds: int = IDLE_SECONDS
    """The same if the hank's overrides set no limit either."""
    ignore_rig_failures: bool = False
    sentinel_persistence: bool | None = None
    """True if sentinels keep their history; None: as the hank defines."""
    tool_result_limit: int = 2500
    """The most characters of a tool's result in an event."""
    log_level: LogLevel = "info"
    """The lowest level in server.log."""
    log_format: LogFormat = "console"
    watch: WatchMode = "auto"
    reuse: bool | None = None
    """Whether codons take over earlier results, whatever the hank says; None: the hank decides."""
    default_reuse: bool = False
    """The same if the hank does not say."""
    data_hash_seconds: float = 5.0
    """How long hashing the data may take before only its path identifies it."""

    def on_loopback(self) -> RunSettings:
        """Return the settings of a server that a program starts: no other machine needs it.

        A host and an address that the user has set are those of the server that stays.
        """
        return replace(self, host=LOOPBACK, public_url=None)
