"""The page that the server serves, and the addresses beside it, without a browser."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

import anyio.to_thread
import pytest

from hankweave_client.discovery import discover
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

LOADED = re.compile(
    rb'(?:^import |from |import\(|src=|href=|url\()"?([^"\'#)\s]+\.(?:css|m?js|svg))'
)
"""What a page, a style sheet or a module loads."""

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""It ignores a proxy that the environment names."""


async def get(url: str) -> tuple[dict[str, str], bytes]:
    def read() -> tuple[dict[str, str], bytes]:
        with DIRECT.open(url, timeout=60) as answer:
            return {key.lower(): value for key, value in answer.headers.items()}, answer.read()

    return await anyio.to_thread.run_sync(read)


@pytest.mark.story("The page comes whole from the server, and loads nothing from elsewhere.")
async def test_the_page_comes_whole_from_the_server(tmp_path: Path) -> None:
    """Every file that it loads is there, and its policy forbids all other sources."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with running_server(hank, None, tmp_path / "execution", "--no-autostart") as server:
        home = discover(server.execution).url.replace("ws://", "http://").removesuffix("ws")
        waiting, found = [home], {}
        while waiting:
            address = waiting.pop()
            found[address], content = await get(address)
            for name in LOADED.findall(content):
                target = urljoin(address, name.decode())
                if target not in found and target not in waiting:
                    waiting.append(target)

    assert len(found) > 30
    assert all(address.startswith(home) for address in found)
    assert found[home]["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'"
    )


@pytest.mark.story(
    "Health pages and metrics need no token, and contain no texts of the execution.",
    of="SECURITY.md",
)
async def test_health_and_metrics_need_no_token(tmp_path: Path) -> None:
    """They have numbers, but neither names nor texts of the execution."""
    hank = write_hank(tmp_path / "hank", codon("one", {"say": "a secret plan"}))
    async with running_server(hank, None, tmp_path / "execution") as server:
        async with server.client(since_seq=0) as client:
            await idle(client)

        home = discover(server.execution).url.replace("ws://", "http://").removesuffix("ws")
        for path in ("healthz", "readyz"):
            await get(home + path)  # It raises an error unless the answer is 200.

        _, metrics = await get(home + "metrics")

    assert re.search(rb"^hankweave_problems 0\.0$", metrics, re.MULTILINE)
    assert b"secret plan" not in metrics
    assert b"Codon one" not in metrics
