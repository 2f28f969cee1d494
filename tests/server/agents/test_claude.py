"""The claude adapter, tested with a stand-in of the same name that echoes its input."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from hankweave_server.agents.base import (
    GO_ON,
    AgentNotFound,
    Exited,
    Granted,
    McpServer,
    PermissionAsked,
    ResultReported,
    SessionStarted,
    ToBeAsked,
)
from hankweave_server.agents.claude import ClaudeAgent

# This is not the real program: it needs no model, and echoes arguments, prompt and environment.
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


@pytest.fixture
def given(run_agent, claude):
    """Run a task and return what the stand-in received."""

    async def run(agent: ClaudeAgent, task) -> dict:
        await run_agent(agent, task)
        return json.loads((task.work_tree / "given.json").read_text())

    return run


async def test_claude_gets_its_arguments_and_prompt(a_task, run_agent, claude) -> None:
    """Print mode, stream-json, model and mode on the command line; the prompt on stdin."""
    task = a_task("the prompt")
    run = await run_agent(ClaudeAgent(new_session=lambda: "new"), task)
    given = json.loads((task.work_tree / "given.json").read_text())
    assert given["arguments"] == [
        *("-p", "--output-format", "stream-json", "--verbose"),
        *("--model", "test-model", "--permission-mode", "bypassPermissions"),
        *("--session-id", "new"),
    ]
    assert given["prompt"] == "the prompt"
    assert run.signals == [SessionStarted("s1", "opus")]
    assert run.outcome == Exited(0)


async def test_without_permissions_claude_may_do_everything(a_task, given) -> None:
    """Claude starts in bypass mode, in which no tool call waits for approval; a mode in the hank
    takes precedence."""
    for agent, mode in (
        (ClaudeAgent(), "bypassPermissions"),
        (ClaudeAgent(permission_mode="acceptEdits"), "acceptEdits"),
    ):
        arguments = (await given(agent, a_task()))["arguments"]
        assert arguments[arguments.index("--permission-mode") + 1] == mode


@pytest.mark.parametrize(
    ("user", "mode", "marker"),
    [(0, "bypassPermissions", "1"), (0, "acceptEdits", None), (1000, "bypassPermissions", None)],
)
async def test_root_is_declared_a_sandbox_in_bypass_mode_alone(
    a_task, given, monkeypatch, user, mode, marker
) -> None:
    """Claude Code refuses bypass mode as root unless IS_SANDBOX is 1; for an unprivileged user the
    variable is not set."""
    monkeypatch.setattr("os.getuid", lambda: user)
    found = await given(ClaudeAgent(permission_mode=mode), a_task())
    assert found["environment"].get("IS_SANDBOX") == marker


async def test_the_marker_of_a_sandbox_can_be_taken_away(a_task, given, monkeypatch) -> None:
    """HANKWEAVE_IS_SANDBOX=unset leaves the decision about root to Claude Code."""
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("HANKWEAVE_IS_SANDBOX", "unset")
    assert "IS_SANDBOX" not in (await given(ClaudeAgent(), a_task()))["environment"]


async def test_claude_is_given_the_real_directory_of_the_data(a_task, given, tmp_path) -> None:
    """A data link is resolved; data that is a single file, or missing, adds no directory."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "read_only_data_source"
    link.symlink_to("real")
    added = await arguments_of(a_task(data_dir=link), given)
    assert added[:2] == ["--add-dir", str((tmp_path / "real").resolve())]
    (tmp_path / "rows.json").write_text("[]")
    for name in ("rows.json", "missing"):
        assert "--add-dir" not in await arguments_of(a_task(data_dir=tmp_path / name), given)


