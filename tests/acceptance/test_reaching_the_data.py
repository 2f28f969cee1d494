"""`read_only_data_source` is reached as in Hankweave 0.12, and never changed by the server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import RollbackToCheckpoint
from hankweave_protocol.events import CheckCompleted, Info
from support.command_line import hankweave
from support.running_server import RunningServer, running_server
from support.scripted_hank import Step, codon, write_hank
from support.watching import events_of, idle, listed

NAME = "read_only_data_source"
RIG = {"type": "command", "command": {"run": f"mkdir -p workspace && cp {NAME}/*.md workspace/"}}
CHECK = {"run": f"grep -q 1,2 {NAME}/rows.csv"}


class Machine:
    """A folder of data, and an execution that reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.data.mkdir()
        (self.data / "rows.csv").write_text("1,2\n")
        (self.data / "notes.md").write_text("# Notes\n")
        self.execution = root / "execution"
        self.tree = self.execution / "agentRoot"
        self.link = self.tree / NAME

    def run(self, *codons: dict[str, object], options: tuple[str, ...] = ()) -> str:
        hank = write_hank(self.root / "hank", *codons)
        words = (str(hank), str(self.data), "-e", str(self.execution), "--headless")
        return hankweave("run", *words, *options, code=0).stdout

    @asynccontextmanager
    async def serving(
        self, *codons: dict[str, object]
    ) -> AsyncIterator[tuple[RunningServer, Client]]:
        hank = write_hank(self.root / "hank", *codons)
        async with (
            running_server(hank, self.data, self.execution) as server,
            server.client(since_seq=0) as client,
        ):
            await idle(client)
            yield server, client

    @property
    def untouched(self) -> bool:
        names = sorted(path.name for path in self.data.iterdir())
        text = (self.data / "rows.csv").read_text()
        return names == ["notes.md", "rows.csv"] and text == "1,2\n"

    def git(self, *words: str) -> str:
        """Run stock git with the variables of seed 000."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "GIT_DIR": ".hankweave/checkpoints/.hankweavecheckpoints",
            "GIT_WORK_TREE": "agentRoot",
        }
        done = subprocess.run(
            ["git", *words], cwd=self.execution, env=environment, capture_output=True, check=True
        )
        return done.stdout.decode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def runs(command: str) -> Step:
    return {"run": command}


@pytest.mark.parametrize("options", [(), ("--copy",)])
def test_prompts_rigs_and_checks_read_the_data_by_its_relative_path(
    machine: Machine, options: tuple[str, ...]
) -> None:
    """`read_only_data_source/...` works in a rig, in the agent's commands and in a check.

    So do `<%DATA_DIR%>` and HANKWEAVE_DATA_DIR, which are its absolute path in the work tree.
    """
    machine.run(
        codon(
            "one",
            runs(f"cat {NAME}/rows.csv > seen.txt"),
            runs("echo '<%DATA_DIR%>' > told.txt; echo $HANKWEAVE_DATA_DIR >> told.txt"),
            rigSetup=[RIG],
            checks=[CHECK, {"run": 'test -e "$HANKWEAVE_DATA_DIR/notes.md"'}],
        ),
        options=options,
    )
    assert (machine.tree / "workspace" / "notes.md").read_text() == "# Notes\n"
    assert (machine.tree / "seen.txt").read_text() == "1,2\n"
    assert (machine.tree / "told.txt").read_text().split() == [str(machine.link)] * 2
    assert [check.passed for check in events_of(machine.execution, CheckCompleted)] == [True, True]
    assert machine.untouched


def test_no_checkpoint_holds_the_data(machine: Machine) -> None:
    """Stock git with the seed's variables has it in no commit and does not call it untracked."""
    machine.run(codon("one", runs("touch made.txt")))
    assert machine.link.is_symlink()
    listed = machine.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    assert "made.txt" in listed
    assert not any(name.startswith(NAME) for name in listed)
    assert NAME not in machine.git("status", "--porcelain", "--untracked-files=all")


async def test_a_link_that_an_agent_removed_is_back_for_its_check(machine: Machine) -> None:
    """A removed link is restored for the check, the next codon, and after a rollback.

    The data itself is unchanged.
    """
    async with machine.serving(
        codon("one", runs(f"rm {NAME}"), checks=[CHECK]), codon("two", runs(f"ls {NAME} > seen"))
    ) as (_, client):
        assert [check.passed for check in events_of(machine.execution, CheckCompleted)] == [True]
        assert (machine.tree / "seen").read_text().split() == ["notes.md", "rows.csv"]
        machine.link.unlink()
        made = (await listed(client))[0]
        (machine.tree / "later").touch()
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert os.readlink(machine.link) == str(machine.data)
        assert machine.untouched


def test_what_an_agent_puts_in_place_of_the_data_is_kept(machine: Machine) -> None:
    """A file in the link's place is moved beside the work tree, and an event names the new path.

    The next codon has the data.
    """
    machine.run(
        codon("one", runs(f"rm {NAME}; mkdir {NAME}; echo work > {NAME}/result.txt")),
        codon("two", runs(f"ls {NAME} > seen")),
    )
    (kept,) = machine.execution.glob(f"{NAME}.replaced-*")
    assert (kept / "result.txt").read_text() == "work\n"
    assert (machine.tree / "seen").read_text().split() == ["notes.md", "rows.csv"]
    assert any(str(kept) in info.message for info in events_of(machine.execution, Info))
    assert machine.untouched


async def test_a_rollback_leaves_the_data_alone(machine: Machine) -> None:
    """Files that a person adds to the data survive every rollback."""
    async with machine.serving(codon("one", runs("touch a")), codon("two", runs("touch b"))) as (
        _,
        client,
    ):
        (machine.data / "added.csv").write_text("3\n")
        oldest = (await listed(client))[-1]
        await client.send(RollbackToCheckpoint(checkpoint_sha=oldest.sha))
        assert not (machine.tree / "b").exists()
        assert (machine.link / "added.csv").read_text() == "3\n"


