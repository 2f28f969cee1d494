"""Codex as an agent, through `codex exec --json`.

Where Codex keeps what it knows of its conversations (CODEX_HOME), and how it is logged in there.

The home is one of ours, inside the execution directory, so that the conversations of an execution
lie with its files. Of a person's own home only the login is used, through a link: `auth.json` is
never copied, and what Codex renews in it is renewed where it lies (Codex writes through the link).
Their `config.toml` is not: what a hank does must not depend on whose machine it runs on.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hankweave_server.agents.base import AgentSession, AgentTask, McpServer
from hankweave_server.agents.codex.rollout import CodexListener, Rollout, rollouts_of
from hankweave_server.agents.hook_server import SUFFIX, hook_command
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.process.program import Program, run_prepared
from hankweave_server.agents.stream_json import HOOK_SECONDS
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.fsutil import make_private_directory

HOME = "CODEX_HOME"
_LOGIN = "auth.json"


def home_of(ours: Path | None, environment: Mapping[str, str]) -> Path:
    """The home Codex works with: the one that a codon's `env` names, else ours, else a person's.

    `environment` is the codon's; the server's own CODEX_HOME is the home of a person.
    """
    named = {**common(os.environ, {}), **environment}.get(HOME)
    if named:
        return Path(os.path.expanduser(named))

    return persons_home(environment) if ours is None else ours.absolute()


def persons_home(environment: Mapping[str, str]) -> Path:
    """The home that a person uses, in which they are logged in."""
    own = os.environ.get(HOME)
    if own:
        return Path(os.path.expanduser(own))

    seen = {**common(os.environ, {}), **environment}
    return Path(os.path.expanduser(seen.get("HOME", "~"))) / ".codex"


def has_login(home: Path) -> bool:
    """Tells whether somebody has logged in there; if the login still holds, Codex finds out.

    A home that may not be looked into has none.
    """
    return os.path.isfile(home / _LOGIN)


def prepare(home: Path, person: Path) -> None:
    """Makes the home for the owner alone, and lets the person's login be found in it.

    A file that lies there already is a login of its own and stays. Raises OSError.
    """
    make_private_directory(home)
    link, login = home / _LOGIN, (person / _LOGIN).absolute()
    is_there = has_login(person)
    if link.is_symlink():
        if is_there and os.readlink(link) == str(login):
            return

        link.unlink()

    if is_there and not link.exists():
        link.symlink_to(login)


HINT = "Install it with 'npm install -g @openai/codex', then start again."

_OWN_PREFIXES = ("OPENAI_", "CODEX_")
_PLACES = frozenset({HOME, "CODEX_SQLITE_HOME"})
"""Where the server's owner keeps their own conversations; ours lie elsewhere."""

_API_KEY = "OPENAI_API_KEY"
_CODEX_KEY = "CODEX_API_KEY"
_PREFERRED = frozenset({_CODEX_KEY, "CODEX_ACCESS_TOKEN"})
"""What `codex exec` heeds; an OPENAI_API_KEY it does not."""

_MOUNT_POINTS = (".agents", ".aws", ".codex", ".git")
"""Its sandbox makes these, to forbid them; a Codex that is stopped leaves them behind, empty."""

_QUIET = (
    # Without these the program talks to more hosts than the model's.
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
    "features.apps=false",
    "features.plugins=false",
    # With it a dead network is waited for without end, and each attempt looks like life.
    "features.unbounded_connection_retries=false",
)


