"""Claims about hints: on the command line they name commands, not messages of the wire."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import msgspec
import pytest

import hankweave_server
from hankweave_protocol import commands
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.local.server_session import for_a_person
from support.documented_commands import calls, fault

SERVER = Path(hankweave_server.__file__).parent
ROOMS = ("domain", "api", "execution", "checkpoints", "ledger")
FIELDS = {
    field.encode_name
    for each in vars(commands).values()
    if isinstance(each, type) and issubclass(each, msgspec.Struct)
    for field in msgspec.structs.fields(each)
    if not field.encode_name.islower()
}
"""Fields of commands that are no words: `checkpointSha`, for example."""

WIRE = re.compile(
    "|".join(rf"\b{re.escape(name)}\b" for name in [*COMMANDS.names, *EVENTS.names, *FIELDS])
    + r"|\bmax(Age|Count|Bytes)\w*\b"
)


def hints_in(path: Path) -> list[str]:
    """Return every text that is given as a hint in a module."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            texts = [
                each.value
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            found.append("".join(texts))

    return found


def all_hints() -> list[str]:
    return [
        hint for room in ROOMS for path in (SERVER / room).rglob("*.py") for hint in hints_in(path)
    ]


def test_no_hint_on_the_command_line_has_a_wire_name() -> None:
    """Every hint in the server's source is checked; some of them have a wire name there."""
    hints = all_hints()
    assert any(WIRE.search(hint) for hint in hints), "the search finds nothing any more"
    assert [hint for hint in hints if WIRE.search(for_a_person(hint) or "")] == []


def test_the_commands_in_hints_exist() -> None:
    """The commands in hints exist with their options."""
    for hint in all_hints():
        for line in re.findall(r"`hankweave ([^`]+)`", for_a_person(hint) or ""):
            verb, *words = shlex.split(line)
            assert verb in PLACES, line
            command = cli.get_command(click.Context(cli), verb)
            assert command is not None
            known = {opt for parameter in command.params for opt in parameter.opts}
            assert {word for word in words if word.startswith("-")} <= known, line


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (
            "Wait for codon.completed, or send codon.skip or codon.forceStop first.",
            "Wait until the codon has ended, or run `hankweave skip` or `hankweave stop` first.",
        ),
        ("checkpoint.list lists them all.", "`hankweave checkpoints` lists them all."),
        ("Choose another path.", "Choose another path."),
    ],
)
def test_a_hint_is_put_into_commands(wire: str, words: str) -> None:
    assert for_a_person(wire) == words


def shown(node: ast.AST) -> str:
    """Return the text of an expression, with X for what is known only when it is shown."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(shown, parts))
        case ast.FormattedValue(value=ast.Call() as call):
            return shown(call)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return shown(left) + shown(right)
        case ast.IfExp(body=one, orelse=other):
            return f"{shown(one)} {shown(other)}"
        case ast.Call(func=ast.Name(id="command" | "command_line"), args=[words, *_]):
            return f"`hankweave {shown(words)} -e X`"
        case _:
            return "X"


def whole_hints_in(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [
        for_a_person(shown(node.value)) or ""
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg == "hint"
    ]


def test_every_command_in_a_hint_is_understood_when_it_is_pasted() -> None:
    """All hints of the server and of the command line, with a stand-in for paths and ids."""
    lines = [
        line
        for path in SERVER.rglob("*.py")
        for hint in whole_hints_in(path)
        for line in re.findall(r"`(hankweave [^`]+)`", hint)
    ]
    assert len(lines) > 60
    wrong = {line: [fault(words) for words in calls(line)] for line in lines}
    assert {line: found for line, found in wrong.items() if found != [None]} == {}
