"""Known ACP agents: how they are recognised, and which of them ask for permission."""

from __future__ import annotations

import pytest

from hankweave_server.domain.model_routes import is_known_to_ask, known_as

GEMINI = ("gemini", "--acp")
OPENCODE = ("opencode", "acp")


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (GEMINI, "gemini"),
        (("/opt/bin/gemini", "--acp"), "gemini"),
        (("npx", "-y", "@google/gemini-cli@latest", "--acp"), "gemini"),
        (OPENCODE, "opencode"),
        (("node", "./node_modules/.bin/opencode", "acp"), "opencode"),
        (("claude-agent-acp",), "claude"),
        (("goose", "acp"), None),
    ],
)
def test_an_agent_is_known_however_it_is_started(
    command: tuple[str, ...], known: str | None
) -> None:
    """An agent is known by a name, a path, or an npm package."""
    assert known_as(command) == known


@pytest.mark.parametrize(
    ("command", "mode", "asks"),
    [
        (OPENCODE, None, True),
        (OPENCODE, "build", True),
        (GEMINI, None, True),
        (GEMINI, "plan", True),
        (GEMINI, "autoEdit", False),
        (GEMINI, "yolo", False),
        (("claude-agent-acp",), None, False),
        (("goose", "acp"), None, False),
    ],
)
def test_only_who_was_seen_to_ask_is_known_to(
    command: tuple[str, ...], mode: str | None, asks: bool
) -> None:
    """OpenCode is told to ask; Gemini CLI asks except in two modes; other agents are unknown."""
    assert is_known_to_ask(command, mode) is asks
