"""kill -9 at random moments, repeatedly, on one execution; a client remembers every reply.

Random moments find what a systematic test does not expect; `test_killed_at_every_call.py` covers
each call in turn.
"""

from __future__ import annotations

import random
from pathlib import Path

import anyio

from support.invariants import leftovers, tree_violations, violations
from support.person import Person
from support.running_server import command, running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.struck import Lost, kill, process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.watching import idle

SEED = 20250104
LONGEST_LIFE = 1.0
"""Seconds from a start's readiness to the kill."""
LONGEST_START = 1.5


async def test_random_kills_lose_nothing(tmp_path: Path, tier: Tier, tally: Tally) -> None:
    """After each kill, everything acknowledged exists, and the files are the expected ones."""
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
        if tier.is_long or is_time():
            await _killed(person)
            found = await _started_again(person)
            tally.add(
                "random kills", violations=[f"random kill {number}: {what}" for what in found]
            )
            assert found == []

    tally.add("random kills", rounds=0, acknowledged=person.told.acknowledgements)


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
