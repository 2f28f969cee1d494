"""Decide which changes of files are an agent's, and which are a person's, while a codon runs.

A scan of the work tree finds that a file has changed, not who changed it. What is known is what the
agent reports: the calls of its tools. A call of `Write` names its file; a call of `Bash` may change
any file; a call of `Read` changes none. So between two scans the agent can only have changed what
the calls that were open in between reach, and everything else was changed by a person or another
program. Where it cannot be known, the change is the agent's: an automatic restore then takes it
back, but saves it first and names it. Four cases need care:

- An agent that waits for the server before each call (see `Agent.waits_before_tools`) has not begun
  a call that it has reported until it asks. The files are scanned when it asks, so what a person
  changed while the model was thinking is known.
- Such an agent may call a tool without asking. This is known when the call returns. What was
  credited to people since the call began is then the agent's, as far as the call reaches.
- Any other agent may have begun calls that have not been read. So what it has printed until the end
  of a scan is read before changes are credited to people. An agent that prints a call after the
  change, or is too far ahead for that, gets it later: what was credited to people is the agent's
  after all if a later call names it, or if the server dies. A later call that may change anything
  takes only what was credited since the call before it.
- A program that prints plain text reports no calls, and a command that a shell leaves running in
  the background outlives its call. Both may change any file at any time.

`WorkSoFar` answers a second question, for restores: which files did both an agent and a person
change since a moment? It is asked of the journal, so that the answer is the same after a crash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from hankweave_protocol.codec import decode_transition
from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    CheckpointRollback,
    CodonCompletedEvent,
    EventData,
    FilesChanged,
    FileUpdated,
    PermissionRequested,
    PermissionResolved,
    StateTransition,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.state import ActiveStatus
from hankweave_protocol.transitions import EditsNoticed, EditsOvertaken
from hankweave_server.domain.effects.tools import FILE_TOOLS, PATH_KEYS, READ_ONLY_TOOLS

_BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>])|\b(?:nohup|setsid|daemonize|disown)\b")


@dataclass(frozen=True, slots=True)
class Reach:
    """The files that calls may change."""

    anything: bool = False
    paths: frozenset[bytes] = frozenset()
    """Relative to the work tree."""

    def covers(self, path: bytes) -> bool:
        return self.anything or path in self.paths

    def __or__(self, other: Reach) -> Reach:
        return Reach(self.anything or other.anything, self.paths | other.paths)


NOTHING = Reach()
ANYTHING = Reach(anything=True)


def reach_of(
    tool: str, given: Mapping[str, object], places: Callable[[str], Iterable[bytes]]
) -> Reach:
    """Return what a call may change in the work tree.

    `places` returns what a path of its input may mean, relative to the work tree; nothing for one
    outside of it.
    """
    if tool in READ_ONLY_TOOLS:
        return NOTHING

    named = _named(given) if tool in FILE_TOOLS else None
    if not named:
        return ANYTHING

    return Reach(paths=frozenset(place for path in named for place in places(path)))


def _named(given: Mapping[str, object]) -> list[str] | None:
    """Return the paths in the input of a call that changes files; None if they are not known."""
    more, changes = given.get("file_paths", ()), given.get("changes", ())
    if not isinstance(more, list | tuple) or not isinstance(changes, list | tuple):
        return None

    named = [given[key] for key in PATH_KEYS if key in given]
    named += [*more, *(each.get("path") if isinstance(each, Mapping) else None for each in changes)]
    texts = [path for path in named if isinstance(path, str) and path and "\0" not in path]
    return texts if len(texts) == len(named) else None


def _outlives_its_call(given: Mapping[str, object]) -> bool:
    """Return whether a shell command may go on after its call has returned."""
    command = given.get("command")
    return bool(given.get("run_in_background")) or (
        isinstance(command, str) and _BACKGROUND.search(command) is not None
    )


@dataclass(slots=True)
class _Call:
    tool: str
    reach: Reach
    has_begun: bool


class AgentCalls:
    """The calls of one conversation with an agent, and what they may have changed."""

    def __init__(self, *, waits: bool) -> None:
        """Begin without calls. With `waits`, the agent asks before each that may change files."""
        self._waits = waits
        self._reports_calls = waits
        self._open: dict[str, _Call] = {}
        self._asked_ahead: list[_Call] = []
        """Calls that asked before they were reported."""
        self._lasting = NOTHING
        self._ended = NOTHING
        """The reach of the calls that ended since the last scan."""
        self._ended_tools: list[str] = []
        self._credited: set[bytes] = set()
        """Paths that were credited to people and may turn out to be the agent's."""
        self._newly_credited: set[bytes] = set()
        """Those of them that were credited since the last call."""

    @property
    def reach(self) -> Reach:
        """The files that the agent may have changed since the last scan."""
        if not self._reports_calls:
            return ANYTHING

        reach = self._ended | self._lasting
        for call in (*self._open.values(), *self._asked_ahead):
            if call.has_begun:
                reach |= call.reach

        return reach

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose calls may have changed files since the last scan, in order."""
        begun = (call for call in (*self._open.values(), *self._asked_ahead) if call.has_begun)
        return (*self._ended_tools, *(call.tool for call in begun))

    def note_message(self) -> None:
        """Note a message of the model: a program that prints such messages reports its calls."""
        self._reports_calls = True

    def printed(self) -> None:
        """Note a line of plain text."""
        self._reports_calls = self._waits

    def scans(self) -> Reach:
        """Note that a scan begins, and return what the agent may have changed until now."""
        reach, self._ended = self.reach, NOTHING
        self._ended_tools.clear()
        return reach

    def credit(self, paths: frozenset[bytes]) -> frozenset[bytes]:
        """Note which changes a scan has credited to people.

        Returns those of them that are the agent's: a call that was read since may have made them.
        """
        reach = self.reach
        taken = frozenset(path for path in paths if reach.covers(path))
        if not self._waits or not self._have_all_begun:
            self._newly_credited |= paths - taken
            self._credited |= self._newly_credited

        return taken

    def called(
        self,
        call_id: str,
        tool: str,
        given: Mapping[str, object],
        reach: Reach,
        *,
        asks: bool = True,
    ) -> frozenset[bytes]:
        """Note a call; return what is the agent's although it was credited to people.

        `asks` is false for a tool that the agent was seen to call without asking.
        """
        self.note_message()
        if reach == NOTHING:
            return frozenset()

        asked = next((call for call in self._asked_ahead if call.tool == tool), None)
        if asked is not None:
            self._asked_ahead.remove(asked)

        has_begun = asked is not None or not (self._waits and asks)
        self._open[call_id] = _Call(tool, reach, has_begun)
        if _outlives_its_call(given):
            self._lasting = ANYTHING

        if self._waits:
            return frozenset()

        candidates = self._newly_credited if reach.anything else self._credited
        taken = frozenset(path for path in candidates if reach.covers(path))
        self._credited -= taken
        self._newly_credited.clear()
        return taken

    def asked(self, tool: str, reach: Reach) -> None:
        """Note that a call is about to begin."""
        waiting = [call for call in self._open.values() if not call.has_begun and call.tool == tool]
        if waiting:
            next((call for call in waiting if call.reach == reach), waiting[0]).has_begun = True
        elif reach != NOTHING:
            self._asked_ahead.append(_Call(tool, reach, has_begun=True))

        if self._have_all_begun:
            self._credited.clear()

    def held(self, tool: str) -> None:
        """Note that the newest call of a tool waits for an answer."""
        for call in reversed(self._open.values()):
            if call.tool == tool:
                call.has_begun = False
                return

    def returned(self, call_id: str) -> frozenset[bytes]:
        """Note the end of a call; return what is the agent's although credited to people."""
        call = self._open.pop(call_id, None)
        if call is None:
            return frozenset()

        self._ended |= call.reach
        self._ended_tools.append(call.tool)
        if call.has_begun:
            return frozenset()

        taken = frozenset(path for path in self._credited if call.reach.covers(path))
        self._credited.clear()
        return taken

    @property
    def _have_all_begun(self) -> bool:
        return all(call.has_begun for call in self._open.values())


