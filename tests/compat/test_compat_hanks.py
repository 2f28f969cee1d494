"""Hanks with the constructs of public Hankweave projects run unchanged and do their work.

No hank names an agent or has permissions: the model selects the agent, and the agent may use its
shell, read the data and edit files without a permission request.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hankweave_protocol.events import PermissionRequested, SentinelUnloaded, ToolResult
from support.command_line import hankweave
from support.compat_hanks import CASES, REFUSED, Case, Refused
from support.invariants import Acknowledged, violations
from support.real_agents import Grounds
from support.running_server import journal, state

HERE = Path(__file__).parent


@pytest.fixture
def project(grounds: Grounds) -> Path:
    """Return the folder of the projects, with data beside the hanks."""
    for name in ("hanks", "data"):
        shutil.copytree(HERE / name, grounds.folder / "project" / name)

    return grounds.folder / "project"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.story(
    "A hank that was written for Hankweave runs unchanged, and a failed codon is retried.",
    cases=("stand-in-failure-retried",),
)
def test_a_hank_of_a_public_project_runs_to_its_end(
    case: Case, grounds: Grounds, project: Path
) -> None:
    """A public hank validates and every codon ends as in Hankweave.

    Its files and outputs are the requested ones, no permission is requested, and no tool is
    refused.
    """
    case.script(grounds.endpoint.script, grounds.work_tree)
    hank, data = project / "hanks" / case.name, project / "data"
    env = {**grounds.environment, **case.environment}
    checked = hankweave("validate", str(hank), *case.options, **env)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    output = grounds.folder / "output"
    argv = ("--headless", "--execution", str(grounds.execution), "--output", str(output))
    ran = hankweave("run", str(hank), str(data), *argv, *case.options, **env)
    assert ran.returncode == case.code, ran.stdout + ran.stderr
    assert _ended(grounds.execution) == case.ended
    for path, content in case.files.items():
        found = (grounds.work_tree / path).read_text()
        assert found == content or (not content and found), path

    for path in case.outputs:
        assert list(output.rglob(Path(path).name)), path

    for path in case.archived:
        assert (grounds.execution / "rigArchive" / path).is_file(), path

    events = journal(grounds.execution)
    assert [e for e in events if isinstance(e.data, PermissionRequested)] == []
    assert [e.data for e in events if isinstance(e.data, ToolResult) and e.data.is_error] == []
    unloaded = [e.data for e in events if isinstance(e.data, SentinelUnloaded)]
    assert {each.reason for each in unloaded} <= {"codon-complete"}
    assert (project / "data" / "task.md").read_text() == "# Task\n\nProve it.\n"
    assert grounds.endpoint.faults == []
    # The next start finishes a codon whose outputs could not be copied.
    pending = ["Left over: .hankweave/aftermath.intent"] if case.name == "before-copy-fails" else []
    assert violations(grounds.execution, Acknowledged()) == pending


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_cannot_run_here_is_refused_before_it_starts(
    case: Refused, grounds: Grounds, project: Path
) -> None:
    """`validate` and `run` name the codon's model and the remedy, and leave nothing behind."""
    hank, data = str(project / "hanks" / case.name), str(project / "data")
    for argv in (("validate", hank), ("run", hank, data, "--headless")):
        refused = hankweave(*argv, **grounds.environment)
        assert refused.returncode not in (0, 1), refused.stdout
        for expected in case.says:
            assert expected in refused.stdout + refused.stderr

    assert not (grounds.folder / "home" / ".hankweave-executions").exists()


def test_at_least_twenty_public_hanks_are_stood_for() -> None:
    """Each folder of hanks has a case, each case has a folder, and there are at least twenty."""
    named = {case.name for case in (*CASES, *REFUSED)} | {"bedrock"}
    assert named == {path.name for path in (HERE / "hanks").iterdir()}
    assert len({case.stands_for for case in (*CASES, *REFUSED)}) >= 20


def _ended(execution: Path) -> tuple[str, ...]:
    """Return each codon's id and status over all runs, in the order in which they ran."""
    runs = reversed(state(execution).runs)
    return tuple(
        f"{codon.codon_id} {codon.__struct_config__.tag}" for run in runs for codon in run.codons
    )
