"""A sentinel's prompts: in Eta, as in Hankweave, or in jinja where the sentinel says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

LARGEST_PROMPT: Final = 4 * 1024 * 1024
"""Characters; no model reads as much."""

LARGEST_TEMPLATE: Final = 1024 * 1024

Engine: TypeAlias = Literal["eta", "jinja"]

_JINJA_FILES = (".j2", ".jinja", ".jinja2")


class BadTemplate(Exception):
    """A template that is not valid: its author's fault, found when it is loaded."""


class NotRendered(Exception):
    """A template that failed on what it was given."""


class RenderLimit(NotRendered):
    """A template that took too long, or grew too large."""


class Template(Protocol):
    """One prompt that can be rendered."""

    def render(self, context: Mapping[str, Any]) -> str:
        """Render, blocking; raise NotRendered, and RenderLimit where it is too much."""


def engine_of(chosen: Engine | None, files: tuple[str, ...]) -> Engine:
    """Tell in which language a prompt is: `templateEngine` says so, else the names of its files.

    Everything else is Eta, because a sentinel of Hankweave has nothing else.
    """
    if chosen is not None:
        return chosen

    return "jinja" if any(name.endswith(_JINJA_FILES) for name in files) else "eta"


def looks_like_jinja(source: str) -> bool:
    """Tell whether a text without Eta's tags has jinja's, which Eta leaves as they are."""
    return "<%" not in source and any(tag in source for tag in ("{{", "{%"))
