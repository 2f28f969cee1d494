"""Makes few packs of many, a short step at a time, while the engine is idle.

Every checkpoint leaves a small pack, or a loose commit if nothing changed. Steps of two kinds
keep their number down: small fresh ones are packed anew with deltas between them, which is where
the bytes go; and packs of a like size are joined by copying, until they are large enough. So
nothing is packed anew a second time.

A step is: write the new pack under `tmp_` names; flush; read it back; final names, durably; only
then remove what it replaces. A crash in between leaves objects twice, and the next start removes
the copies. What cannot be read is left where it is, for fsck to name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hankweave_server.git.repacking import Replacement, Unpackable, can_be_read, joined, packed_anew
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import PackFile, Source, StoreFiles
from hankweave_server.meter import UNWATCHED, Meter

FRESH_PACKS = 32
"""So many packs of single checkpoints are worth a step: they then share one whole of each tree."""

LOOSE_OBJECTS = 128
JOINED_AT_ONCE = 16

STEP_BYTES = 1 << 20
"""Unpacked bytes that one step compares with one another: some 100 ms."""

STEP_OBJECTS = 160
LARGE_PACK = 256 << 10
"""Packs from here on are joined no more: sixteen of them would keep a checkpoint waiting."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a consolidation came to."""

    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    bytes_before: int
    bytes_after: int
    finished: bool
    """Nothing is left to do; False when it was asked to stop."""


class Consolidation:
    """Consolidates one store; remembers only what it must not try again."""

    def __init__(self, repo: ShadowRepo, files: StoreFiles) -> None:
        self._repo = repo
        self._files = files
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

    def run(self, should_stop: Callable[[], bool], meter: Meter = UNWATCHED) -> Consolidated:
        """Works until nothing is left to do, or until it is asked, between steps, to stop.

        The meter counts the packs and loose objects that need no step any more.
        Raises OSError or ShadowRepositoryError with every object still readable.
        """
        before = self._files.size()
        finished = self._run(should_stop, meter)
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

    def _run(self, should_stop: Callable[[], bool], meter: Meter) -> bool:
        if not self._copies_removed:
            self._remove_copies()
            self._copies_removed = True

        before = len(self._fresh())
        meter.begin("packing", "files", before)
        while not should_stop():
            if not (self._pack_fresh_ones() or self._join_packs()):
                return True

            left = len(self._fresh())
            meter.advance(max(0, before - left))
            before = left

        return False

    # Fresh packs and loose objects

    def _pack_fresh_ones(self) -> bool:
        """Packs the oldest fresh ones with deltas; False when there are not two of them."""
        fresh = self._fresh()
        if len(fresh) < 2:
            return False

        batch, digests = self._batch(fresh)
        if len(batch) > 1:
            self._replace(batch, packed_anew(self._repo, self._files.pack_folder, digests))
        elif batch:
            self._leave_alone(batch[0])

        return True

    def _fresh(self) -> list[Source]:
        packs = [pack for pack in self._files.packs() if pack.is_fresh]
        sources: list[Source] = [*self._files.loose(), *packs]
        return [source for source in sources if _key(source) not in self._left_alone]

    def _batch(self, sources: Sequence[Source]) -> tuple[list[Source], list[bytes]]:
        """Takes as many as one step can bear; what no step can bear is never asked for again."""
        batch: list[Source] = []
        digests: dict[bytes, None] = {}
        room = STEP_BYTES
        for source in sources:
            content = self._readable(source)
            if content is None:
                self._leave_alone(source)
                continue

            if sum(content.values()) > room or len(digests) + len(content) > STEP_OBJECTS:
                if not batch:
                    self._leave_alone(source)
                    continue

                break

            batch.append(source)
            digests.update(dict.fromkeys(content))
            room -= sum(content.values())

        return batch, list(digests)

    def _readable(self, source: Source) -> dict[bytes, int] | None:
        """Gives a source's objects and their sizes; None if one is damaged, or all too large."""
        if source.size > STEP_BYTES:
            return None

        try:
            sizes = {digest: self._repo.size(digest) for digest in source.digests()}
            if sum(sizes.values()) <= STEP_BYTES:
                for digest in sizes:
                    self._repo.read(digest)
        except (KeyError, ValueError, OSError):
            return None

        return sizes

    def _leave_alone(self, source: Source) -> None:
        self._left_alone.add(_key(source))
        if isinstance(source, PackFile):
            source.settle()

    # Packs of a like size

    def _join_packs(self) -> bool:
        packs = self._next_to_join()
        if packs is None:
            return False

        try:
            replacement = joined(self._files.pack_folder, packs)
        except Unpackable as unfit:
            self._left_alone.add(_key(unfit.pack))
            return True

        self._replace(packs, replacement)
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

    # Replacing

    def _replace(self, sources: Iterable[Source], replacement: Replacement) -> None:
        """Puts the new pack in the place of its sources, all of whose objects it was read for."""
        replacement.adopt()
        self._remove(sources, replacement.digests, replacement.name)
        self._repo.reopen()

    def _remove(self, sources: Iterable[Source], held: frozenset[bytes], name: str) -> None:
        replaced = [
            source
            for source in sources
            if held.issuperset(source.digests())
            and not (isinstance(source, PackFile) and source.index.stem == name)
        ]
        self._files.remove(replaced)

    def _remove_copies(self) -> None:
        """Removes what an interrupted step had replaced already."""
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
            if copies and can_be_read(pack):
                self._remove(copies, whole, pack.index.stem)
                self._repo.reopen()
                for copy in copies:
                    del present[_key(copy)]


def _digests_of(source: Source) -> frozenset[bytes]:
    """Gives what a source holds; nothing for a torn index, which fsck will name."""
    try:
        return frozenset(source.digests())
    except (ValueError, OSError):
        return frozenset()


def _key(source: Source) -> bytes | str:
    return source.index.name if isinstance(source, PackFile) else source.digest


def _class_of(pack: PackFile) -> int:
    """Sizes go by sixteens, so that sixteen joined are in the next class and stay joined."""
    return pack.size.bit_length() // 4
