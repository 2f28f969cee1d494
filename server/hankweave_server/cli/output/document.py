"""A document of facts and tables, as Markdown and as a web page (`page.html.j2`).

Texts may come from agents: in both forms they are escaped, so that they are shown as they are. The
page is one file without scripts, and refers to no other file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import click

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.fsutil import PRIVATE_FILE
from hankweave_server.plain_text import one_line

Tone = Literal["good", "bad", "warning", "busy", "plain"]

SUFFIXES = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}
"""The format that the extension of a file stands for."""

SHARED_FILE = 0o666
"""The mode of a new file; the umask restricts it."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A text with an address of this program's own making."""

    text: str
    address: str | None
    """None: a plain text."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A word that stands for a state."""

    text: str
    tone: Tone


Cell: TypeAlias = str | Anchor | Badge


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; columns without any content are left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: frozenset[str] = frozenset()
    """The columns that are aligned to the right."""

    def without_empty_columns(self) -> Table:
        kept = [i for i, _ in enumerate(self.columns) if any(row[i] != "" for row in self.rows)]
        return Table(
            tuple(self.columns[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in self.rows),
            self.numbers,
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a heading."""

    title: str
    table: Table
    note: str = ""
    """Sentences of this program below it; commands are in backquotes."""


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    facts: tuple[tuple[str, Cell], ...]
    sections: tuple[Section, ...]
    footer: str


# --- Markdown -------------------------------------------------------------------------------------


def markdown_text(text: str) -> str:
    """Return untrusted text as one line, with Markdown and HTML characters escaped."""
    line = one_line(" ".join(text.split()))
    return re.sub(r"([\\`*_{}\[\]<>|#~@!])", r"\\\1", line)


def markdown_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]
) -> list[str]:
    """Return the lines of a table; the cells are Markdown."""
    rules = ("---:" if column in numbers else "---" for column in columns)
    body = (f"| {' | '.join(row)} |" for row in rows)
    return [f"| {' | '.join(columns)} |", f"|{'|'.join(rules)}|", *body]


def as_markdown(document: Document) -> str:
    lines = [f"# {markdown_text(document.title)}", ""]
    lines += [f"- **{label}**: {_markdown_cell(cell)}" for label, cell in document.facts]
    for section in document.sections:
        table = section.table.without_empty_columns()
        rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
        lines += ["", f"## {section.title}", ""]
        lines += markdown_table(table.columns, rows, table.numbers)
        lines += ["", one_line(section.note)] if section.note else []

    return "\n".join([*lines, "", markdown_text(document.footer)]) + "\n"


def _markdown_cell(cell: Cell) -> str:
    match cell:
        case str():
            return markdown_text(cell)
        case Badge(text=text):
            return f"**{markdown_text(text)}**"
        case Anchor(text=text, address=address):
            shown = markdown_text(text)
            return shown if address is None else f"[{shown}](<{address}>)"
        case _:
            assert_never(cell)


# --- a web page -----------------------------------------------------------------------------------


def as_html(document: Document) -> str:
    """Return a whole page: readable in light and dark, and in print."""
    # Imported here because no other format needs it.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        # What a macro has made is escaped already.
        finalize=lambda text: text if hasattr(text, "__html__") else one_line(text),
    )
    return environment.get_template("page.html.j2").render(document=document) + "\n"


# --- delivery -------------------------------------------------------------------------------------


def deliver(report: str, file: Path | None, hint: str, *, is_secret: bool = False) -> None:
    """Print a report, or write it to a file; raise Stop with the hint if that fails.

    A secret one is written for the owner alone, also over a file that others could read.
    """
    if file is None:
        click.echo(report, nl=False)
        return

    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        mode = PRIVATE_FILE if is_secret else SHARED_FILE
        with open(os.open(file, flags, mode), "wb") as target:
            if is_secret and stat.S_ISREG(os.fstat(target.fileno()).st_mode):
                os.fchmod(target.fileno(), PRIVATE_FILE)

            target.write(report.encode())
    except OSError as error:
        raise unwritten(file, error.strerror, hint) from None


def unwritten(file: Path, why: str | None, hint: str) -> Stop:
    message = f"The report could not be written to {file}: {why}."
    return Stop(message, ExitCode.IO_ERROR, hint=hint)
