"""There are never two owners: starters race, die, stop, and lose their directory (T-L1 to L12).

Each owner writes to a common log, and only that log shows whether two of them owned at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hankweave_protocol.commands import CheckpointCreate
from hankweave_protocol.instants import to_text
from hankweave_server.errors import ExitCode
from hankweave_server.paths import Layout
from support import enclosure
from support.copies import copy_execution
from support.lock_witness import (
    IMPORTED,
    Starter,
    Witness,
    overlaps,
    race,
    starters,
    write_foreign_lock,
)
from support.running_server import RunningServer, command, running_server
from support.scripted_hank import codon, write_hank
from support.struck import process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.waiting import LIMIT, eventually, limited
from support.watching import idle

STARTERS = 12
START_DEADLINE = 2.0
"""Seconds until a start after a SIGKILL owns the directory."""

UNDER_LOAD = 10.0
"""The same in wall-clock seconds, while other processes use the machine as well."""

Layer = Callable[[Layout], None]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of_execution(tmp_path / "execution")


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness.log")


# --- races ----------------------------------------------------------------------------------------


def no_file(layout: Layout) -> None:
    shutil.rmtree(layout.state_directory, ignore_errors=True)


def stale(layout: Layout) -> None:
    """Leave the lock file of the killed winner of the previous round."""


def torn(content: bytes) -> Layer:
    def lay(layout: Layout) -> None:
        layout.state_directory.mkdir(parents=True, exist_ok=True)
        layout.runtime_lock.write_bytes(content)

    return lay


RACES: dict[str, tuple[Layer, int]] = {
    "on a stale lock": (stale, 200),
    "without a lock file": (no_file, 200),
    "on an empty lock": (torn(b""), 50),
    "on a torn lock": (torn(b'{"pid": 47'), 50),
    "on a lock of NULs": (torn(b"\0" * 300), 50),
}


@pytest.fixture(scope="module")
def racers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Starter], Witness]]:
    """Start the twelve processes for all races; only a killed one is replaced."""
    witness = Witness(tmp_path_factory.mktemp("races") / "witness.log")
    with starters(witness.log, STARTERS) as pool:
        yield pool, witness


@pytest.mark.parametrize("name", RACES)
@pytest.mark.story(
    "Of twelve servers that start at once, one owns the directory.", cases=("on a stale lock",)
)
def test_of_twelve_starters_one_owns(
    name: str, layout: Layout, racers: tuple[list[Starter], Witness], tier: Tier, tally: Tally
) -> None:
    """T-L1, T-L2, T-L8: all start at once, again and again; the winner is killed each time."""
    lay, rounds = RACES[name]
    pool, witness = racers
    for number in range(rounds if tier.is_long else rounds // 20):
        lay(layout)
        answers = race(pool, layout.root)
        owners = [place for place, answer in enumerate(answers) if answer["owned"]]
        losers = [answer for answer in answers if not answer["owned"]]
        assert len(owners) == 1, (number, answers)
        assert {answer["exit_code"] for answer in losers} == {ExitCode.LOCK_HELD}
        winner = pool[owners[0]]
        assert winner.ask("hold") == {"done": True}
        witness.condemn(winner)
        winner.close()
        pool[owners[0]] = Starter(witness.log).ready()
        tally.add(f"12 starters {name}")

    assert witness.overlaps() == []


def test_the_witness_notices_two_owners() -> None:
    """The checker can fail: it names a process that writes while another one owns."""
    assert overlaps(["enter a", "still a", "leave a", "enter b"]) == []
    assert overlaps(["enter a", "killed a", "enter b"]) == []
    assert len(overlaps(["enter a", "enter b"])) == 1
    assert len(overlaps(["enter a", "killed a", "enter b", "still a"])) == 1
    assert len(overlaps(["enter a", "enter b", "still a"], fenced=True)) == 1


# --- stopped and killed ---------------------------------------------------------------------------


def test_a_stopped_owner_is_not_succeeded_and_goes_on(
    layout: Layout, witness: Witness, tier: Tier
) -> None:
    """T-L3: under SIGSTOP other starters are refused with 75; after SIGCONT the owner continues."""
    with starters(witness.log, 4) as [owner, *others]:
        assert owner.ask("acquire", layout.root)["owned"]
        for _ in range(50 if tier.is_long else 5):
            os.kill(owner.pid, signal.SIGSTOP)
            for other in others:
                other.ask("clock", 3 * 3600)  # For them, hours have passed.

            for refusal in race(others, layout.root):
                assert (refusal["by"], refusal["exit_code"]) == (owner.pid, 75)

            os.kill(owner.pid, signal.SIGCONT)
            assert owner.ask("hold") == {"done": True}

    assert witness.overlaps() == []


async def test_a_start_after_a_kill_owns_within_two_seconds(
    tmp_path: Path, layout: Layout, tier: Tier, tally: Tally
) -> None:
    """T-L4: a killed server is replaced at once, however long its history (10,000 events)."""
    events, checkpoints = (10_000, 1_000) if tier.is_long else (500, 20)
    program = f"for i in $(seq {events}); do echo $i; done"
    spec = {"type": "command", "command": ["sh", "-c", program]}
    hank = write_hank(tmp_path / "hank", codon("one", agent=spec))
    async with running_server(hank, None, layout.root) as server:
        async with session(layout.root) as client:
            await idle(client)
            for _ in range(checkpoints):
                await client.send(CheckpointCreate())

        server.kill()
        await server.process.wait()

    assert len(layout.journal.read_bytes().splitlines()) >= events
    took = [await _owns_after(layout) for _ in range(3)]
    wall, work = zip(*took, strict=True)
    figures = f"owned in {min(wall):.2f} s, {min(work):.2f} s of it its own work"
    tally.add(f"starts after SIGKILL ({figures})", rounds=len(took), of="starts")
    assert min(work) < START_DEADLINE
    assert min(wall) < (START_DEADLINE if os.getloadavg()[0] < 2 else UNDER_LOAD)


async def _owns_after(layout: Layout) -> tuple[float, float]:
    """Start a server, wait for its lock, kill it; return the wall and own seconds it took."""
    began = time.monotonic()
    argv = command("run", "--execution", str(layout.root), "--json", "--no-autostart")
    async with process_of(argv) as server:
        await eventually(lambda: _named_owner(layout) == server.process.pid)

        wall = time.monotonic() - began
        times = psutil.Process(server.process.pid).cpu_times()
        assert await server.until('"server.ready"'), server.lines
        return wall, times.user + times.system


def _named_owner(layout: Layout) -> int | None:
    try:
        return int(json.loads(layout.runtime_lock.read_bytes())["pid"])
    except FileNotFoundError:
        return None


# --- reused pids ----------------------------------------------------------------------------------


def needs_pid_namespaces() -> None:
    if (reason := enclosure.why_not()) is not None:
        pytest.skip(reason)

    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare program")

    tried = subprocess.run(
        ["unshare", "-pf", "--mount-proc", "sh", "-c", "echo 99 > /proc/sys/kernel/ns_last_pid"],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip("pid namespaces cannot be made here: " + tried.stderr.decode().strip())


NAMESPACE = ("unshare", "-pf", "--kill-child=KILL", "--mount-proc")

# It runs as pid 1 of a namespace: it kills an owner, makes the kernel give its pid to another
# process, and starts a server again; then it gives that pid to the next starter itself, as
# containers do.
REUSE = """
import json, subprocess, sys
from pathlib import Path
from support.lock_witness import IMPORTED, Starter, Witness

