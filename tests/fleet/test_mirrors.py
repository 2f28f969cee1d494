"""Executions with mirrors lose their machines, and go on: the campaign of mirrors.

Two machines are network namespaces with a git server between them. Agents are at work all the time.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.replies import MirrorStatus
from hankweave_server.errors import ExitCode
from hankweave_server.features.mirror.lease import lease_of
from hankweave_server.features.mirror.remote import LEASE_REF
from hankweave_server.paths import Layout
from support import enclosure
from support.git_facts import GitWitness
from support.moved_clocks import Clocks, moved_clocks
from support.network import Host, hosts
from support.running_server import command, environment, tree
from support.scripted_hank import codon, waits_for, write_hank, writes

pytestmark = pytest.mark.timeout(5400)

TTL = 6
EXECUTIONS = int(os.environ.get("HANKWEAVE_TEST_EXECUTIONS", "12"))
FAULTS = int(os.environ.get("HANKWEAVE_TEST_MIRROR_FAULTS", "50"))
SEED = int(os.environ.get("HANKWEAVE_TEST_SEED", "1"))
LONGEST = 300.0
"""Seconds after which something has hung."""

IDLE_LIMIT = ("--shim-idle-timeout", "1800")
"""The last agent waits in silence until all faults have happened."""

CODONS = 12


def note(line: str) -> None:
    """Print a line of the campaign's report; `-s` shows it at once."""
    sys.stdout.write(f"{line}\n")


def until(is_true: Callable[[], bool], what: str) -> None:
    """Wait for other processes."""
    limit = time.monotonic() + LONGEST
    while not is_true():
        assert time.monotonic() < limit, what
        time.sleep(0.05)


@dataclass
class Life:
    """One server of an execution, from its start to its end."""

    host: Host
    root: Path
    output: Path
    process: subprocess.Popen[bytes]
    clocks: Clocks
    state: Mapping[str, str]
    began_ns: int = 0
    """When its first event was published."""

    def published(self) -> dict[int, str]:
        """Return the seq and the id of each event that was printed, which is after it counts."""
        found: dict[int, str] = {}
        for line in self.output.read_bytes().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # The last one may be torn, and not all lines are events.

            if isinstance(event, dict) and isinstance(event.get("seq"), int):
                found[event["seq"]] = event["id"]

        return found

    def journal(self) -> list[dict[str, Any]]:
        lines = Layout.of_execution(self.root).journal.read_bytes().splitlines()
        return [json.loads(line) for line in lines if line.endswith(b"}")]

    def shown(self) -> MirrorStatus:
        """Return how far the mirror is, as the server shows it."""
        asked = command("mirror", "status", "--execution", str(self.root), "--json")
        return msgspec.json.decode(
            self.host.output_of(asked, environment(**self.state)), type=MirrorStatus
        )

    def newest_change_ns(self) -> int:
        """Return when the agent last changed a file."""
        top = self.root / "agentRoot"
        times = (
            Path(folder, name).lstat().st_mtime_ns
            for folder, _, names in os.walk(top)
            for name in names
        )
        return max(times, default=0)


