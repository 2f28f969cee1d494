"""Loading of a pipeline's YAML, and its compilation to a hank.

A configuration file (Architect's `-c`) can set defaults for pipelines. Its blocks that apply here
are read strictly. All others are Architect's own and are skipped, with one warning that names them.

Loading returns a Pipeline or raises all of its problems. Compiling writes the hank's files.
`plan_summary` describes the plan of `--dry-run`, and `unknown_step` a step that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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
from hankweave_server.features.architect.yaml import shapes, yaml_text
from hankweave_server.features.architect.yaml.agents import Agents, agents_of, not_asking
from hankweave_server.features.architect.yaml.model import (
    CHECKPOINT_PREFIX,
    DEFAULT_EVERY_N_STEPS,
    DEFAULT_MODEL,
    DEFAULT_VERSION,
    CheckpointSettings,
    Pipeline,
    PipelineStep,
    PlacedStep,
)
from hankweave_server.features.architect.yaml.shapes import (
    CheckpointKeys,
    ConfigKeys,
    OnFailure,
    PipelineKeys,
    readable,
)
from hankweave_server.features.architect.yaml.steps import (
    Uses,
    faults_of_given,
    steps_of,
    variables_of,
)
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.hank import check
from hankweave_server.hank.problems import (
    COMMAND_LINE,
    Finding,
    HankInvalid,
    HankProblem,
    did_you_mean,
    invalid,
    problems,
)
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.hank.rules import JsonNode, object_at
from hankweave_server.paths import HANK_FILE
from hankweave_server.plain_text import counted


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a configuration for every pipeline."""

    checkpoints: CheckpointKeys = field(default_factory=CheckpointKeys)
    agents: Mapping[str, AgentSpec] = field(default_factory=dict)
    model: str | None = None
    scripts: Mapping[str, bytes] = field(default_factory=dict)
    warnings: tuple[HankProblem, ...] = ()


def read_config(path: Path) -> Config:
    """Read a configuration; raise HankInvalid with all its problems."""
    file, root = _read(path, ConfigKeys, "A configuration is a mapping of blocks.")
    keys = readable(root.raw, ConfigKeys)
    findings = list(shapes.findings(file, ConfigKeys))
    scripts: dict[str, bytes] = {}
    agents = agents_of(root, HankFiles(path.absolute().parent.resolve()), findings, scripts)
    ignored = [f"llm.{key}" for key in object_at(root, "llm").raw if key != "model"]
    for key in root.raw.keys() - set(ConfigKeys.__struct_fields__):
        near = did_you_mean(key, ConfigKeys.__struct_fields__)
        if near is None:
            ignored.append(key)
        else:
            findings.append(Finding((key,), f"The block {key!r} is not known.", near))

    if findings or file.findings:
        raise HankInvalid(path, problems(findings, file.places, file.findings))

    message = f"{path.name} has keys that pipelines ignore: {', '.join(sorted(ignored))}."
    warnings = (HankProblem("$", None, None, message),) if ignored else ()
    return Config(keys.checkpoints, agents, keys.llm.model, scripts, warnings)


def _read(path: Path, keys: type[msgspec.Struct], rule: str) -> tuple[yaml_text.YamlFile, JsonNode]:
    """Read a file that is a mapping of these keys; the rule is told if it is not."""
    file = yaml_text.read(path, shapes.kind_of(keys))
    if file.value is None and keys is ConfigKeys:
        file.value = {}

    if not isinstance(file.value, dict):
        raise invalid(path, rule, place=file.places.get(()))

    return file, JsonNode(file.value, ())


def _settings(own: CheckpointKeys, usual: CheckpointKeys) -> CheckpointSettings:
    """Return the settings with the first block taking precedence, key by key."""
    enabled = usual.enabled if own.enabled is None else own.enabled
    every = own.every_n_steps or usual.every_n_steps or DEFAULT_EVERY_N_STEPS
    return CheckpointSettings(every if enabled else None, own.repository or usual.repository)


