"""Problems that would stop an agent are found before anything runs, with stand-ins on the PATH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.hank import Codon
from hankweave_server.agents.base import AgentNotFound
from hankweave_server.agents.preflight import AgentCheck, check_agents
from hankweave_server.agents.registry import AgentSelector

VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
    *("CLAUDE_CONFIG_DIR", "CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_HOME"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GEMINI_CLI_HOME"),
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty directory the whole PATH, empty HOME, and remove all keys."""
    folder, home = tmp_path / "bin", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sys.platform", "linux")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"HANKWEAVE_{name}", raising=False)

    return folder


def install(programs: Path, name: str, version: str = "99.1.2") -> None:
    program = programs / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)


def codon(name: str = "one", **fields: Any) -> Codon:
    given = {"id": name, "name": name, "model": "sonnet", "continuationMode": "fresh"}
    return msgspec.convert({**given, "promptText": "p", **fields}, Codon)


def checked(*codons: Codon, agent: str | None = None, model: str | None = None) -> list[AgentCheck]:
    selector = AgentSelector(
        chosen=agent,
        hank_directory=Path("/hank"),
        sessions=Path("/x"),
        homes=Path("/x"),
        asks_first=False,
        model=model,
    )
    return list(check_agents(codons, selector, None))


def faults(*codons: Codon, **choice: str) -> list[str]:
    return [fault.message for check in checked(*codons, **choice) for fault in check.faults]


