"""Commands of the command line, settings, error codes, and files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from codegen.reference.declared import members, properties, required
from hankweave_protocol.errors import ErrorCode
from hankweave_server import config
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.paths import Layout

_EXAMPLE = re.compile(r"(hankweave|eval|cd) ")


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A command, as `--help` shows it."""

    name: str
    usage: str
    text: str
    options: list[tuple[str, str]]
    """Each option with its value, and its description."""


def cli_commands() -> Iterator[CliCommand]:
    group = click.Context(cli, info_name="hankweave", **cli.context_settings)
    for name in sorted(PLACES):
        command = cli.get_command(group, name)
        assert command is not None, "PLACES lists the commands"
        context = click.Context(command, info_name=name, parent=group)
        yield CliCommand(
            name,
            " ".join((f"hankweave {name}", *command.collect_usage_pieces(context))),
            "\n\n".join(_paragraphs(inspect.cleandoc(required(command.help, name)))),
            list(_options(command, context)),
        )


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs unchanged, and blocks that begin with `\\b` as code blocks."""
    for block in re.split(r"\n\s*\n", text):
        first, *lines = block.split("\n")
        if first.strip() != "\b":
            yield block
        else:
            language = "bash" if all(map(_is_of_an_example, lines)) else "text"
            yield "\n".join((f"```{language}", *lines, "```"))


def _is_of_an_example(line: str) -> bool:
    return bool(_EXAMPLE.match(line)) or line.startswith("        ")


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    # A command keeps the names of the help option under which it was parsed first.
    of_help = click.Command(None).get_help_option(context)
    for parameter in (*command.params, of_help):
        assert parameter is not None, "the program has a help option"
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            required(parameter.help, record[0])
            yield record


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting, with its name at each source."""

    key: str
    variable: str
    option: str
    default: str
    text: str


def settings() -> Iterator[SettingRow]:
    for each in config.SETTINGS.values():
        text = required(each.about, each.key)
        if each.no_effect is not None:
            text = f"{text} No effect here: {each.no_effect}."

        if (why := each.refusal(True)) is not None:
            text = f"{text} Cannot be set: {why}."

        default = "" if each.default is None else f"`{_shown(each.default)}`"
        option = "" if each.option is None else f"`{each.option}`"
        yield SettingRow(each.key, each.variable, option, default, text)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error code, its cause, and what to do about it."""

    code: str
    anchor: str
    cause: str
    cure: str


def error_codes() -> Iterator[ErrorText]:
    """Yield all codes; the last paragraph below a code is its cure."""
    for member in sorted(members(ErrorCode), key=lambda each: each.name):
        *cause, cure = member.paragraphs
        required(" ".join(cause), f"the cause of {member.name}")
        yield ErrorText(member.name, ErrorCode(member.name).anchor, "\n\n".join(cause), cure)


def files() -> Iterator[tuple[str, str]]:
    """Yield each path of an execution, relative to its directory, with its description."""
    root = Path("/execution")
    layout = Layout(root, root / "agentRoot")
    found: dict[Path, str] = {}
    for name, text in properties(Layout).items():
        path = getattr(layout, name)
        if isinstance(path, Path):
            found.setdefault(path.relative_to(root), text)

    for path, text in sorted(found.items()):
        yield str(path), text
