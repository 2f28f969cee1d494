"""What agents have to ask leave for: the `permissions` of a pipeline, and of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from hankweave_protocol.hank import Permissions
from hankweave_server.domain.permissions import NEVER_ASK, can_ask, can_refuse
from hankweave_server.hank import check_permissions
from hankweave_server.hank.nodes import Node
from hankweave_server.hank.pipelines.fields import Fields
from hankweave_server.hank.pipelines.model import PlacedStep, ScriptedAgent
from hankweave_server.hank.pipelines.shaped import as_in_a_hank, keys_of, shape_of
from hankweave_server.hank.problems import Finding

_SHAPE = shape_of(Permissions)
_HINT = "Use another agent, or say 'permissions: {otherwise: allow}' for this step."


def permissions_of(owner: Fields) -> Permissions | None:
    """Reads a `permissions` block; None where there is none, or a finding tells of it."""
    block = owner.mapping("permissions")
    if block is None:
        return None

    block.refuse_others(tuple(keys_of(_SHAPE)))
    given = as_in_a_hank(block, _SHAPE)
    if given is None:
        return None

    block.findings += check_permissions.of_patterns(Node(given, block.path))
    return msgspec.convert(given, Permissions)


def faults(steps: Iterable[PlacedStep], common: Permissions | None) -> Iterator[Finding]:
    """Finds permissions that could refuse something to an agent that asks nobody for leave."""
    message = "The agent asks nobody for leave: its permissions would not hold."
    for step, path in steps:
        if isinstance(step.agent, NEVER_ASK) and _could_refuse(step.permissions or common):
            yield Finding((*path, "agent"), message, _HINT)


def warnings(steps: Iterable[PlacedStep], common: Permissions | None) -> Iterator[Finding]:
    """Finds permissions of agents of which nobody knows whether they ask: such a step fails."""
    message = "The agent is not known to ask for leave: with these permissions the step would fail."
    for step, path in steps:
        asks = step.agent is None or isinstance(step.agent, ScriptedAgent) or can_ask(step.agent)
        if not asks and _could_refuse(step.permissions or common):
            yield Finding((*path, "agent"), message, _HINT)


def _could_refuse(permissions: Permissions | None) -> bool:
    return permissions is not None and can_refuse(permissions)
