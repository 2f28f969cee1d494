"""Claims about protocol/README.md and the reference: true examples of the whole protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec.inspect
import pytest

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS, Command
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS, Event
from hankweave_protocol.records import CheckpointKind
from hankweave_protocol.schema import hank_schema
from hankweave_protocol.shapes import Typed
from hankweave_protocol.state import CodonStatus
from hankweave_protocol.transitions import TRANSITIONS
from support.readme_examples import (
    PAGES,
    REFERENCE,
    Example,
    Wrong,
    all_examples,
    decoded,
    examples,
    sections,
)

EXAMPLES = all_examples()
FILES = (REFERENCE / "files.md").read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_what_the_codec_writes(example: Example) -> None:
    """Every example decodes, and encoded again it is the same JSON, field for field."""
    assert json.loads(codec.encode(decoded(example))) == json.loads(example.text)


def test_each_command_has_an_example() -> None:
    """It can be copied from there."""
    shown = {command.type for command in map(decoded, EXAMPLES) if isinstance(command, Command)}
    assert shown == set(COMMANDS.names)


def test_each_event_that_a_client_must_follow_has_an_example() -> None:
    """A row of a table is not enough for them."""
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
def test_each_state_of_a_codon_has_an_example(status: str) -> None:
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
def test_each_file_has_an_example(name: str) -> None:
    """A person or a program may read each JSON file of an execution directory."""
    assert f"file {name}" in {example.kind for example in EXAMPLES}


@pytest.mark.parametrize(
    ("page", "member"),
    [
        *(("wire", member) for member in COMMANDS.members.values()),
        *(("events", member) for member in EVENTS.members.values()),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_each_field_of_a_command_or_event_is_in_its_table(page: str, member: type[Typed]) -> None:
    """Each command and each event has a section, with a row for each field of its data."""
    section = sections(page)[member.TYPE]
    shape = msgspec.inspect.type_info(member)
    assert isinstance(shape, msgspec.inspect.StructType)
    fields = [(field.encode_name, field.required) for field in shape.fields]
    wanted = [f"\n| `{name}` |" if required else f"\n| `{name}?` |" for name, required in fields]
    assert [row for row in wanted if row not in section] == []


@pytest.mark.parametrize("name", hank_schema()["$defs"])
def test_each_field_of_a_hank_is_in_its_table(name: str) -> None:
    """Each shape has a section, with a row for each of its fields."""
    section = sections("hank")[name]
    fields = hank_schema()["$defs"][name].get("properties", {})
    assert [field for field in fields if f"\n| `{field}` |" not in section] == []


@pytest.mark.parametrize("code", ErrorCode)
def test_each_error_code_has_a_cause_and_a_cure(code: ErrorCode) -> None:
    """Both are in the section of the code; the test of the command line finds it by its anchor."""
    cause, _, cure = sections("errors")[code].partition("**What to do.**")
    assert len(cause.split()) > 3
    assert len(cure.split()) > 2


@pytest.mark.parametrize("kind", get_args(CheckpointKind))
def test_each_kind_of_checkpoint_is_explained(kind: str) -> None:
    """Each kind has a row that says when it is taken."""
    assert f"\n| `{kind}` | " in FILES


@pytest.mark.parametrize("transition", TRANSITIONS.names)
def test_each_transition_is_described(transition: str) -> None:
    """A program that folds the journal finds all transitions there, with their fields."""
    assert f'<a id="shape-{transition.lower()}">' in FILES


def test_the_page_for_authors_of_clients_is_short() -> None:
    """It is read from beginning to end; the tables are in the reference."""
    assert len(PAGES[0].read_bytes()) <= 20_000


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
