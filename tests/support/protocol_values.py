"""Any value of the protocol, generated from the types themselves.

A field that is added to a type is covered automatically.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect as shapes
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import FileNode, TransitionBody
from hankweave_protocol.transitions import TRANSITIONS

often_enough = settings(max_examples=25)
"""For claims about each of many types: together they check thousands of values."""

INT64 = 2**63

texts = st.text(st.characters(codec="utf-8"), max_size=20)
"""Everything that UTF-8 can hold, control characters and NUL included."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-INT64, INT64 - 1) | st.floats(-1e300, 1e300) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

file_trees = st.recursive(
    st.builds(FileNode, name=texts, path=texts, is_directory=st.booleans(), children=st.just(())),
    lambda inner: st.builds(
        FileNode,
        name=texts,
        path=texts,
        is_directory=st.just(True),
        children=st.lists(inner, max_size=3).map(tuple),
        last_modified=st.none() | texts,
    ),
    max_leaves=4,
)


@cache
def values_of(kind: type) -> st.SearchStrategy[Any]:
    """Generate values of a type."""
    return _of(shapes.type_info(kind))


def _of(kind: shapes.Type) -> st.SearchStrategy[Any]:
    match kind:
        case shapes.BytesType():
            return st.binary(max_size=20)
        case shapes.StructType(cls=cls) if cls is TransitionBody:
            return transition_bodies
        case shapes.StructType(cls=cls) if cls is FileNode:
            return file_trees
        case shapes.StructType():
            return _structs(kind)
        case shapes.UnionType(types=types):
            return st.one_of([_of(each) for each in types])
        case shapes.VarTupleType(item_type=item):
            return st.lists(_of(item), min_size=kind.min_length or 0, max_size=2).map(tuple)
        case shapes.ListType(item_type=item):
            return st.lists(_of(item), max_size=2)
        case shapes.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=2)
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case shapes.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case shapes.StrType(pattern=str() as pattern):
            return st.from_regex(pattern).filter(_is_utf8)
        case shapes.StrType():
            return texts if not kind.min_length else texts.filter(len)
        case shapes.IntType(ge=least, le=most):
            lowest = -INT64 if least is None else least
            return st.integers(lowest, INT64 - 1 if most is None else most)
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
    return st.builds(kind.cls, **{field.name: _of(field.type) for field in kind.fields})


def _floats(kind: shapes.FloatType) -> st.SearchStrategy[float]:
    least = kind.ge if kind.gt is None else math.nextafter(kind.gt, math.inf)
    return st.floats(least, kind.le, allow_nan=False, allow_infinity=False)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False

    return True


transition_bodies = st.sampled_from(list(TRANSITIONS.members.values())).flatmap(
    lambda member: values_of(member).map(codec.transition_body)
)


def refusal(frame: str | bytes) -> Refused:
    """Return the error of a frame that is no command."""
    with pytest.raises(Refused) as caught:
        codec.decode_command(frame)

    return caught.value
