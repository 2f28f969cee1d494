"""The hank decides what an agent may do; the agent's own settings do not."""

from __future__ import annotations

import json

import pytest

from hankweave_protocol.events import CodonWarning, PermissionResolved
from support.models.turns import Says, Writes
from support.real_agents import GEMINI, Grounds, Kind
from support.running_server import running_server, tree
from support.scripted_hank import write_hank
from support.watching import events_of


@pytest.mark.parametrize("kind", [GEMINI], ids=str)
async def test_a_bold_persons_settings_do_not_answer_for_the_hank(
    grounds: Grounds, kind: Kind
) -> None:
    """In a hank with permissions, Gemini CLI asks even if it is set to edit without asking."""
    environment = grounds.environment
    file = grounds.folder / "home" / ".gemini" / "settings.json"
    settings = json.loads(file.read_text())
    settings["general"] = settings.get("general", {}) | {"defaultApprovalMode": "auto_edit"}
    settings["tools"] = {"allowed": ["write_file", "replace"]}
    file.write_text(json.dumps(settings))
    grounds.endpoint.script.add(
        Writes(grounds.work_tree / "a.txt", "a\n", saying="I write A."), Says("It is not written.")
    )
    codon = grounds.codon(
        "one", kind, "Please PROMPT-ONE.", permissions={"deny": ["Edit", "Write"]}
    )
    hank = write_hank(grounds.folder / "hank", codon)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=environment
    ) as server:
        assert await server.ended() == 0

    assert [each.decision for each in events_of(grounds.execution, PermissionResolved)] == ["deny"]
    assert [each.tools for each in events_of(grounds.execution, CodonWarning)] == [("Edit",)]
    assert tree(grounds.work_tree) == {}
