"""The claude adapter, with a stand-in of the same name that shows what it was given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hankweave_server.agents.base import AgentNotFound, Exited, SessionStarted
from hankweave_server.agents.claude import ClaudeAgent

# Not the real program: it needs no model, and echoes arguments, prompt and environment.
STAND_IN = f"""#!{sys.executable} -IS
import json, os, sys
print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s1", "model": "opus"}}))
given = {{"arguments": sys.argv[1:], "prompt": sys.stdin.read(), "environment": dict(os.environ)}}
with open("given.json", "w") as file:
    json.dump(given, file)
"""


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


async def test_claude_gets_its_arguments_and_prompt(a_task, hear, claude) -> None:
    """Print mode, stream-json, model and mode on the command line; the prompt on stdin."""
    task = a_task("the prompt")
    heard = await hear(ClaudeAgent(), task)
    given = json.loads((task.work_tree / "given.json").read_text())
    assert given["arguments"] == [
        *("-p", "--output-format", "stream-json", "--verbose"),
        *("--model", "test-model", "--permission-mode", "acceptEdits"),
    ]
    assert given["prompt"] == "the prompt"
    assert heard.signals == [SessionStarted("s1", "opus")]
    assert heard.outcome == Exited(0)


async def test_claude_resumes_with_a_system_prompt(a_task, hear, claude) -> None:
    """Session, system prompt and permission mode are handed on when they are given."""
    task = a_task(resume_session="s1", system_prompt="be brief")
    await hear(ClaudeAgent(permission_mode="bypassPermissions"), task)
    given = json.loads((task.work_tree / "given.json").read_text())
    assert given["arguments"][6:] == [
        *("--permission-mode", "bypassPermissions"),
        *("--resume", "s1", "--append-system-prompt", "be brief"),
    ]


async def test_claude_alone_sees_its_keys_and_is_quiet(a_task, hear, claude, monkeypatch) -> None:
    """ANTHROPIC_… and CLAUDE_CODE_… are handed on, other secrets are not, telemetry is off."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/config")
    task = a_task()
    await hear(ClaudeAgent(), task)
    seen = json.loads((task.work_tree / "given.json").read_text())["environment"]
    assert seen["ANTHROPIC_API_KEY"] == "key"
    assert seen["CLAUDE_CODE_USE_BEDROCK"] == seen["DISABLE_TELEMETRY"] == "1"
    assert not {"OPENAI_API_KEY", "CLAUDE_CONFIG_DIR"} & seen.keys()


async def test_a_missing_claude_says_how_to_get_it(a_task, monkeypatch, tmp_path) -> None:
    """Without the program there is an error with a hint."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentNotFound, match="claude") as caught:
        async with ClaudeAgent().start(a_task()):
            pass

    assert "npm install" in caught.value.hint
