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
