"""`hankweave report`: what became of an execution, on one page.

It is read from the files, next to a running server or without one. The journal is read in pages of
a few megabytes, and only events that the report needs are decoded: a journal of a million events
takes seconds, and no more memory than a short one. The state is state.json, with the rest of the
journal on top of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ClockJumped, Event, ServerResumed, StateTransition
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.state import State, Tokens
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server import __version__
from hankweave_server.cli.output.document import (
    SUFFIXES,
    Anchor,
    Badge,
    Cell,
    Document,
    Section,
    Table,
    Tone,
    as_html,
    as_markdown,
    deliver,
)
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.cli.output.text import eta_text, moment, span
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.domain.execution_thread import run_named
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.reports.report import ExecutionReport, ReportFacts, report_of
from hankweave_server.features.reports.rows import (
    ReportedFailure,
    ReportedMoment,
    ReportedRollback,
    ReportedStep,
    ReportedWait,
)
from hankweave_server.features.reports.summary import SUMMED_UP, EventSummary
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.moments import saved_state, state_at_end
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.eta import Eta, eta_of
from hankweave_server.local.hints import command
from hankweave_server.local.journals import reading_journal
from hankweave_server.local.living import living_server
from hankweave_server.local.page_address import address_in_lock, viewer_token
from hankweave_server.local.targeting import require_execution
from hankweave_server.plain_text import counted
from hankweave_server.worktree.data_source import layout_of, read_meta

Form: TypeAlias = Literal["markdown", "html", "json"]


@click.command()
@click.argument("place", metavar="[EXECUTION]", required=False, type=click.Path(path_type=Path))
@execution_option
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    shell_complete=completions.runs,
    help="Only this run; the beginning of its id is enough.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    help="Output format. Default: by the extension of the file, else markdown.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file. Default: stdout.",
)
@click.option(
    "--link-token",
    is_flag=True,
    help="Put the server's viewer token into the links, so that everyone who has the report and "
    "can reach the server can open them.",
)
def report(
    place: Path | None,
    execution: Path | None,
    run_id: str | None,
    form: Form | None,
    as_json: bool,
    output: Path | None,
    link_token: bool,
) -> None:
    """Summarize an execution on one page.

    The report lists the steps with their times, costs, tokens and files; waits, retries and
    failures; edits by people, checkpoints and rollbacks; and the time that a running plan still
    needs. It is made from the files, with or without a server. While a server runs, the report
    links to the web page.

    \b
    hankweave report ~/runs/tonight --output tonight.html
    hankweave report --run 1795284950552 --format json
    """
    if place is not None and execution is not None:
        raise click.UsageError("Name the execution once: as EXECUTION, or with --execution.")

    root = root_of(place or execution)
    require_execution(root)
    chosen = _format(form, as_json, output)
    wanted = None if run_id is None else RunId(run_id)
    found = read_report(root, wanted, address_in_lock(root), datetime.now(UTC))
    token = viewer_token(root) if link_token else ""
    written = _written(found, chosen, token)
    deliver(written, output, "Name another file with --output.", is_secret=bool(token))


def _format(form: Form | None, as_json: bool, output: Path | None) -> Form:
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format exclude each other.")

    if as_json or form is not None:
        return "json" if as_json or form is None else form

    match SUFFIXES.get(output.suffix.lower()) if output is not None else None:
        case "json":
            return "json"
        case "html":
            return "html"
        case _:
            return "markdown"


def _written(found: ExecutionReport, form: Form, token: str) -> str:
    match form:
        case "json":
            return msgspec.json.format(codec.encode(found), indent=2).decode() + "\n"
        case "markdown":
            return as_markdown(document_of(found, token))
        case "html":
            return as_html(document_of(found, token))


# --- the page -------------------------------------------------------------------------------------

_TONES: dict[str, Tone] = {
    "success": "good",
    "completed": "good",
    "reused": "good",
    "running": "busy",
    "waiting": "busy",
    "partial": "warning",
    "skipped": "warning",
    "interrupted": "warning",
    "stopped": "warning",
    "failed": "bad",
    "crashed": "bad",
}


def document_of(found: ExecutionReport, token: str = "") -> Document:
    """Return the page of a report; `token` is the part of links that has a token."""
    page = _Page(found, token)
    name = Path(found.execution).name
    return Document(
        title=name if found.run_id is None else f"{name}, run {found.run_id}",
        facts=tuple((name, cell) for name, cell in page.facts() if cell != ""),
        sections=tuple(section for section in page.sections() if section.table.rows),
        footer=f"Written at {moment(found.generated_at)} by Hankweave {__version__}.",
    )


@dataclass(frozen=True, slots=True)
class _Page:
    """The parts of the page of a report."""

    report: ExecutionReport
    token: str

    def facts(self) -> Iterator[tuple[str, Cell]]:
        found, eta = self.report, self.report.eta
        is_over = eta is None and all(step.status != "not run" for step in found.steps)
        is_going_on = found.status in ("running", "waiting")
        has_rest = found.run_id is None and (is_going_on or not is_over)
        yield "Status", _status(found.status)
        yield "Execution", found.execution
        yield "Hank", found.hank or ""
        yield "Server", self._server()
        yield "Started", _moment(found.start_time)
        yield "Ended", _moment(found.end_time)
        yield "Duration", _duration(found)
        yield "Time left", eta_text(eta) if has_rest and found.steps else ""
        yield "Estimated from", "" if eta is None or not has_rest else _basis(eta)
        yield "Cost", _costs(found)
        yield "Tokens", _tokens(found.tokens)
        counts = Counter(step.status for step in found.steps)
        yield "Steps", ", ".join(f"{count} {status}" for status, count in counts.items())

    def sections(self) -> Iterator[Section]:
        found, totals = self.report, self.report.totals
        yield self._moments(
            "Failures",
            ("what", "message"),
            ((each, (_failed(each), each.message)) for each in found.failures),
            totals.failures,
            "log",
        )
        columns = (
            *("step", "status", "attempts", "time", "waited", "cost", "tokens in", "tokens out"),
            *("file changes", "checks", "remark"),
        )
        steps = tuple(map(self._step, found.steps))
        yield Section("Steps", Table(columns, steps, frozenset(columns[2:10])))
        yield self._moments(
            "Waits",
            ("limit", "ended", "by", "message"),
            ((each, (each.reason, *_end_of(each), each.message)) for each in found.waits),
            totals.waits,
            "events --type codon.waiting",
        )
        yield self._moments(
            "Retries",
            ("attempt", "because"),
            ((at, (f"{at.attempt} of {at.max_attempts}", at.reason)) for at in found.retries),
            totals.retries,
            "events --type codon.retrying",
        )
        yield self._moments(
            "Edits by people",
            ("what", "path"),
            ((each, (each.action, each.path)) for each in found.edits),
            totals.edits,
            "events --type file.updated --text person",
        )
        yield self._moments(
            "Rollbacks",
            ("what", "to", "files", "only", "reason"),
            ((each, self._rollback(each)) for each in found.rollbacks),
            totals.rollbacks,
            "log",
        )
        yield self._moments(
            "Incidents",
            ("what",),
            ((each, (_incident(each),)) for each in found.incidents),
            totals.incidents,
            "log",
        )
        yield self._files()
        yield self._checkpoints()
        yield _runs(found)

    def _moments(
        self,
        title: str,
        columns: tuple[str, ...],
        listed: Iterable[tuple[ReportedMoment | Event, tuple[Cell, ...]]],
        total: int,
        words: str,
    ) -> Section:
        """Return a section on moments, each a row; `words` is the command that has all of them."""
        rows = tuple(
            (self._linked(moment(at.timestamp), f"event={at.seq}"), at.codon_id or "", *cells)
            for at, cells in listed
        )
        note, left = "", total - len(rows)
        if left > 0:
            earlier = counted(left, "earlier one is", "earlier ones are")
            note = f"{earlier} not listed; {self._command(words)} has all."

        return Section(title, Table(("when", "codon", *columns), rows), note)

    def _linked(self, text: str, part: str) -> Anchor:
        """Return a text with a link to a part of the web page, such as `event=12`."""
        page = self.report.page
        token = f"&{self.token}" if self.token else ""
        return Anchor(text, None if page is None else f"{page}#{part}{token}")

    def _server(self) -> Cell:
        if not self.report.has_server:
            return "none is running"

        return "running" if self.report.page is None else self._linked("open the page", "view=live")

    def _commit(self, sha: Sha, text: str | None = None) -> Anchor:
        return self._linked(text or sha[:12], f"checkpoint={sha}")

    def _command(self, words: str) -> str:
        return command(words, Path(self.report.execution))

    def _rollback(self, done: ReportedRollback) -> tuple[Cell, ...]:
        return (
            "rollback" if done.direction == "back" else done.direction,
            self._commit(done.checkpoint),
            f"{done.added} added, {done.updated} updated, {done.removed} removed",
            ", ".join(done.paths or ()),
            done.reason or "",
        )

    def _step(self, step: ReportedStep) -> tuple[Cell, ...]:
        tokens, source = step.tokens, step.reused
        read = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
        has_begun = step.start_time is not None
        origin = "" if source is None else f"from run {source.run_id}, {source.checkpoint_sha[:8]}"
        return (
            step.codon_id
            if step.checkpoint is None
            else self._commit(step.checkpoint, step.codon_id),
            _status("reused" if step.reused else step.status),
            str(step.attempts) if step.attempts > 1 else "",
            _took(step.duration_ms) if has_begun else "",
            _took(step.waited_ms) if step.waited_ms else "",
            _dollars(step.cost) if has_begun else "",
            _number(read),
            _number(tokens.output_tokens),
            _number(step.file_changes),
            f"{step.checks_passed}/{step.checks}" if step.checks else "",
            step.error or step.condition or "; ".join(step.warnings) or origin,
        )

    def _files(self) -> Section:
        found, totals = self.report.files, self.report.totals
        rows = tuple(
            (
                self._linked(each.path, f"event={each.seq}"),
                each.action,
                ", ".join(each.by),
                _number(each.changes),
            )
            for each in found
        )
        left, others = totals.files - len(rows), totals.other_file_changes
        unlisted = counted(left, "more file is", "more files are")
        unclear = counted(others, "more change of files is", "more changes of files are")
        parts = (
            f"{unlisted} not listed." if left > 0 else "",
            f"{unclear} not told apart." if others else "",
            f"{self._command('diff CHECKPOINT CHECKPOINT')} compares two checkpoints.",
        )
        table = Table(("path", "outcome", "by", "changes"), rows, frozenset({"changes"}))
        return Section(f"Files: {totals.files:,} changed", table, " ".join(filter(None, parts)))

    def _checkpoints(self) -> Section:
        rows = tuple(
            (
                self._commit(each.sha),
                moment(each.timestamp),
                each.kind,
                each.codon_id or "",
                each.title,
                "incomplete" if each.partial else "",
            )
            for each in self.report.checkpoints
        )
        kinds = sorted(self.report.totals.checkpoints.items())
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds)
        kept = f"{self._command('checkpoints')} lists those that are kept."
        note = f"In all: {counts}. {kept}" if counts else ""
        columns = ("checkpoint", "when", "kind", "codon", "title", "remark")
        return Section("Checkpoints", Table(columns, rows), note)


def _status(status: str) -> Badge:
    return Badge(status, _TONES.get(status, "plain"))


def _moment(timestamp: str | None) -> str:
    return "" if timestamp is None else moment(timestamp)


def _took(milliseconds: int) -> str:
    """Return `0.5 s`, `12 min` or `2 h 10 min`."""
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else span(milliseconds / 1000)


def _dollars(cost: float) -> str:
    return f"${cost:.4f}"


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _duration(found: ExecutionReport) -> str:
    if found.start_time is None:
        return ""

    waited = f", {_took(found.waited_ms)} of waits for limits" if found.waited_ms else ""
    return f"{_took(found.duration_ms)}: {_took(found.worked_ms)} of work{waited}"


def _basis(eta: Eta) -> str:
    """Return what the estimate comes from."""
    parts = (
        (eta.durations, "in this execution"),
        (eta.earlier_durations, "in earlier executions of the hank"),
    )
    return " and ".join(
        f"{counted(count, 'execution')} of codons {where}" for count, where in parts if count
    )


def _costs(found: ExecutionReport) -> str:
    parts = (
        (found.sentinel_cost, "sentinels"),
        (found.abandoned_cost, "work that rollbacks discarded"),
        (found.attempts_cost, "attempts that were not adopted"),
    )
    shares = (f"{_dollars(cost)} of it for {what}" for cost, what in parts if cost > 0)
    return ", ".join((_dollars(found.cost), *shares))


def _tokens(tokens: Tokens) -> str:
    cached = tokens.cache_creation_tokens + tokens.cache_read_tokens
    read = f"{tokens.input_tokens:,} in, {tokens.output_tokens:,} out"
    return f"{read}, {cached:,} cached" if cached else read


def _failed(failure: ReportedFailure) -> Badge:
    return Badge(failure.what, "warning" if failure.ignored else "bad")


def _end_of(wait: ReportedWait) -> tuple[str, str]:
    """Return when a wait has ended or will, and by what."""
    words = {"command": "a person", "other": "another execution"}
    ended = f"lasts until {moment(wait.until)}" if wait.ended is None else moment(wait.ended)
    return ended, words.get(wait.by or "", wait.by or "")


def _incident(event: Event) -> str:
    match event.data:
        case ServerResumed(suspended_seconds=seconds, cause=cause):
            who = "machine was suspended" if cause == "suspended" else "server was stopped"
            return f"the {who} for {span(seconds)}"
        case ClockJumped(seconds=seconds, direction=direction):
            return f"the clock was set {direction} by {span(seconds)}"
        case data:
            line = event_line(data)
            return event.type if line is None else line.text


def _runs(found: ExecutionReport) -> Section:
    """Return all runs, if there are several."""
    is_idle = found.status in ("stopped", "interrupted", "idle")
    rows = tuple(
        (
            each.run_id,
            _status("to be continued" if is_idle and each.status == "running" else each.status),
            each.reason or "start",
            moment(each.start_time),
            _moment(each.end_time),
            str(each.codons),
            _dollars(each.cost),
            "" if each.on_thread else "discarded by a rollback",
        )
        for each in found.runs
    )
    columns = ("run", "status", "began as", "started", "ended", "codons", "cost", "remark")
    table = Table(columns, rows if len(rows) > 1 else (), frozenset({"codons", "cost"}))
    return Section("Runs", table)


PAGE_BYTES = 4 << 20

_HEAD = 4 << 10
"""Bytes of a long event that are searched for its type."""

_needed = of_types({*SUMMED_UP, CheckpointCreated.TYPE}).search


def read_report(
    root: Path, run_id: RunId | None, page: str | None, now: datetime
) -> ExecutionReport:
    """Return the report of an execution, or of one run; raise Stop if it cannot be read.

    `page` is the address of the web page, if a server is running.
    """
    layout = layout_of(root)
    meta = read_meta(layout)
    saved = saved_state(layout)
    has_server = living_server(layout) is not None
    with reading_journal(layout) as journal:
        state = state_at_end(journal, saved)
        if run_id is not None:
            run_id = _run_of(state, run_id)

        summary = EventSummary(run_id)
        for event in _events(journal):
            _take(summary, event)

    facts = ReportFacts(
        execution=str(root),
        hank=None if meta is None else meta.hank_path,
        page=page if has_server else None,
        now=now,
        has_server=has_server,
        eta=None if run_id is not None else eta_of(root, state, now, is_running=has_server),
    )
    return report_of(state, summary, facts)


def _run_of(state: State, given: str) -> RunId:
    """Return the run that an id, or its beginning, names; raise Stop."""
    found = [run.run_id for run in state.runs if run.run_id.startswith(given)]
    exact = run_named(state, RunId(given))
    if exact is not None:
        return exact.run_id

    if len(found) == 1 and given:
        return found[0]

    several = (
        f"{counted(len(found), 'run')} have an id that begins with" if found else "There is no run"
    )
    raise Stop(
        f"{several} {given!r}.",
        ExitCode.NO_INPUT,
        hint="`hankweave runs` lists the runs of an execution.",
    )


# --- state and events -----------------------------------------------------------------------------


def _events(journal: Journal) -> Iterator[Event]:
    """Yield the events that a report needs; raise JournalCorrupt for one that is damaged."""
    seq = 0
    while seq < journal.last_seq:
        page = journal.page(seq, journal.last_seq, PAGE_BYTES)
        for line in page:
            seq += 1
            head = line if isinstance(line, bytes) else line.read(0, _HEAD)
            if not _needed(head):
                continue

            try:
                whole = line if isinstance(line, bytes) else line.read(0, line.size)
                yield codec.decode_event(whole)
            except Refused as error:
                reason = f"the event cannot be read: {error}"
                raise JournalCorrupt(journal.path, seq, reason) from error


def _take(summary: EventSummary, event: Event) -> None:
    match event.data:
        case StateTransition(transition_type=CheckpointCreated.TYPE) as moved:
            made = codec.decode_transition(moved)
            assert isinstance(made, CheckpointCreated)
            summary.add_checkpoint(event, made.checkpoint)
        case _:
            summary.add(event)


COMMANDS = (report,)
