"""`hankweave why`: the story behind one line of a file."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec

from hankweave_server.answers.authors import ChangeAuthor, authors_of, prompt_of, words_before
from hankweave_server.answers.blame import blame
from hankweave_server.answers.history import reading_history
from hankweave_server.cli.answers.blame import described, lines_of, path_in, within
from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.local.server_session import command
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, harmless, one_line
from hankweave_server.worktree.data_source import layout_of
from hankweave_server.worktree.names import shown

_PLACE = re.compile(r"(.+):([0-9]{1,9})", re.ASCII | re.DOTALL)
_HUNK = re.compile(rb"^@@ -\S+ \+([0-9]+)(?:,([0-9]+))? @@", re.MULTILINE)
_MOST_LINES = 12
"""Lines of a prompt or a message that a terminal shows."""


@click.command()
@click.argument("place", metavar="PATH:LINE")
@click.option(
    "--at",
    metavar="SHA",
    shell_complete=completions.checkpoints,
    help="The line in this checkpoint, or at the end of this step. Default: the newest.",
)
@execution_option
@json_option
def why(place: str, at: str | None, execution: Path | None, as_json: bool) -> None:
    """Tell the story behind a line: the prompt, the agent's words, the call and its change.

    No server is needed.

    \b
    hankweave why src/main.py:13
    hankweave why src/main.py:13 --at 6dc2daae
    """
    why_line(root_of(execution), place, at, as_json)


def is_line(place: str) -> bool:
    """Return whether a text names a line of a file."""
    return _PLACE.fullmatch(place) is not None


def why_line(root: Path, place: str, at: str | None, as_json: bool) -> None:
    """Print the story behind a line, which is named as `PATH:LINE`."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise click.UsageError(f"{place!r} does not name a line; use a form like src/main.py:13.")

    layout, number = layout_of(root), int(found[2])
    with reading_history(layout) as past:
        files, path = past.files, path_in(layout, Path(found[1]))
        newest = files.file_at(past.named(at), path)
        texts = lines_of(files.content(newest.blob))
        line = within(path, len(texts), number, number)
        (blamed,) = blame(newest, len(texts), [line], files)
        later = list(files.later(blamed.version, newest))
        authors = authors_of(past, ((each.sha, each.path) for each in (blamed.version, *later)))
        author = authors[blamed.version.sha, blamed.version.path]
        story = LineStory(
            path=shown(path),
            line=number,
            text=texts[line[0]].decode("utf-8", "backslashreplace"),
            author=author,
            prompt=prompt_of(past, author),
            words=words_before(past, author),
            patch=hunk_with(files.patch(blamed.version), blamed.origin + 1).decode(
                "utf-8", "backslashreplace"
            ),
            later=tuple(authors[each.sha, each.path] for each in later),
        )

    if as_json:
        print_json(story)
    else:
        _tell(story, layout)


class LineStory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a line came to be, as `hankweave why --json` prints it."""

    path: str
    line: int
    text: str
    author: ChangeAuthor
    prompt: str | None
    """Of the step; the names of files if the hank has it in files."""
    words: str | None
    """What the model wrote before the call."""
    patch: str
    """The part of the change that has the line."""
    later: tuple[ChangeAuthor, ...]
    """The changes of the file since, newest first."""


def hunk_with(patch: bytes, line: int) -> bytes:
    """Return the hunk of a diff that has a line of the new file; the diff if there is none."""
    hunks = list(_HUNK.finditer(patch))
    ends = [each.start() for each in hunks[1:]] + [len(patch)]
    for hunk, end in zip(hunks, ends, strict=True):
        first, count = int(hunk[1]), int(hunk[2] or 1)
        if first <= line < first + count:
            return patch[hunk.start() : end]

    return patch


def _tell(story: LineStory, layout: Layout) -> None:
    author = story.author
    click.echo(f"{one_line(story.path)}:{story.line}  {harmless(story.text)}")
    cost = "" if author.cost is None else f", ${author.cost:.4f}"
    model = "" if author.model is None or author.by != "agent" else f", {one_line(author.model)}"
    click.echo(f"{encodable(described(author))}{model}, {moment(author.timestamp)}{cost}")
    click.echo(f"checkpoint {author.checkpoint_sha[:12]} of run {author.run_id or '-'}")
    _say(f"Prompt of {author.codon_id}", story.prompt)
    _say("The agent's words before the call", story.words)
    if author.by != "initial" or author.codon_id is not None:
        click.echo("\nThe change:")
        click.echo(harmless(story.patch).rstrip("\n"))

    if story.later:
        newest = encodable(described(story.later[0]))
        click.echo(f"\n{counted(len(story.later), 'later change')} of the file; last: {newest}")

    if author.event_seq is not None and author.by == "agent":
        words = f"replay --seq {author.event_seq} --events"
        click.echo(f"\nThe transcript up to it: {command(words, layout.root)}")


def _say(title: str, text: str | None) -> None:
    if text:
        lines = harmless(text.strip()).split("\n")
        more = [f"({counted(len(lines) - _MOST_LINES, 'more line')})"]
        shortened = lines if len(lines) <= _MOST_LINES else lines[:_MOST_LINES] + more
        click.echo(f"\n{title}:")
        click.echo("\n".join(f"  {line}" for line in shortened))


COMMANDS = (why,)
