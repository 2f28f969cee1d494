"""Read what Codex reports: the output of `codex exec --json`, and its rollout.

Parsing a line is pure and stateless. `CodexListener` handles items that are reported more than
once, and token counts that cover the whole thread. Unknown kinds of event and item are ignored,
because the format grows; a field of the wrong type counts as absent. A line that is not a JSON
object with a `type` is plain output.

Source: output of Codex 0.169.0; examples are in tests/golden/agents/codex.

The *rollout* is the file of one thread. Codex resumes a thread from it, `rollout-<local
time>-<thread id>.jsonl` below `sessions/` of its home. It finds the file by the id alone: neither
the folder nor the time in the name has to be right, and Codex's databases need not agree (tested
with 0.169.0). The file only grows while Codex works.

The output alone is not enough. Codex prints token counts only at the end of a turn, and then those
of the whole thread, including earlier processes; for a turn that fails it prints none. The rollout
has them after each answer of the model. It also has the instant at which a usage limit ends, while
the output has only a local time. Codex also numbers its items from the start in each
process, so `CodexListener` adds a prefix that makes their ids unique.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from hankweave_protocol.state import NO_TOKENS, Tokens
from hankweave_server.agents.base import (
    AgentSaid,
    AgentSignal,
    ContextExceeded,
    LimitReported,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    ToolCalled,
    ToolReturned,
    UsageReported,
    is_file_name,
)
from hankweave_server.agents.stream_json import (
    Object,
    as_count,
    as_number,
    as_object,
    as_objects,
    as_text,
    flattened,
    object_in,
)
from hankweave_server.domain.failures import is_context_full
from hankweave_server.domain.limits import LimitFacts

_UNSUCCESSFUL = ("failed", "declined")


def parse(line: bytes) -> list[AgentSignal]:
    """Parse one line without its line end; `[PlainOutput]` if and only if it is not an event.

    A call is reported again with its result. Token counts cover the thread until now.
    """
    event = object_in(line)
    match event.get("type"):
        case "thread.started":
            thread = as_text(event.get("thread_id"))
            return [SessionStarted(thread, model="")] if thread else []
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


def tokens_in(usage: object) -> Tokens | None:
    """Convert OpenAI's token counts, whose input includes tokens read from or written to caches."""
    if not isinstance(usage, dict) or not usage:
        return None

    cached, written = (
        as_count(usage.get(name)) for name in ("cached_input_tokens", "cache_write_input_tokens")
    )
    return Tokens(
        input_tokens=max(0, as_count(usage.get("input_tokens")) - cached - written),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_creation_tokens=written,
        cache_read_tokens=cached,
    )


def _failure(text: str) -> Iterator[AgentSignal]:
    if is_context_full(text):
        yield ContextExceeded(text)

    yield _result(success=False, text=text)


def _result(*, success: bool, text: str = "", tokens: Tokens | None = None) -> ResultReported:
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
    name = as_text(item.get("id"))
    match item.get("type"):
        case "agent_message" if has_ended and (text := as_text(item.get("text"))):
            yield AgentSaid(text)
        case "reasoning" if has_ended and (text := as_text(item.get("text"))):
            yield Thought(text)
        case "error" if has_ended:
            yield Stderr(as_text(item.get("message")))
        case "todo_list" if not has_ended:
            # Its end comes with the end of the turn and adds nothing.
            yield ToolCalled(name, "TodoWrite", {"todos": _todos(item)})
            yield ToolReturned(name, "", "", is_error=False)
        case _ if called := _tool_of(item):
            yield ToolCalled(name, *called)
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
            fields = {name: as_text(item.get(name)) for name in ("tool", "prompt")}
            return "Task", dict(fields)
        case _:
            return None


def _file_tool(item: Object) -> tuple[str, dict[str, object]]:
    changes = _changes(item)
    kinds = {change["kind"] for change in changes}
    given: dict[str, object] = {"changes": changes}
    if len(changes) == 1:
        given = {"file_path": changes[0]["path"], **given}

    return ("Write" if kinds == {"add"} else "Edit"), given


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
    return flattened(content) if isinstance(content, list) else ""


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


