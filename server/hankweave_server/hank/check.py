"""Rules of a hank beyond its shape: names, exclusive fields, references, budgets, permissions.

The rules read the raw JSON and skip values of the wrong type, which `shape` already reports. So a
hank with a misspelt key is still checked for a missing prompt. Each rule belongs to a field and is
applied only if the field is present.

Budgets follow Hankweave's container budgets. Permissions need valid patterns and an agent that
asks for them. A prompt must not be empty, and each of its files must be readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hankweave_server.domain import permission_patterns
from hankweave_server.domain.attempts import fault_of_score
from hankweave_server.domain.conditions import ConditionError, parse
from hankweave_server.domain.model_names import spelling_of
from hankweave_server.domain.permission_patterns import MalformedPattern
from hankweave_server.domain.permissions import NEVER_ASK
from hankweave_server.hank import codon_checks, references
from hankweave_server.hank.agents import fault_of_name
from hankweave_server.hank.codon_checks import of_sentinels
from hankweave_server.hank.problems import Finding, did_you_mean, path_text
from hankweave_server.hank.prompts import cleaned
from hankweave_server.hank.rules import (
    HankContext,
    JsonNode,
    Rule,
    by_rules,
    codons_of,
    faults,
    has_object,
    is_blank,
    is_loop,
    object_at,
    objects,
    of_prompt_files,
    steps_of,
    texts,
)
from hankweave_server.hank.shape import is_finite


def budget_findings(root: JsonNode, steps: list[JsonNode]) -> Iterator[Finding]:
    whole = object_at(object_at(root, "overrides"), "budget")
    yield from _of_dollars(whole)
    yield from _of_shares(whole, steps)
    for step in steps:
        for node in {id(each): each for each in (step, *codons_of(step))}.values():
            budget = object_at(node, "budget")
            yield from _of_dollars(budget)
            if is_loop(node):
                yield from _of_shares(budget, list(codons_of(node)))


def _of_dollars(budget: JsonNode) -> Iterator[Finding]:
    if budget.raw.get("maxDollars") == 0:
        yield Finding((*budget.path, "maxDollars"), "Must be greater than 0; found 0.")


def _of_shares(budget: JsonNode, members: list[JsonNode]) -> Iterator[Finding]:
    is_proportional = budget.raw.get("allocation") in ("proportional", "proportional-strict")
    if not has_object(budget, "shares"):
        if is_proportional and budget.raw.get("maxDollars") is None:
            message = "A proportional allocation needs 'maxDollars'."
            hint = "Set 'maxDollars' or remove 'allocation'."
            yield Finding((*budget.path, "allocation"), message, hint)

        return

    shares = object_at(budget, "shares")

    if budget.raw.get("allocation", "shared") == "shared":
        hint = "Set 'allocation' to 'proportional' or 'proportional-strict'."
        yield Finding(shares.path, "'shares' requires a proportional 'allocation'.", hint)

    if budget.raw.get("maxDollars") is None:
        yield Finding(shares.path, "'shares' requires 'maxDollars'.")

    yield from _of_members(shares, members)
    numbers = (share for share in shares.raw.values() if isinstance(share, int | float))
    total = sum(share for share in numbers if is_finite(share) and share <= 1)
    if total > 1 + 1e-9:
        yield Finding(shares.path, f"The shares add up to {total:g}, which is more than 1.")


def _of_members(shares: JsonNode, members: list[JsonNode]) -> Iterator[Finding]:
    known = [str(member.raw.get("id")) for member in members]
    for name in shares.raw:
        path = (*shares.path, name)
        if name not in known:
            message = f"{name!r} has a share but does not exist here."
            yield Finding(path, message, did_you_mean(name, known))


_NEVER_ASK = frozenset(str(kind.__struct_config__.tag) for kind in NEVER_ASK)


def permission_findings(root: JsonNode, steps: list[JsonNode]) -> Iterator[Finding]:
    overrides = object_at(root, "overrides")
    yield from of_patterns(object_at(overrides, "permissions"))
    for codon in (codon for step in steps for codon in codons_of(step)):
        yield from of_patterns(object_at(codon, "permissions"))
        for owner in (codon, overrides):
            if has_object(owner, "permissions"):
                yield from _of_who_asks(codon, object_at(owner, "permissions"))
                break


def of_patterns(permissions: JsonNode) -> Iterator[Finding]:
    """Yield a finding for each permission pattern that is malformed."""
    for key in ("allow", "deny"):
        yield from faults(permissions, key, _fault_of_permission)


def _fault_of_permission(text: str) -> tuple[str, str | None] | None:
    try:
        permission_patterns.parse(text)
    except MalformedPattern as fault:
        return str(fault), fault.hint

    return None


def _of_who_asks(codon: JsonNode, permissions: JsonNode) -> Iterator[Finding]:
    """Yield a finding if permissions refuse something, but the agent never asks for them."""
    kind = object_at(codon, "agent").raw.get("type")
    refuses = permissions.raw.get("otherwise", "ask") != "allow" or permissions.raw.get("deny")
    if kind in _NEVER_ASK and refuses:
        message = f"An agent of type {kind!r} never asks for permission, so these permissions"
        hint = "Use another agent, or set 'permissions': {'otherwise': 'allow'} for this codon."
        yield Finding((*codon.path, "agent"), f"{message} cannot be enforced.", hint)


def _of_prompt(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    """Check the prompt that the agent gets: `promptFile` wins over `promptText`."""
    names = [name for name, _ in texts(codon, "promptFile")]
    text = codon.raw.get("promptText")
    if names:
        found = list(of_prompt_files(codon, "promptFile", ctx))
        yield from found
        if not found and not any(ctx.files.prompt(name).text.strip() for name in names):
            message = "The prompt is empty apart from frontmatter and comments."
            yield Finding((*codon.path, "promptFile"), message)
    elif codon.raw.get("promptFile") not in (None, []):
        return
    elif text is None:
        message = "The codon has no prompt: add a promptFile or a promptText."
        yield Finding((*codon.path, "promptFile"), message)
    elif isinstance(text, str) and not cleaned(text).strip():
        yield Finding((*codon.path, "promptText"), "The prompt is empty.")


def _of_system_prompt(owner: JsonNode, key: str, ctx: HankContext) -> Iterator[Finding]:
    """Check a file and a text that exclude each other."""
    file, text = f"{key}File", f"{key}Text"
    yield from of_prompt_files(owner, file, ctx)
    if owner.raw.get(file) is not None and owner.raw.get(text) is not None:
        message = f"{file!r} and {text!r} cannot be used together."
        yield Finding((*owner.path, text), message, "Keep only one of them.")


ID_BYTES = 200
"""Ids are parts of file names, which are limited to 255 bytes."""


def misspelt_models(raw: Any, listed: Collection[str]) -> Iterator[Finding]:
    """Yield the models of a hank that `listed` has under a similar name.

    Agents are checked when a hank is valid. For one that is not, this reports what the hank itself
    shows: a model that is not replaced, of an agent that needs one of its maker.
    """
    if not isinstance(raw, dict):
        return

    root = JsonNode(raw, ())
    overrides = object_at(root, "overrides")
    codons = [codon for step in steps_of(root) for codon in codons_of(step)]
    for node in [overrides] if "model" in overrides.raw else codons:
        kind, model = object_at(node, "agent").raw.get("type", "claude"), node.raw.get("model")
        seen = spelling_of(model, listed) if isinstance(model, str) else None
        if kind in ("claude", "codex") and seen is not None and seen.is_misspelt:
            message = f"There is no model {model!r} in the list of known models."
            yield Finding((*node.path, "model"), message, f"Did you mean {seen.nearest!r}?")


def findings(raw: Any, ctx: HankContext) -> Iterator[Finding]:
    """Yield every violation of a rule in a hank."""
    if not isinstance(raw, dict):
        return

    root = JsonNode(raw, ())
    steps = steps_of(root)
    yield from by_rules(root, _OF_ROOT, ctx)
    yield from _of_system_prompt(root, "globalSystemPrompt", ctx)
    yield from _of_names(steps)
    yield from codon_checks.continuation_findings(root, steps, ctx.model_override)
    yield from budget_findings(root, steps)
    yield from permission_findings(root, steps)
    for step in steps:
        if is_loop(step):
            yield from by_rules(step, _OF_LOOP, ctx)

        for codon in codons_of(step):
            yield from by_rules(codon, _OF_CODON, ctx)
            yield from _of_prompt(codon, ctx)
            yield from _of_system_prompt(codon, "appendSystemPrompt", ctx)


# --- names and order ----------------------------------------------------------------------------
def _of_names(steps: list[JsonNode]) -> Iterator[Finding]:
    """Check that ids are unique: codons and loops share one set of them."""
    first: dict[str, tuple[str, JsonNode]] = {}
    for what, node in _named(steps):
        name = node.raw.get("id")
        if not isinstance(name, str):
            continue

        known_as, known = first.setdefault(name, (what, node))
        if known is not node:
            other = "another" if known_as == what else "a"
            place = path_text(known.path)
            message = f"The id {name!r} is already used by {other} {known_as}: {place}."
            yield Finding((*node.path, "id"), message, "Use a different one for each.")


def _named(steps: list[JsonNode]) -> Iterator[tuple[str, JsonNode]]:
    for step in steps:
        if is_loop(step):
            yield "loop", step

        for codon in codons_of(step):
            yield "codon", codon


def _of_id(step: JsonNode, _: HankContext) -> Iterator[Finding]:
    yield from faults(step, "id", _fault_of_id)


def _fault_of_id(name: str) -> str | None:
    if len(name.encode(errors="replace")) > ID_BYTES:
        return f"An id can have at most {ID_BYTES} bytes."

    is_plain = all(each.isspace() or (each >= " " and each != "\x7f") for each in name)
    return None if is_plain else "An id cannot contain control characters."


def _not_blank(owner: JsonNode, key: str) -> Iterator[Finding]:
    if is_blank(owner.raw.get(key)):
        yield Finding((*owner.path, key), "The value must not be empty.")


# --- failure policy, rigs, files ----------------------------------------------------------------
def _of_retry(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    if codon.raw["retryConfig"] is not None and codon.raw.get("onFailure") != "retry":
        message = "'retryConfig' has no effect without 'onFailure': 'retry'."
        hint = "Set 'onFailure': 'retry' or remove 'retryConfig'."
        yield Finding((*codon.path, "retryConfig"), message, hint)


def _of_rig(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    for item in objects(codon, "rigSetup"):
        copy = object_at(item, "copy")
        yield from faults(copy, "from", ctx.files.fault_of_rig, ctx.files.nearest)
        yield from faults(copy, "to", references.fault_of_target)
        yield from _of_command(item)


def _of_command(item: JsonNode) -> Iterator[Finding]:
    yield from faults(object_at(item, "command"), "run", fault_of_shell)


def fault_of_shell(text: str) -> str | None:
    """Return why a text is not a shell command, or None if it is one."""
    if not text.strip():
        return "The command is empty."

    return "The command contains a NUL character." if "\0" in text else None


def _of_condition(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    yield from faults(codon, "condition", fault_of_condition)


def fault_of_condition(text: str) -> tuple[str, str | None] | None:
    """Return why a text is not a condition, and a hint; None if it is one."""
    try:
        parse(text)
    except ConditionError as error:
        where = f"The condition cannot be read at character {error.offset + 1}"
        return f"{where}: {error.message}", error.suggestion

    return None


def _of_checks(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    for check in objects(codon, "checks"):
        failed = object_at(check, "onFailure")
        yield from faults(check, "run", fault_of_shell)
        yield from faults(failed, "bisect", fault_of_shell)
        if failed.raw and check.raw.get("allowFailure") is True:
            message = "'onFailure' has no effect with 'allowFailure': true."
            yield Finding(failed.path, message, "Remove one of them.")


def _of_outputs(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    for output in objects(codon, "outputFiles"):
        yield from faults(output, "copy", references.fault_of_relative)
        for item in objects(output, "beforeCopy"):
            yield from _of_command(item)
            command = object_at(item, "command")
            if command.raw.get("workingDirectory") == "lastCopied":
                path = (*command.path, "workingDirectory")
                yield Finding(path, "A 'beforeCopy' command can only run in 'project'.")


def _of_agent(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    agent = object_at(codon, "agent")
    yield from faults(agent, "script", ctx.files.fault_of_file, ctx.files.nearest)
    yield from of_command_line(agent)


def of_command_line(agent: JsonNode) -> Iterator[Finding]:
    """Check the words of an agent's command."""
    for index, (word, path) in enumerate(texts(agent, "command")):
        if index == 0 and not word.strip():
            yield Finding(path, "The program's name is empty.")
        elif "\0" in word:
            yield Finding(path, "The argument contains a NUL character.")


