"""Claims about protocol/README.md: its examples are true, and it covers the whole protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec.inspect
import pytest

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS, Command
from hankweave_protocol.events import EVENTS, Event
from hankweave_protocol.records import CheckpointKind
from hankweave_protocol.shapes import Typed
from hankweave_protocol.state import CodonStatus
from hankweave_protocol.transitions import TRANSITIONS
from support.readme_examples import Example, Wrong, decoded, error_codes, examples, rows

EXAMPLES = examples()
ROWS = rows()


def label(example: Example) -> str:
    return example.name


@pytest.mark.parametrize("example", EXAMPLES, ids=label)
def test_an_example_is_what_the_codec_writes(example: Example) -> None:
    """Every example decodes, and encoded again it is the same JSON, field for field."""
    assert json.loads(codec.encode(decoded(example))) == json.loads(example.text)


def test_the_page_has_an_example_of_every_command() -> None:
    """Each command can be copied from the page."""
    shown = {command.type for command in map(decoded, EXAMPLES) if isinstance(command, Command)}
    assert shown == set(COMMANDS.names)


def test_the_page_shows_every_event_that_carries_a_rollback_or_a_codon() -> None:
    """Events that a client must follow have an example, not only a row."""
    shown = {event.type for event in map(decoded, EXAMPLES) if isinstance(event, Event)}
    wanted = {
        "server.ready",
        "server.idle",
        "server.started",
        "state.snapshot",
        "state.transition",
        "error",
        "codon.started",
        "codon.completed",
        "assistant.action",
        "tool.result",
        "token.usage",
        "file.updated",
        "files.changed",
        "checkpoint.list",
        "checkpoint.pinned",
        "checkpoint.pruned",
        "store.consolidated",
        "rollback.started",
        "rollback.progress",
        "rollback.codonCheckpoint",
        "rollback.completed",
        "checkpoint.rollback",
        "rollback.told",
        "workspace.invalidated",
        "pong",
        "history.batch",
    }
    assert wanted <= shown


@pytest.mark.parametrize("status", get_args(CodonStatus))
def test_the_page_has_an_example_of_every_codon_state(status: str) -> None:
    """Each of the eight states is shown as it is in state.json."""
    states = [json.loads(example.text) for example in EXAMPLES if example.kind == "state"]
    assert status in {state["status"] for state in states}


@pytest.mark.parametrize(
    "name",
    [
        "runtime.lock",
        "runtime.lock.guard",
        "execution-meta.json",
        "state.json",
        "events.jsonl",
        "websocket.log",
        "rollback.intent",
        "prune.intent",
        "branch.intent",
        "redact.intent",
        "redactions",
    ],
)
def test_the_page_has_an_example_of_every_file(name: str) -> None:
    """Each JSON file of an execution directory is shown."""
    assert f"file {name}" in {example.kind for example in EXAMPLES}


@pytest.mark.parametrize(
    "member", [*COMMANDS.members.values(), *EVENTS.members.values()], ids=lambda m: m.__name__
)
def test_a_table_names_every_field(member: type[Typed]) -> None:
    """Each command and each event has a row, and the row names all fields of its data."""
    rows_of_it = ROWS.get(member.TYPE, [])
    shape = msgspec.inspect.type_info(member)
    assert isinstance(shape, msgspec.inspect.StructType)
    fields = [(field.encode_name, field.required) for field in shape.fields]
    wanted = [f"`{name}`" if required else f"`{name}?`" for name, required in fields]
    missing = [[name for name in wanted if name not in row] for row in rows_of_it]
    assert [] in missing, f"{member.TYPE}: {missing or 'no row'}"


@pytest.mark.parametrize("code", error_codes())
def test_a_table_explains_every_error_code(code: str) -> None:
    """Each code has a row with a meaning."""
    assert any(len(row.strip(" |")) > 3 for row in ROWS.get(code, []))


@pytest.mark.parametrize("kind", get_args(CheckpointKind))
def test_a_table_explains_every_kind_of_checkpoint(kind: str) -> None:
    """Each kind has a row that says when it is taken."""
    assert kind in ROWS


@pytest.mark.parametrize("transition", TRANSITIONS.names)
def test_the_page_names_every_transition(transition: str) -> None:
    """A program that folds the journal finds all transitions there."""
    page = Path(__file__).resolve().parents[2] / "protocol" / "README.md"
    assert f"`{transition}`" in page.read_text()


def test_a_table_names_no_command_that_does_not_exist() -> None:
    """A row with a type in it is a command, an event or another existing item."""
    types = {name for name in ROWS if "." in name and "/" not in name}
    assert types <= {*COMMANDS.names, *EVENTS.names}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('```json\n{"id": "1", "type": "ping"}\n```', "nothing says"),
        ('<!-- example: comand -->\n```json\n{"id": "1", "type": "ping"}\n```', "no kind"),
        ('<!-- example: command -->\n```json\n{"id": "1", "type": "pong"}\n```', "no command"),
        (
            '<!-- example: event -->\n```json\n{"id": "1", "timestamp": "t", "type": "codon.began",'
            ' "data": {}}\n```',
            "no event",
        ),
        (
            '<!-- example: event -->\n```json\n{"id": "1", "seq": 4, "timestamp": "t", "type": '
            '"pong", "data": {"message": "pong", "timestamp": "t"}}\n```',
            "not journaled",
        ),
        (
            "<!-- example: file events.jsonl -->\n```json\n{\n}\n```",
            "one line",
        ),
    ],
)
def test_a_wrong_example_is_found(text: str, reason: str, tmp_path: Path) -> None:
    """These tests can fail: an example without a comment, or one that differs from it, is found."""
    page = tmp_path / "README.md"
    page.write_text(f"Text.\n\n{text}\n")
    (example,) = examples(page)
    with pytest.raises(Wrong, match=reason):
        decoded(example)


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    """These tests can fail: a field that the codec does not know is missing from its output."""
    page = tmp_path / "README.md"
    page.write_text(
        '<!-- example: command -->\n```json\n{"id": "1", "type": "codon.forceStop", '
        '"data": {"raeson": "x"}}\n```\n'
    )
    (example,) = examples(page)
    assert json.loads(codec.encode(decoded(example))) != json.loads(example.text)
