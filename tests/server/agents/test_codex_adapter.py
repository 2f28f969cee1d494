"""The codex adapter, tested with a stand-in of the same name that echoes its input."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from hankweave_server.agents.base import (
    AgentNotFound,
    AgentSaid,
    AgentStartFailed,
    Exited,
    McpServer,
    ResultReported,
    SessionStarted,
)
from hankweave_server.agents.codex.adapter import CodexAgent
from support.token_counts import counts

THREAD = "01a1ff2d-fb37-7402-b046-000000000001"

# This is not the real program: it needs no model, and stores arguments, prompt and environment.
# Like the real one it makes sandbox directories in the work tree, and is ended before it removes
# them.
STAND_IN = f"""#!{sys.executable} -IS
import json, os, sys
given = {{"arguments": sys.argv[1:], "prompt": sys.stdin.read(), "environment": dict(os.environ)}}
with open("given.json", "w") as file:
    json.dump(given, file)
for name in (".git", ".codex", ".aws", ".agents"):
    os.makedirs(name, exist_ok=True)
open(".agents/kept", "w").close()
def emit(**event): print(json.dumps(event), flush=True)
emit(type="thread.started", thread_id="{THREAD}")
emit(type="item.completed", item={{"id": "item_0", "type": "agent_message", "text": "Hello"}})
emit(type="turn.completed", usage={{"input_tokens": 100, "output_tokens": 5}})
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "homes" / "codex"


@pytest.fixture
def person(tmp_path: Path) -> Path:
    return tmp_path / "person"


@pytest.fixture
def codex(tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("HOME", str(person))
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "CODEX_"))]:
        monkeypatch.delenv(name)

    return program


@pytest.fixture
def given(run_agent, codex):
    """Run a task and return what the stand-in received."""

    async def run(agent: CodexAgent, task) -> dict:
        done = await run_agent(agent, task)
        assert done.outcome == Exited(0)
        return json.loads((task.work_tree / "given.json").read_text())

    return run


def settings(arguments: list[str]) -> dict:
    """Return the `-c` options parsed as TOML."""
    given = [value for flag, value in pairwise(arguments) if flag == "-c"]
    merged: dict = {}
    for each in given:
        name, _, value = each.partition("=")
        merged[name] = tomllib.loads(f"x = {value}")["x"]

    return merged


async def test_codex_gets_its_arguments_and_prompt(a_task, run_agent, codex, home) -> None:
    """All options are on the command line, the prompt comes on stdin, and stdin is closed."""
    task = a_task("the prompt", model="gpt-5.4")
    heard = await run_agent(CodexAgent(home=home), task)
    given = json.loads((task.work_tree / "given.json").read_text())
    arguments = given["arguments"]
    assert arguments[:7] == [
        *("exec", "--json", "--skip-git-repo-check"),
        *("--sandbox", "danger-full-access", "--model", "gpt-5.4"),
    ]
    assert arguments[-1] == "-"
    assert given["prompt"] == "the prompt"
    assert heard.of(SessionStarted) == [SessionStarted(THREAD, "gpt-5.4")]
    assert heard.of(AgentSaid) == [AgentSaid("Hello")]
    assert heard.of(ResultReported) == [
        ResultReported(True, "Hello", None, counts(100, 5), None, {})
    ]
    assert heard.outcome == Exited(0)


async def test_codex_is_quiet_and_gives_up_on_a_dead_network(a_task, given, home) -> None:
    """Codex contacts only the model's host, and leaves retries to the hank."""
    found = settings((await given(CodexAgent(home=home), a_task()))["arguments"])
    assert found == {
        "analytics.enabled": False,
        "check_for_update_on_startup": False,
        "features.apps": False,
        "features.plugins": False,
        "features.unbounded_connection_retries": False,
    }


async def test_codex_waits_for_us_before_each_tool_by_a_hook(a_task, given, home) -> None:
    """Every tool call runs a hook that asks on a socket, which is removed with the agent."""
    task = a_task()
    arguments = (await given(CodexAgent(home=home, asks_first=True), task))["arguments"]
    assert "--dangerously-bypass-hook-trust" in arguments
    (group,) = settings(arguments)["hooks.PreToolUse"]
    assert group["matcher"] == "*"
    (hook,) = group["hooks"]
    assert (hook["type"], hook["timeout"]) == ("command", 600)
    place = Path(shlex.split(hook["command"])[-1])
    assert place.parent == task.processes_dir
    assert not place.exists()


