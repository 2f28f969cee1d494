"""The transcript of a step: its events, a page at a time, folded into blocks that a person reads.

A block is what an agent says, a call of a tool with its result, a number of reads folded into one
line, the output of a program, or a note about what happened around the agent. A difference between
two moments consists of blocks as well, one for each file.

The journal is asked for the part between two of its events. They are found by halving, so that the
beginning of a step in a journal of a million events is as near as its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import msgspec

from hankweave_client.calls import Calls
from hankweave_client.client import Client
from hankweave_protocol import codec, events
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.events import Event, EventData
from hankweave_protocol.instants import from_text
from hankweave_protocol.replies import DiffPage
from hankweave_protocol.state import CodonExecution, CompletedCodon, FailedCodon, SkippedCodon
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.plain_text import counted

SHOWN: tuple[type[EventData], ...] = (
    events.AssistantAction,
    events.ToolResult,
    events.AgentOutput,
    events.RigOutput,
    events.FilesChanged,
    events.CodonRetrying,
    events.CodonWaiting,
    events.CodonResumed,
    events.CodonWarning,
    events.CheckpointSecret,
    events.AgentConfined,
    events.CodonExtended,
    events.CheckCompleted,
    events.RigSetupFailed,
    events.SentinelOutput,
    events.SentinelError,
    events.RollbackCompleted,
    events.PermissionRequested,
    events.PermissionResolved,
    events.ErrorEvent,
)
"""What a transcript shows."""

_READS = {
    "Read": "read",
    "NotebookRead": "read",
    "Grep": "search",
    "Glob": "search",
    "LS": "list",
    "WebSearch": "search",
    "WebFetch": "fetch",
}
"""Tools that only read, and so are folded."""

Kind = Literal["words", "call", "reads", "output", "note", "patch"]
Severity = Literal["info", "warning", "degraded", "error"]


@dataclass(slots=True)
class ToolCall:
    """A call of a tool, with what became of it."""

    tool: str
    given: dict[str, object]
    call_id: str | None = None
    result: events.ToolResult | None = None
    result_seq: int = 0
    whole: str | None = None
    """The whole result, once it has been asked for."""
    asked: events.PermissionRequested | None = None
    answer: events.PermissionResolved | None = None


@dataclass(slots=True)
class Block:
    """A part of a transcript; `stamp` grows with every change of it."""

    kind: Kind
    key: int
    """The seq of its first event, or its number in a difference."""
    text: str = ""
    severity: Severity = "info"
    patch: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    stamp: int = 0

    def touch(self, seq: int | None = None) -> None:
        self.stamp += 1
        if seq is not None:
            self.seqs.append(seq)


class BlockFolder:
    """Folds the events of a step, in their order, into blocks."""

    def __init__(self, recorded: Iterable[Event] = ()) -> None:
        self.blocks: list[Block] = []
        self._open: dict[str, tuple[ToolCall, Block]] = {}
        """Calls without a result, by their ids."""
        self._asked: dict[str, tuple[ToolCall, Block]] = {}
        for event in recorded:
            self.add(event)

    def add(self, event: Event) -> None:
        """Fold the next event; those that show nothing change nothing."""
        match event.data:
            case events.AssistantAction() as action:
                self._act(event.seq, action)
            case events.ToolResult() as result:
                self._settle(event.seq, result)
            case events.PermissionRequested() as asked:
                self._ask(event.seq, asked)
            case events.PermissionResolved() as answer:
                self._answer(event.seq, answer)
            case events.AgentOutput(line=line) | events.RigOutput(line=line):
                self._print(event.seq, line)
            case events.SentinelOutput(sentinel_id=name, content=str(text)):
                self._push("note", event.seq, text=f"{name}: {text}")
            case events.CheckCompleted() as check:
                self._check(event.seq, check)
            case data if isinstance(data, SHOWN):
                self._note(event.seq, data)
            case _:
                pass

    def _push(self, kind: Kind, seq: int, *, text: str = "", severity: Severity = "info") -> Block:
        block = Block(kind, seq, text=text, severity=severity, seqs=[seq])
        self.blocks.append(block)
        return block

    def _act(self, seq: int, action: events.AssistantAction) -> None:
        if action.action == "message":
            if action.content.strip():
                self._push("words", seq, text=action.content)
        elif action.action == "tool_use":
            tool = action.tool_name or "tool"
            call = ToolCall(tool, action.tool_input or {}, action.tool_use_id)
            block = self._reads(seq) if tool in _READS else self._push("call", seq)
            block.calls.append(call)
            if action.tool_use_id is not None:
                self._open[action.tool_use_id] = call, block

    def _reads(self, seq: int) -> Block:
        """Return the folded line before, if nothing has come between, or a new one."""
        if not self.blocks or self.blocks[-1].kind != "reads":
            return self._push("reads", seq)

        self.blocks[-1].touch(seq)
        return self.blocks[-1]

    def _settle(self, seq: int, result: events.ToolResult) -> None:
        found = self._open.pop(result.tool_use_id, None)
        if found is not None:
            call, block = found
            call.result, call.result_seq = result, seq
            block.touch(seq)

    def _ask(self, seq: int, asked: events.PermissionRequested) -> None:
        wanted = (asked.tool_name, asked.tool_input, None)
        same = (each for each in self._open.values() if _as_asked(each[0]) == wanted)
        call, block = next(same, (None, None))
        if call is None or block is None:
            call, block = ToolCall(asked.tool_name, asked.tool_input), self._push("call", seq)
            block.calls.append(call)

        call.asked = asked
        self._asked[asked.request_id] = call, block
        block.touch(seq)

    def _answer(self, seq: int, answer: events.PermissionResolved) -> None:
        found = self._asked.pop(answer.request_id, None)
        if found is None:
            self._note(seq, answer)
            return

        call, block = found
        call.answer = answer
        block.touch(seq)

    def _print(self, seq: int, line: str) -> None:
        """Add a line to the program's output before: one block, not a hundred."""
        if not self.blocks or self.blocks[-1].kind != "output":
            self._push("output", seq)
        else:
            self.blocks[-1].touch(seq)

        self.blocks[-1].lines.append(line)

    def _check(self, seq: int, check: events.CheckCompleted) -> None:
        is_good = check.passed or check.ignored
        said = f"check {'passed' if check.passed else 'failed'}: {check.command}"
        text = said if check.message is None else f"{said}: {check.message}"
        self._push("note", seq, text=text, severity="info" if is_good else "error")

    def _note(self, seq: int, data: EventData) -> None:
        line = event_line(data)
        if line is not None:
            text = f"{line.word} {line.text}".strip()
            self._push("note", seq, text=text, severity=line.severity)


