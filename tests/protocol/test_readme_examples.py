"""Claims about protocol/README.md and the reference: true examples of the whole protocol."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import msgspec.inspect
import pytest

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS, Command
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS, Event
from hankweave_protocol.records import CheckpointKind
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
    error_codes,
    examples,
    sections,
)

EXAMPLES = all_examples()


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
    ("page", "member"),
    [
        *(("wire", member) for member in COMMANDS.members.values()),
        *(("events", member) for member in EVENTS.members.values()),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_table_names_every_field(page: str, member: type[Typed]) -> None:
    """Each command and each event has a section, with a row for each field of its data."""
    section = sections(page)[member.TYPE]
    shape = msgspec.inspect.type_info(member)
    assert isinstance(shape, msgspec.inspect.StructType)
    fields = [(field.encode_name, field.required) for field in shape.fields]
    wanted = [f"\n| `{name}` |" if required else f"\n| `{name}?` |" for name, required in fields]
    assert [row for row in wanted if row not in section] == []


@pytest.mark.parametrize("code", error_codes())
def test_a_section_explains_every_error_code(code: str) -> None:
    """Each code has a section with a cause and a cure, where `anchor` leads."""
    cause, _, cure = sections("errors")[code].partition("**What to do.**")
    assert len(cause.split()) > 3
    assert len(cure.split()) > 2
    assert f'<a id="{ErrorCode(code).anchor}"></a>\n\n## {code}\n' in page_of("errors")


@pytest.mark.parametrize("kind", get_args(CheckpointKind))
def test_a_table_explains_every_kind_of_checkpoint(kind: str) -> None:
    """Each kind has a row that says when it is taken."""
    assert f"\n| `{kind}` | " in page_of("files")


@pytest.mark.parametrize("transition", TRANSITIONS.names)
def test_the_page_names_every_transition(transition: str) -> None:
    """A program that folds the journal finds all transitions there, with their fields."""
    assert f'<a id="shape-{transition.lower()}">' in page_of("files")


@pytest.mark.parametrize(("page", "names"), [("wire", COMMANDS.names), ("events", EVENTS.names)])
def test_no_section_names_what_does_not_exist(page: str, names: Collection[str]) -> None:
    """A heading with a type in it is a command or an event."""
    assert {name for name in sections(page) if "." in name} <= set(names)


def test_the_page_for_authors_of_clients_is_short() -> None:
    """It is read from beginning to end; the tables are in the reference."""
    assert len(PAGES[0].read_bytes()) <= 20_000


def page_of(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


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
