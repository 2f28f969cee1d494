"""Claims about `hankweave agents`: the real console entry, with stand-ins for the real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hankweave_protocol.state import Tokens
from hankweave_server.agents import inventory
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.price_files import PACKAGED, load_prices
from support.running_server import command, environment
from support.waiting import LIMIT

SECRET = "sk-nobody-may-see-this"

# A stand-in for the real program: it prints a version, and does what its own file says.
CODEX = f"""#!{sys.executable} -IS
import json, sys
if "--version" in sys.argv:
    print("codex-cli 7.8.9-beta.1")
    sys.exit()
sys.stdin.read()
def emit(**event): print(json.dumps(event), flush=True)
emit(type="thread.started", thread_id="t1")
{{action}}
"""
WRITES = """
open("hello.txt", "w").write("hello\\n")
emit(type="item.completed", item={"id": "i", "type": "command_execution", "command": "echo"})
emit(type="item.completed", item={"id": "j", "type": "agent_message", "text": "done"})
emit(type="turn.completed", usage={"input_tokens": 1000, "cached_input_tokens": 400,
                                   "output_tokens": 100})
"""
LIES = WRITES.replace('open("hello.txt", "w")', 'open("other.txt", "w")')
FAILS = """
emit(type="turn.failed", error={"message": "exceeded retry limit, last status: 429"})
sys.exit(1)
"""
CRASHES = """
print("it is broken", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def agents(tmp_path: Path, programs: Path):
    """Run the command with only stand-ins on the PATH."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        known = {name for each in BY_NAME for name in inventory.known_of(each).keys}
        clean = {k: v for k, v in environment().items() if k not in known and k != "CODEX_HOME"}
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        clean["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, paths)))
        clean |= {"PATH": str(programs), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        return subprocess.run(
            command("agents", *words),
            env=clean | env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return run


def install(folder: Path, name: str, source: str) -> Path:
    program = folder / name
    program.write_text(source)
    program.chmod(0o755)
    return program


def codex(folder: Path, action: str) -> Path:
    return install(folder, "codex", CODEX.replace("{action}", action))


@pytest.mark.story(
    "`agents` lists the installed agents with their versions and whether they are logged in."
)
def test_agents_are_listed_with_version_path_and_login(agents, programs, tmp_path) -> None:
    """Installed agents have path and login, others how to install them; no key is printed."""
    path = codex(programs, WRITES)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": SECRET}))
    listed = agents("--json", OPENAI_API_KEY=SECRET, HANKWEAVE_GEMINI_API_KEY=SECRET)
    assert listed.returncode == 0, listed.stderr
    found = {each["name"]: each for each in json.loads(listed.stdout)}
    assert found.keys() == BY_NAME.keys()
    assert found["codex"]["path"] == str(path)
    assert found["codex"]["version"] == "7.8.9-beta.1"
    assert found["codex"]["loggedInBy"] == ["OPENAI_API_KEY", "~/.codex/auth.json"]
    assert found["gemini"]["loggedInBy"] == ["GEMINI_API_KEY"]
    assert found["gemini"]["path"] is found["gemini"]["version"] is None
    assert found["gemini"]["command"] == ["gemini", "--acp"]
    assert "npm install" in found["claude"]["install"]
    assert found["scripted"]["version"]
    assert found["scripted"]["lookedFor"] == []
    plain = agents(OPENAI_API_KEY=SECRET)
    lines = {line.split()[0]: line for line in plain.stdout.splitlines()}
    assert "7.8.9-beta.1" in lines["codex"]
    assert "OPENAI_API_KEY" in lines["codex"]
    assert "not installed: npm install" in lines["claude"]
    assert "not found: set ANTHROPIC_API_KEY" in lines["claude"]
    assert "not needed" in lines["scripted"]
    for output in (listed, plain):
        assert SECRET not in output.stdout + output.stderr


def test_an_acp_agent_of_ones_own_is_listed_by_its_command(agents, programs) -> None:
    """An ACP agent has its program's name, with its arguments; an invalid command is refused."""
    path = install(programs, "goose", "#!/bin/sh\necho goose 1.2\n")
    listed = agents("--json", "--acp", f"{path} acp 'a b'")
    found = json.loads(listed.stdout)[-1]
    assert (found["name"], found["kind"], found["version"]) == ("goose", "acp", "1.2")
    assert found["command"] == [str(path), "acp", "a b"]
    for wrong in ("", "'"):
        assert agents("--acp", wrong).returncode == 2


def test_a_program_that_prints_no_version_is_listed_with_the_reason(agents, programs) -> None:
    """Programs that fail, print something else, or cannot run are listed with the reason."""
    install(programs, "claude", "#!/bin/sh\nexit 4\n")
    install(programs, "codex", "#!/bin/sh\necho nothing\n")
    install(programs, "gemini", "#!/nowhere/at-all\n")
    found = {each["name"]: each for each in json.loads(agents("--json").stdout)}
    assert found["claude"]["complaint"] == "--version exited with 4 and printed no version"
    assert found["codex"]["complaint"] == "--version exited with 0 and printed no version"
    assert "cannot be run" in found["gemini"]["complaint"]
    assert {found[name]["version"] for name in ("claude", "codex", "gemini")} == {None}


def test_a_program_that_hangs_is_given_up_with_all_it_has_started(
    programs, tmp_path, monkeypatch
) -> None:
    """A child that holds the pipe open is killed with its parent."""
    mark = tmp_path / "pid"
    install(programs, "codex", f"#!/bin/sh\n/bin/sleep 600 &\necho $! > {mark}\nwait\n")
    monkeypatch.setattr(inventory, "VERSION_DEADLINE", 0.5)
    monkeypatch.setenv("PATH", str(programs))
    found = inventory.find_agent("codex", BY_NAME["codex"])
    assert found.version is None
    assert "within" in str(found.complaint)
    assert is_over(int(mark.read_text()))


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_self_test_does_a_real_turn_and_says_what_it_cost(agents, programs, tmp_path) -> None:
    """A warning about the cost comes first; the temporary directory is gone afterwards."""
    codex(programs, WRITES)
    done = agents("--test", "codex", "--model", "gpt-6-luna", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is report["fileWritten"] is True
    assert (report["name"], report["model"], report["sessionId"]) == ("codex", "gpt-6-luna", "t1")
    assert (report["said"], report["tools"]) == ("done", ["Bash"])
    assert report["tokens"] == {
        "inputTokens": 600,
        "outputTokens": 100,
        "cacheCreationTokens": 0,
        "cacheReadTokens": 400,
    }
    assert report["cost"] == pytest.approx((600 * 0.1 + 400 * 0.01 + 100 * 0.5) / 1e6)
    assert report["failure"] is None
    assert "may charge" in done.stderr
    assert not list(tmp_path.glob("hankweave-*"))
    plain = agents("--test", "codex", "--model", "a-new-one")
    assert plain.returncode == 0
    assert plain.stdout.startswith("codex works")
    assert "1000 in, 100 out; cost: not known" in plain.stdout


@pytest.mark.parametrize(
    ("action", "why", "retriable"),
    [
        (FAILS, "429", True),
        (LIES, "hello.txt is missing", True),
        (CRASHES, "it is broken", True),
    ],
)
def test_a_self_test_that_fails_says_why(agents, programs, action, why, retriable) -> None:
    """The exit code is 1; the output has the agent's own message and whether a retry may help."""
    codex(programs, action)
    done = agents("--test", "codex", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["passed"]
    assert why in report["failure"]["message"]
    assert report["failure"]["retriable"] is retriable
    plain = agents("--test", "codex")
    assert plain.returncode == 1
    assert "failed" in plain.stdout
    assert why in plain.stdout


def test_the_scripted_agent_passes_its_self_test_and_costs_nothing(agents) -> None:
    """The scripted agent is built in: nothing is installed, and no warning is shown."""
    done = agents("--test", "scripted", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tools"] == ["Write"]
    assert done.stderr == ""


def test_without_a_name_every_installed_agent_is_tested(agents, programs) -> None:
    """Every installed agent has a report, and a failure of one stops no other.

    An agent that fails, or cannot be started, fails the command. Where none is installed the exit
    code is 69.
    """
    none = agents("--test")
    assert none.returncode == 69
    assert "None of claude, codex" in none.stderr
    codex(programs, WRITES)
    alone = agents("--test", "--json")
    assert alone.returncode == 0, alone.stderr
    (report,) = json.loads(alone.stdout)
    assert (report["name"], report["passed"]) == ("codex", True)
    (programs / "claude").write_bytes(b"\x7fELF is what it says")
    (programs / "claude").chmod(0o755)
    both = agents("--test")
    assert both.returncode == 1
    assert "claude failed" in both.stdout
    assert "codex works" in both.stdout
    assert agents("--test", "--model", "x").returncode == 2


def test_an_agent_that_is_not_there_cannot_be_tested(agents) -> None:
    """The exit code is 69 for an agent that is not installed, and 2 for an unknown name."""
    missing = agents("--test", "codex")
    assert missing.returncode == 69
    assert "npm install -g @openai/codex" in missing.stderr
    unknown = agents("--test", "nobody")
    assert unknown.returncode == 2
    assert "scripted" in unknown.stderr
    assert agents("--model", "x").returncode == 2


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna"),
        *("gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5"),
    ],
)
def test_models_that_codex_offers_have_a_price(model: str) -> None:
    """Codex does not report costs; `codex debug models` lists the models it offers."""
    prices = load_prices(PACKAGED, PACKAGED)
    tokens = Tokens(input_tokens=1, output_tokens=0, cache_creation_tokens=0, cache_read_tokens=0)
    assert (prices.price_of(model, tokens) or 0) > 0
