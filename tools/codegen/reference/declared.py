"""Descriptions of what is declared: the string below a member, the docstring of a property."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass


class Undescribed(Exception):
    """Something that belongs in the reference has no description in the source."""


def required(text: str | None, what: str) -> str:
    """Return the text; raise Undescribed if there is none."""
    if text is None or not text.strip():
        raise Undescribed(f"{what} has no description where it is declared")

    return text


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an enumeration, with the string below it."""

    name: str
    value: object
    text: str

    @property
    def paragraphs(self) -> list[str]:
        return [" ".join(part.split()) for part in self.text.split("\n\n")]


def members(enumeration: type) -> Iterator[Member]:
    """Yield the members of an enumeration in the order of the source, aliases included."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(enumeration)))
    (owner,) = tree.body
    assert isinstance(owner, ast.ClassDef)
    for position, node in enumerate(owner.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                text = _text(owner.body[position + 1 : position + 2])
                value = getattr(enumeration, name).value
                yield Member(name, value, required(text, f"{enumeration.__name__}.{name}"))
            case _:
                pass


def _text(below: list[ast.stmt]) -> str | None:
    match below:
        case [ast.Expr(value=ast.Constant(value=str() as text))]:
            return inspect.cleandoc(text)
        case _:
            return None


def properties(owner: type) -> dict[str, str]:
    """Return the description of each public property of a class."""
    return {
        name: required(inspect.getdoc(value), f"{owner.__name__}.{name}")
        for name, value in vars(owner).items()
        if isinstance(value, property) and not name.startswith("_")
    }
