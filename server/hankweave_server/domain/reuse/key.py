"""Reuse: when a codon may take over the result of an earlier one instead of running.

A build system skips a step whose inputs have not changed. The same works for codons if one rule is
never broken: a result is taken over only if running the codon would have been given exactly the
same things. A wrong hit is a silent error that every later codon builds on; a miss costs one run.
So whatever is in doubt is in the key, or prevents reuse altogether.

The *reuse key* is a hash of `CodonInputs`, which are collected after the rig has run:

- `codon`: the whole codon of the hank, so that new fields are included by default: rig, checks,
  `env`, tracked files, output variable, limits, budget, fallback models, extensions. Only the names
  of prompt files, the description and `reuse` itself are left out.
- `codon_id`, `loop`: an agent can see both, and iterations of a loop are meant to differ.
- the prompts as the agent gets them, with all variables filled in. So a variable counts for the
  codons that mention it, and for no others.
- `agent`: its kind and settings, the version of its program, the content of the scripts that it
  plays or of the files that its command names, and the variables of the server's environment that
  it gets, each as a hash.
- `model` by the agent's own name for it; permissions; confinement, with the level that this machine
  enforces; the checkpoint tools that the agent is offered.
- `rig`: the content of the files that the rig copies. Its items are in `codon`.
- budgets of the loop, the hank and the command line, which could cut the codon short. What is left
  of them is not an input: taking over a result costs nothing.
- `conversation`: the content of the conversation that the codon continues, not its id.
- `tree`, `modes`: every tracked file as the agent finds it, with path, permissions, attributes and
  content; and `patterns`, those of tracked files, which decide what the result's checkpoint holds.
- `data`: the data hash, and names, sizes and times of all files of the data.
- `version`: of this list. A key of another version never matches.

The directory of the work tree is not in the key, so that a branch can take over what it has
inherited; a prompt that names it (`<%AGENT_ROOT%>`) differs in its text. The notice that follows a
rollback is not part of a codon either: it does not prevent reuse, but a result that was made under
one is not offered to others.

Some codons are never reused (`decision.obstacle`), because they depend on something that cannot be
compared, or do more than leave files. And some results are not offered (`decision.is_offered`): of
an agent that was influenced from outside while it worked, or cut short.

Values of `env` and of variables may be secret. They are hashed with everything else, and only the
hash of the whole decides. Besides, the journal keeps a short hash of each single input
(`digests_of`), to say later what differs; of the values of variables, it is too short to test
guesses at a secret.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

import msgspec

from hankweave_protocol.hank import Codon, Confinement, ContainerBudget, Permissions
from hankweave_protocol.ids import CodonId
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import LoopContext

KEY_VERSION = 1


class AgentIdentity(Value, kw_only=True, omit_defaults=False):
    """The agent of a codon, as far as its results depend on it."""

    spec: dict[str, object]
    """Its settings, as in a hank."""
    version: str | None
    """The version of its program; None if it is unknown."""
    files: dict[str, str]
    """SHA-256 of the scripts that it plays, or of the files that its command names, by name."""
    environment: dict[str, str]
    """SHA-256 of the values of the variables that it gets from the server's environment."""


class CodonInputs(Value, kw_only=True, omit_defaults=False):
    """Everything that the result of a codon can depend on."""

    codon_id: CodonId
    codon: Codon
    """As it runs, with its secrets."""
    loop: LoopContext | None
    prompt: str
    system_prompt: str | None
    extension: str | None
    """The prompt of `exhaustWithPrompt`."""
    model: str
    agent: AgentIdentity
    permissions: Permissions | None
    confinement: Confinement
    confinement_level: str
    tools: tuple[bool, bool, bool]
    """Whether checkpoint tools are enabled, may restore files, and are installed."""
    rig: dict[str, str]
    """SHA-256 of the files and folders that the rig copies, by their path in the hank."""
    ignores_rig_failures: bool
    idle_seconds: float | None
    hank_budget: ContainerBudget | None
    max_cost: float | None
    max_time: float | None
    conversation: str | None
    """A hash of the conversation that it continues; None if it begins one."""
    command_environment: dict[str, str]
    """SHA-256 of the values of the server's variables that its rig and checks get."""
    tree: str
    """The git tree of the tracked files."""
    modes: str
    """A hash of their permissions and attributes, and of empty folders."""
    patterns: tuple[str, ...]
    data: str | None
    """A hash of the data; None if there is none."""
    version: int = KEY_VERSION


def reuse_key(inputs: CodonInputs) -> str:
    """Return the hash of everything that the codon's result depends on."""
    return hashlib.sha256(_canonical(_keyed(inputs))).hexdigest()


def _keyed(inputs: CodonInputs) -> dict[str, object]:
    """Return the inputs without what they have in another form, or what is for people only."""
    codon = msgspec.structs.replace(
        inputs.codon,
        prompt_file=None,
        prompt_text=None,
        append_system_prompt_file=None,
        append_system_prompt_text=None,
        description=None,
        reuse=None,
    )
    keyed: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(inputs, codon=codon))
    return keyed


def _canonical(value: object) -> bytes:
    # Not `codec.encode`, which changes text that is not valid Unicode: two inputs could be equal.
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


# --- what differs ---------------------------------------------------------------------------------

_VARIABLES = ("codon.env.", "agent.environment.", "commandEnvironment.")
_DIGITS, _DIGITS_OF_VARIABLES = 12, 4

_DESCRIPTIONS: Mapping[str, str] = {
    "codonId": "its id",
    "loop": "its place in a loop",
    "prompt": "its prompt",
    "systemPrompt": "its system prompt",
    "extension": "its exhaustWithPrompt",
    "model": "its model",
    "agent.spec": "the settings of its agent",
    "agent.version": "the version of its agent",
    "agent.files": "the agent's file",
    "agent.environment": "the agent's variable",
    "permissions": "its permissions",
    "confinement": "its confinement",
    "confinementLevel": "the level of confinement of this machine",
    "tools": "the checkpoint tools that its agent is offered",
    "rig": "what its rig copies from",
    "ignoresRigFailures": "--ignore-rig-failures",
    "idleSeconds": "the idle timeout",
    "hankBudget": "the budget of the hank",
    "maxCost": "--max-cost",
    "maxTime": "--max-time",
    "conversation": "the conversation that it continues",
    "commandEnvironment": "the variable of its rig and checks",
    "tree": "tracked files",
    "modes": "permissions or attributes of tracked files, or empty folders",
    "patterns": "the patterns of tracked files",
    "data": "the data",
    "version": "the version of Hankweave's comparison",
}


def digests_of(inputs: CodonInputs) -> dict[str, str]:
    """Return a short hash of each single input, by name and sorted by it."""
    found = {}
    for name, value in sorted(_leaves("", _keyed(inputs)), key=lambda leaf: leaf[0]):
        digits = _DIGITS_OF_VARIABLES if name.startswith(_VARIABLES) else _DIGITS
        found[name] = hashlib.sha256(_canonical(value)).hexdigest()[:digits]

    return found


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, below)
    elif value is not None:
        yield name, value


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Return the inputs that differ, in words; empty if the hashes are too short to differ."""
    names = (name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return tuple(dict.fromkeys(map(_described, sorted(names))))


def _described(name: str) -> str:
    if name.startswith("codon."):
        return f"its {name.removeprefix('codon.')} in the hank"

    for prefix, words in _DESCRIPTIONS.items():
        if name == prefix:
            return words

        if name.startswith(f"{prefix}."):
            rest = name.removeprefix(f"{prefix}.")
            return f"{words} {rest}"

    return name
