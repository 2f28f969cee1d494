"""Loading of a pipeline's YAML: a Pipeline, or all of its problems.

A configuration file (Architect's `-c`) can set defaults for pipelines. Its blocks that apply here
are read strictly. All others are Architect's own and are skipped, with one warning that names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.hank import CodexAgentSpec
from hankweave_server.domain.conditions import parse
from hankweave_server.domain.variables import names_in
from hankweave_server.hank.pipelines import fields, yaml_text
from hankweave_server.hank.pipelines.agents import Agents, agents_of
from hankweave_server.hank.pipelines.fields import Fields, fields_of
from hankweave_server.hank.pipelines.model import (
    DEFAULT_EVERY_N_STEPS,
    DEFAULT_MODEL,
    DEFAULT_VERSION,
    AgentChoice,
    CheckpointSettings,
    Pipeline,
    PipelineInvalid,
    PipelineStep,
    PlacedStep,
    Repository,
)
from hankweave_server.hank.pipelines.steps import Uses, faults_of_given, steps_of, variables_of
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, HankProblem, JsonPath, did_you_mean
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.hank.rules import JsonNode

_BLOCKS = ("checkpoints", "agents", "llm")
_CHECKPOINTS = ("enabled", "every_n_steps", "repository")
_REPOSITORIES: tuple[Repository, ...] = ("shadow", "workspace")
_MOST_STEPS = 50


@dataclass(frozen=True, slots=True)
class CheckpointKeys:
    """The keys of a `checkpoints` block that were written."""

    enabled: bool | None = None
    every_n_steps: int | None = None
    repository: Repository | None = None

    def over(self, other: CheckpointKeys) -> CheckpointSettings:
        """Return the settings with this block taking precedence, key by key."""
        enabled = other.enabled if self.enabled is None else self.enabled
        every = self.every_n_steps or other.every_n_steps or DEFAULT_EVERY_N_STEPS
        return CheckpointSettings(
            every_n_steps=every if enabled else None,
            repository=self.repository or other.repository,
        )


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a configuration for every pipeline."""

    checkpoints: CheckpointKeys = field(default_factory=CheckpointKeys)
    agents: Mapping[str, AgentChoice] = field(default_factory=dict)
    model: str | None = None
    warnings: tuple[HankProblem, ...] = ()


def read_config(path: Path) -> Config:
    """Read a configuration; raise PipelineInvalid with all its problems."""
    file = yaml_text.read(path)
    findings = file.findings
    root = Fields(JsonNode({}, ()), findings)
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
    """Read the `checkpoints` block of a pipeline or a configuration."""
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


def _warnings(path: Path, passed_over: list[str]) -> tuple[HankProblem, ...]:
    if not passed_over:
        return ()

    names = ", ".join(sorted(passed_over))
    message = f"{path.name} says things that pipelines pass over: {names}."
    return (HankProblem("$", None, None, message),)


def unused(keys: CheckpointKeys) -> Finding | None:
    """Return a finding if a number of steps is set without enabling checkpoints."""
    if keys.every_n_steps is None or keys.enabled is not None:
        return None

    path = ("checkpoints", "every_n_steps")
    return Finding(path, "It counts only with 'enabled: true'.", "Say 'enabled: true' beside it.")


_KEYS = (
    "name",
    "version",
    "description",
    "variables",
    "steps",
    "checkpoints",
    "agents",
    "permissions",
)
_MEANT = {"vars": "variables", "stages": "steps", "tasks": "steps", "checkpoint": "checkpoints"}


def load_pipeline(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    config: Path | None = None,
    agent: str | None = None,
) -> Pipeline:
    """Load and check a pipeline; raise PipelineInvalid with all its problems at once.

    `variables` are those of `--var` and win over the file's; `agent` runs the steps that name no
    agent. An invalid configuration is reported first, since it decides what the pipeline may say.
    """
    settled = Config() if config is None else read_config(config)
    file = yaml_text.read(path)
    findings = file.findings
    root = fields_of(file.value, (), "a mapping with 'steps'", findings)
    if root is None:
        raise PipelineInvalid(path, file.told(findings))

    return _Reading(file, root, settled, dict(variables or {}), agent).pipeline()


class _Reading:
    def __init__(
        self,
        file: yaml_text.YamlFile,
        root: Fields,
        config: Config,
        given: dict[str, str],
        agent: str | None,
    ) -> None:
        self._file = file
        self._root = root
        self._config = config
        self._given = given
        self._agent = agent

    def pipeline(self) -> Pipeline:
        root, file = self._root, self._file
        root.refuse_others(_KEYS, _MEANT)
        permissions = fields.permissions_of(root)
        steps = steps_of(root, self._agents())
        variables = variables_of(root) | self._given
        checkpoints = checkpoint_keys(root)
        name = root.filled_text("name") or file.path.stem
        version = root.filled_text("version") or DEFAULT_VERSION
        description = root.text("description")
        placed = list(zip(steps, _paths(root), strict=True))
        uses = Uses(variables, placed)
        root.findings += [
            *faults_of_given(self._given),
            *uses.faults,
            *fields.faults(placed, permissions),
            *self._without_model(placed),
        ]
        if root.findings:
            raise PipelineInvalid(file.path, file.told(root.findings))

        warned = [
            *uses.warnings,
            *fields.warnings(placed, permissions),
            *self._unused(variables, steps),
        ]
        if (found := unused(checkpoints)) is not None:
            warned.append(found)

        return Pipeline(
            file=file.path,
            name=name,
            version=version,
            description=description,
            variables=variables,
            steps=steps,
            checkpoints=checkpoints.over(self._config.checkpoints),
            model=self._config.model or DEFAULT_MODEL,
            permissions=permissions,
            warnings=(*self._config.warnings, *file.told(warned)),
        )

    def _agents(self) -> Agents:
        directory = self._file.path.absolute().parent.resolve()
        own = agents_of(self._root, HankFiles(directory))
        agents = Agents({**self._config.agents, **own}, self._agent)
        if (fault := agents.fault_of_chosen()) is not None:
            self._root.findings.append(fault)

        return agents

    def _unused(
        self, variables: Mapping[str, str], steps: Sequence[PipelineStep]
    ) -> Iterator[Finding]:
        """Yield a finding for each `--var` that is not read, usually because of a typo."""
        used = {name for step in steps for name in _used_by(step)}
        written = self._root.raw.get("variables")
        expected = used | set(written if isinstance(written, dict) else ())
        for name in sorted(self._given.keys() - expected):
            message = f"--var {name}: nothing in the pipeline reads it."
            yield Finding(
                COMMAND_LINE, message, did_you_mean(name, expected | variables.keys() - {name})
            )

    def _without_model(self, steps: Sequence[PlacedStep]) -> Iterator[Finding]:
        """Yield the steps whose agent cannot use the default model."""
        for step, path in steps:
            has_none = step.model is None and self._config.model is None
            if has_none and isinstance(step.agent, CodexAgentSpec):
                message = f"The step has no model, and {DEFAULT_MODEL!r} is none of Codex's."
                yield Finding(path, message, "Give it a 'model', or all steps one by 'llm' of -c.")


def _used_by(step: PipelineStep) -> frozenset[str]:
    names = names_in(step.prompt) | names_in(step.system_prompt or "")
    return names if step.condition is None else names | parse(step.condition).names


def _paths(root: Fields) -> Iterator[JsonPath]:
    """Yield the path of each item of `steps` that is a step."""
    steps = root.raw.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict):
            yield (*root.path, "steps", index)
