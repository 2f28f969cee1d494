"""Disks that are full, out of inodes, or suddenly read-only; and become good again.

A small tmpfs holds the whole execution. What a server may do about it: refuse, or end with a
sentence and exit code 74. What it may never do: lose what it acknowledged.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_protocol.ids import CodonId
from hankweave_server.errors import ExitCode
from support.invariants import Told, tree_violations, violations
from support.running_server import command, running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.struck import PATIENCE, Act, Lost, Output, Tally, kill, process_of, session

SIZE, INODES = 24 << 20, 400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    options = f"size={SIZE},nr_inodes={INODES}"
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount program")

    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")

    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


Trouble = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Not a byte is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)):
            pass

    yield
    filler.unlink()


@contextmanager
def out_of_inodes(disk: Path) -> Iterator[None]:
    """Not a file more can be made."""
    with contextlib.suppress(OSError):
        for number in range(INODES):
            (disk / f"filler-{number}").touch()

    yield
    for path in disk.glob("filler-*"):
        path.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """As the kernel makes a file system that it no longer trusts."""
    # A file that is open for writing keeps the file system from it, but not its bind mount.
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    yield
    subprocess.run(["umount", "--lazy", disk], check=True)


# --- what a server makes of it --------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [full, out_of_inodes, read_only])
async def test_what_was_acknowledged_survives_a_bad_disk(
    trouble: Trouble, disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """It refuses, or ends and says why; with a good disk all goes on, and nothing is lost."""
    execution, told = disk / "execution", Told()
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "1")), codon("two", writes("a.txt", "2"))
    )
    words = command("run", str(hank), "--execution", str(execution), "--json")
    async with process_of(words) as server, anyio.create_task_group() as group:
        assert await server.until('"all-codons-completed"'), server.lines
        group.start_soon(server.to_its_end)
        (execution / "agentRoot" / "grown.txt").write_text("more" * 5_000)
        await _told(execution, told, _save)
        with trouble(disk):
            for act in (_save, _go_back, _save):
                await _told(execution, told, act)

        await _goes_on_or_has_ended(execution, told, server)
        kill(server.process)

    files = tree(execution / "agentRoot")
    found = await _started_again(execution, told, files)
    tally.rounds[f"a disk that is {trouble.__name__.replace('_', ' ')}"] += 1
    tally.acknowledgements += told.acknowledgements
    tally.violations += found
    assert found == []


async def _save(client: Client, told: Told) -> None:
    told.checkpoints.append(await client.create_checkpoint())


async def _go_back(client: Client, told: Told) -> None:
    told.rollbacks.append(await client.roll_back_to_codon(CodonId("one"), "end"))


async def _told(execution: Path, told: Told, act: Act) -> None:
    try:
        with anyio.fail_after(PATIENCE):
            async with session(execution) as client:
                await act(client, told)
    except Lost:
        return


async def _goes_on_or_has_ended(execution: Path, told: Told, server: Output) -> None:
    before = len(told.checkpoints)
    await _told(execution, told, _save)
    if len(told.checkpoints) > before:
        return

    with anyio.fail_after(PATIENCE):
        assert await server.process.wait() == ExitCode.IO_ERROR

    assert not any("Traceback" in line for line in server.lines), server.lines
    assert any("could not be written" in line for line in server.lines), server.lines


async def _started_again(execution: Path, told: Told, files: dict[str, bytes]) -> list[str]:
    begun = (execution / ".hankweave" / "rollback.intent").exists()
    async with running_server(None, None, execution, "--no-autostart") as server:
        found = [] if begun else tree_violations(execution, files)
        async with server.client() as client:
            await _save(client, told)

        assert await server.stop() == 0

    return [*found, *violations(execution, told)]
