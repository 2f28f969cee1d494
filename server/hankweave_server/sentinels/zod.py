"""Zod's text to JSON Schema, for the part of zod that says what data looks like.

Hankweave executes the text of a schema as code; here it is read. What says more than the shape of
data (`refine`, `transform`, a regular expression) is refused, with a hint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from hankweave_server.sentinels.javascript import Words, number_of

Schema: TypeAlias = dict[str, Any]

HINT = (
    "Known are object, string, number, boolean, enum, array, literal, union, record, null, any,"
    " optional, nullable, default, describe, and min, max, length, int, positive, nonnegative;"
    " or give a JSON Schema in 'jsonSchema' or 'jsonSchemaFile'."
)
_DEEPEST = 32


@dataclass(slots=True)
class _Kind:
    """A schema on its way, and whether its key may be absent."""

    schema: Schema
    is_optional: bool = False


def to_json_schema(text: str) -> Schema:
    """Translates a schema's text, or a module's with one; raises NotUnderstood."""
    return _Reader(Words(text, HINT)).schema()


class _Reader:
    def __init__(self, words: Words) -> None:
        self._words = words
        self._depth = 0
        self._known: dict[str, _Kind] = {}
        """Constants of the module: a schema may name an earlier one."""

    def schema(self) -> Schema:
        found: _Kind | None = None
        while self._words:
            found = self._statement() or found

        if found is None:
            self._refuse("There is no schema")

        return found.schema

    def _statement(self) -> _Kind | None:
        words = self._words
        if words.takes(";"):
            return None

        if words.sees_name("import"):
            while words.next().kind != "text":
                pass

            return None

        if words.sees_name("export") or words.sees_name("default"):
            words.next()
            return None

        if words.sees_name("const") or words.sees_name("let"):
            words.next()
            name = words.name()
            words.expect("=")
            self._known[name] = found = self._kind()
            return found

        return self._kind()

    def _kind(self) -> _Kind:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("It nests too deeply")

        kind = self._base()
        while self._words.takes("."):
            self._method(kind, self._words.name())

        self._depth -= 1
        return kind

    def _base(self) -> _Kind:
        name = self._words.name()
        if name != "z":
            known = self._known.get(name)
            if known is None:
                self._refuse(f"There is no {name!r}")

            return _Kind(dict(known.schema), known.is_optional)

        self._words.expect(".")
        name = self._words.name()
        maker = _MAKERS.get(name)
        if maker is None:
            self._refuse(f"z.{name} is not known")

        self._words.expect("(")
        kind = _Kind(maker(self))
        self._words.takes(",")
        self._words.expect(")")
        return kind

    # --- z.… ----------------------------------------------------------------------------------

    def _object(self) -> Schema:
        properties: Schema = {}
        required: list[str] = []
        self._words.expect("{")
        while not self._words.takes("}"):
            word = self._words.next()
            if word.kind == "mark":
                self._refuse(f"Expected the name of a field, found {word.source!r}")

            self._words.expect(":")
            kind = self._kind()
            properties[word.text] = kind.schema
            if not kind.is_optional:
                required.append(word.text)

            if not self._words.sees("}"):
                self._words.expect(",")

        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _array(self) -> Schema:
        return {"type": "array", "items": self._kind().schema}

    def _enum(self) -> Schema:
        return {"enum": self._literals()}

    def _literal(self) -> Schema:
        return {"const": self._value()}

    def _union(self) -> Schema:
        if self._words.peek() is not None and not self._words.sees("["):
            self._value()  # The discriminator of a discriminatedUnion: each member has it.
            self._words.expect(",")

        self._words.expect("[")
        members: list[Schema] = []
        while not self._words.takes("]"):
            members.append(self._kind().schema)
            if not self._words.sees("]"):
                self._words.expect(",")

        return {"anyOf": members}

    def _record(self) -> Schema:
        first = self._kind().schema
        if not self._words.takes(","):
            return {"type": "object", "additionalProperties": first}

        names = {} if first == {"type": "string"} else {"propertyNames": first}
        return {"type": "object", **names, "additionalProperties": self._kind().schema}

    def _literals(self) -> list[Any]:
        self._words.expect("[")
        values: list[Any] = []
        while not self._words.takes("]"):
            values.append(self._value())
            if not self._words.sees("]"):
                self._words.expect(",")

        return values

    def _value(self) -> Any:
        negative = self._words.takes("-")
        word = self._words.next()
        match word.kind, word.text:
            case "number", _:
                return -number_of(word) if negative else number_of(word)
            case "text", text:
                return text
            case "name", ("true" | "false") as text:
                return text == "true"
            case "name", "null":
                return None
            case "mark", "[" if self._words.takes("]"):
                return []
            case "mark", "{" if self._words.takes("}"):
                return {}
            case _:
                self._refuse(f"Expected a plain value, found {word.source!r}")

    # --- .… -----------------------------------------------------------------------------------

    def _method(self, kind: _Kind, name: str) -> None:
        self._words.expect("(")
        arguments: list[Any] = []
        while not self._words.takes(")"):
            arguments.append(self._value())
            if not self._words.sees(")"):
                self._words.expect(",")

        match name:
            case "optional":
                kind.is_optional = True
            case "nullable":
                kind.schema = {"anyOf": [kind.schema, {"type": "null"}]}
            case "nullish":
                kind.schema = {"anyOf": [kind.schema, {"type": "null"}]}
                kind.is_optional = True
            case "default" if arguments:
                kind.schema["default"] = arguments[0]
                kind.is_optional = True
            case "describe" if arguments:
                kind.schema["description"] = arguments[0]
            case "array":
                kind.schema = {"type": "array", "items": kind.schema}
            case "strict":
                kind.schema["additionalProperties"] = False
            case "passthrough" | "loose":
                kind.schema["additionalProperties"] = True
            case "partial":
                kind.schema["required"] = []
            case "finite" | "safe" | "trim":
                pass
            case _:
                self._bound(kind, name, arguments)

    def _bound(self, kind: _Kind, name: str, arguments: list[Any]) -> None:
        """What limits a value; a second argument is zod's message and says nothing of data."""
        value = arguments[0] if arguments and isinstance(arguments[0], int | float) else None
        of = _BOUNDS.get(str(kind.schema.get("type")), {}).get(name)
        if of is None or (value is None and name not in _WITHOUT_NUMBER):
            self._refuse(f".{name}() is not known here")

        kind.schema |= of(value)

    def _refuse(self, message: str) -> NoReturn:
        raise self._words.fault(message)


