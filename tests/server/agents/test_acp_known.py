"""Claims about particular ACP agents: keys, homes, and whether they ask."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.agents.acp.adapter import AcpAgent, Home, home_of, keys_of

GEMINI = ("gemini", "--acp")
OPENCODE = ("opencode", "acp")


@pytest.mark.parametrize(
    ("command", "model", "keys"),
    [
        (GEMINI, "x", ("GEMINI_", "GOOGLE_")),
        (OPENCODE, "anthropic/claude", ("OPENCODE_", "ANTHROPIC_")),
        (OPENCODE, "google/gemini", ("OPENCODE_", "GEMINI_", "GOOGLE_")),
        (OPENCODE, "github-copilot/x", ("OPENCODE_", "GITHUB_COPILOT_")),
        (("goose", "acp"), "anthropic/claude", ()),
    ],
)
def test_keys_reach_only_the_agent_they_are_meant_for(command, model, keys) -> None:
    """OpenCode gets the keys of the provider that the model names; an unknown agent gets none."""
    assert keys_of(command, model) == keys


async def test_a_hank_can_name_the_keys_itself(a_task, monkeypatch) -> None:
    """A hank's list of keys replaces the default, but never includes the server's own variables."""
    for name in ("MISTRAL_KEY", "GEMINI_API_KEY", "GEMINI_CLI_HOME", "HANKWEAVE_TOKEN"):
        monkeypatch.setenv(name, "v")

    agent = AcpAgent(GEMINI, keys=("MISTRAL_", "HANKWEAVE_TOKEN"))
    assert agent._environment(a_task()) == {"MISTRAL_KEY": "v"}
    assert AcpAgent(GEMINI)._environment(a_task())["GEMINI_API_KEY"] == "v"


async def test_the_servers_own_place_is_not_the_executions(a_task, tmp_path, monkeypatch) -> None:
    """The server's own `GEMINI_CLI_HOME` and `OPENCODE_DB` are not handed to the agent."""
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("OPENCODE_DB", "mine.db")
    for command, name in ((GEMINI, "GEMINI_CLI_HOME"), (OPENCODE, "OPENCODE_DB")):
        assert name not in AcpAgent(command, homes=tmp_path / "homes")._environment(a_task())


async def test_opencode_is_configured_to_ask(a_task, monkeypatch) -> None:
    """OpenCode is told to ask before calls that may change files, MCP tools included, and before
    every call where the hank has permissions."""
    monkeypatch.setenv("OPENCODE_PERMISSION", '"allow"')
    plain = AcpAgent(OPENCODE)._environment(a_task())
    assert plain["OPENCODE_PERMISSION"] == '"allow"'
    first = AcpAgent(OPENCODE, asks_first=True)._environment(a_task())
    rules = json.loads(first["OPENCODE_PERMISSION"])
    assert next(iter(rules.items())) == ("*", "ask")
    assert {name for name, rule in rules.items() if rule == "allow"} >= {"read", "grep", "glob"}
    assert not {"edit", "bash", "write", "task"} & rules.keys()
    asks = AcpAgent(OPENCODE)._environment(a_task(asks=True))
    assert json.loads(asks["OPENCODE_PERMISSION"]) == {"*": "ask"}


@pytest.mark.parametrize(
    ("command", "mode", "asks", "expected"),
    [
        (GEMINI, None, True, "default"),
        (GEMINI, "plan", True, "plan"),
        (GEMINI, None, False, None),
        (OPENCODE, None, True, None),
    ],
)
async def test_gemini_cli_begins_in_no_bolder_mode(a_task, command, mode, asks, expected) -> None:
    """Where Gemini CLI has to ask, its mode is set and not left to its settings."""
    assert AcpAgent(command, mode=mode)._order(a_task(asks=asks)).mode == expected
    assert AcpAgent(command, mode=mode, asks_first=asks)._order(a_task()).mode == expected


@pytest.mark.parametrize(
    ("agent", "can_ask"),
    [
        (AcpAgent(GEMINI, mode="plan"), True),
        (AcpAgent(GEMINI, mode="yolo"), False),
    ],
)
def test_only_who_is_known_to_ask_can_be_held_by_permissions(agent, can_ask) -> None:
    """Only agents that are known to ask accept permissions: the others act without asking."""
    assert agent.can_ask is can_ask


