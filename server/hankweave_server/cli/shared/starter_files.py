"""The files of the examples that come with this package, and writing them to a directory.

`cli/starters/` has them, except for the earthquakes: a checkout has those in `examples/`, where
people look for them, and a wheel gets them from there (pyproject.toml), so that they exist once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from hankweave_server.errors import ExitCode, Stop

_CHECKOUT = Path(__file__).parents[4]


def files_of(name: str) -> dict[str, bytes]:
    """Return the files of an example by their relative paths, sorted."""
    folder: Traversable = resources.files("hankweave_server.cli") / "starters" / name
    if not folder.is_dir():
        folder = _CHECKOUT / "examples" / name

    return dict(sorted(_walk(folder, "")))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        if not item.is_dir():
            yield prefix + item.name, item.read_bytes()
        elif item.name != "__pycache__":
            yield from _walk(item, f"{prefix}{item.name}/")


def require_directory(path: Path) -> None:
    """Raise Stop if a path is taken by something that is not a directory."""
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        raise Stop(f"{path} is a file.", ExitCode.CANNOT_CREATE, hint="Name a directory.")


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their relative paths; never overwrite one."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
