"""The user's git configuration, read from the files that git reads.

libgit2 may have been configured to read none (the shadow repository reads only its own
configuration, and that setting is global to the process), so the files are found and merged here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from hankweave_server.user_git.repository import GitRepository, settings_in

FALLBACK_IDENTITY = ("Hankweave", "hankweave@localhost")

_TRUE = frozenset({"true", "yes", "on", "1", ""})
_FALSE = frozenset({"false", "no", "off", "0"})


class UserSettings:
    """The effective settings of one repository; the last value of a name wins."""

    def __init__(self, repo: GitRepository) -> None:
        self._values: dict[str, str] = {}
        own = repo.own_settings()
        for path in _personal_files():
            self._take(settings_in(path), path.parent, repo.git_dir)

        self._take(own, repo.common_dir, repo.git_dir)

    def _take(self, settings: list[tuple[str, str]], folder: Path, git_dir: Path) -> None:
        for name, value in settings:
            self._values[name] = value
            if name.startswith("includeif.gitdir") and name.endswith(".path"):
                condition = name.removeprefix("includeif.").removesuffix(".path")
                if _holds(condition, folder, git_dir):
                    self._values |= dict(settings_in(folder / Path(value).expanduser()))

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name, "").lower() if name in self._values else None
        if value is None or value not in _TRUE | _FALSE:
            return default

        return value in _TRUE

    def identity(self) -> tuple[str, str]:
        """Return the name and address for commits: the user's, or the server's as a fallback."""
        found = []
        for key, variable, fallback in zip(
            ("name", "email"),
            ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"),
            FALLBACK_IDENTITY,
            strict=True,
        ):
            value = (
                os.environ.get(variable)
                or self.text(f"author.{key}")
                or self.text(f"user.{key}")
                or ""
            )
            cleaned = value.translate({ord(odd): None for odd in "<>\n\0"}).strip()
            found.append(cleaned or fallback)

        return found[0], found[1]

    def file(self, name: str, usual: str) -> bytes:
        """Return the content of the file that a setting names, or of git's default file."""
        named = self.text(name)
        if named == "":
            return b""  # An empty value disables the file.

        return file_content(Path(named).expanduser() if named else _xdg() / usual)


def file_content(path: Path) -> bytes:
    """Return the content of a file; nothing if it is missing or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def _xdg() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "git"


def _personal_files() -> Iterator[Path]:
    """Yield the system's and the user's files, in the order in which git reads them."""
    if os.environ.get("GIT_CONFIG_NOSYSTEM", "").lower() not in ("1", "true", "yes", "on"):
        yield Path(os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")

    chosen = os.environ.get("GIT_CONFIG_GLOBAL")
    if chosen is not None:
        yield Path(chosen)
        return

    yield _xdg() / "config"
    yield Path("~/.gitconfig").expanduser()


def _holds(condition: str, folder: Path, git_dir: Path) -> bool:
    """Return whether `gitdir:` or `gitdir/i:` matches a repository (git-config, "Includes")."""
    kind, _, pattern = condition.partition(":")
    if kind not in ("gitdir", "gitdir/i"):
        return False

    if pattern.startswith("./"):
        pattern = str(folder) + pattern[1:]
    elif pattern.startswith("~"):
        pattern = os.path.expanduser(pattern)
    elif not pattern.startswith("/"):
        pattern = "**/" + pattern

    if pattern.endswith("/"):
        pattern += "**"

    place = str(git_dir) + "/"
    if kind == "gitdir/i":
        pattern, place = pattern.lower(), place.lower()

    return fnmatchcase(place.rstrip("/"), pattern) or fnmatchcase(place, pattern)
