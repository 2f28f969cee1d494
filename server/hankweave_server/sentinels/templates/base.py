"""Define templates of prompts, and choose their language: Eta, as in Hankweave, or jinja."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

LARGEST_PROMPT: Final = 4 * 1024 * 1024
"""Characters; more than any model accepts."""

LARGEST_TEMPLATE: Final = 1024 * 1024

Engine: TypeAlias = Literal["eta", "jinja"]

_JINJA_FILES = (".j2", ".jinja", ".jinja2")


class BadTemplate(Exception):
    """A template is not valid; detected when it is loaded."""


class NotRendered(Exception):
    """A template failed for its context."""


class RenderLimit(NotRendered):
    """A template took too long, or its result is too large."""


class Template(Protocol):
    """One prompt that can be rendered."""

    def render(self, context: Mapping[str, Any]) -> str:
        """Render. Blocks; raises NotRendered, and RenderLimit if a limit is exceeded."""


def engine_of(chosen: Engine | None, files: tuple[str, ...]) -> Engine:
    """Return the language of a prompt, from `templateEngine`, else from the names of its files.

    The default is Eta, because Hankweave's sentinels use nothing else.
    """
    if chosen is not None:
        return chosen

    return "jinja" if any(name.endswith(_JINJA_FILES) for name in files) else "eta"


def has_only_jinja_tags(source: str) -> bool:
    """Return whether a text has jinja's tags, which Eta ignores, and none of Eta's."""
    return "<%" not in source and any(tag in source for tag in ("{{", "{%"))