root, witness = sys.argv[1], Witness(Path(sys.argv[2]))

def next_pid(pid):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))

def killed(owner):
    witness.condemn(owner)
    owner.kill()
    owner.close()

owner = Starter(witness.log).ready()
assert owner.ask("acquire", root)["owned"]
killed(owner)
next_pid(owner.pid)
stranger = subprocess.Popen(["sleep", "600"])
assert stranger.pid == owner.pid, (stranger.pid, owner.pid)
second = Starter(witness.log).ready()
answer = second.ask("acquire", root)
assert stranger.poll() is None
stranger.kill()
stranger.wait()
killed(second)
next_pid(second.pid)
third = Starter(witness.log).ready()
assert third.pid == second.pid, (third.pid, second.pid)
again = third.ask("acquire", root)
killed(third)
print(json.dumps([owner.pid, answer, second.pid, again]))
"""


def test_a_reused_pid_does_not_hold_the_lock(layout: Layout, witness: Witness, tier: Tier) -> None:
    """T-L5: a server starts, whether a stranger or the server itself got the dead owner's pid."""
    needs_pid_namespaces()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, IMPORTED))}
    for _ in range(20 if tier.is_long else 1):
        done = subprocess.run(
            [*NAMESPACE, *_python("-c", REUSE, layout.root, witness.log)],
            env=environment,
            capture_output=True,
            check=False,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr.decode()
        first, answer, second, again = json.loads(done.stdout)
        assert (answer["owned"], answer["previous"], answer["reused"]) == (True, first, True)
        assert (again["owned"], again["previous"]) == (True, second)

    assert witness.overlaps() == []


def test_two_first_processes_of_two_containers_are_two(
    layout: Layout, witness: Witness, tier: Tier
) -> None:
    """T-L6: both are pid 1; the second is refused, and starts when the first is dead."""
    needs_pid_namespaces()
    with ExitStack() as stack:
        [first] = stack.enter_context(starters(witness.log, 1, NAMESPACE))
        for _ in range(20 if tier.is_long else 2):
            [second] = stack.enter_context(starters(witness.log, 1, NAMESPACE))
            if not witness.owners():
                assert first.ask("acquire", layout.root)["owned"]

            refusal = second.ask("acquire", layout.root)
            assert (refusal["owned"], refusal["by"], refusal["exit_code"]) == (False, 1, 75)
            assert first.ask("hold") == {"done": True}
            witness.condemn(first)
            first.kill()
            answer = second.ask("acquire", layout.root)
            assert (answer["owned"], answer["previous"]) == (True, 1)
            first = second

    assert witness.overlaps() == []


def test_after_a_reboot_an_old_pid_means_nothing(layout: Layout, witness: Witness) -> None:
    """T-L7: the guard file is from another boot, and the pid in it is alive."""
    with starters(witness.log, 2) as [owner, next_one]:
        assert owner.ask("acquire", layout.root)["owned"]
        owner.ask("crash")
        guard = json.loads(layout.lock_guard.read_bytes())
        layout.lock_guard.write_text(json.dumps(guard | {"bootId": "another boot"}))
        answer = next_one.ask("acquire", layout.root)
        assert (answer["owned"], answer["previous"], answer["reused"]) == (True, owner.pid, True)

    assert witness.overlaps() == []


# --- clocks and foreign locks ---------------------------------------------------------------------


def test_a_clock_that_goes_back_two_hours_frees_no_lock(layout: Layout, witness: Witness) -> None:
    """T-L14: with either clock set back, the owner keeps the lock and others are refused."""
    with starters(witness.log, 3) as [owner, *others]:
        assert owner.ask("acquire", layout.root)["owned"]
        for owners_clock, others_clock in ((-7200, 0), (0, -7200), (-7200, 7200), (7200, -7200)):
            owner.ask("clock", owners_clock)
            others[0].ask("clock", others_clock)
            assert {answer["exit_code"] for answer in race(others, layout.root)} == {75}
            assert owner.ask("hold") == {"done": True}

    assert witness.overlaps() == []


@contextmanager
def _beating(layout: Layout) -> Iterator[None]:
    """Update the heartbeat of another program's lock every half second; a starter sees two."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.5):
            write_foreign_lock(layout, lastHeartbeat=to_text(datetime.now(UTC)))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_foreign_heartbeat_that_moves_refuses_everybody(layout: Layout, witness: Witness) -> None:
    """T-L11: three starters watch another program's lock; its moving heartbeat refuses them all."""
    with starters(witness.log, 3) as pool:
        write_foreign_lock(layout, lastHeartbeat=to_text(datetime.now(UTC)))
        for starter in pool:
            starter.tell("acquire", layout.root)

        with _beating(layout):
            assert [starter.answer()["owned"] for starter in pool] == [False] * 3

        assert not layout.lock_guard.exists()


def test_a_foreign_heartbeat_that_stands_still_gives_way_to_one(
    layout: Layout, witness: Witness, tier: Tier
) -> None:
    """T-L11: three starters wait for 75 s of their own time, and then one of them owns."""
    if not tier.is_long:
        pytest.skip("takes 75 s: long tier")

    with starters(witness.log, 3) as pool:
        write_foreign_lock(layout, lastHeartbeat=to_text(datetime.now(UTC)))
        began = time.monotonic()
        answers = race(pool, layout.root)
        assert 75 <= time.monotonic() - began < 160
        assert sorted(answer["owned"] for answer in answers) == [False, False, True]

    assert witness.overlaps() == []


def test_of_many_starters_one_takes_over_an_old_foreign_lock(
    layout: Layout, witness: Witness
) -> None:
    """With a dead pid and an old heartbeat no starter waits, and exactly one owns."""
    with starters(witness.log, 3) as pool:
        write_foreign_lock(layout)
        began = time.monotonic()
        answers = race(pool, layout.root)
        assert time.monotonic() - began < 60
        assert sorted(answer["owned"] for answer in answers) == [False, False, True]

    assert witness.overlaps() == []


# --- the directory is deleted or replaced ---------------------------------------------------------


BUSY = "i=0; while :; do i=$((i+1)); echo line $i; echo $i > file; sleep 0.02; done"


def _busy_hank(folder: Path) -> Path:
    """Return an agent that prints and writes constantly, so that its server writes constantly."""
    spec = {"type": "command", "command": ["sh", "-c", BUSY]}
    return write_hank(folder, codon("busy", agent=spec))


def _everything(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path.relative_to(folder)): (
            (facts := path.lstat()).st_ino,
            facts.st_mtime_ns,
            facts.st_size,
        )
        for path in [folder, *folder.rglob("*")]
    }


