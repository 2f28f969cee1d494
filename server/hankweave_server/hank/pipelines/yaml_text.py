"""YAML text with positions: its values as written, and where each of them is.

Scalars keep their spelling, so that `version: 1.10` stays 1.10 and no integer is too long. A
duplicate key, a tag, or a text that cannot be stored in a file is a fault with a position. Anchors
and merge keys work as long as their expansion stays small.

Syntax errors are translated for the author: PyYAML's messages are about tokens and blocks
("expected <block end>, but found '-'"), but authors think of indentation, quotes and colons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from hankweave_server.hank.pipelines.model import PipelineInvalid
from hankweave_server.hank.problems import Finding, HankProblem, JsonPath, did_you_mean, path_text

_INDENT: Final = "Give all keys of one mapping, and all items of one list, the same indentation."
_QUOTE: Final = "Put text with special characters in quotes."

_PLAIN: Final[tuple[tuple[str, str, str | None], ...]] = (
    (
        r"found character '\\t' that cannot start any token",
        "a tab is used where only spaces are allowed",
        "Indent with spaces.",
    ),
    (
        r"found character '(.+)' that cannot start any token",
        r"no value can begin with '\1'",
        _QUOTE,
    ),
    (
        "mapping values are not allowed here",
        "there is a colon where no key is allowed",
        "Put text that contains a colon in quotes, or fix the indentation.",
    ),
    (
        "could not find expected ':'",
        "a line is neither a key with a colon nor part of a value",
        "Write `key: value`, or fix the indentation.",
    ),
    (
        "found unexpected end of stream",
        "a quote is opened but never closed",
        "Close the quote.",
    ),
    (
        "found unknown escape character (.+)",
        r"a backslash followed by \1 is invalid in double quotes",
        "Write `\\\\` for a backslash, or use single quotes.",
    ),
    (
        "(block )?sequence entries are not allowed here",
        "there is a list item where none is allowed",
        _INDENT,
    ),
    (
        "expected <block end>, but found '-'",
        "there is a list item where the next key is expected",
        _INDENT,
    ),
    (
        "expected <block end>, but found .+",
        "the indentation matches nothing above it",
        _INDENT,
    ),
    (
        r"expected ',' or '([]}])', but got .+",
        r"a bracket is not closed: there is no ',' or '\1' where one is expected",
        None,
    ),
    (
        "expected '<document start>', but found .+",
        "there is text after the end of the value",
        _INDENT,
    ),
    (
        "did not find expected .+|expected the node content, but found .+",
        "a value is missing",
        None,
    ),
    (
        "found undefined alias '(.+)'",
        r"the alias *\1 has no anchor &\1 above it",
        None,
    ),
)


def in_plain_words(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    """Return the error, as a sentence without its full stop, and a hint on how to fix it."""
    if isinstance(error, yaml.composer.ComposerError) and "single document" in str(error.context):
        return "a second document begins here, but a file contains one pipeline only", None

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

COMMAND_LINE: Final[JsonPath] = ("command line",)
"""The path of a fault that is not in the file."""

_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"yes", "true", "on"})
_KINDS = {"int": "number", "float": "number", "timestamp": "date", "str": "", "value": ""}


@dataclass(frozen=True, slots=True)
class Written:
    """A number or date as its author wrote it."""

    text: str
    kind: str
    """`number` or `date`."""


@dataclass(slots=True)
class YamlFile:
    """A parsed file; `findings` are the faults of the text itself."""

    path: Path
    value: Any
    """Consists of dict, list, str, bool, None and Written."""
    places: dict[JsonPath, tuple[int, int]] = field(default_factory=dict)
    """Line and column of a key or item, from 1."""
    findings: list[Finding] = field(default_factory=list)
    unsound: frozenset[Finding] = frozenset()
    """The text's own faults; other findings about the same values are omitted."""

    def told(self, findings: list[Finding]) -> tuple[HankProblem, ...]:
        """Return the findings as problems for the user, in the order of the file."""
        paths = {found.path for found in self.unsound}
        kept = (each for each in findings if each in self.unsound or each.path not in paths)
        told = dict.fromkeys(map(self._told, kept))
        return tuple(sorted(told, key=lambda each: (each.line or 0, each.column or 0)))

    def _told(self, found: Finding) -> HankProblem:
        path = found.path
        if path == COMMAND_LINE:
            return HankProblem("$", None, None, found.message, found.suggestion)

        while path and path not in self.places:
            path = path[:-1]

        line, column = self.places.get(path, (None, None))
        shown = path_text(found.path)
        return HankProblem(shown, line, column, found.message, found.suggestion)