def left_running(
    events: Iterable[EventData],
    phase: ActiveStatus,
    reach: Callable[[str, Mapping[str, object]], Reach],
    *,
    waits: bool,
    has_rig: bool,
    has_checks: bool,
) -> Reach:
    """Return what a codon may have changed between its last scan and the end of its server.

    `events` are those since its start, and `phase` is where it was. A journaled result of a call
    has been followed by a scan: the two are written together.
    """
    calls, has_ended = AgentCalls(waits=waits), False
    for data in events:
        match data:
            case AssistantAction(action="tool_use", tool_name=str() as tool):
                # It may have begun: the journal does not say whether it had asked.
                given = data.tool_input or {}
                calls.called(data.tool_use_id or "", tool, given, reach(tool, given), asks=False)
                has_ended = False
            case AssistantAction():
                calls.note_message()
                has_ended = False
            case ToolResult(tool_use_id=call_id):
                calls.returned(call_id)
                calls.scans()
            case AgentOutput(stream="stdout"):
                calls.printed()
            case PermissionRequested(tool_name=tool):
                calls.held(tool)
            case PermissionResolved(tool_name=tool, decision="allow"):
                calls.asked(tool, NOTHING)
            case TokenUsage(final=True):
                has_ended = True
            case CodonCompletedEvent():
                return NOTHING
            case _:
                pass

    match phase:
        case "preparing":
            return ANYTHING if has_rig else NOTHING
        case "starting":
            return NOTHING
        case "initializing" | "running":
            # An agent that does not wait may have begun a call that was not read.
            return calls.reach if waits and not (has_ended and has_checks) else ANYTHING
        case "completing-sentinels":
            return ANYTHING
        case _:
            assert_never(phase)


