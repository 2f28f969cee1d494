"""Whose work a rollback meets: people's edits, told from what agents and rigs wrote.

While no agent works, whatever changed since the last checkpoint a person did. It is journaled with
the SHA-256 of each file when a codon begins and when a person takes a checkpoint, and it is the
agent's again once an agent or rig writes the file. What a rollback finds besides, that no
checkpoint has, is a person's too (DESIGN 8, step 5).

What reached outside the work tree: no rollback takes it back, so each that crosses it says so.

An agent marks such a tool call itself, or calls a tool of an MCP server, which lives elsewhere by
its nature (seed 004, "What it does NOT give you").
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import anyio
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import AssistantAction, Event
from hankweave_protocol.records import KeptFile
from hankweave_protocol.state import State
from hankweave_protocol.transitions import EditsNoticed, EditsOvertaken
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.ledger.writer import Ledger
from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent
from hankweave_server.worktree.names import is_within, shown


def conflicts(
    state: State,
    plan: RestorePlan,
    *,
    leftovers: Iterable[str] = (),
    agents_rested: bool = True,
) -> dict[bytes, str]:
    """The people's edits that a plan would take away, with their SHA-256 if known.

    A deletion is an edit too: the plan would bring the file back.
    What no checkpoint has is a person's only where no agent can have written it since the last,
    and no rig: `leftovers` are the untracked targets of rigs.
    """
    endangered = [entry.path for entry in (*plan.added, *plan.updated, *plan.removed)]
    known = state.edits
    rigs = frozenset(map(os.fsencode, leftovers))
    unsaved = {path for path in plan.unsaved if agents_rested and not _is_below(path, rigs)}
    return {
        path: known.get(shown(path), "")
        for path in endangered
        if shown(path) in known or path in unsaved
    }


def _is_below(path: bytes, folders: frozenset[bytes]) -> bool:
    return bool(folders) and is_within(path, folders)


def listed(edits: Iterable[bytes]) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(path=os.fsdecode(path), reason="edited") for path in sorted(edits))


def by_people(digests: dict[str, str]) -> tuple[EditsNoticed, ...]:
    """What is journaled when people changed files; nothing where they did not."""
    edits = {shown(os.fsencode(path)): digest for path, digest in digests.items()}
    return (EditsNoticed(edits=edits),) if edits else ()


def by_agents(state: State, paths: Iterable[str]) -> tuple[EditsOvertaken, ...]:
    """What is journaled when an agent or rig wrote files that people had changed before."""
    written = {shown(os.fsencode(path)) for path in paths}
    overtaken = tuple(sorted(written & state.edits.keys()))
    return (EditsOvertaken(paths=overtaken),) if overtaken else ()


def sha256_of(descent: Descent, path: bytes) -> str:
    """SHA-256 of a file as it is now; empty where it is gone, no file, or behind a link."""
    try:
        descriptor = os.open(path.rpartition(b"/")[2], FILE_FLAGS, dir_fd=descent.folder_of(path))
    except OSError as problem:
        if problem.errno in GONE or isinstance(problem, PermissionError):
            return ""

        raise

    with open(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PAGE = 1000
"""Journal lines read in one go; other tasks have their turn between two."""

LISTED = 100
"""Effects named one by one; of more, only the number is said."""

_MARK = b'"external":true'
_ELSEWHERE = "mcp__"


def is_external(tool_name: str, tool_input: dict[str, object]) -> bool:
    """Tells whether a tool call reaches outside, as far as its name or the agent says."""
    return tool_name.startswith(_ELSEWHERE) or tool_input.get("external") is True


async def since(ledger: Ledger, seq: int) -> tuple[str, ...]:
    """Names the tool calls after a moment whose effects lie outside, oldest first."""
    found: list[str] = []
    at = seq
    while lines := ledger.history(at, PAGE):
        at += len(lines)
        found += [_named(line) for line in lines if _MARK in line]
        await anyio.lowlevel.checkpoint()

    if len(found) > LISTED:
        return (*found[:LISTED], f"and {len(found) - LISTED} more")

    return tuple(found)


def _named(line: bytes) -> str:
    try:
        event = codec.decode_event(line)
    except msgspec.MsgspecError:
        return "an event that cannot be read"

    return _described(event)


def _described(event: Event) -> str:
    if not isinstance(event.data, AssistantAction):
        return f"event {event.seq}"

    return f"{event.data.tool_name} of codon {event.data.codon_id} (event {event.seq})"
