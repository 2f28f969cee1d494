"""Claims about `hankweave open`: what a browser is given, and where nothing is to be shown."""

from __future__ import annotations

import os
import re
from pathlib import Path

from support.command_line import Done, aside, hankweave
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually

ROOT = "HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR"


async def test_the_browser_is_led_to_the_page_without_a_token_on_its_command_line(
    tmp_path: Path,
) -> None:
    """It gets a private file that leads to the printed address; `--all` takes any server."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    given, browser = tmp_path / "given", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {given}.new\nmv {given}.new {given}\n')
    browser.chmod(0o755)
    env = {ROOT: str(tmp_path / "executions"), "DISPLAY": ":7", "BROWSER": str(browser)}
    served, other = tmp_path / "served", tmp_path / "executions" / "other"

    async def shown(*words: str, code: int = 0, **more: str) -> Done:
        given.unlink(missing_ok=True)
        return await aside("open", *words, cwd=tmp_path, code=code, **env | more)

    hankweave("run", str(hank), "-e", str(other), "--headless", "-y", code=0, **env)
    refused = await shown(code=69)
    assert f"`hankweave run -e {other}`" in refused.stderr
    async with running_server(hank, None, served, "--no-autostart"):
        token = (served / ".hankweave" / "server.token").read_text().strip()
        for words, end in (((), ""), (("--all",), "&view=executions")):
            address = (await shown(*words)).stdout.strip()
            assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/#token={token}{end}", address)
            await eventually(given.exists)
            page = served / ".hankweave" / "page.html"
            assert given.read_text().split() == [page.as_uri()]
            assert address.replace("&", "&amp;") in page.read_text()
            assert page.stat().st_mode & 0o777 == 0o600

        printed = await shown("--all", DISPLAY="", WAYLAND_DISPLAY="")
        assert token in printed.stdout
        assert not os.path.exists(given)
