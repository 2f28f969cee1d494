"""Where a store lies, so that one that is moved or replaced by a link is noticed at once.

An agent, or a person, can move `.hankweave` or `checkpoints` while a server works with it, and put
a link or another folder in its place. Following that would write checkpoints where nobody looks
for them, or begin a second store; so a link is refused at the start, and each call of the engine
makes sure that the folders are the ones that were opened.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.checkpoints.errors import ShadowRepositoryError
from hankweave_server.paths import Layout


class StoreMoved(ShadowRepositoryError):
    """A folder of the store is not where it was, or not what it was."""

    def __init__(self, path: Path, fault: str, hint: str) -> None:
        super().__init__(f"{path} {fault}")
        self.hint = hint


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The folders of an open store, as they were when it was opened."""

    folders: tuple[tuple[Path, int, int], ...]
    """The path of each, its device and its inode."""
    descriptor: int
    """The shadow repository as it was opened."""

    @classmethod
    def of(cls, layout: Layout) -> StorePlace:
        """Note where a store lies; raises StoreMoved, and OSError where a folder is missing."""
        refuse_links(layout)
        found = ((path, path.lstat()) for path in _folders(layout))
        folders = tuple((path, status.st_dev, status.st_ino) for path, status in found)
        return cls(folders, os.open(layout.shadow_repository, os.O_PATH | os.O_DIRECTORY))

    @property
    def repository(self) -> Path:
        """A path of the shadow repository that leads to no folder that took its place.

        A call that is under way while the folder is replaced ends in the folder it began in.
        """
        return Path(f"/proc/self/fd/{self.descriptor}")

    def close(self) -> None:
        os.close(self.descriptor)

    def require_unmoved(self) -> None:
        """Raise StoreMoved where a folder is gone, or another one than was opened."""
        for path, device, inode in self.folders:
            try:
                status = path.lstat()
            except OSError:
                raise StoreMoved(
                    path,
                    "was moved or removed while the server worked with it",
                    f"Move it back to {path}, and start again: what was acknowledged is in it.",
                ) from None

            if (status.st_dev, status.st_ino) != (device, inode):
                raise StoreMoved(
                    path,
                    f"was replaced by {_kind(status)} while the server worked with it",
                    f"Move the original folder back to {path}, and start again: what was "
                    "acknowledged is in it.",
                )


def refuse_links(layout: Layout) -> None:
    """Raise StoreMoved where a folder of an execution's state is a link; nothing is touched."""
    for path in (*_folders(layout), layout.journal.parent):
        if path.is_symlink():
            target = os.path.normpath(path.parent / path.readlink())
            here, there = shlex.quote(str(path)), shlex.quote(target)
            raise StoreMoved(
                path,
                f"is a link to {target}",
                "The state of an execution lies in its own directory. Put the folder itself "
                f"there, and start again: rm {here} && mv {there} {here}",
            )


def _folders(layout: Layout) -> tuple[Path, ...]:
    return layout.state_directory, layout.checkpoints, layout.shadow_repository


def _kind(status: os.stat_result) -> str:
    return "a link" if stat.S_ISLNK(status.st_mode) else "something else"
