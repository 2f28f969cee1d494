"""Decide where a branch may go, and give it its name.

A branch needs a directory of its own, outside of every execution. It is built under a temporary
name and published by a rename.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol import codec
from hankweave_protocol.attempts import Attempt
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ExecutionOrigin
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import BranchIntent
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server import fsutil
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.fsutil import make_private_directory
from hankweave_server.paths import Layout

_PATH = "$.data.path"


LONGEST_CHAIN = 40
"""Symbolic links followed on the way to a place, as in the kernel."""


def place_of(wanted: str | None, otherwise: Path, original: Layout | None) -> Path:
    """Return the directory in which an execution is to be made; raise Refused.

    `otherwise` is used if no place was requested; only its parent directory is created if it does
    not exist. `original` is the execution that is branched, if it is a branch.
    """
    place = otherwise if wanted is None else _absolute(wanted)
    try:
        if wanted is None:
            make_private_directory(place.parent)

        parent = place.parent.resolve(strict=True)
        final = parent / place.name
        if not parent.is_dir():
            raise _refused(f"{parent} is not a directory.")

        _require_empty(final)
        for passed in _ways_through(place):
            _require_outside(passed, original)
    except FileNotFoundError:
        raise _refused(
            f"There is no directory {place.parent}.", "Create it first, or choose another path."
        ) from None
    except (OSError, RuntimeError) as error:
        raise _refused(f"{str(place)!r} cannot be used: {error}.") from None

    return final


def _ways_through(place: Path) -> Iterator[Path]:
    """Return the place itself and every symbolic link on the way to it, as their real paths.

    A link inside an execution may have been made by an agent, which must not decide where a branch
    goes.
    """
    waiting = list(reversed(place.parts[1:]))
    at, links = Path("/"), 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            at = at.parent
            continue

        at = at / name
        if not at.is_symlink():
            continue

        yield at
        links += 1
        if links > LONGEST_CHAIN:
            raise RuntimeError("too many symbolic links")

        target = at.readlink()
        waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        at = Path("/") if target.is_absolute() else at.parent

    yield at


def _absolute(wanted: str) -> Path:
    path = Path(wanted)
    if not path.is_absolute() or ".." in path.parts or not path.name or "\0" in wanted:
        raise _refused(
            f"{wanted!r} is not the absolute path of a new directory.",
            "Use a path that begins with / and contains no `..`.",
        )

    return path


def _require_empty(final: Path) -> None:
    if final.is_symlink() or (final.exists() and not final.is_dir()):
        raise _refused(f"{final} exists and is not a directory.")

    if final.exists() and any(final.iterdir()):
        raise _refused(
            f"{final} is not empty.", "Name a directory that is empty, or does not exist."
        )


def _require_outside(final: Path, original: Layout | None) -> None:
    """Refuse a place inside an execution: its checkpoints would include the other one."""
    root = None if original is None else original.root.resolve()
    for folder in (final, *final.parents):
        if folder == root or Layout.of_execution(folder).meta.exists():
            raise _refused(
                f"{final} is inside the execution {folder}.",
                "An execution cannot contain another one; choose a path outside it.",
            )


def _refused(message: str, hint: str | None = None) -> Refused:
    return Refused(ErrorCode.INVALID_PATH, message, path=_PATH, hint=hint)


TEMPORARY = f"{STATE_DIRECTORY}-branch-"
"""Prefix of the name under which a branch is built; no checkpoint ever holds such a name."""

_INSIDE = "execution"
"""One level deeper than any program looks for an execution."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A branch that is to be made."""

    target: RollbackTarget
    final: Path
    run_id: RunId
    intent: BranchIntent
    attempt: Attempt | None = None
    """How the branch takes part in an exploration, if it is an attempt."""

    @property
    def temporary(self) -> Path:
        return Path(self.intent.temporary)

    @property
    def layout(self) -> Layout:
        """The layout of the directory where it is built."""
        return Layout.of_execution(self.temporary / _INSIDE)


def publish(draft: Draft) -> None:
    """Give the branch its name: only an empty directory of that name is replaced."""
    draft.layout.root.rename(draft.final)
    fsutil.sync_directory(draft.final.parent)
    draft.temporary.rmdir()


def is_published(intent: BranchIntent) -> bool:
    """Return whether the directory with the final name is this branch."""
    layout = Layout.of_execution(Path(intent.execution_path))
    try:
        with layout.journal.open("rb") as journal:
            first = codec.decode_event(journal.readline().rstrip(b"\n"))
    except (OSError, Refused):
        return False

    return isinstance(first.data, ExecutionOrigin) and first.data.run_id == intent.run_id


def remove_temporary(intent: BranchIntent) -> None:
    """Remove what was built under a temporary name; nothing with another name is touched."""
    temporary = Path(intent.temporary)
    if temporary.name.startswith(TEMPORARY) and temporary.is_dir():
        remove_unpublished(temporary)


def remove_unpublished(temporary: Path) -> None:
    """Remove an execution that was built under a temporary name."""
    # A folder of the checkpoint may forbid its own removal.
    for folder, folders, _ in os.walk(temporary):
        for inner in (Path(folder, name) for name in folders):
            if not inner.is_symlink():
                inner.chmod(fsutil.PRIVATE_DIRECTORY)

    shutil.rmtree(temporary)
    fsutil.sync_directory(temporary.parent)
