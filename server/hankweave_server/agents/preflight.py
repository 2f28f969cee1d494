"""Check, before a run starts, that each codon's agent can work on this machine.

Otherwise a missing program or login would be found at the step that needs it, perhaps hours later.
The check uses no network and asks no model: a key in the environment, or the file that a login
leaves behind, counts as a login. Only the provider can tell if it is valid.

Some things cannot be seen here and are not reported as faults: a login in the keychain of macOS,
cloud credentials, the keys of OpenCode's and Pi's providers (some need none), and a program that is
named by a path in the work tree, where a rig may still put it.

`AgentIdentities` identifies the agent of a codon by the same facts, so that its results can be
compared with those of another run. An agent is its settings, the version of its program, the
scripts that it plays, and the variables that it gets from the server's environment. Only its author
knows what a command depends on, so it has a version if the hank names one. The files that its words
name are compared all the same, because a version is easily forgotten.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    Codon,
    CommandAgentSpec,
    Overrides,
    ScriptedAgentSpec,
)
from hankweave_protocol.shapes import Value
from hankweave_server import __version__
from hankweave_server.agents.acp.adapter import missing_library
from hankweave_server.agents.claude import SANDBOX
from hankweave_server.agents.inventory import BUILT_IN, command_of, known_of, logins_in, program_of
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.agents.scripted import player
from hankweave_server.domain.model_names import spelling_of
from hankweave_server.domain.model_routes import is_of_another_maker, suggestion_for
from hankweave_server.domain.permissions import can_ask, can_refuse, permissions_of
from hankweave_server.domain.reuse.key import AgentIdentity
from hankweave_server.hank.agents import BY_NAME, Selection, name_of

_WITHOUT_MODEL = (CommandAgentSpec, ScriptedAgentSpec)
_NUMBER = re.compile(r"\d+")


class AgentFault(Value, kw_only=True):
    """A reason why an agent cannot run its codons here, and a remedy."""

    message: str
    hint: str


class AgentCheck(Value, kw_only=True, omit_defaults=False):
    """The result for one agent that a hank needs."""

    codons: tuple[str, ...]
    """The ids of the codons that it runs."""

    agent: str
    """Its name, or its type and program if it has no name."""

    model: str
    """The model by the agent's name for it; empty: the agent's default."""

    path: str | None
    """The path of its program; null if it was not found or is only known when it starts."""

    version: str | None
    logged_in_by: tuple[str, ...]
    """Names of variables that are set and of login files that exist; never their content."""

    faults: tuple[AgentFault, ...]
    """The reasons why it cannot run; empty if nothing is wrong."""

    notes: tuple[str, ...]
    """Remarks on what could not be checked."""


def check_agents(
    codons: Iterable[Codon],
    selector: AgentSelector,
    overrides: Overrides | None,
    listed: Collection[str] = (),
) -> tuple[AgentCheck, ...]:
    """Check the agents of codons in parallel, up to 8 at a time; runs each agent's `--version`.

    `listed` has the names of known models; without it, the spelling of models is not checked.
    """
    checks: dict[str, _Check] = {}
    for codon in codons:
        check = _Check(codon, selector, overrides, listed)
        checks.setdefault(check.key, check).codons[codon.id] = None

    with ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(_Check.result, checks.values()))


class _Check:
    """The check of one agent, for all codons that need it in the same way."""

    def __init__(
        self,
        codon: Codon,
        selector: AgentSelector,
        overrides: Overrides | None,
        listed: Collection[str],
    ) -> None:
        selection = selector.select(codon)
        variants = () if codon.attempts is None else codon.attempts.variants
        self._selection = selection
        self._spec = selection.spec
        self._has_model = not isinstance(selection.spec, _WITHOUT_MODEL)
        self._written = selector.model or codon.model
        others = (each.model for each in variants if each.model is not None)
        self._models = tuple(dict.fromkeys((self._written, *codon.fallback_models, *others)))
        self._environment = codon.env
        self._host = {**common(os.environ, os.environ), **codon.env}
        """The part of the server's environment that the agent can see, with the codons' `env`."""
        self._permissions = permissions_of(codon, overrides)
        self._listed = listed
        self._is_own = _is_own(selection.spec)
        self._named = known_of(selection.name)
        self._known = self._named if self._is_own else known_of("")
        """The facts about the program; a foreign adapter of a known agent has none."""
        self._title = self._named.title or repr(selection.name)
        self._path: str | None = None
        self._version: str | None = None
        self._faults: list[AgentFault] = []
        self._notes: list[str] = []
        self.codons: dict[str, None] = {}

    @property
    def key(self) -> str:
        """Equal for equal needs; the model only counts for agents that use one."""
        spec = (self._selection, self._models) if self._has_model else agent_named(self._selection)
        return repr((spec, sorted(self._environment.items()), self._permissions))

    def result(self) -> AgentCheck:
        """Check everything; runs the agent's `--version`."""
        logins: tuple[str, ...] = ()
        if self._selection.is_known:
            self._find_program()
            is_found = not self._faults
            self._check_permissions()
            self._check_maker()
            unlisted = self._check_spelling()
            self._check_root()
            self._check_library()
            if is_found:
                logins = logins_in(self._known, self._host)
                self._check_login(logins)

            self._notes += unlisted
        else:
            self._refuse_model()

        return AgentCheck(
            codons=tuple(self.codons),
            agent=agent_named(self._selection),
            model=self._selection.model if self._has_model else "",
            path=self._path,
            version=self._version,
            logged_in_by=logins,
            faults=tuple(self._faults),
            notes=tuple(self._notes),
        )

    def _refuse(self, message: str, hint: str) -> None:
        self._faults.append(AgentFault(message=message, hint=hint))

    # --- program and login -----------------------------------------------------------------------

    def _find_program(self) -> None:
        """Find the program and, for a known agent, its version."""
        command, install, title = command_of(self._spec), self._known.install, self._title
        program = command[0] if command else BUILT_IN
        if not command:
            self._path = BUILT_IN
        elif "/" in program and not os.path.isabs(program):
            self._notes.append(
                f"{program} will be looked up in the work tree when its codon starts."
            )
        elif not self._is_own:
            self._path = shutil.which(program, path=self._host.get("PATH"))
            if self._path is None:
                self._refuse(f"The program {program!r} was not found.", install)
        else:
            found = program_of(command, self._known, self._host)
            self._path, self._version = found.path, found.version
            again, oldest = f"Reinstall it with '{install}'.", self._known.oldest
            if found.absent is not None:
                self._refuse(
                    f"{title} is not installed: {found.absent!r} was not found.",
                    f"Install it with '{install}', or choose another agent with --agent.",
                )
            elif not found.can_run:
                self._refuse(f"{title} {found.complaint}: {found.path}.", again)
            elif found.version is None:
                self._notes.append(f"{title} {found.complaint}.")
            elif _numbers(found.version) < _numbers(oldest):
                self._refuse(
                    f"{title} {found.version} is too old: {oldest} or newer is needed.", again
                )

    def _check_library(self) -> None:
        """Report the library of the Agent Client Protocol, if it is needed and not installed."""
        missing = missing_library() if isinstance(self._spec, AcpAgentSpec) else None
        if missing is not None:
            self._refuse(missing.message, missing.hint or "")

    def _check_login(self, seen: tuple[str, ...]) -> None:
        """Report an agent without key or login, or note why there may be one all the same."""
        if seen:
            return

        if (why := self._unseen_login()) is not None:
            self._notes.append(f"{self._title}: no key or login was found; {why}.")
        elif self._is_own:
            self._refuse(
                f"{self._title} has no API key and no login here.",
                f"Set {self._known.keys[0]}, or log in: {self._known.log_in}.",
            )

    def _unseen_login(self) -> str | None:
        """Return the reason why there may be a login that is not visible here."""
        if self._selection.on_bedrock:
            return "AWS credentials are not checked"

        if self._has_own_provider():
            return "the provider that 'config' names may need none"

        if self._selection.name == "claude" and sys.platform == "darwin":
            return "it may be in the keychain"

        if self._selection.name in ("opencode", "pi"):
            return "its provider may need none"

        return None

    def _check_root(self) -> None:
        """Report Claude Code in the mode that it refuses to run as root without IS_SANDBOX."""
        spec = self._spec
        bypasses = isinstance(spec, ClaudeAgentSpec) and spec.permission_mode == "bypassPermissions"
        if not bypasses or self._permissions is not None or os.getuid() != 0:
            return

        seen = {**common(os.environ, {SANDBOX: "1"}), **self._environment}
        if seen.get(SANDBOX) != "1":
            self._refuse(
                f"Claude Code does not bypass permissions as root unless {SANDBOX} is 1.",
                f"Run the server as another user, or unset HANKWEAVE_{SANDBOX}.",
            )

    # --- model and permissions -------------------------------------------------------------------

    def _refuse_model(self) -> None:
        """Report a model that no known agent runs."""
        meant = suggestion_for(self._written)
        spelling = spelling_of(self._written, self._listed) if self._listed else None
        if meant is None and spelling is not None and spelling.is_misspelt:
            meant = spelling.nearest

        hint = f"Did you mean {meant!r}?"
        if meant is None:
            hint = (
                "Use a model of Claude (sonnet, claude-...), OpenAI (gpt-..., codex-...) or Google "
                "(gemini-...), 'opencode/PROVIDER/MODEL' or 'pi/PROVIDER/MODEL'; "
                "or set an 'agent' in the codon."
            )

        self._refuse(f"No agent is known to run the model {self._written!r}.", hint)

    def _has_own_provider(self) -> bool:
        return isinstance(self._spec, CodexAgentSpec) and "model_provider" in self._spec.config

    def _runs_any_model(self) -> bool:
        """Return whether nothing is known about the models that the agent can run."""
        elsewhere = self._host.get(self._named.endpoint)
        return not self._named.title or bool(elsewhere) or self._has_own_provider()

    def _check_spelling(self) -> list[str]:
        """Report misspelt names of models, which the provider would refuse.

        Returns a remark on each model that is newer than the list of models, or does not exist.
        """
        unlisted: list[str] = []
        if not self._listed or self._runs_any_model():
            return unlisted

        for model in self._models:
            spelling = spelling_of(model, self._listed)
            if spelling is not None and spelling.is_misspelt:
                self._refuse(
                    f"There is no model {model!r} in the list of known models.",
                    f"Did you mean {spelling.nearest!r}? If the name is right, add it to your "
                    "own prices (--prices).",
                )
            elif spelling is not None and self._named.endpoint:
                near = "" if spelling.nearest is None else f"; the nearest is {spelling.nearest!r}"
                what = f"the model {model!r} is not in the list of known models"
                unlisted.append(f"{self._title}: {what}{near}.")

        return unlisted

    def _check_maker(self) -> None:
        """Report a model that the chosen agent cannot run."""
        is_foreign = is_of_another_maker(self._written, self._selection.name)
        if is_foreign and not self._runs_any_model():
            self._refuse(
                f"{self._title} does not run the model {self._written!r}.",
                "Choose another with --model, or leave the agent out: the model selects it.",
            )

    def _check_permissions(self) -> None:
        """Report permissions that have no effect because the agent never asks."""
        permissions = self._permissions
        if permissions is not None and can_refuse(permissions) and not can_ask(self._spec):
            self._refuse(
                f"The hank has permissions, but {self._title} does not ask for them.",
                "Choose another agent, or remove the permissions.",
            )


