"""Merges of random trees, and the git program's opinion of them.

A tree is a mapping of paths to files. `Trees` writes thousands of them into a bare repository with
one `git fast-import`, and asks `git merge-tree` about all merges with one process.

No file of a random tree resembles another one: older versions of git find renames in any case, and
there are then none to find.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.restore import TargetSnapshot
from hankweave_server.git.repo import ShadowRepo

FILE, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120000

NAMES = (b"a", b"b", b"c d", b"a\xff", b"a.b", b"\xc3\xa9")


class File(NamedTuple):
    """A file, or a link with its target as content."""

    mode: int
    content: bytes


Tree = Mapping[bytes, File]


class Three(NamedTuple):
    """The base of a merge and its two sides."""

    base: Tree
    ours: Tree
    theirs: Tree


@dataclass(frozen=True)
class Verdict:
    """The result of `git merge-tree`."""

    is_clean: bool
    tree: str
    conflicts: frozenset[bytes]


def git(repository: Path, *arguments: str, stdin: bytes = b"", check: bool = True) -> bytes:
    """Run git on a bare repository, without any configuration but its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        env=environment,
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 or not check, (arguments, done.stderr)
    return done.stdout


class Trees:
    """A bare repository that trees are written to by git, as commits."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        if not repository.exists():
            repository.mkdir(parents=True)
            git(repository, "init", "--quiet", "--bare", "--initial-branch=main")

    def add(self, trees: Iterable[tuple[Tree, int | None]], base: str | None = None) -> list[Sha]:
        """Commit each tree; its parent is the tree of that number, or else the commit `base`."""
        stream: list[bytes] = []
        count = 0
        for count, (tree, parent) in enumerate(trees, start=1):
            stream.append(b"reset refs/heads/made\n\n")
            stream.append(b"commit refs/heads/made\nmark :%d\ncommitter t <t> 1 +0000\n" % count)
            stream.append(b"data 0\n")
            if parent is not None:
                stream.append(b"from :%d\n" % (parent + 1))
            elif base is not None:
                stream.append(b"from %s\n" % base.encode())

            stream.append(b"deleteall\n")
            for path, (mode, content) in tree.items():
                stream.append(b"M %o inline %s\ndata %d\n" % (mode, path, len(content)))
                stream += (content, b"\n")

        marks = self.repository / "marks"
        words = ("fast-import", "--quiet", "--force", f"--export-marks={marks}")
        git(self.repository, *words, stdin=b"".join(stream))
        found = dict(line.split() for line in marks.read_text().splitlines())
        return [Sha(found[f":{number}"]) for number in range(1, count + 1)]

    def add_threes(self, threes: Sequence[Three]) -> list[tuple[Sha, Sha, Sha]]:
        """Commit the trees of many merges; the base is the parent of both sides."""
        trees: list[tuple[Tree, int | None]] = []
        for three in threes:
            base = len(trees)
            trees += [(three.base, None), (three.ours, base), (three.theirs, base)]

        shas = iter(self.add(trees))
        return list(zip(shas, shas, shas, strict=True))

    def verdicts(self, merges: Sequence[tuple[Sha, Sha, Sha]]) -> list[Verdict]:
        """Return what git makes of the merges, without looking for renames."""
        asked = "".join(f"{ours} {theirs}\n" for _, ours, theirs in merges).encode()
        words = ("merge-tree", "--write-tree", "--stdin", "--no-messages", "--name-only")
        answer = git(self.repository, "-c", "merge.renames=false", *words, stdin=asked)
        tokens = iter(answer.split(b"\0"))
        found: list[Verdict] = []
        for _ in merges:
            status, tree = next(tokens), next(tokens)
            conflicts = frozenset(iter(lambda: next(tokens), b""))
            found.append(Verdict(status == b"1", tree.decode(), conflicts))

        return found


def snapshot(repo: ShadowRepo, sha: Sha) -> TargetSnapshot:
    """Return a commit of a repository as merges take it."""
    commit = repo.commit(sha)
    assert commit is not None
    return TargetSnapshot(repo, sha, bytes.fromhex(commit.tree), Notes(repo).manifest(sha))


# --- random trees ---------------------------------------------------------------------------------


def random_three(random: Random) -> Three:
    """Return a tree and two versions of it, which often change the same paths."""
    base: dict[bytes, File] = {}
    for _ in range(random.randint(1, 6)):
        put(base, random_path(random), random_file(random))

    ours = changed(random, base)
    theirs = dict(changed(random, base))
    for path in sorted(ours.keys() | base.keys()):
        if random.random() < 0.1 and ours.get(path) != base.get(path):
            theirs.pop(path, None)
            if path in ours:
                put(theirs, path, ours[path])

    return Three(base, ours, theirs)


def changed(random: Random, tree: Tree) -> Tree:
    """Return a tree after a few random changes."""
    made = dict(tree)
    for _ in range(random.randint(0, 3)):
        path = random.choice(sorted(made)) if made and random.random() < 0.8 else None
        if path is None:
            put(made, random_path(random), random_file(random))
            continue

        mode, content = made[path]
        match random.randrange(8):
            case 0:
                del made[path]
            case 1 if mode != LINK:
                made[path] = File(FILE if mode == EXECUTABLE else EXECUTABLE, content)
            case 2:
                made[path] = random_file(random)
            case 3:
                put(made, path + b"/" + random.choice(NAMES), random_file(random))
            case 4 if b"/" in path:
                put(made, path.rpartition(b"/")[0], random_file(random))
            case _ if mode != LINK:
                made[path] = File(mode, with_other_lines(random, content))
            case _:
                made[path] = File(LINK, random.randbytes(9).hex().encode())

    return made


def put(tree: dict[bytes, File], path: bytes, file: File) -> None:
    """Add a file; remove the files above it, and everything below its path."""
    for other in list(tree):
        if path.startswith(other + b"/") or other.startswith(path + b"/"):
            del tree[other]

    tree[path] = file


def random_path(random: Random) -> bytes:
    return b"/".join(random.choices(NAMES, k=random.randint(1, 3)))


def random_file(random: Random) -> File:
    if random.random() < 0.1:
        return File(LINK, random.randbytes(9).hex().encode())

    number = random.randrange(1_000_000_000)
    lines = [b"line %d of %d\n" % (line, number) for line in range(random.randint(0, 9))]
    content = b"".join(lines) + random.choice((b"", b"", b"%d" % number, b"\xff%d\n" % number))
    return File(random.choice((FILE, FILE, EXECUTABLE)), content)


def with_other_lines(random: Random, content: bytes) -> bytes:
    """Change a line or two; every line stays unique, so that all diffs are the same."""
    lines = content.splitlines(keepends=True)
    for _ in range(random.randint(1, 2)):
        at = random.randint(0, len(lines))
        new = b"new %d\n" % random.randrange(1_000_000_000)
        match random.randrange(3):
            case 0:
                lines.insert(at, new)
            case 1:
                lines[at : at + 1] = [new]
            case _:
                lines[at : at + 1] = []

    return b"".join(lines)
