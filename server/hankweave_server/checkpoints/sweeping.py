"""Finds what no ref needs any more, and gives its bytes back to the disk.

A pack that is all garbage goes; one that has enough of it is packed anew without, a batch at a
time; one that has little stays as it is. Interrupted at any point, everything a ref needs is still
readable, and the next sweep does the rest: it writes the same packs under the same names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.errors import ShadowRepositoryError
from hankweave_server.git.pack_index import Record
from hankweave_server.git.repack import STEP_BYTES, STEP_OBJECTS
from hankweave_server.git.repacking import packed_anew
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import PackFile, StoreFiles
from hankweave_server.git.trees import FOLDER, parsed
from hankweave_server.meter import UNWATCHED, Meter

MUCH_GARBAGE = 1 / 2
SOME_GARBAGE = 1 / 8
"""The part of a pack that must be garbage before what is not is copied; small ones copy easily."""

SMALL_PACK = 4 << 20
LOOK_UP_EVERY = 64
"""Objects read between two looks at whether to stop."""


class Stopped(Exception):
    """Asked to stop before the end."""


class Unreadable(Exception):
    """An object that is needed cannot be read; what it names is not known to be garbage."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} cannot be read, so nothing is removed")
        self.name = name


@dataclass(frozen=True, slots=True)
class Sweeping:
    """One sweep; raises Stopped, between steps, when it is asked to."""

    repo: ShadowRepo
    files: StoreFiles
    should_stop: Callable[[], bool]
    meter: Meter = UNWATCHED

    def live(self, roots: Iterable[Sha]) -> set[bytes]:
        """Gives everything that is reached from there.

        Raises Unreadable where something cannot be read: as long as damage hides what is needed,
        nothing may go.
        """
        self.meter.begin("tracing", "objects", self.files.count_objects())
        return self.reached_from(roots)

    def reached_from(self, roots: Iterable[Sha]) -> set[bytes]:
        """The same for a few more: what is counted goes on."""
        found: set[bytes] = set()
        cut = self.repo.shallow()
        waiting = [bytes.fromhex(root) for root in roots]
        while waiting:
            digest = waiting.pop()
            if digest in found:
                continue

            found.add(digest)
            if len(found) % LOOK_UP_EVERY == 0:
                self._stop_if_asked()

            try:
                kind, data = self.repo.read(digest)
                needed, leaves = named_in(kind, data, is_cut=digest.hex() in cut)
            except (KeyError, ValueError) as problem:
                raise Unreadable(digest.hex()) from problem

            waiting += needed
            before = len(found)
            found.update(leaves)
            self.meter.advance(1 + len(found) - before)

        return found

    def run(self, live: set[bytes]) -> None:
        """Removes what is not among the living."""
        self._remove_shortcuts()
        try:
            self._stop_if_asked()
            self.files.remove([file for file in self.files.loose() if file.digest not in live])

            packs = self.files.packs()
            self.meter.begin("sweeping", "files", len(packs))
            for pack in packs:
                self._stop_if_asked()
                self._sweep(pack, live)
                self.meter.advance()
        finally:
            self.repo.reopen()

    def _sweep(self, pack: PackFile, live: set[bytes]) -> None:
        try:
            records = pack.records()
        except ValueError as problem:
            raise ShadowRepositoryError(str(problem)) from problem

        needed = [record for record in records if record.digest in live]
        whole = sum(record.length for record in records)
        garbage = whole - sum(record.length for record in needed)
        if garbage <= whole * (SOME_GARBAGE if pack.size < SMALL_PACK else MUCH_GARBAGE):
            return

        for batch in self._batches(needed):
            self._stop_if_asked()
            packed_anew(self.repo, self.files.pack_folder, batch).adopt()

        self.files.remove([pack])

    def _batches(self, records: Iterable[Record]) -> Iterator[list[bytes]]:
        """Cuts in the order of the pack, where like lies beside like."""
        batch: list[bytes] = []
        room = STEP_BYTES
        for record in records:
            size = self.repo.size(record.digest)
            if batch and (size > room or len(batch) == STEP_OBJECTS):
                yield batch
                batch, room = [], STEP_BYTES

            batch.append(record.digest)
            room -= size

        if batch:
            yield batch

    def _remove_shortcuts(self) -> None:
        """Removes the commit graph that stock git may have written: it names what will be gone."""
        information = self.files.objects / "info"
        (information / "commit-graph").unlink(missing_ok=True)
        if (information / "commit-graphs").is_dir():
            shutil.rmtree(information / "commit-graphs")

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise Stopped


def named_in(kind: str, data: bytes, *, is_cut: bool = False) -> tuple[list[bytes], list[bytes]]:
    """Return the objects that an object names: those to be read in turn, and blobs.

    A commit that `is_cut` is the beginning of its history, whatever parents it names.
    """
    match kind:
        case "tree":
            entries = [entry for _, entry in parsed(data)]
            folders = [entry.digest for entry in entries if entry.mode == FOLDER]
            return folders, [entry.digest for entry in entries if entry.mode != FOLDER]
        case "commit" | "tag":
            header, _, _ = data.partition(b"\n\n")
            lines = [line.split(b" ", 1) for line in header.split(b"\n")]
            wanted = (b"tree", b"object") if is_cut else (b"tree", b"parent", b"object")
            return [bytes.fromhex(line[1].decode()) for line in lines if line[0] in wanted], []
        case _:
            return [], []
