"""Translate an ACP session into Claude Code's stream-json: messages, tool calls and results.

Pure except for the output callback. Updates are parsed leniently, as in `agents.stream_json`: the
protocol grows, and anything unknown or of a wrong type counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hankweave_server.agents.acp.json_lines import (
    LONGEST_TEXT,
    Message,
    as_list,
    as_object,
    as_text,
    cut,
    well_formed,
)
from hankweave_server.domain.permission_patterns import DECIDING

_NAMES = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Grep",
    "execute": "Bash",
    "think": "Think",
    "fetch": "WebFetch",
    "switch_mode": "SwitchMode",
}
"""Claude Code's names for kinds of tools, so that one rule of a hank applies to every agent."""

_CHUNKS = {"agent_message_chunk": "text", "agent_thought_chunk": "thinking"}
_SILENT = frozenset(
    {"available_commands_update", "usage_update", "session_info_update", "config_option_update"}
)
"""Updates that may arrive within a message and do not end it."""

_LONGEST_NAME = 100
_CALLS_REMEMBERED = 10_000
_PREVIEW = 2_000
"""Characters shown of a field in a permission request that is not relevant to the decision."""


class AcpTranslator:
    """The translation of one session."""

    def __init__(
        self, emit: Callable[[Message], None], before_safe_point: Callable[[], None]
    ) -> None:
        """Start; `before_safe_point` is called before lines that may trigger a checkpoint."""
        self._emit = emit
        self._before_safe_point = before_safe_point
        self._kind = ""
        self._message_id = ""
        self._pieces: list[str] = []
        self._length = 0
        self._messages = 0
        self._calls: dict[str, Message] = {}
        self._emitted: set[str] = set()
        self._returned: dict[str, None] = {}
        self.model = ""
        self.last_text = ""
        self.has_answered = False
        """True once there was a text or a tool call; thinking alone is not an answer."""
        self.cost: float | None = None
        """The cost of the whole session in US dollars, as the agent last reported it."""
        self.is_replay = False
        """True while a loaded session is replayed; then only costs are read."""
        self.update_count = 0
        """Number of updates."""

    @property
    def messages(self) -> int:
        return self._messages

    def receive(self, update: Mapping[str, Any]) -> None:
        self.update_count += 1
        kind = as_text(update.get("sessionUpdate"))
        if kind == "usage_update":
            self._note_cost(update.get("cost"))

        if self.is_replay or kind in _SILENT:
            return

        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                self._take(_CHUNKS[kind], as_text(update.get("messageId")), _content(update))
            case "tool_call" | "tool_call_update":
                self.end_message()
                self._call(update)
            case _:
                self.end_message()

    def end_message(self) -> None:
        """Print the pieces received so far as one message."""
        text = well_formed("".join(self._pieces))
        self._pieces.clear()
        self._length = 0
        if not text.strip():
            return

        if self._kind == "text":
            self.last_text = cut(text)
            self._before_safe_point()

        self._message({"type": self._kind, self._kind: text})

    def end(self) -> None:
        """Print what has not been printed yet, at the end of the session."""
        self.end_message()
        for call_id in [each for each in self._calls if each not in self._emitted]:
            self._emit_call(call_id)

    def question(self, request_id: str, asked: Mapping[str, Any]) -> Message:
        """Return the permission request for a tool call; prints the call first if necessary."""
        self.end_message()
        update = as_object(asked.get("toolCall"))
        call_id = self._remember(update)
        self._emit_call(call_id)
        call = self._calls[call_id]
        shown = {
            name: value if name in DECIDING else _previewed(value)
            for name, value in _input_of(call).items()
        }
        request = {"subtype": "can_use_tool", "tool_name": _name_of(call), "input": shown}
        return {"type": "control_request", "request_id": request_id, "request": request}

    # --- messages ------------------------------------------------------------------------------

    def _take(self, kind: str, message_id: str, text: str) -> None:
        if (kind, message_id) != (self._kind, self._message_id):
            self.end_message()

        self._kind, self._message_id = kind, message_id
        for start in range(0, len(text), LONGEST_TEXT):
            piece = text[start : start + LONGEST_TEXT]
            if self._length + len(piece) > LONGEST_TEXT:
                self.end_message()

            self._pieces.append(piece)
            self._length += len(piece)

    def _message(self, block: Message) -> None:
        self._messages += 1
        self.has_answered |= block["type"] != "thinking"
        message = {
            "id": f"msg_{self._messages}",
            "role": "assistant",
            "model": self.model,
            "content": [block],
        }
        self._emit({"type": "assistant", "message": message})

    # --- tools ---------------------------------------------------------------------------------

    def _call(self, update: Mapping[str, Any]) -> None:
        if update.get("sessionUpdate") == "tool_call":
            self._returned.pop(as_text(update.get("toolCallId")), None)

        if as_text(update.get("toolCallId")) in self._returned:
            return  # Some agents report the end of a call more than once.

        is_new = as_text(update.get("toolCallId")) not in self._calls
        call_id = self._remember(update)
        call = self._calls[call_id]
        status = call.get("status")
        if is_new and status not in ("in_progress", "completed", "failed"):
            # The input comes later, and an agent that does not ask may start the call before that.
            announced = {"type": "system", "subtype": "tool_announced", "tool_use_id": call_id}
            self._emit({**announced, "name": _name_of(call)})

        if status in ("in_progress", "completed", "failed"):
            self._emit_call(call_id)

        if status in ("completed", "failed"):
            self._return(call_id)

    def _remember(self, update: Mapping[str, Any]) -> str:
        """Merge an update into the state of its call; fields that it lacks are unchanged."""
        call_id = as_text(update.get("toolCallId"))
        news = {name: value for name, value in update.items() if value not in (None, [], {})}
        self._calls[call_id] = self._calls.get(call_id, {}) | news
        if len(self._calls) > _CALLS_REMEMBERED:
            self._emitted.discard(_drop_oldest(self._calls))

        return call_id

    def _emit_call(self, call_id: str) -> None:
        """Print a call once, when it is asked for or begins; its input is complete then."""
        if call_id in self._emitted:
            return

        self._emitted.add(call_id)
        call = self._calls[call_id]
        block = {"type": "tool_use", "id": call_id, "name": _name_of(call)}
        self._message(block | {"input": _input_of(call)})

    def _return(self, call_id: str) -> None:
        call = self._calls.pop(call_id)
        self._emitted.discard(call_id)
        self._returned[call_id] = None
        if len(self._returned) > _CALLS_REMEMBERED:
            _drop_oldest(self._returned)

        block: Message = {"type": "tool_result", "tool_use_id": call_id}
        block["content"] = cut(_output_of(call))
        if call.get("status") == "failed":
            block["is_error"] = True

        self._before_safe_point()
        self._emit({"type": "user", "message": {"role": "user", "content": [block]}})

    def _note_cost(self, cost: object) -> None:
        match cost:
            case {"amount": int() | float() as amount, "currency": "USD"} if not isinstance(
                amount, bool
            ):
                self.cost = float(amount)


