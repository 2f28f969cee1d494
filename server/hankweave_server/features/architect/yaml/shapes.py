"""The keys of a pipeline and of a configuration, as types.

A block that means the same in a hank has the hank's own type. Its keys have the names of that
type's attributes, without the unit: `timeout` is `timeoutSeconds` in hank.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, inspect, structs

from hankweave_protocol.hank import (
    AcpAgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    CommandAgentSpec,
    Permissions,
    Seconds,
)
from hankweave_server.features.architect.yaml.yaml_text import YamlFile
from hankweave_server.hank.problems import Finding
from hankweave_server.hank.rules import Raw, nearest
from hankweave_server.hank.shape import FILLED, ShapeCheck

Filled: TypeAlias = Annotated[str, Meta(pattern=FILLED)]
Repository: TypeAlias = Literal["shadow", "workspace"]
OnFailure: TypeAlias = Literal["stop", "retry", "continue"]

S = TypeVar("S", bound=msgspec.Struct)


class _Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a mapping; one without a value is a missing one."""


class CheckKeys(_Keys, frozen=True, kw_only=True):
    """A check of a step."""

    run: Filled
    timeout: Seconds | None = None
    allow_failure: bool = False


class StepKeys(_Keys, frozen=True, kw_only=True):
    """A step, as written by its author."""

    name: str | None = None
    """Unique among the steps; the codon's id."""
    agent: Filled = "build"
    prompt: str = ""
    """Still contains `{{name}}`: answers of earlier steps are filled in later."""
    model: Filled | None = None
    checkpoint: bool = False
    condition: str | bool | None = None
    """In the language of `domain/conditions.py`."""
    output_var: str | None = None
    checks: str | tuple[str | CheckKeys, ...] = ()
    timeout: Seconds | None = None
    on_failure: OnFailure = "stop"
    attempts: Annotated[int, Meta(ge=1, le=10)] | None = None
    """Including the first; only with `retry`."""
    system_prompt: Filled | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    permissions: Permissions | None = None
    """The permissions of its agent; None for those of the pipeline."""


class CheckpointKeys(_Keys, frozen=True, kw_only=True):
    """A `checkpoints` block."""

    enabled: bool | None = None
    every_n_steps: Annotated[int, Meta(ge=1, le=50)] | None = None
    repository: Repository | None = None


class ScriptedKeys(_Keys, frozen=True, kw_only=True, tag_field="type", tag="scripted"):
    """The deterministic agent."""

    script: Any = None
    """A script, a list of its steps, or the path of its file."""


AgentKeys: TypeAlias = (
    ScriptedKeys | CommandAgentSpec | ClaudeAgentSpec | CodexAgentSpec | AcpAgentSpec
)


class PipelineKeys(_Keys, frozen=True, kw_only=True):
    """A pipeline."""

    name: Filled | None = None
    version: Filled | None = None
    description: str | None = None
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    steps: tuple[StepKeys, ...] = ()
    checkpoints: CheckpointKeys = CheckpointKeys()
    agents: dict[str, AgentKeys] = msgspec.field(default_factory=dict)
    permissions: Permissions | None = None


class LlmKeys(msgspec.Struct, frozen=True):
    """The `llm` block of a configuration, whose other keys are Architect's own."""

    model: Filled | None = None


class ConfigKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, whose other blocks are Architect's own."""

    checkpoints: CheckpointKeys = CheckpointKeys()
    agents: dict[str, AgentKeys] = msgspec.field(default_factory=dict)
    llm: LlmKeys = LlmKeys()


_MEANT = {
    "vars": "variables",
    "stages": "steps",
    "tasks": "steps",
    "checkpoint": "checkpoints",
    "task": "prompt",
    "retries": "attempts",
    "if": "condition",
    "check": "checks",
}
"""Keys that authors of pipelines expect, and the ones that they mean."""


def _hint(name: str, _here: type, known: Iterable[str]) -> str:
    meant = _MEANT.get(name)
    return f"Did you mean {meant!r}?" if meant in set(known) else nearest(name, known)


_CHECK = ShapeCheck(_hint, "a mapping")


@cache
def kind_of(keys: type[msgspec.Struct]) -> inspect.StructType:
    """Return the type of a mapping, with the names of its keys in YAML."""
    kind = _in_yaml(inspect.type_info(keys))
    assert isinstance(kind, inspect.StructType)
    return kind


def _in_yaml(kind: inspect.Type) -> inspect.Type:
    match kind:
        case inspect.StructType():
            fields = (
                structs.replace(
                    each, encode_name=each.name.removesuffix("_seconds"), type=_in_yaml(each.type)
                )
                for each in kind.fields
            )
            return structs.replace(kind, fields=tuple(fields))
        case inspect.UnionType():
            return structs.replace(kind, types=tuple(map(_in_yaml, kind.types)))
        case inspect.VarTupleType():
            return structs.replace(kind, item_type=_in_yaml(kind.item_type))
        case inspect.DictType():
            return structs.replace(kind, value_type=_in_yaml(kind.value_type))
        case _:
            return kind


AGENT = _in_yaml(inspect.type_info(AgentKeys))


def findings(file: YamlFile, keys: type[msgspec.Struct]) -> Iterator[Finding]:
    """Yield every difference between a file and its keys."""
    for found in _CHECK.findings(file.value, kind_of(keys)):
        # A key that is missing has no place; what misses it has.
        is_missing = len(found.path) > 1 and found.path not in file.places
        yield replace(found, path=found.path[:-1]) if is_missing else found


def readable(raw: Raw, keys: type[S]) -> S:
    """Return the keys of a mapping; those whose values are invalid have their defaults."""
    return keys(**_fields(raw, kind_of(keys)))


def value_of(raw: Any, kind: inspect.Type) -> Any:
    """Return a value as its class, or None if it is invalid."""
    return _built(raw, kind) if _is_valid(raw, kind) else None


def _is_valid(raw: Any, kind: inspect.Type) -> bool:
    return not any(_CHECK.findings(raw, kind))


def _fields(raw: Raw, kind: inspect.StructType) -> dict[str, Any]:
    given = ((each, raw[each.encode_name]) for each in kind.fields if each.encode_name in raw)
    return {
        each.name: _built(value, each.type) for each, value in given if _is_valid(value, each.type)
    }


def _built(raw: Any, kind: inspect.Type) -> Any:
    """Return a valid value as its class; msgspec only knows the names of hank.json."""
    match kind:
        case inspect.StructType():
            return kind.cls(**_fields(raw, kind))
        case inspect.UnionType():
            return _built(raw, next(each for each in kind.types if _is_valid(raw, each)))
        case inspect.VarTupleType():
            return tuple(_built(each, kind.item_type) for each in raw)
        case inspect.DictType():
            return {name: _built(value, kind.value_type) for name, value in raw.items()}
        case inspect.FloatType():
            return float(raw)
        case _:
            return raw
