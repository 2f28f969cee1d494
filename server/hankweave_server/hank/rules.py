"""What a rule is: it belongs to a field, and says what cannot be right in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.nodes import Node, texts
from hankweave_server.hank.problems import Finding
from hankweave_server.hank.prompts import PromptFault

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
