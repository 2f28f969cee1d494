"""Claims about the commands' documentation: help, examples, and the reference."""

from __future__ import annotations

import re
import shlex
import sys
from enum import Enum
from pathlib import Path

import click
import pytest

from codegen.reference.declared import Undescribed, members
from codegen.reference.messages import end_messages
from codegen.reference.pages import DOCS, PAGES, page
from hankweave_protocol.errors import ErrorCode
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.cli.output.text import complain, section_on
from support.command_line import hankweave

TOP = Path(__file__).resolve().parents[2]
NAMES = sorted(PLACES)


def help_of(name: str) -> str:
    return hankweave(name, "--help", code=0).stdout


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def examples_of(name: str) -> list[str]:
    """Return the example lines of the help."""
    text = command_of(name).help or ""
    return [line.strip() for line in text.split("\n") if line.strip().startswith("hankweave ")]


def unknown_options(line: str) -> list[str]:
    """Return options in a line that its command lacks; an unclosed quote ends the line."""
    name, *words = shlex.split(f"{line}'" if line.count("'") % 2 else line)[1:]
    known = {
        option
        for parameter in command_of(name).params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    given = [word.partition("=")[0] for word in words[: _end_of_options(words)]]
    return [word for word in given if re.fullmatch(r"-[a-z]|--[a-z-]+", word) and word not in known]


def _end_of_options(words: list[str]) -> int:
    ends = [words.index(word) for word in ("--", "&&", "|") if word in words]
    return min(ends, default=len(words))


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


@pytest.mark.parametrize("name", ["errors", "troubleshooting", "settings", "exit-codes"])
def test_a_page_names_no_command_that_does_not_exist(name: str) -> None:
    """What a reader is told to type is there."""
    text = (DOCS / PAGES[name]).read_text().partition("## All messages")[0]
    named = set(re.findall(r"`hankweave ([a-z]+)", text))
    assert named <= {*NAMES}


@pytest.mark.parametrize("code", ErrorCode)
def test_a_terminal_names_the_section_on_an_error(
    code: ErrorCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person can read on there; in a pipe, the message and the hint are all that is printed."""
    complain("No.", "Try again.", code)
    assert capsys.readouterr().err == "hankweave: No.\n  hint: Try again.\n"

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    complain("No.", None, code)
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


def test_what_has_no_description_does_not_get_into_the_reference() -> None:
    """The generator names it and fails."""
    with pytest.raises(Undescribed, match="SECOND has no description"):
        list(members(Undocumented))


@pytest.mark.parametrize("name", NAMES)
def test_every_help_has_examples_that_fit_the_command(name: str) -> None:
    """The console script prints them; they name this command, and only options that it has."""
    printed, examples = help_of(name), examples_of(name)
    if name == "completion":  # Its first lines are for `eval`.
        assert 'eval "$(hankweave completion bash)"' in printed
    else:
        assert any(line.split()[1] == name for line in examples)

    for line in examples:
        assert line.split(" -")[0] in printed
        assert unknown_options(line) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_does(name: str) -> None:
    """No option in the help lacks a description."""
    for parameter in command_of(name).params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, (name, parameter.name)


def test_an_option_that_is_not_there_is_found() -> None:
    """The check of the examples can fail."""
    assert unknown_options("hankweave gc --dry-run --wet-run -- --not-one") == ["--wet-run"]
