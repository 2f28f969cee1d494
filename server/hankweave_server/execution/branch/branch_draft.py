"""A branch on its way: under which name it is built, and how it gets its own."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ExecutionOrigin
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import BranchIntent
from hankweave_server import fsutil
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.paths import STATE_DIRECTORY, Layout

TEMPORARY = f"{STATE_DIRECTORY}-branch-"
"""Begins the name under which a branch is built; no checkpoint ever holds such a name."""

_INSIDE = "execution"
"""One level deeper than anybody looks for an execution."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a branch is to become."""

    target: RollbackTarget
    final: Path
    run_id: RunId
    intent: BranchIntent

    @property
    def temporary(self) -> Path:
        return Path(self.intent.temporary)

    @property
    def layout(self) -> Layout:
        """Where it is built."""
        return Layout.of_execution(self.temporary / _INSIDE)


def publish(draft: Draft) -> None:
    """Gives the branch its name: an empty directory of that name is replaced, nothing else."""
    draft.layout.root.rename(draft.final)
    fsutil.sync_directory(draft.final.parent)
    draft.temporary.rmdir()


def is_published(intent: BranchIntent) -> bool:
    """Tells whether what has the final name is this very branch."""
    layout = Layout.of_execution(Path(intent.execution_path))
    try:
        with layout.journal.open("rb") as journal:
            first = codec.decode_event(journal.readline().rstrip(b"\n"))
    except (OSError, Refused):
        return False

    return isinstance(first.data, ExecutionOrigin) and first.data.run_id == intent.run_id


def remove_temporary(intent: BranchIntent) -> None:
    """Removes what was built under a temporary name; what has another name is never touched."""
    temporary = Path(intent.temporary)
    if not temporary.name.startswith(TEMPORARY) or not temporary.is_dir():
        return

    # A folder of the checkpoint may forbid its own removal.
    for folder, folders, _ in os.walk(temporary):
        for inner in (Path(folder, name) for name in folders):
            if not inner.is_symlink():
                inner.chmod(fsutil.PRIVATE_DIRECTORY)

    shutil.rmtree(temporary)
    fsutil.sync_directory(temporary.parent)
