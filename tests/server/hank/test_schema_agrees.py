"""Loader and JSON schema agree: an editor underlines exactly what the loader refuses."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hankweave_protocol.hank import Hank
from hankweave_server.hank import shape
from support.golden import GOLDEN, INVALID, VALID

VALIDATOR = Draft202012Validator(
    json.loads((Path(__file__).parents[3] / "protocol" / "hank.schema.json").read_text())
)
HANK = msgspec.inspect.type_info(Hank)
BASE: dict[str, Any] = json.loads((GOLDEN / "valid/schema-from-data/hank.json").read_text())
for step in BASE["hank"]:  # The contents of a sentinel have their own schema.
    for codon in step.get("codons", [step]):
        codon.pop("sentinels", None)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2000)
    | st.sampled_from([0.5, -1.5, 10.25])
    | st.sampled_from(["", "a", "a b", "fresh", "retry", "loop", "codon", "copy", "command"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "id", "copy", "codons", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """Return the real hank with one value replaced, removed or inserted."""
    raw = deepcopy(BASE)
    owner: Any = raw
    while True:
        keys = sorted(owner) if isinstance(owner, dict) else list(range(len(owner)))
        key = draw(st.sampled_from(keys))
        if not isinstance(owner[key], dict | list) or not owner[key] or draw(st.booleans()):
            break

        owner = owner[key]

    change = draw(st.sampled_from(["set", "remove", "add"]))
    if change == "set" or not isinstance(owner, dict):
        owner[key] = draw(VALUES)
    elif change == "remove":
        del owner[key]
    else:
        owner[draw(st.sampled_from(["type", "unknown", "model", "budget"]))] = draw(VALUES)

    return raw


@settings(max_examples=200)
@given(spoilt())
def test_loader_and_schema_agree_on_every_shape(raw: Any) -> None:
    """For any mutation of a real hank, both accept its shape or both refuse it."""
    assert VALIDATOR.is_valid(raw) == (not list(shape.findings(raw, HANK)))


@settings(max_examples=200)
@given(spoilt())
def test_the_fast_way_in_and_the_slow_one_agree(raw: Any) -> None:
    """msgspec accepts a hank exactly if the slow check finds no fault in its shape."""
    steps = raw.get("hank")
    if isinstance(steps, list):
        steps = [{"type": "codon"} | each if isinstance(each, dict) else each for each in steps]

    try:
        msgspec.convert(raw | ({"hank": steps} if "hank" in raw else {}), Hank)
    except msgspec.ValidationError:
        assert list(shape.findings(raw, HANK))
    else:
        assert not list(shape.findings(raw, HANK))


@pytest.mark.parametrize("folder", VALID, ids=lambda path: path.name)
def test_the_schema_takes_a_hank_of_hankweave(folder: Path) -> None:
    """No line of a hank that runs is underlined."""
    assert VALIDATOR.is_valid(json.loads((folder / "hank.json").read_text()))


def test_the_schema_refuses_what_is_wrong_in_its_shape() -> None:
    """Of the malformed hanks that are valid JSON, those with a wrong shape are underlined."""
    for path in INVALID:
        try:
            raw = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            continue

        # JSON readers parse 1e999 as infinity, which is a number to a schema.
        if path.stem != "budget-infinite" and list(shape.findings(raw, HANK)):
            assert not VALIDATOR.is_valid(raw), path.name
