"""Git's ignore rules: every `.gitignore`, `info/exclude`, and the user's own file."""

from __future__ import annotations

from collections.abc import Callable

from hankweave_server.user_git.settings import UserSettings
from hankweave_server.worktree.gitignore import FolderRules, IgnoreRules
from hankweave_server.worktree.names import parents_of

_OURS = frozenset({b".git", b".hankweave", b".architect"})
_HALF_WRITTEN = b".hankweave.restoring"


class Ignoring:
    """The ignore rules of one work tree, read as folders are entered."""

    def __init__(
        self, settings: UserSettings, exclude: bytes, read: Callable[[bytes], bytes | None]
    ) -> None:
        usual = settings.file("core.excludesfile", "ignore")
        outermost = IgnoreRules(IgnoreRules(None, b"", usual), b"", exclude)
        self._rules = FolderRules(read, outermost)

    def hides(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether a name is ignored, provided that no folder above it is."""
        name = path.rpartition(b"/")[2]
        if name in _OURS or name.startswith(_HALF_WRITTEN):
            return True

        return self._rules.hide(path, is_folder=is_folder)

    def hides_folder_or_one_above(self, folder: bytes) -> bool:
        if not folder:
            return False

        above = [*reversed(parents_of(folder)), folder]
        return any(self.hides(each, is_folder=True) for each in above)
