"""Claims about blame: every line is credited as git does it, on any history."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import FileMode

from hankweave_protocol.ids import Sha
from hankweave_server.features.answers.blame import blame
from hankweave_server.features.answers.file_versions import FileVersions
from hankweave_server.git.repo import ShadowRepo

Credits = list[tuple[str, str]]
"""For each line, the commit and the path from which it is."""

IN_THE_GATE = 10


@dataclass
class GitHistory:
    """A repository in which commits are made directly, and the git program as a witness."""

    path: Path
    count: int = 0
    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.repo = pygit2.init_repository(str(self.path), bare=True)

    def commit(self, files: Mapping[str, bytes], *parents: str) -> str:
        self.count += 1
        index = pygit2.Index()
        for name, content in files.items():
            blob = self.repo.create_blob(content)
            index.add(pygit2.IndexEntry(name, blob, FileMode.BLOB))

        who = pygit2.Signature("A", "a@example.org", 1_700_000_000 + 60 * self.count, 0)
        tree = index.write_tree(self.repo)
        oids = [pygit2.Oid(hex=parent) for parent in parents]
        sha = str(self.repo.create_commit(None, who, who, f"{self.count}", tree, oids))
        self.trees[sha] = dict(files)
        return sha

    def by_git(self, sha: str, path: str) -> Credits:
        """Return what `git blame` says."""
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        printed = subprocess.run(
            ["git", "--git-dir", self.path, "blame", "--line-porcelain", sha, "--", path],
            env=environment | {"GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            check=True,
        ).stdout
        found: Credits = []
        at_head, commit = True, ""
        for line in printed.split(b"\n")[:-1]:
            if line.startswith(b"\t"):
                at_head = True
            elif at_head:
                commit, at_head = line[:40].decode(), False
            elif line.startswith(b"filename "):
                found.append((commit, line.removeprefix(b"filename ").decode()))

        return found

    def by_us(self, sha: str, path: str, *, copies: bool = False) -> Credits:
        with closing(ShadowRepo(self.path)) as repo:
            versions = FileVersions(repo, copies=copies)
            version = versions.file_at(Sha(sha), path.encode())
            content = self.trees[sha][path]
            count = content.count(b"\n") + (not content.endswith(b"\n")) if content else 0
            found = blame(version, count, [(0, count)], versions)

        return [
            (each.version.sha, each.version.path.decode())
            for each in found
            for _ in range(each.start, each.end)
        ]


WORDS = ("", "}", "    return x", "    }", "if a:", "    pass", "def f():", "# note")


def some_lines(draw: random.Random, most: int) -> list[str]:
    """Return lines of which many are equal, so that it matters which of them counts as added."""
    return [
        draw.choice(WORDS) if draw.random() < 0.6 else f"line {draw.randrange(1000)}"
        for _ in range(draw.randrange(1, most))
    ]


def text_of(lines: Sequence[str]) -> bytes:
    """Return a text whose last line ends.

    Git before 2.44 ignores one that does not end when it looks for renamed files.
    """
    return "".join(f"{line}\n" for line in lines).encode()


def edited(draw: random.Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    for _ in range(draw.randrange(1, 4)):
        start = draw.randrange(len(lines) + 1)
        end = min(len(lines), start + draw.choice((0, 0, 1, 2, 5)))
        lines[start:end] = some_lines(draw, 6) if draw.random() < 0.8 else []

    return text_of(lines)


def changed(draw: random.Random, files: dict[str, bytes], count: int) -> dict[str, bytes]:
    """Return the files after an edit, a new file, a removed one, or a renamed one."""
    files, name = dict(files), f"{draw.choice(('', 'src/', 'src/deep/'))}f{count}.py"
    known = sorted(files)
    match draw.choice(("edit", "edit", "edit", "edit", "new", "remove", "rename", "both")):
        case "remove" if len(known) > 2:
            del files[draw.choice(known)]
        case "rename":
            files[name] = files.pop(draw.choice(known))
        case "both":
            files[name] = edited(draw, files.pop(draw.choice(known)))
        case "new":
            files[name] = text_of(some_lines(draw, 60))
        case _:
            for path in draw.sample(known, min(2, len(known))):
                files[path] = edited(draw, files[path])

    return files


def merged(
    draw: random.Random, ours: dict[str, bytes], theirs: dict[str, bytes]
) -> dict[str, bytes]:
    """Return files of both sides, and both sides' lines of some."""
    result = dict(ours)
    for path in sorted(theirs):
        if path not in ours or draw.random() < 0.3:
            result[path] = theirs[path]
        elif draw.random() < 0.5:
            result[path] = ours[path] + b"\n" + theirs[path]

    return result


def random_history(draw: random.Random, history: GitHistory) -> str:
    """Make commits, some after going back to an earlier one; return the last."""
    start = {f"src/f{i}.py": text_of(some_lines(draw, 150)) for i in range(3)}
    made = [history.commit(start)]
    for number in range(draw.randrange(8, 25)):
        tip = made[-1] if draw.random() < 0.8 else draw.choice(made)
        if draw.random() < 0.1 and len(made) > 3:
            other = draw.choice(made)
            files = merged(draw, history.trees[tip], history.trees[other])
            made.append(history.commit(files, tip, other))
        else:
            files = changed(draw, history.trees[tip], 10 + number)
            made.append(history.commit(files, tip))

    return made[-1]


def seeds() -> Iterator[object]:
    for seed in range(100):
        marks = () if seed < IN_THE_GATE else (pytest.mark.full,)
        yield pytest.param(seed, marks=marks)


@pytest.mark.parametrize("seed", list(seeds()))
def test_blame_says_what_git_says(seed: int, tmp_path: Path) -> None:
    """Edits, renames, merges and histories that went back have the result of `git blame`."""
    history = GitHistory(tmp_path / "repo")
    last = random_history(random.Random(seed), history)
    for path, content in history.trees[last].items():
        if content:
            assert history.by_us(last, path) == history.by_git(last, path), path


@pytest.mark.parametrize(
    ("contents", "of"),
    [
        ((b"", b"a\n"), [1]),
        ((b"a", b"a\n"), [1]),
        ((b"a\r\nb\r\n", b"a\nb\r\n"), [1, 0]),
        ((b"a\nb\n", b"a\n\0b\n", b"a\n\0b\nc\n"), [0, 1, 2]),
        ((b"a\n\xff\n", b"b\na\n\xff"), [1, 0, 1]),
        ((b"x\n" * 3000, b"x\n" * 1500 + b"y\n" + b"x\n" * 1500), [0] * 1500 + [1] + [0] * 1500),
    ],
)
def test_any_content_has_lines(contents: Sequence[bytes], of: list[int], tmp_path: Path) -> None:
    """Empty files, missing newlines, NULs and bytes that are no text are compared as git does."""
    history = GitHistory(tmp_path / "repo")
    made: list[str] = []
    for content in contents:
        made.append(history.commit({"f": content}, *made[-1:]))

    assert history.by_us(made[-1], "f") == [(made[each], "f") for each in of]
    assert history.by_git(made[-1], "f") == [(made[each], "f") for each in of]


def test_a_copied_file_is_followed_on_request(tmp_path: Path) -> None:
    """Without `copies`, its lines are new, as for git."""
    history = GitHistory(tmp_path / "repo")
    text = b"".join(b"line %d\n" % number for number in range(20))
    first = history.commit({"a": text})
    second = history.commit({"a": text, "b": text}, first)
    assert history.by_us(second, "b") == [(second, "b")] * 20 == history.by_git(second, "b")
    assert history.by_us(second, "b", copies=True) == [(first, "a")] * 20
