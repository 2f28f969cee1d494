"""`hankweave map` as a user runs it: real servers, a scripted agent, kill -9."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from hankweave_server.errors import ExitCode
from hankweave_server.features.map.directory import MapDirectory
from hankweave_server.features.map.plan import Item
from hankweave_server.local.living import living_server
from support.command_line import Done, hankweave
from support.running_server import command, environment
from support.scripted_hank import Step, codon, write_hank, writes
from support.waiting import LIMIT, eventually_blocking

pytestmark = pytest.mark.feature("map")

COUNTS: Step = {"append": {"path": "count.txt", "text": "{{map.item}}\n"}}


def inputs_in(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    paths = [folder / f"in-{number}.txt" for number in range(1, count + 1)]
    for path in paths:
        path.write_text(path.name)

    return list(map(str, paths))


def mapped(root: Path, hank: Path, *words: str, code: int | None = 0, **env: str) -> Done:
    return hankweave("map", str(hank), "-d", str(root), *words, code=code, **env)


def begun(
    root: Path, hank: Path, *words: str, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[Any]:
    """Start `hankweave map` and return its process."""
    return subprocess.Popen(
        command("map", str(hank), "-d", str(root), *words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
    )


def items_in(root: Path) -> dict[str, Item]:
    return dict(MapDirectory(root).state().items)


def counted(root: Path, item: str) -> str:
    return (root / "items" / item / "agentRoot" / "count.txt").read_text()


until = eventually_blocking


def results_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_each_input_is_run_in_an_execution_of_its_own(tmp_path: Path) -> None:
    """Failures affect no other item; results, a table and the output files are collected."""
    fails: Step = {"run": "grep -q in-2 {{map.input}} && kill -9 $PPID || true"}
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            fails,
            {"run": "cp {{map.input}} copy.txt"},
            {"cost": 0.5},
            {"say": "seen {{map.item}}"},
            outputVar="answer",
            outputFiles=[{"copy": ["copy.txt"]}],
        ),
    )
    paths = inputs_in(tmp_path / "in", 3)
    root, output = tmp_path / "map", tmp_path / "out"
    done = mapped(root, hank, *paths, "--output", str(output), code=ExitCode.FAILED)
    assert "3 items: 2 completed, 1 failed; $1.0000" in done.stdout
    assert "failed: in-2.txt" in done.stdout
    found = results_in(output)
    assert [each["state"] for each in found] == ["completed", "failed", "completed"]
    assert [each["answers"] for each in found] == [
        {"answer": "seen in-1.txt"},
        {},
        {"answer": "seen in-3.txt"},
    ]
    assert [each["input"] for each in found] == paths
    with (output / "summary.csv").open() as file:
        table = list(csv.DictReader(file))

    assert [row["cost"] for row in table] == ["0.5", "0.0", "0.5"]
    assert [row["answer"] for row in table] == ["seen in-1.txt", "", "seen in-3.txt"]
    copies = {path.parent.name: path.read_text() for path in output.rglob("copy.txt")}
    assert copies == {"in-1.txt": "in-1.txt", "in-3.txt": "in-3.txt"}


def test_rows_are_data_and_variables(tmp_path: Path) -> None:
    """A row that has changed is run again, and no other."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"run": "cat {{map.input}} > row.json; echo {{city}} > city.txt"}),
        variables={"city": "nowhere"},
    )
    rows, root = tmp_path / "cities.jsonl", tmp_path / "map"
    rows.write_text('{"id": "oslo", "city": "Oslo"}\n{"id": "rom/1", "city": "Rome"}\n')
    mapped(root, hank, "--from", str(rows))
    work = root / "items" / "rom-1" / "agentRoot"
    assert (work / "city.txt").read_text() == "Rome\n"
    assert json.loads((work / "row.json").read_text()) == {"id": "rom/1", "city": "Rome"}

    rows.write_text('{"id": "oslo", "city": "Oslo"}\n{"id": "rom/1", "city": "Roma"}\n')
    done = mapped(root, hank, "--from", str(rows), "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["item"] for each in records if each["type"] == "item.started"] == ["rom-1"]
    assert records[-1] | {"at": ""} == {
        "type": "map.ended",
        "at": "",
        "outcome": "completed",
        "completed": 2,
        "failed": 0,
        "waiting": 0,
        "cost": 0.0,
    }
    again = root / "items" / "rom-1~2" / "agentRoot"
    assert (again / "city.txt").read_text() == "Roma\n"
    assert (work / "city.txt").read_text() == "Rome\n"


def test_variables_of_a_run_are_kept_for_later_starts(tmp_path: Path, execution: Path) -> None:
    """They override those of the hank, and a later value overrides them."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"run": "echo {{city}} {{n}} >> said.txt"}),
        variables={"city": "nowhere", "n": "0"},
    )
    run = ("run", str(hank), "--headless", "-e", str(execution), "--from", "one")
    file = tmp_path / "variables.json"
    file.write_text('{"city": "Oslo = 1"}')
    hankweave(*run, "--variables", str(file), code=0)
    hankweave(*run, code=0)
    file.write_text('{"n": "2"}')
    hankweave(*run, "--variables", str(file), code=0)
    content = (execution / "agentRoot" / "said.txt").read_text()
    assert content.splitlines() == ["Oslo = 1 0", "Oslo = 1 0", "Oslo = 1 2"]
    for text in ('{"9": "x"}', '{"a": 1}', "["):
        file.write_text(text)
        refused = hankweave(*run, "--variables", str(file), code=ExitCode.BAD_DATA)
        assert '{"city": "Oslo"}' in refused.stderr


def test_finished_items_are_run_again_only_if_hank_or_input_has_changed(tmp_path: Path) -> None:
    """Times do not count, only contents."""
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS))
    paths, root = inputs_in(tmp_path / "in", 2), tmp_path / "map"
    mapped(root, hank, *paths)
    os.utime(paths[0], (1, 1))
    mapped(root, hank, *paths)
    mapped(root, hank, "--resume")
    assert all(item.started and item.started.start == 1 for item in items_in(root).values())
    Path(paths[1]).write_text("changed")
    mapped(root, hank, *paths)
    assert sorted(os.listdir(root / "items")) == ["in-1.txt", "in-2.txt", "in-2.txt~2"]
    write_hank(tmp_path / "hank", codon("one", COUNTS, writes("more.txt", "more")))
    mapped(root, hank, *paths)
    assert (root / "items" / "in-1.txt~2" / "agentRoot" / "more.txt").exists()


def test_a_failed_item_is_retried_where_it_failed(tmp_path: Path) -> None:
    """Codons before are not run again, and without --retry-failed none is."""
    hank = write_hank(
        tmp_path / "hank",
        codon("first", COUNTS),
        codon("second", {"run": f"test -e {tmp_path}/repaired || kill -9 $PPID"}),
    )
    paths, root = inputs_in(tmp_path / "in", 2), tmp_path / "map"
    mapped(root, hank, *paths, code=ExitCode.FAILED)
    mapped(root, hank, *paths, code=ExitCode.FAILED)
    assert {item.started.start for item in items_in(root).values() if item.started} == {1}
    (tmp_path / "repaired").touch()
    mapped(root, hank, "--resume", "--retry-failed")
    assert [counted(root, name) for name in items_in(root)] == ["in-1.txt\n", "in-2.txt\n"]


def test_fail_fast_starts_nothing_after_a_failure(tmp_path: Path) -> None:
    """The rest is run by the next command."""
    hank = write_hank(
        tmp_path / "hank", codon("one", {"run": f"test -e {tmp_path}/go || kill -9 $PPID"})
    )
    paths, root = inputs_in(tmp_path / "in", 3), tmp_path / "map"
    mapped(root, hank, *paths, "--fail-fast", "-j", "1", code=ExitCode.FAILED)
    states = [item.status for item in items_in(root).values()]
    assert states == ["failed", "waiting", "waiting"]
    (tmp_path / "go").touch()
    mapped(root, hank, *paths, "--retry-failed")


def test_the_budget_covers_all_items_and_all_commands(tmp_path: Path) -> None:
    """Nothing is started for which nothing is left; more money continues the work."""
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS, {"cost": 1.0}))
    paths, root = inputs_in(tmp_path / "in", 5), tmp_path / "map"
    options = ("-j", "2", "--max-cost")
    done = mapped(root, hank, *paths, *options, "3.5", code=ExitCode.FAILED)
    assert "3 completed, 0 failed, 2 not finished; $3.0000" in done.stdout
    assert "The budget is used up" in done.stdout
    mapped(root, hank, *paths, *options, "3.5", code=ExitCode.FAILED)
    assert sum(item.spent for item in items_in(root).values()) == 3.0
    mapped(root, hank, *paths, *options, "6")
    assert [counted(root, name) for name in items_in(root)] == [f"{n}\n" for n in items_in(root)]


def test_an_item_that_used_up_its_share_gets_more_of_what_others_left(tmp_path: Path) -> None:
    """It continues with the codon that was cut short."""
    costs: Step = {"run": "true"}
    hank = write_hank(
        tmp_path / "hank",
        codon("one", COUNTS, costs, {"cost": 1.0}),
        codon("two", {"run": "echo {{map.item}} >> two.txt"}, {"cost": 0.75}),
        codon("three", writes("three.txt", "done")),
    )
    paths, root = inputs_in(tmp_path / "in", 2), tmp_path / "map"
    # Each gets 1.5 at first, which is not enough for codon three.
    done = mapped(root, hank, *paths, "--max-cost", "3", "-j", "2", code=ExitCode.FAILED)
    assert "Its share of the budget" in done.stdout
    assert sum(item.spent for item in items_in(root).values()) <= 3.0 + 2 * 0.75
    mapped(root, hank, *paths, "--max-cost", "20", "-j", "2")
    for name in items_in(root):
        assert (root / "items" / name / "agentRoot" / "three.txt").read_text() == "done"
        assert counted(root, name) == f"{name}\n"


def waiting_hank(tmp_path: Path, gate: Path) -> Path:
    return write_hank(tmp_path / "hank", codon("one", COUNTS, {"waitForFile": str(gate)}))


def both_run(root: Path, names: Sequence[str] = ("in-1.txt", "in-2.txt")) -> Callable[[], bool]:
    """Return a test of whether these items have done their first step."""
    files = [root / "items" / name / "agentRoot" / "count.txt" for name in names]
    return lambda: all(file.exists() for file in files)


def test_a_killed_supervisor_loses_nothing(tmp_path: Path) -> None:
    """Servers go on, and the next command takes over those that still run."""
    gate, root = tmp_path / "gate", tmp_path / "map"
    hank, paths = waiting_hank(tmp_path, gate), inputs_in(tmp_path / "in", 3)
    with begun(root, hank, *paths, "-j", "2") as first:
        until(both_run(root))
        first.kill()

    servers = [living_server(MapDirectory(root).layout(f"items/in-{n}.txt")) for n in (1, 2)]
    assert None not in servers
    listed = hankweave("ls", str(root), "--json").stdout
    assert {each["serverPid"] for each in json.loads(listed)[1:]} == set(servers)
    with begun(root, hank, "--resume", stdout=subprocess.PIPE) as second:
        until(lambda: MapDirectory(root).supervisor() == second.pid)
        gate.touch()
        output = second.communicate(timeout=LIMIT)[0].decode()
        assert second.returncode == 0, output

    items = items_in(root)
    assert [item.started.start for item in items.values() if item.started] == [1, 1, 1]
    assert [counted(root, name) for name in items] == [f"{name}\n" for name in items]


def test_an_item_whose_server_is_killed_is_resumed(tmp_path: Path) -> None:
    """By the supervisor that lives; the codon is run again on what it had done."""
    gate, root = tmp_path / "gate", tmp_path / "map"
    hank, paths = waiting_hank(tmp_path, gate), inputs_in(tmp_path / "in", 2)
    with begun(root, hank, *paths, "-j", "2", stdout=subprocess.PIPE) as process:
        until(both_run(root))
        layout = MapDirectory(root).layout("items/in-1.txt")
        pid = living_server(layout)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: living_server(layout) not in (None, pid))
        gate.touch()
        output = process.communicate(timeout=LIMIT)[0].decode()
        assert process.returncode == 0, output

    started = items_in(root)["in-1.txt"].started
    assert started.start == 2


def interrupt(process: subprocess.Popen[Any]) -> None:
    """Send SIGINT, and wait until it has been handled."""
    process.send_signal(signal.SIGINT)
    while b"Nothing more is started" not in process.stdout.readline():
        pass


def test_ctrl_c_finishes_what_runs_and_a_second_one_stops_it(tmp_path: Path) -> None:
    """The same command goes on in both cases; the exit code is 130."""
    gate, root = tmp_path / "gate", tmp_path / "map"
    hank, paths = waiting_hank(tmp_path, gate), inputs_in(tmp_path / "in", 3)
    with begun(root, hank, *paths, "-j", "1", stdout=subprocess.PIPE) as process:
        until(both_run(root, ["in-1.txt"]))
        interrupt(process)
        gate.touch()
        assert b"To continue: " in process.communicate(timeout=LIMIT)[0]
        assert process.returncode == 130

    assert [item.status for item in items_in(root).values()] == ["completed", "waiting", "waiting"]
    gate.unlink()
    with begun(root, hank, *paths, "-j", "1", stdout=subprocess.PIPE) as process:
        until(both_run(root, ["in-2.txt"]))
        interrupt(process)  # The kernel makes one of two signals that are sent at once.
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 130

    assert [item.status for item in items_in(root).values()] == ["completed", "stopped", "waiting"]
    gate.touch()
    mapped(root, hank, *paths)


def test_a_server_that_uses_too_much_is_ended(tmp_path: Path) -> None:
    """With the agents below it; the item fails with the limit and what it has used."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"run": "for i in $(seq 40); do sleep 300 & done; echo x > forked; wait"}),
    )
    paths, root = inputs_in(tmp_path / "in", 1), tmp_path / "map"
    done = mapped(root, hank, *paths, "--processes", "20", code=ExitCode.FAILED)
    assert "the limit is 20." in done.stdout
    assert not [each for each in psutil.process_iter() if "sleep 300" in " ".join(_words(each))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_a_hank_that_cannot_run_is_refused_once(tmp_path: Path) -> None:
    """Before anything is started or recorded; so is a command without inputs."""
    root, paths = tmp_path / "map", inputs_in(tmp_path / "in", 1)
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS) | {"id": ""})
    done = mapped(root, hank, *paths, code=ExitCode.USAGE)
    assert "hank.json" in done.stderr
    assert not items_in(root)
    good = write_hank(tmp_path / "good", codon("one", COUNTS))
    assert "INPUT" in mapped(root, good, code=ExitCode.USAGE).stderr
    gone = mapped(root, good, str(tmp_path / "gone"), code=ExitCode.NO_INPUT)
    assert str(tmp_path / "gone") in gone.stderr
    assert "no map" in mapped(root, good, "--resume", code=ExitCode.NO_INPUT).stderr
    taken = mapped(tmp_path / "in", good, *paths, code=ExitCode.USAGE)
    assert "not empty" in taken.stderr