def _as_asked(call: ToolCall) -> tuple[object, ...]:
    return call.tool, call.given, call.asked


def summary_of_reads(calls: Sequence[ToolCall]) -> str:
    """Return what was read: `read 4 files, searched twice`."""
    paths = {str(_path_of(call)) for call in calls if _READS.get(call.tool) == "read"}
    numbers = {kind: sum(_READS.get(call.tool) == kind for call in calls) for kind in _TIMES}
    parts = [f"read {counted(len(paths), 'file')}"] if paths else []
    parts += [f"{verb} {_times(numbers[kind])}" for kind, verb in _TIMES.items() if numbers[kind]]
    return ", ".join(parts)


_TIMES = {"list": "listed", "search": "searched", "fetch": "fetched"}


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _path_of(call: ToolCall) -> object:
    return call.given.get("file_path", call.given.get("notebook_path", id(call)))


# --- differences ----------------------------------------------------------------------------------


def blocks_of_diff(page: DiffPage) -> list[Block]:
    """Return a block for each file of a comparison, after one with the sums."""
    to = "the files as they are" if page.to_sha is None else _end(page.to_sha, page.to_title)
    files = counted(page.stats.files, "file differs", "files differ")
    sums = f"{files}, +{page.stats.added} −{page.stats.removed}"
    head = f"From {_end(page.from_sha, page.from_title)} to {to}: {sums}"
    found = [Block("note", 0, text=head if page.files else f"{head}. Nothing differs.")]
    for number, file in enumerate(page.files, start=1):
        title = f"{file.status} {file.path} +{file.added} −{file.removed}"
        found.append(Block("patch", number, text=title, patch=file.patch or ""))

    if page.cursor is not None:
        more = page.stats.files - len(page.files)
        command = f"hankweave diff {page.from_sha[:12]} {(page.to_sha or '')[:12]}".rstrip()
        found.append(Block("note", len(found), text=f"{more} more: `{command}` shows all."))

    return found


def _end(sha: str, title: str | None) -> str:
    return sha[:12] if title is None else f"{sha[:12]} ({title})"


# --- pages ----------------------------------------------------------------------------------------

PAGE = 300
"""Events that are read at a time."""

MOST_FOUND = 1_000
"""Matches of a search; of more, the newest are shown."""

