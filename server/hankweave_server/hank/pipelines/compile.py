"""A pipeline as the hank it means, and that hank on the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from hankweave_protocol.hank import (
    AgentSpec,
    Codon,
    Hank,
    HankMeta,
    Overrides,
    RetryConfig,
    ScriptedAgentSpec,
)
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.hank.pipelines.model import (
    CHECKPOINT_PREFIX,
    AgentChoice,
    OnFailure,
    Pipeline,
    PipelineStep,
    ScriptedAgent,
)

HANK_FILE = "hank.json"

_SCRIPTS = "scripts"


def compile_pipeline(pipeline: Pipeline) -> Hank:
    """Gives the hank; each step is a codon of its name that begins a session of its own."""
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
    """Gives the text of a hank.json that loads to this hank."""
    return msgspec.json.format(msgspec.json.encode(hank), indent=2) + b"\n"


def write_compiled(pipeline: Pipeline, folder: Path) -> Path:
    """Writes hank.json and the scripts of its agents into a private folder; gives the file's path.

    The hank comes last: after a crash there is the whole of the old one, or of the new.
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
        case ScriptedAgent(script=script):
            reference = None if script is None else _script_reference(script)
            return ScriptedAgentSpec(script=reference)
        case _:
            return agent


def _script_reference(script: bytes) -> str:
    """Names a script by what it says, so that agents of one script share it."""
    return f"{_SCRIPTS}/{hashlib.sha256(script).hexdigest()[:16]}.json"
