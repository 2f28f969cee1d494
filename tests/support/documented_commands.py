"""The `hankweave` commands of documents: each must exist, with its options and choices."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

from documents import Block
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.cli.shared.invocation import AS_HANKWEAVE, translated
from hankweave_server.errors import Stop

SHELLS = {"bash", "sh", "shell", "console"}
HANKS = {"my-project", "the-hank", "[HANK]"}
"""Words that stand for a hank, in the command line of the original Hankweave."""
_OPERATOR = re.compile(r"[;&|()<>]+")
_STEP = re.compile(r"^\s*(?:- )?(?:run: )?")
_ASSIGNMENT = re.compile(r"\w+=")
_BEFORE = {"nohup", "sudo", "exec", "time", "--", "then", "do", "if", "!", "while", "$"}


def commands(block: Block) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the arguments of each call in a block of shell or of a session."""
    prompted = block.language == "console" or block.text.startswith("$ ")
    if block.language not in SHELLS and block.language != "yaml" and not prompted:
        return

    lines = block.text.replace("\\\n", " ").splitlines()
    for number, line in enumerate(lines, block.line + 1):
        if prompted and not line.startswith("$ "):
            continue

        # In the file of a workflow, a command follows `run:` or has a line of its own.
        command = _STEP.sub("", line) if block.language == "yaml" else line
        yield from ((number, words) for words in calls(command))


def calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `hankweave` in a line of shell."""
    words: list[str] = []
    for word in [*_words(line), ";"]:
        if not _OPERATOR.fullmatch(word):
            words.append(word)
            continue

        while words and (words[0] in _BEFORE or _ASSIGNMENT.match(words[0])):
            del words[0]
        if words[:1] == ["docker"] and "hankweave" in words[2:]:
            # `docker exec CONTAINER hankweave ...`; the image may have the name, too.
            del words[: len(words) - 1 - words[::-1].index("hankweave")]
        if words[:1] == ["hankweave"]:
            yield words[1:]
        elif words[:1] == ["./scripts/run"]:
            yield ["run", *words[1:]]
        words = []


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        # An open quote, as in a line of prose or of a here document.
        words = line.split()
    comment = next((n for n, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def fault(arguments: Sequence[str]) -> str | None:
    """Return what is wrong with a call, or None; nothing is run."""
    context = click.Context(cli, info_name="hankweave", **cli.context_settings)
    try:
        words = translated(list(arguments), PLACES)
        if words and words[0] in HANKS:
            words = ["run", AS_HANKWEAVE, *words]
        if not words or words[0] in ("--help", "-h", "--version", "COMMAND"):
            return None

        command = cli.get_command(context, words[0])
        if command is None:
            return f"there is no command {words[0]}"

        below = click.Context(command, context, words[0])
        values, _, _ = command.make_parser(below).parse_args(words[1:])
    except (click.UsageError, Stop) as error:
        return f"{error.message}"

    for option in command.params:
        chosen = values.get(option.name or "")
        if isinstance(option.type, click.Choice):
            for value in chosen if isinstance(chosen, list) else [chosen]:
                if (
                    isinstance(value, str)
                    and not value.isupper()
                    and value not in option.type.choices
                ):
                    return f"{option.opts[0]} cannot be {value}"

    return None
