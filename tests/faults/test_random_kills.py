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
from support.struck import LONGEST_START, Lost, kill, process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.watching import idle

SEED = 20250104
LONGEST_LIFE = 0.5
"""Seconds of the server's processor time from its readiness to the kill."""


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

    for number in range(tier.rounds):
        await _killed(person)
        found = await _started_again(person)
        tally.add("random kills", violations=[f"random kill {number}: {what}" for what in found])
        assert found == [], f"seed {SEED}, kill {number}"

    tally.add("random kills", rounds=0, acknowledged=person.acknowledged.count)


async def _killed(person: Person) -> None:
    argv = command("run", "--execution", str(person.execution), "--json", "--no-autostart")
    async with process_of(argv) as server:
        is_killed_in_its_start = person.chance.random() < 0.2
        if not is_killed_in_its_start:
            assert await server.until('"server.ready"'), server.lines

        async with anyio.create_task_group() as group:
            group.start_soon(server.to_its_end)
            if is_killed_in_its_start:
                await server.has_worked(person.chance.uniform(0, LONGEST_START), server.is_ready)
            else:
                is_over = anyio.Event()
                group.start_soon(_connected, person, is_over)
                await server.has_worked(person.chance.uniform(0, LONGEST_LIFE), is_over.is_set)

            kill(server.process)


async def _connected(person: Person, is_over: anyio.Event) -> None:
    try:
        async with session(person.execution) as client:
            await person.live(client)
    except Lost:
        return
    finally:
        is_over.set()


async def _started_again(person: Person) -> list[str]:
    execution = person.execution
    async with running_server(None, None, execution, "--no-autostart") as server:
        found = tree_violations(execution, *person.may_be)
        person.may_be = [tree(execution / "agentRoot")]
        assert await server.stop() == 0

    return [*found, *leftovers(execution), *violations(execution, person.acknowledged)]
