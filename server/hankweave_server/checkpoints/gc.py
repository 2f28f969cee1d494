"""Keeps the shadow repository small and true: what the engine offers beside checkpoints.

Blocking like the engine, and never beside another of its calls. After `prune` the caller must
forget what it remembers of the work tree and its scan cache: a blob it takes for stored may be
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.contents import Verification
from hankweave_server.checkpoints.errors import disk_faults
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pins import Pins
from hankweave_server.checkpoints.pruning import Pruned, PruningAct, is_checkpoint, pruning_now
from hankweave_server.domain.retention import Pruning, RetentionPolicy
from hankweave_server.git.repack import Consolidated, Consolidation
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import StoreFiles, StoreSize
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a full reading of the store found."""

    checked: int
    """Checkpoints read down to each blob, or tried."""
    damages: dict[Sha, tuple[Damage, ...]]
    """By checkpoint."""
    missing: tuple[Sha, ...]
    """Recorded, but not in the store at all."""

    @property
    def is_sound(self) -> bool:
        return not self.damages and not self.missing


class Housekeeping:
    """Sizes, consolidates, pins, prunes and checks the shadow repository."""

    def __init__(self, repo: ShadowRepo, notes: Notes, layout: Layout) -> None:
        self._repo = repo
        self._notes = notes
        self._layout = layout
        self._files = StoreFiles(repo.path)
        self._pins = Pins(repo)
        self._consolidation = Consolidation(repo, self._files)

    def size(self) -> StoreSize:
        """Gives what the repository takes on the disk; folders that did not change are known."""
        return self._files.size()

    # Consolidation

    def needs_consolidation(self) -> bool:
        """Tells from file names alone whether small packs or loose objects have piled up."""
        return self._consolidation.is_needed()

    def consolidate(
        self, should_stop: Callable[[], bool], meter: Meter = UNWATCHED
    ) -> Consolidated:
        """Makes few packs of many, in steps of some 100 ms; asks between them whether to stop.

        Raises InsufficientSpace or ShadowRepositoryError with every object still readable.
        """
        with disk_faults(self._layout.root):
            return self._consolidation.run(should_stop, meter)

    # Pins

    def pin(self, sha: Sha, name: str | None) -> None:
        """Keeps a checkpoint from being pruned; raises CheckpointNotFound."""
        with disk_faults(self._layout.root):
            self._pins.pin(sha, name)

    def unpin(self, sha: Sha) -> None:
        with disk_faults(self._layout.root):
            self._pins.unpin(sha)

    def pins(self) -> dict[Sha, str | None]:
        return self._pins.all()

    # Retention

    def prunable(self, policy: RetentionPolicy, now: datetime, keep: frozenset[Sha]) -> Pruning:
        """Says what a policy would prune, without touching anything.

        `keep` are commits the caller still needs, on a ref or not: the target of an undo, an
        intent. Raises ShadowRepositoryError when the history cannot be read.
        """
        return pruning_now(self._repo, self._files, policy, now, keep)

    def prune(
        self, pruning: Pruning, should_stop: Callable[[], bool], meter: Meter = UNWATCHED
    ) -> Pruned:
        """Moves the branches back, takes the notes away, and drops what no ref needs any more.

        An empty pruning drops what crashes left. Interrupted or stopped, every checkpoint that
        stays is whole, and the next call does the rest. Raises PruningOutdated, before anything
        moved, when a checkpoint to go is needed by now; ShadowRepositoryError, too, for a store
        whose damage hides what is needed.
        """
        with disk_faults(self._layout.root):
            act = PruningAct(self._repo, self._notes, self._files, should_stop, meter)
            return act.run(pruning)

    # Truth

    def fsck(self, recorded: Iterable[Sha] = (), meter: Meter = UNWATCHED) -> FsckReport:
        """Reads every checkpoint on our refs, and every recorded one, down to each blob.

        The meter counts objects, of all that are stored: what no checkpoint needs is not read.
        """
        meter.begin("checking", "objects", self._files.count_objects())
        found, lost = self._repo.reached_from_refs()
        ours = [sha for sha, commit in found.items() if is_checkpoint(commit)]
        asked = dict.fromkeys(recorded)
        is_stored = self._repo.stored()
        missing = tuple(sha for sha in asked if not is_stored(bytes.fromhex(sha)))
        verification = Verification(self._repo, self._notes)
        shas = [sha for sha in dict.fromkeys([*ours, *lost, *asked]) if sha not in missing]
        damages: dict[Sha, tuple[Damage, ...]] = {}
        for sha in shas:
            meter.advance()
            damages[sha] = tuple(verification.damages(sha, meter))

        return FsckReport(
            checked=len(shas) + len(missing),
            damages={sha: broken for sha, broken in damages.items() if broken},
            missing=missing,
        )
