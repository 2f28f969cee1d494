"""Decide what adopting the result of an attempt does to the execution that it was made for.

An attempt begins at a checkpoint of its parent, the *origin*, and ends with a checkpoint of its
own. Adopting merges what it has changed since the origin into the parent's present checkpoint. That
one is taken just before, so that it holds what people have edited since: their edits are changes
of the parent like any others, and an attempt that changed the same lines conflicts with them.

The preview and the adoption make the same `AdoptionPlan` from the same merge. Its digest covers
everything that it depends on and everything that it does, but not the ids of checkpoints: the
present checkpoint is taken anew each time, and as long as nothing has changed, its content is the
same. `require_adoptable` refuses an adoption whose preview had another digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from hankweave_protocol.ids import Sha
from hankweave_server.domain.path_merge import Action, Decision, Entry, MergedPaths, Policy


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """A checkpoint, and the names of what it holds."""

    sha: Sha
    tree: Sha
    manifest: str
    """A digest of its permissions and empty folders."""


@dataclass(frozen=True, slots=True)
class AdoptionRequest:
    """What is adopted, into what, and how."""

    exploration_id: str
    attempt_id: str
    origin: CheckpointContent
    """The parent's checkpoint at which the attempt began."""
    present: CheckpointContent
    """The parent's present checkpoint, with the edits of people."""
    result: CheckpointContent
    """The attempt's checkpoint that is adopted."""
    paths: frozenset[bytes] | None = None
    """Files and folders; None for the whole result."""
    policy: Policy = Policy.ASK
    edits: frozenset[bytes] = frozenset()
    """Paths in the parent that people have edited."""


@dataclass(frozen=True, slots=True)
class AdoptionCounts:
    """The numbers of paths, by what happens to them."""

    added: int
    updated: int
    removed: int
    merged: int
    """Those of the updated ones that hold changes of both sides."""
    unchanged: int
    """Both sides had made the same change."""
    kept: int
    """Conflicts that were decided for the parent's version."""
    replaced: int
    """Conflicts that were decided for the attempt's version."""
    conflicts: int
    """Conflicts that must still be decided."""


@dataclass(frozen=True, slots=True)
class AdoptionProvenance:
    """Where adopted changes come from, for the journal and the checkpoint's record."""

    exploration_id: str
    attempt_id: str
    origin: Sha
    present: Sha
    result: Sha
    paths: tuple[bytes, ...] | None
    policy: Policy


class AdoptionOutdated(Exception):
    """The parent or the attempt has changed since the preview; nothing was adopted."""

    def __init__(self, previewed: str, now: str) -> None:
        super().__init__("The execution or the attempt has changed since the preview.")
        self.previewed = previewed
        self.now = now


class AdoptionConflicts(Exception):
    """Conflicts must be decided first; nothing was adopted."""

    def __init__(self, conflicts: tuple[Decision, ...]) -> None:
        super().__init__(f"{len(conflicts)} path(s) conflict.")
        self.conflicts = conflicts


@dataclass(frozen=True)
class AdoptionPlan:
    """What an adoption would do, path by path, and what makes it the same one later."""

    request: AdoptionRequest
    decisions: tuple[Decision, ...]
    """All paths that the attempt has changed and that were selected, in order."""

    @property
    def changes(self) -> tuple[Decision, ...]:
        """Return the decisions that change a file of the parent."""
        return tuple(each for each in self.decisions if each.changes_ours)

    @property
    def conflicts(self) -> tuple[Decision, ...]:
        """Return the paths that must be decided before anything is adopted."""
        return tuple(each for each in self.decisions if each.action is Action.CONFLICT)

    @property
    def is_adoptable(self) -> bool:
        return not self.conflicts

    @property
    def lost_edits(self) -> tuple[bytes, ...]:
        """Return the paths where the attempt's version replaces what people have edited."""
        return tuple(
            each.path
            for each in self.changes
            if each.conflict is not None and each.path in self.request.edits
        )

    @property
    def counts(self) -> AdoptionCounts:
        changes, actions = self.changes, Counter(each.action for each in self.decisions)
        added = sum(each.ours is None for each in changes)
        removed = sum(each.result is None for each in changes)
        return AdoptionCounts(
            added=added,
            updated=len(changes) - added - removed,
            removed=removed,
            merged=sum(each.action is Action.MERGE for each in changes),
            unchanged=actions[Action.SAME],
            kept=actions[Action.KEEP],
            replaced=sum(each.conflict is not None for each in changes),
            conflicts=actions[Action.CONFLICT],
        )

    @property
    def provenance(self) -> AdoptionProvenance:
        request = self.request
        return AdoptionProvenance(
            exploration_id=request.exploration_id,
            attempt_id=request.attempt_id,
            origin=request.origin.sha,
            present=request.present.sha,
            result=request.result.sha,
            paths=None if request.paths is None else tuple(sorted(request.paths)),
            policy=request.policy,
        )

    @cached_property
    def digest(self) -> str:
        """Return a digest of what the plan depends on and of what it does."""
        checksum = hashlib.sha256()
        for part in _parts(self.request, self.decisions):
            checksum.update(b"%d:%s," % (len(part), part))

        return checksum.hexdigest()


def plan_adoption(request: AdoptionRequest, merged: MergedPaths) -> AdoptionPlan:
    """Return the plan for a merge that was made with the request's paths and policy."""
    return AdoptionPlan(request, merged.decisions)


def require_adoptable(plan: AdoptionPlan, previewed: str | None) -> None:
    """Raise AdoptionOutdated if the preview showed another plan, AdoptionConflicts for conflicts.

    `previewed` is the digest of the preview; None if there was none.
    """
    if previewed is not None and previewed != plan.digest:
        raise AdoptionOutdated(previewed, plan.digest)

    if not plan.is_adoptable:
        raise AdoptionConflicts(plan.conflicts)


def _parts(request: AdoptionRequest, decisions: Collection[Decision]) -> Iterator[bytes]:
    """Yield everything that makes a plan the same one, each of a certain number of parts."""
    yield from (request.exploration_id.encode(), request.attempt_id.encode())
    for content in (request.origin, request.present, request.result):
        yield from (content.tree.encode(), content.manifest.encode())

    yield request.policy.encode()
    paths = sorted(request.paths or ())
    yield b"all" if request.paths is None else b"%d" % len(paths)
    yield from paths
    for each in decisions:
        yield from (each.path, each.action.encode(), (each.conflict or "").encode())
        yield _encoded(each.result)


def _encoded(entry: Entry | None) -> bytes:
    return b"" if entry is None else b"%o %s" % (entry[0], entry[1].hex().encode())
