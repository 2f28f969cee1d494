"""Real agents started by tests, with the tests' models and keys, and a home of their own.

`scripts/test --agents` installs the programs: Claude Code inside a Python package, the others by
npm into a folder that git ignores. A test of a missing agent is skipped with a message.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from support.models.endpoint import Endpoint
from support.models.turns import Trouble
from support.running_server import CONFINED

TOP = Path(__file__).resolve().parents[2]
NPM = TOP / ".agents" / "node_modules"
STAND_IN = Path(__file__).with_name("stand_in_agent.py")

ROOT = "HANKWEAVE_AGENT_ROOT"
"""In the environment of all of an agent's processes."""

Environment = dict[str, str]
End = tuple[str, bool] | Literal["completed"]
"""How a codon ends: the kind of its failure and whether it is retryable, or completed."""

OVER_TIME = ("timeout", True)
UNKNOWN = ("unknown", True)


@dataclass(frozen=True)
class Kind:
    """One kind of agent."""

    name: str
    program: str
    """The name that the server looks up on its search path."""
    find: Callable[[], Path | None]
    model: str
    key: str
    """The key that it must send to the endpoint."""
    spec: Callable[[Endpoint], Mapping[str, Any]]
    """The `agent` of a codon."""
    environment: Callable[[Endpoint, Path], Environment]
    """The server's environment; the path is the agent's HOME."""
    quiet: int = 6
    """Seconds; the longest silence at its start, on a busy machine."""

    spared: frozenset[Trouble] = frozenset()
    """Troubles not tested with it, because it is slow and another agent has the same adapter."""

    ends: Mapping[Trouble, End] = field(default_factory=dict)
    """Troubles whose end differs from that of most agents, for a legitimate reason."""

    is_real: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Grounds:
    """The environment in which one test starts agents."""

    endpoint: Endpoint
    folder: Path
    kinds: tuple[Kind, ...]
    extra: Environment = field(default_factory=dict)

    @property
    def execution(self) -> Path:
        return self.folder / "execution"

    @property
    def work_tree(self) -> Path:
        return self.execution / "agentRoot"

    @property
    def environment(self) -> Environment:
        """Return the server's environment: every kind's keys; the programs first on the PATH.

        Agents are confined, as a user's are.
        """
        composed: Environment = {}
        for kind in self.kinds:
            composed |= kind.environment(self.endpoint, self._folder("home"))

        return {
            **composed,
            **CONFINED,
            "HOME": str(self._folder("home")),
            "TMPDIR": str(self._folder("tmp")),
            "PATH": f"{self._programs()}{os.pathsep}{os.environ['PATH']}",
            **self.extra,
        }

    def codon(self, name: str, kind: Kind, prompt: str, **fields: Any) -> dict[str, Any]:
        return {
            "id": name,
            "name": name,
            "model": kind.model,
            "continuationMode": "fresh",
            "promptText": prompt,
            "trackedFiles": ["**"],
            "agent": dict(kind.spec(self.endpoint)),
            **fields,
        }

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _programs(self) -> Path:
        programs = self._folder("bin")
        for kind in self.kinds:
            found, link = kind.find(), programs / kind.program
            if found is not None and not link.is_symlink():
                link.symlink_to(found)

        return programs


def why_not(kind: Kind, *, asked_for: bool) -> str | None:
    """Return the reason why a kind of agent cannot be tested here; None: it can."""
    if not kind.is_real:
        return None

    if not asked_for:
        return "real agents are for scripts/test --agents"

    if (others := [name for _, name in socket.if_nameindex() if name != "lo"]) != []:
        return f"real agents are started where there is loopback alone; here is {others[0]}, too"

    return None if kind.find() is not None else f"the program {kind.program!r} is not installed"


