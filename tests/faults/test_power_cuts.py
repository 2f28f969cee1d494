"""Power cuts at any moment, on ext4 and on XFS: the disk keeps what was flushed, and no more.

A real server works on a disk of its own. A client outside remembers every reply and event. The disk
is cut off, the server killed, the disk mounted again, and the server started again. A server whose
flushes do nothing must lose something in the same procedure, or the cuts prove nothing.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from hankweave_protocol.ids import Sha
from support.invariants import Acknowledged, leftovers, tree_violations, violations
from support.person import CarefulPerson
from support.power import (
    EXT4,
    XFS,
    Disk,
    FileSystem,
    NotHere,
    freeze,
    kernel_that_commits,
    without_flushes,
)
from support.running_server import command, running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.struck import LONGEST_START, Lost, Output, Tree, kill, process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.waiting import eventually

SEED = 20250104
MOST_EVENTS = 150
"""From a start's readiness to the cut."""
LONGEST_END = 0.3
"""Seconds of the server's processor time from a SIGTERM to the cut."""
CUTS_ON_ONE_DISK = 20
SHARE_THAT_MUST_FAIL = 0.5

CODONS = (
    codon("one", writes("a.txt", "one"), writes("d/b.txt", "one")),
    codon("two", {"run": "rm -rf d; mkdir -p e/f; printf two > a.txt; printf two > e/f/c.txt"}),
    codon("three", {"run": "mkdir -p many; for i in $(seq 90); do echo $i$i > many/$i; done"}),
)


@dataclass
class Machine:
    """A disk with an execution on it, and what is known of it before the first cut."""

    disk: Disk
    lives: int = 0
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    trees: dict[Sha, Tree] = field(default_factory=dict)

    @property
    def execution(self) -> Path:
        return self.disk.place / "execution"

    async def prepare(self, hank: Path) -> None:
        """Run one codon of three."""
        async with running_server(hank, None, self.execution, "--no-autostart") as server:
            person = self.person(random.Random(SEED))
            async with server.client(since_seq=0) as client, anyio.create_task_group() as group:
                group.start_soon(person.listen, client)
                await person.run_a_codon(client)
                await person.save(client)
                group.cancel_scope.cancel()

            assert await server.stop() == 0

        self.acknowledged, self.trees = person.acknowledged, person.trees
        await self.disk.keep()

    def person(self, chance: random.Random) -> CarefulPerson:
        acknowledged = Acknowledged(
            list(self.acknowledged.checkpoints), events=dict(self.acknowledged.events)
        )
        return CarefulPerson(
            self.execution, chance, acknowledged, dict(self.trees), [*self.trees.values()]
        )


def _name(value: object) -> str | None:
    return value.name if isinstance(value, FileSystem) else None


Machines = Callable[[FileSystem], Awaitable[Machine]]


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Machine]]:
    machines: dict[str, Machine] = {}
    yield machines
    for machine in machines.values():
        machine.disk.discard()


