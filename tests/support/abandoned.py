"""An execution with an abandoned branch: checkpoints that a gc may prune."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, ListCheckpoints, RollbackToCodon
from hankweave_protocol.ids import CodonId, Sha
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))


@dataclass
class DeadEnd:
    """A server whose current timeline replaced another one."""

    server: RunningServer
    client: Client
    manual: tuple[Sha, ...]
    """On the abandoned timeline, oldest first."""
    old_safety: Sha
    new_safety: Sha
    standing: frozenset[Sha]
    """Commits that no limit prunes."""

    @property
    def may_go(self) -> frozenset[Sha]:
        return frozenset({*self.manual, self.old_safety})

    async def known(self) -> frozenset[Sha]:
        page = await self.client.send(ListCheckpoints())
        return frozenset(record.sha for record in page.checkpoints)


@asynccontextmanager
async def dead_end(folder: Path, manual: int = 2) -> AsyncIterator[DeadEnd]:
    """Run a plan, take checkpoints by hand, and roll back twice."""
    hank, execution = write_hank(folder / "hank", *HANK), folder / "execution"
    async with (
        running_server(hank, None, execution) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        taken = []
        for number in range(manual):
            (execution / "agentRoot" / f"by-hand-{number}.txt").write_text(f"{number}\n" * 99)
            taken.append((await client.send(CheckpointCreate(label=f"by hand {number}"))).sha)

        first = await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        (execution / "agentRoot" / "a.txt").write_text("mended")
        second = await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        assert first.safety is not None
        assert second.safety is not None
        page = await client.send(ListCheckpoints())
        old, new = first.safety.checkpoint_sha, second.safety.checkpoint_sha
        standing = frozenset(each.sha for each in page.checkpoints) - {*taken, old}
        yield DeadEnd(server, client, tuple(taken), old, new, standing)
