"""The redactor: bytes, lines of a stream in any pieces, and values of the protocol."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from hankweave_protocol.attempts import AttemptRecord
from hankweave_protocol.commands import ExplorationStart
from hankweave_protocol.events import AgentOutput, AssistantAction, FileSource, FileUpdated, Info
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_server.agents.process.stdio import LineSplitter
from hankweave_server.redaction.redactor import NOTHING_KNOWN, LineRedactor, Redactor
from support.planted import FAMILIES, MARK

ODD = 'pass"word\\with\tésc'
KNOWN = Redactor({"SERVICE_TOKEN": "hunter2hunter2", "ODD_PASSWORD": ODD})


def streamed(pieces: list[bytes], redactor: Redactor, limit: int = 1 << 20) -> bytes:
    """Return what is written of a stream of lines that arrives in pieces."""
    splitter, lines = LineSplitter(limit), LineRedactor(redactor)
    found = [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()
    return b"\n".join(lines.redact(line.content, is_cut=line.dropped > 0) for line in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_secret_is_removed_from_a_stream_in_any_two_or_three_pieces(family: str) -> None:
    """Every split of a secret is caught, for key blocks also across lines."""
    source = random.Random(family)
    text = f"before {FAMILIES[family](source)} after\nnext line".encode()
    for at in range(len(text)):
        then = source.randrange(at, len(text))
        written = streamed([text[:at], text[at:then], text[then:]], NOTHING_KNOWN)
        assert MARK.encode() not in written
        assert written.startswith(b"before ")
        assert written.endswith(b"\nnext line")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_line_that_is_cut_within_a_secret_keeps_no_part_of_it(family: str) -> None:
    """Wherever a limit cuts a line, at most a prefix of the format is left."""
    text = f"x {FAMILIES[family](random.Random(family))} y".encode()
    begins = text.find(b"\n") if family == "private-key" else 3
    for limit in range(begins, len(text)):
        written = streamed([text, b"\n"], NOTHING_KNOWN, limit)
        assert MARK.encode() not in written


RED, RESET = "\x1b[1;31m", "\x1b[0m"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spelling", ["raw", "json", "json in json", "shell"])
def test_a_secret_with_a_colour_inside_is_removed(family: str, spelling: str) -> None:
    """Wherever the colour begins; text and colours around it stay."""
    source = random.Random(family)
    secret = FAMILIES[family](source)
    for at in range(1, len(secret)):
        text = f"{RED}see{RESET} {secret[:at]}{RED}{secret[at:]}{RESET} then"
        match spelling:
            case "json":
                text = json.dumps({"text": text})
            case "json in json":
                text = json.dumps({"text": json.dumps(text)})
            case "shell":
                text = text.replace("\x1b", "\\033")

        redacted = NOTHING_KNOWN.data(text.encode())
        assert MARK.encode() not in redacted
        assert b"see" in redacted
        assert b" then" in redacted
        assert NOTHING_KNOWN.is_needed(text.encode())
        assert NOTHING_KNOWN.findings(text.encode())
        if spelling.startswith("json"):
            json.loads(redacted)


def test_a_known_value_with_colours_inside_is_removed() -> None:
    """Each of several, and what is between them stays as it is."""
    value = f"hunter2{RED}hunter2"
    text = f"{RED}a{RESET} {value} {RED}b{RESET} h{RED}u{RESET}nter2hunter2{RESET} c {RED}hunter2"
    assert KNOWN.text(text) == (
        f"{RED}a{RESET} [redacted:SERVICE_TOKEN] {RED}b{RESET} [redacted:SERVICE_TOKEN]{RESET} c"
        f" {RED}hunter2"
    )
    plain = f"{RED}nothing{RESET} to hide".encode()
    assert KNOWN.data(plain) is plain


def test_a_coloured_key_block_is_removed_line_by_line() -> None:
    """As `cat` with colours prints it."""
    lines = ["-----BEGIN PRIVATE KEY-----", "MIIB" * 16, "AAAA" * 16, "-----END PRIVATE KEY-----"]
    coloured = "\n".join(f"{RED}{line}{RESET}" for line in lines)
    written = streamed([coloured.encode() + b"\nafter\n"], NOTHING_KNOWN)
    assert b"MIIB" not in written
    assert b"AAAA" not in written
    assert written.endswith(b"\nafter")


def test_a_known_value_is_cut_off_at_the_end_of_a_line() -> None:
    """The beginning of a known value is removed from a line that was cut."""
    assert KNOWN.cut_off(b"it is hunter2hun") == b"it is [redacted:SERVICE_TOKEN]"
    assert KNOWN.cut_off(b"it is hun") == b"it is hun"


def test_a_key_block_ends_where_other_text_begins() -> None:
    """A beginning without an end redacts what looks like a key, and nothing after it."""
    lines = [b"-----BEGIN PRIVATE KEY-----", b"MIIB" * 16, b"", b"It was cut off.", b"word"]
    written = streamed([b"\n".join(lines)], NOTHING_KNOWN).split(b"\n")
    assert written[0] == written[1] == b"[redacted:private-key]"
    assert written[-2:] == [b"It was cut off.", b"word"]


@pytest.mark.parametrize("value", ["hunter2hunter2", ODD])
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_known_value_is_found_within_json_within_json(value: str, levels: int) -> None:
    """A value with quotes and backslashes is found in each spelling, and JSON stays JSON."""
    text = f"say {value} twice: {value}"
    for _ in range(levels):
        text = json.dumps({"text": text}, ensure_ascii=False)

    redacted = KNOWN.text(text)
    assert value not in redacted
    assert redacted.count("[redacted:") == 2
    for _ in range(levels):
        redacted = json.loads(redacted)["text"]

    assert redacted.startswith("say [redacted:")


def test_every_line_of_a_known_value_is_a_secret() -> None:
    """A key in a variable is found where its lines are printed one by one."""
    redactor = Redactor({"DEPLOY_KEY": "first-line-of-it-1234\nsecond-line-of-it-5678\n"})
    assert redactor.text("> second-line-of-it-5678") == "> [redacted:DEPLOY_KEY]"


def test_an_event_is_redacted_and_stays_an_event() -> None:
    """Texts and free input lose their secrets; the event's own names stay."""
    call = AssistantAction(
        codon_id=CodonId("hunter2hunter2"),
        action="tool_use",
        content="",
        tool_name="Read",
        tool_input={"path": "hunter2hunter2", "deep": [{"id": "ghp_" + "a1" * 18}], "n": 1.5},
        tool_use_id="toolu_1",
    )
    redacted = KNOWN.value(call)
    assert redacted.codon_id == "hunter2hunter2"
    assert redacted.tool_input == {
        "path": "[redacted:SERVICE_TOKEN]",
        "deep": [{"id": "[redacted:github-token]"}],
        "n": 1.5,
    }
    assert msgspec.structs.replace(redacted, codon_id=call.codon_id, tool_input={}) == (
        msgspec.structs.replace(call, tool_input={})
    )


