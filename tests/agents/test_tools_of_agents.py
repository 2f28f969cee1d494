"""The tools that the daemon offers, with the real Claude Code and a scripted model."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
from pathlib import Path

import pytest

from hankweave_protocol.events import CheckpointRollback, ToolResult
from support.models.endpoint import Endpoint
from support.models.turns import Calls, Says, Writes
from support.running_server import journal, running_server, tree
from support.scripted_hank import codon, write_hank
from support.watching import events_of


@pytest.fixture
def claude() -> Path:
    """Return the program of the Python package; skip if it cannot start without a network."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        pytest.skip("real agents are started where there is loopback alone")

    if importlib.util.find_spec("mcp") is None:
        pytest.skip("the extra mcp is not installed")

    package = importlib.util.find_spec("claude_agent_sdk")
    if package is None or package.origin is None:
        pytest.skip("the program 'claude' is not installed")

    return Path(package.origin).parent / "_bundled" / "claude"


def sha_in(shown: str) -> str:
    """Return the first sha in a tool result."""
    found = re.search(r'"sha": ?"([0-9a-f]{40})"', shown)
    assert found is not None, shown
    return found[1]


async def test_claude_code_uses_what_the_daemon_offers(
    claude: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Claude Code uses the daemon's tools without a permission request.

    It takes a checkpoint, writes a file, rolls it back (frozen meanwhile) and compares. A tool
    server that the work tree configures is not started.
    """
    execution, trap = tmp_path / "execution", tmp_path / "trap"
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(claude)
    named = {"mcpServers": {"trap": {"command": "touch", "args": [str(trap)]}}}
    (tmp_path / "hank").mkdir()
    (tmp_path / "hank" / "trap.json").write_text(json.dumps(named))
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            promptText="Do it.",
            model="sonnet",
            agent={"type": "claude"},
            rigSetup=[{"type": "copy", "copy": {"from": "trap.json", "to": ".mcp.json"}}],
        ),
        overrides={"agentTools": {"rollbackPaths": True}},
    )
    endpoint.script.add(
        Calls("checkpoint_create", {"label": "before it"}),
        Writes(execution / "agentRoot" / "bad.txt", "bad\n"),
        Calls(
            "rollback_paths",
            lambda shown: {"sha": sha_in(shown), "paths": ["bad.txt"], "reason": "it is bad"},
        ),
        Calls("checkpoint_diff", lambda shown: {"from_sha": sha_in(shown)}),
        Says("Done."),
    )
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{programs}:/usr/bin:/bin",
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_API_KEY": "key-of-the-test",
    }
    async with running_server(hank, None, execution, "--headless", env=environment) as server:
        assert await server.ended() == 0, server.output

    offered = {tool.name for seen in endpoint.turns if seen.asked for tool in seen.asked.tools}
    assert {name for name in offered if name.startswith("mcp__")} == {
        f"mcp__hankweave__{name}"
        for name in (
            *("checkpoint_create", "checkpoint_list", "checkpoint_diff"),
            *("replay_view", "rollback_paths"),
        )
    }
    results = events_of(execution, ToolResult)
    assert [result.is_error for result in results] == [False] * 4, results
    assert '"removed":{"paths":["bad.txt"]' in results[2].result

    assert set(tree(execution / "agentRoot")) == {".mcp.json"}
    assert not trap.exists()
    (rolled,) = (event for event in journal(execution) if event.type == CheckpointRollback.TYPE)
    assert any(str(cause).startswith("hankweave-mcp:one:") for cause in rolled.causes)