def processes_of(
    execution: Path, *, keepers: bool = True
) -> list[tuple[psutil.Process, Environment]]:
    """Return the processes of an execution's agents, whatever their parents, with environments.

    The keepers, which belong to the server and end the others, are included.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            is_keeper = any("keeper" in word for word in process.cmdline())
            if is_dead or (is_keeper and not keepers):
                continue

            environment = process.environ()
            if environment.get(ROOT) == str(execution / "agentRoot"):
                found.append((process, environment))

    return found


def assert_no_secrets(grounds: Grounds) -> None:
    """Assert that no file of an execution has a key: homes of agents, logs, journal and state."""
    files = {path: path.read_bytes() for path in grounds.execution.rglob("*") if path.is_file()}
    assert files
    for kind in grounds.kinds:
        assert [path for path, data in files.items() if kind.key.encode() in data] == []


# --- each agent -----------------------------------------------------------------------------------


def _claude() -> Path | None:
    package = importlib.util.find_spec("claude_agent_sdk")
    if package is None or package.origin is None:
        return None

    return _existing(Path(package.origin).parent / "_bundled" / "claude")


def _opencode() -> Path | None:
    """Return the program for this machine: npm does not run the script that would install it."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return _existing(NPM / f"opencode-{sys.platform}-{machine}" / "bin" / "opencode")


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _claude_environment(endpoint: Endpoint, home: Path) -> Environment:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_API_KEY": CLAUDE.key,
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }


def _codex_spec(endpoint: Endpoint) -> Mapping[str, Any]:
    provider = {
        "name": '"scripted"',
        "base_url": f'"{endpoint.url}/v1"',
        "env_key": '"OPENAI_API_KEY"',
        "wire_api": '"responses"',
        "request_max_retries": "1",
        "stream_max_retries": "1",
    }
    written = ", ".join(f"{name} = {value}" for name, value in provider.items())
    config = {
        "model_provider": '"scripted"',
        "model_providers.scripted": f"{{ {written} }}",
        # Agents would otherwise contact their makers' hosts, and wait for them.
        "analytics.enabled": "false",
        "features.plugins": "false",
    }
    return {"type": "codex", "config": config}


def _codex_environment(endpoint: Endpoint, home: Path) -> Environment:
    return {"OPENAI_API_KEY": CODEX.key}


def _opencode_environment(endpoint: Endpoint, home: Path) -> Environment:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{endpoint.url}/v1", "apiKey": "{env:OPENCODE_SCRIPTED_KEY}"},
        "models": {"scripted": {}},
    }
    config = {"model": OPENCODE.model, "provider": {"scripted": provider}}
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_SCRIPTED_KEY": OPENCODE.key,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def _gemini_environment(endpoint: Endpoint, home: Path) -> Environment:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"maxAttempts": 2, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    return {"GEMINI_API_KEY": GEMINI.key, "GOOGLE_GEMINI_BASE_URL": endpoint.url}


CLAUDE = Kind(
    name="claude",
    program="claude",
    find=_claude,
    model="sonnet",
    key="key-of-claude",
    spec=lambda endpoint: {"type": "claude"},
    environment=_claude_environment,
)
CODEX = Kind(
    name="codex",
    program="codex",
    find=lambda: _existing(NPM / ".bin" / "codex"),
    model="gpt-5",
    key="key-of-codex",
    spec=_codex_spec,
    environment=_codex_environment,
)
OPENCODE = Kind(
    name="opencode",
    program="opencode",
    find=_opencode,
    model="scripted/scripted",
    key="key-of-opencode",
    quiet=12,
    ends={
        # It compacts its conversation, and continues.
        Trouble.CONTEXT_FULL: "completed",
        # It retries for longer than the test can wait.
        Trouble.DROPPED_STREAM: OVER_TIME,
    },
    spared=frozenset(
        {
            Trouble.RATE_LIMIT,
            Trouble.OVERLOAD,
            Trouble.WRONG_KEY,
            Trouble.MALFORMED_STREAM,
        }
    ),
    spec=lambda endpoint: {"type": "acp", "command": ["opencode", "acp"]},
    environment=_opencode_environment,
)
GEMINI = Kind(
    name="gemini",
    program="gemini",
    find=lambda: _existing(NPM / ".bin" / "gemini"),
    model="gemini-2.5-pro",
    key="key-of-gemini",
    quiet=8,
    ends={
        Trouble.MALFORMED_STREAM: UNKNOWN,
    },
    spec=lambda endpoint: {"type": "acp", "command": ["gemini", "--acp"]},
    environment=_gemini_environment,
)
STANDING_IN = Kind(
    name="stand-in",
    program="claude",
    find=lambda: STAND_IN,
    model="sonnet",
    key="key-of-claude",
    spec=lambda endpoint: {"type": "claude"},
    environment=_claude_environment,
    quiet=2,
    is_real=False,
)

KINDS = (STANDING_IN, CLAUDE, CODEX, OPENCODE, GEMINI)
REAL = tuple(kind for kind in KINDS if kind.is_real)