def _is_own(spec: AgentSpec) -> bool:
    """Return whether the program is the agent itself, not npx or a third-party adapter."""
    usual, command = BY_NAME.get(name_of(spec) or ""), command_of(spec)
    if usual is None or not command:
        return False

    return os.path.basename(command[0]) == command_of(usual)[0]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version up to a `-` or `+`."""
    return tuple(map(int, _NUMBER.findall(re.split(r"[-+]", version)[0])))


def agent_named(selection: Selection) -> str:
    """Return an agent's name, or its type and program if it has no name."""
    match selection.spec:
        case ScriptedAgentSpec():
            return "scripted"
        case CommandAgentSpec(command=command):
            return f"command {command[0]}"
        case AcpAgentSpec(command=command) if name_of(selection.spec) is None:
            return f"acp {command[0]}"
        case _:
            return selection.name


# --- identity -------------------------------------------------------------------------------------

_PROVIDERS = (
    *("ANTHROPIC_", "AWS_", "CLAUDE_CODE_", "CODEX_", "GEMINI_", "GOOGLE_", "OPENAI_", "OPENCODE_"),
    "VERTEX_",
)
"""Prefixes of the variables that agents get besides those that all of them get."""

_SETTLED_NS = 2_000_000_000
"""The age of a change after which another one is sure to have another time."""


