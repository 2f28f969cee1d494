"""HTTP before the WebSocket upgrade: access checks, and the few pages that the port serves.

A web page open in the user's browser can send requests to loopback, and a name it controls can
resolve to loopback (DNS rebinding). So Host must be one of the server's own addresses, and Origin,
if present, one of its own pages; `exposure` lists them. Both are compared as exact strings, never
as patterns. HTTP requests change nothing: every change goes over the WebSocket and is therefore
logged.

The files of the page are read once into a table. A path that is not in the table does not exist, so
`..` has no meaning. Each file has two addresses:

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

A feature has its part of the page in its folder `web`, whose files are served as if they lay among
those of the page. The pages name its script and style sheet, `NAME.js` and `NAME.css`, and the
gallery also `gallery-NAME.js` and `gallery-NAME.css`; `web/places.js` is where the scripts join.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import assert_never
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import Tokens
from hankweave_server import installed
from hankweave_server.transport.auth import (
    Admitted,
    Gate,
    Rejected,
    Role,
    TokenPending,
)
from hankweave_server.transport.exposure import Exposure
from hankweave_server.transport.server_api import ServerApi

SOCKET_PATHS = frozenset({"/", "/ws"})
WRONG_HOST = (
    "This host name is not allowed. Start the server with --public-url and the address that your "
    "browser shows, up to the port."
)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

INDEX = "index.html"
PAGES = (INDEX, "gallery.html")
TAGS = {
    "css": '<link rel="stylesheet" href="{}">\n',
    "js": '<script type="module" src="{}"></script>\n',
}
"""What a page names of a feature, by the ending of the file."""
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
class Upgrade:
    """The request may become a WebSocket; without a role the handshake must bring a token."""

    role: Role | None


class HttpHandler:
    """The handler of HTTP requests: an upgrade, a page, or a refusal for each."""

    def __init__(self, exposure: Exposure, port: int, gate: Gate, api: ServerApi) -> None:
        self._hosts = exposure.hosts(port)
        self._origins = exposure.origins(port)
        self._gate = gate
        self._api = api
        self._pages = read_pages()
        # A policy cannot name addresses in brackets; 'self' covers them.
        named = (origin for origin in self._origins if "[" not in origin)
        sockets = " ".join(sorted(_socket_origin(origin) for origin in named))
        self._policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
            f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )

    def judge(self, request: Request, peer: str) -> Upgrade | Response:
        """Decide about one request; `peer` is the address of the other end."""
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return self._text(HTTPStatus.FORBIDDEN, WRONG_HOST)

        origins = request.headers.get_all("Origin")
        if origins and (len(origins) != 1 or origins[0] not in self._origins):
            return self._text(HTTPStatus.FORBIDDEN, "This origin is not allowed.")

        # Split by hand: urllib raises for some invalid input.
        path, _, query = request.path.partition("?")
        if not _asks_for_upgrade(request.headers):
            return self._serve(request.method, path, request.headers.get_all("If-None-Match"))

        if path not in SOCKET_PATHS:
            return self._text(HTTPStatus.NOT_FOUND, "The WebSocket is at /ws.")

        tokens = parse_qs(query, keep_blank_values=True).get("token", [])
        admission = self._gate.admit(request.headers.get_all("Authorization"), tokens, peer)
        match admission:
            case Admitted(role):
                return Upgrade(role)
            case TokenPending():
                return Upgrade(None)
            case Rejected():
                return self._text(HTTPStatus.UNAUTHORIZED, "This token is not valid.")
            case _:
                assert_never(admission)

    def _serve(self, method: str, path: str, known: list[str]) -> Response:
        source = self._source(path)
        if source is None:
            return self._text(HTTPStatus.NOT_FOUND, "Not found.", method)

        if method not in {"GET", "HEAD"}:
            refusal = self._text(
                HTTPStatus.METHOD_NOT_ALLOWED, ("Only GET and HEAD are allowed."), method
            )
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal

        status, page = source()
        if page.etag is not None and page.etag in _listed(known):
            return self._response(HTTPStatus.NOT_MODIFIED, page, "HEAD")

        return self._response(status, page, method)

    def _source(self, path: str) -> Callable[[], tuple[HTTPStatus, Page]] | None:
        match path:
            case "/healthz":
                return lambda: self._health(self._api.health().alive)
            case "/readyz":
                return lambda: self._health(self._api.health().ready)
            case "/metrics":
                return lambda: (HTTPStatus.OK, Page(self._api.metrics(), METRICS_TYPE))
            case _:
                page = self._pages.get(path)
                return None if page is None else lambda: (HTTPStatus.OK, page)

    def _health(self, good: bool) -> tuple[HTTPStatus, Page]:
        body = msgspec.json.encode(self._api.health())
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        return status, Page(body, "application/json")

    def _text(self, status: HTTPStatus, sentence: str, method: str = "GET") -> Response:
        return self._response(
            status, Page(f"{sentence}\n".encode(), "text/plain; charset=utf-8"), method
        )

    def _response(self, status: HTTPStatus, page: Page, method: str) -> Response:
        headers = Headers(
            {
                "Connection": "close",
                "Content-Length": str(len(page.body)),
                "Content-Type": page.content_type,
                "Content-Security-Policy": self._policy,
                "X-Content-Type-Options": "nosniff",
                "X-Frame-Options": "DENY",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cache-Control": page.caching,
            }
        )
        if page.etag is not None:
            headers["ETag"] = page.etag

        body = b"" if method == "HEAD" else page.body
        return Response(status.value, status.phrase, headers, body)


def metrics_text(status: ServerStatus, running: Tokens) -> bytes:
    """Return the figures of a server in Prometheus' text format.

    `running` are the tokens that the running codon has used. There are no names in the figures:
    they are served without a token.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(status, running))
    return generate_latest(registry)