@dataclass
class Course:
    """An execution with all its servers."""

    number: int
    mode: str
    address: str
    bare: Path
    folder: Path
    go: Path
    lives: list[Life] = field(default_factory=list)
    lost: int = 0
    """Published events that were not in the mirror when the lease was taken."""

    @property
    def newest(self) -> Life:
        return self.lives[-1]

    def begin(self, host: Host, hank: Path) -> None:
        mirror = ("--mirror", self.address, "--mirror-mode", self.mode)
        self._start(host, "run", str(hank), *mirror, "--mirror-lease", str(TTL))

    def take_over(self, host: Host, *, forced: bool) -> None:
        self._start(host, "resume", self.address, *(("--take-over",) if forced else ()))

    def _start(self, host: Host, *words: str) -> None:
        number = len(self.lives)
        root, output = self.folder / f"life-{number}", self.folder / f"life-{number}.out"
        clocks = moved_clocks(make(self.folder / f"clocks-{number}"))
        options = ("--execution", str(root), "--headless", "--no-token", "--json", *IDLE_LIMIT)
        state = {"XDG_STATE_HOME": str(self.folder / f"state-{number}")}
        with output.open("wb") as file:
            process = host.start(
                command(*words, *options), {**environment(**state), **clocks.environment}, file
            )

        self.lives.append(Life(host, root, output, process, clocks, state))

    def wait_until_serving(self) -> None:
        life, before = self.newest, max(self._known(), default=0)
        until(
            lambda: max(life.published(), default=0) > before or life.process.poll() is not None,
            f"execution {self.number} did not go on: {life.output.read_bytes()[-500:]!r}",
        )
        assert life.process.poll() is None, life.output.read_text()
        life.began_ns = time.time_ns()

    def _known(self) -> dict[int, str]:
        """Return the events that the journal of the newest server begins with."""
        found: dict[int, str] = {}
        for life in self.lives[:-1]:
            found |= life.published()

        return {} if not found else {min(found): found[min(found)]}


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def kill(life: Life) -> None:
    os.killpg(life.process.pid, signal.SIGKILL)


def cut(life: Life) -> None:
    life.host.cut()


def pause(life: Life) -> None:
    os.killpg(life.process.pid, signal.SIGSTOP)


def skew(life: Life) -> None:
    """Set the wall clock half a minute ahead: a lease does not care."""
    life.clocks.move(wall=30)


def heal(life: Life) -> None:
    life.host.plug_in()
    if life.process.poll() is None:
        os.killpg(life.process.pid, signal.SIGCONT)


FAULTS_OF_MACHINES = (kill, cut, pause, skew)


@pytest.fixture
def chosen() -> random.Random:
    """Return the choices of this campaign, which can be repeated."""
    if (reason := enclosure.why_not()) is not None:
        pytest.skip(reason)

    note(f"HANKWEAVE_TEST_SEED={SEED}")
    return random.Random(SEED)


def a_hank(folder: Path, go: Path) -> Path:
    """Write a hank whose agents write for a while, and whose last one waits."""
    working = [
        codon(
            f"c{number}",
            *(
                step
                for part in range(4)
                for step in (writes(f"{number}-{part}.txt", f"{number}"), {"wait": 0.5})
            ),
        )
        for number in range(CODONS)
    ]
    return write_hank(folder, *working, codon("last", waits_for(go), writes("end.txt", "end")))


def courses(top: Path, address: str) -> Iterator[Course]:
    for number in range(EXECUTIONS):
        bare = top / "repositories" / f"{number}.git"
        subprocess.run(("git", "init", "--quiet", "--bare", bare), check=True)
        keep_log = ("git", "-C", bare, "config", "core.logAllRefUpdates", "always")
        subprocess.run(keep_log, check=True)
        folder = make(top / f"execution-{number}")
        mode = "sync" if number % 2 else "async"
        yield Course(number, mode, f"{address}/{number}.git", bare, folder, folder / "go")


def test_executions_go_on_elsewhere_and_never_twice(tmp_path: Path, chosen: random.Random) -> None:
    """Whatever happens to a machine, one owner goes on, with everything that was acknowledged."""
    make(tmp_path / "repositories")
    with hosts(("north", "south"), tmp_path / "repositories") as (address, machines):
        all_courses = list(courses(tmp_path, address))
        try:
            for course in all_courses:
                hank = a_hank(course.folder / "hank", course.go)
                course.begin(machines[course.number % 2], hank)

            for course in all_courses:
                course.wait_until_serving()

            for number in range(FAULTS):
                course = chosen.choice(all_courses)
                fault = chosen.choice(FAULTS_OF_MACHINES)
                note(f"{number}: {fault.__name__} of execution {course.number} ({course.mode})")
                strike(course, fault, machines, chosen)

            for course in all_courses:
                course.go.touch()

            for course in all_courses:
                finish(course)
        finally:
            for course in all_courses:
                for life in course.lives:
                    if life.process.poll() is None:
                        os.killpg(life.process.pid, signal.SIGKILL)

                    life.process.wait()

    lost = sum(course.lost for course in all_courses)
    note(f"{EXECUTIONS} executions, {FAULTS} faults, 0 double owners, lost in async: {lost}")


