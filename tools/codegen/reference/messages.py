"""The messages with which the command line ends, as the source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hankweave_server
from codegen.reference.declared import Undescribed
from hankweave_server.errors import ExitCode

_SOURCE = Path(hankweave_server.__file__).parent


@dataclass(frozen=True, slots=True, order=True)
class EndMessage:
    """A message, with `…` for what differs; its exit code and, if it is constant, its hint."""

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
    return tuple(sorted({each for file in _SOURCE.rglob("*.py") for each in _in(file)}))


def _in(file: Path) -> Iterator[EndMessage]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(
                args=[message, ast.Attribute(value=ast.Name(id="ExitCode"), attr=code)],
            ) if any(letter.isalpha() for letter in _text(message)):
                hints = [each.value for each in node.keywords if each.arg == "hint"]
                hint = " ".join(_text(each) for each in hints)
                yield EndMessage(_text(message), ExitCode[code].value, hint)
            case _:
                pass


def _text(node: ast.expr) -> str:
    """Return a literal text, with `…` for each value in it."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.FormattedValue():
            return "…"
        case _:
            return ""
