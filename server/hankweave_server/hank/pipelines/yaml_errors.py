"""What a YAML parser complains about, in words for the author of the file.

PyYAML speaks of tokens and blocks ("expected <block end>, but found '-'"). Authors think of
indentation, quotes and colons.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

_INDENT: Final = "Give all keys of one mapping, and all items of one list, the same indentation."
_QUOTE: Final = "Put text with special characters into quotes."

_PLAIN: Final[tuple[tuple[str, str, str | None], ...]] = (
    (
        r"found character '\\t' that cannot start any token",
        "a tab stands where only spaces may",
        "Indent with spaces.",
    ),
    (
        r"found character '(.+)' that cannot start any token",
        r"no value can begin with '\1'",
        _QUOTE,
    ),
    (
        "mapping values are not allowed here",
        "a colon stands where no key can be",
        "Put text that holds a colon into quotes, or mend the indentation.",
    ),
    (
        "could not find expected ':'",
        "a line is neither a key with a colon nor part of a value",
        "Write `key: value`, or mend the indentation.",
    ),
    (
        "found unexpected end of stream",
        "a quote that is opened is never closed",
        "Close the quote.",
    ),
    (
        "found unknown escape character (.+)",
        r"\1 after a backslash means nothing in double quotes",
        "Write `\\\\` for a backslash, or use single quotes.",
    ),
    (
        "(block )?sequence entries are not allowed here",
        "a list item stands where none can be",
        _INDENT,
    ),
    (
        "expected <block end>, but found '-'",
        "a list item stands where the next key is expected",
        _INDENT,
    ),
    (
        "expected <block end>, but found .+",
        "the indentation fits nothing above it",
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
        r"the reference *\1 is used, and nothing above is marked &\1",
        None,
    ),
)


def in_plain_words(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    """Return what is wrong, as a sentence without its period, and what to do about it."""
    if isinstance(error, yaml.composer.ComposerError) and "single document" in str(error.context):
        return "a second document begins here, and one file holds one pipeline", None

    problem = (error.problem or "").rstrip(".")
    for pattern, sentence, suggestion in _PLAIN:
        found = re.fullmatch(pattern, problem)
        if found is not None:
            return found.expand(sentence), suggestion

    parts = (error.context, problem)
    return ", ".join(part for part in parts if part) or "it cannot be read", None
