"""The shadow repository's own files: created crash-safely, checked and cleaned at each start.

A repository is a handful of small files. Writing them here instead of through libgit2 means no
template, no hook samples, no `.git` file in the work tree, and one rename that makes it appear
complete.

`StorePlace` records where a store lies, to detect at once that it was moved or replaced by a link.
An agent or a user can move `.hankweave` or `checkpoints` while a server uses it, and put a link or
another folder in its place. Following that would write checkpoints to an unexpected place, or
begin a second store. A link is therefore refused at the start, and each call of the engine
verifies that the folders are the ones that were opened.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server.fsutil import (
    make_private_directory,
    replace_durably,
    sync_directory,
    sync_filesystem,
    write_private,
)
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.paths import DATA_SOURCE, RIG_ARCHIVE, Layout
from hankweave_server.worktree.tree_writer import TEMPORARY

IDENTITY = """\
[user]
  name = Hankweave Runtime
  email = froggie@southbridge.ai
[commit]
  gpgsign = false
"""
"""`checkpoints/.gitconfig`, as in seed 000."""

# Hooks, the file monitor and automatic gc stay off for stock git programs that are pointed here:
# an agent can write this work tree. fsck ignores what agents put in .gitmodules.
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tworktree = {work_tree}
\tlogallrefupdates = false
\tautocrlf = false
\tsafecrlf = false
\tsymlinks = true
\tignorecase = false
\tprecomposeunicode = false
\thooksPath = /dev/null
\tfsmonitor = false
\tuntrackedCache = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fsck]
\tgitmodulesBlob = ignore
\tgitmodulesLarge = ignore
\tgitmodulesName = ignore
\tgitmodulesParse = ignore
\tgitmodulesPath = ignore
\tgitmodulesSymlink = ignore
\tgitmodulesUpdate = ignore
\tgitmodulesUrl = ignore
[include]
\tpath = ../.gitconfig
"""

_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"
_EXCLUDE = f".git\n{STATE_DIRECTORY}*\n"
_EXCLUDE_AT_THE_TOP = f"/{DATA_SOURCE}\n/{RIG_ARCHIVE}\n"
_UNBORN_HEAD = b"ref: refs/heads/main\n"

_FOLDERS = ("info", "objects/info", "objects/pack", "refs/heads", "refs/notes", "refs/tags")


def make_ready(layout: Layout) -> tuple[str, ...]:
    """Create the repository if it is missing, and remove what a crash left in it.

    Returns the names of what was removed or repaired. A kill at any point leaves either no
    repository and a temporary folder, or the complete one. Only the holder of the runtime lock may
    call this: a lock file found here is assumed to belong to a dead process.
    """
    make_private_directory(layout.checkpoints)
    leftovers = [*_unfinished_creations(layout), *_unfinished_restores(layout)]
    if not layout.git_config.is_file() or layout.git_config.read_text() != IDENTITY:
        replace_durably(layout.git_config, IDENTITY.encode())

    if not layout.shadow_repository.is_dir():
        _create(layout)
    else:
        leftovers += _clear(layout.shadow_repository)
        leftovers += _restore_settings(layout)

    return tuple(leftovers)


def _settings_files(layout: Layout) -> dict[str, bytes]:
    work_tree = os.path.relpath(layout.work_tree, layout.shadow_repository)
    exclude = _EXCLUDE if layout.is_in_place else _EXCLUDE + _EXCLUDE_AT_THE_TOP
    quoted = '"' + work_tree.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return {
        "config": os.fsencode(_CONFIG.format(work_tree=quoted)),
        "info/attributes": _ATTRIBUTES.encode(),
        "info/exclude": exclude.encode(),
    }


def _temporary(layout: Layout) -> Path:
    return layout.shadow_repository.with_name(layout.shadow_repository.name + ".new")


def _unfinished_creations(layout: Layout) -> Iterator[str]:
    temporary = _temporary(layout)
    if temporary.exists():
        shutil.rmtree(temporary)
        yield temporary.name


def _unfinished_restores(layout: Layout) -> Iterator[str]:
    for path in sorted(layout.checkpoints.glob(f"{os.fsdecode(TEMPORARY)}*")):
        path.unlink()
        yield path.name


