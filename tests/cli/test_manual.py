"""Claims about the commands' documentation: help, examples, and the reference."""

from __future__ import annotations

import sys
from enum import Enum

import click
import pytest

from codegen.reference.declared import Undescribed, members
from codegen.reference.messages import end_messages
from codegen.reference.pages import DOCS, PAGES, page
from hankweave_protocol.errors import ErrorCode
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.cli.output.text import print_error, section_on
from support.command_line import hankweave
from support.documented_commands import calls, fault


@pytest.mark.story(
    "The reference has everything as the source declares it.", of="docs/troubleshooting.md"
)
def test_the_reference_is_what_the_source_says() -> None:
    """Each page has every command, field, setting, event, file and code in its current form."""
    for name, place in PAGES.items():
        assert (DOCS / place).read_text() == page(name), "run scripts/test --update-golden"


def test_every_message_at_the_end_says_what_to_do() -> None:
    """Each has a hint: what to type, what to correct, or why there is nothing to do."""
    assert [each.text for each in end_messages() if not each.hint] == []


@pytest.mark.parametrize("code", ErrorCode)
def test_a_terminal_names_the_section_on_an_error(
    code: ErrorCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person can read on there; in a pipe, the message and the hint are all that is printed."""
    print_error("No.", "Try again.", code)
    assert capsys.readouterr().err == "hankweave: No.\n  hint: Try again.\n"

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_error("No.", None, code)
    place = capsys.readouterr().err.split("see docs: ")[1].strip()
    page, _, anchor = place.partition("#")
    assert f'<a id="{anchor}"></a>\n\n## {code}\n' in (DOCS / PAGES[page]).read_text()


def test_an_error_without_a_known_code_has_no_section() -> None:
    """A newer server may send a code that this version does not know."""
    assert [section_on(code) for code in (None, "", "NONE_SUCH")] == ["", "", ""]


class Undocumented(Enum):
    """An enumeration that says too little."""

    FIRST = 1
    """The first."""
    SECOND = 2


def test_a_member_without_a_description_is_refused_by_the_reference() -> None:
    """The generator names it and fails."""
    with pytest.raises(Undescribed, match="SECOND has no description"):
        list(members(Undocumented))


@pytest.mark.parametrize("name", sorted(PLACES))
def test_the_help_of_a_command_has_valid_examples_of_it(name: str) -> None:
    """The console script prints them; they use only commands and options that exist."""
    command = cli.get_command(click.Context(cli), name)
    lines = [line.strip() for line in (command.help or "").split("\n")]
    examples = [line for line in lines if line.startswith("hankweave ")]
    printed = hankweave(name, "--help", code=0).stdout
    if name == "completion":  # Its first lines are for `eval`.
        assert 'eval "$(hankweave completion bash)"' in printed
    else:
        assert any(line.split()[1] == name for line in examples)

    for line in examples:
        assert line.split(" -")[0] in printed
        assert [words for words in calls(line) if fault(words)] == []