async def _exit_code(server: RunningServer) -> int:
    with limited():
        return await server.process.wait()


async def _has_begun(layout: Layout) -> None:
    """Wait until the agent works and is recorded: then the server writes only its output."""
    await eventually(lambda: _has_logged(layout) and list(layout.agent_processes.glob("*.json")))


def _has_logged(layout: Layout) -> bool:
    return any(log.stat().st_size > 500 for log in layout.runs.glob("*/busy-claude.log"))


async def test_a_busy_server_whose_guard_is_deleted_fences_itself(
    tmp_path: Path, layout: Layout
) -> None:
    """T-L9: it ends with 70 within a heartbeat, its agent with it, and writes nothing more."""
    async with running_server(_busy_hank(tmp_path / "hank"), None, layout.root) as server:
        await _has_begun(layout)
        agents = psutil.Process(server.pid).children(recursive=True)
        layout.lock_guard.unlink()
        assert await _exit_code(server) == ExitCode.SOFTWARE
        _, alive = psutil.wait_procs(agents, timeout=LIMIT)
        assert alive == []
        before = _everything(layout.root)
        await anyio.sleep(0.3)  # After its end only a wait can reveal a late write.
        assert _everything(layout.root) == before

    assert "lock is lost" in layout.server_log.read_text()


