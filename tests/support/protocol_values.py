"""Any value of the protocol, made from the types themselves: what a shape allows can come.

A field that is added to a shape is covered from then on; nobody has to remember it here.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect as shapes
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.events import TransitionBody
from hankweave_protocol.transitions import TRANSITIONS

INT64 = 2**63

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
"""Everything that UTF-8 can hold, control characters and NUL included."""

moments = st.datetimes(timezones=st.timezones())

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-INT64, INT64 - 1) | st.floats(-1e300, 1e300) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

transition_bodies = st.deferred(
    lambda: st.one_of([values_of(member) for member in TRANSITIONS.members.values()])
).map(codec.transition_body)


@cache
def values_of(kind: type) -> st.SearchStrategy[Any]:
    """Makes values of a shape."""
    return _of(shapes.type_info(kind))


def _of(kind: shapes.Type) -> st.SearchStrategy[Any]:
    match kind:
        case shapes.StructType(cls=cls) if cls is TransitionBody:
            return transition_bodies
        case shapes.StructType():
            return _structs(kind)
        case shapes.UnionType(types=types):
            return st.one_of([_of(each) for each in types])
        case shapes.VarTupleType(item_type=item):
            return st.lists(_of(item), min_size=kind.min_length or 0, max_size=2).map(tuple)
        case shapes.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=2)
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case shapes.StrType(pattern=str() as pattern):
            return st.from_regex(pattern).filter(_is_utf8)
        case shapes.StrType():
            return texts if not kind.min_length else texts.filter(len)
        case shapes.IntType(ge=least, le=most):
            return st.integers(
                -INT64 if least is None else least, INT64 - 1 if most is None else most
            )
        case shapes.FloatType():
            return _floats(kind)
        case shapes.BoolType():
            return st.booleans()
        case shapes.NoneType():
            return st.none()
        case shapes.RawType():
            return json_values.map(lambda value: msgspec.Raw(codec.encode(value)))
        case _:
            return json_values


def _structs(kind: shapes.StructType) -> st.SearchStrategy[Any]:
    # Deferred, because a file tree holds file trees.
    return st.deferred(lambda: st.builds(kind.cls, **{f.name: _of(f.type) for f in kind.fields}))


def _floats(kind: shapes.FloatType) -> st.SearchStrategy[float]:
    least = kind.ge if kind.gt is None else math.nextafter(kind.gt, math.inf)
    return st.floats(least, kind.le, allow_nan=False, allow_infinity=False)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False

    return True
