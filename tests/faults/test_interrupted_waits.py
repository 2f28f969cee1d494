"""Waits for the end of a limit, struck by kill -9, SIGSTOP, clock jumps and people's edits.

The limit ends in three hours; a library moves the server's clocks, so that a wait takes seconds.
"""

from __future__ import annotations

import random
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio

from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.events import CodonResumed, CodonWaiting
from hankweave_protocol.instants import from_text
from hankweave_protocol.state import CompletedCodon
from support.invariants import Acknowledged, violations
from support.moved_clocks import Clocks, moved_clocks
from support.running_server import RunningServer, journal, running_server, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.tally import Tally
from support.tiers import Tier
from support.waiting import LIMIT
from support.watching import events_of, idle

SEED = 20261122
HOURS = 3 * 3600
LATEST = 5.0
"""Seconds after its instant by which a conversation has to continue, in the long tier."""
STOPPED = 0.7
"""Seconds of a SIGSTOP; no claim depends on them."""
MOST_REPLIES = 30
STRIKES = ("kill", "stop", "back", "forward", "edit")


@dataclass
class Struck:
    """One execution whose codon waits, and what happens to it."""

    folder: Path
    clocks: Clocks
    chance: random.Random
    ahead: int = 0
    edits: int = 0

    @property
    def execution(self) -> Path:
        return self.folder / "execution"

    async def live(self) -> None:
        """Begin a wait, strike it, move the clock to just before its end, and see it end."""
        strikes = self.chance.choices(STRIKES, k=self.chance.randint(2, 4))
        steps = (writes("a.txt", "a"), {"limit": {"resetsIn": HOURS}}, writes("b.txt", "b"))
        hank = write_hank(self.folder / "hank", codon("one", *steps))
        is_over = False
        while not is_over:
            async with self._server(hank) as server:
                async with server.client(since_seq=0) as client:
                    begun = (await client.until(CodonWaiting, timeout=LIMIT)).data
                    assert isinstance(begun, CodonWaiting)

                if await self._strike(server, strikes):
                    continue

                self._move_to(from_text(begun.until))
                async with server.client(since_seq=0) as client:
                    await client.until(CodonResumed, timeout=LIMIT)
                    await idle(client)

                assert await server.stop() == 0
                is_over = True

    async def _strike(self, server: RunningServer, strikes: list[str]) -> bool:
        """Strike a server; return True if it is dead."""
        while strikes:
            match strikes.pop():
                case "kill":
                    await self._passes(server)
                    server.kill()
                    await server.process.wait()
                    return True
                case "stop":
                    server.process.send_signal(signal.SIGSTOP)
                    await anyio.sleep(STOPPED)
                    server.process.send_signal(signal.SIGCONT)
                case "back":
                    self._move(self.ahead - self.chance.randint(10, 3600))
                case "forward":
                    self._move(self.ahead + self.chance.randint(10, 2400))
                case _:
                    self.edits += 1
                    path = self.execution / "agentRoot" / "a.txt"
                    path.write_text(f"a person's, {self.edits}")

        return False

    async def _passes(self, server: RunningServer) -> None:
        """Wait for a random number of replies: the moment of a kill is none of a clock."""
        async with server.client() as client:
            for _ in range(self.chance.randint(0, MOST_REPLIES)):
                await client.send(GetServerStatus())

    def _server(self, hank: Path) -> AbstractAsyncContextManager[RunningServer]:
        return running_server(hank, None, self.execution, env=self.clocks.environment)

    def _move(self, ahead: int) -> None:
        self.ahead = ahead
        self.clocks.move(wall=ahead)

    def _move_to(self, until: datetime) -> None:
        self._move(round((until - datetime.now(UTC)).total_seconds()) - 1)

    def found(self, latest: float) -> list[str]:
        """Return what is wrong with the execution."""
        (begun,), resumed = (
            events_of(self.execution, CodonWaiting),
            events_of(self.execution, CodonResumed),
        )
        (one,) = state(self.execution).runs[0].codons
        files = tree(self.execution / "agentRoot")
        mine = f"a person's, {self.edits}" if self.edits else "a"
        at = [event.timestamp for event in journal(self.execution) if event.data in resumed]
        late = [(from_text(each) - from_text(begun.until)).total_seconds() for each in at]
        checks = {
            f"it continued {len(resumed)} times": len(resumed) == 1,
            f"it was {late} s late": all(0 <= each < latest for each in late),
            f"the codon is {one}": isinstance(one, CompletedCodon),
            f"the files are {files}": files == {"a.txt": mine.encode(), "b.txt": b"b"},
        }
        faults = [fault for fault, holds in checks.items() if not holds]
        return [*faults, *violations(self.execution, Acknowledged())]


async def test_a_struck_wait_ends_once_and_in_time(
    tmp_path: Path, tier: Tier, tally: Tally
) -> None:
    """The conversation continues once, not before its instant, and no edit is lost."""
    chance = random.Random(SEED)
    for number in range(min(tier.rounds, tier.sampled or tier.rounds)):
        folder = tmp_path / str(number)
        folder.mkdir()
        struck = Struck(folder, moved_clocks(folder), chance)
        await struck.live()
        found = struck.found(LATEST if tier.is_long else LIMIT)
        tally.add("struck waits", violations=[f"struck wait {number}: {each}" for each in found])
        assert found == [], f"seed {SEED}, wait {number}"
