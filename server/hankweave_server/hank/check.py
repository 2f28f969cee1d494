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
from hankweave_server.domain.conditions import ConditionError, parse
from hankweave_server.domain.exploration.attempts import fault_of_score
from hankweave_server.domain.model_names import spelling_of
from hankweave_server.domain.permission_patterns import MalformedPattern
from hankweave_server.domain.permissions import NEVER_ASK
from hankweave_server.hank import codon_checks, references
from hankweave_server.hank.agents import BY_NAME
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
    overrides = object_at(root, "overrides")
    whole = None if overrides is None else object_at(overrides, "budget")
    if whole is not None:
        yield from _of_dollars(whole)
        yield from _of_shares(whole, steps)

    for step in steps:
        for node in {id(each): each for each in (step, *codons_of(step))}.values():
            if (budget := object_at(node, "budget")) is not None:
                yield from _of_dollars(budget)
                if is_loop(node):
                    yield from _of_shares(budget, list(codons_of(node)))


def _of_dollars(budget: JsonNode) -> Iterator[Finding]:
    if budget.raw.get("maxDollars") == 0:
        yield Finding((*budget.path, "maxDollars"), "Must be greater than 0; found 0.")


def _of_shares(budget: JsonNode, members: list[JsonNode]) -> Iterator[Finding]:
    is_proportional = budget.raw.get("allocation") in ("proportional", "proportional-strict")
    shares = object_at(budget, "shares")
    if shares is None:
        if is_proportional and budget.raw.get("maxDollars") is None:
            yield Finding(
                (*budget.path, "allocation"),
                "A proportional allocation needs 'maxDollars'.",
                "Set 'maxDollars' or remove 'allocation'.",
            )

        return

    if budget.raw.get("allocation", "shared") == "shared":
        yield Finding(
            shares.path,
            "'shares' requires a proportional 'allocation'.",
            "Set 'allocation' to 'proportional' or 'proportional-strict'.",
        )

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
    common = None if overrides is None else object_at(overrides, "permissions")
    if common is not None:
        yield from of_patterns(common)

    for codon in (codon for step in steps for codon in codons_of(step)):
        own = object_at(codon, "permissions")
        if own is not None:
            yield from of_patterns(own)

        holding = own or common
        if holding is not None:
            yield from _of_who_asks(codon, holding)


def of_patterns(permissions: JsonNode) -> Iterator[Finding]:
    """Yield a finding for each permission pattern that is malformed."""
    for key in ("allow", "deny"):
        for text, path in texts(permissions, key):
            try:
                permission_patterns.parse(text)
            except MalformedPattern as fault:
                yield Finding(path, str(fault), fault.hint)


def _of_who_asks(codon: JsonNode, permissions: JsonNode) -> Iterator[Finding]:
    """Yield a finding if permissions refuse something, but the agent never asks for them."""
    agent = object_at(codon, "agent")
    kind = None if agent is None else agent.raw.get("type")
    refuses = permissions.raw.get("otherwise", "ask") != "allow" or permissions.raw.get("deny")
    if kind in _NEVER_ASK and refuses:
        yield Finding(
            (*codon.path, "agent"),
            f"An agent of type {kind!r} never asks for permission, so these permissions cannot be "
            "enforced.",
            "Use another agent, or set 'permissions': {'otherwise': 'allow'} for this codon.",
        )


PROMPTS = frozenset({"promptFile", "promptText"})


def without_prompt(codon: JsonNode) -> Finding:
    """Return the finding of a codon without a prompt."""
    message = "The codon has no prompt: add a promptFile or a promptText."
    return Finding((*codon.path, "promptFile"), message)


