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
from dataclasses import dataclass, field
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
    Permissions,
    ScriptedAgentSpec,
)
from hankweave_protocol.shapes import Value
from hankweave_server import __version__
from hankweave_server.agents import inventory
from hankweave_server.agents.acp.adapter import missing_library
from hankweave_server.agents.claude import SANDBOX
from hankweave_server.agents.inventory import BUILT_IN, Acquaintance
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.registry import Roster
from hankweave_server.agents.scripted import player
from hankweave_server.domain.model_names import Spelling, spelling_of
from hankweave_server.domain.model_routes import AgentName, is_of_another_maker, suggestion_for
from hankweave_server.domain.permissions import can_refuse, permissions_of
from hankweave_server.domain.reuse.key import AgentIdentity
from hankweave_server.hank.agents import BY_NAME, Selection, name_of

_ENDPOINTS: Mapping[str, str] = {
    "claude": "ANTHROPIC_BASE_URL",
    "codex": "OPENAI_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
"""Variables that send an agent to another endpoint, which may know any model."""

_MUST_LOG_IN = frozenset({"claude", "codex", "gemini"})
"""Agents for which every place of a key or login is known."""

_TITLES: Mapping[str, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "OpenCode",
    "pi": "Pi",
}
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


@dataclass(frozen=True, slots=True)
class _Need:
    """Codons that need the same agent in the same way."""

    selection: Selection
    written_model: str
    """The model as the hank or the command line names it."""
    models: tuple[str, ...]
    """All models that the hank names for the codons, the written one first."""
    environment: Mapping[str, str]
    """The codons' `env`."""
    permissions: Permissions | None
    can_ask: bool
    codons: list[str] = field(default_factory=list)


def check_agents(
    codons: Iterable[Codon],
    roster: Roster,
    overrides: Overrides | None,
    listed: Collection[str] = (),
) -> tuple[AgentCheck, ...]:
    """Check the agents of codons in parallel, up to 8 at a time; runs each agent's `--version`.

    `listed` has the names of known models; without it, the spelling of models is not checked.
    """
    needs: dict[object, _Need] = {}
    for codon in codons:
        need = _need_of(codon, roster, overrides)
        needs.setdefault(_key_of(need), need).codons.append(codon.id)

    if not needs:
        return ()

    with ThreadPoolExecutor(max_workers=min(8, len(needs))) as pool:
        return tuple(pool.map(lambda need: _checked(need, listed), needs.values()))


def _need_of(codon: Codon, roster: Roster, overrides: Overrides | None) -> _Need:
    written = roster.model or codon.model
    variants = () if codon.attempts is None else codon.attempts.variants
    others = (*codon.fallback_models, *(each.model for each in variants if each.model is not None))
    return _Need(
        selection=roster.select(codon),
        written_model=written,
        models=tuple(dict.fromkeys((written, *others))),
        environment=codon.env,
        permissions=permissions_of(codon, overrides),
        can_ask=roster.agent_for(codon).can_ask,
    )


def _key_of(need: _Need) -> str:
    """Return a key that is equal for equal needs; the model only counts for agents that use one."""
    spec = need.selection.spec
    if isinstance(spec, _WITHOUT_MODEL):
        what: object = agent_named(need.selection)
    else:
        what = (need.selection, need.models)

    return repr((what, sorted(need.environment.items()), need.permissions))


def _checked(need: _Need, listed: Collection[str]) -> AgentCheck:
    selection, host = need.selection, {**common(os.environ, os.environ), **need.environment}
    empty = AgentCheck(
        codons=tuple(dict.fromkeys(need.codons)),
        agent=agent_named(selection),
        model="" if isinstance(selection.spec, _WITHOUT_MODEL) else selection.model,
        path=None,
        version=None,
        logged_in_by=(),
        faults=(),
        notes=(),
    )
    check = _Check(need, host, _known_of(selection), listed)
    if not selection.is_known:
        return _with(empty, faults=(check.unknown_model(),))

    faults = [
        *check.of_permissions(),
        *check.of_model(),
        *check.of_spelling(),
        *check.of_root(),
        *check.of_library(),
    ]
    found = check.program()
    if found.fault is not None:
        notes = (*found.notes, *check.unlisted_models())
        return _with(
            empty,
            path=found.path,
            version=found.version,
            faults=(found.fault, *faults),
            notes=notes,
        )

    seen = check.logins()
    return _with(
        empty,
        path=found.path,
        version=found.version,
        logged_in_by=seen,
        faults=(*faults, *check.of_login(seen)),
        notes=(*found.notes, *check.notes(seen), *check.unlisted_models()),
    )


def _known_of(selection: Selection) -> Acquaintance:
    """Return the facts about the program; a foreign adapter of a known agent has none."""
    return inventory.known_of(selection.name if _is_own(selection.spec) else "")


def _is_own(spec: AgentSpec) -> bool:
    """Return whether the program is the agent itself, not npx or a third-party adapter."""
    usual, command = BY_NAME.get(name_of(spec) or ""), inventory.command_of(spec)
    if usual is None or not command:
        return False

    return os.path.basename(command[0]) == inventory.command_of(usual)[0]


def _with(check: AgentCheck, **changes: object) -> AgentCheck:
    return AgentCheck(**{name: getattr(check, name) for name in check.__struct_fields__} | changes)


@dataclass(frozen=True, slots=True)
class _Program:
    path: str | None = None
    version: str | None = None
    fault: AgentFault | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Check:
    """The checks of one agent."""

    need: _Need
    host: Mapping[str, str]
    """The part of the server's environment that the agent can see, with the codons' `env`."""
    known: Acquaintance
    listed: Collection[str]
    """The names of known models."""

    @property
    def _name(self) -> str:
        return self.need.selection.name

    @property
    def _title(self) -> str:
        return _TITLES.get(self._name, repr(self._name))

    # --- the program -----------------------------------------------------------------------------

    def program(self) -> _Program:
        """Find the program and, for a known agent, its version."""
        spec = self.need.selection.spec
        command = inventory.command_of(spec)
        if not command:
            return _Program(path=BUILT_IN)

        program = command[0]
        if "/" in program and not os.path.isabs(program):
            note = f"{program} will be looked up in the work tree when its codon starts."
            return _Program(notes=(note,))

        path = shutil.which(program, path=self.host.get("PATH"))
        if path is None:
            return _Program(fault=self._not_installed(program))

        return self._with_version(path) if _is_own(spec) else _Program(path=path)

    def of_library(self) -> Iterator[AgentFault]:
        """Report the library of the Agent Client Protocol, if it is needed and not installed."""
        if isinstance(self.need.selection.spec, AcpAgentSpec):
            missing = missing_library()
            if missing is not None:
                yield AgentFault(message=missing.message, hint=missing.hint or "")

    def _not_installed(self, program: str) -> AgentFault:
        install = self.known.install
        if not _is_own(self.need.selection.spec):
            return AgentFault(message=f"The program {program!r} was not found.", hint=install)

        return AgentFault(
            message=f"{self._title} is not installed: {program!r} was not found.",
            hint=f"Install it with '{install}', or choose another agent with --agent.",
        )

    def _with_version(self, path: str) -> _Program:
        engine = inventory.engine_of(self.known, path, self.host)
        if engine is None:
            return _Program(path, fault=self._not_installed(self.known.engine))

        found = inventory.version_of(engine, self.host)
        if found.cannot_run is not None:
            message = f"{self._title} {found.cannot_run}: {path}."
            return _Program(path, fault=AgentFault(message=message, hint=self._install_anew()))

        number, oldest = found.number, self.known.oldest
        if number is None:
            return _Program(path, notes=(f"{self._title} {found.complaint}.",))

        if _numbers(number) < _numbers(oldest):
            message = f"{self._title} {number} is too old: {oldest} or newer is needed."
            return _Program(path, number, AgentFault(message=message, hint=self._install_anew()))

        return _Program(path, number)

    def _install_anew(self) -> str:
        return f"Reinstall it with '{self.known.install}'."

    # --- the login -------------------------------------------------------------------------------

    def logins(self) -> tuple[str, ...]:
        """Return the names of the variables and files that show a login."""
        return inventory.logins_in(self.known, self.host)

    def of_login(self, seen: tuple[str, ...]) -> Iterator[AgentFault]:
        """Report an agent that has no key or login, if one would be visible here."""
        must = self._name in _MUST_LOG_IN and _is_own(self.need.selection.spec)
        if seen or not must or self._is_elsewhere() is not None:
            return

        variable = self.known.keys[0]
        yield AgentFault(
            message=f"{self._title} has no API key and no login here.",
            hint=f"Set {variable}, or log in: {self.known.log_in}.",
        )

    def notes(self, seen: tuple[str, ...]) -> Iterator[str]:
        """Return remarks on a login that could not be checked."""
        if not seen and (why := self._is_elsewhere()) is not None:
            yield f"{self._title}: no key or login was found; {why}."

    def _is_elsewhere(self) -> str | None:
        """Return the reason why there may be a login that is not visible here."""
        spec = self.need.selection.spec
        if self.need.selection.on_bedrock:
            return "AWS credentials are not checked"

        if isinstance(spec, CodexAgentSpec) and "model_provider" in spec.config:
            return "the provider that 'config' names may need none"

        if self._name == "claude" and sys.platform == "darwin":
            return "it may be in the keychain"

        if self._name in ("opencode", "pi"):
            return "its provider may need none"

        return None

    # --- model and permissions -------------------------------------------------------------------

    def unknown_model(self) -> AgentFault:
        model = self.need.written_model
        meant = suggestion_for(model)
        hint = (
            "Use a model of Claude (sonnet, claude-...), OpenAI (gpt-..., codex-...) or Google "
            "(gemini-...), 'opencode/PROVIDER/MODEL' or 'pi/PROVIDER/MODEL'; "
            "or set an 'agent' in the codon."
        )
        spelling = spelling_of(model, self.listed) if self.listed else None
        if meant is None and spelling is not None and spelling.is_misspelt:
            meant = spelling.nearest

        if meant is not None:
            hint = f"Did you mean {meant!r}?"

        return AgentFault(message=f"No agent is known to run the model {model!r}.", hint=hint)

    def _runs_any_model(self) -> bool:
        """Return whether nothing is known about the models that the agent can run."""
        spec, name = self.need.selection.spec, self._name
        if isinstance(spec, CodexAgentSpec) and "model_provider" in spec.config:
            return True

        return name not in _TITLES or bool(self.host.get(_ENDPOINTS.get(name, "")))

    def _spellings(self) -> Iterator[tuple[str, Spelling]]:
        if not self.listed or self._runs_any_model():
            return

        for model in self.need.models:
            spelling = spelling_of(model, self.listed)
            if spelling is not None:
                yield model, spelling

    def of_spelling(self) -> Iterator[AgentFault]:
        """Report misspelt names of models, which the provider would refuse."""
        for model, spelling in self._spellings():
            if spelling.is_misspelt:
                yield AgentFault(
                    message=f"There is no model {model!r} in the list of known models.",
                    hint=f"Did you mean {spelling.nearest!r}? If the name is right, add it to your "
                    "own prices (--prices).",
                )

    def unlisted_models(self) -> Iterator[str]:
        """Yield a remark on each model that is newer than the list of models, or does not exist."""
        if self._name not in _ENDPOINTS:
            return

        for model, spelling in self._spellings():
            if not spelling.is_misspelt:
                near = "" if spelling.nearest is None else f"; the nearest is {spelling.nearest!r}"
                what = f"the model {model!r} is not in the list of known models"
                yield f"{self._title}: {what}{near}."

    def of_model(self) -> Iterator[AgentFault]:
        """Report a model that the chosen agent cannot run."""
        name, model = self._name, self.need.written_model
        if self._runs_any_model():
            return

        if is_of_another_maker(model, _agent_name(name)):
            yield AgentFault(
                message=f"{self._title} does not run the model {model!r}.",
                hint="Choose another with --model, or leave the agent out: the model selects it.",
            )

    def of_permissions(self) -> Iterator[AgentFault]:
        """Report permissions that have no effect because the agent never asks."""
        permissions = self.need.permissions
        if permissions is not None and can_refuse(permissions) and not self.need.can_ask:
            yield AgentFault(
                message=f"The hank has permissions, but {self._title} does not ask for them.",
                hint="Choose another agent, or remove the permissions.",
            )

    def of_root(self) -> Iterator[AgentFault]:
        """Report Claude Code in the mode that it refuses to run as root without IS_SANDBOX."""
        spec = self.need.selection.spec
        bypasses = isinstance(spec, ClaudeAgentSpec) and spec.permission_mode == "bypassPermissions"
        if not bypasses or self.need.permissions is not None or os.getuid() != 0:
            return

        seen = {**common(os.environ, {SANDBOX: "1"}), **self.need.environment}
        if seen.get(SANDBOX) != "1":
            yield AgentFault(
                message=f"Claude Code does not bypass permissions as root unless {SANDBOX} is 1.",
                hint=f"Run the server as another user, or unset HANKWEAVE_{SANDBOX}.",
            )


def _agent_name(name: str) -> AgentName:
    assert name in _TITLES
    return name  # type: ignore[return-value]


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

Stamp = tuple[str, int, int, int]

_SETTLED_NS = 2_000_000_000
"""The age of a change after which another one is sure to have another time."""


class AgentIdentities:
    """The identities of one execution's agents; a program is asked again when its file changes."""

    def __init__(self, roster: Roster, work_tree: Path, *, may_run_programs: bool) -> None:
        """Without `may_run_programs`, the version of an agent's program is unknown.

        The version of a command is in its settings, and that of the scripted agent is our own.
        """
        self._roster = roster
        self._work_tree = work_tree
        self._may_run_programs = may_run_programs
        self._versions: dict[bytes, tuple[Stamp, str]] = {}
        self._contents: dict[Path, tuple[tuple[int, ...], str]] = {}
        """Hashes of the files of commands, with the stat data that they belong to."""

    def identity_of(self, codon: Codon) -> AgentIdentity:
        """Return the agent of a codon.

        Blocks, perhaps for seconds: it may run the agent's program. Raises OSError for a script
        that cannot be read.
        """
        selection = self._roster.select(codon)
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
        known = self._versions.get(need)
        if known is not None and _stamp(Path(known[0][0])) == known[0]:
            return known[1]

        (check,) = check_agents((codon,), self._roster, None)
        if check.version is None or check.path is None:
            return None

        stamp = _stamp(Path(check.path))
        # An adapter's own file does not change with the program behind it.
        if stamp is not None and not inventory.known_of(name_of(spec) or "").engine:
            self._versions[need] = stamp, check.version

        return check.version

    def _files_of(self, codon: Codon, spec: AgentSpec) -> dict[str, str]:
        """Return hashes of a scripted agent's scripts, or of the files that a command names."""
        match spec:
            case ScriptedAgentSpec():
                paths = self._roster.agent_of(spec).needs(codon.env).read
                return {path.name: _digest(path.read_bytes()) for path in paths}
            case CommandAgentSpec(command=command, version=str()):
                named = dict(self._named_by(command))
                program = self._program(command[0], codon.env)
                if program is not None:
                    named[command[0]] = program

                return {name: self._content_of(path) for name, path in named.items()}
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

    def _content_of(self, path: Path) -> str:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            times = (status.st_mtime_ns, status.st_ctime_ns)
            seen = (status.st_dev, status.st_ino, status.st_size, *times)
            known = self._contents.get(path)
            if known is not None and known[0] == seen:
                return known[1]

            content = hashlib.file_digest(file, "sha256").hexdigest()
            if time.time_ns() - status.st_ctime_ns > _SETTLED_NS:
                self._contents[path] = seen, content

            return content


def _environment(spec: AgentSpec, host: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    own = (spec.keys or ()) if isinstance(spec, AcpAgentSpec) else ()
    names = inventory.known_of(name_of(spec) or "").keys
    prefixes = (*_PROVIDERS, *(each for each in own if each.endswith("_")))
    extra = {
        name: value
        for name, value in host.items()
        if name.startswith(prefixes) or name in own or name in names
    }
    seen = common(host, {} if isinstance(spec, ScriptedAgentSpec) else extra)
    return ((name, seen[name]) for name in sorted(seen) if name != player.SCRIPT)


def _stamp(path: Path) -> Stamp | None:
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except OSError:
        return None

    return str(path), status.st_ino, status.st_size, status.st_mtime_ns


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
