"""The files of the UI, without a browser: content types, policy and completeness."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from hankweave_server.transport import http
from hankweave_server.transport.http import IMMUTABLE, read_pages
from support.small_server import SmallServer, small_server

WEB = Path(http.__file__).with_name("web")
FILES = sorted(path for path in WEB.rglob("*") if path.is_file())
NAMES = [path.relative_to(WEB).as_posix() for path in FILES]
VENDOR = WEB / "vendor"

LOADED = re.compile(r'(?:src|href)="(files/[^"]+)"')
"""What the index names in the folder that never changes."""

ASKED = re.compile(r'(?:from |import |import\(|src=|href=)"(?!#|hankweave)([^"]+)"')
"""The imports and links of a module or page; `hankweave` has only types, which are not loaded."""


async def get(server: SmallServer, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send one request with the path unchanged."""
    port = server.listener.port
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join(lines).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, *fields = head.decode().split("\r\n")
    named = dict(field.split(": ", 1) for field in fields)
    return int(status.split(" ")[1]), {key.lower(): value for key, value in named.items()}, body


async def test_every_file_is_served_as_what_it_is(tmp_path: Path) -> None:
    """Each file is served whole, with a type that browsers run or draw, under the strict policy."""
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
    types |= {".mjs": "text/javascript", ".svg": "image/svg+xml"}
    async with small_server(tmp_path) as server:
        for path, name in zip(FILES, NAMES, strict=True):
            status, headers, body = await get(server, f"/{name}")
            whole = path.read_bytes() if name != "index.html" else read_pages()["/"].body
            assert (status, body) == (200, whole), name
            assert headers["content-type"].split(";")[0] == types.get(path.suffix, "text/plain")
            assert headers["x-content-type-options"] == "nosniff"
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "[" not in policy


async def test_a_file_that_the_browser_has_is_not_sent_again(tmp_path: Path) -> None:
    """The tag depends on the content: the same content is answered with 304 and no body."""
    async with small_server(tmp_path) as server:
        _, headers, _ = await get(server, "/app.js")
        tag = headers["etag"]
        assert headers["cache-control"] == "no-cache"
        digest = hashlib.sha256((WEB / "app.js").read_bytes()).hexdigest()
        assert tag == f'"{digest[:32]}"'
        for known in (tag, f'"other", {tag}'):
            status, headers, body = await get(server, "/app.js", f"If-None-Match: {known}")
            assert (status, body, headers["etag"]) == (304, b"", tag)

        assert (await get(server, "/app.js", 'If-None-Match: "other"'))[0] == 200
        assert "etag" not in (await get(server, "/healthz"))[1]


async def test_a_page_that_is_opened_again_asks_for_its_index_alone(tmp_path: Path) -> None:
    """The index names its scripts and styles where they stay; another content has another name."""
    async with small_server(tmp_path) as server:
        _, headers, index = await get(server, "/")
        assert headers["cache-control"] == "no-cache"
        loaded = LOADED.findall(index.decode())
        assert len(loaded) > len(NAMES) / 2
        for name in loaded:
            status, headers, body = await get(server, f"/{name}")
            assert (status, headers["cache-control"]) == (200, IMMUTABLE), name
            assert body == (WEB / name.split("/", 2)[2]).read_bytes()

        folder = loaded[0].split("/")[1]
        assert (await get(server, f"/files/{folder[::-1]}/app.js"))[0] == 404


def test_the_index_names_every_module_that_its_scripts_import() -> None:
    """The first modules are preloaded, and the later ones are named, each once."""
    index = read_pages()["/"].body.decode()
    named = {
        kind: [name.split("/", 2)[2] for name in re.findall(rf'rel="{kind}" href="([^"]+)"', index)]
        for kind in ("modulepreload", "later")
    }
    scripts = [name for name in ("start.js", "app.js") if f'/{name}"></script>' in index]
    assert len(scripts) == index.count("<script ")
    first = imported(scripts, at_once=True)
    assert sorted(named["modulepreload"]) == sorted(first)
    assert sorted(named["later"]) == sorted(imported(scripts, at_once=False) - first)
    assert "views/rollback.js" in named["later"]


def imported(scripts: list[str], *, at_once: bool) -> set[str]:
    """Return the modules that some import, by a scan of their lines."""
    found, waiting = set(scripts), list(scripts)
    while waiting:
        path = WEB / waiting.pop()
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        # Vendored modules are one line, and import only each other.
        for named in re.findall(r'(?:from ?|import )"(\.[^"]+)"', code) + (
            [] if at_once else re.findall(r'import\("(\.[^"]+)"\)', code)
        ):
            name = (path.parent / named).resolve().relative_to(WEB).as_posix()
            if name not in found:
                found.add(name)
                waiting.append(name)

    return found


@pytest.mark.parametrize(
    "path",
    [
        "/../pages.py",
        "/vendor/../../pages.py",
        "/vendor/..%2f..%2fpages.py",
        "/%2e%2e/pages.py",
        "//etc/passwd",
        "/vendor",
        "/vendor/",
        "/views/",
        "/app.js/",
        "/app.js%00",
        "/./app.js",
        "/APP.JS",
    ],
)
async def test_no_other_file_can_be_asked_for(tmp_path: Path, path: str) -> None:
    """A path outside the table is not found, however it is written."""
    async with small_server(tmp_path) as server:
        assert (await get(server, path))[0] == 404


def test_every_file_that_is_asked_for_is_there() -> None:
    """Each import and each link names a file of the page; nothing is loaded from another host."""
    for path in FILES:
        if path.suffix not in {".js", ".html", ".css"} or path.parent == VENDOR:
            continue

        for named in ASKED.findall(path.read_text()):
            assert (path.parent / named).resolve() in FILES, f"{path.name} asks for {named}"


def test_nothing_is_written_into_the_page_but_by_the_library_of_views() -> None:
    """No module of the page itself makes HTML, styles or code from text."""
    risky = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|setAttribute\(\s*.style|dangerouslySetInnerHTML|javascript:"
    )
    for path in FILES:
        if path.suffix == ".js" and path.parent != VENDOR:
            assert not risky.search(path.read_text()), path.name


def test_libraries_are_what_was_vendored_with_their_licences() -> None:
    """Each vendored file has the recorded digest, and each library its licence."""
    noted = dict(
        reversed(line.split("  ")) for line in (VENDOR / "SHA256SUMS").read_text().splitlines()
    )
    there = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert there == set(noted)
    for name, digest in noted.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name

    licences = {library: (VENDOR / f"LICENSE-{library}").read_text() for library in LIBRARIES}
    for library, words in LIBRARIES.items():
        assert words in licences[library]


LIBRARIES = {
    "preact": "MIT License",
    "htm": "Apache License",
    "diff2html": "Permission is hereby",
    "markdown-it": "Permission is hereby",
    "anser": "Permission is hereby",
}


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    """The wheel contains the whole page, which needs no network."""
    checkout = WEB.parents[3]
    if not (checkout / "pyproject.toml").exists():
        pytest.skip("there is no checkout to build from")

    try:
        distribution("hatchling")
    except PackageNotFoundError:
        pytest.skip("hatchling is not installed; scripts/test installs it")

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())

    missing = {f"hankweave_server/transport/web/{name}" for name in NAMES} - inside
    assert missing == set()