async def test_codex_with_a_persons_home_gets_no_hook_and_trusts_none(
    a_task, given, home, tmp_path
) -> None:
    """Hooks in a user's home may never have been approved, and the flag would run them."""
    environment = {"CODEX_HOME": str(tmp_path / "own")}
    for agent, task in (
        (CodexAgent(home=home, asks_first=True), a_task(environment=environment)),
        (CodexAgent(asks_first=True), a_task()),
        (CodexAgent(home=home), a_task()),
    ):
        arguments = (await given(agent, task))["arguments"]
        assert "--dangerously-bypass-hook-trust" not in arguments
        assert "hooks.PreToolUse" not in settings(arguments)


async def test_codex_gets_what_the_hank_asks_for(a_task, given, home) -> None:
    """Sandbox, settings, system prompt and MCP servers are set; any text survives TOML encoding."""
    system_prompt = 'Say "yes",\n\tthen \\ é 😀 \x7f \x01.'
    server = McpServer("ours", ("/bin/x", 'a "b"'), {"TOKEN.FILE": "/t"})
    task = a_task(system_prompt=system_prompt, tools=(server,))
    agent = CodexAgent(sandbox="read-only", config={"model_reasoning_effort": '"high"'}, home=home)
    arguments = (await given(agent, task))["arguments"]
    assert arguments[3:5] == ["--sandbox", "read-only"]
    found = settings(arguments)
    assert found["developer_instructions"] == system_prompt
    assert found["model_reasoning_effort"] == "high"
    assert found["mcp_servers.ours"] == {
        "command": "/bin/x",
        "args": ['a "b"'],
        "env": {"TOKEN.FILE": "/t"},
        "required": True,
        "default_tools_approval_mode": "approve",
    }


async def test_codex_resumes_a_thread(a_task, given, home) -> None:
    """The thread id comes after all options; changed instructions precede the prompt.

    Codex uses `developer_instructions` only when a thread starts.
    """
    rollout = home / "sessions" / f"rollout-x-{THREAD}.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.write_text('{"payload":{"text":"Be \\"brief\\"."}}\n')
    for system_prompt, prompt in (
        (None, "go on"),
        ('Be "brief".', "go on"),
        ("Be loud.", "Be loud.\n\ngo on"),
    ):
        task = a_task("go on", resume_session=THREAD, system_prompt=system_prompt)
        found = await given(CodexAgent(home=home), task)
        assert found["arguments"][-3:] == ["resume", THREAD, "-"]
        assert found["prompt"] == prompt
        assert "developer_instructions" not in settings(found["arguments"])


async def test_codex_keeps_its_conversations_in_its_own_home(
    a_task, given, home, person, monkeypatch
) -> None:
    """The home is a private directory of the execution; the user's home is not read."""
    monkeypatch.setenv("CODEX_HOME", str(person / "theirs"))
    monkeypatch.setenv("CODEX_SQLITE_HOME", str(person / "theirs"))
    found = await given(CodexAgent(home=home), a_task())
    assert found["environment"]["CODEX_HOME"] == str(home)
    assert "CODEX_SQLITE_HOME" not in found["environment"]
    assert home.stat().st_mode & 0o777 == home.parent.stat().st_mode & 0o777 == 0o700
    assert list(home.iterdir()) == []


async def test_codex_finds_the_persons_login_through_a_link(
    a_task, given, home, person, monkeypatch
) -> None:
    """The secret is not copied; a link with a wrong or missing target is replaced."""
    first, second = person / ".codex" / "auth.json", person / "theirs" / "auth.json"
    for login in (first, second):
        login.parent.mkdir(parents=True)
        login.write_text("{}")

    link = home / "auth.json"
    await given(CodexAgent(home=home), a_task())
    assert link.readlink() == first
    monkeypatch.setenv("CODEX_HOME", str(second.parent))
    for _ in range(2):
        await given(CodexAgent(home=home), a_task())
        assert link.readlink() == second

    second.unlink()
    await given(CodexAgent(home=home), a_task())
    assert not link.is_symlink()
    link.write_text("{own}")
    monkeypatch.delenv("CODEX_HOME")
    await given(CodexAgent(home=home), a_task())
    assert link.read_text() == "{own}"


async def test_a_codons_own_home_is_left_as_it_is(a_task, given, home, person, tmp_path) -> None:
    """A home in the codon's `env` takes precedence, and conversations are looked up there."""
    own = tmp_path / "own"
    (person / ".codex").mkdir(parents=True)
    (person / ".codex" / "auth.json").touch()
    environment = {"CODEX_HOME": str(own)}
    found = await given(CodexAgent(home=home), a_task(environment=environment))
    assert found["environment"]["CODEX_HOME"] == str(own)
    assert not own.exists()
    assert not home.exists()
    for agent, seen, expected in (
        (CodexAgent(home=home), {}, home),
        (CodexAgent(home=home), environment, own),
        (CodexAgent(), {}, person / ".codex"),
    ):
        paths = agent.memory_of(THREAD, tmp_path, seen)
        assert paths
        assert all(path.is_relative_to(expected) for path in paths)