def _create(layout: Layout) -> None:
    temporary = _temporary(layout)
    for name in _FOLDERS:
        make_private_directory(temporary / name)

    for name, content in {**_settings_files(layout), "HEAD": _UNBORN_HEAD}.items():
        write_private(temporary / name, content, durable=False)

    sync_filesystem(temporary)
    temporary.rename(layout.shadow_repository)
    sync_directory(layout.checkpoints)


def _restore_settings(layout: Layout) -> Iterator[str]:
    """Restore our settings where they were changed, perhaps by an agent."""
    for name, content in _settings_files(layout).items():
        path = layout.shadow_repository / name
        if path.is_symlink() or not path.is_file() or path.read_bytes() != content:
            make_private_directory(path.parent)
            replace_durably(path, content)
            yield name


def _clear(repository: Path) -> Iterator[str]:
    """Remove locks and temporary files: no other process runs here, so their creators are dead."""
    for folder in sorted(repository.glob("objects/pack/tmp_*/")):
        shutil.rmtree(folder)
        yield str(folder.relative_to(repository))

    for path in sorted(repository.rglob("*")):
        if _is_leftover(path, repository):
            path.unlink()
            yield str(path.relative_to(repository))


def _is_leftover(path: Path, repository: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        return False

    name = path.name
    if name.startswith("tmp_") or name.endswith((".lock", ".tmp")):
        return True

    # A pack whose index was never written is invisible to git; so is the reverse.
    if path.parent == repository / "objects" / "pack":
        return (path.suffix == ".pack" and not path.with_suffix(".idx").exists()) or (
            path.suffix == ".idx" and not path.with_suffix(".pack").exists()
        )

    return False


class StoreMoved(ShadowRepositoryError):
    """A folder of the store was moved or replaced."""

    def __init__(self, path: Path, fault: str, hint: str) -> None:
        super().__init__(f"{path} {fault}")
        self.hint = hint


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The folders of an open store, as they were when it was opened."""

    folders: tuple[tuple[Path, int, int], ...]
    """Path, device and inode of each."""
    descriptor: int
    """A descriptor of the shadow repository as it was opened."""
    state_descriptor: int
    """A descriptor of the state directory as it was opened."""

    @classmethod
    def of(cls, layout: Layout) -> StorePlace:
        """Record where a store lies; raise StoreMoved, and OSError if a folder is missing."""
        refuse_links(layout)
        found = ((path, path.lstat()) for path in _folders(layout))
        folders = tuple((path, status.st_dev, status.st_ino) for path, status in found)
        opened = (layout.shadow_repository, layout.state_directory)
        return cls(folders, *(os.open(path, os.O_PATH | os.O_DIRECTORY) for path in opened))

    @property
    def repository(self) -> Path:
        """A path of the shadow repository that never leads to a replacement folder.

        A call that is running while the folder is replaced completes in the original folder.
        """
        return Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def state_directory(self) -> Path:
        """A path of the state directory that never leads to a replacement folder."""
        return Path(f"/proc/self/fd/{self.state_descriptor}")

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.state_descriptor)

    def require_same_store(self) -> None:
        """Raise StoreMoved if a folder is gone, or is not the one that was opened."""
        for path, device, inode in self.folders:
            try:
                status = path.lstat()
            except OSError:
                raise StoreMoved(
                    path,
                    "was moved or removed while the server was using it",
                    (
                        f"Move it back to {path}, then start again: it contains all "
                        "acknowledged data."
                    ),
                ) from None

            if (status.st_dev, status.st_ino) != (device, inode):
                raise StoreMoved(
                    path,
                    f"was replaced by {_kind(status)} while the server was using it",
                    f"Move the original folder back to {path}, then start again: it "
                    "contains all acknowledged data.",
                )


def refuse_links(layout: Layout) -> None:
    """Raise StoreMoved if a folder of an execution's state is a link; touch nothing."""
    for path in (*_folders(layout), layout.journal.parent):
        if path.is_symlink():
            target = os.path.normpath(path.parent / path.readlink())
            here, there = shlex.quote(str(path)), shlex.quote(target)
            raise StoreMoved(
                path,
                f"is a link to {target}",
                "The state of an execution must be in its own directory. Replace the link "
                f"with the folder itself, then start again: rm {here} && mv {there} {here}",
            )


def _folders(layout: Layout) -> tuple[Path, ...]:
    return layout.state_directory, layout.checkpoints, layout.shadow_repository


def _kind(status: os.stat_result) -> str:
    return "a link" if stat.S_ISLNK(status.st_mode) else "something else"
