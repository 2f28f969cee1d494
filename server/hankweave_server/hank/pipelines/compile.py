"""Compilation of a pipeline to a hank, and the hank's files.

`plan_summary` describes the plan of `--dry-run`, and `unknown_step` a step that does not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from hankweave_protocol.hank import (
    AgentSpec,
    Check,
    Codon,
    Hank,
    HankMeta,
    Overrides,
    RetryConfig,
    ScriptedAgentSpec,
)
from hankweave_server.domain.conditions import parse
from hankweave_server.domain.variables import render
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.hank.pipelines.model import (
    CHECKPOINT_PREFIX,
    AgentChoice,
    OnFailure,
    Pipeline,
    PipelineStep,
    ScriptedAgentSettings,
)
from hankweave_server.hank.problems import HankProblem, did_you_mean

HANK_FILE = "hank.json"

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
    count = len(pipeline.steps)
    lines = [f"# {pipeline.name}", "", f"{count} step" if count == 1 else f"{count} steps"]
    if pipeline.variables:
        lines.append(f"Variables: {', '.join(sorted(pipeline.variables))}")

    if (every := pipeline.checkpoints.every_n_steps) is not None:
        often = "every step" if every == 1 else f"every {every} steps"
        lines.append(f"Checkpoints: {often} of an agent")

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

    hint = did_you_mean(name, names) or f"The steps are {', '.join(names)}."
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
            yield f"- answer: goes into {step.output_var}"

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
            times = "" if step.attempts is None else f", {step.attempts} attempts"
            parts.append(f"(on failure: retry{times})")
        case "continue":
            parts.append("(on failure: continue)")
        case "stop":
            pass

    return " ".join(parts)


def _check(check: Check) -> str:
    return f"{check.run} (may fail)" if check.allow_failure else check.run