def of_prompt_file(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    """Check `promptFile`, which wins over `promptText`."""
    names = list(texts(codon, "promptFile"))
    if not names and codon.raw["promptFile"] in (None, []) and codon.raw.get("promptText") is None:
        yield without_prompt(codon)

    found = list(of_prompt_files(codon, "promptFile", ctx))
    yield from found
    if names and not found and _is_all_blank(ctx, [name for name, _ in names]):
        path = (*codon.path, "promptFile")
        yield Finding(path, "The prompt is empty apart from frontmatter and comments.")


def _is_all_blank(ctx: HankContext, names: list[str]) -> bool:
    return not any(ctx.files.prompt(name).text.strip() for name in names)


def of_prompt_text(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    """Check `promptText` if it is the prompt that the agent gets."""
    text = codon.raw["promptText"]
    if codon.raw.get("promptFile"):
        return

    if text is None and "promptFile" not in codon.raw:
        yield without_prompt(codon)
    elif isinstance(text, str) and not cleaned(text).strip():
        yield Finding((*codon.path, "promptText"), "The prompt is empty.")


def system_prompt(file: str, text: str) -> dict[str, Rule]:
    """Return the rules of a pair of fields that exclude each other."""

    def of_file(owner: JsonNode, ctx: HankContext) -> Iterator[Finding]:
        yield from of_prompt_files(owner, file, ctx)

    def of_text(owner: JsonNode, _: HankContext) -> Iterator[Finding]:
        if owner.raw.get(file) is not None and owner.raw[text] is not None:
            message = f"{file!r} and {text!r} cannot be used together."
            yield Finding((*owner.path, text), message, "Keep only one of them.")

    return {file: of_file, text: of_text}


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
    for node in codons if overrides is None or "model" not in overrides.raw else [overrides]:
        agent, model = object_at(node, "agent"), node.raw.get("model")
        kind = "claude" if agent is None else agent.raw.get("type")
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
    yield from _of_names(steps)
    yield from codon_checks.continuation_findings(root, steps, ctx.model_override)
    yield from budget_findings(root, steps)
    yield from permission_findings(root, steps)
    for step in steps:
        if is_loop(step):
            yield from by_rules(step, _OF_LOOP, ctx)

        for codon in codons_of(step):
            yield from by_rules(codon, _OF_CODON, ctx)
            if codon.raw.keys().isdisjoint(PROMPTS):
                yield without_prompt(codon)


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
    name = step.raw["id"]
    if not isinstance(name, str):
        return

    if len(name.encode(errors="replace")) > ID_BYTES:
        yield Finding((*step.path, "id"), f"An id can have at most {ID_BYTES} bytes.")

    if any(character < " " or character == "\x7f" for character in name if not character.isspace()):
        yield Finding((*step.path, "id"), "An id cannot contain control characters.")


def _not_blank(key: str) -> Rule:
    def rule(owner: JsonNode, _: HankContext) -> Iterator[Finding]:
        if is_blank(owner.raw[key]):
            yield Finding((*owner.path, key), "The value must not be empty.")

    return rule


# --- failure policy, rigs, files ----------------------------------------------------------------
def _of_retry(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    if codon.raw["retryConfig"] is not None and codon.raw.get("onFailure") != "retry":
        yield Finding(
            (*codon.path, "retryConfig"),
            "'retryConfig' has no effect without 'onFailure': 'retry'.",
            "Set 'onFailure': 'retry' or remove 'retryConfig'.",
        )


def _of_rig(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    for item in objects(codon, "rigSetup"):
        copy = object_at(item, "copy")
        if copy is not None:
            yield from faults(copy, "from", ctx.files.fault_of_rig, ctx.files.nearest)
            yield from faults(copy, "to", references.fault_of_target)

        yield from _of_command(item)


def _of_command(item: JsonNode) -> Iterator[Finding]:
    command = object_at(item, "command")
    if command is not None and (fault := _fault_of_shell(command.raw.get("run"))) is not None:
        yield Finding((*command.path, "run"), fault)


def _fault_of_shell(text: Any) -> str | None:
    if is_blank(text):
        return "The command is empty."

    if isinstance(text, str) and "\0" in text:
        return "The command contains a NUL character."

    return None


def _of_condition(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    text = codon.raw["condition"]
    if not isinstance(text, str):
        return

    try:
        parse(text)
    except ConditionError as fault:
        yield Finding((*codon.path, "condition"), str(fault), fault.suggestion)


def _of_checks(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    for check in objects(codon, "checks"):
        if (fault := _fault_of_shell(check.raw.get("run"))) is not None:
            yield Finding((*check.path, "run"), fault)

        failed = object_at(check, "onFailure")
        if failed is None:
            continue

        if (fault := _fault_of_shell(failed.raw.get("bisect"))) is not None:
            yield Finding((*failed.path, "bisect"), fault)

        if check.raw.get("allowFailure") is True:
            yield Finding(
                failed.path,
                "'onFailure' has no effect with 'allowFailure': true.",
                "Remove one of them.",
            )


def _of_outputs(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    for output in objects(codon, "outputFiles"):
        yield from faults(output, "copy", references.fault_of_relative)
        for item in objects(output, "beforeCopy"):
            yield from _of_command(item)
            command = object_at(item, "command")
            if command is not None and command.raw.get("workingDirectory") == "lastCopied":
                path = (*command.path, "workingDirectory")
                yield Finding(path, "A 'beforeCopy' command can only run in 'project'.")


def _of_agent(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    agent = object_at(codon, "agent")
    if agent is None:
        return

    yield from faults(agent, "script", ctx.files.fault_of_file, ctx.files.nearest)
    for index, (word, path) in enumerate(texts(agent, "command")):
        if "\0" in word or (index == 0 and not word.strip()):
            yield Finding(
                path,
                "The program's name is empty."
                if index == 0
                else "The argument contains a NUL character.",
            )


def _of_archives(step: JsonNode, _: HankContext) -> Iterator[Finding]:
    yield from faults(step, "archiveOnSuccess", references.fault_of_target)


def _patterns(key: str) -> Rule:
    def rule(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
        for text, path in texts(codon, key):
            fault = references.fault_of_pattern(text) or ctx.fault_of_pattern(text)
            if fault is not None:
                yield Finding(path, fault)

    return rule


def _of_env(codon: JsonNode, _: HankContext) -> Iterator[Finding]:
    env = object_at(codon, "env")
    for name, value in ({} if env is None else env.raw).items():
        path = (*codon.path, "env", name)
        if (fault := references.fault_of_variable(name)) is not None:
            yield Finding(
                path, fault, "Use letters, digits and '_', and do not begin with a digit."
            )
        elif isinstance(value, str) and "\0" in value:
            yield Finding(path, "The value contains a NUL character.")


def _of_confinement(owner: JsonNode, _: HankContext) -> Iterator[Finding]:
    confinement = object_at(owner, "confinement")
    if confinement is None:
        return

    profile = confinement.raw.get("profile", "workspace")
    idle = {"readonly": ("extraWrite",), "none": ("extraRead", "extraWrite", "connect")}
    for key in idle.get(profile, ()) if isinstance(profile, str) else ():
        if confinement.raw.get(key):
            message = f"{key!r} has no effect with the profile {profile!r}."
            yield Finding((*confinement.path, key), message, "Remove one of them.")

    for key in ("extraRead", "extraWrite"):
        for text, path in texts(confinement, key):
            fault = references.fault_of_outer_path(text)
            if fault is not None:
                yield Finding(path, *fault)


def _of_requirements(root: JsonNode, _: HankContext) -> Iterator[Finding]:
    requirements = object_at(root, "requirements")
    if requirements is not None:
        yield from faults(requirements, "env", references.fault_of_variable)
        yield from faults(requirements, "tools", references.fault_of_tool)


def _of_overrides(root: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    overrides = object_at(root, "overrides")
    if overrides is not None and is_blank(overrides.raw.get("model")):
        yield Finding((*overrides.path, "model"), "The value must not be empty.")

    if overrides is not None:
        yield from _of_confinement(overrides, ctx)


_OF_ROOT: dict[str, Rule] = {
    "requirements": _of_requirements,
    "overrides": _of_overrides,
    **system_prompt("globalSystemPromptFile", "globalSystemPromptText"),
}

_OF_LOOP: dict[str, Rule] = {"id": _of_id, "archiveOnSuccess": _of_archives}


def _of_attempts(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    attempts = object_at(codon, "attempts")
    score = None if attempts is None else attempts.raw.get("score")
    fault = fault_of_score(score) if isinstance(score, str) else None
    if attempts is not None and fault is not None:
        hint = "Put it into a script, and name that."
        yield Finding((*attempts.path, "score"), fault, hint)

    for variant in () if attempts is None else objects(attempts, "variants"):
        yield from of_prompt_files(variant, "promptFile", ctx)
        if {"promptFile", "promptText"} <= variant.raw.keys():
            yield Finding(variant.path, "promptText and promptFile exclude each other.")

        name = variant.raw.get("agent")
        if isinstance(name, str) and name not in BY_NAME:
            names = ", ".join(sorted(BY_NAME))
            message = f"There is no agent {name!r}; known agents: {names}."
            yield Finding((*variant.path, "agent"), message, did_you_mean(name, BY_NAME))


_OF_CODON: dict[str, Rule] = {
    "id": _of_id,
    "model": _not_blank("model"),
    "promptFile": of_prompt_file,
    "promptText": of_prompt_text,
    **system_prompt("appendSystemPromptFile", "appendSystemPromptText"),
    "rigSetup": _of_rig,
    "checkpointedFiles": _patterns("checkpointedFiles"),
    "trackedFiles": _patterns("trackedFiles"),
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
