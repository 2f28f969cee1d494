"""A small execution with loose objects, and three ways to damage one of them."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.scripted_hank import codon, write_hank, writes

Way = Literal["removed", "truncated", "flipped"]
WAYS: tuple[Way, ...] = ("removed", "truncated", "flipped")

CODONS = (
    codon(
        "one",
        writes("a.txt", "one"),
        {"run": "echo s > private; chmod 600 private; mkdir -p deep/empty; echo d > deep/d.txt"},
    ),
    codon("two", writes("a.txt", "two")),
    codon("three", writes("c.txt", "three"), writes("deep/d.txt", "three")),
)


def small_execution(folder: Path) -> Path:
    """Run three codons, go back and forth, pin one checkpoint, and unpack every object."""
    execution = folder / "execution"
    hank = write_hank(folder / "hank", *CODONS)
    hankweave("run", str(hank), "--execution", str(execution), "--headless", code=0)
    hankweave("rollback", "--codon", "one", "-e", str(execution), "-y", code=0)
    hankweave("undo", "-e", str(execution), "-y", code=0)
    two = next(sha for sha, kind in checkpoints(execution).items() if kind == "completed:two")
    hankweave("pin", two, "--name", "the good one", "-e", str(execution), code=0)
    unpack(Layout.of_execution(execution).shadow_repository)
    return execution


def checkpoints(execution: Path) -> dict[str, str]:
    """Return the listed checkpoints, newest first, with kind and codon."""
    listed = json.loads(hankweave("checkpoints", "-e", str(execution), "--json", code=0).stdout)
    return {
        each["sha"]: f"{each['kind']}:{each['coordinate'].get('codonId') or '-'}"
        for each in listed["checkpoints"]
    }


def git(execution: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run stock git as seed 000 shows it."""
    layout = Layout.of_execution(execution)
    return subprocess.run(
        ["git", *words],
        env={
            "PATH": os.environ["PATH"],
            "GIT_DIR": str(layout.shadow_repository),
            "GIT_WORK_TREE": str(layout.work_tree),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def unpack(repository: Path) -> None:
    """Make every object a file of its own."""
    packs = repository / "objects" / "pack"
    for pack in packs.glob("*.pack"):
        aside = repository / "aside.pack"
        pack.rename(aside)
        for beside in packs.glob(f"{pack.stem}.*"):
            beside.unlink()

        with aside.open("rb") as stream:
            subprocess.run(
                ["git", "unpack-objects", "-q"],
                stdin=stream,
                env={"PATH": os.environ["PATH"], "GIT_DIR": str(repository)},
                check=True,
            )

        aside.unlink()


def lose_object(repository: Path, sha: str) -> None:
    """Remove one object; packs are unpacked first, so that no other object is lost with it."""
    unpack(repository)
    (repository / "objects" / sha[:2] / sha[2:]).unlink()


@dataclass(frozen=True)
class StoredObject:
    sha: str
    kind: str


def objects_of(execution: Path) -> list[StoredObject]:
    """Return every object that a ref or HEAD leads to, as git lists them."""
    listed = git(execution, "rev-list", "--all", "--objects", "HEAD", "--no-object-names").stdout
    refs = git(execution, "for-each-ref", "--format=%(objectname)").stdout
    names = dict.fromkeys((*listed.split(), *refs.split()))
    return [
        StoredObject(sha, git(execution, "cat-file", "-t", sha).stdout.strip()) for sha in names
    ]


def damage(execution: Path, sha: str, way: Way) -> None:
    path = Layout.of_execution(execution).shadow_repository / "objects" / sha[:2] / sha[2:]
    content = bytearray(path.read_bytes())
    path.unlink()
    if way == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif way == "flipped":
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
