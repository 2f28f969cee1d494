"""Render a schema as Python: a literal type per vocabulary, a dataclass and a check per object.

Pure: the same schema always produces the same text.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

LINE_LENGTH = 100
PYTHON_TYPES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "null": "None",
}


def init_of(root: str) -> str:
    names = [*sorted([root, "Invalid", "Problem"]), "parse", "problems_of"]
    exported = _list("__all__ = [", [_text(name) for name in names], "]")
    return f'''"""Typed, validated records: `parse` makes one of a row. Generated."""

from .checks import Invalid, Problem
from .records import {root}, parse, problems_of

{exported}
'''


def records_of(root: str, schema: Schema) -> str:
    nodes = list(_nodes(root, schema))
    objects = [(name, node) for name, node in nodes if node["type"] == "object"]
    words = "\n".join(_words(name, node) for name, node in nodes if "enum" in node)
    header = f'''"""The records of schema/earthquake.schema.json. Generated from the schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from .checks import Invalid, Problem, positions, record, scalar

{words}


def parse(value: object) -> {root}:
    """Makes a record of one row, or raises Invalid with every problem of the row."""
    problems = problems_of(value)
    if problems:
        raise Invalid(problems)

    return _make_{_snake(root)}(value)


def problems_of(value: object) -> tuple[Problem, ...]:
    return tuple(_check_{_snake(root)}(value, ""))
'''
    blocks = [header]
    blocks += [_dataclass(name, node) for name, node in objects]
    blocks += [_maker(name, node) for name, node in objects]
    return "\n\n".join(blocks) + "\n\n" + "\n".join(_checker(*each) for each in objects)


def class_names_of(root: str, schema: Schema) -> list[str]:
    return [name for name, node in _nodes(root, schema) if node["type"] == "object"]


def _nodes(name: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schema and its inner objects with their names, the innermost first."""
    for member, node in schema.get("properties", {}).items():
        yield from _nodes(_inner(name, member), node)

    for index, node in enumerate(schema.get("prefixItems", [])):
        yield from _nodes(_inner(name, str(index)), node)

    yield name, schema


def _words(name: str, schema: Schema) -> str:
    return _list(f"{name} = Literal[", [_text(word) for word in _vocabulary(schema)], "]")


def _dataclass(name: str, schema: Schema) -> str:
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:"]
    for member, node in schema["properties"].items():
        types = _annotations(_inner(name, member), node)
        if member in schema["required"]:
            lines.append(f"    {_snake(member)}: {' | '.join(types)}")
        else:
            types = [*types, "None"] if "None" not in types else types
            lines.append(f"    {_snake(member)}: {' | '.join(types)} = None")

    return "\n".join(lines) + "\n"


def _annotations(name: str, schema: Schema) -> list[str]:
    types = _types(schema)
    if types == ["object"]:
        return [name]
    if types == ["array"]:
        items = [
            " | ".join(_annotations(_inner(name, str(index)), item))
            for index, item in enumerate(schema["prefixItems"])
        ]
        return [f"tuple[{', '.join(items)}]"]

    return [name if each == "string" and "enum" in schema else PYTHON_TYPES[each] for each in types]


def _maker(name: str, schema: Schema) -> str:
    lines = [f"def _make_{_snake(name)}(value: Any) -> {name}:", f"    return {name}("]
    for member, node in schema["properties"].items():
        source = f"value[{_text(member)}]"
        if node["type"] == "object":
            source = f"_make_{_snake(_inner(name, member))}({source})"
        elif node["type"] == "array":
            source = f"tuple({source})"
        if member not in schema["required"]:
            source = f"{source} if {_text(member)} in value else None"
        lines.append(f"        {_snake(member)}={source},")

    return "\n".join([*lines, "    )\n"])


def _checker(name: str, schema: Schema) -> str:
    lines = [f"_check_{_snake(name)} = record(", "    {"]
    for member, node in schema["properties"].items():
        lines.append(_check(f"        {_text(member)}: ", _inner(name, member), node))

    optional = [member for member in schema["properties"] if member not in schema["required"]]
    lines.append("    },")
    if optional:
        lines.append(_list("    optional=frozenset({", [_text(each) for each in optional], "}),"))

    return "\n".join([*lines, ")\n"])


def _check(opening: str, name: str, schema: Schema) -> str:
    types = _types(schema)
    if types == ["object"]:
        return f"{opening}_check_{_snake(name)},"
    if types == ["array"]:
        margin = " " * (_indent(opening) + 4)
        items = [
            _check(margin, _inner(name, str(index)), item)
            for index, item in enumerate(schema["prefixItems"])
        ]
        return "\n".join([f"{opening}positions(", *items, f"{' ' * _indent(opening)}),"])

    arguments = [_text(each) for each in types]
    arguments += [f"{bound}={schema[bound]}" for bound in ("minimum", "maximum") if bound in schema]
    if "enum" in schema:
        words = f"get_args({name})"
        arguments.append(f"enum=(*{words}, None)" if None in schema["enum"] else f"enum={words}")

    return _list(f"{opening}scalar(", arguments, "),")


def _list(opening: str, items: list[str], closing: str) -> str:
    """Put the items on one line if they fit, otherwise each on its own line."""
    one_line = f"{opening}{', '.join(items)}{closing}"
    if len(one_line) <= LINE_LENGTH:
        return one_line

    margin = " " * _indent(opening)
    return "\n".join([opening, *(f"{margin}    {item}," for item in items), f"{margin}{closing}"])


def _types(schema: Schema) -> list[str]:
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if len(types) > 1 and {"object", "array"} & {*types}:
        raise ValueError(f"No Python type is known for a field that is {' or '.join(types)}.")

    return types


def _vocabulary(schema: Schema) -> list[str]:
    return [word for word in schema["enum"] if word is not None]


def _inner(parent: str, member: str) -> str:
    return parent + "".join(word.title() for word in _snake(member).split("_"))


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W", "_", name).lower()
    return f"{words}_" if keyword.iskeyword(words) else words


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