@pytest.mark.parametrize("with_another", [False, True], ids=["copied", "owned by another"])
async def test_a_busy_server_touches_nothing_in_a_directory_that_replaced_its_own(
    tmp_path: Path, layout: Layout, with_another: bool
) -> None:
    """T-L10: .hankweave is swapped under the server: it ends with 70, the new folder is intact."""
    spare = tmp_path / "spare"
    async with running_server(_busy_hank(tmp_path / "hank"), None, layout.root) as server:
        await _has_begun(layout)
        server.process.send_signal(signal.SIGSTOP)  # Its temporary files vanish under a copy.
        copy_execution(layout.state_directory, spare)
        server.process.send_signal(signal.SIGCONT)
        with ExitStack() as stack:
            if with_another:
                other = stack.enter_context(starters(tmp_path / "witness.log", 1))[0]
                (tmp_path / "elsewhere").mkdir()
                spare.rename(tmp_path / "elsewhere" / ".hankweave")
                assert other.ask("acquire", tmp_path / "elsewhere")["owned"]
                spare = tmp_path / "elsewhere" / ".hankweave"

            before = _everything(spare)
            _exchange(spare, layout.state_directory)
            assert await _exit_code(server) == ExitCode.SOFTWARE
            assert _everything(layout.state_directory) == before


