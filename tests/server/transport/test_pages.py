"""The files of the UI, without a browser: content types, policy and completeness."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from hankweave_server import installed
from hankweave_server.transport import http
from hankweave_server.transport.http import IMMUTABLE, read_pages
from support.small_server import small_server

WEB = Path(http.__file__).with_name("web")
FOLDERS = [WEB, *(Path(str(folder)) for _, folder in installed.folders("web"))]
SERVER = WEB.parent.parent
PATHS = {
    path.relative_to(folder).as_posix(): path
    for folder in FOLDERS
    for path in sorted(folder.rglob("*"))
    if path.is_file()
}
"""The files of the page and of the features' parts of it, by their addresses."""

VENDOR = WEB / "vendor"
GENERATED = {"index.html", "gallery.html"}
"""They also name the files of features."""

LOADED = re.compile(r'(?:src|href)="(files/[^"]+)"')
"""What the index names in the folder that never changes."""

ASKED = re.compile(r'(?:from |import |import\(|src=|href=)"(?!#|hankweave)([^"]+)"')
"""The imports and links of a module or page; `hankweave` has only types, which are not loaded."""


async def test_every_file_is_served_as_what_it_is(tmp_path: Path) -> None:
    """Each file is served whole, with a type that browsers run or draw, under the strict policy."""
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
    types |= {".mjs": "text/javascript", ".svg": "image/svg+xml"}
    async with small_server(tmp_path) as server:
        for name, path in PATHS.items():
            status, headers, body = await server.ask(f"/{name}")
            whole = read_pages()[f"/{name}"].body if name in GENERATED else path.read_bytes()
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
        _, headers, _ = await server.ask("/app.js")
        tag = headers["etag"]
        assert headers["cache-control"] == "no-cache"
        digest = hashlib.sha256((WEB / "app.js").read_bytes()).hexdigest()
        assert tag == f'"{digest[:32]}"'
        for known in (tag, f'"other", {tag}'):
            status, headers, body = await server.ask("/app.js", f"If-None-Match: {known}")
            assert (status, body, headers["etag"]) == (304, b"", tag)

        assert (await server.ask("/app.js", 'If-None-Match: "other"'))[0] == 200
        assert "etag" not in (await server.ask("/healthz"))[1]


async def test_a_page_that_is_opened_again_asks_for_its_index_alone(tmp_path: Path) -> None:
    """The index names its scripts and styles where they stay; another content has another name."""
    async with small_server(tmp_path) as server:
        _, headers, index = await server.ask("/")
        assert headers["cache-control"] == "no-cache"
        loaded = LOADED.findall(index.decode())
        assert len(loaded) > len(PATHS) / 2
        for name in loaded:
            status, headers, body = await server.ask(f"/{name}")
            assert (status, headers["cache-control"]) == (200, IMMUTABLE), name
            assert body == PATHS[name.split("/", 2)[2]].read_bytes()

        folder = loaded[0].split("/")[1]
        assert (await server.ask(f"/files/{folder[::-1]}/app.js"))[0] == 404


def test_the_index_names_every_module_that_its_scripts_import() -> None:
    """The first modules are preloaded, and the later ones are named, each once."""
    index = read_pages()["/"].body.decode()
    named = {
        kind: [name.split("/", 2)[2] for name in re.findall(rf'rel="{kind}" href="([^"]+)"', index)]
        for kind in ("modulepreload", "later")
    }
    scripts = re.findall(r'<script type="module".* src="files/\w+/([^"]+)"></script>', index)
    assert (len(scripts), scripts[0], scripts[-1]) == (
        index.count("<script "),
        "start.js",
        "app.js",
    )
    first = imported(scripts, at_once=True)
    assert sorted(named["modulepreload"]) == sorted(first)
    assert sorted(named["later"]) == sorted(imported(scripts, at_once=False) - first)
    assert "views/rollback.js" in named["later"]


