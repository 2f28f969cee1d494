"""The Python of the documents, run as it is printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from documents import blocks, pages_of_docs
from support.running_server import environment, running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import limited
from support.watching import idle


def printed(line: str) -> str:
    """Return the Python code of the documents that has this line."""
    codes = (block.text for page in pages_of_docs() for block in blocks(page))
    return next(code for code in codes if f"{line}\n" in code)


@pytest.mark.story("The Python client of the tutorial works as printed.", of="docs/tutorial.md")
async def test_the_client_goes_back_and_follows(tmp_path: Path, execution: Path) -> None:
    """It rolls back to the last success, restarts the plan, and prints what happens."""
    code = printed("from hankweave_client.client import connect")
    file = execution / "agentRoot" / "a.txt"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    async with running_server(hank, None, execution) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)

        file.write_text("b")
        async with await anyio.open_process(
            [sys.executable, "-u", "-c", code], cwd=execution, env=environment(), stderr=None
        ) as following:
            assert following.stdout is not None
            output = b""
            with limited():
                while b"rollback.completed" not in output.split():
                    output += await following.stdout.receive()

            following.kill()

    assert file.read_text() == "a"


@pytest.mark.story("The checkpoint manager works as printed.", of="docs/migration/architect.md")
def test_the_manager_goes_back_and_forth(tmp_path: Path) -> None:
    """In a git repository it makes a commit, keeps what it would destroy, and brings it back."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("it works")
    code = printed("from hankweave_server.architect import CheckpointManager")
    edited, seen = "open('a.txt', 'w').write('edited')", "print(open('a.txt').read())"
    script = re.sub(
        r"^( *)(manager\.rollback.*\n)(\1manager\.undo.*)$",
        rf"\1{edited}\n\1\2\1{seen}\n\3\n\1{seen}",
        code,
        flags=re.MULTILINE,
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-2:] == ["it works", "edited"]
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert log.stdout == "architect:checkpoint:step-1 -- it works\n"
