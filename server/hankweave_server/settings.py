"""What the person who started the server asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = Path("~/.hankweave-executions")
"""Where executions lie unless `--execution` or HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR says else."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One `hankweave run`."""

    hank: Path
    data: Path | None
    execution: Path | None = None
    executions_root: Path = DEFAULT_ROOT
    port: int = 0
    """0 lets the system choose."""
    headless: bool = False
    """Ends when the plan ends, with the run's exit code."""
    autostart: bool = True
    copy: bool = False
    new: bool = False
    agent: str | None = None
    """Overrides who does every codon: `claude` or `scripted`."""
    no_token: bool = False
    json_output: bool = False
