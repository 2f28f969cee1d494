"""Claims about schemas in zod: the real zod converts them, and checks a model's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hankweave_protocol.sentinels import StructuredOutput
from hankweave_server.sentinels.structured import BadAnswer, BadSchema, Form, form_of
from hankweave_server.sentinels.templates.javascript import QuickJs, ZodSchema


@pytest.fixture(scope="module")
def quickjs() -> Iterator[QuickJs]:
    engine = QuickJs()
    yield engine
    engine.close()


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
        (
            "z.string().min(1).max(5, 'too long')",
            {"type": "string", "minLength": 1, "maxLength": 5},
        ),
        ("z.number().int().min(0).max(10)", {"type": "integer", "minimum": 0, "maximum": 10}),
        ("z.enum(['high', \"low\"])", {"type": "string", "enum": ["high", "low"]}),
        (
            "z.array(z.boolean()).nonempty()",
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
        ),
        ("z.string().email()", {"type": "string", "format": "email"}),
        ("z.string().regex(/^a+$/)", {"type": "string", "pattern": "^a+$"}),
        ("z.record(z.number())", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("z.string().describe('what it is')", {"type": "string", "description": "what it is"}),
        (
            "z.object({ a: z.string(), b: z.literal(-1) })",
            an_object(a={"type": "string"}, b={"type": "number", "const": -1}),
        ),
    ],
)
def test_a_model_is_asked_for_what_zod_says(
    quickjs: QuickJs, text: str, schema: dict[str, Any]
) -> None:
    """The JSON Schema is the one that Hankweave's library for models produces."""
    assert ZodSchema(text, quickjs).json_schema == schema


@pytest.mark.parametrize(
    "text",
    [
        "z.object({ a: z.string() })",
        "z.object({ a: z.string() });",
        "\n// What a model is to say.\nz.object({ a: z.string() })\n",
        "(() => { const a = z.string(); return z.object({ a }); })()",
        "import { z } from 'zod';\n\nconst A = z.string();\nexport default z.object({ a: A });\n",
        'import { z } from "zod"\nexport const schema = z.object({\n  a: z.string(),\n});',
    ],
)
def test_a_schema_is_an_expression_or_a_module(quickjs: QuickJs, text: str) -> None:
    """Hankweave evaluates an expression; modules, and comments around either, are accepted too."""
    assert ZodSchema(text, quickjs).json_schema == an_object(a={"type": "string"})


def test_a_schema_of_zod_4_is_understood(quickjs: QuickJs) -> None:
    """A text that version 3 cannot evaluate is evaluated by version 4."""
    schema = ZodSchema("z.object({ at: z.iso.datetime(), to: z.email() })", quickjs)
    properties = schema.json_schema["properties"]
    assert (properties["at"]["format"], properties["to"]["format"]) == ("date-time", "email")
    with pytest.raises(BadAnswer, match=r"At \$\['to'\]"):
        schema.parse({"at": "2025-01-04T12:00:00Z", "to": "nobody"}, is_array=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("z.object({", "SyntaxError"),
        ("z.nothing()", "TypeError"),
        ("process.exit(1)", "ReferenceError"),
        ("require('zod').z.string()", "ReferenceError"),
        ("", "zod schema"),
        ("42", "is not a zod schema"),
        ("z", "is not a zod schema"),
        ("(() => { while (true) {} })()", "took too long"),
        ("z.array(" * 5000 + "z.any()" + ")" * 5000, "schema"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(quickjs: QuickJs, text: str, words: str) -> None:
    """The fault is found when the sentinel loads; the message is the engine's, in one line."""
    with pytest.raises(BadSchema, match=words) as caught:
        ZodSchema(text, quickjs)

    assert "\n" not in str(caught.value)


def form(quickjs: QuickJs, text: str, output: str = "object") -> Form:
    schema = ZodSchema(text, quickjs)
    structured = StructuredOutput(output=output, schema_str=text)  # type: ignore[arg-type]
    return form_of(
        structured,
        schema.json_schema,
        lambda value: schema.parse(value, is_array=output == "array"),
    )


def test_refinements_judge_an_answer(quickjs: QuickJs) -> None:
    """A refinement that JSON Schema cannot express is checked, and the message names the place."""
    text = "z.object({ n: z.number().refine(n => n % 2 === 0, 'not even') })"
    even = form(quickjs, text)
    assert even.content_of('{"n": 4}') == {"n": 4}
    with pytest.raises(BadAnswer, match=r"At \$\['n'\] of the answer: not even"):
        even.content_of('{"n": 3}')


def test_defaults_and_transforms_shape_the_content(quickjs: QuickJs) -> None:
    """Unknown keys are dropped, as zod drops them."""
    text = "z.object({ a: z.string().transform(s => s.length), b: z.number().default(7) })"
    assert form(quickjs, text).content_of('{"a": "xyz", "c": 1}') == {"a": 3, "b": 7}


def test_each_element_of_an_array_is_checked(quickjs: QuickJs) -> None:
    """The model fills `elements`; the place of a fault has the element's number."""
    array = form(quickjs, "z.object({ a: z.number() })", "array")
    assert array.schema["properties"]["elements"]["items"]["type"] == "object"
    assert array.content_of('{"elements": [{"a": 1}]}') == [{"a": 1}]
    with pytest.raises(BadAnswer, match=r"\$\[1\]\['a'\]"):
        array.content_of('{"elements": [{"a": 1}, {"a": "x"}]}')

    with pytest.raises(BadAnswer, match="'elements'"):
        array.content_of("{}")


def test_a_recursive_schema_keeps_its_references(quickjs: QuickJs) -> None:
    """Inside an array the schema is nested deeper, and its references are adjusted."""
    text = (
        "(() => { const tree = z.lazy(() => z.object({ next: tree.optional() })); return tree; })()"
    )
    array = form(quickjs, text, "array")
    assert json.dumps(array.schema).count('"$ref": "#/properties/elements/items"') == 1
    assert array.content_of('{"elements": [{"next": {"next": {}}}]}') == [{"next": {"next": {}}}]


def test_a_schema_that_explodes_on_an_answer_is_stopped(quickjs: QuickJs) -> None:
    """A regular expression that backtracks endlessly is a failed answer, and blocks no server."""
    slow = form(quickjs, "z.object({ a: z.string().regex(/^(a+)+$/) })")
    with pytest.raises(BadAnswer, match="took too long"):
        slow.content_of(json.dumps({"a": "a" * 60 + "b"}))