_MAKERS: dict[str, Callable[[_Reader], Schema]] = {
    "object": _Reader._object,
    "strictObject": _Reader._object,
    "array": _Reader._array,
    "enum": _Reader._enum,
    "literal": _Reader._literal,
    "union": _Reader._union,
    "discriminatedUnion": _Reader._union,
    "record": _Reader._record,
    "string": lambda reader: {"type": "string"},
    "number": lambda reader: {"type": "number"},
    "int": lambda reader: {"type": "integer"},
    "boolean": lambda reader: {"type": "boolean"},
    "null": lambda reader: {"type": "null"},
    "any": lambda reader: {},
    "unknown": lambda reader: {},
}
_WITHOUT_NUMBER = frozenset(
    {"int", "positive", "negative", "nonnegative", "nonpositive", "nonempty", "email", "url"}
    | {"uuid", "datetime"}
)
_NUMBERS: dict[str, Callable[[Any], Schema]] = {
    "int": lambda _: {"type": "integer"},
    "positive": lambda _: {"exclusiveMinimum": 0},
    "negative": lambda _: {"exclusiveMaximum": 0},
    "nonnegative": lambda _: {"minimum": 0},
    "nonpositive": lambda _: {"maximum": 0},
    "min": lambda value: {"minimum": value},
    "gte": lambda value: {"minimum": value},
    "gt": lambda value: {"exclusiveMinimum": value},
    "max": lambda value: {"maximum": value},
    "lte": lambda value: {"maximum": value},
    "lt": lambda value: {"exclusiveMaximum": value},
    "multipleOf": lambda value: {"multipleOf": value},
}
_BOUNDS: dict[str, dict[str, Callable[[Any], Schema]]] = {
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "string": {
        "min": lambda value: {"minLength": value},
        "max": lambda value: {"maxLength": value},
        "length": lambda value: {"minLength": value, "maxLength": value},
        "nonempty": lambda _: {"minLength": 1},
        "email": lambda _: {"format": "email"},
        "url": lambda _: {"format": "uri"},
        "uuid": lambda _: {"format": "uuid"},
        "datetime": lambda _: {"format": "date-time"},
    },
    "array": {
        "min": lambda value: {"minItems": value},
        "max": lambda value: {"maxItems": value},
        "length": lambda value: {"minItems": value, "maxItems": value},
        "nonempty": lambda _: {"minItems": 1},
    },
}
