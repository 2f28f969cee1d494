"""Claims about structured answers: JSON Schemas and models' answers are checked."""

from __future__ import annotations

from typing import Any

import pytest

from hankweave_protocol.sentinels import StructuredOutput
from hankweave_server.sentinels.structured import BadAnswer, BadSchema, form_of


def test_arrays_and_enums_are_unwrapped() -> None:
    """Models fill objects; the output has the array or enum that was asked for."""
    array = form_of(StructuredOutput(output="array"), {"type": "integer"})
    assert array.content_of('{"elements": [1, 2]}') == [1, 2]
    enum = form_of(StructuredOutput(output="enum", enum_values=("low", "high")), None)
    assert enum.content_of('{"result": "low"}') == "low"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"result": "other"}', '{"result": ', "[" * 9999])
def test_an_answer_of_another_form_is_refused(text: str) -> None:
    """A model's answer either has the required form or is an error with a place."""
    enum = form_of(StructuredOutput(output="enum", enum_values=("low",)), None)
    with pytest.raises(BadAnswer):
        enum.content_of(text)


@pytest.mark.parametrize(
    "text", ["NaN", "1e999", "1" * 5000, "[" * 40 + "]" * 40], ids=lambda text: text[:5]
)
def test_an_answer_that_no_event_can_carry_is_refused(text: str) -> None:
    """An answer that could not be read again from the journal is never recorded."""
    anything = form_of(StructuredOutput(output="array"), {})
    with pytest.raises(BadAnswer):
        anything.content_of(f'{{"elements": [{text}]}}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "string"},
    ],
)
def test_a_schema_that_is_none_or_reaches_outside_is_refused(schema: dict[str, Any]) -> None:
    """Nothing is fetched for a schema, and a schema of an object must describe an object."""
    with pytest.raises(BadSchema):
        form_of(StructuredOutput(output="object"), schema)


def test_references_of_an_elements_schema_lead_to_it() -> None:
    """A schema that refers to itself means the same inside the array that a model fills."""
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": []}
    array = form_of(StructuredOutput(output="array"), schema)
    assert array.content_of('{"elements": [{"next": {}}]}') == [{"next": {}}]
    with pytest.raises(BadAnswer):
        array.content_of('{"elements": [{"next": 1}]}')
