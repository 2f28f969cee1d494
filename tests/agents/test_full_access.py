"""Without `permissions` in the hank, an agent follows its prompt with no permission request."""

from __future__ import annotations

import pytest

from hankweave_protocol.events import (
    CodonWarning,
    PermissionRequested,
    PermissionResolved,
    ToolResult,
)
from support.invariants import Acknowledged, violations
from support.models.turns import Edits, Reads, Runs, Says, Writes
from support.real_agents import CLAUDE, REAL, Grounds, Kind
from support.running_server import running_server, tree
from support.scripted_hank import write_hank
from support.waiting import limited
from support.watching import events_of

DEADLINE = 120.0
SECRET_OF_DATA = "forty-two earthquakes"


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize("kind", REAL, ids=str)
async def test_an_agent_without_permissions_uses_every_tool_without_being_asked(
    grounds: Grounds, kind: Kind
) -> None:
    """The agent uses every tool: no call is refused and no permission is requested.

    Its shell runs, and its tools read the data outside the work tree, write and edit files.
    """
    data = grounds.folder / "data"
    data.mkdir()
    (data / "numbers.txt").write_text(f"{SECRET_OF_DATA}\n")
    work_tree = grounds.work_tree
    grounds.endpoint.script.add(
        Runs(f"cp {data}/numbers.txt copied.txt && echo from-the-shell"),
        Reads(data / "numbers.txt"),
        Writes(work_tree / "notes.txt", "first\nsecond\n"),
        Reads(work_tree / "notes.txt"),
        Edits(work_tree / "notes.txt", "second", "edited"),
        Says("All is done."),
    )
    hank = write_hank(grounds.folder / "hank", grounds.codon("one", kind, "Please PROMPT-ONE."))
    async with running_server(
        hank, data, grounds.execution, "--headless", env=grounds.environment
    ) as server:
        with limited():
            assert await server.process.wait() == 0, server.output[-5:]

    results = events_of(grounds.execution, ToolResult)
    assert [each.result for each in results if each.is_error] == []
    assert len(results) == 5
    files = tree(work_tree)
    assert files["copied.txt"] == f"{SECRET_OF_DATA}\n".encode()
    assert files["notes.txt"] == b"first\nedited\n"
    assert SECRET_OF_DATA in grounds.endpoint.turns[-1].shown
    assert events_of(grounds.execution, PermissionRequested) == []
    assert events_of(grounds.execution, PermissionResolved) == []
    assert grounds.endpoint.script.is_done
    assert violations(grounds.execution, Acknowledged()) == []


@pytest.mark.parametrize("kind", [CLAUDE], ids=str)
async def test_an_agent_that_was_refused_everything_leaves_a_warning(
    grounds: Grounds, kind: Kind
) -> None:
    """The agent's own mode requires approval for each call, and none is possible.

    The agent ends normally, and its codon is completed with a warning that names the tools.
    """
    grounds.endpoint.script.add(
        Runs("touch made.txt"),
        Writes(grounds.work_tree / "notes.txt", "a\n"),
        Says("I could do nothing."),
    )
    spec = {"type": "claude", "permissionMode": "default"}
    hank = write_hank(
        grounds.folder / "hank", grounds.codon("one", kind, "Please PROMPT-ONE.", agent=spec)
    )
    async with running_server(
        hank, None, grounds.execution, "--headless", env=grounds.environment
    ) as server:
        with limited():
            assert await server.process.wait() == 0, server.output[-5:]

    (warning,) = events_of(grounds.execution, CodonWarning)
    assert warning.tools == ("Bash", "Write")
    assert tree(grounds.work_tree) == {}
