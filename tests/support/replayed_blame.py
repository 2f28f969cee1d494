"""Credit each line of a file to a checkpoint: by replaying every tree forwards, and by blame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pygit2
from pygit2.enums import SortMode

from hankweave_protocol.ids import Sha
from hankweave_server.features.answers.blame import blame
from hankweave_server.features.answers.file_versions import FileVersions, PathRestore
from hankweave_server.git.line_changes import _without_common_end, compared
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.paths import Layout

Files = dict[str, bytes]
Credit = tuple[Sha, str]
"""The checkpoint that has brought a line, and the name of the file there."""


@dataclass
class Replay:
    """The call that brought each line of each file, from the first checkpoint to the last."""

    trees: dict[Sha, Files] = field(default_factory=dict)
    credits: dict[Sha, dict[str, list[Credit]]] = field(default_factory=dict)

    def add(
        self, sha: Sha, files: Files, parents: Sequence[Sha], joined: Mapping[str, Sha]
    ) -> None:
        """Take a checkpoint; `joined` has the other checkpoint from which a path comes."""
        self.trees[sha] = files
        self.credits[sha] = {
            path: self._of_file(sha, path, [*parents, *([joined[path]] if path in joined else ())])
            for path in files
        }

    def _of_file(self, sha: Sha, path: str, sources: Sequence[Sha]) -> list[Credit]:
        content = self.trees[sha][path]
        olds = [(each, name) for each in sources if (name := self._former(sha, each, path))]
        same = [(each, name) for each, name in olds if self.trees[each][name] == content]
        found: list[Credit | None] = [None] * line_count(content)
        for each, name in same[:1] or olds:
            unchanged = _unchanged(self.trees[each][name], content)
            for new, old in unchanged.items():
                found[new] = found[new] or self.credits[each][name][old]

        return [credit or (sha, path) for credit in found]

    def _former(self, sha: Sha, before: Sha, path: str) -> str | None:
        """Return the name of a file before: another one if it was renamed and nothing else."""
        old, new = self.trees[before], self.trees[sha]
        if path in old:
            return path

        return next((name for name in old if name not in new and old[name] == new[path]), None)


def _unchanged(old: bytes, new: bytes) -> dict[int, int]:
    """Return the lines that both have: the new number, and the old one."""
    found: dict[int, int] = {}
    at_old = at_new = 0
    for change in [*compared(*_without_common_end(old, new)), None]:
        end = line_count(old) if change is None else change.old_start
        found |= dict(zip(range(at_new, at_new + end - at_old), range(at_old, end), strict=True))
        if change is not None:
            at_old, at_new = change.old_end, change.new_end

    return found


def replay_of(layout: Layout) -> Replay:
    """Replay the checkpoints before the newest one, of an execution that was never rolled back."""
    repo, replay = pygit2.Repository(str(layout.shadow_repository)), Replay()
    for commit in repo.walk(repo.head.target, SortMode.TOPOLOGICAL | SortMode.REVERSE):
        parents = [Sha(str(parent)) for parent in commit.parent_ids]
        replay.add(Sha(str(commit.id)), dict(_files(commit.tree)), parents, {})

    return replay


def _files(tree: pygit2.Tree, above: str = "") -> Iterator[tuple[str, bytes]]:
    for each in tree:
        if isinstance(each, pygit2.Tree):
            yield from _files(each, f"{above}{each.name}/")
        elif isinstance(each, pygit2.Blob):
            yield f"{above}{each.name}", each.data


def line_count(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n") if content else 0)


def credits_by_blame(
    layout: Layout,
    sha: Sha,
    path: str,
    restores: Sequence[PathRestore] = (),
    results: Mapping[str, Sha] | None = None,
) -> list[Credit]:
    """Return the checkpoint that has brought each line of a file, as blame says."""
    with closing(ShadowRepo(layout.shadow_repository)) as repo:
        versions = FileVersions(repo, restores=restores, results=results or {})
        version = versions.file_at(sha, path.encode())
        count = line_count(versions.content(version.blob))
        return [
            (each.version.sha, each.version.path.decode())
            for each in blame(version, count, [(0, count)], versions)
            for _ in range(each.start, each.end)
        ]
