"""Exceptions of the checkpoint engine; each carries the facts that a reply or report needs."""

from __future__ import annotations

import os

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.model import Damage, Skipped
from hankweave_server.plain_text import counted


class CheckpointNotFound(Exception):
    """No checkpoint commit of that name is on our refs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no checkpoint {name}")
        self.name = name


class PathNotInCheckpoint(Exception):
    """The checkpoint has no file of that name."""

    def __init__(self, sha: Sha, path: bytes) -> None:
        super().__init__(f"checkpoint {sha} has no file {os.fsdecode(path)!r}")
        self.sha = sha
        self.path = path


class CheckpointDamaged(Exception):
    """Objects of a checkpoint cannot be read; nothing was changed."""

    def __init__(self, sha: Sha, damages: tuple[Damage, ...]) -> None:
        self.sha = sha
        self.damages = damages
        super().__init__(f"checkpoint {sha} cannot be read: {self.damage}")

    @property
    def damage(self) -> str:
        """How much of it is damaged, in words."""
        return counted(len(self.damages), "object is damaged", "objects are damaged")


class RestoreIncomplete(Exception):
    """A new work tree could not take all files of its checkpoint."""

    def __init__(self, unrestored: tuple[Skipped, ...]) -> None:
        super().__init__(f"{counted(len(unrestored), 'path')} could not be restored")
        self.unrestored = unrestored
