"""Claims about hints: each names what its reader has, and a command works when it is pasted.

On the command line, hints name commands, and no messages of the wire. On the wire, they name
fields, which every client has, and no options of the command line, except in a whole command.
A hint that reads differently in each place is a member of `Hint`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

import hankweave_server
from hankweave_protocol import commands
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.hints import Hint
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.local.hints import WORDS, terminal_hint
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


def texts_of_hints(path: Path) -> list[str]:
    """Return the texts that a module gives as hints, without those of `Hint`."""
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


def test_every_hint_that_names_the_wire_is_declared() -> None:
    """A hint outside of `Hint` reads the same for every client."""
    hints = [hint for path in SERVER.rglob("*.py") for hint in texts_of_hints(path)]
    assert len(hints) > 200
    assert [hint for hint in hints if WIRE.search(hint)] == []


@pytest.mark.parametrize("hint", Hint)
def test_a_hint_that_names_the_wire_has_words_for_the_terminal(hint: Hint) -> None:
    assert hint != WORDS[hint]
    assert not WIRE.search(WORDS[hint])
    assert terminal_hint(hint) == WORDS[hint]


@pytest.mark.parametrize("hint", Hint)
def test_the_commands_for_a_hint_exist(hint: Hint) -> None:
    """The commands for hints exist with their options."""
    for line in re.findall(r"`hankweave ([^`]+)`", WORDS[hint]):
        verb, *words = shlex.split(line)
        assert verb in PLACES, line
        command = cli.get_command(click.Context(cli), verb)
        known = {opt for parameter in command.params for opt in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


def test_any_other_hint_reads_the_same() -> None:
    assert terminal_hint("Choose another path.") == "Choose another path."
    assert terminal_hint(None) is None


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
        case ast.Attribute(value=ast.Name(id="Hint"), attr=name):
            return WORDS[Hint[name]]
        case ast.Call(func=ast.Name(id="start_line")):
            return "hankweave run -e X"
        case _:
            return "X"


def whole_hints_in(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [
        shown(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg == "hint"
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


def texts_in(path: Path) -> Iterator[str]:
    """Yield the texts of a module, with X for what is known only when they are shown."""
    tree = ast.parse(path.read_text())
    no_texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        if id(node) in no_texts and isinstance(node, ast.Constant):
            continue  # A docstring.

        if isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str):
            yield shown(node)
        else:
            rest.extend(ast.iter_child_nodes(node))


OPTION = re.compile(r"(?<![\w-])--[a-z]")
WHOLE_COMMAND = re.compile(r"`hankweave [^`]+`")


def is_for_the_terminal_alone(text: str) -> bool:
    is_sentence = " " in text.strip()
    return is_sentence and OPTION.search(WHOLE_COMMAND.sub("", text)) is not None


def test_nothing_that_a_server_answers_names_an_option_of_the_terminal() -> None:
    """Another client may have sent the command, and has no options; it has a terminal at most."""
    assert is_for_the_terminal_alone("Name a checkpoint at which it passes with --good.")
    assert not is_for_the_terminal_alone("`hankweave fsck --repair` restores what can be found.")
    found = {
        f"{path.relative_to(SERVER)}: {text}"
        for room in ROOMS
        for path in (SERVER / room).rglob("*.py")
        for text in texts_in(path)
        if is_for_the_terminal_alone(text)
    }
    assert found == set()


def test_a_hint_about_a_start_is_a_command() -> None:
    """Instead of words such as "start the server on this execution"."""
    hints = [hint for path in SERVER.rglob("*.py") for hint in whole_hints_in(path)]
    assert any("`hankweave run -e X`" in hint for hint in hints)
    pattern = re.compile(r"[Ss]tart the server|[Aa] start of the server|restart the server")
    assert [hint for hint in hints if pattern.search(hint)] == []


def test_a_start_names_the_execution_even_if_it_is_the_usual_one(tmp_path: Path) -> None:
    """Without the option, `hankweave run` may begin a new execution."""
    hint = terminal_hint(Hint.ROLLBACK_IS_INCOMPLETE, tmp_path)
    assert hint.endswith(f"then `hankweave run -e {tmp_path}`.")
