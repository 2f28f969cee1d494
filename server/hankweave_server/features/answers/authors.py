"""Find who made a change that a checkpoint holds: an agent's call, a person, or the start.

A checkpoint says which step it belongs to and up to which event of the journal it goes. The journal
says of each changed file who changed it, and by which call. So the author of a change is that of
the newest report about the file between the checkpoint and the one before. Where there is none (a
burst of changes, a journal of the TypeScript Hankweave), the kind of the checkpoint decides.

The cost of a call is that of the model's message that made it, shared equally among its calls. The
journal has it after the calls, so one pass from the end to the beginning finds everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.events import AssistantAction, FilesChanged, FileUpdated, TokenUsage
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.replies import ChangeAuthor
from hankweave_protocol.state import State
from hankweave_server.domain.checkpoints.titles import OF_STEPS
from hankweave_server.domain.effects.tools import READ_ONLY_TOOLS
from hankweave_server.domain.execution_thread import plan_entry
from hankweave_server.domain.permission_patterns import arguments_of
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.domain.timelines import attempt_runs
from hankweave_server.features.answers.file_versions import ReadHistory
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line
from hankweave_server.worktree.names import shown

By = Literal["agent", "person", "initial"]
Place = tuple[Sha, bytes]
"""A checkpoint, and a file that it changed."""

RIG = "rig"
"""The call of files that the rig of a step has made."""

_ENDS = frozenset({"completed", "error", "skipped", "exit"})
_LONGEST_CALL = 72


class _Source(msgspec.Struct, rename="camel"):
    kind: str
    tool_use_id: str | None = None


class _Named(msgspec.Struct):
    path: str


class _Data(msgspec.Struct, rename="camel"):
    """The fields of four types of events."""

    path: str | None = None
    paths: tuple[_Named, ...] = ()
    total: int = 0
    source: _Source | None = None
    action: str | None = None
    content: str = ""
    tool_name: str | None = None
    tool_use_id: str | None = None
    tool_input: dict[str, object] | None = None
    total_cost: float = 0.0
    model_id: str | None = None
    final: bool | None = None


class _Line(msgspec.Struct, rename="camel"):
    seq: int
    type: str
    timestamp: str
    data: _Data
    codon_id: CodonId | None = None


@dataclass(slots=True)
class _Message:
    """A message of a model that made calls."""

    cost: float | None = None
    model: str | None = None
    calls: int = 0


@dataclass(slots=True)
class _Report:
    """The newest report about a change."""

    after: int
    """It comes after this event,"""
    until: int
    """and not after this one."""
    source: _Source | None = None
    codon_id: CodonId | None = None
    call: _Line | None = None
    message: _Message | None = None


def authors_of(past: ReadHistory, places: Iterable[Place]) -> dict[Place, ChangeAuthor]:
    """Return who changed files in checkpoints; raise Stop for a damaged journal."""
    facts = {place: past.files.facts(place[0]) for place in dict.fromkeys(places)}
    reports: dict[Place, _Report] = {}
    for place, known in facts.items():
        if known is not None and known.event_seq is not None:
            reports[place] = _Report(_seq_before(past, known), known.event_seq)

    _Search(reports).run(past)
    attempts = attempt_runs(past.state)
    return {
        place: _author(place, known, reports.get(place), past, attempts)
        for place, known in facts.items()
    }


def _seq_before(past: ReadHistory, facts: CommitFacts) -> int:
    before = past.files.facts(facts.parents[0]) if facts.parents else None
    return 0 if before is None else before.event_seq or 0


@dataclass(slots=True)
class _Search:
    """A search of the journal, from its end, for reports and the calls behind them."""

    reports: Mapping[Place, _Report]
    _open: dict[str, list[_Report]] = field(default_factory=dict)
    """Reports that are not found yet, by the path in the journal."""
    _calls: dict[str, list[_Report]] = field(default_factory=dict)
    """Reports of which the call is not found yet, by its id."""
    _unnamed: dict[CodonId | None, list[_Report]] = field(default_factory=dict)
    """Reports by scans while a call was running, by the step."""
    _messages: dict[CodonId | None, _Message] = field(default_factory=dict)

    def run(self, past: ReadHistory) -> None:
        """Fill in the reports."""
        for (_, path), report in self.reports.items():
            self._open.setdefault(shown(path), []).append(report)

        beginning = min((each.after for each in self.reports.values()), default=None)
        if beginning is None:
            return

        types = (FileUpdated.TYPE, FilesChanged.TYPE, AssistantAction.TYPE, TokenUsage.TYPE)
        decoder = msgspec.json.Decoder(_Line)
        for _, text in past.journal.backward(of_types(types)):
            try:
                line = decoder.decode(text)
            except msgspec.MsgspecError:
                continue  # Text of an agent that looks like an event of such a type.

            if line.type == TokenUsage.TYPE and not line.data.final:
                is_past = line.seq <= beginning
                if is_past and not any(self._calls.values()) and not any(self._unnamed.values()):
                    return

            self._handle(line)

    def _handle(self, line: _Line) -> None:
        data = line.data
        if line.type == FileUpdated.TYPE and data.path is not None:
            self._reported(line, data.path)
        elif line.type == FilesChanged.TYPE:
            named = {each.path for each in data.paths}
            for path in self._open if len(named) < data.total else named:
                self._reported(line, path)
        elif line.type == AssistantAction.TYPE and data.action == "tool_use":
            self._called(line)
        elif line.type == TokenUsage.TYPE and not data.final:
            self._messages[line.codon_id] = _Message(data.total_cost, data.model_id)

    def _reported(self, line: _Line, path: str) -> None:
        for report in self._open.get(path, ()):
            if report.source is None and report.after < line.seq <= report.until:
                report.source, report.codon_id = line.data.source, line.codon_id
                if report.source is None or report.source.kind not in ("tool_use", "codon-end"):
                    continue

                call = report.source.tool_use_id
                if call is not None:
                    self._calls.setdefault(call, []).append(report)
                else:
                    self._unnamed.setdefault(line.codon_id, []).append(report)

    def _called(self, line: _Line) -> None:
        message = self._messages.setdefault(line.codon_id, _Message())
        message.calls += 1
        meant = self._calls.pop(line.data.tool_use_id or "", [])
        if line.data.tool_name not in READ_ONLY_TOOLS:
            meant += self._unnamed.pop(line.codon_id, [])

        for report in meant:
            report.call, report.message = line, message


def _author(
    place: Place,
    facts: CommitFacts | None,
    report: _Report | None,
    past: ReadHistory,
    attempts: Mapping[RunId, str],
) -> ChangeAuthor:
    sha, _ = place
    if facts is None:
        commit = past.files.commit(sha)
        assert commit is not None, "the change is one of a commit"
        return ChangeAuthor(
            by="person", checkpoint_sha=sha, timestamp=instants.to_text(commit.committed)
        )

    by, is_rig = _by(facts, report)
    codon_id = facts.codon_id if by != "person" else None
    agent, model = _of_step(past.state, codon_id if by == "agent" else None)
    call = None if report is None else report.call
    author = ChangeAuthor(
        by=by,
        codon_id=codon_id,
        attempt=attempts.get(facts.run_id),
        call=RIG if is_rig else None,
        checkpoint_sha=sha,
        run_id=facts.run_id,
        timestamp=instants.to_text(facts.timestamp),
        event_seq=facts.event_seq,
        agent=agent,
        model=model,
    )
    if report is None or call is None or by != "agent":
        return author

    message = report.message or _Message()
    return msgspec.structs.replace(
        author,
        call=call_named(call.data.tool_name or "", call.data.tool_input or {}, past.layout),
        timestamp=call.timestamp,
        event_seq=call.seq,
        tool_use_id=call.data.tool_use_id,
        model=message.model or author.model,
        cost=message.cost / max(message.calls, 1) if message.cost else None,
    )


def _by(facts: CommitFacts, report: _Report | None) -> tuple[By, bool]:
    """Return the author of a change, and whether it is a rig."""
    if not facts.parents:
        return "initial", False

    if report is not None and report.source is not None:
        match report.source.kind:
            case "person":
                return "person", False
            case "rig" | "codon-start":
                return "initial", True
            case _:
                return "agent", False

    if facts.kind == "rig-setup":
        return "initial", True

    is_of_step = facts.kind in OF_STEPS | _ENDS and facts.codon_id is not None
    return "agent" if is_of_step else "person", False


def _of_step(state: State, codon_id: CodonId | None) -> tuple[str | None, str | None]:
    """Return the agent and the model of a step, as far as the plan tells."""
    entry = None if codon_id is None else plan_entry(state.execution_plan, codon_id)
    if entry is None:
        return None, None

    agent = entry.codon.agent
    named = None if agent is None else str(agent.__struct_config__.tag)
    return named, entry.codon.model


_WORDS_WITHIN = 200
"""Events before a call in which the model's words about it are looked for."""