@dataclass
class WorkSoFar:
    """The files that agents and people have changed since a moment, from the journal."""

    people: set[str] = field(default_factory=set)
    agents: set[str] = field(default_factory=set)
    _bursts: list[FilesChanged] = field(default_factory=list)

    def edited(self, paths: Iterable[str]) -> None:
        """Add files that people changed."""
        self.people.update(paths)

    def handle(self, data: EventData) -> None:
        """Add one event; after a restore of everything, what was before it does not count."""
        match data:
            case FileUpdated(source=source, path=path) if source.kind not in ("person", "rollback"):
                self.agents.add(path)
            case FilesChanged(source=source) if source.kind not in ("person", "rollback"):
                self._bursts.append(data)
            case CheckpointRollback(paths=None):
                for known in (self.people, self.agents, self._bursts):
                    known.clear()
            case StateTransition(transition_type="EditsNoticed" | "EditsOvertaken"):
                match decode_transition(data):
                    case EditsNoticed(edits=edits):
                        self.edited(edits)
                    case EditsOvertaken(paths=paths):
                        self.agents.update(paths)
                    case _:
                        pass
            case _:
                pass

    def by_both(self) -> frozenset[str]:
        return frozenset(path for path in self.people if self._is_by_agents(path))

    def _is_by_agents(self, path: str) -> bool:
        return path in self.agents or any(_may_hold(burst, path) for burst in self._bursts)


_NAMES = (
    FileUpdated.TYPE,
    FilesChanged.TYPE,
    CheckpointRollback.TYPE,
    EditsNoticed.TYPE,
    EditsOvertaken.TYPE,
)
RELEVANT = tuple(f'"{name}"'.encode() for name in _NAMES)
"""Words of which a journal line must have one to matter to `WorkSoFar`."""


def _may_hold(burst: FilesChanged, path: str) -> bool:
    """Return whether a path may be among the files of a burst, which lists only some."""
    if any(each.path == path for each in burst.paths):
        return True

    if len(burst.paths) == burst.total:
        return False

    folder = os.path.dirname(path)
    return burst.in_other_folders > 0 or any(each.folder == folder for each in burst.folders)