_SESSIONS = "sessions"
_TIME_IN_NAME = "%Y-%m-%dT%H-%M-%S"


def rollouts_of(home: Path, session_id: str) -> tuple[Path, ...]:
    """Return the session's rollout; if there is none, the paths that Codex may give it.

    Those follow from the id, which contains the time when the thread began. The file is created a
    moment later, so there are two: one for the same second and one for the next.
    """
    if not is_file_name(session_id):
        return ()

    sessions = home / _SESSIONS
    is_open = os.path.isdir(sessions)  # Otherwise `glob` may raise.
    found = sessions.glob(f"**/rollout-*-{session_id}.jsonl") if is_open else ()
    by_name = {path.name: path for path in sorted(found)}
    return tuple(by_name.values()) or _usual_places(home, session_id)


def _usual_places(home: Path, session_id: str) -> tuple[Path, ...]:
    try:
        thread = UUID(session_id)
        begun = datetime.fromtimestamp((thread.int >> 80) / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return ()

    if thread.version != 7:  # Only version 7 begins with the time.
        return ()

    times = (begun, begun + timedelta(seconds=1))
    return tuple(
        home / _SESSIONS / f"{time:%Y/%m/%d}" / f"rollout-{time:{_TIME_IN_NAME}}-{session_id}.jsonl"
        for time in times
    )


class Rollout:
    """A growing rollout: the tokens that the thread has used, and how often it was compacted."""

    def __init__(self, home: Path, session_id: str) -> None:
        self.session_id = session_id
        self.tokens = NO_TOKENS
        """Tokens that the thread has used since its beginning, in this and earlier processes."""
        self.compactions = 0
        self.limits = LimitFacts()
        """The last error's name, and the end of the allowance that is used up."""
        self.is_found = False
        self._home = home
        self._path: Path | None = None
        self._read_until = 0

    def read_on(self) -> tuple[Tokens, ...]:
        """Read what was added since the last call, and return each token count in it.

        A count covers the whole thread; Codex writes one after each answer of the model, and
        occasionally without one. A file that cannot be read counts as not there yet. No error is
        raised, because the counts that Codex prints at its end are valid without this.
        """
        try:
            news = self._new_lines()
        except OSError:
            return ()

        return tuple(filter(None, map(self._take_in, news.split(b"\n"))))

    def contains(self, text: str) -> bool:
        """Return whether the thread contains a text verbatim."""
        written = msgspec.json.encode(text)[1:-1]
        try:
            return self._path is not None and written in self._path.read_bytes()
        except OSError:
            return False

    def _new_lines(self) -> bytes:
        """Return new complete lines; the last line may still be incomplete."""
        if self._path is None:
            there = (each for each in rollouts_of(self._home, self.session_id) if each.exists())
            self._path = next(there, None)

        if self._path is None:
            return b""

        self.is_found = True
        with self._path.open("rb") as file:
            file.seek(self._read_until)
            news = file.read()

        whole = news[: news.rfind(b"\n") + 1]
        self._read_until += len(whole)
        return whole

    def _take_in(self, line: bytes) -> Tokens | None:
        if not any(word in line for word in _READ):
            return None  # Skip the parser for most lines, including the long ones.

        entry = object_in(line)
        payload = as_object(entry.get("payload"))
        if entry.get("type") == "compacted":
            self.compactions += 1
        elif error := as_text(as_object(payload.get("error")).get("codex_error_info")):
            self.limits = self.limits.merged(LimitFacts(error=error))
        elif payload.get("type") == "token_count":
            resets_at = _reset_in(as_object(payload.get("rate_limits")))
            self.limits = self.limits.merged(LimitFacts(resets_at=resets_at))
            usage = as_object(payload.get("info")).get("total_token_usage")
            self.tokens = tokens_in(usage) or self.tokens
            return self.tokens

        return None


_READ = (b'"token_count"', b'"compacted"', b'"codex_error_info"')


def _reset_in(limits: Object) -> float | None:
    """Return the epoch at which the last exhausted allowance is renewed; None if none is."""
    windows = (as_object(limits.get(name)) for name in ("primary", "secondary"))
    exhausted = (w for w in windows if (as_number(w.get("used_percent")) or 0) >= _ALL)
    return max(filter(None, (as_number(w.get("resets_at")) for w in exhausted)), default=None)


_ALL = 100
"""Percent."""


class CodexListener:
    """The parser of the output of one Codex process; feed it the lines in order."""

    def __init__(self, home: Path, model: str, resumed: Rollout | None) -> None:
        """Start; `resumed` is the rollout of a resumed session, read before the process started."""
        self._home = home
        self._model = model
        self._rollout = resumed
        self._before = NO_TOKENS if resumed is None else resumed.tokens
        self._reported = self._before
        """Tokens of the thread that were already reported."""
        self._answers = 0
        self._compactions = 0 if resumed is None else resumed.compactions
        self._label = f"codex-{secrets.token_hex(4)}-"
        self._called: set[str] = set()
        """Ids of calls that have not returned."""
        self._last_message = ""

    def parse(self, line: bytes) -> list[AgentSignal]:
        """Parse one line of stdout; `[PlainOutput]` if and only if it is not an event."""
        return [whole for signal in parse(line) for whole in self._completed(signal)]

    def _completed(self, signal: AgentSignal) -> Iterator[AgentSignal]:
        match signal:
            case SessionStarted(session_id=session_id):
                self._follow(session_id)
                yield replace(signal, model=self._model)
            case ToolCalled(tool_use_id=item):
                if item not in self._called:
                    self._called.add(item)
                    yield from self._new_signals()
                    yield replace(signal, tool_use_id=self._label + item)
            case ToolReturned(tool_use_id=item):
                self._called.discard(item)
                yield replace(signal, tool_use_id=self._label + item)
                yield from self._new_signals()
            case AgentSaid(text=text):
                self._last_message = text
                yield from self._new_signals()
                yield signal
            case ResultReported():
                yield from self._concluded(signal)
            case _:
                yield signal

    def _follow(self, session_id: str) -> None:
        if self._rollout is None or self._rollout.session_id != session_id:
            self._rollout = Rollout(self._home, session_id)
            self._before = self._reported = NO_TOKENS
            self._compactions = 0

    def _new_signals(self) -> Iterator[AgentSignal]:
        """Yield the new entries of the rollout: the usage of each answer, and a compaction."""
        if self._rollout is None:
            return

        counts = self._rollout.read_on()
        if self._rollout.compactions > self._compactions:
            self._compactions = self._rollout.compactions
            yield ContextExceeded("compact_boundary")

        for tokens in counts:
            yield from self._used(tokens)

    def _used(self, tokens: Tokens) -> Iterator[UsageReported]:
        new = _difference(tokens, self._reported)
        if new != NO_TOKENS:
            self._reported = tokens
            self._answers += 1
            yield UsageReported(f"{self._label}{self._answers}", self._model, new)

    def _concluded(self, result: ResultReported) -> Iterator[AgentSignal]:
        yield from self._new_signals()
        if not result.success and self._rollout is not None:
            yield LimitReported(self._rollout.limits)

        if result.tokens is None:
            yield result
            return

        if self._rollout is not None and self._rollout.is_found:
            yield from self._used(result.tokens)  # The last answer may be missing in the rollout.

        used = _difference(result.tokens, self._before)
        yield replace(result, text=self._last_message, tokens=used)


def _difference(later: Tokens, earlier: Tokens) -> Tokens:
    """Return the increase from `earlier` to `later`; 0 where a count started again."""
    kinds = Tokens.__struct_fields__
    return Tokens(**{kind: max(0, getattr(later, kind) - getattr(earlier, kind)) for kind in kinds})
