"""Parse one line of the output of `codex exec --json`.

Pure and stateless. `rollout.CodexListener` handles items that are reported more than once, and
token counts that cover the whole thread. Unknown kinds of event and item are ignored, because the
format grows; a field of the wrong type counts as absent. A line that is not a JSON object with a
`type` is plain output.

Source: output of Codex 0.169.0; examples are in tests/golden/agents/codex.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hankweave_server.agents.base import (
    AgentSaid,
    AgentSignal,
    ContextExceeded,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    TokenCounts,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.agents.stream_json import (
    Object,
    as_count,
    as_object,
    as_objects,
    as_text,
    object_in,
)
from hankweave_server.domain.failures import is_context_full

_UNSUCCESSFUL = ("failed", "declined")


def parse(line: bytes) -> list[AgentSignal]:
    """Parse one line without its line end; `[PlainOutput]` if and only if it is not an event.

    A call is reported again with its result. Token counts cover the thread until now.
    """
    event = object_in(line)
    match event.get("type"):
        case "thread.started":
            return list(_thread_started(event))
        case "item.started" | "item.updated" | "item.completed" as kind:
            return list(_item(as_object(event.get("item")), has_ended=kind == "item.completed"))
        case "turn.completed":
            return [_result(success=True, tokens=tokens_in(event.get("usage")))]
        case "turn.failed":
            return list(_failure(as_text(as_object(event.get("error")).get("message"))))
        case "error":
            # Also sent for each reconnect; an error that ends the turn is repeated in
            # `turn.failed`.
            return [Stderr(as_text(event.get("message")))]
        case str():
            return []
        case _:
            return [PlainOutput(line.decode(errors="replace"))]


def tokens_in(usage: object) -> TokenCounts | None:
    """Convert OpenAI's token counts, whose input includes tokens read from or written to caches."""
    if not isinstance(usage, dict) or not usage:
        return None

    cached, written = (
        as_count(usage.get(name)) for name in ("cached_input_tokens", "cache_write_input_tokens")
    )
    return TokenCounts(
        input_tokens=max(0, as_count(usage.get("input_tokens")) - cached - written),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_creation_tokens=written,
        cache_read_tokens=cached,
    )


def _thread_started(event: Object) -> Iterator[AgentSignal]:
    if thread_id := as_text(event.get("thread_id")):
        yield SessionStarted(thread_id, model="")


def _failure(text: str) -> Iterator[AgentSignal]:
    if is_context_full(text):
        yield ContextExceeded(text)

    yield _result(success=False, text=text)


def _result(*, success: bool, text: str = "", tokens: TokenCounts | None = None) -> ResultReported:
    return ResultReported(
        success=success,
        text=text,
        cost_usd=None,  # Codex reports no cost; the price list is used.
        tokens=tokens,
        session_id=None,
        model_usage={},
    )


# --- items -------------------------------------------------------------------------------------


def _item(item: Object, *, has_ended: bool) -> Iterator[AgentSignal]:
    match item.get("type"):
        case "agent_message" if has_ended and (text := as_text(item.get("text"))):
            yield AgentSaid(text)
        case "reasoning" if has_ended and (text := as_text(item.get("text"))):
            yield Thought(text)
        case "error" if has_ended:
            yield Stderr(as_text(item.get("message")))
        case "todo_list" if not has_ended:
            # Its end comes with the end of the turn and adds nothing.
            yield from _call("TodoWrite", {"todos": _todos(item)}, item)
            yield ToolReturned(as_text(item.get("id")), "", "", is_error=False)
        case _ if called := _tool_of(item):
            name, given = called
            yield from _call(name, given, item)
            if has_ended:
                yield _returned(item)


def _tool_of(item: Object) -> tuple[str, dict[str, object]] | None:
    """Return the tool of an item, by the name that other agents use, and its input."""
    match item.get("type"):
        case "command_execution":
            return "Bash", {"command": as_text(item.get("command"))}
        case "file_change":
            return _file_tool(item)
        case "mcp_tool_call":
            name = f"mcp__{as_text(item.get('server'))}__{as_text(item.get('tool'))}"
            return name, dict(as_object(item.get("arguments")))
        case "web_search":
            return "WebSearch", {"query": as_text(item.get("query"))}
        case "collab_tool_call":
            told = {name: as_text(item.get(name)) for name in ("tool", "prompt")}
            return "Task", dict(told)
        case _:
            return None


def _file_tool(item: Object) -> tuple[str, dict[str, object]]:
    changes = _changes(item)
    kinds = {change["kind"] for change in changes}
    given: dict[str, object] = {"changes": changes}
    if len(changes) == 1:
        given = {"file_path": changes[0]["path"], **given}

    return ("Write" if kinds == {"add"} else "Edit"), given


def _call(name: str, given: dict[str, object], item: Object) -> Iterator[AgentSignal]:
    yield ToolCalled(as_text(item.get("id")), name, given)


def _returned(item: Object) -> ToolReturned:
    code = item.get("exit_code")
    return ToolReturned(
        tool_use_id=as_text(item.get("id")),
        name="",  # Only the call carries the name; `Conversation` remembers it.
        result=_outcome(item),
        is_error=item.get("status") in _UNSUCCESSFUL or (isinstance(code, int) and code != 0),
        is_refused=item.get("status") == "declined",
    )


def _outcome(item: Object) -> str:
    match item.get("type"):
        case "command_execution":
            return as_text(item.get("aggregated_output"))
        case "file_change":
            return "\n".join(f"{each['kind']} {each['path']}" for each in _changes(item))
        case "mcp_tool_call":
            return _answer(item)
        case _:
            return ""


def _answer(item: Object) -> str:
    if error := as_text(as_object(item.get("error")).get("message")):
        return error

    content = as_object(item.get("result")).get("content")
    return "\n".join(map(_block, content)) if isinstance(content, list) else ""


def _block(block: object) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case _:
            return msgspec.json.encode(block).decode()


def _changes(item: Object) -> list[dict[str, str]]:
    return [
        {"path": as_text(each.get("path")), "kind": as_text(each.get("kind"))}
        for each in as_objects(item.get("changes"))
    ]


def _todos(item: Object) -> list[dict[str, str]]:
    return [
        {
            "content": as_text(each.get("text")),
            "status": "completed" if each.get("completed") is True else "pending",
        }
        for each in as_objects(item.get("items"))
    ]