async def test_codex_alone_sees_its_keys(a_task, given, home, monkeypatch) -> None:
    """OPENAI_… and CODEX_… are passed on, other secrets are not, and Codex's commands see none."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("CODEX_CA_CERTIFICATE", "/ca")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "other")
    found = await given(CodexAgent(home=home), a_task())
    seen = found["environment"]
    assert seen["OPENAI_API_KEY"] == seen["CODEX_API_KEY"] == "key"
    assert seen["CODEX_CA_CERTIFICATE"] == "/ca"
    assert "ANTHROPIC_API_KEY" not in seen
    hidden = settings(found["arguments"])["shell_environment_policy.exclude"]
    assert hidden == ["CODEX_API_KEY", "CODEX_CA_CERTIFICATE", "OPENAI_API_KEY"]
    assert not any(argument == "key" for argument in found["arguments"])


@pytest.mark.parametrize(
    ("server", "codon", "has_login", "used"),
    [
        ({"OPENAI_API_KEY": "a"}, {}, False, "a"),
        ({"OPENAI_API_KEY": "a"}, {}, True, None),
        ({"OPENAI_API_KEY": "a", "CODEX_API_KEY": "b"}, {}, True, "b"),
        ({"OPENAI_API_KEY": "a"}, {"OPENAI_API_KEY": "c"}, True, "c"),
        ({"OPENAI_API_KEY": "a", "CODEX_ACCESS_TOKEN": "t"}, {}, False, None),
        ({}, {}, False, None),
    ],
)
async def test_codex_uses_the_key_that_was_meant(
    a_task, given, home, person, monkeypatch, server, codon, has_login, used
) -> None:
    """Codex itself ignores OPENAI_API_KEY; a login is preferred to the server's."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)

    if has_login:
        (person / ".codex").mkdir(parents=True)
        (person / ".codex" / "auth.json").touch()

    found = await given(CodexAgent(home=home), a_task(environment=codon))
    assert found["environment"].get("CODEX_API_KEY") == used


async def test_codex_calls_the_endpoint_of_the_environment(
    a_task, given, home, monkeypatch
) -> None:
    """Codex ignores OPENAI_BASE_URL by itself; the hank's setting takes precedence over it."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://one/v1")
    for environment, config, expected in (
        ({}, {}, "http://one/v1"),
        ({"OPENAI_BASE_URL": "http://two/v1"}, {}, "http://two/v1"),
        ({}, {"openai_base_url": '"http://three/v1"'}, "http://three/v1"),
    ):
        agent = CodexAgent(home=home, config=config)
        found = await given(agent, a_task(environment=environment))
        assert settings(found["arguments"])["openai_base_url"] == expected


async def test_what_codexs_sandbox_leaves_behind_is_removed(a_task, given, home) -> None:
    """New empty directories are removed; existing ones and those with contents stay."""
    task = a_task()
    (task.work_tree / ".aws").mkdir()
    await given(CodexAgent(home=home), task)
    left = {path.name for path in task.work_tree.iterdir()}
    assert left == {".agents", ".aws", "given.json"}


async def test_a_home_that_cannot_be_made_fails_the_codon_alone(a_task, codex, tmp_path) -> None:
    """A home that cannot be created fails the codon and not the server."""
    (tmp_path / "file").touch()
    with pytest.raises(AgentStartFailed, match="could not be prepared") as caught:
        async with CodexAgent(home=tmp_path / "file" / "codex").start(a_task()):
            pass

    assert "belong to another user" in caught.value.hint


@pytest.mark.parametrize("place", ["~nobody-of-this-name/codex", "/" + "x" * 300])
async def test_a_wrong_home_is_left_for_codex_to_report(
    a_task, given, home, place, tmp_path
) -> None:
    """A home in a codon's `env` that does not work gives no login and no stored conversation."""
    environment = {"CODEX_HOME": place}
    found = await given(CodexAgent(home=home), a_task(environment=environment))
    assert found["environment"]["CODEX_HOME"] == place
    assert CodexAgent(home=home).memory_of("no-thread", tmp_path, environment) == ()


async def test_a_missing_codex_says_how_to_get_it(a_task, codex, home, monkeypatch) -> None:
    """Without the program the error has a hint on how to install it."""
    codex.unlink()
    with pytest.raises(AgentNotFound, match="codex") as caught:
        async with CodexAgent(home=home).start(a_task()):
            pass

    assert "npm install" in caught.value.hint
