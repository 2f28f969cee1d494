"""The rewrite of a repository: what it changes, what it links, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.rewrite import (
    ERASED,
    LARGE,
    Rewrite,
    blobs_at,
    new_repository,
    renamed_in,
    replaced,
)
from hankweave_server.checkpoints.session_snapshots import PIECE
from hankweave_server.git.repo import MEMORY_REF, ShadowRepo
from hankweave_server.git.trees import parsed
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import Redactor
from support.checkpointing import a_request
from support.git_facts import GitWitness

VALUE = "Tr0ub4dor & three"
BY = Redactor({"value": VALUE}, rules=())


class Store:
    """A repository whose checkpoints and session files a test makes."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout.of_execution(folder / "execution")
        self.layout.work_tree.mkdir(parents=True)
        self.engine = CheckpointEngine.open(self.layout)
        self.number = 0

    def checkpoint(self, **files: str | bytes) -> Sha:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (self.layout.work_tree / name.replace("__", ".")).write_bytes(data)

        self.number += 1
        return self.engine.checkpoint(a_request(self.number)).sha

    def rewritten(self, *paths: bytes, by: Redactor = BY) -> tuple[Rewrite, Path]:
        """Close the engine, and rewrite its repository into a folder beside it."""
        self.engine.close()
        folder = self.layout.checkpoints / "new"
        repo = ShadowRepo(self.layout.shadow_repository)
        staging = new_repository(folder)
        rewrite = Rewrite(repo, by, erased=blobs_at(repo, paths), add=staging.add)
        rewrite.decide()
        rewrite.write(folder, staging)
        repo.close()
        return rewrite, folder

    def swap(self, folder: Path) -> GitWitness:
        self.layout.shadow_repository.rename(self.layout.checkpoints / "old")
        folder.rename(self.layout.shadow_repository)
        return GitWitness(self.layout.root)


def test_only_commits_from_the_first_with_the_value_on_change(tmp_path: Path) -> None:
    """Earlier commits, and packs without anything old, are taken over as they are."""
    store = Store(tmp_path)
    first = store.checkpoint(a__txt="nothing")
    second = store.checkpoint(b__txt=f"it is {VALUE}")
    third = store.checkpoint(c__txt="nothing either")
    inodes = {path.stat().st_ino for path in store.layout.shadow_repository.rglob("*.pack")}
    rewrite, folder = store.rewritten()
    assert rewrite.done.commits.keys() == {second, third}
    assert rewrite.done.holders == {bytes.fromhex(second), bytes.fromhex(third)}
    assert inodes & {path.stat().st_ino for path in folder.rglob("*.pack")}
    git = store.swap(folder)
    git.run("fsck", "--full", "--strict")
    assert git.run("rev-parse", "HEAD~2").strip() == first
    assert git.run("show", "HEAD:b.txt") == "it is [redacted:value]"
    assert git.run("log", "-1", "--format=%ad %an").strip()


def test_names_binary_and_long_files_lose_it_too(tmp_path: Path) -> None:
    """A path gets a marker, a binary file keeps its length, and a long file is searched."""
    store = Store(tmp_path)
    long = b"x" * (LARGE - 8) + VALUE.encode() + b"y" * LARGE
    binary = b"\0\1" + VALUE.encode() + b"\2"
    store.checkpoint(**{f"named {VALUE}": "content", "long": long, "binary": binary})
    (store.layout.work_tree / f"named {VALUE}").chmod(0o600)
    store.checkpoint()
    _, folder = store.rewritten()
    git = store.swap(folder)
    git.run("fsck", "--full", "--strict")
    head = git.run("rev-parse", "HEAD").strip()
    files = git.files(head)
    assert files["named [redacted:value]"] == b"content"
    assert files["binary"] == b"\0\1" + b"*" * len(VALUE) + b"\2"
    assert files["long"] == long.replace(VALUE.encode(), b"[redacted:value]")
    notes = git.run("notes", "--ref=hankweave", "show", head)
    assert "named [redacted:value]" in notes
    assert VALUE not in notes


def test_a_path_loses_its_content_in_every_checkpoint(tmp_path: Path) -> None:
    """Each version of the file becomes the same marker; other files stay."""
    store = Store(tmp_path)
    store.checkpoint(a__env="one", other="kept")
    store.checkpoint(a__env="two")
    _, folder = store.rewritten(b"a.env")
    git = store.swap(folder)
    for revision in ("HEAD", "HEAD~1"):
        sha = git.run("rev-parse", revision).strip()
        assert git.files(sha) == {"a.env": ERASED, "other": b"kept"}


@pytest.mark.parametrize("before", [0, 1, len(VALUE) // 2, len(VALUE) - 1, len(VALUE)])
def test_a_value_across_two_pieces_of_a_session_file_is_found(tmp_path: Path, before: int) -> None:
    """A long session file is put together, cleaned, and cut again."""
    store = Store(tmp_path)
    session = tmp_path / "session.txt"
    content = b"a" * (PIECE - before) + VALUE.encode() + b"b" * PIECE
    session.write_bytes(content)
    store.engine.sessions.save({"sessions/s": session}, beyond=0)
    store.engine._repo.publish(None, {})  # As the next checkpoint does.
    _, folder = store.rewritten()
    repo = ShadowRepo(folder)
    level = [bytes.fromhex(repo.target(MEMORY_REF) or "")]
    for _ in range(4):
        level = [
            entry.digest for tree in level for _, entry in sorted(parsed(repo.read_tree(tree)))
        ]

    found = b"".join(map(repo.read_blob, level))
    repo.close()
    assert found == content.replace(VALUE.encode(), b"[redacted:value]")


def test_shas_in_texts_follow_and_longer_words_do_not() -> None:
    """Only a whole sha is replaced."""
    old, new = b"a1" * 20, b"b2" * 20
    text = b"at " + old + b", not " + old + b"0 or x" + old[:12]
    assert renamed_in(text, {old: new}) == text.replace(old + b",", new + b",")


def test_a_text_without_the_value_is_the_same_object() -> None:
    """Nothing is copied where there is nothing to do."""
    content = os.urandom(64)
    assert replaced(content, BY) is content


def test_a_name_of_the_past_stays_one_that_a_file_can_have(tmp_path: Path) -> None:
    """With the marker it would be too long: it gets asterisks instead, as many as the value has."""
    store = Store(tmp_path)
    name = "hunter2" + "x" * 248
    store.checkpoint(**{name: "nothing"})
    _, folder = store.rewritten(by=Redactor({"value": "hunter2"}, rules=(), shortest=6))
    git = store.swap(folder)
    (found,) = git.run("ls-tree", "--name-only", "HEAD").split()
    assert found == "*" * 7 + "x" * 248
