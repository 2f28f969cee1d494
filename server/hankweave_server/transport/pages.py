"""The files of the page, by their addresses.

The files are read once into a table. A path that is not in the table does not exist, so `..` has no
meaning. Each file has two addresses:

- its name below `/`. Browsers keep it and revalidate it each time (`no-cache` with an ETag of the
  content).
- its name below `/files/HASH/`, where the hash is that of all files. What is there never changes,
  so browsers do not ask again (`immutable`).

The index names its scripts and style sheets below the second one: a page that is opened again costs
one request, and files of another server version are never mixed with those of this one.

A browser learns what a module imports when it has read the module: without more, a page would take
as many turns as its longest chain of imports. So the index names every module that its scripts
import (`modulepreload`), and then those that follow after the first paint (`later`), which
`parts/later.js` turns into `modulepreload` at that time.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
KEPT = "files"
"""The folder of addresses whose content never changes."""

TEXT = "text/plain; charset=utf-8"

# Fixed here, not taken from the system's table: browsers do not run a module of a wrong type.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": TEXT,
}

GENERATED = "no-store"
REVALIDATED = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"

_SCRIPT = re.compile(r'<script type="module"[^>]* src="([^"]+)"')
_LOADED = re.compile(r'(<(?:script|link rel="stylesheet")[^>]* (?:src|href)=")')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_IMPORTED = re.compile(r'\b(?:import|export)\b[^;"()]*?\bfrom\s*"(\.[^"]+)"')
_IMPORTED_LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')


@dataclass(frozen=True, slots=True)
class Page:
    """The content served at one address."""

    body: bytes
    content_type: str
    etag: str | None = None
    """None for content that is generated for each request."""
    caching: str = GENERATED


def read_pages() -> dict[str, Page]:
    """Return the page's files by their addresses; `/` is the index."""
    folder = files("hankweave_server.transport") / "web"
    content = dict(_below(folder, ""))
    kept = f"{KEPT}/{_hash_of_all(content)}/"
    content[INDEX] = _with_modules(content, kept)
    pages = {f"/{name}": _page(name, body, REVALIDATED) for name, body in content.items()}
    pages |= {f"/{kept}{name}": _page(name, body, IMMUTABLE) for name, body in content.items()}
    return pages | {"/": pages[f"/{INDEX}"]}


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _below(entry, f"{name}/")
        else:
            yield name, entry.read_bytes()


def _hash_of_all(content: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(content):
        digest.update(f"{name}\n{len(content[name])}\n".encode() + content[name])

    return digest.hexdigest()[:16]


def _page(name: str, body: bytes, caching: str) -> Page:
    suffix = name[name.rfind(".") :]
    tag = hashlib.sha256(body).hexdigest()[:32]
    return Page(body, TYPES.get(suffix, TEXT), f'"{tag}"', caching)


# --- the modules of the index ---------------------------------------------------------------------


def _with_modules(content: Mapping[str, bytes], folder: str) -> bytes:
    """Return the index with its files in a folder, and with links to modules before its scripts."""
    index = content[INDEX].decode()
    modules = {
        name: _COMMENT.sub("", body.decode())
        for name, body in content.items()
        if name.endswith((".js", ".mjs"))
    }
    scripts = _SCRIPT.findall(index)
    first = _reached(modules, scripts, _IMPORTED)
    later = _reached(modules, scripts, _IMPORTED, _IMPORTED_LATER)[len(first) :]
    links = [
        f'<link rel="{kind}" href="{folder}{name}">\n'
        for kind, names in (("modulepreload", first), ("later", later))
        for name in names
    ]
    begin = index.index("<script ")
    index = _LOADED.sub(rf"\g<1>{folder}", index[:begin] + "".join(links) + index[begin:])
    return index.encode()


def _reached(
    modules: Mapping[str, str], start: Iterable[str], *imports: re.Pattern[str]
) -> list[str]:
    """Return the modules that the first ones import, directly or not; those first, too.

    What one kind of import reaches comes before what only the next one does.
    """
    found: dict[str, None] = dict.fromkeys(start)
    for count in range(1, len(imports) + 1):
        waiting = list(found)
        for name in waiting:
            text = modules[name]
            named = (each for kind in imports[:count] for each in kind.findall(text))
            for other in (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in named
            ):
                if other not in found:
                    found[other] = None
                    waiting.append(other)

    return list(found)
