"""Run Codex as an agent, through `codex exec --json`.

Codex keeps its conversations in its home (CODEX_HOME). Here it gets a home inside the execution
directory, so that the conversations of an execution are stored with its files. From the user's own
home only the login is used, through a link: `auth.json` is never copied, and when Codex renews the
login it writes through the link. The user's `config.toml` is not used, because a hank must not
behave differently on another machine.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from hankweave_server.agents.base import (
    AgentAccount,
    AgentNeeds,
    AgentSession,
    AgentTask,
    McpServer,
    fingerprint,
)
from hankweave_server.agents.codex.stream import CodexListener, Rollout, rollouts_of
from hankweave_server.agents.hook_server import SUFFIX, hook_command
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.process.program import run_prepared
from hankweave_server.agents.session import Program
from hankweave_server.agents.stream_json import HOOK_SECONDS
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.fsutil import make_private_directory

HOME = "CODEX_HOME"
_LOGIN = "auth.json"


def home_of(ours: Path | None, environment: Mapping[str, str]) -> Path:
    """Return Codex's home: the one that the codon's `env` names, else `ours`, else the user's.

    `environment` is the codon's `env`; the server's own CODEX_HOME is the user's home.
    """
    named = {**common(os.environ, {}), **environment}.get(HOME)
    if named:
        return Path(os.path.expanduser(named))

    return user_home(environment) if ours is None else ours.absolute()


def user_home(environment: Mapping[str, str]) -> Path:
    """Return the user's own Codex home, which has their login."""
    own = os.environ.get(HOME)
    if own:
        return Path(os.path.expanduser(own))

    seen = {**common(os.environ, {}), **environment}
    return Path(os.path.expanduser(seen.get("HOME", "~"))) / ".codex"


def has_login(home: Path) -> bool:
    """Return whether the home has a login; only Codex knows whether it is still valid.

    False for a home that cannot be read.
    """
    return os.path.isfile(home / _LOGIN)


def prepare(home: Path, person: Path) -> None:
    """Create the home, readable by the owner only, and link the user's login into it.

    A file that is already there is a separate login and stays. Raises OSError.
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
"""Variables with the locations of the user's own conversations; not passed on."""

_API_KEY = "OPENAI_API_KEY"
_CODEX_KEY = "CODEX_API_KEY"
_PREFERRED = frozenset({_CODEX_KEY, "CODEX_ACCESS_TOKEN"})
"""Keys that `codex exec` uses; it ignores OPENAI_API_KEY."""

_MOUNT_POINTS = (".agents", ".aws", ".codex", ".git")
"""Folders that its sandbox creates in order to block them; a stopped Codex leaves them, empty."""

_QUIET = (
    # Without these Codex contacts more hosts than the model's.
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
    "features.apps=false",
    "features.plugins=false",
    # If enabled, Codex waits for a dead network for ever, and each attempt counts as output.
    "features.unbounded_connection_retries=false",
)


