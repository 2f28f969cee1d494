"""The messages with which the command line ends, as the source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hankweave_server
from codegen.reference.declared import Undescribed
from hankweave_server.errors import ExitCode

_SOURCE = Path(hankweave_server.__file__).parent

Names = Mapping[str, tuple[ast.expr, ...]]
"""The values of a function's local names, and of the constants of its module."""


@dataclass(frozen=True, slots=True, order=True)
class EndMessage:
    """A message and its hint, with `…` for what differs, and its exit code."""

    text: str
    code: int
    hint: str


def end_message(text: str) -> EndMessage:
    """Return a message; raise Undescribed if the source does not have it."""
    for each in end_messages():
        if each.text == text:
            return each

    raise Undescribed(f"no Stop in the source says {text!r}")


@cache
def end_messages() -> tuple[EndMessage, ...]:
    """Return each message once, by its text; one that only passes on another is left out."""
    files = _SOURCE.rglob("*.py")
    return tuple(sorted({each for file in files for each in _in(ast.parse(file.read_text()), {})}))


def _in(node: ast.AST, names: Names) -> Iterator[EndMessage]:
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
        names = {**names, **_assigned(node)}

    match node:
        case ast.Call(
            func=ast.Name(id="Stop") | ast.Attribute(attr="__init__"),
            args=[message, ast.Attribute(value=ast.Name(id="ExitCode"), attr=code)],
        ):
            hints = [each.value for each in node.keywords if each.arg == "hint"]
            found = [text for each in hints for text in _texts(each, names) or ("…",)]
            hint = " ".join(filter(None, found))
            for text in _texts(message, names):
                if any(letter.isalpha() for letter in text):
                    yield EndMessage(text, ExitCode[code].value, hint)
        case _:
            pass

    for child in ast.iter_child_nodes(node):
        yield from _in(child, names)


def _assigned(scope: ast.AST) -> Names:
    """Return what a function, or the top level of a module, assigns to names."""
    found: dict[str, tuple[ast.expr, ...]] = {}
    for each in scope.body if isinstance(scope, ast.Module) else ast.walk(scope):
        match each:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ):
                found[name] = (*found.get(name, ()), value)
            case _:
                pass

    return found


def _texts(node: ast.expr, names: Names) -> tuple[str, ...]:
    """Return the literal texts of an expression, with `…` for each value in them.

    There is one for each alternative, and none if the text comes from elsewhere.
    """
    match node:
        case ast.Constant(value=str() as text):
            return (text.strip(),)
        case ast.JoinedStr(values=parts):
            return ("".join(map(_part, parts)).strip(),)
        case ast.IfExp(body=one, orelse=other):
            return _texts(one, names) + _texts(other, names)
        case ast.BoolOp(op=ast.Or(), values=values) | ast.Tuple(elts=values):
            return tuple(text for each in values for text in _texts(each, names))
        case ast.Call(func=ast.Attribute(attr="join") | ast.Name(id="filter"), args=args):
            return tuple(text for each in args for text in _texts(each, names))
        case ast.GeneratorExp(generators=[ast.comprehension(iter=source)]):
            return _texts(source, names)
        case ast.Name(id=name) if name in names:
            others = {key: values for key, values in names.items() if key != name}
            return tuple(text for each in names[name] for text in _texts(each, others))
        case _:
            return ()


def _part(node: ast.expr) -> str:
    match node.value if isinstance(node, ast.FormattedValue) else node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=str() as one)]):
            return f"… {one}s"
        case ast.Call(func=ast.Name(id="counted"), args=[_, _, ast.Constant(value=str() as more)]):
            return f"… {more}"
        case ast.Call(func=ast.Name(id="start_line")):
            return "hankweave run -e …"
        case ast.Call(func=ast.Name(id="command"), args=[ast.Constant(value=str() as words), _]):
            return f"`hankweave {words}`"
        case _:
            return "…"
