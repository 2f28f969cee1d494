"""Events as a journal has them, with what a test does not care about filled in."""

from __future__ import annotations

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AssistantAction,
    Event,
    EventData,
    FileSource,
    FileUpdated,
    StateTransition,
    ToolResult,
)
from hankweave_protocol.ids import CodonId, EventSeq
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import Transition
from hankweave_server.domain.reducer import resulting_state
from support.histories import MOMENT

ONE = CodonId("one")
BY_AGENT = FileSource(kind="tool_use")


def an_event(data: EventData, seq: int = 1) -> Event:
    return Event(id=f"e{seq}", seq=EventSeq(seq), timestamp=MOMENT, type=data.TYPE, data=data)


def a_line(data: EventData, seq: int = 1) -> bytes:
    """Return the line of the journal, without its line end."""
    return codec.encode(an_event(data, seq))


def recorded(transition: Transition, state: State = EMPTY_STATE) -> StateTransition:
    """Return the data of the event that records a transition to this state."""
    return StateTransition(
        transition_type=transition.TYPE,
        transition=codec.transition_body(transition),
        resulting_state=resulting_state(state),
    )


def a_file_change(path: str, source: FileSource = BY_AGENT) -> FileUpdated:
    return FileUpdated(
        path=path, filename=path, action="modified", sha256="", bytes=1, source=source
    )


def a_tool_call(tool: str, call_id: str, /, **given: object) -> AssistantAction:
    """Return a call of a tool, with what it was given."""
    return AssistantAction(
        codon_id=ONE,
        action="tool_use",
        content="",
        tool_name=tool,
        tool_input=given,
        tool_use_id=call_id,
    )


def a_tool_result(call_id: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(
        codon_id=ONE,
        tool_use_id=call_id,
        tool_name="",
        result="",
        truncated=False,
        original_length=0,
        execution_time_ms=0,
        is_error=is_error,
    )
