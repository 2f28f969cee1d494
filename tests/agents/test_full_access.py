"""A hank without `permissions`: an agent does what its prompt asks, and nothing asks a person."""

from __future__ import annotations

import pytest

from hankweave_protocol.events import PermissionRequested, PermissionResolved, ToolResult
from support.invariants import Told, violations
from support.models.turns import Edits, Reads, Runs, Says, Writes
from support.real_agents import REAL, Grounds, Kind
from support.running_server import running_server, tree
from support.scripted_hank import write_hank
from support.watching import told

SECRET_OF_DATA = "forty-two earthquakes"


@pytest.mark.parametrize("kind", REAL, ids=str)
async def test_an_agent_without_permissions_uses_every_tool_without_being_asked(
    grounds: Grounds, kind: Kind
) -> None:
    """Its shell runs, its tools read the data outside of the work tree, write and edit files;
    no call is refused and no permission is requested."""
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
        assert await server.ended() == 0

    results = told(grounds.execution, ToolResult)
    assert [each.result for each in results if each.is_error] == []
    assert len(results) == 5
    files = tree(work_tree)
    assert files["copied.txt"] == f"{SECRET_OF_DATA}\n".encode()
    assert files["notes.txt"] == b"first\nedited\n"
    assert SECRET_OF_DATA in grounds.endpoint.turns[-1].shown
    assert told(grounds.execution, PermissionRequested) == []
    assert told(grounds.execution, PermissionResolved) == []
    assert grounds.endpoint.script.is_done
    assert violations(grounds.execution, Told()) == []
