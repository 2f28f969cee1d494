"""The events of a journal that report effects outside the work tree.

`RecordedEffects` follows the journal line by line, as it is written, and keeps numbers of events.
`effects_in` says what one of them may have done. A call that was denied has done nothing, and
neither has a failed one of a tool that only writes files. The result decides that, because an agent
may announce a call before it is permitted.

The commands of a rig are not in its event but in the plan, and so is the program that a codon runs
as its agent; those events are kept apart (`programs`), to be looked up when a report needs them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    CheckCompleted,
    CodonStartedEvent,
    Event,
    PermissionResolved,
    RigSetupCompleted,
    RigSetupFailed,
    ToolResult,
)
from hankweave_protocol.hank import CommandAgentSpec, RigCommand
from hankweave_protocol.state import PlanEntry
from hankweave_server.domain.effects import calls, commands
from hankweave_server.domain.execution_thread import plan_entry

UNSEEN = (
    "Commands and programs ran; they may have had effects outside the work tree that were not seen"
)
"""Reported once if anything ran that can do more than its event says."""

_TYPE = re.compile(rb'"type":"([a-z.]+)"')
_TYPE_WITHIN = 400
"""Bytes of a line within which its type stands: only an id and two short fields precede it."""


class _Data(msgspec.Struct, rename="camel"):
    tool_name: str | None = None
    tool_input: dict[str, object] | None = None
    tool_use_id: str | None = None
    external: bool = False
    is_error: bool = False
    decision: str = ""
    command: str = ""


class _Line(msgspec.Struct):
    data: _Data


@dataclass(slots=True)
class RecordedEffects:
    """The events so far, by number."""

    found: list[int] = field(default_factory=list)
    """Calls and checks that may have had effects elsewhere."""
    programs: list[int] = field(default_factory=list)
    """Rigs, and starts of codons."""
    last_command: int = 0
    """The last event of something that can do more than its event says."""
    waiting: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Calls of `found` without a result yet: event and tool, by the id of the call."""
    denied: list[str] = field(default_factory=list)
    """Tools of which a call was denied that has no result yet."""

    def add(self, seq: int, line: bytes, inside: tuple[str, ...]) -> None:
        """Add the next journal line; one that cannot be read has no effects."""
        kind = _TYPE.search(line, 0, _TYPE_WITHIN)
        act = None if kind is None else _ACTS.get(kind[1])
        if act is None or (act is RecordedEffects._returned and not self.waiting):
            return

        try:
            act(self, seq, msgspec.json.decode(line, type=_Line).data, inside)
        except msgspec.MsgspecError:
            return

    def after(self, seq: int) -> list[int]:
        """Return the events after `seq` to ask `effects_in` about, in their order."""
        parts = (each[bisect_right(each, seq) :] for each in (self.found, self.programs))
        return sorted(number for part in parts for number in part)

    def _called(self, seq: int, data: _Data, inside: tuple[str, ...]) -> None:
        if data.tool_name is None:
            return

        if calls.runs_commands(data.tool_name):
            self.last_command = seq

        given = data.tool_input or {}
        if calls.of_call(data.tool_name, given, inside, is_marked=data.external):
            self.found.append(seq)
            if data.tool_use_id:
                self.waiting[data.tool_use_id] = seq, data.tool_name

    def _returned(self, _seq: int, data: _Data, _inside: tuple[str, ...]) -> None:
        called, tool = self.waiting.pop(data.tool_use_id or "", (0, ""))
        if not called or not data.is_error:
            return

        was_denied = tool in self.denied
        if was_denied:
            self.denied.remove(tool)

        if was_denied or calls.writes_only(tool):
            self.found.remove(called)

    def _decided(self, _seq: int, data: _Data, _inside: tuple[str, ...]) -> None:
        if data.decision == "deny" and data.tool_name is not None:
            self.denied.append(data.tool_name)

    def _checked(self, seq: int, data: _Data, inside: tuple[str, ...]) -> None:
        self.last_command = seq
        if commands.of_command(data.command, inside):
            self.found.append(seq)

    def _ran(self, seq: int, _data: _Data, _inside: tuple[str, ...]) -> None:
        self.last_command = seq
        self.programs.append(seq)

    def _printed(self, seq: int, _data: _Data, _inside: tuple[str, ...]) -> None:
        self.last_command = seq

    def _began(self, seq: int, _data: _Data, _inside: tuple[str, ...]) -> None:
        self.programs.append(seq)


_ACTS = {
    AssistantAction.TYPE.encode(): RecordedEffects._called,
    ToolResult.TYPE.encode(): RecordedEffects._returned,
    PermissionResolved.TYPE.encode(): RecordedEffects._decided,
    CheckCompleted.TYPE.encode(): RecordedEffects._checked,
    RigSetupCompleted.TYPE.encode(): RecordedEffects._ran,
    RigSetupFailed.TYPE.encode(): RecordedEffects._ran,
    AgentOutput.TYPE.encode(): RecordedEffects._printed,
    CodonStartedEvent.TYPE.encode(): RecordedEffects._began,
}


def effects_in(
    event: Event, plan: tuple[PlanEntry, ...], inside: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the effects that an event reports, each as a line for reports."""
    match event.data:
        case AssistantAction(tool_name=str() as tool, codon_id=codon_id) as call:
            given = call.tool_input or {}
            effects = calls.of_call(tool, given, inside, is_marked=call.external)
            actor = tool
        case CheckCompleted(codon_id=codon_id, command=command):
            effects, actor = commands.of_command(command, inside), "A check"
        case RigSetupCompleted(codon_id=codon_id) | RigSetupFailed(codon_id=codon_id):
            ran = (commands.of_command(each, inside) for each in _commands(event, plan))
            effects, actor = (
                tuple(dict.fromkeys(effect for part in ran for effect in part)),
                "The rig",
            )
        case _:
            return ()

    return tuple(calls.report_line(effect, actor, codon_id, event.seq) for effect in effects)


def is_plain_program(event: Event, plan: tuple[PlanEntry, ...]) -> bool:
    """Return whether a codon has begun whose agent is a program that reports no tool calls."""
    if not isinstance(event.data, CodonStartedEvent):
        return False

    entry = plan_entry(plan, event.data.codon_id)
    return entry is not None and isinstance(entry.codon.agent, CommandAgentSpec)


def _commands(event: Event, plan: tuple[PlanEntry, ...]) -> Iterator[str]:
    """Yield the commands of a rig, up to the one that failed."""
    data = event.data
    assert isinstance(data, RigSetupCompleted | RigSetupFailed)
    entry = plan_entry(plan, data.codon_id)
    items: Sequence[object] = () if entry is None else entry.codon.rig_setup
    last = data.command_index if isinstance(data, RigSetupFailed) else None
    for index, item in enumerate(items):
        if isinstance(item, RigCommand) and (last is None or index <= last):
            yield item.command.run
