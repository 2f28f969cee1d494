"""What a configuration file says to pipelines (Architect's `-c`).

The blocks that mean something here are read strictly. The others are Architect's own business and
are passed over, with one warning that names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.nodes import Node
from hankweave_server.hank.pipelines import yaml_text
from hankweave_server.hank.pipelines.agents import agents_of
from hankweave_server.hank.pipelines.fields import Fields, fields_of
from hankweave_server.hank.pipelines.model import (
    DEFAULT_EVERY_N_STEPS,
    AgentChoice,
    Checkpoints,
    PipelineInvalid,
    Repository,
)
from hankweave_server.hank.problems import Finding, Problem, did_you_mean

_BLOCKS = ("checkpoints", "agents", "llm")
_CHECKPOINTS = ("enabled", "every_n_steps", "repository")
_REPOSITORIES: tuple[Repository, ...] = ("shadow", "workspace")
_MOST_STEPS = 50


@dataclass(frozen=True, slots=True)
class CheckpointKeys:
    """A `checkpoints` block as far as it was written."""

    enabled: bool | None = None
    every_n_steps: int | None = None
    repository: Repository | None = None

    def over(self, other: CheckpointKeys) -> Checkpoints:
        """Gives what holds where this block wins, key by key."""
        enabled = other.enabled if self.enabled is None else self.enabled
        every = self.every_n_steps or other.every_n_steps or DEFAULT_EVERY_N_STEPS
        return Checkpoints(
            every_n_steps=every if enabled else None,
            repository=self.repository or other.repository,
        )


@dataclass(frozen=True, slots=True)
class Config:
    """What a configuration says to every pipeline."""

    checkpoints: CheckpointKeys = field(default_factory=CheckpointKeys)
    agents: Mapping[str, AgentChoice] = field(default_factory=dict)
    model: str | None = None
    warnings: tuple[Problem, ...] = ()


def read_config(path: Path) -> Config:
    """Reads a configuration; raises PipelineInvalid with all that is wrong in it."""
    file = yaml_text.read(path)
    findings = file.findings
    root = Fields(Node({}, ()), findings)
    if file.value is not None:
        root = fields_of(file.value, (), "a mapping of blocks", findings) or root

    passed_over = _passed_over(root)
    config = Config(
        checkpoints=checkpoint_keys(root),
        agents=agents_of(root, HankFiles(path.absolute().parent.resolve())),
        model=_model(root, passed_over),
        warnings=_warnings(path, passed_over),
    )
    if findings:
        raise PipelineInvalid(path, file.told(findings))

    return config


def checkpoint_keys(owner: Fields) -> CheckpointKeys:
    """Reads a `checkpoints` block, of a pipeline or of a configuration."""
    block = owner.mapping("checkpoints")
    if block is None:
        return CheckpointKeys()

    block.refuse_others(_CHECKPOINTS)
    return CheckpointKeys(
        enabled=block.yes_or_no("enabled") if block.has("enabled") else None,
        every_n_steps=block.whole("every_n_steps", 1, _MOST_STEPS),
        repository=(
            block.one_of("repository", _REPOSITORIES, "shadow") if block.has("repository") else None
        ),
    )


def _passed_over(root: Fields) -> list[str]:
    others = []
    for key in root.raw.keys() - set(_BLOCKS):
        near = did_you_mean(key, _BLOCKS)
        if near is None:
            others.append(key)
        else:
            root.found(key, f"The block {key!r} is not known.", near)

    return others


def _model(root: Fields, passed_over: list[str]) -> str | None:
    block = root.mapping("llm")
    if block is None:
        return None

    passed_over += (f"llm.{key}" for key in block.raw if key != "model")
    return block.filled_text("model")


def _warnings(path: Path, passed_over: list[str]) -> tuple[Problem, ...]:
    if not passed_over:
        return ()

    names = ", ".join(sorted(passed_over))
    message = f"{path.name} says things that pipelines pass over: {names}."
    return (Problem("$", None, None, message),)


def unused(keys: CheckpointKeys) -> Finding | None:
    """Tells of a number of steps that nobody asked to count."""
    if keys.every_n_steps is None or keys.enabled is not None:
        return None

    path = ("checkpoints", "every_n_steps")
    return Finding(path, "It counts only with 'enabled: true'.", "Say 'enabled: true' beside it.")
