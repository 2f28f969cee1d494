"""Claims of structured answers: zod's text is read, schemas are checked, answers too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hankweave_protocol.sentinels import StructuredOutput
from hankweave_server.sentinels import zod
from hankweave_server.sentinels.javascript import NotUnderstood
from hankweave_server.sentinels.structured import BadAnswer, BadSchema, form_of
from support.outcomes import outcome


def an_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("z.string()", {"type": "string"}),
        (
            "z.string().min(1).max(5, 'too long')",
            {"type": "string", "minLength": 1, "maxLength": 5},
        ),
        ("z.number().int().min(0).max(10)", {"type": "integer", "minimum": 0, "maximum": 10}),
        ("z.number().positive()", {"type": "number", "exclusiveMinimum": 0}),
        ("z.enum(['high', \"low\"])", {"enum": ["high", "low"]}),
        (
            "z.array(z.boolean()).nonempty()",
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
        ),
        ("z.string().array()", {"type": "array", "items": {"type": "string"}}),
        ("z.literal(-1)", {"const": -1}),
        ("z.string().nullable()", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ("z.union([z.string(), z.number()])", {"anyOf": [{"type": "string"}, {"type": "number"}]}),
        ("z.record(z.number())", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("z.record(z.string(), z.any())", {"type": "object", "additionalProperties": {}}),
        ("z.string().describe('what it is')", {"type": "string", "description": "what it is"}),
        ("z.object({ a: z.string(), })", an_object(a={"type": "string"})),
        (
            "z.object({ a: z.string().optional() })",
            an_object(a={"type": "string"}) | {"required": []},
        ),
        (
            "import { z } from 'zod';\n// a comment\nconst A = z.literal('x');\n"
            "export const schema = z.object({ 'a': A });",
            an_object(a={"const": "x"}),
        ),
        ("export default z.null();", {"type": "null"}),
    ],
)
def test_the_common_part_of_zod_is_json_schema(text: str, schema: dict[str, Any]) -> None:
    """Each says of data what zod says of it."""
    assert zod.to_json_schema(text) == schema


@pytest.mark.parametrize(
    "text",
    [
        "z.string().regex(/x/)",
        "z.string().refine(s => s.length)",
        "z.string().transform(Number)",
        "z.date()",
        "z.lazy(() => Tree)",
        "process.exit(1)",
        "z.object({ a: require('fs') })",
        "z.object({ a: z.string()",
        "z.string().int()",
        "z.number().min()",
        "",
        "z",
        "z.array(" * 40 + "z.string()" + ")" * 40,
    ],
)
def test_the_rest_of_zod_is_refused_with_a_hint(text: str) -> None:
    """It names what can be written, JSON Schema among it."""
    with pytest.raises(NotUnderstood, match="jsonSchema"):
        zod.to_json_schema(text)


@given(st.text())
def test_any_text_is_a_schema_or_is_refused(text: str) -> None:
    """No text makes the reader raise anything else."""
    for source in (text, f"z.object({{ a: {text} }})"):
        schema = outcome(NotUnderstood, zod.to_json_schema, source)
        if isinstance(schema, NotUnderstood):
            assert str(schema)
        else:
            Draft202012Validator.check_schema(schema)


def test_arrays_and_enums_are_unwrapped() -> None:
    """Models fill objects; what is written down is what was asked for."""
    array = form_of(StructuredOutput(output="array"), {"type": "integer"})
    assert array.content_of('{"elements": [1, 2]}') == [1, 2]
    enum = form_of(StructuredOutput(output="enum", enum_values=("low", "high")), None)
    assert enum.content_of('{"result": "low"}') == "low"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"result": "other"}', '{"result": ', "[" * 9999])
def test_an_answer_of_another_form_is_refused(text: str) -> None:
    """Whatever a model says, it is an answer of the form or an error with a place."""
    enum = form_of(StructuredOutput(output="enum", enum_values=("low",)), None)
    with pytest.raises(BadAnswer):
        enum.content_of(text)


@pytest.mark.parametrize(
    "text", ["NaN", "1e999", "1" * 5000, "[" * 40 + "]" * 40], ids=lambda text: text[:5]
)
def test_an_answer_that_no_event_can_carry_is_refused(text: str) -> None:
    """What could not be read again from the journal never gets there."""
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
    """Nothing is ever fetched for a schema; one of an object must be of an object."""
    with pytest.raises(BadSchema):
        form_of(StructuredOutput(output="object"), schema)
