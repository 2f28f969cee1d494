"""kill -9 at any moment, again and again, on one execution; a client remembers every answer.

The moments are random, so this finds what nobody thought of; where each call is met in turn, see
`test_killed_at_every_call.py`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from hankweave_client.client import Client
from hankweave_protocol.ids import Sha
from support.invariants import Told, leftovers, tree_violations, violations
from support.running_server import command, running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.struck import Lost, Tally, kill, process_of, session
from support.tiers import Tier
from support.watching import idle

SEED = 20250104
LONGEST_LIFE = 1.0
"""Seconds from a start's readiness to the kill."""
LONGEST_START = 1.5

Tree = dict[str, bytes]


@dataclass
class Person:
    """Edits files, gives commands, and knows what the work tree must be."""

    execution: Path
    chance: random.Random
    told: Told = field(default_factory=Told)
    trees: dict[Sha, Tree] = field(default_factory=dict)
    """The files at each checkpoint that was acknowledged."""
    may_be: list[Tree] = field(default_factory=list)
    """What the files are; several while a journey is under way."""

    async def act(self, client: Client) -> None:
        """Gives commands until the server is gone."""
        while True:
            await self.chance.choice((self.save, self.save, self.go_back, self.collect))(client)

    async def save(self, client: Client) -> None:
        name = f"{self.chance.randrange(5)}/{self.chance.randrange(9)}.txt"
        path = self.execution / "agentRoot" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self.chance.randbytes(self.chance.randrange(9_000)))
        self.may_be = [tree(self.execution / "agentRoot")]
        record = await client.create_checkpoint()
        self.told.checkpoints.append(record)
        self.trees[record.sha] = self.may_be[0]

    async def go_back(self, client: Client) -> None:
        """Rolls back to some checkpoint, and perhaps takes it back."""
        sha = self.chance.choice(list(self.trees))
        before = self.may_be[0]
        self.may_be = [before, self.trees[sha]]
        self.told.rollbacks.append(await client.roll_back_to_checkpoint(sha))
        self.may_be = [self.trees[sha]]
        if self.chance.random() < 0.5:
            self.may_be.append(before)
            self.told.rollbacks.append(await client.undo())
            self.may_be = [before]

    async def collect(self, client: Client) -> None:
        """Lets all but a few checkpoints go; what is in the list afterwards can be gone back to."""
        if self.chance.random() < 0.3:
            await client.collect_garbage(max_count=8)

        page = await client.list_checkpoints()
        known = {record.sha for record in page.checkpoints}
        self.trees = {sha: files for sha, files in self.trees.items() if sha in known}

    async def live(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._hear, client)
            try:
                await self.act(client)
            except Lost:
                group.cancel_scope.cancel()

    async def _hear(self, client: Client) -> None:
        try:
            async for event in client.events():
                self.told.hear(event)
        except Lost:
            return


async def test_random_kills_lose_nothing(tmp_path: Path, tier: Tier, tally: Tally) -> None:
    """After each kill: all that was acknowledged is there, and the files are what they must be."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "one")))
    async with (
        running_server(hank, None, execution) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        person = Person(execution, random.Random(SEED))
        await person.save(client)

    is_time = tier.within(25)
    for number in range(tier.rounds):
        if is_time():
            await _killed(person)
            found = await _started_again(person)
            tally.rounds["random kills"] += 1
            tally.violations += [f"random kill {number}: {what}" for what in found]
            assert found == []

    tally.acknowledgements += person.told.acknowledgements


async def _killed(person: Person) -> None:
    words = command("run", "--execution", str(person.execution), "--json", "--no-autostart")
    async with process_of(words) as server:
        if person.chance.random() < 0.2:
            await anyio.sleep(person.chance.uniform(0, LONGEST_START))
            return

        assert await server.until('"server.ready"'), server.lines
        async with anyio.create_task_group() as group:
            group.start_soon(server.to_its_end)
            group.start_soon(_connected, person)
            await anyio.sleep(person.chance.uniform(0, LONGEST_LIFE))
            kill(server.process)


async def _connected(person: Person) -> None:
    try:
        async with session(person.execution) as client:
            await person.live(client)
    except Lost:
        return


async def _started_again(person: Person) -> list[str]:
    execution = person.execution
    async with running_server(None, None, execution, "--no-autostart") as server:
        found = tree_violations(execution, *person.may_be)
        person.may_be = [tree(execution / "agentRoot")]
        assert await server.stop() == 0

    return [*found, *leftovers(execution), *violations(execution, person.told)]
