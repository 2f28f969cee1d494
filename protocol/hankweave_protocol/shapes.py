"""How every value here is shaped: frozen, keyword-only, camelCase outside, snake_case inside.

Two kinds of union stand on the wire. A *status* union (codon states, starting conditions) carries
its tag among its own fields and is a msgspec tagged union. A *typed* union (events, commands,
transitions) carries `type` beside `data`; its members name their type in a `TYPE` class variable
and are found through a `Registry`, so that a reader can keep what it does not know.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _ValueMeta(msgspec.StructMeta):
    """msgspec hands neither `kw_only` nor `frozen` down to subclasses; here every one has both.

    (mypy learns `frozen` from here but not `kw_only`: where a required field follows an inherited
    optional one, the class says `kw_only=True` itself.)
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
    """A value of the wire or of a file; fields that hold their default are not written."""


class Typed(Value):
    """The `data` of a typed union's member."""

    TYPE: ClassVar[str]


T = TypeVar("T", bound=Typed)


class Registry(Generic[T]):
    """The members of one typed union, found by their `TYPE`."""

    def __init__(self, *members: type[T]) -> None:
        self.members: dict[str, type[T]] = {member.TYPE: member for member in members}
        if len(self.members) != len(members):
            raise ValueError("two members of a union share a type")

    def get(self, type_name: str) -> type[T] | None:
        return self.members.get(type_name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)
