"""The base classes of all values: frozen, keyword-only, camelCase in JSON, snake_case in Python.

There are two kinds of union. A *status* union (codon states, starting conditions) has its tag among
its own fields and is a msgspec tagged union. A *typed* union (events, commands, transitions) has
`type` beside `data`; its members name their type in the class variable `TYPE` and are found through
a `Registry`, so that a reader can preserve members it does not know.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _ValueMeta(msgspec.StructMeta):
    """Make every subclass frozen and keyword-only, which msgspec does not inherit.

    mypy infers `frozen` from this class but not `kw_only`: a class in which a required field
    follows an inherited optional one must set `kw_only=True` itself.
    """

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _ValueMeta:
        return super().__new__(
            mcls, name, bases, namespace, **{"frozen": True, "kw_only": True} | options
        )


class Value(
    msgspec.Struct,
    metaclass=_ValueMeta,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
):
    """A value in a frame or file; fields with their default value are omitted."""


class Typed(Value):
    """The `data` of a member of a typed union."""

    TYPE: ClassVar[str]


T = TypeVar("T", bound=Typed)


class Registry(Generic[T]):
    """The members of one typed union, found by their `TYPE`."""

    def __init__(self, *members: type[T]) -> None:
        self.members: dict[str, type[T]] = {}
        for member in members:
            self.add(member)

    def add(self, member: type[T]) -> None:
        """Add a member; raise ValueError if another one has its type."""
        if self.members.setdefault(member.TYPE, member) is not member:
            raise ValueError(f"two members of a union share a type: {member.TYPE}")

    def get(self, type_name: str) -> type[T] | None:
        return self.members.get(type_name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)