def test_an_agent_with_its_program_and_a_key_is_ready(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version and the name of the login are reported, never the key itself."""
    install(programs, "claude", "2.1.329 (Claude Code)")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    (check,) = checked(codon("one"), codon("two"))
    assert (check.agent, check.model, check.codons) == ("claude", "sonnet", ("one", "two"))
    assert (check.version, check.path) == ("2.1.329", str(programs / "claude"))
    assert check.logged_in_by == ("ANTHROPIC_API_KEY",)
    assert (check.faults, check.notes) == ((), ())
    assert b"sk-secret" not in msgspec.json.encode(check)


@pytest.mark.parametrize(
    ("model", "program", "install_hint"),
    [
        ("sonnet", "claude", "npm install -g @anthropic-ai/claude-code"),
        ("gpt-5", "codex", "npm install -g @openai/codex"),
        ("gemini-3-pro", "gemini", "npm install -g @google/gemini-cli"),
        ("opencode/anthropic/x", "opencode", "npm install -g opencode-ai"),
    ],
)
def test_a_program_that_is_missing_is_named_with_how_to_install_it(
    programs: Path, model: str, program: str, install_hint: str
) -> None:
    """A missing program is the only fault reported: without it no login is looked for."""
    (check,) = checked(codon(model=model))
    (fault,) = check.faults
    assert f"is not installed: {program!r} was not found." in fault.message
    assert install_hint in fault.hint


@pytest.mark.parametrize(
    ("model", "program", "key", "login"),
    [
        ("sonnet", "claude", "CLAUDE_CODE_OAUTH_TOKEN", ".claude/.credentials.json"),
        ("gpt-5", "codex", "OPENAI_API_KEY", ".codex/auth.json"),
        ("gemini-3-pro", "gemini", "GEMINI_API_KEY", ".gemini/oauth_creds.json"),
    ],
)
def test_a_key_a_login_or_a_codons_env_is_a_login(
    programs: Path, monkeypatch: pytest.MonkeyPatch, model: str, program: str, key: str, login: str
) -> None:
    """A login can be a server variable, also as HANKWEAVE_X, the codon's `env`, or a file."""
    install(programs, program)
    one = codon(model=model)
    (fault,) = faults(one)
    assert fault.endswith("has no API key and no login here.")
    assert faults(codon(model=model, env={key: "k"})) == []
    with monkeypatch.context() as patch:
        patch.setenv(key, "k")
        assert faults(one) == []

    with monkeypatch.context() as patch:
        patch.setenv(f"HANKWEAVE_{key}", "k")
        assert faults(one) == []

    file = programs.parent / "home" / login
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert faults(one) == []


def test_what_cannot_be_seen_of_a_login_is_noted_and_not_held_against_it(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The macOS keychain, AWS credentials and providers of OpenCode and Codex are only noted."""
    for name in ("claude", "codex", "opencode"):
        install(programs, name)

    provider = {"type": "codex", "config": {"model_provider": '"local"'}}
    unseen = (
        codon("a", model="amazon-bedrock/anthropic.claude-3-haiku-20240307-v1:0"),
        codon("b", model="opencode/big-pickle"),
        codon("c", model="llama", agent=provider),
    )
    checks = checked(*unseen)
    assert [check.faults for check in checks] == [(), (), ()]
    assert [len(check.notes) for check in checks] == [1, 1, 1]
    monkeypatch.setattr("sys.platform", "darwin")
    assert faults(codon()) == []


def test_an_old_version_is_refused(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum version and later pre-releases are accepted."""
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    one = codon(model="gemini-3-pro")
    for version, expected in [
        ("0.32.9", ["Gemini CLI 0.32.9 is too old: 0.33.0 or newer is needed."]),
        ("0.33.0", []),
        ("0.61.0-nightly.20260101", []),
        ("1.0", []),
    ]:
        install(programs, "gemini", version)
        assert faults(one) == expected


def test_an_adapter_needs_the_program_that_it_starts(programs: Path) -> None:
    """Pi speaks ACP through `pi-acp`; the version of `pi` is what counts."""
    one = codon(model="pi/openai/gpt-5.4")
    install(programs, "pi-acp", "0.0.34")
    assert faults(one) == ["Pi is not installed: 'pi' was not found."]
    install(programs, "pi", "0.74.2")
    assert faults(one) == ["Pi 0.74.2 is too old: 0.80.4 or newer is needed."]
    install(programs, "pi", "0.80.4")
    assert faults(one) == []


def test_a_program_that_the_kernel_refuses_is_a_fault(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs but prints no version may still work, so that is only a note."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    install(programs, "claude", "no number")
    (check,) = checked(codon())
    assert (check.faults, len(check.notes)) == ((), 1)
    (programs / "claude").write_bytes(b"\x7fELF is what it says")
    (fault,) = faults(codon())
    assert fault == f"Claude Code cannot be run: Exec format error: {programs / 'claude'}."


def test_a_model_that_nothing_here_runs_is_refused_with_what_to_write(programs: Path) -> None:
    (check,) = checked(codon(model="llama"))
    (fault,) = check.faults
    assert fault.message == "No agent is known to run the model 'llama'."
    assert "opencode/PROVIDER/MODEL" in fault.hint
    (check,) = checked(codon(model="antropic/claude-sonnet-4-5"))
    assert check.faults[0].hint == "Did you mean 'anthropic/claude-sonnet-4-5'?"


def test_a_model_of_another_maker_is_refused_where_the_agent_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of unknown provider is accepted, as is any model behind a custom endpoint."""
    install(programs, "claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    claude = {"type": "claude"}
    assert faults(codon(model="gpt-5", agent=claude)) == [
        "Claude Code does not run the model 'gpt-5'."
    ]
    assert faults(codon(model="gpt-5"), agent="claude") == [
        "Claude Code does not run the model 'gpt-5'."
    ]
    assert faults(codon(model="my-model", agent=claude)) == []
    assert faults(codon(model="gpt-5"), agent="claude", model="haiku") == []
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:4000")
    assert faults(codon(model="gpt-5", agent=claude)) == []


def test_plain_programs_are_searched_for(programs: Path) -> None:
    """Programs are looked up by name or absolute path; a rig may create one in the work tree."""
    install(programs, "there")
    commands = (["there"], [str(programs / "there")], ["./tools/agent"], ["/nowhere/x"], ["gone"])
    checks = [checked(codon(agent={"type": "command", "command": each}))[0] for each in commands]
    assert [[fault.message for fault in check.faults] for check in checks] == [
        [],
        [],
        [],
        ["The program '/nowhere/x' was not found."],
        ["The program 'gone' was not found."],
    ]
    assert checks[2].notes == (
        "./tools/agent will be looked up in the work tree when its codon starts.",
    )
    assert checked(codon(agent={"type": "scripted"}))[0].faults == ()


def test_permissions_that_an_agent_would_not_ask_about_are_a_fault(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex does not ask for permissions, also if the model or the command line selects it."""
    install(programs, "codex")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    denying = {"permissions": {"deny": ["Bash"]}}
    problem = "The hank has permissions, but Codex does not ask for them."
    assert faults(codon(model="gpt-5", **denying)) == [problem]
    assert faults(codon(model="gpt-5", permissions={"otherwise": "allow"})) == []


def test_claude_code_that_would_refuse_to_run_as_root_is_a_fault(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a fault only if the variable that allows root is removed, in the mode that needs it."""
    install(programs, "claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert faults(codon()) == []
    monkeypatch.setenv("HANKWEAVE_IS_SANDBOX", "unset")
    problem = "Claude Code does not bypass permissions as root unless IS_SANDBOX is 1."
    assert faults(codon()) == [problem]
    assert faults(codon(agent={"type": "claude", "permissionMode": "acceptEdits"})) == []
    assert faults(codon(permissions={"deny": ["Bash"]})) == []
    assert faults(codon(env={"IS_SANDBOX": "1"})) == []
    monkeypatch.setattr("os.getuid", lambda: 1000)
    assert faults(codon()) == []


def test_an_installed_agent_without_the_library_of_its_protocol_is_not_called_missing(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is known; the fault says which extra to install. Without either, both are named."""
    missing = AgentNotFound("There is no library.", hint="pip install 'hankweave[acp]'")
    monkeypatch.setattr("hankweave_server.agents.preflight.missing_library", lambda: missing)
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    absent = checked(codon(model="gemini-2.5-flash"))[0]
    assert absent.path is None
    assert len(absent.faults) == 2
    install(programs, "gemini")
    (check,) = checked(codon(model="gemini-2.5-flash"))
    assert (check.path, check.version) == (str(programs / "gemini"), "99.1.2")
    assert [fault.hint for fault in check.faults] == ["pip install 'hankweave[acp]'"]


def test_an_agent_that_is_too_old_is_not_called_missing(programs: Path) -> None:
    """Its path and version are known."""
    install(programs, "claude", "1.0.0")
    (check,) = checked(codon())
    assert (check.path, check.version) == (str(programs / "claude"), "1.0.0")
    assert "too old" in check.faults[0].message
