"""Find the known agents on this machine: program, version and login."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.hank import AcpAgentSpec, AgentSpec, CommandAgentSpec, ScriptedAgentSpec
from hankweave_protocol.shapes import Value
from hankweave_server import __version__
from hankweave_server.agents.acp.adapter import missing_library
from hankweave_server.agents.process.environment import common
from hankweave_server.fsutil import temporary_folder

VERSION_DEADLINE = 15.0
"""Seconds; some agents start an interpreter first, and the machine may be busy."""

BUILT_IN = "hankweave"
"""The "path" of an agent that is part of this program."""

_VERSION = re.compile(rb"[0-9]+\.[0-9]+[0-9A-Za-z.+-]*")
_QUIET = {"DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Static facts about one known agent."""

    install: str
    """The command that installs it."""

    title: str = ""
    keys: tuple[str, ...] = ()
    """Environment variables that can authenticate it."""

    logins: tuple[tuple[str, str, str], ...] = ()
    """Files that a login writes: variable with their folder, default folder, and file name."""

    log_in: str = ""
    """Instructions for logging in."""

    model: str = ""
    """An inexpensive model for a self-test; empty: the agent's default."""

    endpoint: str = ""
    """The variable that sends it to another endpoint, which may know any model."""

    engine: str = ""
    """The program that the agent starts if it is an adapter; its version is checked."""

    oldest: str = ""
    """The first version that has every option it is started with."""


_BY_NAME: Mapping[str, AgentFacts] = {
    "claude": AgentFacts(
        title="Claude Code",
        install="npm install -g @anthropic-ai/claude-code",
        keys=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
        ),
        logins=(("CLAUDE_CONFIG_DIR", "~/.claude", ".credentials.json"),),
        log_in="run 'claude' and enter /login",
        model="haiku",
        endpoint="ANTHROPIC_BASE_URL",
        oldest="2.0.28",
    ),
    "codex": AgentFacts(
        title="Codex",
        install="npm install -g @openai/codex",
        keys=("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN"),
        logins=(("CODEX_HOME", "~/.codex", "auth.json"),),
        log_in="run 'codex login'",
        model="gpt-6-luna",
        endpoint="OPENAI_BASE_URL",
        oldest="0.131.0",
    ),
    "gemini": AgentFacts(
        title="Gemini CLI",
        install="npm install -g @google/gemini-cli",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        logins=(
            ("GEMINI_CLI_HOME", "~", ".gemini/oauth_creds.json"),
            ("GEMINI_CLI_HOME", "~", ".gemini/gemini-credentials.json"),
            ("GEMINI_CLI_HOME", "~", ".gemini/.env"),
        ),
        log_in="run 'gemini' and choose a login method",
        model="gemini-3.5-flash-lite",
        endpoint="GOOGLE_GEMINI_BASE_URL",
        oldest="0.33.0",
    ),
    "opencode": AgentFacts(
        title="OpenCode",
        install="npm install -g opencode-ai",
        keys=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        logins=(("XDG_DATA_HOME", "~/.local/share", "opencode/auth.json"),),
        log_in="run 'opencode auth login'",
        oldest="1.0.0",
    ),
    "pi": AgentFacts(
        title="Pi",
        install="npm install -g @earendil-works/pi-coding-agent pi-acp",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        logins=(("PI_CODING_AGENT_DIR", "~/.pi/agent", "auth.json"),),
        log_in="run 'pi' and enter /login",
        engine="pi",
        oldest="0.80.4",
    ),
    "scripted": AgentFacts(install="It is built in and needs no model."),
}
_STRANGER = AgentFacts(install="Install it, give its full path, or correct PATH.")