@dataclass(frozen=True, slots=True)
class _Figures(Collector):
    status: ServerStatus
    running: Tokens

    def collect(self) -> Iterator[Metric]:
        status, watch = self.status, self.status.watch
        yield _total("events", "Events in the journal.", status.last_event_seq)
        yield _total("checkpoints", "Checkpoints on record.", status.checkpoints)
        yield _gauge("clients", "Connected clients.", status.clients)
        yield _gauge("cost_dollars", "Cost of all runs in USD.", status.total_cost)
        tokens = _gauge("running_codon_tokens", "Tokens that the running codon has used.")
        for kind, count in (
            ("input", self.running.input_tokens),
            ("output", self.running.output_tokens),
            ("cache_read", self.running.cache_read_tokens),
            ("cache_write", self.running.cache_creation_tokens),
        ):
            tokens.add_metric([kind], count)

        yield tokens
        yield _gauge("problems", "What makes the server degraded.", len(status.problems))
        yield _gauge("uptime_seconds", "Time since the start.", status.uptime_ms / 1000)
        if watch is not None:
            yield _gauge("watch_active", "1 if scans look where something happened.", watch.active)
            yield _total("watched_scans", "Scans that did so.", watch.watched_scans)
            yield _total("full_scans", "Scans that compared all files.", watch.full_scans)

        if (mirror := status.mirror) is not None:
            yield _gauge("mirror_behind_events", "Events not yet mirrored.", mirror.events_behind)
            yield _gauge(
                "mirror_behind_seconds",
                "Time since the last push, if events are behind.",
                mirror.seconds_behind,
            )
            yield _total("mirror_sent_bytes", "Bytes sent to the mirror.", mirror.sent_bytes)
            yield _gauge("mirror_lease_held", "1 if the lease is held.", mirror.lease_held)


def _total(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(f"hankweave_{name}", text, value=value)


def _gauge(name: str, text: str, value: float | None = None) -> GaugeMetricFamily:
    labels = ["type"] if value is None else None
    return GaugeMetricFamily(f"hankweave_{name}", text, value=value, labels=labels)


def _asks_for_upgrade(headers: Headers) -> bool:
    return "websocket" in {token.lower() for token in _listed(headers.get_all("Upgrade"))}


def _listed(values: list[str]) -> set[str]:
    """Return the items of comma-separated header values."""
    return {each.strip() for each in ",".join(values).split(",")}


def _socket_origin(origin: str) -> str:
    return "ws" + origin.removeprefix("http")


# --- the files of the page ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """The content served at one address."""

    body: bytes
    content_type: str
    etag: str | None = None
    """None for content that is generated for each request."""
    caching: str = GENERATED


def read_pages() -> dict[str, Page]:
    """Return the page's files by their addresses, with those of features; `/` is the index.

    Two files with one address are an error.
    """
    content = dict(_below(files("hankweave_server.transport") / "web", ""))
    for feature, folder in installed.folders("web"):
        own = dict(_below(folder, ""))
        if twice := sorted(own.keys() & content.keys()):
            raise ValueError(f"The feature {feature} has a file that exists already: {twice[0]}")

        content |= own
        for page in PAGES:
            content[page] = _with_feature(content[page], page, feature, own)

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


def _with_feature(page: bytes, name: str, feature: str, own: Container[str]) -> bytes:
    """Return a page with the style sheets and scripts of a feature before its own script."""
    stems = (feature, f"{name.removesuffix('.html')}-{feature}")
    named = ((f"{stem}.{kind}", tag) for kind, tag in TAGS.items() for stem in stems)
    before, script, after = page.rpartition(b"<script ")
    added = "".join(tag.format(file) for file, tag in named if file in own)
    return before + added.encode() + script + after


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