def words_before(past: ReadHistory, author: ChangeAuthor) -> str | None:
    """Return what the model last wrote before a call, and after the call before it."""
    if author.tool_use_id is None or author.event_seq is None:
        return None

    decoder = msgspec.json.Decoder(_Line)
    since = max(0, author.event_seq - 1 - _WORDS_WITHIN)
    for text in reversed(past.journal.read(since, author.event_seq - 1 - since)):
        if b'"assistant.action"' not in text:
            continue

        try:
            line = decoder.decode(text)
        except msgspec.MsgspecError:
            continue

        if line.type != AssistantAction.TYPE or line.codon_id != author.codon_id:
            continue

        if line.data.action == "message" and line.data.content:
            return line.data.content

        if line.data.action == "tool_use":
            return None

    return None


def prompt_of(past: ReadHistory, author: ChangeAuthor) -> str | None:
    """Return the prompt of the step that a change was made in, or the names of its files."""
    codon_id = author.codon_id
    entry = None if codon_id is None else plan_entry(past.state.execution_plan, codon_id)
    if entry is None:
        return None

    files = entry.codon.prompt_file
    if files is None:
        return entry.codon.prompt_text

    return ", ".join((files,) if isinstance(files, str) else files)


def call_named(tool: str, given: Mapping[str, object], layout: Layout) -> str:
    """Return a call in a few words: its tool, and the file or the command."""
    known = arguments_of(tool, given)
    arguments = () if known is None else known[1]
    text = ", ".join(_inside(each, layout) for each in arguments)
    line = one_line(f"{tool} {text}".strip().partition("\n")[0])
    return line if len(line) <= _LONGEST_CALL else f"{line[: _LONGEST_CALL - 1]}…"


def _inside(argument: str, layout: Layout) -> str:
    """Return a path in the work tree as relative to it, and any other text as it is."""
    for folder in layout.inside[:2]:
        if argument.startswith(folder + os.sep):
            return argument[len(folder) + 1 :]

    return argument