def test_a_value_without_secrets_is_the_same_object() -> None:
    """Nothing is copied where there is nothing to do."""
    event = Info(message="nothing to see")
    assert KNOWN.value(event) is event


def test_paths_that_a_rollback_needs_stay() -> None:
    """A path that happens to contain a value is not changed."""
    event = FileUpdated(
        path="docs/hunter2hunter2.md",
        filename="hunter2hunter2.md",
        action="created",
        sha256="",
        bytes=0,
        source=FileSource(kind="tool_use"),
    )
    assert KNOWN.value(event).path == "docs/hunter2hunter2.md"


def test_the_name_of_a_variant_is_a_text() -> None:
    """It is for people; a name by which something is found stays, next to it as well."""
    secret = "hunter2hunter2"
    variant = Variant(name=secret, prompt_text=secret, prompt_file=f"{secret}.md", model=secret)
    attempt = AttemptRecord(attempt_id=secret, variant=variant)
    redacted = KNOWN.value(attempt)
    mark = "[redacted:SERVICE_TOKEN]"
    assert redacted.attempt_id == secret
    assert redacted.variant == msgspec.structs.replace(variant, name=mark, prompt_text=mark)
    given = KNOWN.value(ExplorationStart(variants=(variant,)))
    assert given.variants == (redacted.variant,)


def test_findings_name_rules_and_lines_and_no_value() -> None:
    """A file's secrets are reported by rule and line."""
    content = b"a\nkey: ghp_" + b"a1" * 18 + b"\n\nhunter2hunter2\n"
    found = KNOWN.findings(content)
    assert [(each.rule, each.line) for each in found] == [
        ("github-token", 2),
        ("SERVICE_TOKEN", 4),
    ]
    assert "hunter2" not in repr(found)


def test_a_line_of_output_is_redacted() -> None:
    """The output of a plain program is redacted in its event."""
    output = AgentOutput(codon_id=CodonId("a"), stream="stdout", line="the sk-" + "a1" * 20)
    assert KNOWN.value(output).line == "the [redacted:openai-key]"
