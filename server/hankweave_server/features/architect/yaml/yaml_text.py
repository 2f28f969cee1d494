"""YAML text with positions: its values by their types, and where each of them is.

PyYAML composes nodes, and the type of a value decides what a node means. Where a text is expected,
a number or date is a text as its author wrote it, so that `version: 1.10` stays 1.10. A key without
a value is a missing one. A duplicate key, a tag, or a text that cannot be stored in a file is a
fault with a position. Anchors and merge keys work as long as their expansion stays small.

Syntax errors are translated for the author: PyYAML's messages are about tokens and blocks
("expected <block end>, but found '-'"), but authors think of indentation, quotes and colons.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import inspect

from hankweave_server.domain.variables import text_of
from hankweave_server.hank.problems import (
    UNPAIRED,
    Finding,
    HankInvalid,
    JsonPath,
    Place,
    has_surrogate,
    invalid,
    read_text,
)

_INDENT: Final = "Give all keys of one mapping, and all items of one list, the same indentation."
_QUOTE: Final = "Put text with special characters in quotes."
_COLON: Final = "Put text that contains a colon in quotes, or fix the indentation."
_KEY: Final = "Write `key: value`, or fix the indentation."
_BACKSLASH: Final = "Write `\\\\` for a backslash, or use single quotes."

_PLAIN: Final[tuple[tuple[str, str, str | None], ...]] = (
    (r"found character '\\t' .+", "a tab is where only spaces are allowed", "Indent with spaces."),
    (r"found character '(.+)' that .+", r"no value can begin with '\1'", _QUOTE),
    ("mapping values are not .+", "there is a colon where no key is allowed", _COLON),
    ("could not find .+", "a line is neither a key with a colon nor part of a value", _KEY),
    ("found unexpected end of .+", "a quote is opened but never closed", "Close the quote."),
    ("found unknown .+ (.+)", r"\1 cannot follow a backslash in double quotes", _BACKSLASH),
    ("(block )?sequence entries .+", "there is a list item where none is allowed", _INDENT),
    ("expected <block end>, .+ '-'", "there is a list item where a key is expected", _INDENT),
    ("expected <block end>, .+", "the indentation matches nothing above it", _INDENT),
    (r"expected ',' or '([]}])'.+", r"a bracket is not closed: ',' or '\1' is missing here", None),
    ("expected '<document start>'.+", "there is text after the end of the value", _INDENT),
    ("did not find .+|expected the node content, .+", "a value is missing", None),
    ("but found another document", "a second document begins here", "Write one in each file."),
    ("found undefined alias '(.+)'", r"the alias *\1 has no anchor &\1 above it", None),
)
"""Patterns of PyYAML's messages; for each a sentence, and a hint on how to fix it."""


def explained(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    """Return the error, as a sentence without its full stop, and a hint on how to fix it."""
    problem = (error.problem or "").rstrip(".")
    for pattern, sentence, suggestion in _PLAIN:
        found = re.fullmatch(pattern, problem)
        if found is not None:
            return found.expand(sentence), suggestion

    parts = (error.context, problem)
    return ", ".join(part for part in parts if part) or "it cannot be read", None


LARGEST: Final = 1024 * 1024
DEEPEST: Final = 40
MOST_VALUES: Final = 50_000

_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"yes", "true", "on"})
_LONGEST_NUMBER = 30
_ANY = inspect.AnyType()


@dataclass(slots=True)
class YamlFile:
    """A parsed file; `findings` are the faults of the text itself."""

    path: Path
    value: Any = None
    """As in JSON."""
    places: dict[JsonPath, Place] = field(default_factory=dict)
    """The place of a key or item."""
    findings: list[Finding] = field(default_factory=list)