async def test_claude_on_bedrock_gets_its_setting_and_the_credentials(
    a_task, given, monkeypatch
) -> None:
    """Amazon's variables of the server's environment reach Claude only for a Bedrock model."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    for on_bedrock, expected in ((True, ("1", "an-id")), (False, (None, None))):
        seen = (await given(ClaudeAgent(on_bedrock=on_bedrock), a_task()))["environment"]
        assert (seen.get("CLAUDE_CODE_USE_BEDROCK"), seen.get("AWS_ACCESS_KEY_ID")) == expected


async def test_claude_resumes_with_a_system_prompt(a_task, given) -> None:
    """Session, system prompt and permission mode are passed on if they are set."""
    task = a_task(resume_session="s1", system_prompt="be brief")
    found = await given(ClaudeAgent(permission_mode="bypassPermissions"), task)
    assert found["arguments"][6:] == [
        *("--permission-mode", "bypassPermissions"),
        *("--resume", "s1", "--append-system-prompt", "be brief"),
    ]


async def arguments_of(task, given, **fields) -> list[str]:
    found = await given(ClaudeAgent(new_session=lambda: "new", **fields), task)
    return found["arguments"][8:]


async def test_claude_forks_a_session_that_is_not_the_codons_own(a_task, given) -> None:
    """The forked session stays unchanged, so that it can be forked again."""
    task = a_task(resume_session="s1", forks=True)
    assert await arguments_of(task, given) == [
        *("--resume", "s1", "--fork-session", "--session-id", "new")
    ]


@pytest.mark.parametrize("is_known", [True, False])
async def test_claude_forks_at_a_message_that_its_transcript_has(
    a_task, given, tmp_path, is_known
) -> None:
    """Claude refuses to fork at a message its transcript lacks, so it forks at the end instead."""
    home = tmp_path / "home"
    task = a_task(resume_session="s1", forks=True, fork_at="m7")
    (transcript,) = ClaudeAgent(home=home).memory_of("s1", task.work_tree, {})
    transcript.parent.mkdir(parents=True)
    transcript.write_text(json.dumps({"uuid": "m7" if is_known else "m8"}) + "\n")
    at = ["--resume-session-at", "m7"] if is_known else []
    assert await arguments_of(task, given, home=home) == [
        *("--resume", "s1", *at, "--fork-session", "--session-id", "new")
    ]


async def test_claude_goes_on_without_being_prompted_again(a_task, given) -> None:
    """An interrupted session is told only to continue."""
    task = a_task("the prompt", resume_session="s1", forks=True, continues=True)
    assert (await given(ClaudeAgent(), task))["prompt"] == GO_ON


async def test_claude_receives_the_budget_of_its_codon(a_task, given) -> None:
    """The budget is passed in dollars and never rounded down to zero."""
    task = a_task(budget_usd=0.00125)
    assert await arguments_of(task, given) == [
        *("--session-id", "new", "--max-budget-usd", "0.001250")
    ]


async def test_claude_keeps_its_conversations_where_configured_and_logs_in_as_the_person(
    a_task, given, tmp_path, monkeypatch
) -> None:
    """The conversation directory is private; the login stays in the user's own configuration."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    home = tmp_path / "homes" / "claude"
    for configured, login in ((None, "/home/me/.claude"), ("/conf", "/conf")):
        if configured is not None:
            monkeypatch.setenv("CLAUDE_CONFIG_DIR", configured)

        task = a_task()
        seen = (await given(ClaudeAgent(home=home), task))["environment"]
        assert seen["CLAUDE_CONFIG_DIR"] == str(home)
        assert seen["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == login

    assert home.stat().st_mode & 0o777 == 0o700
    (transcript,) = ClaudeAgent(home=home).memory_of("s1", task.work_tree, {})
    assert transcript.is_relative_to(home)
    (chosen,) = ClaudeAgent(home=home).memory_of(
        "s1", task.work_tree, {"CLAUDE_CONFIG_DIR": "/conf"}
    )
    assert chosen.is_relative_to("/conf")


async def test_claude_is_offered_servers_of_tools(a_task, given) -> None:
    """The codon's MCP servers are the only ones, ready from the first turn, and need no
    approval."""
    server = McpServer("hankweave", ("py", "-I", "mcp"), {"HANKWEAVE_CODON_ID": "one"})
    found = await given(ClaudeAgent(), a_task(tools=(server,)))
    option, config, *others = found["arguments"][-5:]
    assert option == "--mcp-config"
    assert json.loads(config)["mcpServers"]["hankweave"] == {
        "type": "stdio",
        "command": "py",
        "args": ["-I", "mcp"],
        "env": {"HANKWEAVE_CODON_ID": "one"},
        "alwaysLoad": True,
    }
    assert others == ["--strict-mcp-config", "--allowedTools", "mcp__hankweave__*"]


# This is not the real program: it asks as Claude Code does with the hook, and echoes the answer.
ASKING = f"""#!{sys.executable} -IS
import json, sys
def emit(message): print(json.dumps(message), flush=True)
emit({{"type": "system", "subtype": "init", "session_id": "s1", "model": "opus"}})
given = [json.loads(sys.stdin.readline()) for _ in range(2)]
request = {{"subtype": "hook_callback", "callback_id": "before-tool",
            "input": {{"tool_name": "Write", "tool_input": {{"file_path": "a"}}}}}}
emit({{"type": "control_request", "request_id": "r1", "request": request}})
given.append(json.loads(sys.stdin.readline()))
emit({{"type": "result", "subtype": "success", "is_error": False, "result": ""}})
given.append(sys.stdin.read())
with open("given.json", "w") as file:
    json.dump([sys.argv[1:], *given], file)
"""


async def test_claude_waits_for_our_answer_before_a_tool(a_task, converse, claude) -> None:
    """Claude registers the hook, gets the prompt and the answer, and then stdin closes."""
    claude.write_text(ASKING)
    task = a_task("the prompt")
    agent = ClaudeAgent(asks_first=True, new_session=lambda: "new")
    run = await converse(agent, task, Granted())
    assert run.outcome == Exited(0)
    asked = PermissionAsked("r1", "Write", {"file_path": "a"}, by_hook=True)
    assert run.signals[:2] == [SessionStarted("s1", "opus"), asked]
    assert isinstance(run.signals[2], ResultReported)
    arguments, hooks, prompt, answer, rest = json.loads((task.work_tree / "given.json").read_text())
    assert arguments[4:] == [
        *("--model", "test-model", "--permission-mode", "bypassPermissions"),
        *("--input-format", "stream-json", "--session-id", "new"),
    ]
    assert hooks["request"]["hooks"]["PreToolUse"][0]["hookCallbackIds"] == ["before-tool"]
    assert prompt["message"] == {"role": "user", "content": "the prompt"}
    assert answer["response"] == {"subtype": "success", "request_id": "r1", "response": {}}
    assert rest == ""


async def test_claude_asks_us_for_everything_where_a_codon_has_permissions(
    a_task, converse, claude
) -> None:
    """Claude asks over stdin, in its default mode whatever the hank's mode, with a hook for every
    tool; for a tool that changes files the hook demands permission."""
    claude.write_text(ASKING)
    task = a_task("the prompt", asks=True)
    agent = ClaudeAgent(permission_mode="bypassPermissions", new_session=lambda: "new")
    await converse(agent, task, ToBeAsked())
    arguments, hooks, _, answer, _ = json.loads((task.work_tree / "given.json").read_text())
    assert arguments[4:] == [
        *("--model", "test-model", "--permission-mode", "default"),
        *("--input-format", "stream-json", "--permission-prompt-tool", "stdio"),
        *("--session-id", "new"),
    ]
    assert hooks["request"]["hooks"]["PreToolUse"][0]["matcher"] == "*"
    assert answer["response"]["response"] == {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}
    }


