"""Each feature can be taken out, and what is left works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import pytest

from hankweave_client.discovery import discover
from hankweave_server.cli.app import PLACES
from hankweave_server.installed import FEATURES
from removal import LIST, PACKAGE, TOP, copy_without
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

pytestmark = pytest.mark.executed

MAIN = "from hankweave_server.cli.app import main; main()"
SERVED = re.compile(r"hankweave_server\.features\.(\w+)")

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LINKED = re.compile(r' (?:src|href)="([^"]+)"')
IMPORTED = re.compile(r'(?:\bfrom ?|\bimport\()"(\.[^"]+)"')


def packages(copy: Path) -> dict[str, str]:
    places = os.pathsep.join(str(copy / name) for name in ("server", "protocol"))
    return {"PYTHONPATH": places}


def command(copy: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        cwd=folder,
        env={**os.environ, **packages(copy)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def walk(port: int) -> dict[str, bytes]:
    """Return what the page and the gallery load, and what that loads, by address."""
    found: dict[str, bytes] = {}
    waiting = ["/", "/gallery.html"]
    while waiting:
        address = waiting.pop()
        if address in found:
            continue

        status, found[address] = get(port, address)
        assert status == 200, address
        if "/vendor/" in address or address.endswith((".svg", ".css")):
            continue

        asked = IMPORTED if address.endswith(".js") else LINKED
        text = COMMENT.sub("", found[address].decode())
        waiting += (urljoin(address, each) for each in asked.findall(text))

    return found


def get(port: int, address: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request("GET", address)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def serves_its_page(removed: tuple[str, ...], copy: Path, work: Path) -> None:
    """Load all of the page and the gallery, and ask for each file of these features in vain."""
    execution = work / "served"
    hank = work / "hank" / "hank.json"
    async with running_server(hank, None, execution, env=packages(copy)):
        port = urlsplit(discover(execution).url).port
        assert port is not None
        loaded = await anyio.to_thread.run_sync(walk, port)
        assert len(loaded) > 60
        for name in removed:
            web = TOP / PACKAGE / "features" / name / "web"
            for path in filter(Path.is_file, web.rglob("*")):
                address = f"/{path.relative_to(web)}"
                status, _ = await anyio.to_thread.run_sync(get, port, address)
                assert status == 404, address


def works_without(removed: tuple[str, ...], folder: Path) -> None:
    """Run a hank of two steps, go back, look and load the page, in a copy without them."""
    copy, work = folder / "copy", folder / "work"
    copy_without(removed, copy)
    work.mkdir()
    write_hank(work / "hank", codon("write", writes("a.txt", "one")), codon("check"))
    execution = str(work / "execution")
    ran = command(
        copy, "run", "--headless", "hank/hank.json", "--execution", execution, folder=work
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    went = command(copy, "rollback", "--before", "check", "-y", "-e", execution, folder=work)
    assert went.returncode == 0, went.stderr
    for words in (["status", "-e", execution], ["ls"], ["--help"], ["help", "--all"]):
        shown = command(copy, *words, folder=work)
        assert shown.returncode == 0, shown.stderr

    gone = [name for name, place in PLACES.items() if place.split(".")[1] in removed]
    for name in gone:
        unknown = command(copy, name, folder=work)
        assert (unknown.returncode, f"no command '{name}'" in unknown.stderr) == (2, True)

    anyio.run(serves_its_page, removed, copy, work)


@pytest.mark.full
@pytest.mark.parametrize("name", FEATURES)
def test_everything_else_works_without_a_feature(name: str, tmp_path: Path) -> None:
    """A server runs a hank, goes back and has its page; commands and files of it are unknown."""
    works_without((name,), tmp_path)


def test_the_core_works_without_any_feature(tmp_path: Path) -> None:
    """A server runs a hank, goes back and has its page without all of them."""
    works_without(FEATURES, tmp_path)


def test_nothing_imports_a_feature_but_its_own_modules() -> None:
    """The core asks `installed.parts`, and a feature uses no other one."""
    wrong = [
        f"{path.relative_to(TOP)} imports {found}"
        for path in (TOP / "server" / "hankweave_server").rglob("*.py")
        for found in SERVED.findall(path.read_text(encoding="utf-8"))
        if found != _feature_of(path) and path.name != "architect.py"
    ]
    assert wrong == []


def _feature_of(path: Path) -> str | None:
    parts = path.relative_to(TOP / "server" / "hankweave_server").parts
    return parts[1] if parts[0] == "features" and len(parts) > 2 else None


def test_the_list_has_every_folder() -> None:
    """A folder below `features/` that is not in the list would be dead code."""
    folder = (TOP / LIST).parent / "features"
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert found == set(FEATURES)
