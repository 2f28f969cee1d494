"""The manifest: what a git tree cannot record, such as permissions, attributes, empty folders.

It is one JSON object, kept as a git note of the commit (`git notes --ref=hankweave show SHA`). The
notes ref names a notes tree and not a commit, so that `git log --all` shows checkpoints alone; git
still reads, checks and packs it. A checkpoint of files with usual permissions, without empty
folders or skipped paths, has no note and costs nothing.

`owner` and `attributes` were added later, and are there only if a file or folder has an owner or
attributes that are not usual: the owner of the work tree, and no others. A checkpoint without them
does not know attributes, so those of replaced files are carried over.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hankweave_server.checkpoints.file_reader import PERMISSIONS
from hankweave_server.checkpoints.model import CAPTURED_ANYWAY, Skipped
from hankweave_server.git.trees import EXECUTABLE, FOLDER, REGULAR
from hankweave_server.worktree.attributes import LIMIT, Attributes
from hankweave_server.worktree.file_modes import USUAL
from hankweave_server.worktree.names import parents_of
from hankweave_server.worktree.stat_index import Folder, StatIndex

VERSION = 1

_USUAL = {**USUAL, FOLDER: 0o755}
_KEYS = {REGULAR: "file", EXECUTABLE: "executable", FOLDER: "folder"}


class ManifestCorrupt(ValueError):
    """A note that is not a valid manifest."""


@dataclass(frozen=True)
class Manifest:
    """Permissions unlike the usual ones of their kind, empty folders, skipped paths, attributes."""

    usual: Mapping[int, int] = field(default_factory=lambda: dict(_USUAL))
    modes: Mapping[bytes, int] = field(default_factory=dict)
    empty_folders: frozenset[bytes] = frozenset()
    skipped: tuple[Skipped, ...] = ()
    owner: tuple[int, int] | None = None
    """User and group of a usual file; None if this checkpoint has not recorded attributes."""
    attributes: Mapping[bytes, Attributes] = field(default_factory=dict)
    """Those of files and folders that are not usual."""

    def attributes_at(self, path: bytes) -> Attributes | None:
        """Return the attributes of a file or folder of the checkpoint; None if unknown."""
        if path in self.attributes:
            return self.attributes[path]

        return None if self.owner is None else Attributes(*self.owner)

    @cached_property
    def names(self) -> Mapping[int, tuple[bytes, ...]]:
        """The names of files that have several, by `Attributes.group`."""
        return _names(self.attributes.items())

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
        if self.modes or self.empty_folders or self.skipped or self.owner is not None:
            return False

        return self.usual == _USUAL


def manifest_of(table: StatIndex, skipped: Iterable[Skipped]) -> Manifest:
    """Describe the stat index; the commonest permissions of a kind become its usual ones.

    The manifest is short even for a work tree under another umask.
    """
    empty_folders = table.empty_folders()
    folders = {folder.path: folder.mode & PERMISSIONS for folder in _recorded(table, empty_folders)}
    usual_of_files, modes_of_files = table.permissions_of_files()
    usual = {**usual_of_files, FOLDER: _commonest(folders.values())}
    modes = {path: mode for path, mode in folders.items() if mode != usual[FOLDER]}
    attributes = dict(_without_single_names(table.unusual_attributes(), table.owner))
    is_ours = table.owner == (os.geteuid(), os.getegid())
    return Manifest(
        usual=usual,
        modes={**modes, **modes_of_files},
        empty_folders=frozenset(folder.path for folder in empty_folders),
        skipped=tuple(sorted(skipped, key=lambda item: item.path)),
        owner=None if is_ours and not attributes else table.owner,
        attributes=_within_limit(attributes),
    )


def _names(found: Iterable[tuple[bytes, Attributes]]) -> dict[int, tuple[bytes, ...]]:
    names: dict[int, tuple[bytes, ...]] = {}
    for path, attributes in sorted(found):
        if attributes.group:
            names[attributes.group] = (*names.get(attributes.group, ()), path)

    return names


def _without_single_names(
    found: Iterable[tuple[bytes, Attributes]], owner: tuple[int, int]
) -> Iterator[tuple[bytes, Attributes]]:
    """Give numbers to files with several names, and forget names that the checkpoint lacks."""
    unusual = list(found)
    names = (group for _, group in sorted(_names(unusual).items()))
    numbers = {
        path: number
        for number, group in enumerate((each for each in names if len(each) > 1), 1)
        for path in group
    }
    for path, attributes in unusual:
        numbered = attributes._replace(group=numbers.get(path, 0))
        if not numbered.are_usual(owner):
            yield path, numbered


def _within_limit(attributes: Mapping[bytes, Attributes]) -> Mapping[bytes, Attributes]:
    """Leave out what exceeds the limit of a checkpoint; `Attributes.extended` says so."""
    room, kept = LIMIT, dict[bytes, Attributes]()
    for path, each in sorted(attributes.items()):
        size = sum(len(name) + len(value) for name, value in each.extended or ())
        if size > room:
            kept[path] = each._replace(extended=None)
        else:
            room -= size
            kept[path] = each

    return kept


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
    document: dict[str, object] = {
        "version": VERSION,
        "usualModes": {key: _octal(usual[kind]) for kind, key in _KEYS.items()},
        "modes": {os.fsdecode(path): _octal(mode) for path, mode in sorted(manifest.modes.items())},
        "emptyFolders": [os.fsdecode(path) for path in sorted(manifest.empty_folders)],
        "skipped": [
            {"path": os.fsdecode(item.path), "reason": item.reason} for item in manifest.skipped
        ],
    }
    if manifest.owner is not None:
        document["owner"] = manifest.owner
        document["attributes"] = {
            os.fsdecode(path): _described(each, manifest.owner)
            for path, each in sorted(manifest.attributes.items())
        }

    return json.dumps(document, indent=1).encode("ascii") + b"\n"


def _described(attributes: Attributes, owner: tuple[int, int]) -> dict[str, object]:
    described: dict[str, object] = {}
    if (attributes.uid, attributes.gid) != owner:
        described["owner"] = (attributes.uid, attributes.gid)

    if attributes.special:
        described["special"] = _octal(attributes.special)

    if attributes.extended is None:
        described["extended"] = None
    elif attributes.extended:
        described["extended"] = {
            os.fsdecode(name): base64.b64encode(value).decode()
            for name, value in attributes.extended
        }

    if attributes.group:
        described["links"] = attributes.group

    return described


def _attributes(described: Mapping[str, Any], owner: tuple[int, int]) -> Attributes:
    uid, gid = _pair(*described.get("owner", owner))
    extended = described.get("extended", {})
    return Attributes(
        uid,
        gid,
        int(described.get("special", "0"), 8),
        None
        if extended is None
        else tuple((name, base64.b64decode(value)) for name, value in extended.items()),
        described.get("links", 0),
    )


def decoded(content: bytes) -> Manifest:
    """Decode a note; raise ManifestCorrupt if it is invalid."""
    try:
        document = json.loads(content)
        modes = {_KEY_KINDS[key]: int(text, 8) for key, text in document["usualModes"].items()}
        owner = _pair(*document["owner"]) if "owner" in document else None
        return Manifest(
            usual={**_USUAL, **modes},
            modes={os.fsencode(path): int(text, 8) for path, text in document["modes"].items()},
            empty_folders=frozenset(os.fsencode(path) for path in document["emptyFolders"]),
            skipped=tuple(
                Skipped(os.fsencode(item["path"]), item["reason"]) for item in document["skipped"]
            ),
            owner=owner,
            attributes={
                os.fsencode(path): _attributes(each, owner)
                for path, each in document.get("attributes", {}).items()
            }
            if owner is not None
            else {},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ManifestCorrupt(repr(problem)) from problem


def _pair(uid: int, gid: int) -> tuple[int, int]:
    return int(uid), int(gid)


_KEY_KINDS = {key: kind for kind, key in _KEYS.items()}


def _octal(mode: int) -> str:
    return f"{mode:04o}"
