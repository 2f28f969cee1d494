"""The documents: their pages, headings, links and code, and the source tree of the site.

`scripts/docs` builds the site, and `tests/test_documents.py` checks the pages. Run it to write the
source tree of the site:

    python tools/documents.py FOLDER

Links are relative to the file that they are in, so that they also work in a checkout. The source
tree of the site therefore has the same layout as the checkout: the pages, and the files that they
link to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

TOP = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "protocol/README.md")
"""Pages of the site that are not in docs/."""
CHECKED = ("README.md", *ROOT_PAGES[:2], "protocol/README.md", "examples/README.md")
"""Pages outside of docs/ whose links are checked. The changelog names files of its time."""

_ADDRESS = re.compile(r"<(?:img|a)\b[^>]*?\b(?:src|href)=\"([^\"]*)\"")
_NAMED = re.compile(r"<a\b[^>]*?\b(?:id|name)=\"([^\"]*)\"")
_PAGE = re.compile(r"(?:docs|protocol|examples)/[\w./-]+\.md")
_HTML = ("html_block", "html_inline")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    line: int
    language: str
    text: str
    above: str
    """The line above it, which may be a comment for a test."""


def pages_of_docs() -> list[Path]:
    return sorted(TOP.glob("docs/**/*.md"))


def checked_pages() -> list[Path]:
    return [*(TOP / name for name in CHECKED), *pages_of_docs()]


@cache
def _tokens(page: Path) -> tuple[Token, ...]:
    parser = MarkdownIt("commonmark").enable("table")
    return tuple(parser.parse(page.read_text()))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    lines = ["", *page.read_text().splitlines()]
    return [
        Block(
            _line(token),
            token.info.partition(" ")[0],
            token.content,
            above=lines[_line(token) - 1].strip(),
        )
        for token in _tokens(page)
        if token.type == "fence"
    ]


def _parts(page: Path) -> Iterator[tuple[int, Token]]:
    """Yield text, links and HTML of a page, each with the line on which its paragraph begins."""
    line = 0
    for token in _tokens(page):
        line = _line(token) or line
        yield from ((line, part) for part in token.children or [token])


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the target of each link and picture of a page."""
    for line, part in _parts(page):
        if part.type in _HTML:
            yield from ((line, target) for target in _ADDRESS.findall(part.content))
        elif part.type in ("link_open", "image"):
            yield line, str(part.attrs["href" if part.type == "link_open" else "src"])


def code_spans(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each code span of a page."""
    return ((line, part.content) for line, part in _parts(page) if part.type == "code_inline")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page: its headings, by GitHub's rule and the site's, and its HTML's.

    A link names one of them after `#`.
    """
    found: list[str] = []
    for heading, inline in pairwise(_tokens(page)):
        if heading.type == "heading_open":
            slug = _slug(inline)
            times = sum(slug == re.sub(r"-\d+$", "", each) for each in found)
            found.append(f"{slug}-{times}" if slug in found else slug)
    for _, part in _parts(page):
        if part.type in _HTML:
            found += _NAMED.findall(part.content)
    return frozenset(found)


def _slug(inline: Token) -> str:
    text = "".join(
        each.content for each in inline.children or () if each.type in ("text", "code_inline")
    )
    return re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    """Return a sentence for each link to a file or a heading that is not there.

    A code span that names a page is a link, too.
    """
    named = ((line, f"/{span}") for line, span in code_spans(page) if _PAGE.fullmatch(span))
    return [
        f"{page.relative_to(TOP)}:{line}: {fault}"
        for line, target in [*links(page), *named]
        if (fault := _fault(page, target)) is not None
    ]


def _fault(page: Path, target: str) -> str | None:
    file, anchor = _file(page, target), target.partition("#")[2]
    if file is None:
        return None

    if not file.is_relative_to(TOP) or not file.exists():
        return f"{target} does not exist"

    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{target}: no heading has this name"

    return None


def _file(page: Path, target: str) -> Path | None:
    """Return the file that a link leads to, or None if it leads to another host."""
    if re.match(r"[a-z]+:", target):
        return None

    path = unquote(target.partition("#")[0])
    base = TOP if path.startswith("/") else page.parent
    return (base / path.lstrip("/")).resolve() if path else page


def unnested_blocks(page: Path) -> list[str]:
    """Return a sentence for each block that is in an item of a list on GitHub only.

    The site's parser takes a block for a part of an item if it is indented by four columns.
    """
    lines = ["", *page.read_text().splitlines()]
    found, items = [], 0
    for token in _tokens(page):
        items += {"list_item_open": 1, "list_item_close": -1}.get(token.type, 0)
        line = lines[_line(token)]
        is_block = token.type in ("fence", "paragraph_open", "table_open", "list_item_open")
        depth = items - (token.type == "list_item_open")
        indent = len(line) - len(line.lstrip())
        if is_block and indent < 4 * depth and not _begins_an_item(token, line):
            place = f"{page.relative_to(TOP)}:{_line(token)}"
            found.append(f"{place}: indent it by {4 * depth} columns")
    return found


def _begins_an_item(token: Token, line: str) -> bool:
    """Return whether a paragraph is the first of its item, on the line of the item's mark."""
    marked = re.match(r"\s*(?:[-*+]|\d+[.)])\s", line) is not None
    return marked and token.type != "list_item_open"


def write_tree(folder: Path) -> None:
    """Write the source tree of the site: links to the pages, and to the files that they name."""
    files = {*(TOP / name for name in ROOT_PAGES), *TOP.glob("docs/**/*")}
    for page in [file for file in files if file.suffix == ".md"]:
        found = (_file(page, target) for _, target in links(page))
        files |= {file for file in found if file is not None and file.is_relative_to(TOP)}
    for file in sorted(file for file in files if file.is_file()):
        place = folder / file.relative_to(TOP)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


if __name__ == "__main__":
    write_tree(Path(sys.argv[1]))
