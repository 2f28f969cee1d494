"""From a pipeline's YAML to a Pipeline, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hankweave_protocol.hank import CodexAgentSpec
from hankweave_server.domain.conditions import parse
from hankweave_server.domain.variables import names_in
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.pipelines import leave, yaml_text
from hankweave_server.hank.pipelines.agents import Agents, agents_of
from hankweave_server.hank.pipelines.config import Config, checkpoint_keys, read_config, unused
from hankweave_server.hank.pipelines.fields import Fields, fields_of
from hankweave_server.hank.pipelines.model import (
    DEFAULT_MODEL,
    DEFAULT_VERSION,
    Pipeline,
    PipelineInvalid,
    PipelineStep,
    PlacedStep,
)
from hankweave_server.hank.pipelines.steps import steps_of
from hankweave_server.hank.pipelines.variables import Uses, faults_of_given, variables_of
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean

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
    """Loads and checks a pipeline; raises PipelineInvalid with all its problems at once.

    `variables` are those of `--var` and win over the file's; `agent` does the steps that ask for
    nobody in particular. A configuration that is wrong is told first, since it decides what the
    pipeline may say.
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
        permissions = leave.permissions_of(root)
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
            *leave.faults(placed, permissions),
            *self._without_model(placed),
        ]
        if root.findings:
            raise PipelineInvalid(file.path, file.told(root.findings))

        warned = [
            *uses.warnings,
            *leave.warnings(placed, permissions),
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
        """Tells of a `--var` that nothing reads: most often its name has a typing mistake."""
        used = {name for step in steps for name in _used_by(step)}
        written = self._root.raw.get("variables")
        expected = used | set(written if isinstance(written, dict) else ())
        for name in sorted(self._given.keys() - expected):
            message = f"--var {name}: nothing in the pipeline reads it."
            yield Finding(
                COMMAND_LINE, message, did_you_mean(name, expected | variables.keys() - {name})
            )

    def _without_model(self, steps: Sequence[PlacedStep]) -> Iterator[Finding]:
        """Finds the steps whose agent cannot work with the model that is usual here."""
        for step, path in steps:
            has_none = step.model is None and self._config.model is None
            if has_none and isinstance(step.agent, CodexAgentSpec):
                message = f"The step has no model, and {DEFAULT_MODEL!r} is none of Codex's."
                yield Finding(path, message, "Give it a 'model', or all steps one by 'llm' of -c.")


def _used_by(step: PipelineStep) -> frozenset[str]:
    names = names_in(step.prompt) | names_in(step.system_prompt or "")
    return names if step.condition is None else names | parse(step.condition).names


def _paths(root: Fields) -> Iterator[JsonPath]:
    """Gives where each step stands that is one."""
    steps = root.raw.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict):
            yield (*root.path, "steps", index)