def test_a_session_has_one_file_in_its_home(tmp_path: Path) -> None:
    """A session has one file, existing or not.

    There is none if the codon sets the home or the id is no file name.
    """
    for command, name in ((GEMINI, "gemini/s1.jsonl"), (OPENCODE, "opencode/s1.db")):
        agent = AcpAgent(command, homes=tmp_path)
        assert agent.memory_of("s1", tmp_path, {}) == (tmp_path / name,)
        assert agent.memory_of("../s1", tmp_path, {}) == ()
        home = home_of(command, tmp_path)
        assert home is not None
        assert agent.memory_of("s1", tmp_path, {home.variable: "x"}) == ()

    assert AcpAgent(("goose", "acp"), homes=tmp_path).memory_of("s1", tmp_path, {}) == ()


def test_gemini_cli_finds_the_persons_login_and_leaves_their_settings_alone(tmp_path) -> None:
    """The home links the user's files, copies the settings, and has its own work tree data."""
    person = tmp_path / "person" / ".gemini"
    (person / "tmp" / "project").mkdir(parents=True)
    (person / "oauth_creds.json").write_text("login")
    (person / "settings.json").write_text(
        '{ // mine\n "security": {"auth": "x//y"}, /* too */ "general": {"vimMode": true} }'
    )
    home = Home(tmp_path / "homes" / "gemini", "lines", "GEMINI_CLI_HOME")
    for _ in range(2):
        home.settle({"HOME": str(person.parent)})

    ours = home.folder / ".gemini"
    assert (ours / "oauth_creds.json").resolve() == person / "oauth_creds.json"
    assert not (ours / "tmp").exists()
    assert not (ours / "settings.json").is_symlink()
    assert (ours / "settings.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((ours / "settings.json").read_text()) == {
        "security": {"auth": "x//y"},
        "general": {"vimMode": True, "sessionRetention": {"enabled": False}, "maxAttempts": 1},
    }


def settled(tmp_path: Path, settings: str | None, **how: Any) -> str:
    """Return the settings that Gemini CLI gets for these of its user, if there are any."""
    (tmp_path / ".gemini").mkdir()
    if settings is not None:
        (tmp_path / ".gemini" / "settings.json").write_text(settings)

    home = Home(tmp_path / "homes", "lines", "GEMINI_CLI_HOME")
    home.settle({"HOME": str(tmp_path)}, **how)
    return (home.folder / ".gemini" / "settings.json").read_text()


@pytest.mark.parametrize(("asks", "tools"), [(True, {"shell": 1}), (False, None)])
def test_settings_let_no_tool_pass_of_who_has_to_ask(tmp_path, asks, tools) -> None:
    """Where the agent has to ask, the user's own list of allowed tools is not copied."""
    settings = {"tools": {"allowed": ["write_file"], "shell": 1}}
    copied = json.loads(settled(tmp_path, json.dumps(settings), asks=asks))
    assert copied["tools"] == (tools or settings["tools"])


@pytest.mark.parametrize("settings", ["{broken", "[1]", '{"general": 3}'])
def test_broken_settings_are_left_for_gemini_cli_to_report(tmp_path, settings) -> None:
    """Broken settings are copied unchanged."""
    assert settled(tmp_path, settings) == settings


def test_without_settings_those_that_are_needed_are_written(tmp_path) -> None:
    """Sessions are not removed, and only Hankweave tries again."""
    written = {"sessionRetention": {"enabled": False}, "maxAttempts": 1}
    assert json.loads(settled(tmp_path, None)) == {"general": written}


def test_gemini_cli_may_read_the_data_outside_of_the_work_tree(tmp_path) -> None:
    """Gemini CLI's settings include the data directory after the user's own directories."""
    settings = {"context": {"includeDirectories": ["/own"], "fileName": "NOTES.md"}}
    copied = json.loads(settled(tmp_path, json.dumps(settings), data="/some/data"))
    assert copied["context"] == {
        "includeDirectories": ["/own", "/some/data"],
        "fileName": "NOTES.md",
    }


def test_a_home_may_be_the_persons_own(tmp_path: Path) -> None:
    """A nested server recognises its own links and makes no links to them."""
    home = Home(tmp_path, "lines", "GEMINI_CLI_HOME")
    home.settle({"HOME": os.fspath(tmp_path)})
    home.settle({"GEMINI_CLI_HOME": os.fspath(tmp_path)})
    assert sorted(path.name for path in (tmp_path / ".gemini").iterdir()) == ["settings.json"]
