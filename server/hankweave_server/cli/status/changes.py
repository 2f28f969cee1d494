"""Changes on the disk: since the step began, and since the last checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hankweave_client.calls import Calls
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import CheckpointDiff
from hankweave_protocol.errors import Refused
from hankweave_protocol.replies import DiffPage, FileDifference
from hankweave_protocol.state import FailedCodon, State
from hankweave_server.domain.execution_thread import (
    end_checkpoint,
    next_codon,
    now_coordinate,
    restored_checkpoint,
    span_of,
    thread,
)
from hankweave_server.domain.lifecycle import is_active
from hankweave_server.plain_text import counted, one_line

_COMPARED = 200
"""Files of a comparison that are told apart from edits of people."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Comparisons of files; None for one that makes no sense now, or that failed."""

    in_step: DiffPage | None = None
    """Since the step that runs or has failed began, up to its end."""
    since: DiffPage | None = None
    """Since the newest checkpoint of the thread, while no step runs."""


NO_CHANGES = FileChanges()


async def changes_of(calls: Calls, state: State) -> FileChanges:
    """Compare the files with the checkpoints; a rollback or damage may prevent it."""
    newest = thread(state)[-1:]
    codon = newest[0].codon if newest else None
    end = None if codon is None else end_checkpoint(codon)
    is_current = codon is not None and codon.codon_id == next_codon(state)
    begin, in_step = None, None
    if codon is not None and (is_active(codon) or (is_current and isinstance(codon, FailedCodon))):
        begin, _ = span_of(state, codon.codon_id) or (None, None)

    try:
        if begin is not None:
            in_step = await _diff(calls, begin, end)
            if end is None:
                return FileChanges(in_step)

        place = now_coordinate(state, state.last_event_seq)
        base = restored_checkpoint(state) or (
            state.initial_checkpoint if place is None else place.checkpoint_sha
        )
        return FileChanges(in_step, None if base is None else await _diff(calls, base))
    except (CommandRefused, Refused):
        return NO_CHANGES


async def _diff(calls: Calls, begin: str, end: str | None = None) -> DiffPage:
    return await calls.send(CheckpointDiff(from_sha=begin, to_sha=end, limit=_COMPARED))


def change_lines(changes: FileChanges, state: State) -> Iterator[str]:
    """Yield what the step has changed, what else has changed, and what a person has edited."""
    edits = state.edits.keys()
    for page, where in (
        (changes.in_step, "in this step"),
        (changes.since, "since the last checkpoint"),
    ):
        if page is None:
            continue

        others = [file for file in page.files if file.path not in edits]
        number = page.stats.files - (len(page.files) - len(others))
        if number:
            changed = counted(number, "file")
            yield f"{changed} changed {where}: {_named(list(map(_file_text, others)), number)}"

    if edits:
        known = {
            file.path: _file_text(file)
            for page in (changes.in_step, changes.since)
            if page is not None
            for file in page.files
        }
        names = [known.get(path, one_line(path)) for path in sorted(edits)]
        yield f"{counted(len(edits), 'edit')} of yours: {_named(names, len(names))}"


def _named(names: Sequence[str], number: int) -> str:
    shown = names[:_NAMED]
    more = f" and {number - len(shown):,} more" if number > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def _file_text(file: FileDifference) -> str:
    """Return `notes.md +2 −1`, without zeros, or `notes.md deleted`."""
    words = [one_line(file.path)]
    if file.status == "deleted":
        words.append("deleted")
    else:
        words += [f"+{file.added}"] if file.added else []
        words += [f"−{file.removed}"] if file.removed else []

    return " ".join(words)
