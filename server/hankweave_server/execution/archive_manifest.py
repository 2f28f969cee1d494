"""archive-manifest.json: what lies in the rig archive, and where it came from (Hankweave, 7.7)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.records import (
    ArchiveEntry,
    ArchiveIntent,
    ArchiveManifest,
    ArchiveMove,
    ArchiveTravel,
)
from hankweave_server import fsutil
from hankweave_server.paths import Layout
from hankweave_server.worktree.names import meanings, shown

VERSION = "1.0.0"
TRAVELS_KEPT = 100
"""Rollbacks whose undo puts files away again: as many as can be undone."""


def read(layout: Layout) -> ArchiveManifest:
    """Reads the manifest; an execution that never archived has an empty one.

    Raises Refused where it is damaged.
    """
    try:
        data = layout.archive_manifest.read_bytes()
    except FileNotFoundError:
        return ArchiveManifest(version=VERSION, entries=())

    return codec.decode_value(ArchiveManifest, data)


def write(layout: Layout, manifest: ArchiveManifest) -> None:
    """Writes it durably, indented for people."""
    content = msgspec.json.format(codec.encode(manifest), indent=2)
    fsutil.replace_durably(layout.archive_manifest, content + b"\n")


def with_archived(
    manifest: ArchiveManifest, intent: ArchiveIntent, done: Iterable[ArchiveMove], layout: Layout
) -> ArchiveManifest:
    """Adds what was archived; what stood in its way has another name now. Twice is as once."""
    prefix = _prefix(layout)
    names = {prefix + shown(m.source): prefix + shown(m.target) for m in intent.displaced}
    entries = [
        entry if entry.timestamp == intent.started_at else _renamed(entry, names)
        for entry in manifest.entries
    ]
    known = {(entry.archive_path, entry.timestamp) for entry in entries}
    added = (_entry(intent, move, layout) for move in done)
    entries += [each for each in added if (each.archive_path, each.timestamp) not in known]
    return msgspec.structs.replace(manifest, entries=tuple(entries))


def with_travel(
    manifest: ArchiveManifest, operation_id: str, travel: ArchiveTravel
) -> ArchiveManifest:
    """Takes out what came back, adds what was put away again, and keeps both for an undo."""
    gone = {entry.archive_path for entry in travel.restored}
    stays = tuple(entry for entry in manifest.entries if entry.archive_path not in gone)
    travels = {**manifest.travels, operation_id: travel}
    newest = list(travels)[-TRAVELS_KEPT:]
    return msgspec.structs.replace(
        manifest,
        entries=(*stays, *travel.archived),
        travels={name: travels[name] for name in newest},
    )


def way_back(entry: ArchiveEntry, layout: Layout, exists: Callable[[bytes], bool]) -> ArchiveMove:
    """The move that brings an entry back; `exists` says which names the archive has."""
    places, homes = places_of(entry, layout), meanings(entry.source_path)
    place = next((name for name in places if exists(name)), places[0])
    # A name that is no text was meant in both or in neither.
    home = next((name for name in homes if place.endswith(b"/" + name)), homes[0])
    return ArchiveMove(source=place, target=home)


def places_of(entry: ArchiveEntry, layout: Layout) -> tuple[bytes, ...]:
    """The names below the rig archive that an entry may mean."""
    return meanings(entry.archive_path.removeprefix(_prefix(layout)))


def _entry(intent: ArchiveIntent, move: ArchiveMove, layout: Layout) -> ArchiveEntry:
    return ArchiveEntry(
        source_path=shown(move.source),
        archive_path=_prefix(layout) + shown(move.target),
        codon_id=intent.archived_for,
        checkpoint_sha=intent.checkpoint_sha,
        timestamp=intent.started_at,
        loop_context=intent.loop_context,
    )


def _renamed(entry: ArchiveEntry, names: Mapping[str, str]) -> ArchiveEntry:
    """Follows an entry, or a folder above it, to its other name."""
    old, rest = entry.archive_path, ""
    while old:
        if old in names:
            return msgspec.structs.replace(entry, archive_path=names[old] + rest)

        old, slash, name = old.rpartition("/")
        rest = slash + name + rest

    return entry


def _prefix(layout: Layout) -> str:
    return f"{os.fspath(layout.rig_archive.relative_to(layout.root))}/"
