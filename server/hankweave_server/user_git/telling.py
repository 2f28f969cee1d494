"""What a person is told: of what was left out, what was left unfinished, and faults of the disk."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator

from hankweave_server.user_git.capture import Captured
from hankweave_server.user_git.errors import CheckpointError, CheckpointWarning, RollbackIncomplete


def tell_of(captured: Captured) -> None:
    """Warns of what a checkpoint leaves out, so that nobody counts on it."""
    for paths, why in (
        (captured.secrets, "may hold secrets and are not tracked: they are not committed"),
        (captured.foreign, "are kept by another program (LFS, git-crypt): they stay as they are"),
        (captured.unreadable, "cannot be read or named by git: they are left out"),
    ):
        if paths:
            warnings.warn(f"{_shown(paths)} {why}.", CheckpointWarning, stacklevel=5)


def tell_unfinished(paths: Iterable[bytes], what_was_done: str) -> None:
    left = sorted(paths)
    if left:
        raise RollbackIncomplete(
            f"{what_was_done}, but for files that are not as they were captured: {_shown(left)}.",
            "They were left as they are; `undo()` takes the rest back.",
            tuple(os.fsdecode(path) for path in left),
        )


def _shown(paths: Iterable[bytes]) -> str:
    names = [path.decode("utf-8", "backslashreplace") for path in sorted(paths)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


@contextlib.contextmanager
def faults_told() -> Iterator[None]:
    """Says a fault of the disk in a sentence."""
    try:
        yield
    except OSError as problem:
        raise CheckpointError(
            f"The workspace or its repository cannot be used: {problem}.",
            "What was interrupted is finished by the next call.",
        ) from problem