@dataclass(frozen=True, slots=True)
class CodexAgent:
    """Runs `codex`, which sees OPENAI_… and CODEX_… of our environment."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "danger-full-access"
    """What its commands can reach; it asks for approval in none of these modes."""

    config: Mapping[str, str] = field(default_factory=dict)
    """What its config.toml would say: dotted names, values in TOML."""

    home: Path | None = None
    """Where it keeps its conversations; None: where the server's owner keeps theirs."""

    asks_first: bool = False
    """Waits for us before each call of a tool, by a hook; what it may do stays the same."""

    program: str = "codex"
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "codex"

    @property
    def can_ask(self) -> bool:
        return False

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first

    @asynccontextmanager
    async def start(self, task: AgentTask) -> AsyncIterator[AgentSession]:
        absent = _absent(task.work_tree / name for name in _MOUNT_POINTS)
        try:
            async with run_prepared(self._prepared, task, self.clock) as session:
                yield session
        finally:
            for folder in absent:
                with suppress(OSError):  # Not there, as a rule; or in use, by what it has written.
                    folder.rmdir()

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Its rollout: `sessions/<day>/rollout-<time>-<session>.jsonl` of its home."""
        return rollouts_of(home_of(self.home, environment), session_id)

    def _prepared(self, task: AgentTask) -> Program:
        """Makes the home ready, and reads in it what a resumed session has used until now."""
        home = home_of(self.home, task.environment)
        is_ours = self.home is not None and home == self.home.absolute()
        if is_ours:
            prepare(home, persons_home(task.environment))

        resumed = None
        if task.resume_session is not None:
            resumed = Rollout(home, task.resume_session)
            resumed.read_on()

        keys = _keys(task, home)
        hooks = None
        if self.asks_first and is_ours:  # Another home has hooks that a person did not approve.
            hooks = task.processes_dir / f"{secrets.token_hex(8)}{SUFFIX}"

        return Program(
            command=(self.program, *self._arguments(task, keys, hooks)),
            stdin=_prompt(task, resumed),
            hint=HINT,
            extra_environment=keys | {HOME: str(home)},
            parse=CodexListener(home, task.model, resumed).parse,
            hook_socket=hooks,
        )

    def _arguments(
        self, task: AgentTask, keys: Mapping[str, str], hooks: Path | None
    ) -> Iterator[str]:
        yield from ("exec", "--json", "--skip-git-repo-check")
        yield from ("--sandbox", self.sandbox)
        if task.model:
            yield from ("--model", task.model)

        if hooks is not None:
            yield from _asking_first(hooks)

        for setting in self._settings(task, keys):
            yield from ("-c", setting)

        if task.resume_session is not None:
            yield from ("resume", task.resume_session)

        yield "-"  # The prompt comes on stdin.

    def _settings(self, task: AgentTask, keys: Mapping[str, str]) -> Iterator[str]:
        """What its config.toml would say, each as `name=value`; later ones win."""
        yield from _QUIET
        if hidden := sorted(keys.keys() - task.environment.keys()):
            # For Codex alone: a command that it runs could print them.
            yield f"shell_environment_policy.exclude={_toml(hidden)}"

        if endpoint := _seen(task, keys).get("OPENAI_BASE_URL"):
            yield f"openai_base_url={_toml(endpoint)}"  # The variable alone it does not heed.

        if task.system_prompt is not None and task.resume_session is None:
            yield f"developer_instructions={_toml(task.system_prompt)}"

        yield from (f"mcp_servers.{server.name}={_table(server)}" for server in task.tools)
        yield from (f"{name}={value}" for name, value in self.config.items())


def _asking_first(hooks: Path) -> Iterator[str]:
    """Make it run a hook of ours before each tool.

    It runs no hook that a person has not approved, except with this flag. Hooks in the work tree
    (`.codex/`) still have no effect: Codex reads them only in projects that a person trusts, and in
    a home of ours there are none.
    """
    command = _toml(hook_command(hooks))
    handler = f'{{type = "command", command = {command}, timeout = {HOOK_SECONDS}}}'
    yield "--dangerously-bypass-hook-trust"
    yield from ("-c", f'hooks.PreToolUse=[{{matcher = "*", hooks = [{handler}]}}]')


def _absent(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if not os.path.lexists(path))


def _prompt(task: AgentTask, resumed: Rollout | None) -> str:
    """A resumed thread keeps the instructions that it began with: new ones go before the prompt."""
    system_prompt = task.system_prompt
    if resumed is None or system_prompt is None or resumed.has_told(system_prompt):
        return task.message

    return f"{system_prompt}\n\n{task.message}"


def _keys(task: AgentTask, home: Path) -> dict[str, str]:
    """What of the server's environment is for Codex, and the key under the name it heeds.

    Like Codex itself, this prefers a login to an OPENAI_API_KEY that only happens to be there.
    """
    keys = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_OWN_PREFIXES) and name not in _PLACES
    }
    seen = _seen(task, keys)
    is_meant = _API_KEY in task.environment or not has_login(home)
    if is_meant and _API_KEY in seen and not seen.keys() & _PREFERRED:
        keys[_CODEX_KEY] = seen[_API_KEY]

    return keys


def _seen(task: AgentTask, keys: Mapping[str, str]) -> dict[str, str]:
    return {**common(os.environ, keys), **task.environment}


def _table(server: McpServer) -> str:
    program, *arguments = server.command
    environment = ", ".join(f"{_toml(n)} = {_toml(v)}" for n, v in server.environment.items())
    return (
        f"{{command = {_toml(program)}, args = {_toml(arguments)}, env = {{{environment}}}, "
        # Else the first turn begins without its tools, and each call of one is refused.
        'required = true, default_tools_approval_mode = "approve"}'
    )


def _toml(value: str | list[str]) -> str:
    """Writes a value as TOML, which takes JSON but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
