"""Merges of what a git tree does not record: permissions, empty folders, skipped files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from checkpoints.conftest import Lab
from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.merge import TreeMerge, merge
from hankweave_server.domain.path_merge import ConflictKind, Policy
from hankweave_server.git.line_merge import LineMerger
from hankweave_server.git.repo import ShadowRepo
from support.merges import snapshot

LINES = LineMerger()

Edit = Callable[[], object]


@pytest.fixture
def repo(lab: Lab) -> Iterator[ShadowRepo]:
    with closing(ShadowRepo(lab.layout.shadow_repository)) as opened:
        yield opened


def versions(lab: Lab, ours: Edit, theirs: Edit) -> tuple[Sha, Sha, Sha]:
    """Checkpoint the work tree as it is, and after each of two edits of it."""
    base = lab.checkpoint().sha
    theirs()
    their_sha = lab.checkpoint().sha
    lab.rollback(base)
    ours()
    return base, lab.checkpoint().sha, their_sha


def merged(
    repo: ShadowRepo,
    shas: tuple[Sha, Sha, Sha],
    policy: Policy = Policy.ASK,
    paths: frozenset[bytes] | None = None,
) -> TreeMerge:
    return merge(*(snapshot(repo, sha) for sha in shas), LINES, policy=policy, paths=paths)
