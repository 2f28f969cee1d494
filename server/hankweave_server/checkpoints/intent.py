"""The intent of a restore: one small file, durable before the first file of the work tree moves.

`execution.rollback` says what is in it and what a start does with one. Here it is bytes.
"""

from __future__ import annotations

from pathlib import Path

from hankweave_server.fsutil import remove_durably, sync_directory, write_private
from hankweave_server.git.errors import disk_faults
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.wal import StagedFile, WriteAheadLog


class IntentFile:
    """The file that holds the intent of the restore under way."""

    def __init__(self, path: Path, repo: ShadowRepo, wal: WriteAheadLog | None) -> None:
        self._path = path
        self._repo = repo
        self._wal = wal

    def staged(self, content: bytes) -> StagedFile:
        """Write an intent under its temporary name, to be published with a safety checkpoint."""
        temporary = self._path.with_name(self._path.name + ".tmp")
        write_private(temporary, content, durable=False)
        return StagedFile(temporary, self._path)

    def write(self, content: bytes) -> None:
        """Make an intent durable; for a restore that needs no safety checkpoint."""
        with disk_faults(self._repo.path):
            self._repo.publish(None, {}, [self.staged(content)])

    def forget(self, content: bytes) -> None:
        """Remove the intent of a restore whose outcome is durable; a later intent stays.

        Nothing is flushed. Until the next checkpoint, a power cut can bring it back.
        """
        with disk_faults(self._repo.path):
            if self._wal is None:
                remove_durably(self._path)
            else:
                self._wal.remove(self._path, content)

    def set_aside(self, name: str) -> None:
        """Give the intent another name, durably."""
        with disk_faults(self._repo.path):
            self._repo.settle()
            self._path.rename(self._path.with_name(name))
            sync_directory(self._path.parent)
