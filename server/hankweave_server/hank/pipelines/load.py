"""Loading of a pipeline's YAML, and its compilation to a hank.

A configuration file (Architect's `-c`) can set defaults for pipelines. Its blocks that apply here
are read strictly. All others are Architect's own and are skipped, with one warning that names them.

Loading returns a Pipeline or raises all of its problems. Compiling writes the hank's files.
`plan_summary` describes the plan of `--dry-run`, and `unknown_step` a step that does not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from hankweave_protocol.hank import (
    AgentSpec,
    Check,
    CodexAgentSpec,
    Codon,
    Hank,
    HankMeta,
    Overrides,
    RetryConfig,
    ScriptedAgentSpec,
)
from hankweave_server.domain.conditions import parse
from hankweave_server.domain.variables import names_in, render
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.hank.pipelines import fields, yaml_text
from hankweave_server.hank.pipelines.agents import Agents, agents_of
from hankweave_server.hank.pipelines.fields import Fields, fields_of
from hankweave_server.hank.pipelines.model import (
    CHECKPOINT_PREFIX,
    DEFAULT_EVERY_N_STEPS,
    DEFAULT_MODEL,
    DEFAULT_VERSION,
    AgentChoice,
    CheckpointSettings,
    OnFailure,
    Pipeline,
    PipelineInvalid,
    PipelineStep,
    PlacedStep,
    Repository,
    ScriptedAgentSettings,
)
from hankweave_server.hank.pipelines.steps import Uses, faults_of_given, steps_of, variables_of
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, HankProblem, JsonPath, did_you_mean
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.hank.rules import JsonNode
from hankweave_server.paths import HANK_FILE
from hankweave_server.plain_text import counted

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
    message = f"{path.name} has keys that pipelines ignore: {names}."
    return (HankProblem("$", None, None, message),)


def unused(keys: CheckpointKeys) -> Finding | None:
    """Return a finding if a number of steps is set without enabling checkpoints."""
    if keys.every_n_steps is None or keys.enabled is not None:
        return None

    path = ("checkpoints", "every_n_steps")
    return Finding(
        path, "It has no effect without 'enabled: true'.", "Add 'enabled: true' next to it."
    )


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
            message = f"--var {name}: no step of the pipeline uses it."
            yield Finding(
                COMMAND_LINE, message, did_you_mean(name, expected | variables.keys() - {name})
            )

    def _without_model(self, steps: Sequence[PlacedStep]) -> Iterator[Finding]:
        """Yield the steps whose agent cannot use the default model."""
        for step, path in steps:
            has_none = step.model is None and self._config.model is None
            if has_none and isinstance(step.agent, CodexAgentSpec):
                message = (
                    f"The step has no model, and Codex cannot run the default, {DEFAULT_MODEL!r}."
                )
                yield Finding(path, message, "Set its 'model', or 'llm.model' in the file of -c.")


def _used_by(step: PipelineStep) -> frozenset[str]:
    names = names_in(step.prompt) | names_in(step.system_prompt or "")
    return names if step.condition is None else names | parse(step.condition).names


def _paths(root: Fields) -> Iterator[JsonPath]:
    """Yield the path of each item of `steps` that is a step."""
    steps = root.raw.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict):
            yield (*root.path, "steps", index)


_SCRIPTS = "scripts"


def compile_pipeline(pipeline: Pipeline) -> Hank:
    """Return the hank; each step is a codon of the same name with a session of its own."""
    checkpoints = pipeline.checkpoints
    overrides = Overrides(
        checkpoint_every_steps=checkpoints.every_n_steps,
        checkpoint_repository=checkpoints.repository or "shadow",
        permissions=pipeline.permissions,
    )
    return Hank(
        hank=tuple(_codon(step, pipeline.model_of(step)) for step in pipeline.steps),
        meta=HankMeta(
            name=pipeline.name, version=pipeline.version, description=pipeline.description
        ),
        overrides=None if overrides == Overrides() else overrides,
        variables=dict(pipeline.variables),
    )


def written(hank: Hank) -> bytes:
    """Return the text of a hank.json that loads to this hank."""
    return msgspec.json.format(msgspec.json.encode(hank), indent=2) + b"\n"


def write_compiled(pipeline: Pipeline, folder: Path) -> Path:
    """Write hank.json and the agents' scripts into a private folder; return the file's path.

    The hank is written last: after a crash, either the old one or the new one is complete.
    """
    make_private_directory(folder)
    for script in pipeline.scripts():
        file = folder / _script_reference(script)
        make_private_directory(file.parent)
        replace_durably(file, script)

    path = folder / HANK_FILE
    replace_durably(path, written(compile_pipeline(pipeline)))
    return path


def _codon(step: PipelineStep, model: str) -> Codon:
    return Codon(
        id=step.name,
        name=step.name,
        model=model,
        continuation_mode="fresh",
        prompt_text=step.prompt,
        append_system_prompt_text=step.system_prompt,
        env=dict(step.env),
        on_failure=_policy(step.on_failure),
        retry_config=None if step.attempts is None else RetryConfig(max_attempts=step.attempts),
        agent=None if step.agent is None else _spec(step.agent),
        timeout_seconds=step.timeout_seconds,
        condition=step.condition,
        checks=step.checks,
        output_var=step.output_var,
        checkpoint_label=f"{CHECKPOINT_PREFIX}:{step.name}" if step.checkpoint else None,
        permissions=step.permissions,
    )


def _policy(on_failure: OnFailure) -> Literal["abort", "retry", "ignore"]:
    match on_failure:
        case "stop":
            return "abort"
        case "retry":
            return "retry"
        case "continue":
            return "ignore"
        case _:
            assert_never(on_failure)


def _spec(agent: AgentChoice) -> AgentSpec:
    match agent:
        case ScriptedAgentSettings(script=script):
            reference = None if script is None else _script_reference(script)
            return ScriptedAgentSpec(script=reference)
        case _:
            return agent


def _script_reference(script: bytes) -> str:
    """Name a script by its content, so that agents with the same script share it."""
    return f"{_SCRIPTS}/{hashlib.sha256(script).hexdigest()[:16]}.json"


_PROMPT_SHOWN = 80


def plan_summary(pipeline: Pipeline) -> str:
    """Return the plan in Markdown, marking what is unknown until a step has run."""
    lines = [f"# {pipeline.name}", "", counted(len(pipeline.steps), "step")]
    if pipeline.variables:
        lines.append(f"Variables: {', '.join(sorted(pipeline.variables))}")

    if (every := pipeline.checkpoints.every_n_steps) is not None:
        often = "every agent step" if every == 1 else f"every {every} agent steps"
        lines.append(f"Checkpoints: {often}")

    outlook = _Outlook(pipeline)
    for number, step in enumerate(pipeline.steps, start=1):
        lines += ["", f"{number}. {_headline(pipeline, step)}"]
        lines += (f"   {detail}" for detail in outlook.details(step))

    return "\n".join(lines) + "\n"


def unknown_step(pipeline: Pipeline, name: str) -> HankProblem | None:
    """Return the problem of starting at a step that does not exist; None if it exists."""
    names = [step.name for step in pipeline.steps]
    if name in names:
        return None

    hint = did_you_mean(name, names) or f"Its steps are {', '.join(names)}."
    return HankProblem(
        "$.steps", None, None, f"There is no step {name!r} in {pipeline.name!r}.", hint
    )


class _Outlook:
    """A walk through the steps in order, tracking the variables as far as they are known."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._known = dict(pipeline.variables)
        self._pending: dict[str, list[str]] = {}
        """The steps, not run yet, whose answers a variable may hold."""

    def details(self, step: PipelineStep) -> Iterator[str]:
        fate = self._fate(step)
        if step.condition is not None:
            yield f"- {fate}"

        yield from (f"- check: {_check(check)}" for check in step.checks)
        if step.timeout_seconds is not None:
            yield f"- timeout: {step.timeout_seconds:g} s"

        if step.output_var is not None:
            yield f"- answer: stored in {step.output_var}"

        yield f"- prompt: {self._prompt(step)}"
        if step.output_var is not None and fate != _SKIPPED:
            self._pending.setdefault(step.output_var, []).append(step.name)

    def _fate(self, step: PipelineStep) -> str:
        if step.condition is None:
            return _RUNS

        condition = parse(step.condition)
        awaited = [name for name in condition.names if name in self._pending]
        if awaited:
            steps = {step for name in awaited for step in self._pending[name]}
            return f"unknown until {' and '.join(f'`{name}`' for name in sorted(steps))} has run"

        return _RUNS if condition.holds(self._known) else _SKIPPED

    def _prompt(self, step: PipelineStep) -> str:
        settled = {name: value for name, value in self._known.items() if name not in self._pending}
        words = " ".join(render(step.prompt, settled).split())
        return words if len(words) <= _PROMPT_SHOWN else f"{words[:_PROMPT_SHOWN]}…"


_RUNS = "would run"
_SKIPPED = "would be skipped"


def _headline(pipeline: Pipeline, step: PipelineStep) -> str:
    parts = [f"{step.name} ({step.agent_name}, {pipeline.model_of(step)})"]
    if step.condition is not None:
        parts.append(f"(if: {step.condition})")

    if step.checkpoint:
        parts.append("[checkpoint]")

    match step.on_failure:
        case "retry":
            times = "" if step.attempts is None else f", {counted(step.attempts, 'attempt')}"
            parts.append(f"(on failure: retry{times})")
        case "continue":
            parts.append("(on failure: continue)")
        case "stop":
            pass

    return " ".join(parts)


def _check(check: Check) -> str:
    return f"{check.run} (may fail)" if check.allow_failure else check.run
