"""Pins: checkpoints that no policy prunes, optionally with a name.

A pin is a ref, `refs/pins/<sha>`. Without a name it names the commit; with one it names an
annotated tag whose message is the name. Pins therefore survive the loss of journal and state file.
"""

from __future__ import annotations

import re

from hankweave_protocol.ids import Sha
from hankweave_protocol.instants import epoch_ms
from hankweave_server.checkpoints.commit_message import AUTHOR
from hankweave_server.checkpoints.errors import CheckpointNotFound
from hankweave_server.git.errors import disk_faults
from hankweave_server.git.repo import PINS, RawCommit, ShadowRepo

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")


class Pins:
    """The pins of a repository."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo

    def pin(self, sha: Sha, name: str | None) -> None:
        """Protect a checkpoint from pruning, durably.

        A name replaces an earlier one, None removes it. Raises CheckpointNotFound,
        InsufficientSpace or ShadowRepositoryError.
        """
        with disk_faults(self._repo.path):
            try:
                commit = self._repo.commit(sha)
            except KeyError as problem:
                raise CheckpointNotFound(sha) from problem

            if commit is None:
                raise CheckpointNotFound(sha)

            name = None if name is None else _UNPRINTABLE.sub(" ", name).strip()
            with self._repo.staging() as staging:
                target = staging.add("tag", _tag(commit, name)).hex() if name else sha
                self._repo.publish(staging, {PINS + sha: target})

    def unpin(self, sha: Sha) -> None:
        """Remove a pin, durably; do nothing if the checkpoint is not pinned."""
        with disk_faults(self._repo.path):
            self._repo.drop(PINS + sha)

    def all(self) -> dict[Sha, str | None]:
        """Return every pinned checkpoint and its name."""
        found: dict[Sha, str | None] = {}
        for ref, target in self._repo.references(PINS).items():
            sha = Sha(ref.removeprefix(PINS))
            found[sha] = None if target == sha else self._name_in(target)

        return found

    def _name_in(self, tag: Sha) -> str | None:
        try:
            _, data = self._repo.read(bytes.fromhex(tag))
        except KeyError:
            return None  # The checkpoint is pinned all the same; fsck reports the damage.

        _, _, message = data.partition(b"\n\n")
        return message.decode("utf-8", "replace").strip() or None


def _tag(commit: RawCommit, name: str) -> bytes:
    """Return a tag object with the commit's time, so that it is reproducible."""
    return (
        f"object {commit.sha}\ntype commit\ntag {commit.sha}\n"
        f"tagger {AUTHOR} {epoch_ms(commit.committed) // 1000} +0000\n\n{name}\n"
    ).encode("utf-8", "replace")
