"""A pipeline that is known to be sound, and what can be wrong with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from hankweave_protocol.hank import (
    AcpAgentSpec,
    Check,
    ClaudeAgentSpec,
    CodexAgentSpec,
    CommandAgentSpec,
    Permissions,
)
from hankweave_server.hank.problems import HankInvalid, JsonPath, Problem

CHECKPOINT_PREFIX = "architect:checkpoint"
"""What the label of a checkpoint that a pipeline asked for begins with (seed 003)."""

DEFAULT_MODEL = "sonnet"
DEFAULT_VERSION = "1.0.0"
DEFAULT_EVERY_N_STEPS = 5

Repository: TypeAlias = Literal["shadow", "workspace"]
OnFailure: TypeAlias = Literal["stop", "retry", "continue"]


class PipelineInvalid(HankInvalid):
    """A pipeline that cannot be run; `problems` names every fault, in the order of the file."""


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """The deterministic agent, with the script that was read for it."""

    script: bytes | None = None
    """JSON; None: the prompt is the script, or else it does the usual."""


AgentChoice: TypeAlias = (
    ClaudeAgentSpec | CodexAgentSpec | AcpAgentSpec | CommandAgentSpec | ScriptedAgent
)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The `checkpoints` block: automatic checkpoints, and where labelled ones are kept."""

    every_n_steps: int | None = None
    """1 to 50 steps of an agent; None: none but those the steps ask for."""
    repository: Repository | None = None
    """None: the project's own where it is in git, else the shadow repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One step, as its author wrote it."""

    name: str
    """No other step has it; the codon's id."""
    prompt: str
    """`{{name}}` still stands in it: answers of earlier steps come later."""
    agent_name: str = "build"
    agent: AgentChoice | None = None
    """None: whoever the command line names, else `claude`."""
    model: str | None = None
    checkpoint: bool = False
    condition: str | None = None
    """In the language of `domain/conditions.py`."""
    output_var: str | None = None
    checks: tuple[Check, ...] = ()
    timeout_seconds: float | None = None
    on_failure: OnFailure = "stop"
    attempts: int | None = None
    """1 to 10, the first included; only with `retry`."""
    system_prompt: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    permissions: Permissions | None = None
    """What its agent may do; None: what the pipeline says for all of them."""


PlacedStep: TypeAlias = tuple[PipelineStep, JsonPath]
"""A step and where it stands in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline that can be run."""

    file: Path
    name: str
    version: str = DEFAULT_VERSION
    description: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the file, with those of the command line over them."""
    steps: tuple[PipelineStep, ...]
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    model: str = DEFAULT_MODEL
    """Of the steps that name none."""
    permissions: Permissions | None = None
    """Of the steps that have none."""
    warnings: tuple[Problem, ...] = ()
    """What is allowed and yet probably not meant."""

    def model_of(self, step: PipelineStep) -> str:
        return step.model or self.model

    def scripts(self) -> Iterator[bytes]:
        """Gives each script that an agent of it plays."""
        for step in self.steps:
            if isinstance(step.agent, ScriptedAgent) and step.agent.script is not None:
                yield step.agent.script
