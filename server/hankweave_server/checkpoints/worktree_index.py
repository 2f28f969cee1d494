"""What the engine knows of the work tree between two calls: tracked paths, stat data, digests.

Which paths are tracked follows the commit the next checkpoint will have as its parent, as it
does with git's index: a path of the parent stays tracked even if `.gitignore` hides it by now.
What is known of their content does not depend on any commit, only on stat data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints import cache
from hankweave_server.checkpoints.contents import store_listing
from hankweave_server.checkpoints.manifest import ManifestCorrupt
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.observe import Observer
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import differences
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.parent_gitignore import rules_above
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex, TrackedFile


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: RestorePlan
    patterns: tuple[str, ...]
    pending: list[TrackedFile]


class WorkTreeMemory:
    """StatIndex, scan and observer of one work tree, kept in step with HEAD and with the disk."""

    def __init__(
        self,
        repo: ShadowRepo,
        notes: Notes,
        work_tree: Path,
        size_limit: int | None,
        *,
        in_place: bool = False,
    ) -> None:
        self._repo = repo
        self._notes = notes
        self._size_limit = size_limit
        # In a person's own project no name at the top is ours, and other rules may hold already.
        self.descent = Descent(work_tree, at_the_top=frozenset() if in_place else AT_THE_TOP)
        self._above = rules_above(work_tree) if in_place else None
        self.forget()

    def forget(self) -> None:
        """Believes nothing any more: the next checkpoint reads every file again."""
        self.table = StatIndex()
        self.scan = WorkTreeScan(self.descent, self.table, above=self._above)
        self.observer = Observer(self.descent, self.scan, self._size_limit)
        self._tree: bytes | None = None
        self._commit: Sha | None = None
        self._planned: _Planned | None = None

    @property
    def tree(self) -> bytes | None:
        """The tree of the commit that the table follows."""
        return self._tree

    def refresh(
        self,
        parent: Sha | None,
        patterns: Iterable[str],
        also: Iterable[bytes] = (),
    ) -> list[TrackedFile]:
        """Looks at the work tree; gives the files that must be read before they are believed."""
        self._planned = None
        self.follow(parent)
        return self.scan.refresh(UnifiedFileResolver(patterns), also)

    def has_planned(
        self, plan: RestorePlan, patterns: Iterable[str], pending: list[TrackedFile]
    ) -> None:
        """Notes what the look that a plan was made from has found."""
        self._planned = _Planned(plan, tuple(patterns), pending)

    def refresh_after(
        self, plan: RestorePlan, parent: Sha | None, patterns: Iterable[str]
    ) -> list[TrackedFile]:
        """Looks again at what the plan will touch, and relies on its look for the rest.

        Looks at everything where that was not the last look, or at something else.
        """
        planned, self._planned = self._planned, None
        if (
            planned is None
            or planned.plan is not plan
            or planned.patterns != tuple(patterns)
            or parent != self._commit
        ):
            return self.refresh(parent, patterns, plan.touched)

        changed = self.scan.look_again(plan.touched)
        known = {file.slot for file in changed}
        before = [file for file in planned.pending if self.table.holds(file)]
        return changed + [file for file in before if file.slot not in known]

    def follow(self, parent: Sha | None) -> None:
        """Tracks what that commit has, and of the rest only what patterns want anew."""
        if parent == self._commit:
            return

        try:
            self._track_as(parent)
        except (KeyError, ManifestCorrupt):
            # A damaged past must not forbid new checkpoints; patterns alone decide then.
            self.forget()

        self._commit = parent

    def is_recorded(self, commit: Sha, tree: bytes) -> None:
        """Notes that what the table says has become that commit."""
        self._commit, self._tree = commit, tree
        self.table.gone.clear()
        self.table.empty_members = {folder.path for folder in self.table.empty_folders()}
        self.observer.forget()

    def load(self, path: Path) -> None:
        """Takes over what an earlier process knew, if it can be believed."""
        saved = cache.load(path)
        if saved is None:
            return

        if not saved.store.items() <= store_listing(self._objects).items():
            # A file of the store is gone or was changed, and with it perhaps what the cache names.
            self._repo.is_doubted = True
        elif self._is_ours(saved.made_at):
            self.follow(self._repo.head())
            saved.apply(self.table)

    def save(self, path: Path) -> None:
        if self._commit is not None:
            files = self.scan.settled_files()
            cache.save(path, self._commit, files, store_listing(self._objects))

    @property
    def _objects(self) -> Path:
        return self._repo.path / "objects"

    def _is_ours(self, commit: Sha) -> bool:
        try:
            return self._repo.commit(commit) is not None
        except KeyError:
            return False

    def _track_as(self, parent: Sha | None) -> None:
        commit = None if parent is None else self._repo.commit(parent)
        tree = None if commit is None else bytes.fromhex(commit.tree)
        empty_folders = self._notes.manifest(parent).empty_folders if parent else frozenset()
        for path, (_, after) in differences(self._repo.read_tree, self._tree, tree).items():
            known = self.table.files.get(path)
            if after is not None:
                self.table.track(path)
            elif known is not None:
                self.table.drop(known)

        self.table.empty_members = set(empty_folders)
        self.table.outline += 1
        self._tree = tree
