"""Define the schema that a model has to fill, and check its answer.

Models fill objects. An array is requested as the field `elements` of an object, and an enum value
as its field `result`. A sentinel's files and events get the array or the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jsonschema
import msgspec
import regex
from jsonschema import Draft202012Validator, validators
from referencing import Registry

from hankweave_protocol import codec
from hankweave_protocol.sentinels import StructuredOutput
from hankweave_server.sentinels.triggers import SLOWEST_MATCH

Schema: TypeAlias = Mapping[str, Any]

_WRAPPERS = {"array": "elements", "enum": "result"}
DEEPEST_ANSWER = codec.MAX_DEPTH // 2
"""Levels of nesting in an answer, which becomes part of an event; frames may nest twice as deep."""


class BadSchema(Exception):
    """A schema is not valid, or refers to something outside itself."""


class BadAnswer(Exception):
    """A model's answer does not have the requested form."""


@dataclass(frozen=True, slots=True)
class Form:
    """The requested form of an answer."""

    name: str
    description: str
    schema: Schema
    """The schema of the object that the model fills."""
    wrapper: str | None
    """The field of the object that has the content; None: the object itself is the content."""
    parse: Callable[[Any], Any] | None = None
    """Checks the content instead of the schema, and may convert it; raises BadAnswer."""

    def content_of(self, text: str) -> Any:
        """Parse and check an answer, and return its content; raises BadAnswer."""
        value = _plain(text)
        if self.parse is not None:
            return self.parse(self._unwrapped(value))

        try:
            found = next(_validator(self.schema).iter_errors(value), None)
        except TimeoutError:
            raise BadAnswer(
                "Matching the answer against a pattern of the schema takes too long."
            ) from None
        except RecursionError:
            raise BadAnswer("The answer or its schema is nested too deeply.") from None

        if found is not None:
            raise BadAnswer(f"At {found.json_path} of the answer: {found.message[:300]}.")

        return self._unwrapped(value)

    def _unwrapped(self, value: Any) -> Any:
        if self.wrapper is None:
            return value

        if not isinstance(value, dict) or self.wrapper not in value:
            raise BadAnswer(f"The answer has no {self.wrapper!r}.")

        return value[self.wrapper]


def _plain(text: str) -> Any:
    """Parse JSON that an event can carry: limited numbers and limited nesting."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadAnswer(f"The answer is not JSON: {error}.") from None

    if _depth(value) > DEEPEST_ANSWER:
        raise BadAnswer(f"The answer is nested deeper than {DEEPEST_ANSWER} levels.")

    return value


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def form_of(
    config: StructuredOutput,
    schema: Schema | None,
    parse: Callable[[Any], Any] | None = None,
) -> Form:
    """Return the form for a valid configuration and its schema; raises BadSchema.

    With `parse`, the schema is only sent to the model, and `parse` checks the answer.
    """
    if schema is not None and parse is None:
        _refuse_unsound(schema)

    wrapper = _WRAPPERS.get(config.output)
    match config.output:
        case "object":
            whole = schema or {}
        case "array":
            items = _moved(schema or {}, "#/properties/elements/items")
            whole = _wrapped("elements", {"type": "array", "items": items})
        case "enum":
            whole = _wrapped("result", {"enum": list(config.enum_values or ())})

    if config.output == "object" and whole.get("type", "object") != "object":
        raise BadSchema("With 'output': 'object' the schema must describe an object.")

    return Form(
        name=_NOT_IN_NAMES.sub("_", config.schema_name or "answer")[:64],
        description=config.schema_description or "The answer.",
        schema={"type": "object", **whole},
        wrapper=wrapper,
        parse=parse,
    )


_NOT_IN_NAMES = regex.compile(r"[^A-Za-z0-9_-]")


def _wrapped(name: str, schema: Schema) -> Schema:
    return {"properties": {name: schema}, "required": [name], "additionalProperties": False}


def _moved(schema: Any, to: str) -> Any:
    """Rewrite the references of a schema that is embedded in another one at `to`."""
    if isinstance(schema, list):
        return [_moved(each, to) for each in schema]

    if not isinstance(schema, dict):
        return schema

    return {
        key: to + value[1:]
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/"))
        else _moved(value, to)
        for key, value in schema.items()
    }


def _refuse_unsound(schema: Schema) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise BadSchema(f"This is not a valid JSON Schema: {error.message[:300]}.") from None
    except RecursionError:
        raise BadSchema("The schema is nested too deeply.") from None

    for key, value in _pairs(schema):
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and value[:1] != "#":
            raise BadSchema(f"The schema refers to {value!r}; it may only refer to itself (#…).")


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()

    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _pairs(each)


def _validator(schema: Schema) -> Any:
    # The registry is empty, so no schema is ever fetched.
    return _Validator(schema, registry=Registry())


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not regex.search(pattern, instance, timeout=SLOWEST_MATCH):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _pattern}
)