def test_ls_lists_a_map_as_one_row_with_its_items_below(tmp_path: Path) -> None:
    """Its name lists it alone, with a line of totals."""
    hank = write_hank(tmp_path / "reviews", codon("one", COUNTS))
    paths, base = inputs_in(tmp_path / "in", 2), tmp_path / "executions"
    env = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(base)}
    hankweave("map", str(hank), *paths, code=0, **env)
    (root,) = base.iterdir()
    assert root.name.startswith("map-reviews-")
    _, whole, *items = hankweave("ls", **env).stdout.splitlines()
    assert "(map)" in whole
    assert "completed" in whole
    assert "2 of 2" in whole
    assert len(items) == 2
    assert all(line.startswith("  in-") for line in items)
    assert "2 completed, 0 running, 0 waiting" in hankweave("ls", root.name, **env).stdout
    first, *found = json.loads(hankweave("ls", "--json", **env).stdout)
    assert first["map"] == {"inputs": 2, "completed": 2, "failed": 0, "running": 0}
    assert {(each["mapOf"], each["state"]) for each in found} == {(str(root), "completed")}
    assert "no map" in hankweave("ls", "gone", code=ExitCode.NO_INPUT, **env).stderr


def test_on_a_terminal_what_runs_is_shown_above_a_bar(tmp_path: Path) -> None:
    """With the codon, the costs and how many items are left."""
    gate, root = tmp_path / "gate", tmp_path / "map"
    hank, paths = waiting_hank(tmp_path, gate), inputs_in(tmp_path / "in", 3)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("map", str(hank), "-d", str(root), *paths, "-j", "2", "--max-cost", "9"),
        env=environment(TERM="xterm", COLUMNS="100"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 1 << 16):
                shown += chunk
                if b"one" in shown and b"0 of 3" in shown and b"2 running, 1 waiting" in shown:
                    gate.touch()
        except OSError:  # EIO: the terminal was closed.
            pass

        assert process.wait(timeout=LIMIT) == 0

    os.close(ours)
    text = shown.decode(errors="replace")
    assert "of $9.00" in text
    assert "3 items: 3 completed, 0 failed" in text