@dataclass(frozen=True, slots=True)
class CodexAgent:
    """Codex; it sees OPENAI_… and CODEX_… of the server's environment."""

    name: ClassVar[str] = "codex"
    can_ask: ClassVar[bool] = False

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "danger-full-access"
    """Codex's sandbox mode; it asks for approval in none of them."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Settings in place of its config.toml: dotted names, values in TOML."""

    home: Path | None = None
    """The home with its conversations; None: the user's."""

    asks_first: bool = False
    """If true, a hook waits for the server before each tool call; permissions are unchanged."""

    program: str = "codex"
    clock: Clock = field(default_factory=SystemClock)

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account of the key in the environment, else of the login in the home."""
        seen = {**common(os.environ, _own_variables()), **environment}
        login = os.path.realpath(home_of(self.home, environment) / _LOGIN)
        key = next(filter(None, (seen.get(name) for name in sorted(_PREFERRED))), None)
        if key is None and not os.path.isfile(login):
            key = seen.get(_API_KEY) or os.path.realpath(user_home(environment) / _LOGIN)

        where = seen.get("OPENAI_BASE_URL", "")
        return AgentAccount("codex", fingerprint("codex", where, key or login))

    @asynccontextmanager
    async def start(self, task: AgentTask) -> AsyncIterator[AgentSession]:
        absent = _absent(task.work_tree / name for name in _MOUNT_POINTS)
        try:
            async with run_prepared(self._prepared, task, self.clock) as session:
                yield session
        finally:
            for folder in absent:
                with suppress(OSError):  # Usually absent; or not empty because Codex wrote there.
                    folder.rmdir()

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return its home, and the login behind the link in it, which Codex renews in place."""
        return AgentNeeds(
            home=home_of(self.home, environment),
            write=(user_home(environment) / _LOGIN,),
            programs=(self.program,),
            may_change_files=self.sandbox != "read-only",
        )

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return its rollout, `sessions/<day>/rollout-<time>-<session>.jsonl` in its home."""
        return rollouts_of(home_of(self.home, environment), session_id)

    def _prepared(self, task: AgentTask) -> Program:
        """Prepare the home, and read the token counts of a resumed session."""
        home = home_of(self.home, task.environment)
        is_ours = self.home is not None and home == self.home.absolute()
        if is_ours:
            prepare(home, user_home(task.environment))

        resumed = None
        if task.resume_session is not None:
            resumed = Rollout(home, task.resume_session)
            resumed.read_on()

        keys = _keys(task, home)
        hooks = None
        if self.asks_first and is_ours:  # Another home may have hooks without the user's approval.
            folder = task.access_folder or task.processes_dir
            hooks = folder / f"{secrets.token_hex(8)}{SUFFIX}"

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
        # Codex's own sandbox cannot be set up inside another one, which takes its place.
        is_confined = task.fence is not None and not task.fence.is_open
        yield from ("--sandbox", "danger-full-access" if is_confined else self.sandbox)
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
        """Yield settings for `-c` as `name=value`; later ones win."""
        yield from _QUIET
        if hidden := sorted(keys.keys() - task.environment.keys()):
            # Keys are for Codex alone; a command that it runs could print them.
            yield f"shell_environment_policy.exclude={_toml(hidden)}"

        if endpoint := _seen(task, keys).get("OPENAI_BASE_URL"):
            yield f"openai_base_url={_toml(endpoint)}"  # Codex ignores the variable.

        if task.system_prompt is not None and task.resume_session is None:
            yield f"developer_instructions={_toml(task.system_prompt)}"

        yield from (f"mcp_servers.{server.name}={_table(server)}" for server in task.tools)
        yield from (f"{name}={value}" for name, value in self.config.items())


def _asking_first(hooks: Path) -> Iterator[str]:
    """Yield the options that make Codex run the server's hook before each tool call.

    Codex runs no hook that the user has not approved, except with this flag. Hooks in the work tree
    (`.codex/`) still have no effect: Codex only reads them in trusted projects, and the execution's
    own home has none.
    """
    command = _toml(hook_command(hooks))
    handler = f'{{type = "command", command = {command}, timeout = {HOOK_SECONDS}}}'
    yield "--dangerously-bypass-hook-trust"
    yield from ("-c", f'hooks.PreToolUse=[{{matcher = "*", hooks = [{handler}]}}]')


def _absent(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if not os.path.lexists(path))


def _prompt(task: AgentTask, resumed: Rollout | None) -> str:
    """Return the prompt; new instructions for a resumed thread precede it.

    A resumed thread keeps the developer instructions that it began with.
    """
    system_prompt = task.system_prompt
    if resumed is None or system_prompt is None or resumed.contains(system_prompt):
        return task.message

    return f"{system_prompt}\n\n{task.message}"


def _keys(task: AgentTask, home: Path) -> dict[str, str]:
    """Return the variables of the server that are for Codex, with the key by the name it uses.

    Like Codex itself, this prefers a login to an OPENAI_API_KEY that merely happens to be set.
    """
    keys = _own_variables()
    seen = _seen(task, keys)
    is_meant = _API_KEY in task.environment or not has_login(home)
    if is_meant and _API_KEY in seen and not seen.keys() & _PREFERRED:
        keys[_CODEX_KEY] = seen[_API_KEY]

    return keys


def _own_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_OWN_PREFIXES) and name not in _PLACES
    }


def _seen(task: AgentTask, keys: Mapping[str, str]) -> dict[str, str]:
    return {**common(os.environ, keys), **task.environment}


def _table(server: McpServer) -> str:
    program, *arguments = server.command
    environment = ", ".join(f"{_toml(n)} = {_toml(v)}" for n, v in server.environment.items())
    return (
        f"{{command = {_toml(program)}, args = {_toml(arguments)}, env = {{{environment}}}, "
        # Otherwise the first turn begins without its tools, and each call of one is refused.
        'required = true, default_tools_approval_mode = "approve"}'
    )


def _toml(value: str | list[str]) -> str:
    """Encode a value as TOML, which accepts JSON except for one character (DEL)."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