def read(path: Path, kind: inspect.Type) -> YamlFile:
    """Read and parse a file of this type; raise HankInvalid if it has no value at all."""
    text = read_text(path, LARGEST)
    file = YamlFile(path)
    try:
        node = _Loader(text).get_single_node()
        if node is not None:
            file.value = _Values(file).of(node, (), kind)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"This is not YAML: it contains the character {chr(code)!r}."
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise invalid(path, message, place=place) from None
    except RecursionError:
        raise invalid(path, "This is nested too deeply.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise invalid(path, f"This is not YAML: {error}.") from None

    return file


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> HankInvalid:
    mark = error.problem_mark or error.context_mark
    if "end of stream" in (error.problem or ""):
        mark = error.context_mark or mark  # The opening quote.

    place = None if mark is None else (mark.line + 1, mark.column + 1)
    sentence, suggestion = explained(error)
    return invalid(path, f"This is not YAML: {sentence}.", suggestion, place)


class _Loader(yaml.SafeLoader):
    """A loader that composes nodes only, up to the depth that a pipeline can have."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise RecursionError

        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Values:
    """Conversion of nodes to values, recording their positions."""

    def __init__(self, file: YamlFile) -> None:
        self._places = file.places
        self._findings = file.findings
        self._left = MOST_VALUES

    def of(self, node: yaml.Node, path: JsonPath, kind: inspect.Type) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem="its aliases expand to too many values", problem_mark=node.start_mark
            )

        self._places.setdefault(path, _place(node))
        kinds = _members(kind)
        match node:
            case yaml.MappingNode() if node.tag == f"{_TAG}map":
                return self._mapping(node, path, kind)
            case yaml.SequenceNode() if node.tag == f"{_TAG}seq":
                lists = (each for each in kinds if isinstance(each, inspect.VarTupleType))
                item = next((each.item_type for each in lists), _ANY)
                return [self.of(each, (*path, at), item) for at, each in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node, path, kinds)
            case _:
                return self._refuse_tag(node, path)

    def _mapping(
        self, node: yaml.MappingNode, path: JsonPath, kind: inspect.Type
    ) -> dict[str, Any]:
        shapes = [each for each in _members(kind) if isinstance(each, inspect.StructType)]
        fields = {each.encode_name: each.type for shape in shapes for each in shape.fields}
        others = kind.value_type if isinstance(kind, inspect.DictType) else _ANY
        value: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        seen: set[str] = set()
        for key, item in node.value:
            if key.tag == f"{_TAG}merge":
                merged.append(item)
            elif not isinstance(key, yaml.ScalarNode):
                self._found(path, "A key must be a string.", key)
            elif key.value in seen:
                message = f"The key {key.value!r} appears twice; only the last one would be used."
                self._places[(*path, key.value)] = _place(key)
                self._found((*path, key.value), message, key, "Remove one of them.")
            else:
                seen.add(key.value)
                name = self._sound(key, path)
                self._places.setdefault((*path, name), _place(key))
                found = self.of(item, (*path, name), fields.get(name, others))
                if isinstance(others, inspect.StrType) and not isinstance(found, dict | list):
                    found = text_of(found)

                if found is not None or name not in fields:
                    value[name] = found

        for each in merged:
            for under in self._mappings_of(each, path, kind):
                value = under | value

        return value

    def _mappings_of(
        self, node: yaml.Node, path: JsonPath, kind: inspect.Type
    ) -> Iterator[dict[str, Any]]:
        """Yield the mappings of a merge key; of several, the first wins."""
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(each, yaml.MappingNode):
                yield self.of(each, path, kind)
            else:
                self._found(path, "'<<' can only merge mappings.", each)

    def _scalar(
        self, node: yaml.ScalarNode, path: JsonPath, kinds: tuple[inspect.Type, ...]
    ) -> Any:
        text = self._sound(node, path)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int" | "float" if not any(isinstance(each, inspect.StrType) for each in kinds):
                number = _number(text)
                if number is None and _ANY in kinds:
                    self._found(path, f"{text[:40]!r} is not a number of JSON.", node)

                return text if number is None else number
            case "int" | "float" | "timestamp" | "str" | "value":
                return text
            case _:
                return self._refuse_tag(node, path)

    def _sound(self, node: yaml.ScalarNode, path: JsonPath) -> str:
        """Return the text of a scalar, replacing characters that cannot be stored in a file."""
        text = str(node.value)
        if has_surrogate(text):
            self._found(path, UNPAIRED, node)
        elif "\0" in text:
            self._found(path, "The text contains a NUL character.", node)
        else:
            return text

        return text.encode(errors="replace").decode().replace("\0", "?")

    def _refuse_tag(self, node: yaml.Node, path: JsonPath) -> str:
        shown = node.tag.replace(_TAG, "!!")
        self._found(path, f"The tag {shown!r} is not supported.", node, "Remove the tag.")
        return "?"

    def _found(
        self, path: JsonPath, message: str, node: yaml.Node, suggestion: str | None = None
    ) -> None:
        self._places.setdefault(path, _place(node))
        self._findings.append(Finding(path, message, suggestion))


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _number(text: str) -> int | float | None:
    """Return a number that JSON can express, or None."""
    if len(text) <= _LONGEST_NUMBER:
        with contextlib.suppress(ValueError):
            return int(text)

        with contextlib.suppress(ValueError):
            number = float(text)
            return number if math.isfinite(number) else None

    return None
