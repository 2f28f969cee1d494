"""`hankweave report`: what became of an execution, on one page.

`document_of` decides what the page says; the renderers in `document` decide how it looks. The JSON
is the report itself, with timestamps in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import ClockJumped, Event, ServerResumed
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.state import Tokens
from hankweave_server import __version__
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.cli.output.text import eta_text, moment, span
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.cli.reports.document import (
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
    hand_over,
)
from hankweave_server.cli.shared import completions
from hankweave_server.domain.reports.report import ExecutionReport
from hankweave_server.domain.reports.rows import ReportedMoment, ReportedStep
from hankweave_server.local.page_address import address_in_lock, viewer_token
from hankweave_server.local.reports import read_report
from hankweave_server.local.server_session import command
from hankweave_server.local.targeting import require_execution
from hankweave_server.plain_text import counted

Form: TypeAlias = Literal["markdown", "html", "json"]
Linked: TypeAlias = Callable[[str, str], Anchor]
"""Returns a text with a link to a part of the web page, such as `event=12`."""


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
    hand_over(written, output, "Name another file with --output.", is_secret=bool(token))


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

    def linked(text: str, part: str) -> Anchor:
        page = found.page
        return Anchor(text, None if page is None else f"{page}#{part}{'&' * bool(token)}{token}")

    sections = (
        _failures(found, linked),
        _steps(found, linked),
        _waits(found, linked),
        _retries(found, linked),
        _edits(found, linked),
        _rollbacks(found, linked),
        _incidents(found, linked),
        _files(found, linked),
        _checkpoints(found, linked),
        _runs(found),
    )
    name = Path(found.execution).name
    return Document(
        title=name if found.run_id is None else f"{name}, run {found.run_id}",
        facts=_facts(found, linked),
        sections=tuple(section for section in sections if section.table.rows),
        footer=f"Written at {moment(found.generated_at)} by Hankweave {__version__}.",
    )


def _facts(found: ExecutionReport, linked: Linked) -> tuple[tuple[str, Cell], ...]:
    is_over = found.eta is None and all(step.status != "not run" for step in found.steps)
    has_rest = found.run_id is None and not (is_over and found.status not in ("running", "waiting"))
    facts: list[tuple[str, Cell]] = [
        ("Status", _status(found.status)),
        ("Execution", found.execution),
        ("Hank", found.hank or ""),
        ("Server", _server(found, linked)),
        ("Started", _moment(found.start_time)),
        ("Ended", _moment(found.end_time)),
        ("Duration", _duration(found)),
        ("Time left", eta_text(found.eta) if has_rest and found.steps else ""),
        ("Estimated from", _basis(found) if has_rest else ""),
        ("Cost", _costs(found)),
        ("Tokens", _tokens(found.tokens)),
        ("Steps", _counted_steps(found)),
    ]
    return tuple((name, cell) for name, cell in facts if cell != "")


def _status(status: str) -> Badge:
    return Badge(status, _TONES.get(status, "plain"))


def _server(found: ExecutionReport, linked: Linked) -> Cell:
    if not found.has_server:
        return "none is running"

    return "running" if found.page is None else linked("open the page", "view=live")


def _moment(timestamp: str | None) -> str:
    return "" if timestamp is None else moment(timestamp)


def _took(milliseconds: int) -> str:
    """Return `0.5 s`, `12 min` or `2 h 10 min`."""
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else span(milliseconds / 1000)


def _duration(found: ExecutionReport) -> str:
    if found.start_time is None:
        return ""

    waited = f", {_took(found.waited_ms)} of waits for limits" if found.waited_ms else ""
    return f"{_took(found.duration_ms)}: {_took(found.worked_ms)} of work{waited}"


def _basis(found: ExecutionReport) -> str:
    """Return what the estimate comes from."""
    eta = found.eta
    if eta is None:
        return ""

    parts = [
        f"{counted(count, 'execution')} of codons {where}"
        for count, where in (
            (eta.durations, "in this execution"),
            (eta.earlier_durations, "in earlier executions of the hank"),
        )
        if count
    ]
    return " and ".join(parts)


def _dollars(cost: float) -> str:
    return f"${cost:.4f}"


def _costs(found: ExecutionReport) -> str:
    parts = [
        f"{_dollars(cost)} {what}"
        for cost, what in (
            (found.sentinel_cost, "of it for sentinels"),
            (found.abandoned_cost, "of it for work that rollbacks discarded"),
            (found.attempts_cost, "of it for attempts that were not adopted"),
        )
        if cost > 0
    ]
    return ", ".join((_dollars(found.cost), *parts))


def _tokens(tokens: Tokens) -> str:
    cached = tokens.cache_creation_tokens + tokens.cache_read_tokens
    read = f"{tokens.input_tokens:,} in, {tokens.output_tokens:,} out"
    return f"{read}, {cached:,} cached" if cached else read


def _counted_steps(found: ExecutionReport) -> str:
    counts: dict[str, int] = {}
    for step in found.steps:
        counts[step.status] = counts.get(step.status, 0) + 1

    return ", ".join(f"{count} {status}" for status, count in counts.items())


# --- sections -------------------------------------------------------------------------------------


def _steps(found: ExecutionReport, linked: Linked) -> Section:
    columns = (
        *("step", "status", "attempts", "time", "waited", "cost", "tokens in", "tokens out"),
        *("file changes", "checks", "remark"),
    )
    numbers = frozenset(columns[2:10])
    rows = tuple(_step(step, linked) for step in found.steps)
    return Section("Steps", Table(columns, rows, numbers))


def _source(step: ReportedStep) -> str:
    """Return where a reused result comes from."""
    source = step.reused
    return "" if source is None else f"from run {source.run_id}, {source.checkpoint_sha[:8]}"


def _step(step: ReportedStep, linked: Linked) -> tuple[Cell, ...]:
    tokens = step.tokens
    read = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    has_begun = step.start_time is not None
    remark = step.error or step.condition or "; ".join(step.warnings) or _source(step)
    return (
        step.codon_id
        if step.checkpoint is None
        else _commit(linked, step.checkpoint, step.codon_id),
        _status("reused" if step.reused else step.status),
        str(step.attempts) if step.attempts > 1 else "",
        _took(step.duration_ms) if has_begun else "",
        _took(step.waited_ms) if step.waited_ms else "",
        _dollars(step.cost) if has_begun else "",
        f"{read:,}" if read else "",
        f"{tokens.output_tokens:,}" if tokens.output_tokens else "",
        f"{step.file_changes:,}" if step.file_changes else "",
        f"{step.checks_passed}/{step.checks}" if step.checks else "",
        remark,
    )


def _commit(linked: Linked, sha: Sha, text: str | None = None) -> Anchor:
    return linked(text or sha[:12], f"checkpoint={sha}")


def _event(linked: Linked, at: ReportedMoment) -> Anchor:
    return linked(moment(at.timestamp), f"event={at.seq}")


def _more(found: ExecutionReport, total: int, listed: Sequence[object], words: str) -> str:
    """Return a note about older entries that are not listed, and the command that lists them."""
    left = total - len(listed)
    if left <= 0:
        return ""

    earlier = counted(left, "earlier one is", "earlier ones are")
    return f"{earlier} not listed; {command(words, Path(found.execution))} has all."


def _failures(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            _event(linked, each),
            each.codon_id or "",
            Badge(each.what, "warning" if each.ignored else "bad"),
            each.message,
        )
        for each in found.failures
    )
    note = _more(found, found.totals.failures, rows, "log")
    return Section("Failures", Table(("when", "codon", "what", "message"), rows), note)


def _waits(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            _event(linked, each),
            each.codon_id or "",
            each.reason,
            _moment(each.ended) or f"lasts until {moment(each.until)}",
            {"command": "a person", "other": "another execution", None: ""}.get(
                each.by, each.by or ""
            ),
            each.message,
        )
        for each in found.waits
    )
    note = _more(found, found.totals.waits, rows, "events --type codon.waiting")
    columns = ("since", "codon", "limit", "ended", "by", "message")
    return Section("Waits", Table(columns, rows), note)


def _retries(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            _event(linked, each),
            each.codon_id or "",
            f"{each.attempt} of {each.max_attempts}",
            each.reason,
        )
        for each in found.retries
    )
    note = _more(found, found.totals.retries, rows, "events --type codon.retrying")
    return Section("Retries", Table(("when", "codon", "attempt", "because"), rows), note)


def _edits(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (_event(linked, each), each.action, each.path, each.codon_id or "") for each in found.edits
    )
    where = "events --type file.updated --text person"
    note = _more(found, found.totals.edits, rows, where)
    return Section("Edits by people", Table(("when", "what", "path", "during"), rows), note)


def _rollbacks(found: ExecutionReport, linked: Linked) -> Section:
    words = {"back": "rollback", "undo": "undo", "redo": "redo", "retry": "retry"}
    rows = tuple(
        (
            _event(linked, each),
            words[each.direction],
            _commit(linked, each.checkpoint),
            each.codon_id or "",
            f"{each.added} added, {each.updated} updated, {each.removed} removed",
            ", ".join(each.paths or ()),
            each.reason or "",
        )
        for each in found.rollbacks
    )
    note = _more(found, found.totals.rollbacks, rows, "log")
    columns = ("when", "what", "to", "codon", "files", "only", "reason")
    return Section("Rollbacks", Table(columns, rows), note)


def _incidents(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            linked(moment(each.timestamp), f"event={each.seq}"),
            each.codon_id or "",
            _incident(each),
        )
        for each in found.incidents
    )
    note = _more(found, found.totals.incidents, rows, "log")
    return Section("Incidents", Table(("when", "codon", "what"), rows), note)


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


def _files(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            linked(each.path, f"event={each.seq}"),
            each.action,
            ", ".join(each.by),
            f"{each.changes:,}",
        )
        for each in found.files
    )
    left, others = found.totals.files - len(rows), found.totals.other_file_changes
    unlisted = counted(left, "more file is", "more files are")
    unclear = counted(others, "more change of files is", "more changes of files are")
    parts = [f"{unlisted} not listed." if left > 0 else ""]
    parts += [f"{unclear} not told apart." if others else ""]
    compare = command("diff CHECKPOINT CHECKPOINT", Path(found.execution))
    note = " ".join((*filter(None, parts), f"{compare} compares two checkpoints."))
    table = Table(("path", "outcome", "by", "changes"), rows, frozenset({"changes"}))
    return Section(f"Files: {found.totals.files:,} changed", table, note)


def _checkpoints(found: ExecutionReport, linked: Linked) -> Section:
    rows = tuple(
        (
            _commit(linked, each.sha),
            moment(each.timestamp),
            each.kind,
            each.codon_id or "",
            each.title,
            "incomplete" if each.partial else "",
        )
        for each in found.checkpoints
    )
    kinds = found.totals.checkpoints
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    all_kept = command("checkpoints", Path(found.execution))
    note = f"In all: {counts}. {all_kept} lists those that are kept." if counts else ""
    columns = ("checkpoint", "when", "kind", "codon", "title", "remark")
    return Section("Checkpoints", Table(columns, rows), note)


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


COMMANDS = (report,)