class AgentIdentities:
    """The identities of one execution's agents; a program is asked again when its file changes."""

    def __init__(self, selector: AgentSelector, work_tree: Path, *, may_run_programs: bool) -> None:
        """Without `may_run_programs`, the version of an agent's program is unknown.

        The version of a command is in its settings, and that of the scripted agent is our own.
        """
        self._selector = selector
        self._work_tree = work_tree
        self._may_run_programs = may_run_programs
        self._versions: dict[bytes, tuple[str, tuple[int, ...], str]] = {}

    def identity_of(self, codon: Codon) -> AgentIdentity:
        """Return the agent of a codon.

        Blocks, perhaps for seconds: it may run the agent's program. Raises OSError for a script
        that cannot be read.
        """
        selection = self._selector.select(codon)
        spec = msgspec.to_builtins(selection.spec)
        spec.pop("version", None)
        return AgentIdentity(
            spec={**spec, "onBedrock": selection.on_bedrock},
            version=self._version_of(codon, selection.spec),
            files=self._files_of(codon, selection.spec),
            environment={
                name: _digest(value.encode("utf-8", "surrogateescape"))
                for name, value in _environment(selection.spec, os.environ)
            },
        )

    def _version_of(self, codon: Codon, spec: AgentSpec) -> str | None:
        if isinstance(spec, ScriptedAgentSpec):
            return __version__

        if isinstance(spec, CommandAgentSpec):
            return spec.version

        if name_of(spec) is None or not self._may_run_programs:
            return None

        need = msgspec.json.encode((spec, codon.env, os.environ.get("PATH")), order="sorted")
        if need in self._versions:
            path, stamp, version = self._versions[need]
            if _stamp(path) == stamp:
                return version

        (check,) = check_agents((codon,), self._selector, None)
        stamp = _stamp(check.path or "")
        # An adapter's own file does not change with the program behind it.
        if check.path and check.version and stamp and not known_of(name_of(spec) or "").engine:
            self._versions[need] = check.path, stamp, check.version

        return check.version

    def _files_of(self, codon: Codon, spec: AgentSpec) -> dict[str, str]:
        """Return hashes of a scripted agent's scripts, or of the files that a command names."""
        match spec:
            case ScriptedAgentSpec():
                paths = self._selector.agent_of(spec).needs(codon.env).read
                return {path.name: _digest(path.read_bytes()) for path in paths}
            case CommandAgentSpec(command=command, version=str()):
                named = dict(self._named_by(command))
                program = self._program(command[0], codon.env)
                if program is not None:
                    named[command[0]] = program

                return {name: _content_of(path) for name, path in named.items()}
            case _:
                return {}

    def _program(self, word: str, environment: Mapping[str, str]) -> Path | None:
        if "/" in word:
            return self._work_tree / word

        seen = {**common(os.environ, {}), **environment}
        found = shutil.which(word, path=seen.get("PATH"))
        return None if found is None else Path(found)

    def _named_by(self, command: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
        """Yield the files that arguments name, as paths from the work tree or `--option=FILE`."""
        for word in command[1:]:
            for name in (word, word.partition("=")[2]):
                # Not of pathlib, which raises for a word that is too long for a path.
                if name and os.path.isfile(os.path.join(self._work_tree, name)):
                    yield name, self._work_tree / name


def _environment(spec: AgentSpec, host: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    own = (spec.keys or ()) if isinstance(spec, AcpAgentSpec) else ()
    names = known_of(name_of(spec) or "").keys
    prefixes = (*_PROVIDERS, *(each for each in own if each.endswith("_")))
    extra = {
        name: value
        for name, value in host.items()
        if name.startswith(prefixes) or name in own or name in names
    }
    seen = common(host, {} if isinstance(spec, ScriptedAgentSpec) else extra)
    return ((name, seen[name]) for name in sorted(seen) if name != player.SCRIPT)


def _stamp(path: str | Path) -> tuple[int, ...]:
    """Return the stat data of a file, without links and the time of change last; or nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return ()

    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def _content_of(path: Path) -> str:
    """Return the hash of a file; it is read again if its stat data have changed, or still may."""
    stamp = _stamp(path)
    is_settled = stamp and time.time_ns() - stamp[-1] > _SETTLED_NS
    return _read_once(path, stamp) if is_settled else _read_once.__wrapped__(path, stamp)


@lru_cache(maxsize=1024)
def _read_once(path: Path, _stamp: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