@pytest.fixture
def machines(made: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Return a function that gives the machine of a kind; each is prepared once for all tests."""

    async def lend(kind: FileSystem) -> Machine:
        if kind.name in made:
            return made[kind.name]

        folder = tmp_path_factory.mktemp(kind.name)
        try:
            machine = made[kind.name] = Machine(Disk(folder, kind))
        except NotHere as reason:
            pytest.skip(str(reason))

        await machine.prepare(write_hank(folder / "hank", *CODONS))
        return machine

    return lend


# --- the claims -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "few", "many"), [(EXT4, 3, 100), (XFS, 1, 30)], ids=_name)
@pytest.mark.story("A power cut loses nothing that was acknowledged.", cases=("ext4-3-100",))
async def test_a_power_cut_loses_nothing(
    kind: FileSystem, few: int, many: int, machines: Machines, tier: Tier, tally: Tally
) -> None:
    """Everything acknowledged exists and is readable, and the files are the expected ones."""
    machine = await machines(kind)
    cuts = many if tier.is_long else few
    while cuts > 0:
        life, found = await _cuts_on_one_disk(machine, min(cuts, CUTS_ON_ONE_DISK), tally)
        assert found == [], life
        cuts -= life.cuts


async def _cuts_on_one_disk(machine: Machine, most: int, tally: Tally) -> tuple[Life, list[str]]:
    """Start with a new disk, and stay on it until the checker finds a fault."""
    life = await Life.on(machine)
    found: list[str] = []
    while life.cuts < most and not found:
        cuts, known = life.cuts, life.person.acknowledged.count
        await life.is_cut_off()
        found = await life.is_started_again()
        tally.add(
            f"power cuts on {machine.disk.kind.name}",
            rounds=life.cuts - cuts,
            of="cuts",
            acknowledged=life.person.acknowledged.count - known,
            violations=[f"{life}: {what}" for what in found],
        )

    return life, found


@pytest.mark.parametrize(("kind", "few", "many"), [(EXT4, 5, 40), (XFS, 0, 15)], ids=_name)
async def test_a_power_cut_without_flushes_loses_something(
    kind: FileSystem,
    few: int,
    many: int,
    machines: Machines,
    tier: Tier,
    tally: Tally,
    tmp_path: Path,
) -> None:
    """Where flushes do nothing, most cuts break a promise, so the cuts are real."""
    lives = many if tier.is_long else few
    if lives == 0:
        pytest.skip(f"the control on {kind.name} is of the long tier")

    before = _without_flushes(tmp_path)
    machine = await machines(kind)
    broken = 0
    for _ in range(lives):
        life = await Life.on(machine, before)
        await life.is_cut_off()
        broken += bool(await life.is_started_again())
        tally.add(f"cuts without flushes, {kind.name}", of=f"cuts, {broken} broken")
        if broken and not tier.is_long:
            return

    assert broken >= SHARE_THAT_MUST_FAIL * lives


def _without_flushes(folder: Path) -> list[str]:
    try:
        return without_flushes(folder)
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.enclosed
async def test_a_disk_that_another_process_holds_is_mounted_when_it_is_free(tmp_path: Path) -> None:
    """A process in a mount namespace of its own holds the disk while its machine starts again.

    A mount before the end of that process would get the file system that was shut down, which
    cannot be read.
    """
    try:
        disk = Disk(tmp_path, EXT4)
    except NotHere as reason:
        pytest.skip(str(reason))

    try:
        (disk.place / "kept").write_text("kept")
        await anyio.run_process(["sync", "--file-system", disk.place])
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read line"]
        async with await anyio.open_process(argv) as holder:
            assert holder.stdin
            assert holder.stdout
            await holder.stdout.receive()
            disk.cut()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disk.reboot)
                await anyio.wait_all_tasks_blocked()
                assert not disk.place.is_mount()
                await holder.stdin.aclose()

        assert (disk.place / "kept").read_text() == "kept"
    finally:
        disk.discard()


# --- cuts and restarts ----------------------------------------------------------------------------


@dataclass
class Life:
    """The sequence of cuts and restarts of one disk, from its prepared state."""

    machine: Machine
    person: CarefulPerson
    seed: int
    before: list[str]
    """Words before the server's command."""
    cuts: int = 0
    last: str = ""
    """The moment of the last cut."""

    @classmethod
    async def on(cls, machine: Machine, before: list[str] | None = None) -> Life:
        await machine.disk.lay_out()
        machine.lives += 1
        seed = SEED + machine.lives
        return cls(machine, machine.person(random.Random(seed)), seed, before or [])

    def __str__(self) -> str:
        kind = self.machine.disk.kind.name
        return f"{kind}, seed {self.seed}, cut {self.cuts} ({self.last})"

    async def is_cut_off(self) -> None:
        """Cut the power while the server works, and sometimes again while it recovers."""
        chance = self.person.chance
        await self._cut_off(self._at_work)
        while self.cuts and chance.random() < 0.25:
            await self._cut_off(self._in_its_start)

    async def _cut_off(self, moment: Callable[[Output], Awaitable[None]]) -> None:
        self.last = moment.__name__.strip("_").replace("_", " ")
        argv = command("run", "--execution", str(self.person.execution), "--json")
        async with process_of([*self.before, *argv, "--no-autostart"]) as server:
            await moment(server)

        self.cuts += 1
        await self.machine.disk.reboot()

    async def _in_its_start(self, server: Output) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(server.to_its_end)
            moment = self.person.chance.uniform(0, LONGEST_START)
            await server.has_worked(moment, server.is_ready)
            self.machine.disk.cut()
            kill(server.process)

    async def _at_work(self, server: Output) -> None:
        chance, disk = self.person.chance, self.machine.disk
        assert await server.until('"server.ready"'), server.lines
        enough = self.person.will_have_enough(chance.randint(1, MOST_EVENTS))
        is_over = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(server.to_its_end)
            group.start_soon(self._connected, is_over)
            if chance.random() < 0.5:
                group.start_soon(kernel_that_commits, disk, random.Random(chance.random()))

            await eventually(lambda: enough.is_set() or is_over.is_set())
            if chance.random() < 0.1:
                server.process.send_signal(signal.SIGTERM)
                await server.has_worked(chance.uniform(0, LONGEST_END), server.has_ended)

            freeze(server.process.pid)
            disk.cut()
            kill(server.process)

    async def _connected(self, is_over: anyio.Event) -> None:
        try:
            async with session(self.person.execution) as client:
                await self.person.live(client)
        except Lost:
            return
        finally:
            is_over.set()

    async def is_started_again(self) -> list[str]:
        """Start the server after its last cut, with working flushes; return the faults found."""
        person = self.person
        try:
            async with running_server(None, None, person.execution, "--no-autostart") as server:
                found = tree_violations(person.execution, *person.may_be) if person.may_be else []
                person.may_be = [tree(person.work_tree)]
                code = await server.stop()

            if code != 0:
                found.append(f"It stopped with exit code {code}.")

            return [
                *found,
                *leftovers(person.execution),
                *violations(person.execution, person.acknowledged),
            ]
        except (ExceptionGroup, AssertionError, *Lost) as problem:
            return [f"It does not start again: {problem!r}"]
