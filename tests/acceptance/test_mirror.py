"""An execution with a mirror goes on elsewhere when its machine is gone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import RollbackUndo
from hankweave_protocol.events import Event, FileUpdated
from hankweave_server.errors import ExitCode
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.running_server import command, environment, running_server, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT, limited
from support.watching import idle, recalled, to_end_of

MIRROR = ("--mirror-mode", "sync", "--mirror-lease", "6")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Provide a bare repository, as a NAS or a hosted service has it."""
    path = tmp_path / "mirror.git"
    subprocess.run(("git", "init", "--quiet", "--bare", path), check=True)
    return path


def lease(bare: Path) -> dict[str, Any]:
    """Return the lease in a mirror."""
    words = ("git", "-C", bare, "show", "--no-patch", "--format=%B", "refs/hankweave/lease")
    message = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(message.partition("\n\n")[2])
    return found


def journal_of(execution: Path) -> bytes:
    return Layout.of_execution(execution).journal.read_bytes()


def has_written_two(event: Event) -> bool:
    return isinstance(event.data, FileUpdated) and event.data.path == "two.txt"


def files(execution: Path) -> dict[str, bytes]:
    return tree(execution / "agentRoot")


def remembered(execution: Path) -> list[int]:
    """Return how many steps of the conversation each agent has remembered."""
    return [int(text.split()[-2]) for text in recalled(execution)]


async def rolled_back_and_undone(client: Client, execution: Path) -> None:
    """Go back to the end of the first codon and forward again."""
    after = files(execution)
    await client.send(to_end_of("one"))
    assert files(execution).keys() == {"one.txt"}
    await client.send(RollbackUndo())
    assert files(execution) == after


async def refused(execution: Path) -> str:
    """Start a server, which must be refused; return its message."""
    words = command("run", "--execution", str(execution), "--headless")
    with limited():
        done = await anyio.run_process(
            words,
            check=False,
            env=environment(XDG_STATE_HOME=str(execution.parent / "state-home")),
        )

    assert done.returncode == ExitCode.UNAVAILABLE
    return done.stderr.decode()


@pytest.mark.alone
@pytest.mark.story(
    "An execution whose machine is lost goes on elsewhere from its mirror.",
    of="docs/how-to/mirror.md",
)
async def test_an_execution_goes_on_from_its_mirror_when_its_machine_is_gone(
    tmp_path: Path, bare: Path
) -> None:
    """Nothing that was published is lost, and its own directory may not go on any more."""
    old, new = tmp_path / "old", tmp_path / "new"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("one.txt", "1")),
        codon(
            "two",
            {"recall": "I know"},
            writes("two.txt", "2"),
            waits_for(tmp_path / "go"),
            writes("three.txt", "3"),
            continuationMode="continue-previous",
        ),
    )
    async with running_server(hank, None, old, "--mirror", str(bare), *MIRROR) as server:
        async with server.client(0) as client:
            event = await client.until(FileUpdated, has_written_two, timeout=LIMIT)

        server.kill()
        await server.ended()

    hank.rename(tmp_path / "elsewhere.json")
    (tmp_path / "go").touch()
    mirrored = lease(bare)
    assert mirrored["lastEventSeq"] >= event.seq
    past = journal_of(old)[: mirrored["journalBytes"]]
    resume = ("resume", str(bare), "--mirror-lease", "60", "--mirror-mode", "async")
    async with running_server(None, None, new, start=resume) as server, server.client(0) as client:
        await idle(client)
        assert journal_of(new).startswith(past)
        assert files(new) == {"one.txt": b"1", "two.txt": b"2", "three.txt": b"3"}
        await rolled_back_and_undone(client, new)
        assert min(remembered(new)) >= 1
        (tmp_path / "elsewhere.json").rename(hank)
        assert str(new) in await refused(old)
        GitWitness(new).assert_sound()

    assert mirrored["executionId"] == lease(bare)["executionId"]
