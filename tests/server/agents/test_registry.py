"""Selection of a codon's agent: the command line, else the hank, else the model's agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.hank import Codon
from hankweave_server.agents.acp.adapter import AcpAgent
from hankweave_server.agents.base import Agent
from hankweave_server.agents.claude import ClaudeAgent
from hankweave_server.agents.codex.adapter import CodexAgent
from hankweave_server.agents.registry import AgentSelector, CommandAgent
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from hankweave_server.hank.agents import BY_NAME

HOMES = Path("/execution/.hankweave/homes")


def a_codon(model: str = "m", **spec: Any) -> Codon:
    """Return a codon with this `agent`, or without one."""
    fields = {"id": "one", "name": "One", "model": model, "continuationMode": "fresh"}
    return msgspec.convert(
        {**fields, "promptText": "p", "trackedFiles": [], **({"agent": spec} if spec else {})},
        Codon,
    )


def a_selector(chosen: str | None = None, model: str | None = None) -> AgentSelector:
    return AgentSelector(
        chosen=chosen,
        hank_directory=Path("/hank"),
        sessions=HOMES.parent / "sessions",
        homes=HOMES,
        asks_first=False,
        model=model,
    )


def agent(chosen: str | None = None, **spec: Any) -> Agent:
    return a_selector(chosen).agent_for(a_codon(**spec))


@pytest.mark.parametrize(
    ("model", "kind", "called"),
    [
        ("anthropic/claude-sonnet-4-5", ClaudeAgent, "claude-sonnet-4-5"),
        ("gpt-5.2", CodexAgent, "gpt-5.2"),
        ("google/gemini-3-pro-preview", AcpAgent, "gemini-3-pro-preview"),
        ("opencode/anthropic/claude-x", AcpAgent, "anthropic/claude-x"),
    ],
)
def test_the_model_selects_the_agent_where_nothing_else_does(
    model: str, kind: type[Agent], called: str
) -> None:
    """The agent is given the model name in its own form."""
    codon = a_codon(model)
    assert isinstance(a_selector().agent_for(codon), kind)
    assert a_selector().model_for(codon) == called


def test_a_named_agent_wins_over_the_model() -> None:
    """An agent named by the hank or the command line wins; the model name is converted for it."""
    codex = a_codon("sonnet", type="codex")
    assert isinstance(a_selector().agent_for(codex), CodexAgent)
    assert isinstance(a_selector("claude").agent_for(a_codon("gpt-5")), ClaudeAgent)
    assert a_selector("opencode").model_for(a_codon("anthropic/claude-x")) == "anthropic/claude-x"
    assert a_selector("claude").model_for(a_codon("anthropic/claude-x")) == "claude-x"


def test_the_model_of_the_command_line_selects_the_agent_too() -> None:
    codon, selector = a_codon("sonnet"), a_selector(model="openai/gpt-5.2")
    assert isinstance(selector.agent_for(codon), CodexAgent)
    assert selector.model_for(codon) == "gpt-5.2"


def test_effort_behind_a_models_name_becomes_a_setting_of_codex() -> None:
    """An effort suffix becomes a Codex setting, unless the hank sets one itself."""
    selected = a_selector().agent_for(a_codon("gpt-5.2-high"))
    assert isinstance(selected, CodexAgent)
    assert selected.config == {"model_reasoning_effort": '"high"'}
    own = a_codon("gpt-5.2-high", type="codex", config={"model_reasoning_effort": '"low"'})
    named = a_selector().agent_for(own)
    assert isinstance(named, CodexAgent)
    assert named.config == {"model_reasoning_effort": '"low"'}
    assert a_selector().model_for(own) == "gpt-5.2"


def test_of_several_agents_the_first_that_is_installed_runs_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If none is installed, the preferred one is named, so that the user can install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    codon = a_codon("pi/openai/gpt-5.4")
    assert command_for(codon) == ("pi-acp",)
    install(tmp_path / "opencode")
    assert command_for(codon) == ("opencode", "acp")
    install(tmp_path / "pi-acp")
    assert command_for(codon) == ("pi-acp",)
    assert a_selector().model_for(codon) == "openai/gpt-5.4"


def command_for(codon: Codon) -> tuple[str, ...]:
    agent = a_selector().agent_for(codon)
    assert isinstance(agent, AcpAgent)
    return agent.command


def install(program: Path) -> None:
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def test_claude_on_bedrock_gets_the_keys_of_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other agents and other Claude models do not get them."""
    codon = a_codon("amazon-bedrock/anthropic.claude-3-haiku-20240307-v1:0")
    claude = a_selector().agent_for(codon)
    assert isinstance(claude, ClaudeAgent)
    assert claude.on_bedrock
    other = a_selector().agent_for(a_codon("sonnet"))
    assert isinstance(other, ClaudeAgent)
    assert not other.on_bedrock


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions", "plan"])
def test_claude_works_in_the_mode_that_the_hank_gives(mode: str) -> None:
    """Claude's conversations are in its own home inside the execution."""
    claude = agent(type="claude", permissionMode=mode)
    assert isinstance(claude, ClaudeAgent)
    assert (claude.permission_mode, claude.home) == (mode, HOMES / "claude")


def test_each_kind_of_agent_has_its_adapter() -> None:
    """Claude is the default if the hank names no agent."""
    assert isinstance(agent(), ClaudeAgent)
    assert isinstance(agent(type="codex"), CodexAgent)
    assert isinstance(agent(type="acp", command=["opencode", "acp"]), AcpAgent)
    assert isinstance(agent(type="command", command=["true"]), CommandAgent)
    assert isinstance(agent(type="scripted"), ScriptedAgent)


@pytest.mark.parametrize("name", BY_NAME)
def test_whom_the_command_line_names_does_every_codon(name: str) -> None:
    """An agent on the command line overrides the hank for every codon."""
    assert type(agent(name, type="command", command=["true"])) is type(
        agent(**msgspec.to_builtins(BY_NAME[name]))
    )


def test_an_acp_agent_gets_what_the_hank_says() -> None:
    """An ACP agent gets the hank's mode and keys, and a conversation directory in the execution."""
    acp = agent(type="acp", command=["goose", "acp"], mode="bold", keys=["GOOSE_"])
    assert isinstance(acp, AcpAgent)
    assert (acp.command, acp.mode, acp.keys) == (("goose", "acp"), "bold", ("GOOSE_",))
    assert acp.homes == HOMES
