"""Reads the whole store, and holds it against the journal (`fsck`).

Through an opening of its own, which writes nothing: the engine goes on beside it, and where no
server runs a store can be checked without being touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import DamagedCheckpoint, DamagedObject, FsckReport
from hankweave_server.checkpoints.gc import Housekeeping
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.domain.checkpoint_records import OnRecord, on_record
from hankweave_server.domain.validation import CodonKey, recounted_costs
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.ledger.writer import Ledger
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout

PAGE = 5_000
"""Journal lines looked at together: a few megabytes."""


def recorded_checkpoints(ledger: Ledger) -> OnRecord:
    """The checkpoints that the journal names."""
    return on_record(_lines(ledger))


def reported_costs(ledger: Ledger) -> dict[CodonKey, float]:
    """What the journal says that each codon cost."""
    return recounted_costs(_lines(ledger))


def _lines(ledger: Ledger) -> Iterator[bytes]:
    for since in range(0, ledger.last_seq, PAGE):
        yield from ledger.history(since, PAGE)


class GivenUp(Exception):
    """A check ended before its time, because nobody waits for it any more."""


class _Interruptible(ShadowRepo):
    """A repository whose reading can be given up: a large one takes minutes."""

    def __init__(self, layout: Layout, should_stop: Callable[[], bool]) -> None:
        super().__init__(layout.shadow_repository)
        self._should_stop = should_stop

    def read(self, digest: bytes) -> tuple[str, bytes]:
        if self._should_stop():
            raise GivenUp

        return super().read(digest)


def check_store(
    layout: Layout,
    recorded: OnRecord,
    should_stop: Callable[[], bool] = lambda: False,
    meter: Meter = UNWATCHED,
) -> FsckReport:
    """Reads every checkpoint down to each blob; raises ShadowRepositoryError and GivenUp.

    Missing is what the journal says was made, and nobody pruned. The meter counts objects.
    """
    repo = _Interruptible(layout, should_stop)
    try:
        found = Housekeeping(repo, Notes(repo), layout).fsck(recorded.standing, meter)
    finally:
        repo.close()

    return FsckReport(
        checked=found.checked,
        damages=tuple(
            DamagedCheckpoint(checkpoint=sha, damages=_told(damages))
            for sha, damages in found.damages.items()
        ),
        missing=tuple(sorted(found.missing)),
    )


def _told(damages: Iterable[Damage]) -> tuple[DamagedObject, ...]:
    return tuple(
        DamagedObject(sha=Sha(each.sha), kind=each.kind, path=os.fsdecode(each.path))
        for each in damages
    )