_SHOWN_TYPES = tuple(kind.TYPE for kind in SHOWN)
_SEARCHED = ("content", "message", "result", "toolName", "line")
"""Fields of the data that a search reads, beside `_SEARCHED_INPUTS`."""

_SEARCHED_INPUTS = (
    "command",
    "description",
    "file_path",
    "path",
    "pattern",
    "content",
    "old_string",
    "new_string",
    "url",
    "query",
)
"""Fields of `toolInput` that a search reads."""


class Transcript:
    """The transcript of one execution of a codon."""

    def __init__(self, calls: Calls, since: int, until: int) -> None:
        """Create the transcript of the events after `since`, up to `until`; read nothing yet."""
        self._calls = calls
        self._since = since
        self._until = until
        self._cursor: str | None = None
        self._events: list[Event] = []
        self._folder = BlockFolder()
        self._reading = anyio.Lock()
        """Scrolling and the search read pages, and none may be read twice."""
        self.has_more = until > since
        """Whether there are older events that have not been read."""

    @property
    def blocks(self) -> Sequence[Block]:
        return self._folder.blocks

    def add(self, event: Event) -> None:
        """Add an event that has just happened, unless it has been read."""
        if event.seq > self._until and isinstance(event.data, SHOWN):
            self._until = event.seq
            self._events.append(event)
            self._folder.add(event)

    async def read_older(self) -> None:
        """Read one more page before those that were read; wait for one that is being read."""
        async with self._reading:
            page = await self._calls.send(
                EventsQuery(
                    types=_SHOWN_TYPES,
                    since=self._since,
                    until=self._first - 1,
                    newest_first=True,
                    limit=PAGE,
                )
            )
            older = [codec.decode_event(bytes(line)) for line in reversed(page.events or ())]
            self._events = older + self._events
            self._folder = BlockFolder(self._events)
            self.has_more = page.cursor is not None

    @property
    def _first(self) -> int:
        return self._events[0].seq if self._events else self._until + 1

    async def find(self, text: str) -> list[int]:
        """Return the seqs of the events that have a text, in any case, the oldest first."""
        found: list[int] = []
        cursor: str | None = None
        while True:
            page = await self._calls.send(
                EventsQuery(
                    types=_SHOWN_TYPES,
                    text=text,
                    since=self._since,
                    until=self._until,
                    newest_first=True,
                    cursor=cursor,
                )
            )
            lines = (msgspec.json.decode(bytes(line)) for line in page.events or ())
            found += [line["seq"] for line in lines if _shows(line["data"], text)]
            cursor = page.cursor
            if cursor is None or len(found) >= MOST_FOUND:
                return found[:MOST_FOUND][::-1]

    async def read_to(self, seq: int) -> None:
        """Read back to an event."""
        while self.has_more and seq < self._first:
            await self.read_older()

    def block_of(self, seq: int) -> Block | None:
        """Return the block that shows an event that has been read."""
        return next((block for block in self.blocks if seq in block.seqs), None)


def _shows(data: dict[str, Any], text: str) -> bool:
    """Return whether a text is in a field that a person sees, ignoring case."""
    inputs = data.get("toolInput")
    values = [data.get(name) for name in _SEARCHED]
    if isinstance(inputs, dict):
        values += [inputs.get(name) for name in _SEARCHED_INPUTS]

    folded = text.casefold()
    return any(isinstance(value, str) and folded in value.casefold() for value in values)


async def transcript_of(client: Client, codon: CodonExecution) -> Transcript:
    """Return the transcript of an execution, of which nothing is read yet.

    Events after `client.last_seq` have to be added, beginning at once.
    """
    since = await _first_since(client, codon.start_time, client.last_seq) - 1
    match codon:
        case CompletedCodon(end_time=end) | FailedCodon(end_time=end) | SkippedCodon(end_time=end):
            until = await _first_since(client, end, client.last_seq) - 1
            return Transcript(client, since, max(since, until))
        case _:
            return Transcript(client, since, client.last_seq)


async def _first_since(calls: Calls, time: str, last: int) -> int:
    """Return the seq of the first event at or after a time."""
    wanted = from_text(time)
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        page = await calls.send(EventsQuery(since=middle - 1, until=middle, limit=1))
        rows = [msgspec.json.decode(bytes(line)) for line in page.events or ()]
        if rows and from_text(rows[0]["timestamp"]) < wanted:
            low = middle + 1
        else:
            high = middle

    return low