class Found(Value, kw_only=True, omit_defaults=False):
    """The state of one agent on this machine."""

    name: str
    kind: str
    """The `agent.type` of a hank."""

    command: tuple[str, ...]
    path: str | None
    """The path of its program; None: not found on PATH."""

    version: str | None
    complaint: str | None
    """The reason why an installed agent has no version."""

    logged_in_by: tuple[str, ...]
    """Names of variables that are set and of login files that exist; never their content."""

    looked_for: tuple[str, ...]
    """The variables and files that were checked; empty for an agent that needs no login."""

    install: str
    """The command that installs it."""

    needs: str | None = None
    """What else must be installed before it can run here."""


def known_of(name: str) -> AgentFacts:
    """Return the facts about an agent, or generic ones for an unknown name."""
    return _BY_NAME.get(name, _STRANGER)


def find_agents(named: Mapping[str, AgentSpec]) -> list[Found]:
    """Find agents concurrently: each takes as long as its program takes to start."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(find_agent, named, named.values()))


def find_agent(name: str, spec: AgentSpec) -> Found:
    """Find one agent and run its program for the version, which may take some seconds."""
    known, command = known_of(name), command_of(spec)
    program = program_of(command, known, common(os.environ, _QUIET))
    everything = common(os.environ, os.environ)
    missing = missing_library() if isinstance(spec, AcpAgentSpec) else None
    return Found(
        name=name,
        kind=str(spec.__struct_config__.tag),
        command=command,
        path=program.path,
        version=program.version,
        complaint=program.complaint,
        logged_in_by=logins_in(known, everything),
        looked_for=(*known.keys, *dict(_files(known, everything))),
        install=known.install,
        needs=None if missing is None else missing.hint,
    )


def command_of(spec: AgentSpec) -> tuple[str, ...]:
    """Return an agent's program and arguments; empty for the built-in one."""
    match spec:
        case AcpAgentSpec() | CommandAgentSpec():
            return spec.command
        case ScriptedAgentSpec():
            return ()
        case _:
            return (str(spec.__struct_config__.tag),)


# --- programs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """An agent's program on this machine, and the version of the one that does the work."""

    path: str | None
    version: str | None = None
    complaint: str | None = None
    """The reason why it has no version."""

    absent: str | None = None
    """The name of a program that was not found: its own, or that of its engine."""

    can_run: bool = True


def program_of(
    command: tuple[str, ...], known: AgentFacts, environment: Mapping[str, str]
) -> AgentProgram:
    """Find an agent's program and run it with `--version`, which may take some seconds."""
    if not command:
        return AgentProgram(BUILT_IN, __version__)

    names = (command[0], known.engine or command[0])
    path, engine = (shutil.which(each, path=environment.get("PATH")) for each in names)
    if path is None:
        return AgentProgram(None, absent=command[0])

    if engine is None:
        why = "cannot be run: its interpreter was not found"
        return AgentProgram(path, complaint=why, absent=known.engine)

    try:
        code, printed = _printed(engine, environment)
    except subprocess.TimeoutExpired:
        why = f"did not report its version within {VERSION_DEADLINE:.0f} seconds"
        return AgentProgram(path, complaint=why)
    except OSError as error:
        return AgentProgram(path, complaint=f"cannot be run: {error.strerror}", can_run=False)

    found = _VERSION.search(printed)
    if code != 0 or found is None:
        return AgentProgram(path, complaint=f"--version exited with {code} and printed no version")

    return AgentProgram(path, found[0].decode())


def _printed(path: str, environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run `--version` in an empty temporary folder; its process group is killed afterwards."""
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir=temporary_folder()) as folder:
        program = subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            printed, _ = program.communicate(timeout=VERSION_DEADLINE)
            return program.returncode, printed
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)

            program.communicate()


# --- logins ------------------------------------------------------------------------------------


def logins_in(known: AgentFacts, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of an agent's keys that are set and of its login files that exist."""
    keys = (name for name in known.keys if environment.get(name))
    files = (name for name, path in _files(known, environment) if os.path.isfile(path))
    return (*keys, *files)


def _files(known: AgentFacts, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable, usual, name in known.logins:
        folder = environment.get(variable) or usual
        yield f"{folder}/{name}", Path(os.path.expanduser(folder)) / name
