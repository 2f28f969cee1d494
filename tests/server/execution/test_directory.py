"""The execution directory: its selection, contents and permissions."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from hankweave_protocol.events import ServerIdle
from hankweave_protocol.state import CompletedCodon
from support.command_line import Done, hankweave
from support.running_server import journal, running_server, state
from support.scripted_hank import codon, rig_command, write_hank, writes
from support.waiting import LIMIT
from support.watching import events_of


class Machine:
    """A user's machine: data, a hank, and a folder of executions."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.data.mkdir()
        (self.data / "rows.csv").write_text("1,2\n")
        self.hank = write_hank(root / "hank", codon("one", writes("a.txt", "a")))
        self.executions = root / "executions"

    def run(self, *options: str) -> Path:
        """Run the plan to its end and return its directory."""
        done = self.hankweave(*options)
        assert done.returncode == 0, done.stderr
        ready = next(line for line in done.stdout.splitlines() if '"server.ready"' in line)
        return Path(json.loads(ready)["data"]["executionPath"])

    def hankweave(self, *options: str) -> Done:
        words = ("run", str(self.hank), str(self.data), "--headless", "--json", *options)
        return hankweave(*words, HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=str(self.executions))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_same_data_is_resumed_in_the_same_directory(machine: Machine) -> None:
    """Without --execution the second run resumes the first's directory and does nothing."""
    first = machine.run()
    seqs = len(journal(first))
    assert machine.run() == first
    assert [path.name for path in machine.executions.iterdir()] == [first.name]
    assert re.fullmatch(r"\d{13}-[0-9a-z]{4}-[0-9a-f]{6}", first.name)
    assert len(state(first).runs) == 1
    messages = [idle.message for idle in events_of(first, ServerIdle, since=seqs)]
    assert messages == ["Resumed completed execution: nothing to do."]


def test_other_data_or_new_gets_a_directory_of_its_own(machine: Machine) -> None:
    """--new never resumes; changed data gets a new execution."""
    first = machine.run()
    second = machine.run("--new")
    (machine.data / "more.csv").write_text("3,4\n")
    third = machine.run()
    assert len({first, second, third}) == 3


def test_data_is_linked_or_copied(machine: Machine) -> None:
    """read_only_data_source is a link to the data, or with --copy a copy."""
    linked = machine.run() / "read_only_data_source"
    assert linked.is_symlink()
    assert linked.resolve() == machine.data.resolve()
    execution = machine.run("--new", "--copy")
    copied = execution / "read_only_data_source"
    assert not copied.is_symlink()
    assert (copied / "rows.csv").read_text() == "1,2\n"
    meta = json.loads((execution / ".hankweave" / "execution-meta.json").read_text())
    assert meta["linkType"] == "copy"


def test_the_path_of_an_agents_log_is_right_for_both_kinds_of_readers(machine: Machine) -> None:
    """`claudeLogPath` is `runs/...` as in seed 002, relative to `.hankweave`; a link makes the path
    valid for Hankweave's readers, which resolve it from the execution directory."""
    execution = machine.run()
    (done,) = state(execution).runs[0].codons
    assert isinstance(done, CompletedCodon)
    assert re.fullmatch(r"runs/[^/]+/one-claude\.log", done.claude_log_path)
    logs = [execution / place / done.claude_log_path for place in (".hankweave", ".")]
    assert logs[0].read_text() == logs[1].read_text() != ""


def test_an_execution_of_other_data_is_not_taken_over(machine: Machine) -> None:
    """--execution with a directory for other data gives a message and exit code 2."""
    first = machine.run()
    (machine.data / "more.csv").write_text("3,4\n")
    refused = machine.hankweave("--execution", str(first))
    assert refused.returncode == 2
    assert "other data" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_everything_of_ours_is_for_its_owner_alone(tmp_path: Path, execution: Path) -> None:
    """Every folder below .hankweave is 0700 and every file 0600, while serving and afterwards."""
    hank = write_hank(tmp_path / "hank", codon("one", rigSetup=[rig_command("touch r")]))
    async with running_server(hank, None, execution) as server:
        async with server.client(since_seq=0) as client:
            await client.until(ServerIdle, timeout=LIMIT)

        assert _open_to_others(execution / ".hankweave") == {}
        assert await server.stop() == 0

    assert _open_to_others(execution / ".hankweave") == {}


async def test_the_server_log_records_the_life_of_the_server(
    tmp_path: Path, execution: Path
) -> None:
    """Lines have instant, level and message as in seed 001, from start to stop reason."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with running_server(hank, None, execution) as server:
        killed = server.pid
        server.kill()
        await server.ended()

    async with running_server(hank, None, execution) as server:
        assert await server.stop() == 0

    lines = (execution / ".hankweave" / "logs" / "server.log").read_text().splitlines()
    shape = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \[(INFO|WARNING|ERROR)\] \S.*")
    assert all(shape.fullmatch(line) for line in lines), lines
    texts = [line.split("] ", 1)[1] for line in lines]
    assert f"Found dead server: pid {killed}" in texts
    assert texts[-1] == "Stopped: SIGTERM"
    assert sum(line.startswith("Starting Hankweave ") for line in texts) == 2
    assert sum(bool(re.fullmatch(r"Starting HankweaveRuntime on port \d+", x)) for x in texts) == 2


def _open_to_others(folder: Path) -> dict[str, str]:
    """Return the paths that others than the owner can read."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {
        str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077
    }
