"""Where a branch may lie: in a directory of its own, that is nobody's and in nobody's way."""

from __future__ import annotations

from pathlib import Path

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.layout import Layout

_PATH = "$.data.path"


def place_of(wanted: str | None, otherwise: Path, original: Layout) -> Path:
    """Gives the directory a branch is to be made as; raises Refused, and touches nothing.

    `otherwise` is where it goes if no place was asked for.
    """
    place = otherwise if wanted is None else _absolute(wanted)
    try:
        parent = place.parent.resolve(strict=True)
        final = parent / place.name
        if not parent.is_dir():
            raise _refused(f"{parent} is no directory.")

        _require_vacant(final)
        _require_outside(final, original)
    except FileNotFoundError:
        raise _refused(
            f"There is no directory {place.parent}.", "Make it first, or name another place."
        ) from None
    except (OSError, RuntimeError) as error:
        raise _refused(f"{wanted!r} cannot be used: {error}.") from None

    return final


def _absolute(wanted: str) -> Path:
    path = Path(wanted)
    if not path.is_absolute() or ".." in path.parts or not path.name or "\0" in wanted:
        raise _refused(
            f"{wanted!r} is not the absolute path of a new directory.",
            "Give a path that begins with / and has no .. in it.",
        )

    return path


def _require_vacant(final: Path) -> None:
    if final.is_symlink() or (final.exists() and not final.is_dir()):
        raise _refused(f"{final} exists and is no directory.")

    if final.exists() and any(final.iterdir()):
        raise _refused(
            f"{final} is not empty.", "Name a directory that is empty, or does not exist."
        )


def _require_outside(final: Path, original: Layout) -> None:
    """Refuses a place in an execution: its checkpoints and rollbacks would hold the branch."""
    for folder in (final, *final.parents):
        if folder == original.root.resolve() or Layout.of_execution(folder).meta.exists():
            raise _refused(
                f"{final} lies in the execution {folder}.",
                "An execution can hold no other one; name a place outside of it.",
            )


def _refused(message: str, hint: str | None = None) -> Refused:
    return Refused(ErrorCode.INVALID_PATH, message, path=_PATH, hint=hint)