def load_pipeline(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    config: Path | None = None,
    agent: str | None = None,
) -> Pipeline:
    """Load and check a pipeline; raise HankInvalid with all its problems at once.

    `variables` are those of `--var` and win over the file's; `agent` runs the steps that name no
    agent. An invalid configuration is reported first, since it decides what the pipeline may say.
    """
    settled = Config() if config is None else read_config(config)
    file, root = _read(path, PipelineKeys, "A pipeline is a mapping with 'steps'.")
    given = dict(variables or {})
    keys = readable(root.raw, PipelineKeys)
    findings = list(shapes.findings(file, PipelineKeys))
    scripts = dict(settled.scripts)
    own = agents_of(root, HankFiles(path.absolute().parent.resolve()), findings, scripts)
    agents = Agents({**settled.agents, **own}, agent)
    placed = steps_of(root, agents, findings)
    steps = tuple(step for step, _ in placed)
    known = variables_of(root, findings) | given
    uses = Uses(known, placed)
    findings += [
        *(() if agent is None else agents.fault_of(agent, COMMAND_LINE)),
        *check.of_patterns(object_at(root, "permissions")),
        *faults_of_given(given),
        *uses.faults,
        *not_asking(placed, keys.permissions, is_certain=True),
        *_without_model(placed, settled.model),
    ]
    if findings or file.findings:
        raise HankInvalid(path, problems(findings, file.places, file.findings))

    warned = [
        *uses.warnings,
        *not_asking(placed, keys.permissions, is_certain=False),
        *_unused(given, steps, keys.variables.keys()),
        *_without_effect(keys.checkpoints),
    ]
    return Pipeline(
        file=path,
        name=keys.name or path.stem,
        version=keys.version or DEFAULT_VERSION,
        description=keys.description,
        variables=known,
        steps=steps,
        checkpoints=_settings(keys.checkpoints, settled.checkpoints),
        model=settled.model or DEFAULT_MODEL,
        permissions=keys.permissions,
        scripts=scripts,
        warnings=(*settled.warnings, *problems(warned, file.places)),
    )


def _without_effect(keys: CheckpointKeys) -> Iterator[Finding]:
    """Yield a finding if a number of steps is set without enabling checkpoints."""
    if keys.every_n_steps is not None and keys.enabled is None:
        message = "It has no effect without 'enabled: true'."
        hint = "Add 'enabled: true' next to it."
        yield Finding(("checkpoints", "every_n_steps"), message, hint)


def _unused(
    given: Mapping[str, str], steps: Sequence[PipelineStep], written: Set[str]
) -> Iterator[Finding]:
    """Yield a finding for each `--var` that is not read, usually because of a typo."""
    expected = {name for step in steps for name in _used_by(step)} | written
    for name in sorted(given.keys() - expected):
        message = f"--var {name}: no step of the pipeline uses it."
        near = did_you_mean(name, expected | given.keys() - {name})
        yield Finding(COMMAND_LINE, message, near)


def _without_model(steps: Sequence[PlacedStep], model: str | None) -> Iterator[Finding]:
    """Yield the steps whose agent cannot use the default model."""
    for step, path in steps:
        if (step.keys.model or model) is None and isinstance(step.agent, CodexAgentSpec):
            message = f"The step has no model, and Codex cannot run the default, {DEFAULT_MODEL!r}."
            yield Finding(path, message, "Set its 'model', or 'llm.model' in the file of -c.")


def _used_by(step: PipelineStep) -> frozenset[str]:
    names = names_in(step.keys.prompt) | names_in(step.keys.system_prompt or "")
    return names if step.condition is None else names | parse(step.condition).names


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
    for step in pipeline.steps:
        if isinstance(step.agent, ScriptedAgentSpec) and step.agent.script is not None:
            file = folder / step.agent.script
            make_private_directory(file.parent)
            replace_durably(file, pipeline.scripts[step.agent.script])

    path = folder / HANK_FILE
    replace_durably(path, written(compile_pipeline(pipeline)))
    return path


