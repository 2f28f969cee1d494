"""The title of a checkpoint: one name that says what it holds, the same everywhere.

It is the name that it was given when it was pinned; else the label that a person gave it; else its
summary; else, for a checkpoint of an older version, its kind in words, with its codon.
`transport/web/kinds.js` has the same rule for the page.

A summary is made with the checkpoint, and kept in its commit. It tells what has changed since the
checkpoint before, and which calls of tools changed it: `Edit src/records.py +12 −3`, `Bash · 3
files +40 −2`, `rig set up · 12 files +90`, `no change`. Names of files and tools are data of
agents: they are shortened, and characters that could move a cursor or turn the text are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hankweave_server.domain.effects.tools import FILE_TOOLS
from hankweave_server.plain_text import counted, printable

if TYPE_CHECKING:
    from hankweave_protocol.records import CheckpointRecord

KIND_WORDS: Mapping[str, str] = {
    "initial": "the beginning",
    "rig-setup": "rig set up",
    "completed": "codon completed",
    "error": "codon failed",
    "skipped": "codon skipped",
    "exit": "server stopped",
    "tool": "after a tool call",
    "turn": "after a message",
    "manual": "taken by hand",
    "safety": "saved for safety",
}

OF_STEPS = frozenset({"tool", "turn"})
"""Kinds of checkpoints that are taken while an agent works."""

LABELLED_BY_PEOPLE = frozenset({"manual", "completed"})
"""Kinds whose labels come from people: from a command, or from the hank."""

LONGEST_PATH = 48
LONGEST_TOOL = 24
TOOLS_NAMED = 2

_STEP_PREFIX = "architect:checkpoint:"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much differs between a checkpoint and the one before."""

    files: int
    path: str | None = None
    """The path of the file, if it is only one."""
    is_deleted: bool = False
    """Whether that one is gone."""
    lines: tuple[int, int] | None = None
    """The lines that were added and removed; None if they were not counted."""


def title_of(record: CheckpointRecord) -> str:
    """Return the title of a checkpoint. It may have any characters: escape it for a terminal."""
    return title(
        record.kind,
        record.coordinate.codon_id,
        name=record.name,
        label=record.label,
        summary=record.summary,
    )


def title(
    kind: str,
    codon_id: str | None,
    *,
    name: str | None = None,
    label: str | None = None,
    summary: str | None = None,
) -> str:
    """Do the same as `title_of` for parts of a record."""
    if name:
        return name

    if label and kind in LABELLED_BY_PEOPLE:
        return label.removeprefix(_STEP_PREFIX)

    if summary:
        return summary

    words = _reason_for(kind, label) or KIND_WORDS.get(kind, kind)
    return words if codon_id is None else f"{words} · {codon_id}"


def summary_of(
    kind: str, extent: Extent, *, label: str | None = None, tools: Sequence[str] = ()
) -> str:
    """Return the summary of a checkpoint; `tools` are those whose calls changed files, in order."""
    reason = _reason_for(kind, label)
    if not extent.files:
        return "no change" if reason is None else printable(reason)

    what = _changed(extent)
    if kind in OF_STEPS and tools:
        is_of_file = extent.path is not None and FILE_TOOLS.issuperset(tools)
        what = f"{_named(tools)}{' ' if is_of_file else ' · '}{what}"

    return what if reason is None else f"{printable(reason)} · {what}"


def _reason_for(kind: str, label: str | None) -> str | None:
    """Return why a checkpoint was taken, if what has changed does not tell it."""
    if kind in ("tool", "manual"):
        return None  # Older versions labelled those of tools with the call that came after them.

    if label and kind not in LABELLED_BY_PEOPLE:
        return label.partition(";")[0].removeprefix(_STEP_PREFIX)

    return None if kind == "turn" else KIND_WORDS.get(kind, kind)


def _named(tools: Sequence[str]) -> str:
    different = tuple(dict.fromkeys(tools))
    if len(different) > TOOLS_NAMED:
        return f"{len(different)} tools"

    return ", ".join(_shortened(printable(tool), LONGEST_TOOL) for tool in different)


def _changed(extent: Extent) -> str:
    if extent.path is None:
        what = counted(extent.files, "file")
    else:
        what = _shortened_path(printable(extent.path))
        if extent.is_deleted:
            return f"{what} deleted"

    added, removed = extent.lines or (0, 0)
    counts = (f"+{added:,}" if added else "", f"−{removed:,}" if removed else "")
    return " ".join(filter(None, (what, *counts)))


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _shortened_path(path: str) -> str:
    """Return the last folders of a long path with the name of the file, or the end of the name."""
    if len(path) <= LONGEST_PATH:
        return path

    end = path[1 - LONGEST_PATH :]
    folder = end.find("/")
    return f"…{end[folder:] if 0 <= folder < len(end) - 1 else end}"