def test_a_finished_map_is_removed_with_all_its_executions(tmp_path: Path) -> None:
    """After a preview and a question; by its id as well; inputs and results are kept."""
    hank = write_hank(
        tmp_path / "hank", codon("one", COUNTS, outputFiles=[{"copy": ["count.txt"]}])
    )
    paths, output, executions = inputs_in(tmp_path / "in", 2), tmp_path / "out", tmp_path / "all"
    usual = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(executions)}
    hankweave("map", str(hank), *paths, "-o", str(output), code=0, **usual)
    (root,) = executions.iterdir()
    refused = hankweave("gc", "-e", str(root), code=ExitCode.NO_INPUT, **usual)
    assert "It is a map" in refused.stderr
    listed = hankweave("ls", code=0, **usual).stdout.splitlines()
    short_id = listed[1].split()[0]
    assert "2 of 2" in hankweave("ls", short_id, code=0, **usual).stdout
    dry = hankweave("cleanup", "-e", short_id, "--dry-run", code=0, **usual).stdout
    assert "1 map would be removed" in dry
    assert f"{root}  map of 2 inputs: 2 completed" in dry
    assert f"results in {output} are kept; inputs are kept" in dry
    asked = hankweave("cleanup", "--all", code=1, **usual)
    assert "Nothing was removed" in asked.stderr
    assert root.exists()
    report = json.loads(hankweave("cleanup", "--all", "-y", "--json", code=0, **usual).stdout)
    assert [each["path"] for each in report["removed"]] == [str(root)]
    assert [*executions.iterdir()] == []
    assert [Path(path).read_text() for path in paths] == ["in-1.txt", "in-2.txt"]
    assert [each["state"] for each in results_in(output)] == ["completed", "completed"]
    assert (output / "in-2.txt" / "count.txt").read_text() == "in-2.txt\n"