def _codon(step: PipelineStep, model: str) -> Codon:
    attempts = step.keys.attempts
    return Codon(
        id=step.name,
        name=step.name,
        model=model,
        continuation_mode="fresh",
        prompt_text=step.keys.prompt,
        append_system_prompt_text=step.keys.system_prompt,
        env=dict(step.keys.env),
        on_failure=_POLICIES[step.keys.on_failure],
        retry_config=None if attempts is None else RetryConfig(max_attempts=attempts),
        agent=step.agent,
        timeout_seconds=step.keys.timeout,
        condition=step.condition,
        checks=step.checks,
        output_var=step.output_var,
        checkpoint_label=f"{CHECKPOINT_PREFIX}:{step.name}" if step.keys.checkpoint else None,
        permissions=step.keys.permissions,
    )


_POLICIES: Mapping[OnFailure, Literal["abort", "retry", "ignore"]] = {
    "stop": "abort",
    "retry": "retry",
    "continue": "ignore",
}


_PROMPT_SHOWN = 80


def plan_summary(pipeline: Pipeline) -> str:
    """Return the plan in Markdown, marking what is unknown until a step has run."""
    lines = [f"# {pipeline.name}", "", counted(len(pipeline.steps), "step")]
    if pipeline.variables:
        lines.append(f"Variables: {', '.join(sorted(pipeline.variables))}")

    if (every := pipeline.checkpoints.every_n_steps) is not None:
        often = "every agent step" if every == 1 else f"every {every} agent steps"
        lines.append(f"Checkpoints: {often}")

    known = dict(pipeline.variables)
    pending: dict[str, list[str]] = {}
    for number, step in enumerate(pipeline.steps, start=1):
        outcome = _outcome(step, known, pending)
        lines += ["", f"{number}. {_headline(pipeline, step)}"]
        settled = {name: value for name, value in known.items() if name not in pending}
        lines += (f"   - {detail}" for detail in _details(step, outcome, settled))
        if step.output_var is not None and outcome != _SKIPPED:
            pending.setdefault(step.output_var, []).append(step.name)

    return "\n".join(lines) + "\n"


_RUNS = "would run"
_SKIPPED = "would be skipped"


def _outcome(
    step: PipelineStep, known: Mapping[str, str], pending: Mapping[str, Sequence[str]]
) -> str:
    """Say whether a step would run; `pending` has the steps whose answers a variable may hold."""
    if step.condition is None:
        return _RUNS

    condition = parse(step.condition)
    steps = {each for name in condition.names & pending.keys() for each in pending[name]}
    if steps:
        return f"unknown until {' and '.join(f'`{name}`' for name in sorted(steps))} has run"

    return _RUNS if condition.holds(known) else _SKIPPED


def _details(step: PipelineStep, outcome: str, settled: Mapping[str, str]) -> Iterator[str]:
    if step.condition is not None:
        yield outcome

    yield from (f"check: {_check(check)}" for check in step.checks)
    if step.keys.timeout is not None:
        yield f"timeout: {step.keys.timeout:g} s"

    if step.output_var is not None:
        yield f"answer: stored in {step.output_var}"

    words = " ".join(render(step.keys.prompt, settled).split())
    yield f"prompt: {words if len(words) <= _PROMPT_SHOWN else f'{words[:_PROMPT_SHOWN]}…'}"


def unknown_step(pipeline: Pipeline, name: str) -> HankProblem | None:
    """Return the problem of starting at a step that does not exist; None if it exists."""
    names = [step.name for step in pipeline.steps]
    if name in names:
        return None

    hint = did_you_mean(name, names) or f"Its steps are {', '.join(names)}."
    return HankProblem(
        "$.steps", None, None, f"There is no step {name!r} in {pipeline.name!r}.", hint
    )


def _headline(pipeline: Pipeline, step: PipelineStep) -> str:
    parts = [f"{step.name} ({step.keys.agent}, {pipeline.model_of(step)})"]
    if step.condition is not None:
        parts.append(f"(if: {step.condition})")

    if step.keys.checkpoint:
        parts.append("[checkpoint]")

    if step.keys.on_failure != "stop":
        most = step.keys.attempts
        times = "" if most is None else f", {counted(most, 'attempt')}"
        parts.append(f"(on failure: {step.keys.on_failure}{times})")

    return " ".join(parts)


def _check(check: Check) -> str:
    return f"{check.run} (may fail)" if check.allow_failure else check.run