def _drop_oldest(remembered: dict[str, Any]) -> str:
    oldest = next(iter(remembered))
    del remembered[oldest]
    return oldest


def _name_of(call: Mapping[str, Any]) -> str:
    own = as_object(as_object(call.get("_meta")).get("claudeCode")).get("toolName")
    if isinstance(own, str) and own:
        return own

    kind, title = as_text(call.get("kind")), as_text(call.get("title"))
    is_name = 0 < len(title) <= _LONGEST_NAME and "\n" not in title
    return _NAMES.get(kind) or (title if is_name else "Tool")


def _input_of(call: Mapping[str, Any]) -> Message:
    """Return the input of a tool; adds missing fields that permission rules refer to."""
    raw = call.get("rawInput")
    given: Message = dict(raw) if isinstance(raw, dict) else {}
    if raw is not None and not given:
        given = {"input": raw}

    if call.get("kind") == "execute":
        return {"command": as_text(call.get("title"))} | given

    paths = list(dict.fromkeys(_paths(call)))
    named = {"file_path": paths[0]} if paths else {}
    if len(paths) > 1:
        given["file_paths"] = paths

    return named | (_diff(call) if not given else {}) | given


def _paths(call: Mapping[str, Any]) -> Iterator[str]:
    for each in (*as_list(call.get("locations")), *as_list(call.get("content"))):
        if path := as_text(as_object(each).get("path")):
            yield path


def _diff(call: Mapping[str, Any]) -> Message:
    for each in as_list(call.get("content")):
        match each:
            case {"type": "diff", "newText": str() as new}:
                return {"old_string": as_text(each.get("oldText")), "new_string": new}

    return {}


def _output_of(call: Mapping[str, Any]) -> str:
    texts = [_shown(each) for each in as_list(call.get("content"))]
    if words := "\n".join(text for text in texts if text):
        return words

    match call.get("rawOutput"):
        case None:
            return ""
        case str() as output:
            return output
        case {"output": str() as output}:
            return output
        case other:
            return json.dumps(other)


def _shown(content: object) -> str:
    match content:
        case {"type": "content", "content": dict() as block}:
            return _block(block)
        case {"type": "diff", "path": str() as path}:
            return f"Changed {path}"
        case _:
            return ""


def _content(update: Mapping[str, Any]) -> str:
    return _block(as_object(update.get("content")))


def _block(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "resource_link", "uri": str() as uri}:
            return uri
        case {"type": "resource", "resource": {"text": str() as text}}:
            return text
        case {"type": "image" | "audio" as kind}:
            return f"[{kind}]"
        case _:
            return ""


def _previewed(value: object) -> object:
    return cut(value, _PREVIEW) if isinstance(value, str) else value
