"""What a hank asks of the machine it runs on (Hankweave, requirements)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hankweave_protocol.hank import Hank

PREFIX = "HANKWEAVE_"
_REMOVED = "unset"
"""As the value of HANKWEAVE_X it takes X away from the agents."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must be there."""

    kind: str
    """`env` or `tool`."""
    name: str
    is_met: bool

    @property
    def sentence(self) -> str:
        if self.kind == "env":
            return f"The environment has no {self.name} (nor {PREFIX}{self.name})."

        return f"There is no program {self.name!r} on the PATH."


def requirements_of(
    hank: Hank,
    environment: Mapping[str, str],
    find_program: Callable[[str, str | None], str | None] = lambda name, path: shutil.which(
        name, path=path
    ),
) -> tuple[Requirement, ...]:
    """Lists what the hank requires, and whether it is there for the agents to use.

    HANKWEAVE_X satisfies X, because agents get it as X; a variable without a value does not.
    """
    if hank.requirements is None:
        return ()

    path = environment.get("PATH")
    variables = (
        Requirement("env", name, _has(environment, name)) for name in hank.requirements.env
    )
    tools = (
        Requirement("tool", name, find_program(name, path) is not None)
        for name in hank.requirements.tools
    )
    return (*variables, *tools)


def _has(environment: Mapping[str, str], name: str) -> bool:
    given = environment.get(PREFIX + name, environment.get(name, ""))
    return given not in ("", _REMOVED)