@pytest.mark.parametrize("to", [NAME, f"{NAME}/sub", f"./{NAME}/x"])
def test_a_rig_may_not_copy_into_the_data(machine: Machine, to: str) -> None:
    """`copy.to` at or below the link is refused before anything runs."""
    (machine.root / "hank" / "template").mkdir(parents=True)
    rig = {"type": "copy", "copy": {"from": "template", "to": to}}
    hank = write_hank(machine.root / "hank", codon("one", rigSetup=[rig]))
    done = hankweave("run", str(hank), str(machine.data), "-e", str(machine.execution))
    assert done.returncode != 0
    assert "protected name" in done.stderr
    assert machine.untouched


def test_a_rig_follows_no_link_into_the_data(machine: Machine) -> None:
    """If an agent linked to the data, a later rig does not write through that link."""
    (machine.root / "hank" / "template").mkdir(parents=True)
    (machine.root / "hank" / "template" / "x").touch()
    rig = {"type": "copy", "copy": {"from": "template", "to": "way/in"}}
    hank = write_hank(
        machine.root / "hank",
        codon("one", runs(f"ln -s {NAME} way")),
        codon("two", rigSetup=[rig]),
    )
    words = (str(hank), str(machine.data), "-e", str(machine.execution), "--headless")
    hankweave("run", *words, code=1)
    assert machine.untouched


def test_an_archive_leaves_the_link_in_its_place(machine: Machine) -> None:
    """Patterns that match everything move the codon's files, and not the data."""
    machine.run(
        codon("one", runs(f"mkdir out; cp {NAME}/rows.csv out/"), archiveOnSuccess=["*"]),
        codon("two", runs(f"ls {NAME} > seen")),
    )
    assert (machine.execution / "rigArchive" / "one" / "out" / "rows.csv").exists()
    assert not os.path.lexists(machine.execution / "rigArchive" / "one" / NAME)
    assert (machine.tree / "seen").read_text().split() == ["notes.md", "rows.csv"]
    assert machine.untouched


def test_data_that_is_one_file_has_its_name(machine: Machine) -> None:
    """With `hankweave run HANK rows.csv` agents read `read_only_data_source/rows.csv`."""
    machine.data = machine.data / "rows.csv"
    machine.run(codon("one", runs(f"cat {NAME}/rows.csv > seen.txt")))
    assert (machine.tree / "seen.txt").read_text() == "1,2\n"


@pytest.mark.parametrize("options", [(), ("--copy",)])
def test_a_branch_has_the_link_before_it_is_served(
    machine: Machine, options: tuple[str, ...]
) -> None:
    """A branch's work tree reaches its own data at once."""
    machine.run(codon("one", runs("touch a")), options=options)
    branch = machine.root / "branch"
    sha = machine.git("rev-parse", "HEAD").strip()
    hankweave("branch", "-e", str(machine.execution), sha, "--path", str(branch), code=0)
    link = branch / "agentRoot" / NAME
    assert (link / "rows.csv").read_text() == "1,2\n"
    assert link.resolve() == (branch / NAME).resolve()


def test_an_execution_that_is_set_aside_keeps_its_copy(machine: Machine) -> None:
    """After `--new --force` the link of the former work tree leads to the former copy."""
    machine.run(codon("one"), options=("--copy",))
    (machine.data / "more.csv").touch()
    machine.run(codon("one"), options=("--new", "--force", "--copy"))
    (former,) = machine.execution.glob("agentRoot.backup-*")
    assert not (former / NAME / "more.csv").exists()
    assert (former / NAME / "rows.csv").exists()
    assert (machine.link / "more.csv").exists()


@pytest.mark.story("A cleanup never removes the data.")
def test_a_cleanup_removes_the_link_and_not_the_data(machine: Machine) -> None:
    """A cleanup removes the link and everything that was in its place, but not the data."""
    machine.run(codon("one", runs(f"rm {NAME}; mkdir {NAME}")))
    assert list(machine.execution.glob(f"{NAME}.replaced-*"))
    hankweave("cleanup", "-e", str(machine.execution), "--yes", code=0)
    assert not machine.execution.exists()
    assert machine.untouched


# --- a person's project ---------------------------------------------------------------------------


async def test_a_run_reports_how_its_data_is_reached(machine: Machine) -> None:
    """With --workspace nothing is added to the project.

    An event and `status` name the path, which agents, rigs and checks have in HANKWEAVE_DATA_DIR.
    """
    project = machine.root / "project"
    project.mkdir()
    list_data = 'ls "$HANKWEAVE_DATA_DIR" >'
    hank = write_hank(
        machine.root / "hank",
        codon(
            "one",
            runs(f"{list_data} agent.txt"),
            rigSetup=[{"type": "command", "command": {"run": f"{list_data} rig.txt"}}],
            checks=[{"run": f"{list_data} check.txt"}],
        ),
    )
    async with (
        running_server(hank, machine.data, project, place="--workspace") as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        place = project / ".hankweave" / NAME
        assert any(str(place) in info.message for info in events_of(project, Info))
        assert client.ready.data_path == str(place)
        status = json.loads(hankweave("status", "-e", str(project), "--json", code=0).stdout)
        assert status["dataPath"] == str(place)

    assert sorted(os.listdir(project)) == [".hankweave", "agent.txt", "check.txt", "rig.txt"]
    for name in ("agent.txt", "check.txt", "rig.txt"):
        assert (project / name).read_text().split() == ["notes.md", "rows.csv"]