def _exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders atomically: neither path is ever missing."""
    code = "import ctypes, os, sys; f = [os.fsencode(name) for name in sys.argv[1:]]; "
    code += "sys.exit(ctypes.CDLL(None).renameat2(-100, f[0], -100, f[1], 2))"
    subprocess.run(_python("-c", code, one, other), check=True)


# --- random sequences -----------------------------------------------------------------------------


class Story(RuleBasedStateMachine):
    """T-L12: real processes in any order of starts, ends, stops and damage."""

    folder: Path
    pool: list[Starter]
    """The processes outlive a sequence: only a killed one is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.place = self.folder / os.urandom(6).hex()
        self.layout = Layout.of_execution(self.place)
        self.witness = Witness(self.pool_log())
        self.began_at = len(self._lines())
        self.believers: set[int] = set()
        self.stopped: set[int] = set()

    @classmethod
    def pool_log(cls) -> Path:
        return cls.folder / "witness.log"

    def _lines(self) -> list[str]:
        log = self.pool_log()
        return log.read_text().splitlines() if log.exists() else []

    @initialize()
    def begin(self) -> None:
        self.place.mkdir()

    @rule(place=st.integers(0, 3))
    def start(self, place: int) -> None:
        if place not in self.believers | self.stopped:
            self._note(place, self.pool[place].ask("acquire", self.place))

    @rule()
    def start_all(self) -> None:
        free = [i for i in range(4) if i not in self.believers | self.stopped]
        for place, answer in zip(
            free, race([self.pool[i] for i in free], self.layout.root), strict=True
        ):
            self._note(place, answer)

    def _note(self, place: int, answer: dict[str, Any]) -> None:
        if answer.get("owned"):
            self.believers.add(place)
        else:
            assert answer.get("exit_code") in (ExitCode.LOCK_HELD, ExitCode.SOFTWARE), answer

    @rule(place=st.integers(0, 3))
    def kill(self, place: int) -> None:
        if place in self.believers | self.stopped:
            self._kill(place)

    def _kill(self, place: int) -> None:
        self.witness.condemn(self.pool[place])
        self.pool[place].close()
        self.pool[place] = Starter(self.pool_log()).ready()
        self.pool[place].ask("hasty")
        self.believers.discard(place)
        self.stopped.discard(place)

    @rule(place=st.integers(0, 3))
    def release(self, place: int) -> None:
        if place in self.believers - self.stopped and self._still_owns(place):
            self.pool[place].ask("release")
            self.believers.discard(place)

    @rule(place=st.integers(0, 3))
    def stop(self, place: int) -> None:
        os.kill(self.pool[place].pid, signal.SIGSTOP)
        self.stopped.add(place)

    @rule(place=st.integers(0, 3))
    def go_on(self, place: int) -> None:
        os.kill(self.pool[place].pid, signal.SIGCONT)
        self.stopped.discard(place)

    @rule()
    def delete_the_lock(self) -> None:
        self.layout.runtime_lock.unlink(missing_ok=True)

    @rule()
    def delete_the_guard(self) -> None:
        self.layout.lock_guard.unlink(missing_ok=True)

    @rule(place=st.integers(0, 3))
    def give_the_pid_to_another(self, place: int) -> None:
        """Record another living process's pid; this changes the record only, and takes no lock."""
        for path in (self.layout.lock_guard, self.layout.runtime_lock):
            if path.exists() and not self.believers:
                record = json.loads(path.read_bytes())
                path.write_text(json.dumps(record | {"pid": self.pool[place].pid}))

    def _still_owns(self, place: int) -> bool:
        if "lost" in self.pool[place].ask("hold"):
            self.believers.discard(place)
            return False

        return True

    @invariant()
    def one_owner_at_most(self) -> None:
        holding = [place for place in self.believers - self.stopped if self._still_owns(place)]
        assert len(holding) <= 1
        assert overlaps(self._lines()[self.began_at :], fenced=True) == []

    def teardown(self) -> None:
        for place in range(4):
            os.kill(self.pool[place].pid, signal.SIGCONT)

        self.stopped.clear()
        for place in tuple(self.believers):
            if self._still_owns(place):
                self.pool[place].ask("release")


def test_no_story_has_two_owners(tmp_path: Path, tier: Tier, tally: Tally) -> None:
    """T-L12: starts, kills, stops, deletions and pid reuse in any order, by real processes."""
    with starters(tmp_path / "witness.log", 4) as pool:
        for starter in pool:
            starter.ask("hasty")

        Story.folder, Story.pool = tmp_path, pool
        case = Story.TestCase
        case.settings = settings(
            max_examples=150 if tier.is_long else 8,
            stateful_step_count=40 if tier.is_long else 15,
            derandomize=not tier.is_long,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        case().runTest()
        owners = Witness(tmp_path / "witness.log").owners()
        assert owners > 0
        tally.add("stories", rounds=owners, of="owners")


def _python(*argv: object) -> list[str]:
    return [sys.executable, *map(str, argv)]
