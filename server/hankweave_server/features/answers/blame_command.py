"""`hankweave blame`: who has written each line of a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import msgspec

from hankweave_protocol.replies import BlamedRange, ChangeAuthor
from hankweave_server.cli.output.text import Parsed, encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.answers.authors import RIG
from hankweave_server.features.answers.local_past import reading_history
from hankweave_server.features.answers.stories import blame_of, lines_of
from hankweave_server.paths import Layout
from hankweave_server.plain_text import harmless, one_line
from hankweave_server.worktree.data_source import layout_of

_RANGE = re.compile(r"([0-9]{1,9})(?:,(?:(\+)?([0-9]{1,9}))?)?", re.ASCII)
_LONGEST_AUTHOR = 44


def _lines(text: str) -> tuple[int, int | None]:
    """Return a range of lines as git has it: `10,20`, `10,+5`, or `10` for all from there."""
    found = _RANGE.fullmatch(text)
    start = int(found[1]) if found else 0
    end = int(found[3]) if found and found[3] else None
    if found and found[2] and end is not None:
        end += start - 1

    if not start or (end is not None and end < start):
        raise ValueError(f"{text!r} is not a range of lines; use a form like 10,20.")

    return start, end


@click.command("blame")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-L", "lines", type=Parsed("lines", _lines), help="Only these lines, as 10,20 or 10,+5."
)
@completions.checkpoint_option(
    "--at",
    help="The file in this checkpoint, or at the end of this step. Default: the newest.",
)
@click.option("-C", "copies", is_flag=True, help="Also follow files that were copied.")
@execution_option
@json_option
def blame_command(
    path: Path,
    lines: tuple[int, int | None] | None,
    at: str | None,
    copies: bool,
    execution: Path | None,
    as_json: bool,
) -> None:
    """Show who has written each line of PATH: which call of which step, or a person.

    Lines are followed through renamed files, rollbacks and restores. No server is needed.

    \b
    hankweave blame src/main.py
    hankweave blame src/main.py -L 10,20 --at 6dc2daae
    """
    layout = layout_of(root_of(execution))
    with reading_history(layout, copies=copies) as past:
        name, sha = path_in(layout, path), past.named(at)
        found = blame_of(past, sha, name, *(lines or (1, None)))
        texts = lines_of(past.files.content(past.files.file_at(sha, name).blob))

    if as_json:
        print_json([_as_json(each) for each in found.ranges])
        return

    for each in found.ranges:
        _draw(each, texts)


def _as_json(blamed: BlamedRange) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(blamed)
    return {"from": fields.pop("from"), "to": fields.pop("to"), **fields}


def _draw(blamed: BlamedRange, texts: list[bytes]) -> None:
    who = encodable(described(blamed))
    if len(who) > _LONGEST_AUTHOR:
        who = f"{who[: _LONGEST_AUTHOR - 3]}..."

    cost = "" if blamed.cost is None else f"${blamed.cost:.4f}"
    when = moment(blamed.timestamp)
    margin = f"{blamed.checkpoint_sha[:8]}  {who:<{_LONGEST_AUTHOR}}  {cost:>8}  {when}"
    for number in range(blamed.from_line, blamed.to_line + 1):
        text = harmless(texts[number - 1].decode("utf-8", "backslashreplace"))
        click.echo(f"{margin} {number:>5}  {text}".rstrip())
        margin = " " * len(margin)


def described(author: ChangeAuthor) -> str:
    """Return an author in a few words."""
    match author.by:
        case "person":
            return "a person"
        case "initial" if author.call != RIG:
            return "was there at the start"
        case _:
            attempt = None if author.attempt is None else f"attempt {author.attempt}"
            parts = (author.codon_id, author.call or "agent", attempt)
            return " · ".join(one_line(part) for part in parts if part is not None)


def path_in(layout: Layout, path: Path) -> bytes:
    """Return a path relative to the work tree: from the current directory, if that is in it."""
    absolute = os.path.abspath(path)
    for folder in layout.inside[:2]:
        if absolute.startswith(folder + os.sep):
            return os.fsencode(absolute[len(folder) + 1 :])

    if path.is_absolute():
        raise Stop(
            f"{path} is not in the work tree.",
            ExitCode.NO_INPUT,
            hint=f"Name a file below {layout.work_tree}, or the execution with -e.",
        )

    return os.fsencode(os.path.normpath(path))


COMMANDS = (blame_command,)