def _of_archives(step: JsonNode, _: HankContext) -> Iterator[Finding]:
    yield from faults(step, "archiveOnSuccess", references.fault_of_target)


def _of_tracked(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    def fault_of(text: str) -> str | None:
        return references.fault_of_pattern(text) or ctx.fault_of_pattern(text)

    for key in ("checkpointedFiles", "trackedFiles"):
        yield from faults(codon, key, fault_of)


def _of_env(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    yield from of_variables(object_at(codon, "env"))


def of_variables(env: JsonNode) -> Iterator[Finding]:
    """Check environment variables."""
    hint = "Use letters, digits and '_', and do not begin with a digit."
    for name, value in env.raw.items():
        if (fault := references.fault_of_variable(name)) is not None:
            yield Finding((*env.path, name), fault, hint)
        elif isinstance(value, str) and "\0" in value:
            yield Finding((*env.path, name), "The value contains a NUL character.")


def _of_confinement(owner: JsonNode, _: HankContext) -> Iterator[Finding]:
    confinement = object_at(owner, "confinement")
    profile = confinement.raw.get("profile", "workspace")
    idle = {"readonly": ("extraWrite",), "none": ("extraRead", "extraWrite", "connect")}
    for key in idle.get(profile, ()) if isinstance(profile, str) else ():
        if confinement.raw.get(key):
            message = f"{key!r} has no effect with the profile {profile!r}."
            yield Finding((*confinement.path, key), message, "Remove one of them.")

    for key in ("extraRead", "extraWrite"):
        yield from faults(confinement, key, references.fault_of_outer_path)


def _of_requirements(root: JsonNode, _: HankContext) -> Iterator[Finding]:
    requirements = object_at(root, "requirements")
    yield from faults(requirements, "env", references.fault_of_variable)
    yield from faults(requirements, "tools", references.fault_of_tool)


def _of_overrides(root: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    overrides = object_at(root, "overrides")
    yield from _not_blank(overrides, "model")
    yield from _of_confinement(overrides, ctx)


_OF_ROOT: dict[str, Rule] = {
    "requirements": _of_requirements,
    "overrides": _of_overrides,
}

_OF_LOOP: dict[str, Rule] = {"id": _of_id, "archiveOnSuccess": _of_archives}


def _of_attempts(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    attempts = object_at(codon, "attempts")
    hint = "Put it into a script, and name that."
    yield from faults(attempts, "score", fault_of_score, lambda _score: hint)
    for variant in objects(attempts, "variants"):
        yield from of_prompt_files(variant, "promptFile", ctx)
        if {"promptFile", "promptText"} <= variant.raw.keys():
            yield Finding(variant.path, "promptText and promptFile exclude each other.")

        yield from faults(variant, "agent", fault_of_name)


_OF_CODON: dict[str, Rule] = {
    "id": _of_id,
    "model": lambda codon, _: _not_blank(codon, "model"),
    "rigSetup": _of_rig,
    "checkpointedFiles": _of_tracked,
    "trackedFiles": _of_tracked,
    "env": _of_env,
    "outputFiles": _of_outputs,
    "sentinels": of_sentinels,
    "archiveOnSuccess": _of_archives,
    "retryConfig": _of_retry,
    "agent": _of_agent,
    "condition": _of_condition,
    "checks": _of_checks,
    "confinement": _of_confinement,
    "attempts": _of_attempts,
}
