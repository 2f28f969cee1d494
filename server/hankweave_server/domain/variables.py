"""Variables in texts: `{{name}}` is replaced by a value (Architect, pipelines).

There is only one pass: inserted values are not searched again, so that an agent's answer cannot
name a variable. An unknown name stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
"""The pattern of a name between the braces; white space around it does not count."""

_PLACEHOLDER = re.compile(rf"\{{\{{\s*({NAME})\s*\}}\}}")


def render(text: str, variables: Mapping[str, str]) -> str:
    """Insert the values of the known variables."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    return _PLACEHOLDER.sub(value, text)


def names_in(text: str) -> frozenset[str]:
    """Return the names that `render` would look up."""
    return frozenset(_PLACEHOLDER.findall(text))


def text_of(value: object) -> str:
    """Return a YAML scalar as the text of a variable; raise TypeError for a list or map."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise TypeError(f"a variable holds a text, not a {type(value).__name__}")
