"""Find the known agents on this machine: program, version and login."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    CommandAgentSpec,
    ScriptedAgentSpec,
)
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
class Acquaintance:
    """Static facts about one known agent."""

    install: str
    """The command that installs it."""

    keys: tuple[str, ...] = ()
    """Environment variables that can authenticate it."""

    logins: tuple[tuple[str, str, str], ...] = ()
    """Files that a login writes: variable with their folder, default folder, and file name."""

    log_in: str = ""
    """Instructions for logging in."""

    model: str = ""
    """An inexpensive model for a self-test; empty: the agent's default."""

    engine: str = ""
    """The program that the agent starts if it is an adapter; its version is checked."""

    oldest: str = ""
    """The first version that has every option it is started with."""


_BY_NAME: Mapping[str, Acquaintance] = {
    "claude": Acquaintance(
        install="npm install -g @anthropic-ai/claude-code",
        keys=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
        ),
        logins=(("CLAUDE_CONFIG_DIR", "~/.claude", ".credentials.json"),),
        log_in="run 'claude' and enter /login",
        model="haiku",
        oldest="2.0.28",
    ),
    "codex": Acquaintance(
        install="npm install -g @openai/codex",
        keys=("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN"),
        logins=(("CODEX_HOME", "~/.codex", "auth.json"),),
        log_in="run 'codex login'",
        model="gpt-6-luna",
        oldest="0.131.0",
    ),
    "gemini": Acquaintance(
        install="npm install -g @google/gemini-cli",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        logins=(
            ("GEMINI_CLI_HOME", "~", ".gemini/oauth_creds.json"),
            ("GEMINI_CLI_HOME", "~", ".gemini/gemini-credentials.json"),
            ("GEMINI_CLI_HOME", "~", ".gemini/.env"),
        ),
        log_in="run 'gemini' and choose a login method",
        model="gemini-3.5-flash-lite",
        oldest="0.33.0",
    ),
    "opencode": Acquaintance(
        install="npm install -g opencode-ai",
        keys=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        logins=(("XDG_DATA_HOME", "~/.local/share", "opencode/auth.json"),),
        log_in="run 'opencode auth login'",
        oldest="1.0.0",
    ),
    "pi": Acquaintance(
        install="npm install -g @earendil-works/pi-coding-agent pi-acp",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        logins=(("PI_CODING_AGENT_DIR", "~/.pi/agent", "auth.json"),),
        log_in="run 'pi' and enter /login",
        engine="pi",
        oldest="0.80.4",
    ),
    "scripted": Acquaintance(install="It is built in and needs no model."),
}
_STRANGER = Acquaintance(install="Install it, give its full path, or correct PATH.")


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

    @property
    def is_installed(self) -> bool:
        return self.path is not None


def known_of(name: str) -> Acquaintance:
    """Return the facts about an agent, or generic ones for an unknown name."""
    return _BY_NAME.get(name, _STRANGER)


def look(name: str, spec: AgentSpec) -> Found:
    """Find one agent and run its program for the version, which may take some seconds."""
    known, environment = known_of(name), common(os.environ, _QUIET)
    command = command_of(spec)
    path = BUILT_IN if not command else shutil.which(command[0], path=environment.get("PATH"))
    told = Version(__version__) if not command else Version()
    if command and path is not None:
        told = version_of(engine_of(known, path, environment), environment)

    everything = common(os.environ, os.environ)
    missing = missing_library() if isinstance(spec, AcpAgentSpec) else None
    return Found(
        name=name,
        kind=kind_of(spec),
        command=command,
        path=path,
        version=told.number,
        complaint=told.cannot_run or told.complaint,
        logged_in_by=logins_in(known, everything),
        looked_for=(*known.keys, *dict(_files(known, everything))),
        install=known.install,
        needs=None if missing is None else missing.hint,
    )


def kind_of(spec: AgentSpec) -> str:
    """Return the `agent.type` of a specification."""
    return str(spec.__struct_config__.tag)


def command_of(spec: AgentSpec) -> tuple[str, ...]:
    """Return an agent's program and arguments; empty for the built-in one."""
    match spec:
        case AcpAgentSpec(command=command) | CommandAgentSpec(command=command):
            return command
        case ClaudeAgentSpec():
            return ("claude",)
        case CodexAgentSpec():
            return ("codex",)
        case ScriptedAgentSpec():
            return ()
        case _:
            assert_never(spec)


# --- versions ----------------------------------------------------------------------------------


def engine_of(known: Acquaintance, path: str, environment: Mapping[str, str]) -> str | None:
    """Return the program whose version is checked; None if the one behind an adapter is missing."""
    if not known.engine:
        return path

    return shutil.which(known.engine, path=environment.get("PATH"))


@dataclass(frozen=True, slots=True)
class Version:
    """The result of running a program with `--version`."""

    number: str | None = None
    complaint: str | None = None
    """The reason why there is no number, if the program may still work."""

    cannot_run: str | None = None
    """The reason why the program cannot run."""


def version_of(path: str | None, environment: Mapping[str, str]) -> Version:
    """Run a program with `--version`; may take some seconds."""
    if path is None:
        return Version(cannot_run="cannot be run: its interpreter was not found")

    try:
        code, printed = _printed(path, environment)
    except subprocess.TimeoutExpired:
        seconds = f"{VERSION_DEADLINE:.0f} seconds"
        return Version(complaint=f"did not report its version within {seconds}")
    except OSError as error:
        return Version(cannot_run=f"cannot be run: {error.strerror}")

    found = _VERSION.search(printed)
    if code != 0 or found is None:
        return Version(complaint=f"--version exited with {code} and printed no version")

    return Version(found[0].decode())


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


def logins_in(known: Acquaintance, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of an agent's keys that are set and of its login files that exist."""
    keys = (name for name in known.keys if environment.get(name))
    files = (name for name, path in _files(known, environment) if os.path.isfile(path))
    return (*keys, *files)


def _files(known: Acquaintance, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable, usual, name in known.logins:
        folder = environment.get(variable) or usual
        yield f"{folder}/{name}", Path(os.path.expanduser(folder)) / name
