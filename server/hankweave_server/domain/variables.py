"""Variables in texts: `{{name}}` stands for a value (Architect, pipelines).

One pass and no more: what was put in is not looked through again, so that an agent's answer cannot
name a variable. A name that nobody knows stays as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
"""What may stand between the braces; white space around it does not count."""

_PLACEHOLDER = re.compile(rf"\{{\{{\s*({NAME})\s*\}}\}}")


def render(text: str, variables: Mapping[str, str]) -> str:
    """Puts the values of the known variables in."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    return _PLACEHOLDER.sub(value, text)


def names_in(text: str) -> frozenset[str]:
    """Lists the names that `render` would look up."""
    return frozenset(_PLACEHOLDER.findall(text))


def text_of(value: object) -> str:
    """Gives a YAML scalar as the text a variable holds; raises TypeError for a list or map."""
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
