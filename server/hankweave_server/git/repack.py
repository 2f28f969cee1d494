"""Combine many packs into few, in short steps, while checkpoints follow each other.

Every checkpoint leaves a small pack, or a loose commit if nothing changed. A step merges some of
them into one (see `pack_merge`): first the fresh ones, and then packs of a similar size, as `git
repack --geometric` does. Four packs of one size class make one of the next class, up to a largest
size. So the number of packs grows with the logarithm of the history, and an object is copied as
often as there are classes.

A step reads nothing but the sources it merges, which do not change, and writes the new pack beside
them. So it may run while the engine is used. It writes the new pack under `tmp_` names, flushes it,
reads it back, renames it durably, and only then removes the packs it replaces. Only that last act
must not overlap with a use of the engine (`exclusively`); it takes a few milliseconds. A crash in
between leaves objects twice, as does a write-ahead log that is replayed, and the next start removes
the copies. Sources that cannot be read stay where they are, for fsck to report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hankweave_server.git.loose import loose_header
from hankweave_server.git.pack_merge import Replacement, Unpackable, can_be_read, merged
from hankweave_server.git.pack_reader import count_in
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import PackFile, Source, StoreFiles
from hankweave_server.meter import UNWATCHED, Meter

FRESH_PACKS = 16
"""Number of fresh packs that justify a step: their objects then share one version of each path."""

LOOSE_OBJECTS = 128
JOINED_AT_ONCE = 4
"""Packs of one size class that are merged."""

STEP_BYTES = 4 << 20
"""Bytes on disk that one step merges of fresh packs."""

STEP_OBJECTS = 1000
LARGE_CHECKPOINT = 1 << 20
"""Fresh packs of more than this stay until there are others of their size."""

LARGE_PACK = 4 << 20
"""Packs of this size or more are not merged any more."""


class StepInterrupted(Exception):
    """A step was asked to stop in its middle; it left nothing behind."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """The result of a consolidation."""

    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    bytes_before: int
    bytes_after: int
    finished: bool
    """True if nothing is left to do; False if it was asked to stop."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a consolidation goes along with other uses of the store."""

    should_stop: Callable[[], bool]
    """Called between steps."""
    pause: Callable[[], None] = lambda: None
    """Called every few milliseconds; may wait, or raise StepInterrupted."""
    exclusively: Callable[[Callable[[], None]], None] = lambda act: act()
    """Calls a function while no other call of the engine runs."""
    fresh: int = 2
    """Number of fresh sources that are worth a step."""


