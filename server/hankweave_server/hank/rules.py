"""What a rule is: it belongs to a field, and says what cannot be right in it.

Looking into raw JSON, past what has the wrong type: the shape tells that.

Where a field belongs that stands in the wrong place: a hint for its author.

A key of a codon in the root of the file, or the reverse, is the mistake that people make most
(Hankweave has a hint for it too); the names of old versions are the next one.
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


class Node(NamedTuple):
    """An object of the file and where it stands."""

    raw: Raw
    path: JsonPath


def steps_of(root: Node) -> list[Node]:
    """Lists the codons and loops of a hank."""
    return list(objects(root, "hank"))


def codons_of(step: Node) -> Iterator[Node]:
    """Gives a codon itself, or the codons of a loop; nothing for what is neither."""
    if is_loop(step):
        yield from filter(_is_codon, objects(step, "codons"))
    elif _is_codon(step):
        yield step


def is_loop(step: Node) -> bool:
    """Tells whether a step is a loop, by what it says, or else by what only loops have."""
    return bool(step.raw.get("type", "loop" if "codons" in step.raw else None) == "loop")


def _is_codon(step: Node) -> bool:
    return bool(step.raw.get("type", "codon") == "codon")


def object_at(owner: Node, key: str) -> Node | None:
    value = owner.raw.get(key)
    return Node(value, (*owner.path, key)) if isinstance(value, dict) else None


def objects(owner: Node, key: str) -> Iterator[Node]:
    value = owner.raw.get(key)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield Node(item, (*owner.path, key, index))


def texts(owner: Node, key: str) -> Iterator[tuple[str, JsonPath]]:
    """Gives the texts of a field that is one text, or a list of them."""
    value = owner.raw.get(key)
    if isinstance(value, str):
        yield value, (*owner.path, key)

    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            yield item, (*owner.path, key, index)


def is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


FaultOf: TypeAlias = Callable[[str], str | None]

NEAR_THE_HANK = "Name a file below the directory of the hank.json."


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules ask of the world outside of the JSON."""

    files: HankFiles
    fault_of_pattern: FaultOf
    """Says why a pattern cannot be used; the resolver of the work tree knows."""
    model_override: str | None = None
    """The model that the command line gives to every codon."""


Rule: TypeAlias = Callable[[Node, Surroundings], Iterator[Finding]]


def by_rules(node: Node, rules: Mapping[str, Rule], around: Surroundings) -> Iterator[Finding]:
    """Asks the rules of the fields that an object has."""
    for key in node.raw:
        if (rule := rules.get(key)) is not None:
            yield from rule(node, around)


def faults(
    owner: Node, key: str, fault_of: FaultOf, nearest: FaultOf = lambda _text: None
) -> Iterator[Finding]:
    """Asks about a text, or about each of a list, and what was probably meant."""
    for text, path in texts(owner, key):
        fault = fault_of(text)
        if fault is not None:
            yield Finding(path, fault, nearest(text))


def of_prompt_files(owner: Node, key: str, around: Surroundings) -> Iterator[Finding]:
    """Finds the prompt files of a field that are not there or cannot be used."""
    for reference, path in texts(owner, key):
        fault = around.files.fault_of_file(reference)
        if fault is not None:
            yield Finding(path, fault, around.files.nearest(reference) or NEAR_THE_HANK)
            continue

        try:
            around.files.prompt(reference)
        except PromptFault as problem:
            yield Finding(path, str(problem))


_PLACES: dict[type, str] = {
    hank.Hank: "the root of the file",
    hank.Codon: "a codon",
    hank.Loop: "a loop",
    hank.HankMeta: "'meta'",
    hank.Overrides: "'overrides'",
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
"""Of Hankweave's earlier versions, and what the word is now."""

_MOST = 3
"""Of more places than that, naming them is no hint."""


def hint(name: str, here: type, fields: Iterable[str]) -> str:
    """Says what was probably meant by a field that is not known here."""
    known = list(fields)
    now = _FORMER_NAMES.get(name)
    if now in known:
        return f"It is called {now!r} now."

    places = [place for place in _places_of().get(name, ()) if place != _PLACES.get(here)]
    if places and len(places) <= _MOST:
        return f"It belongs to {' or to '.join(places)}."

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
