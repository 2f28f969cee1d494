"""Looking into raw JSON, past what has the wrong type: the shape tells that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hankweave_server.hank.problems import JsonPath

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
