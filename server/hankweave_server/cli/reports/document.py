"""A document of facts and tables, as Markdown and as a web page.

Texts may come from agents: both renderers escape them, so that they are shown as they are. The page
is one file without scripts, and refers to no other file.
"""

from __future__ import annotations

import html
import os
import re
import stat
from collections.abc import Iterator, Sequence
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

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --dim: #57606a; --line: #d0d7de; --back: #fff;
  --stripe: #f6f8fa; --good: #116329; --bad: #a40e26; --warning: #7d4e00; --busy: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9da7b1; --line: #3d444d;
  --back: #0d1117; --stripe: #161b22; --good: #56d364; --bad: #ff8a80; --warning: #e3b341;
  --busy: #79c0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
a { color: var(--busy); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--stripe); }
.number { text-align: right; white-space: nowrap; }
.good, .bad, .warning, .busy { font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .warning { color: var(--warning); }
.busy { color: var(--busy); }
.note, footer { color: var(--dim); } footer { margin-top: 2.5rem; }
@media print { :root { --text: #000; --dim: #444; --line: #999; --back: #fff; --stripe: #fff;
  --good: #000; --bad: #000; --warning: #000; --busy: #000; }
  main { max-width: none; padding: 0; } .table { overflow: visible; } h2 { break-after: avoid; }
  thead { display: table-header-group; } tr { break-inside: avoid; } }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(document: Document) -> str:
    """Return a whole page: readable in light and dark, and in print."""
    title = _escaped(document.title)
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
    )
    facts = (
        f"<dt>{_escaped(name)}</dt><dd>{_html_cell(cell)}</dd>" for name, cell in document.facts
    )
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        *head,
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{title}</h1>",
        "<dl>",
        *facts,
        "</dl>",
        *(line for section in document.sections for line in _html_section(section)),
        f"<footer>{_escaped(document.footer)}</footer>",
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _html_section(section: Section) -> Iterator[str]:
    table = section.table.without_empty_columns()
    kinds = [' class="number"' if column in table.numbers else "" for column in table.columns]
    names = zip(table.columns, kinds, strict=True)
    yield f"<section><h2>{_escaped(section.title)}</h2>"
    yield '<div class="table"><table>'
    heads = (f'<th scope="col"{kind}>{_escaped(name)}</th>' for name, kind in names)
    yield f"<thead><tr>{''.join(heads)}</tr></thead>"
    yield "<tbody>"
    for row in table.rows:
        cells = zip(row, kinds, strict=True)
        yield f"<tr>{''.join(f'<td{kind}>{_html_cell(cell)}</td>' for cell, kind in cells)}</tr>"

    yield "</tbody></table></div>"
    if section.note:
        note = re.sub(r"`([^`]+)`", r"<code>\1</code>", _escaped(section.note))
        yield f'<p class="note">{note}</p>'

    yield "</section>"


def _html_cell(cell: Cell) -> str:
    match cell:
        case str():
            return _escaped(cell)
        case Badge(text=text, tone=tone):
            return f'<span class="{tone}">{_escaped(text)}</span>'
        case Anchor(text=text, address=address):
            shown = _escaped(text)
            return shown if address is None else f'<a href="{html.escape(address)}">{shown}</a>'
        case _:
            assert_never(cell)


def _escaped(text: str) -> str:
    return html.escape(one_line(text))


# --- delivery -------------------------------------------------------------------------------------


def hand_over(report: str, file: Path | None, hint: str, *, is_secret: bool = False) -> None:
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
