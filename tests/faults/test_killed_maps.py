"""Maps whose supervisor is killed at random moments, again and again."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.features.map.directory import MapDirectory
from hankweave_server.features.map.plan import Item
from support.running_server import command, environment
from support.scripted_hank import Step, codon, write_hank
from support.tally import Tally
from support.waiting import eventually_blocking

COST = 0.01
PARALLEL = 2
MOST_MEMORY = 300 * 1024
"""KiB of resident memory of a supervisor."""

_COUNTS: Step = {"append": {"path": "count.txt", "text": "{{map.item}}\n"}}


class Campaign:
    """One map, and the commands that work on it in turn."""

    def __init__(self, folder: Path, inputs: int, dice: random.Random) -> None:
        self.hank = write_hank(folder / "hank", codon("one", _COUNTS, {"cost": COST}))
        self.directory = MapDirectory(folder / "map")
        self.log = folder / "log.txt"
        self.peak = 0
        self._dice = dice
        self._paths = [folder / "in" / f"{number}.txt" for number in range(inputs)]
        (folder / "in").mkdir()
        for path in self._paths:
            path.write_text(path.name)

    def start(self, budget: float) -> subprocess.Popen[Any]:
        argv = ("-d", str(self.directory.root), "-j", str(PARALLEL), "--max-cost", str(budget))
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command("map", str(self.hank), *map(str, self._paths), *argv),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill_within(self, records: int, budget: float) -> bool:
        """Kill a supervisor after some records; return False if it has ended before."""
        wanted = self._records() + self._dice.randint(1, records)
        with self.start(budget) as process:
            while not self._has_ended(process) and self._records() < wanted:
                self._wait_for_a_record(process)

            process.kill()
            return process.wait() < 0

    def finish(self, budget: float) -> int:
        """Let a supervisor work to its end; return its exit code."""
        with self.start(budget) as process:
            while not self._has_ended(process):
                self._wait_for_a_record(process)

            return process.wait()

    def _wait_for_a_record(self, process: subprocess.Popen[Any]) -> None:
        """Wait until the journal has grown: each record may take as long as a whole test."""
        eventually_blocking(partial(self._has_moved, process, self._records()))

    def _has_moved(self, process: subprocess.Popen[Any], known: int) -> bool:
        return self._has_ended(process) or self._records() > known

    def _has_ended(self, process: subprocess.Popen[Any]) -> bool:
        self.peak = max(self.peak, peak_of(process.pid))
        return process.poll() is not None

    def _records(self) -> int:
        try:
            return self.directory.journal.read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    @property
    def items(self) -> list[Item]:
        return list(self.directory.state().items.values())

    @property
    def cost(self) -> float:
        return sum(item.spent for item in self.items)

    def faults(self) -> list[str]:
        """Return what is wrong after all items were to be run."""
        found = []
        items = {item.name: item for item in self.items}
        for path in self._paths:
            item = items.get(path.name)
            if item is None or item.status != "completed":
                found.append(f"{path.name} is {item and item.status}.")
                continue

            counted = self.directory.items / path.name / "agentRoot" / "count.txt"
            if counted.read_text() != f"{path.name}\n":
                found.append(f"{path.name} was done {counted.read_text()!r}.")

        if len(os.listdir(self.directory.items)) != len(self._paths):
            found.append("There are more executions than items.")

        return found


def peak_of(pid: int) -> int:
    """Return the largest resident memory that a process has had, in KiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0

    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


@pytest.mark.executed
def test_all_items_are_done_once_and_the_budget_holds(
    tmp_path: Path, tally: Tally, pytestconfig: pytest.Config
) -> None:
    """Whenever supervisors are killed: each item counts once in its result, and costs once.

    The first budget is enough for half of the items, and is exceeded by no more than what ran.
    """
    is_long = bool(pytestconfig.getoption("--all-faults"))
    inputs, kills = (1000, 20) if is_long else (12, 4)
    campaign = Campaign(tmp_path, inputs, random.Random(inputs))
    records = 2 * inputs // kills
    half, whole = (inputs // 2 + 0.5) * COST, (inputs + 0.5) * COST
    killed = sum(campaign.kill_within(records, half) for _ in range(kills // 2))
    assert campaign.finish(half) == 1, campaign.log.read_text()[-2000:]
    assert campaign.cost <= half + PARALLEL * COST
    statuses = Counter(item.status for item in campaign.items)
    assert statuses["completed"] == inputs // 2
    # One whose server a supervisor was killed before starting counts as stopped, and waits as well.
    assert not statuses.keys() - {"completed", "waiting", "stopped"}
    killed += sum(campaign.kill_within(records, whole) for _ in range(kills - kills // 2))
    assert campaign.finish(whole) == 0, campaign.log.read_text()[-2000:]
    assert campaign.cost == pytest.approx(inputs * COST)
    assert campaign.peak <= MOST_MEMORY
    faults = campaign.faults()
    starts = sum(item.started.start for item in campaign.items if item.started)
    if (terminal := pytestconfig.pluginmanager.get_plugin("terminalreporter")) is not None:
        terminal.write_line(
            f"{inputs} items, {killed} supervisors killed, {starts} starts, "
            f"peak of a supervisor {campaign.peak / 1024:.0f} MiB"
        )

    tally.add("killed maps", rounds=killed, violations=faults)
    assert not faults
