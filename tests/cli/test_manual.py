"""Claims about the commands' documentation: help, examples, and the page of all commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from codegen.commands_page import manual
from hankweave_server.cli.app import PLACES, cli
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


@pytest.mark.story("COMMANDS.md has every command and option as `--help` shows them.")
def test_the_page_is_what_the_commands_say() -> None:
    """COMMANDS.md has every command, option and example in its current form."""
    assert (TOP / "COMMANDS.md").read_text() == manual(), "run scripts/test --update-golden"


def test_the_readme_leads_to_every_command() -> None:
    """The table of the README names each command, and the page is linked."""
    page = (TOP / "README.md").read_text()
    assert "](COMMANDS.md)" in page
    table = page[page.index("## The command line") :]
    rows = "\n".join(line for line in table.split("\n") if line.startswith("| `"))
    for name in NAMES:
        assert re.search(rf"`(hankweave )?{name}\b", rows), name


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