def imported(scripts: list[str], *, at_once: bool) -> set[str]:
    """Return the modules that some import, by a scan of their lines."""
    found, waiting = set(scripts), list(scripts)
    while waiting:
        importer = waiting.pop()
        code = re.sub(r"/\*.*?\*/", "", PATHS[importer].read_text(), flags=re.DOTALL)
        # Vendored modules are one line, and import only each other.
        for named in re.findall(r'(?:from ?|import )"(\.[^"]+)"', code) + (
            [] if at_once else re.findall(r'import\("(\.[^"]+)"\)', code)
        ):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(importer), named))
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
        assert (await server.ask(path))[0] == 404


def test_every_file_that_is_asked_for_is_there() -> None:
    """Each import and each link names a file of the page; nothing is loaded from another host."""
    for name, path in PATHS.items():
        if path.suffix not in {".js", ".html", ".css"} or path.parent == VENDOR:
            continue

        for named in ASKED.findall(path.read_text()):
            asked = posixpath.normpath(posixpath.join(posixpath.dirname(name), named))
            assert asked in PATHS, f"{name} asks for {named}"


def test_only_a_feature_itself_asks_for_its_files() -> None:
    """The page and the other features do without them."""
    for name, path in PATHS.items():
        if path.suffix != ".js" or path.parent == VENDOR:
            continue

        for asked in imported([name], at_once=False):
            folders = {WEB, next(folder for folder in FOLDERS if path.is_relative_to(folder))}
            assert any(PATHS[asked].is_relative_to(each) for each in folders), f"{name}: {asked}"


@pytest.mark.parametrize("name", ["app.js", "vendor/preact.mjs", "first.js"])
def test_two_files_with_one_address_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature replaces no file of the page, nor one of another feature."""
    places = {"first": tmp_path / "first", "second": tmp_path / "second"}
    for file in (places["first"] / "first.js", places["second"] / name):
        file.parent.mkdir(parents=True)
        file.touch()

    monkeypatch.setattr(installed, "folders", lambda _: iter(places.items()))
    with pytest.raises(ValueError, match=f"second has a file that exists already: {name}"):
        read_pages()


def test_a_page_names_the_styles_and_scripts_of_features_before_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have joined when the page is drawn; the gallery also has those that are for it alone."""
    for name in ("first.js", "first.css", "gallery-first.js", "unnamed.js"):
        (tmp_path / name).touch()

    monkeypatch.setattr(installed, "folders", lambda _: iter([("first", tmp_path)]))
    pages = read_pages()
    named = {
        name: re.findall(
            r'(?:src|href)="(?:files/\w+/)?([^"/]*first\.\w+|app\.js|gallery\.js)"></', body
        )
        for name, body in ((name, pages[name].body.decode()) for name in ("/", "/gallery.html"))
    }
    assert named == {
        "/": ["first.js", "app.js"],
        "/gallery.html": ["first.js", "gallery-first.js", "gallery.js"],
    }
    for name in named:
        assert pages[name].body.count(b"first.css") == 1
        assert b"unnamed.js" not in pages[name].body


def test_the_types_of_the_page_know_every_folder() -> None:
    """The TypeScript compiler finds a module as the server does, below any of the folders."""
    tests = WEB.parents[3] / "tests" / "browser"
    options = json.loads((tests / "tsconfig.json").read_text())["compilerOptions"]
    assert set(FOLDERS) <= {(tests / name).resolve() for name in options["rootDirs"]}


def test_nothing_is_written_into_the_page_but_by_the_library_of_views() -> None:
    """No module of the page itself makes HTML, styles or code from text."""
    risky = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|setAttribute\(\s*.style|dangerouslySetInnerHTML|javascript:"
    )
    for path in PATHS.values():
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

    served = {f"hankweave_server/{path.relative_to(SERVER)}" for path in PATHS.values()}
    assert served - inside == set()
