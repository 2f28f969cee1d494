"""Helpers of the rules: access to raw JSON, application of rules, hints for misplaced fields.

A rule belongs to a field and yields a finding for each violation. Values of a wrong type are
skipped, because `shape` reports them.

`hint` suggests where an unknown field belongs. A codon's key in the root of the file, or the
reverse, is the most common mistake (Hankweave has a hint for it too); names of old versions come
second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from msgspec import inspect

from hankweave_protocol import hank
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean
from hankweave_server.hank.prompts import HankFiles, PromptFault

Raw = dict[str, Any]


class JsonNode(NamedTuple):
    """An object of the file, and its path."""

    raw: Raw
    path: JsonPath


def steps_of(root: JsonNode) -> list[JsonNode]:
    """Return the codons and loops of a hank."""
    return list(objects(root, "hank"))


def codons_of(step: JsonNode) -> Iterator[JsonNode]:
    """Yield a codon itself, or the codons of a loop; nothing for any other value."""
    if is_loop(step):
        yield from filter(_is_codon, objects(step, "codons"))
    elif _is_codon(step):
        yield step


def is_loop(step: JsonNode) -> bool:
    """Return whether a step is a loop: by its type, or without one by its `codons`."""
    return bool(step.raw.get("type", "loop" if "codons" in step.raw else None) == "loop")


def _is_codon(step: JsonNode) -> bool:
    return bool(step.raw.get("type", "codon") == "codon")


def has_object(owner: JsonNode, key: str) -> bool:
    return isinstance(owner.raw.get(key), dict)


def object_at(owner: JsonNode, key: str) -> JsonNode:
    """Return an object of another one; an empty one if there is none."""
    return JsonNode(owner.raw[key] if has_object(owner, key) else {}, (*owner.path, key))


def objects(owner: JsonNode, key: str) -> Iterator[JsonNode]:
    value = owner.raw.get(key)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield JsonNode(item, (*owner.path, key, index))


def texts(owner: JsonNode, key: str) -> Iterator[tuple[str, JsonPath]]:
    """Yield the texts of a field that is one text or a list of them."""
    value = owner.raw.get(key)
    if isinstance(value, str):
        yield value, (*owner.path, key)

    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            yield item, (*owner.path, key, index)


def is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


FaultOf: TypeAlias = Callable[[str], str | None]

NEAR_THE_HANK = "Name a file inside the directory of hank.json."


@dataclass(frozen=True, slots=True)
class HankContext:
    """The context that rules need besides the JSON."""

    files: HankFiles
    fault_of_pattern: FaultOf
    """Returns why a pattern is unusable, or None; supplied by the work tree's resolver."""
    model_override: str | None = None
    """The model that the command line sets for every codon."""


Rule: TypeAlias = Callable[[JsonNode, HankContext], Iterator[Finding]]


def by_rules(node: JsonNode, rules: Mapping[str, Rule], ctx: HankContext) -> Iterator[Finding]:
    """Apply the rules of the fields that an object has."""
    for key in node.raw:
        if (rule := rules.get(key)) is not None:
            yield from rule(node, ctx)


def faults(
    owner: JsonNode,
    key: str,
    fault_of: Callable[[str], str | tuple[str, str | None] | None],
    nearest: FaultOf = lambda _text: None,
) -> Iterator[Finding]:
    """Check each text of a field, and suggest the nearest valid one.

    `fault_of` returns a message, which may have a hint of its own, or None.
    """
    for text, path in texts(owner, key):
        fault = fault_of(text)
        if isinstance(fault, str):
            yield Finding(path, fault, nearest(text))
        elif fault is not None:
            yield Finding(path, *fault)


def of_prompt_files(owner: JsonNode, key: str, ctx: HankContext) -> Iterator[Finding]:
    """Yield a finding for each prompt file of a field that is missing or unusable."""
    for reference, path in texts(owner, key):
        fault = ctx.files.fault_of_file(reference)
        if fault is not None:
            yield Finding(path, fault, ctx.files.nearest(reference) or NEAR_THE_HANK)
            continue

        try:
            ctx.files.prompt(reference)
        except PromptFault as problem:
            yield Finding(path, str(problem))


_PLACES: dict[type, str] = {
    hank.Hank: "the root of the file",
    hank.Codon: "a codon",
    hank.Loop: "a loop",
    hank.HankMeta: "'meta'",
    hank.Overrides: "'overrides'",
    hank.Confinement: "'confinement'",
    hank.Requirements: "'requirements'",
    hank.RetryConfig: "a codon's 'retryConfig'",
    hank.CodonBudget: "a codon's 'budget'",
    hank.ContainerBudget: "the 'budget' of a loop or of 'overrides'",
    hank.RigCopy: "an item of 'rigSetup'",
    hank.CopySpec: "the 'copy' of a rig",
    hank.CommandSpec: "the 'command' of a rig",
    hank.IterationLimit: "a loop's 'terminateOn'",
    hank.SentinelEntry: "an item of 'sentinels'",
    hank.SentinelSettings: "the 'settings' of a sentinel",
    hank.SentinelOverrides: "the 'sentinel' of 'overrides'",
}

_FORMER_NAMES = {
    "recommendations": "overrides",
    "phases": "hank",
    "chroniclers": "sentinels",
    "chronicler": "sentinel",
    "workspaceSetup": "rigSetup",
    "trackFiles": "trackedFiles",
}
"""Names of Hankweave's earlier versions, and their replacements."""

_MOST = 3
"""Limit on the number of places that a hint names."""


def hint(name: str, here: type, fields: Iterable[str]) -> str:
    """Return a hint for a field that is unknown here."""
    known = list(fields)
    now = _FORMER_NAMES.get(name)
    if now in known:
        return f"It is now called {now!r}."

    places = [place for place in _places_of().get(name, ()) if place != _PLACES.get(here)]
    if places and len(places) <= _MOST:
        return f"It belongs to {' or to '.join(places)}."

    return nearest(name, known)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the most similar known field, or all of them."""
    known = list(known)
    return did_you_mean(name, known) or f"Known fields: {', '.join(known)}."


@cache
def _places_of() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for kind, place in _PLACES.items():
        described = inspect.type_info(kind)
        if isinstance(described, inspect.StructType):
            for field in described.fields:
                places.setdefault(field.encode_name, []).append(place)

    return places
