"""`hankweave map --executor ray` on real clusters: `scripts/test --fleet`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hankweave_server.domain.execution_thread import active_codon
from hankweave_server.features.map.directory import MapDirectory
from hankweave_server.features.map.plan import Item
from hankweave_server.features.map.remote.packages import unpack
from hankweave_server.features.map.results import read_state
from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.running_server import command, environment
from support.scripted_hank import Step, codon, waits_for, write_hank
from support.waiting import eventually_blocking

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("ray")]

CORES = 2
"""Of each node, and so many items run there at a time."""

INPUTS = 60
BEFORE = 20
"""Inputs that are finished before a node dies."""

COUNTS: Step = {"append": {"path": "count.txt", "text": "{{map.item}}\n"}}


def inputs_in(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    paths = [folder / f"in-{number}.txt" for number in range(1, count + 1)]
    for path in paths:
        path.write_text(path.name)

    return list(map(str, paths))


def items_in(root: Path) -> dict[str, Item]:
    return dict(MapDirectory(root).state().items)


def counted(root: Path, item: str) -> str:
    return (root / "items" / item / "agentRoot" / "count.txt").read_text()


def begun(folder: Path, root: Path, *words: str) -> subprocess.Popen[Any]:
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command("map", *words, "-d", str(root)),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def finish(folder: Path, root: Path, *words: str) -> None:
    """Run a map to its end."""
    with begun(folder, root, *words) as process:
        follow(root, lambda: process.poll() is not None)
        assert process.returncode == 0, (folder / "log.txt").read_text()


def follow(root: Path, condition: Callable[[], bool]) -> None:
    """Wait for a condition; each record of the journal may take as long as a whole test."""
    journal = MapDirectory(root).journal
    try:
        while not condition():
            known = size_of(journal)
            eventually_blocking(partial(lambda size: condition() or size_of(journal) > size, known))
    except TimeoutError as fault:
        last = "\n".join(journal.read_text().splitlines()[-8:])
        raise AssertionError(f"{statuses(root)}; the last records:\n{last}") from fault


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_a_local_cluster_is_started_and_ended(tmp_path: Path) -> None:
    """Inputs go there and results come back, as with the executor local."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            {"run": "cp {{map.input}} copy.txt"},
            {"say": "seen {{map.item}}"},
            outputVar="answer",
            outputFiles=[{"copy": ["copy.txt"]}],
        ),
    )
    paths, root, output = inputs_in(tmp_path / "in", 2), tmp_path / "map", tmp_path / "out"
    words = (str(hank), *paths, "--executor", "ray", "-o", str(output))
    finish(tmp_path, root, *words)
    results = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    assert [each["answers"]["answer"] for each in results] == ["seen in-1.txt", "seen in-2.txt"]
    assert (output / "in-2.txt" / "copy.txt").read_text() == "in-2.txt"
    execution = root / "items" / "in-1.txt"
    assert (execution / "agentRoot" / "copy.txt").read_text() == "in-1.txt"
    hankweave("checkpoints", "-e", str(execution), code=0)
    finish(tmp_path, root, *words)
    assert {item.started.start for item in items_in(root).values() if item.started} == {1}


def test_all_inputs_are_done_once_when_a_node_dies(
    tmp_path: Path, cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its items are resumed elsewhere from their last checkpoint; the time lost is printed."""
    gate, root = tmp_path / "gate", tmp_path / "map"
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS), codon("two", waits_for(gate)))
    paths = inputs_in(tmp_path / "in", INPUTS)
    doomed = cluster.add_node(num_cpus=CORES)
    gate.touch()
    words = (str(hank), *paths, "--executor", f"ray://{cluster.address}", "--json")
    with begun(tmp_path, root, *words) as process:
        follow(root, lambda: statuses(root)["completed"] >= BEFORE)
        gate.unlink()
        eventually_blocking(lambda: len(at_the_gate(tmp_path, root)) == 2 * CORES)
        cluster.remove_node(doomed, allow_graceful=False)
        gate.touch()
        follow(root, lambda: process.poll() is not None)
        assert process.returncode == 0, (tmp_path / "log.txt").read_text()

    items = items_in(root)
    assert statuses(root) == {"completed": INPUTS}
    assert [counted(root, name) for name in items] == [f"{name}\n" for name in items]
    results = [json.loads(line) for line in (root / "results.jsonl").read_text().splitlines()]
    assert sorted(each["item"] for each in results) == sorted(items)
    moved = [each for each in results if each["moves"]]
    assert moved
    with capsys.disabled():
        lost = sum(each["lostMs"] for each in moved) / 1000
        print(f"\n{INPUTS} inputs, {len(moved)} moved, {lost:.1f} s lost in all")  # noqa: T201


def test_a_killed_supervisor_of_a_cluster_is_resumed(tmp_path: Path, cluster: Any) -> None:
    """Items that ended meanwhile are collected, none runs twice; packages go through a URL.

    Before that, the table on the terminal shows the codon of each item that runs.
    """
    gate, root, shared = tmp_path / "gate", tmp_path / "map", tmp_path / "shared"
    hank = write_hank(
        tmp_path / "hank", codon("one", COUNTS), codon("at-the-gate", waits_for(gate))
    )
    paths = inputs_in(tmp_path / "in", 3 * CORES)
    cluster.add_node(num_cpus=CORES)
    words = (str(hank), *paths, "--executor", f"ray://{cluster.address}")
    words = (*words, "--storage", f"file://{shared}")
    shown = tmp_path / "shown.txt"
    with on_a_terminal(shown, root, *words) as process:
        eventually_blocking(lambda: shown.read_bytes().count(b"at-the-gate") >= 2 * CORES)
        process.kill()

    gate.touch()
    eventually_blocking(lambda: len([*shared.glob("hankweave-*/*/ended")]) == 2 * CORES)
    assert statuses(root)["running"] == 2 * CORES
    finish(tmp_path, root, *words)
    items = items_in(root)
    assert statuses(root) == {"completed": 3 * CORES}
    assert [counted(root, name) for name in items] == [f"{name}\n" for name in items]
    assert {item.started.start for item in items.values() if item.started} == {1}
    assert [*shared.glob("hankweave-*")] == []


@contextmanager
def on_a_terminal(shown: Path, root: Path, *words: str) -> Iterator[subprocess.Popen[Any]]:
    """Run a map on a terminal whose output goes to a file."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 150))
    process = subprocess.Popen(
        command("map", *words, "-d", str(root)),
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown.touch()
    reader = Thread(target=copy_to, args=(ours, shown))
    reader.start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(ours)


def copy_to(terminal: int, shown: Path) -> None:
    with shown.open("ab", buffering=0) as file, suppress(OSError):  # EIO: it was closed.
        while content := os.read(terminal, 1 << 16):
            file.write(content)


def statuses(root: Path) -> Counter[str]:
    return Counter(item.status for item in items_in(root).values())


def at_the_gate(folder: Path, root: Path) -> list[str]:
    """Return the items of which a snapshot is stored that was taken in the second codon."""
    found = []
    for item in items_in(root).values():
        started = item.started
        if item.status != "running" or started is None:
            continue

        layout = Layout.of_execution(folder / "looked-at" / item.name / "execution")
        for package in (root / "ray" / "storage" / f"{item.name}.{started.start}").glob("[0-9]*"):
            unpack(package, layout.root.parent)

        state = read_state(layout)
        active = None if state is None else active_codon(state)
        if active is not None and active.codon_id == "two":
            found.append(item.name)

    return found
