"""Read the whole store and compare it with the journal (`fsck`).

This uses a repository handle of its own that writes nothing: the engine continues beside it, and
without a server a store can be checked without being modified.
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
"""Journal lines read at once: a few megabytes."""


def recorded_checkpoints(ledger: Ledger) -> OnRecord:
    """Return the checkpoints that the journal names."""
    return on_record(_lines(ledger))


def reported_costs(ledger: Ledger) -> dict[CodonKey, float]:
    """Return the cost of each codon according to the journal."""
    return recounted_costs(_lines(ledger))


def _lines(ledger: Ledger) -> Iterator[bytes]:
    for since in range(0, ledger.last_seq, PAGE):
        yield from ledger.history(since, PAGE)


class GivenUp(Exception):
    """A check ended early because its caller no longer waits for it."""


class _Interruptible(ShadowRepo):
    """A repository whose reading can be interrupted: a large one takes minutes."""

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
    """Read every checkpoint down to each blob; raise ShadowRepositoryError and GivenUp.

    Checkpoints that the journal says were made and not pruned are reported as missing if they are
    not in the store. The meter counts objects.
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
