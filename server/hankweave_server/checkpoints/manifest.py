"""The manifest: what a git tree cannot record, such as permissions, empty folders, skipped paths.

It is one JSON object, kept as a git note of the commit (`git notes --ref=hankweave show SHA`). The
notes ref names a notes tree and not a commit, so that `git log --all` shows checkpoints alone; git
still reads, checks and packs it. A checkpoint of files with usual permissions, without empty
folders or skipped paths, has no note and costs nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hankweave_server.checkpoints.file_reader import PERMISSIONS
from hankweave_server.checkpoints.model import CAPTURED_ANYWAY, Skipped
from hankweave_server.git.trees import EXECUTABLE, FOLDER, REGULAR
from hankweave_server.worktree.file_modes import USUAL
from hankweave_server.worktree.names import parents_of
from hankweave_server.worktree.stat_index import Folder, StatIndex

VERSION = 1

_USUAL = {**USUAL, FOLDER: 0o755}
_KEYS = {REGULAR: "file", EXECUTABLE: "executable", FOLDER: "folder"}


class ManifestCorrupt(ValueError):
    """A note that is not a valid manifest."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Permissions unlike the usual ones of their kind, empty folders and skipped paths."""

    usual: Mapping[int, int] = field(default_factory=lambda: dict(_USUAL))
    modes: Mapping[bytes, int] = field(default_factory=dict)
    empty_folders: frozenset[bytes] = frozenset()
    skipped: tuple[Skipped, ...] = ()

    def permissions(self, path: bytes, git_mode: int) -> int:
        mode = self.modes.get(path)
        return self.usual[git_mode] if mode is None else mode

    def protects(self, path: bytes) -> str | None:
        """Return why a path must be left alone: it, or a folder above it, was not captured."""
        above = {path, *parents_of(path)}
        for skipped in self.skipped:
            if skipped.path in above and skipped.reason != CAPTURED_ANYWAY:
                return skipped.reason

        return None

    @property
    def is_plain(self) -> bool:
        return not (self.modes or self.empty_folders or self.skipped) and self.usual == _USUAL


def manifest_of(table: StatIndex, skipped: Iterable[Skipped]) -> Manifest:
    """Describe the stat index; the commonest permissions of a kind become its usual ones.

    The manifest is short even for a work tree under another umask.
    """
    empty_folders = table.empty_folders()
    folders = {folder.path: folder.mode & PERMISSIONS for folder in _recorded(table, empty_folders)}
    usual_of_files, modes_of_files = table.permissions_of_files()
    usual = {**usual_of_files, FOLDER: _commonest(folders.values())}
    modes = {path: mode for path, mode in folders.items() if mode != usual[FOLDER]}
    return Manifest(
        usual=usual,
        modes={**modes, **modes_of_files},
        empty_folders=frozenset(folder.path for folder in empty_folders),
        skipped=tuple(sorted(skipped, key=lambda item: item.path)),
    )


def _commonest(folder_modes: Iterable[int]) -> int:
    votes = Counter(folder_modes)
    winner, count = max(votes.items(), key=lambda vote: vote[1], default=(_USUAL[FOLDER], 0))
    return winner if count > votes[_USUAL[FOLDER]] else _USUAL[FOLDER]


def _recorded(table: StatIndex, empty_folders: Iterable[Folder]) -> Iterator[Folder]:
    for folder in table.folders.values():
        if folder.parent is not None and folder.tree:
            yield folder

    yield from empty_folders


def encoded(manifest: Manifest) -> bytes:
    """Encode the note; a byte that is not UTF-8 becomes a lone surrogate escape, as in Python."""
    usual = manifest.usual
    document = {
        "version": VERSION,
        "usualModes": {key: _octal(usual[kind]) for kind, key in _KEYS.items()},
        "modes": {os.fsdecode(path): _octal(mode) for path, mode in sorted(manifest.modes.items())},
        "emptyFolders": [os.fsdecode(path) for path in sorted(manifest.empty_folders)],
        "skipped": [
            {"path": os.fsdecode(item.path), "reason": item.reason} for item in manifest.skipped
        ],
    }
    return json.dumps(document, indent=1).encode("ascii") + b"\n"


def decoded(content: bytes) -> Manifest:
    """Decode a note; raise ManifestCorrupt if it is invalid."""
    try:
        document = json.loads(content)
        modes = {_KEY_KINDS[key]: int(text, 8) for key, text in document["usualModes"].items()}
        return Manifest(
            usual={**_USUAL, **modes},
            modes={os.fsencode(path): int(text, 8) for path, text in document["modes"].items()},
            empty_folders=frozenset(os.fsencode(path) for path in document["emptyFolders"]),
            skipped=tuple(
                Skipped(os.fsencode(item["path"]), item["reason"]) for item in document["skipped"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ManifestCorrupt(repr(problem)) from problem


_KEY_KINDS = {key: kind for kind, key in _KEYS.items()}


def _octal(mode: int) -> str:
    return f"{mode:04o}"
