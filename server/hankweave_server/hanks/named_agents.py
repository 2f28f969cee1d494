"""The agents that have a name of their own, for command lines and pipelines."""

from __future__ import annotations

from collections.abc import Mapping

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    ScriptedAgentSpec,
)

BY_NAME: Mapping[str, AgentSpec] = {
    "claude": ClaudeAgentSpec(),
    "codex": CodexAgentSpec(),
    "gemini": AcpAgentSpec(command=("gemini", "--acp")),
    "opencode": AcpAgentSpec(command=("opencode", "acp")),
    "scripted": ScriptedAgentSpec(),
}
"""Agents that a command line can name, for every codon (`--agent`)."""