def strike(
    course: Course, fault: Callable[[Life], None], machines: tuple[Host, ...], chosen: random.Random
) -> None:
    """Let something happen to the owner, go on elsewhere, and check what each of them did."""
    former = course.newest
    until(lambda: len(former.published()) > 0, "the owner has published nothing")
    time.sleep(chosen.random() * 2)
    shown = former.shown()
    fault(former)
    other = next(each for each in machines if each is not former.host)
    course.take_over(other, forced=fault is not kill or chosen.random() < 0.5)
    course.wait_until_serving()
    heal(former)
    until(lambda: former.process.poll() is not None, "the former owner did not end")
    expected = -signal.SIGKILL if fault is kill else ExitCode.SOFTWARE
    assert former.process.returncode == expected, former.output.read_text()[-2000:]
    assert former.newest_change_ns() <= course.newest.began_ns, "two agents were at work"
    lost = lost_events(course, former, course.newest)
    assert all(seq > shown.mirrored_seq for seq in lost), "what was shown as mirrored is lost"
    if fault is not kill:
        assert len(lost) <= shown_as_lost(former)

    course.lost += len(lost)


def shown_as_lost(former: Life) -> int:
    """Return how many events were not in the mirror, as the former owner says at its end."""
    text = former.output.read_text()
    assert "has taken the lease" in text
    found = re.search(r"all but the last ([\d,]+) event", text)
    return 0 if found is None else int(found[1].replace(",", ""))


def lost_events(course: Course, former: Life, newer: Life) -> set[int]:
    """Return what the former owner has published and the newer one does not go on from."""
    known = {event["seq"]: event["id"] for event in newer.journal()}
    published = former.published()
    lost = {seq for seq, name in published.items() if known.get(seq) != name}
    if course.mode == "sync":
        assert not lost, f"execution {course.number} lost {sorted(lost)}"

    if lost:
        assert lost == {seq for seq in published if seq >= min(lost)}, "only the end can be lost"

    return lost


def finish(course: Course) -> None:
    """Wait until an execution has ended, and check all of it."""
    life = course.newest
    until(lambda: life.process.poll() is not None, f"execution {course.number} did not end")
    assert life.process.returncode == 0, life.output.read_text()[-2000:]
    files = tree(life.root / "agentRoot")
    assert files.keys() == {
        *(f"{number}-{part}.txt" for number in range(CODONS) for part in range(4)),
        "end.txt",
    }
    GitWitness(life.root).assert_sound()
    seqs = [event["seq"] for event in life.journal()]
    assert seqs == list(range(1, len(seqs) + 1))
    check_owners(course)


def check_owners(course: Course) -> None:
    """Check that each epoch is one owner's, and that none came back after another."""
    log = (course.bare / "logs" / LEASE_REF).read_text().splitlines()
    leases = []
    for line in log:
        sha = line.split()[1]
        shown = ("git", "-C", course.bare, "show", "--no-patch", "--format=%B", sha)
        done = subprocess.run(shown, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            leases.append(lease_of(done.stdout.removesuffix("\n")))

    for before, after in pairwise(leases):
        if before.nonce == after.nonce:
            assert (after.epoch, after.owner) == (before.epoch, before.owner)
            assert after.push > before.push
        else:
            assert after.epoch == before.epoch + 1

    assert len({each.epoch for each in leases}) == len({each.nonce for each in leases})
