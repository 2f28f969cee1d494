"""A valid pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from hankweave_protocol.hank import AgentSpec, Check, Permissions
from hankweave_server.features.architect.yaml.shapes import Repository, StepKeys
from hankweave_server.hank.problems import HankProblem, JsonPath

CHECKPOINT_PREFIX = "architect:checkpoint"
"""The prefix of the labels of checkpoints that a pipeline requests."""

DEFAULT_MODEL = "sonnet"
DEFAULT_VERSION = "1.0.0"
DEFAULT_EVERY_N_STEPS = 5


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The `checkpoints` block: automatic checkpoints, and where labelled ones are kept."""

    every_n_steps: int | None = None
    """1 to 50 steps of an agent; None for only the checkpoints that steps request."""
    repository: Repository | None = None
    """None: the project's own if it is in git, else the shadow repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One step: its keys, and what they mean."""

    keys: StepKeys
    name: str
    agent: AgentSpec | None
    """None: the command line's agent, else `claude`."""
    condition: str | None
    output_var: str | None
    checks: tuple[Check, ...]


PlacedStep: TypeAlias = tuple[PipelineStep, JsonPath]
"""A step and its path in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline that can be run."""

    file: Path
    name: str
    version: str = DEFAULT_VERSION
    description: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of the file, overridden by those of the command line."""
    steps: tuple[PipelineStep, ...]
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    model: str = DEFAULT_MODEL
    """The model of steps that name none."""
    permissions: Permissions | None = None
    """The permissions of steps that have none."""
    scripts: Mapping[str, bytes] = field(default_factory=dict)
    """The scripts of scripted agents, by their paths in the compiled hank."""
    warnings: tuple[HankProblem, ...] = ()
    """Findings about parts that are valid but probably not intended."""

    def model_of(self, step: PipelineStep) -> str:
        return step.keys.model or self.model
