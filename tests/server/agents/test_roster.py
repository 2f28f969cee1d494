"""Who does a codon: the command line's choice, else the hank's, else Claude."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.hank import Codon
from hankweave_server.agents.acp import AcpAgent
from hankweave_server.agents.base import Agent
from hankweave_server.agents.claude import ClaudeAgent
from hankweave_server.agents.codex import CodexAgent
from hankweave_server.agents.command import CommandAgent
from hankweave_server.agents.roster import Roster
from hankweave_server.agents.scripted import ScriptedAgent
from hankweave_server.hanks.named_agents import BY_NAME

HOMES = Path("/execution/.hankweave/homes")


def agent(chosen: str | None = None, **spec: Any) -> Agent:
    """The agent of a codon whose `agent` is this."""
    fields = {"id": "one", "name": "One", "model": "m", "continuationMode": "fresh"}
    codon = msgspec.convert(
        {**fields, "promptText": "p", "trackedFiles": [], **({"agent": spec} if spec else {})},
        Codon,
    )
    roster = Roster(
        chosen=chosen,
        hank_directory=Path("/hank"),
        sessions=HOMES.parent / "sessions",
        homes=HOMES,
        asks_first=False,
    )
    return roster.agent_for(codon)


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions", "plan"])
def test_claude_works_in_the_mode_that_the_hank_gives(mode: str) -> None:
    """Its conversations lie in its own home, inside the execution."""
    claude = agent(type="claude", permissionMode=mode)
    assert isinstance(claude, ClaudeAgent)
    assert (claude.permission_mode, claude.home) == (mode, HOMES / "claude")


def test_each_kind_of_agent_has_its_adapter() -> None:
    """Claude where the hank names none."""
    assert isinstance(agent(), ClaudeAgent)
    assert isinstance(agent(type="codex"), CodexAgent)
    assert isinstance(agent(type="acp", command=["opencode", "acp"]), AcpAgent)
    assert isinstance(agent(type="command", command=["true"]), CommandAgent)
    assert isinstance(agent(type="scripted"), ScriptedAgent)


@pytest.mark.parametrize("name", BY_NAME)
def test_whom_the_command_line_names_does_every_codon(name: str) -> None:
    """Whatever the hank says."""
    assert type(agent(name, type="command", command=["true"])) is type(
        agent(**msgspec.to_builtins(BY_NAME[name]))
    )


def test_an_acp_agent_gets_what_the_hank_says() -> None:
    """Its mode, its keys, and a place for its conversations inside the execution."""
    acp = agent(type="acp", command=["goose", "acp"], mode="bold", keys=["GOOSE_"])
    assert isinstance(acp, AcpAgent)
    assert (acp.command, acp.mode, acp.keys) == (("goose", "acp"), "bold", ("GOOSE_",))
    assert acp.homes == HOMES
