"""The files of the UI: read once, known by their addresses, each with a tag of its content.

A table knows no `..`: what is not in it cannot be asked for. A browser keeps what it was given and
asks each time whether it still holds (`no-cache` with an ETag), so that another version of the
server is never shown by the files of the former one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "/index.html"
TEXT = "text/plain; charset=utf-8"

# By name, not by the machine's own table: a module of the wrong type is not run by any browser.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": TEXT,
}


@dataclass(frozen=True, slots=True)
class Page:
    """What an address answers with."""

    body: bytes
    content_type: str
    etag: str | None = None
    """None for what is made anew each time."""


def read_pages() -> dict[str, Page]:
    """Gives the UI's files by their addresses; the bare `/` is its first page."""
    folder = files("hankweave_server.transport") / "web"
    pages = {f"/{name}": _page(name, body) for name, body in _below(folder, "")}
    return pages | {"/": pages[INDEX]}


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _below(entry, f"{name}/")
        else:
            yield name, entry.read_bytes()


def _page(name: str, body: bytes) -> Page:
    suffix = name[name.rfind(".") :]
    tag = hashlib.sha256(body).hexdigest()[:32]
    return Page(body, TYPES.get(suffix, TEXT), f'"{tag}"')