def test_claude_names_the_transcript_of_a_session(tmp_path, monkeypatch) -> None:
    """It is in the configuration directory for the work tree; the codon's variables win."""
    tree = tmp_path / "a b" / "agentRoot"
    tree.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tree)
    folder = "".join(c if c.isalnum() else "-" for c in os.path.realpath(tree))
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("HANKWEAVE_CLAUDE_CONFIG_DIR", raising=False)
    for environment, home in (
        ({}, "/home/me/.claude"),
        ({"HOME": "/other"}, "/other/.claude"),
        ({"CLAUDE_CONFIG_DIR": "/conf"}, "/conf"),
    ):
        expected = (Path(home, "projects", folder, "s1.jsonl"),)
        assert ClaudeAgent().memory_of("s1", link, environment) == expected

    monkeypatch.setenv("HANKWEAVE_CLAUDE_CONFIG_DIR", "/ours")
    (found,) = ClaudeAgent().memory_of("s1", tree, {})
    assert found.is_relative_to("/ours")
    for forged in ("", "..", "../s1", "a/b", "a\0b", "x" * 200):
        assert ClaudeAgent().memory_of(forged, tree, {}) == ()


def test_claudes_transcript_is_found_below_a_folder_with_a_shortened_name(tmp_path) -> None:
    """For a long path, Claude Code keeps 200 characters and appends a hash of its own."""
    tree = tmp_path / ("x" * 150) / ("y" * 150)
    tree.mkdir(parents=True)
    short = "".join(c if c.isalnum() else "-" for c in os.path.realpath(tree))[:200]
    transcript = tmp_path / "conf" / "projects" / f"{short}-1a2b3c" / "s1.jsonl"
    agent, environment = ClaudeAgent(), {"CLAUDE_CONFIG_DIR": str(tmp_path / "conf")}
    assert agent.memory_of("s1", tree, environment) == ()
    transcript.parent.mkdir(parents=True)
    transcript.touch()
    assert agent.memory_of("s1", tree, environment) == (transcript,)
    assert agent.memory_of("s2", tree, environment) == ()


async def test_claude_alone_sees_its_keys_and_is_quiet(a_task, given, monkeypatch) -> None:
    """ANTHROPIC_… and CLAUDE_CODE_… are passed on, other secrets are not, and telemetry is off."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/config")
    seen = (await given(ClaudeAgent(), a_task()))["environment"]
    assert seen["ANTHROPIC_API_KEY"] == "key"
    assert seen["CLAUDE_CODE_USE_BEDROCK"] == seen["DISABLE_TELEMETRY"] == "1"
    assert not {"OPENAI_API_KEY", "CLAUDE_CONFIG_DIR"} & seen.keys()


async def test_a_missing_claude_says_how_to_get_it(a_task, monkeypatch, tmp_path) -> None:
    """Without the program the error has a hint on how to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentNotFound, match="claude") as caught:
        async with ClaudeAgent().start(a_task()):
            pass

    assert "npm install" in caught.value.hint
