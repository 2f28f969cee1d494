"""Look for secrets in what a checkpoint holds that its parent lacks, after its reply.

A checkpoint is exact, so a file with a key is in it like any other. This task reports what it
finds as `checkpoint.secret`: by path, line and rule, never with the value. It waits for a pause
(`quiet`), reads in short calls, and examines the content in a worker thread. Its work is bounded:
`FILE_LIMIT` bytes of each file, and `CHECKPOINT_LIMIT` of all files of a checkpoint.

A server that is killed may leave its last checkpoints unexamined; an orderly end waits for a short
time. The same content at the same path is reported once.
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial

import anyio
import anyio.to_thread

from hankweave_protocol.events import CheckpointSecret, SecretInFile
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.quiet import Quiet, Work
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.ledger.writer import Ledger
from hankweave_server.listing import first_of

FILE_LIMIT = 1 << 20
"""Bytes of a file that are examined, from its beginning."""

CHECKPOINT_LIMIT = 256 << 20
"""Bytes that are examined of all new files of one checkpoint."""

BYTES_AT_ONCE = 4 << 20
"""Bytes that one call of the engine reads, while other callers wait."""

LATE_AFTER = 5.0
"""Seconds after a checkpoint until its examination is late."""

_PENDING = 1_000
"""Checkpoints that may wait; of more, the oldest are not examined."""

_REMEMBERED = 10_000
"""Secrets that are remembered, so that they are reported once."""

_File = tuple[bytes, bytes]
"""A path, and its blob."""


class SecretScan:
    """The examination of new checkpoints, one after the other."""

    def __init__(self, ledger: Ledger, checkpointer: Checkpointer, quiet: Quiet) -> None:
        self._ledger = ledger
        self._quiet = quiet
        self._checkpointer = checkpointer
        self._waiting: deque[CheckpointRecord] = deque(maxlen=_PENDING)
        self._wake = anyio.Event()
        self._is_done = anyio.Event()
        self._reported: dict[tuple[bytes, bytes], None] = {}
        checkpointer.when_taken(self._note)

    def _note(self, taken: CheckpointRecord) -> None:
        self._waiting.append(taken)
        self._is_done = anyio.Event()
        self._wake.set()

    async def run(self) -> None:
        """Examine checkpoints until cancelled; raise LedgerFailed."""
        while True:
            with self._quiet.work("secrets", within=LATE_AFTER) as work:
                while self._waiting:
                    await work.turn()
                    await self._examine(self._waiting[0], work)
                    self._waiting.popleft()

            self._is_done.set()
            await self._wake.wait()
            self._wake = anyio.Event()

    async def settle(self) -> None:
        """Wait until every checkpoint is examined."""
        if self._waiting:
            await self._is_done.wait()

    async def _examine(self, taken: CheckpointRecord, work: Work) -> None:
        try:
            found = await self._found_in(taken, work)
        except (CheckpointNotFound, CheckpointDamaged, ShadowRepositoryError, KeyError):
            return  # It was pruned meanwhile, or is damaged, which the next reader reports.

        if found:
            where = taken.coordinate
            await self._ledger.post(
                CheckpointSecret(checkpoint=where, secrets=first_of(found), total=len(found)),
                run_id=where.run_id,
                codon_id=where.codon_id,
            )

    async def _found_in(self, taken: CheckpointRecord, work: Work) -> list[SecretInFile]:
        sha = taken.coordinate.checkpoint_sha
        new = await self._checkpointer.call(lambda engine: engine.new_content(sha))
        waiting = deque(file for file in new if file not in self._reported)
        found: list[SecretInFile] = []
        left = CHECKPOINT_LIMIT
        while waiting and left > 0:
            await work.turn()
            contents = await self._checkpointer.call(partial(_read, waiting))
            left -= sum(len(content) for _, content in contents)
            found += await anyio.to_thread.run_sync(self._search, contents)

        return found

    def _search(self, contents: list[tuple[_File, bytes]]) -> list[SecretInFile]:
        found: list[SecretInFile] = []
        for file, content in contents:
            findings = self._ledger.redactor.findings(content)
            path = os.fsdecode(file[0])
            found += (SecretInFile(path=path, rule=each.rule, line=each.line) for each in findings)
            if findings:
                self._reported[file] = None
                if len(self._reported) > _REMEMBERED:
                    del self._reported[next(iter(self._reported))]

        return found


def _read(waiting: deque[_File], engine: CheckpointEngine) -> list[tuple[_File, bytes]]:
    """Take files from the front and read their beginnings, until there is enough for one call."""
    contents: list[tuple[_File, bytes]] = []
    size = 0
    while waiting and size < BYTES_AT_ONCE:
        file = waiting.popleft()
        contents.append((file, engine.beginning(file[1], FILE_LIMIT)))
        size += len(contents[-1][1])

    return contents