def read(path: Path) -> YamlFile:
    """Read and parse a file; raise PipelineInvalid if it has no value at all."""
    text = _text_of(path)
    try:
        node = _Loader(text).get_single_node()
        file = YamlFile(path, None)
        file.value = None if node is None else _Values(file).of(node, ())
        file.unsound = frozenset(file.findings)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "end of stream" in (error.problem or ""):
            mark = error.context_mark or mark  # The opening quote.

        place = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        sentence, suggestion = in_plain_words(error)
        message = f"This is not YAML: {sentence}."
        raise _invalid(path, message, *place, suggestion=suggestion) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = len(before) - before.rfind("\n")
        message = f"This is not YAML: it contains the character {chr(_code(error))!r}."
        raise _invalid(path, message, before.count("\n") + 1, column) from None
    except RecursionError:
        raise _invalid(path, "This is nested too deeply.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _invalid(path, f"This is not YAML: {error}.") from None

    return file


def _text_of(path: Path) -> str:
    suggestion = None
    try:
        if path.stat().st_size > LARGEST:
            raise _invalid(path, f"The file is larger than {LARGEST // 1024**2} MiB.")

        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            suggestion = did_you_mean(path.name, (item.name for item in path.parent.iterdir()))

        message = f"The file cannot be read: {error.strerror}."
    except UnicodeDecodeError as error:
        message = f"The file is not UTF-8 text: byte {error.start + 1} is invalid."

    raise PipelineInvalid(path, [HankProblem("$", None, None, message, suggestion)])


def _invalid(
    path: Path,
    message: str,
    line: int | None = None,
    column: int | None = None,
    *,
    suggestion: str | None = None,
) -> PipelineInvalid:
    return PipelineInvalid(path, [HankProblem("$", line, column, message, suggestion)])


def _code(error: yaml.reader.ReaderError) -> int:
    return error.character if isinstance(error.character, int) else ord(error.character)


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

    def of(self, node: yaml.Node, path: JsonPath) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem="its aliases expand to too many values", problem_mark=node.start_mark
            )

        self._places.setdefault(path, _place(node))
        match node:
            case yaml.MappingNode() if node.tag == f"{_TAG}map":
                return self._mapping(node, path)
            case yaml.SequenceNode() if node.tag == f"{_TAG}seq":
                return [self.of(item, (*path, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node, path)
            case _:
                return self._refuse_tag(node, path)

    def _mapping(self, node: yaml.MappingNode, path: JsonPath) -> dict[str, Any]:
        value: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key, item in node.value:
            if key.tag == f"{_TAG}merge":
                merged.append(item)
            elif not isinstance(key, yaml.ScalarNode):
                self._found(path, "A key must be a string.", key)
            elif key.value in value:
                message = f"The key {key.value!r} appears twice; only the last one would be used."
                self._places[(*path, key.value)] = _place(key)
                self._found((*path, key.value), message, key, "Remove one of them.")
            else:
                name = self._sound(key, path)
                self._places.setdefault((*path, name), _place(key))
                value[name] = self.of(item, (*path, name))

        for each in merged:
            for under in self._mappings_of(each, path):
                value = under | value

        return value

    def _mappings_of(self, node: yaml.Node, path: JsonPath) -> Iterator[dict[str, Any]]:
        """Yield the mappings of a merge key; of several, the first wins."""
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(each, yaml.MappingNode):
                yield self.of(each, path)
            else:
                self._found(path, "'<<' can only merge mappings.", each)

    def _scalar(self, node: yaml.ScalarNode, path: JsonPath) -> Any:
        text = self._sound(node, path)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case kind if kind in _KINDS:
                return Written(text, _KINDS[kind]) if _KINDS[kind] else text
            case _:
                return self._refuse_tag(node, path)

    def _sound(self, node: yaml.ScalarNode, path: JsonPath) -> str:
        """Return the text of a scalar, replacing characters that cannot be stored in a file."""
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            message = "The text contains an unpaired surrogate, which cannot be stored in a file."
            self._found(path, message, node)
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


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