class Repacking:
    """The consolidation of one store; its only state is which sources must not be tried again."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._files = StoreFiles(repo.path)
        self._left_alone: set[bytes | str] = set()
        self._copies_removed = False

    def is_needed(self) -> bool:
        fresh = self._fresh()
        packs = sum(isinstance(source, PackFile) for source in fresh)
        return (
            packs >= FRESH_PACKS
            or len(fresh) - packs >= LOOSE_OBJECTS
            or self._next_to_join() is not None
        )

    def run(self, pace: Pace, meter: Meter = UNWATCHED) -> Consolidated:
        """Work until nothing is left to do, or until asked to stop.

        The meter counts the packs and loose objects that no longer need a step. Raises OSError or
        ShadowRepositoryError with every object still readable.
        """
        before = self._files.size()
        try:
            finished = self._run(pace, meter)
        except StepInterrupted:
            finished = False

        after = self._files.size()
        return Consolidated(
            packs_before=before.packs,
            packs_after=after.packs,
            loose_before=before.loose_objects,
            loose_after=after.loose_objects,
            bytes_before=before.bytes_on_disk,
            bytes_after=after.bytes_on_disk,
            finished=finished,
        )

    def _run(self, pace: Pace, meter: Meter) -> bool:
        if not self._copies_removed:
            self._remove_copies(pace)
            self._copies_removed = True

        before = len(self._fresh())
        meter.begin("packing", "files", before)
        while not pace.should_stop():
            if not (self._pack_fresh_ones(pace) or self._join_packs(pace)):
                return True

            left = len(self._fresh())
            meter.advance(max(0, before - left))
            before = left

        return False

    # Fresh packs and loose objects

    def _pack_fresh_ones(self, pace: Pace) -> bool:
        """Merge the oldest fresh sources; return False if there are too few."""
        fresh = self._fresh()
        if len(fresh) < pace.fresh:
            return False

        batch = self._batch(fresh)
        if len(batch) > 1:
            self._merge(batch, pace)
        elif batch:
            self._leave_alone(batch[0])

        return True

    def _fresh(self) -> list[Source]:
        packs = [pack for pack in self._files.packs() if pack.is_fresh]
        sources: list[Source] = [*self._files.loose(), *packs]
        return [source for source in sources if _key(source) not in self._left_alone]

    def _batch(self, sources: Sequence[Source]) -> list[Source]:
        """Choose as many sources as fit into one step; one too large for any is never retried."""
        batch: list[Source] = []
        room, objects = STEP_BYTES, STEP_OBJECTS
        for source in sources:
            size, count = _extent(source)
            if size > LARGE_CHECKPOINT or count > STEP_OBJECTS:
                self._leave_alone(source)
            elif size > room or count > objects:
                break
            else:
                batch.append(source)
                room, objects = room - size, objects - count

        return batch

    def _leave_alone(self, source: Source) -> None:
        self._left_alone.add(_key(source))
        if isinstance(source, PackFile):
            source.settle()

    # Packs of a similar size

    def _join_packs(self, pace: Pace) -> bool:
        packs = self._next_to_join()
        if packs is None:
            return False

        self._merge(packs, pace)
        return True

    def _next_to_join(self) -> list[PackFile] | None:
        classes: dict[int, list[PackFile]] = {}
        for pack in self._files.packs():
            if not pack.is_fresh and pack.size < LARGE_PACK and _key(pack) not in self._left_alone:
                alike = classes.setdefault(_class_of(pack), [])
                alike.append(pack)
                if len(alike) == JOINED_AT_ONCE:
                    return alike

        return None

    # Replacement

    def _merge(self, sources: Sequence[Source], pace: Pace) -> None:
        try:
            replacement = merged(self._files.pack_folder, sources, pace.pause)
        except Unpackable as unfit:
            self._leave_alone(unfit.source)
            return

        self._replace(sources, replacement, pace)

    def _replace(self, sources: Iterable[Source], replacement: Replacement, pace: Pace) -> None:
        """Replace the sources by the new pack, which was read back with all their objects."""
        replacement.adopt()
        self._remove(sources, replacement.digests, replacement.name, pace)

    def _remove(
        self, sources: Iterable[Source], held: frozenset[bytes], name: str, pace: Pace
    ) -> None:
        replaced = [
            source
            for source in sources
            if held.issuperset(source.digests())
            and not (isinstance(source, PackFile) and source.index.stem == name)
        ]

        def hide() -> None:
            self._files.hide(replaced)
            self._repo.supersede([_name(source) for source in replaced])

        pace.exclusively(hide)
        self._files.discard(replaced)

    def _remove_copies(self, pace: Pace) -> None:
        """Remove the copies left by an interrupted step."""
        packs = [pack for pack in self._files.packs() if pack.size < JOINED_AT_ONCE * LARGE_PACK]
        sources: list[Source] = [*packs, *self._files.loose()]
        known = {_key(source): _digests_of(source) for source in sources}
        present = {_key(source): source for source in sources if known[_key(source)]}
        for pack in packs:
            if pack.is_fresh or _key(pack) not in present:
                continue

            whole = known[_key(pack)]
            copies = [
                other for key, other in present.items() if key != _key(pack) and known[key] <= whole
            ]
            if copies and can_be_read(pack, pace.pause):
                self._remove(copies, whole, pack.index.stem, pace)
                for copy in copies:
                    del present[_key(copy)]


def _extent(source: Source) -> tuple[int, int]:
    """Return the bytes and objects that a source adds to a step; too many if it is damaged."""
    if isinstance(source, PackFile):
        return source.size, count_in(source.index) or STEP_OBJECTS + 1

    try:
        # Its content may be much longer than the file.
        return loose_header(source.path.parent.parent, source.digest)[1], 1
    except (ValueError, OSError):
        return LARGE_CHECKPOINT + 1, 1


def _digests_of(source: Source) -> frozenset[bytes]:
    """Return the names of a source's objects; none for a torn index, which fsck reports."""
    try:
        return frozenset(source.digests())
    except (ValueError, OSError):
        return frozenset()


def _name(source: Source) -> str:
    return source.index.stem if isinstance(source, PackFile) else source.digest.hex()


def _key(source: Source) -> bytes | str:
    return source.index.name if isinstance(source, PackFile) else source.digest


def _class_of(pack: PackFile) -> int:
    """Return the size class of a pack.

    Each class spans a factor of four, so four merged packs are usually in the next class.
    """
    return pack.size.bit_length() // 2
