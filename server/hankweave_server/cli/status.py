"""`hankweave status`: show where a plan stands, and what to do next.

`summary_of` turns the state of an execution into lines, without a terminal or a clock, and in the
same way whether a server has told it or the files have.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec

from hankweave_client.client import Client
from hankweave_client.errors import NotRunning
from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text
from hankweave_protocol.replies import Forecast, ServerStatus
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
    State,
)
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.text import (
    ago,
    confinement_text,
    costs_text,
    cut,
    dollars,
    encodable,
    eta_text,
    fitted,
    forecast_text,
    moment,
    say,
    size_text,
    span,
)
from hankweave_server.cli.remote import ask_running, execution_option, json_option, print_json
from hankweave_server.domain.budget.estimates import forecast, spent_until
from hankweave_server.domain.budget.spending import Costs, costs
from hankweave_server.domain.execution_thread import (
    active_codon,
    newest_run,
    next_codon,
    thread,
)
from hankweave_server.domain.lifecycle import was_stopped
from hankweave_server.domain.plan import progress
from hankweave_server.domain.timelines import attempt_runs
from hankweave_server.ledger.moments import has_past, saved_state, state_at_end
from hankweave_server.local.catalog import listed
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.page_address import page_in, page_of
from hankweave_server.local.server_session import at_server, command
from hankweave_server.local.targeting import attach_line, require_execution, root_of
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line


async def _status_and_state(client: Client) -> tuple[object, State]:
    return await client.send(GetServerStatus()), await client.state()


@click.command()
@execution_option
@click.option("--verbose", "-v", is_flag=True, help="Show details of the server and the machine.")
@json_option
def status(execution: Path | None, verbose: bool, as_json: bool) -> None:
    """Show where the plan stands, and what to do next.

    Without a server, this is the last state. With --json, the output is the server's own report,
    and needs one.

    \b
    hankweave status
    hankweave status -v
    hankweave status -e ~/runs/quakes --json
    """
    if as_json:
        print_json(ask_running(execution, lambda client: client.send(GetServerStatus())))
        return

    root = root_of(execution)
    require_execution(root)
    answer, state = _told(root)
    print_summary(_facts(root, state, answer))

    if verbose and answer is not None:
        click.echo()
        _print_details(answer, state)


def print_summary(facts: StatusFacts) -> None:
    for line in summary_of(facts):
        say(fitted(encodable(line.text)), line.style)


def _told(root: Path) -> tuple[ServerStatus | None, State]:
    """Return what the server tells, or the state that the files have."""
    try:
        found, state = at_server(root, _status_and_state)
    except (NotRunning, ConnectionRefusedError):
        return None, _state_on_files(root)

    return msgspec.convert(found, ServerStatus), state


def _state_on_files(root: Path) -> State:
    if not has_past(layout := Layout.of_execution(root)):
        return EMPTY_STATE

    saved = saved_state(layout)
    with searching_journal(layout) as journal:
        return state_at_end(journal, saved)


def _facts(root: Path, state: State, answer: ServerStatus | None) -> StatusFacts:
    page = None if answer is None else page_in(answer.lock)
    address = None if page is None else page_of(root, page)
    return StatusFacts(root, state, listed(root), datetime.now(UTC), answer, address)


def _print_details(answer: ServerStatus, state: State) -> None:
    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    for problem in answer.problems:
        since = moment(problem.since)
        click.echo(f"  degraded    {problem.message} ({problem.code}, since {since})")

    click.echo(f"  run         {answer.current_run_id or 'none'}")
    packed = f"{answer.store_packs} packs, {answer.store_loose_objects} loose objects"
    click.echo(f"  checkpoints {answer.checkpoints}")
    click.echo(f"  store       {size_text(answer.store_bytes)} on disk: {packed}")
    paid = Costs(
        answer.total_cost, answer.rolled_back_cost, answer.budget_usd, answer.attempts_cost
    )
    click.echo(f"  cost        {costs_text(paid)}")
    if reused := _reused(state):
        click.echo(one_line(f"  reused      {', '.join(reused)}"))

    if answer.forecast is not None:
        click.echo(f"  forecast    {forecast_text(answer.forecast, answer.total_cost)}")

    if answer.data_path is not None:
        click.echo(one_line(f"  data        {answer.data_path}"))

    click.echo(f"  agents      held by {answer.containment}")
    if answer.confinement is not None:
        click.echo(f"  confinement {confinement_text(answer.confinement)}")
        for sentence in answer.confinement.not_covered:
            click.echo(one_line(f"              {sentence}"))

    heartbeat = moment(answer.lock.last_heartbeat)
    click.echo(f"  heartbeat   {heartbeat}, event {answer.last_event_seq}")
    if answer.active_codon_id is not None:
        # Imported here because only this reads hanks and earlier executions.
        from hankweave_server.local.reports import eta_of

        root = Path(answer.execution_path)
        left = eta_of(root, state, datetime.now(UTC), is_running=True)
        click.echo(one_line(f"  left        {eta_text(left)}"))


def _reused(state: State) -> list[CodonId]:
    """Return the codons of the thread whose results were taken over."""
    return [entry.codon.codon_id for entry in thread(state) if _is_reused(entry.codon)]


def _is_reused(codon: CodonExecution) -> bool:
    return isinstance(codon, CompletedCodon) and codon.reused is not None


# --- summary --------------------------------------------------------------------------------------

NAME_WIDTH = 20
_BEHIND = 3
"""Groups of done steps that are shown, at most, once the plan has ended."""
_AHEAD = 2
_EDITS_NAMED = 3

Standing = Literal[
    "running",
    "asking",
    "limited",
    "rolling back",
    "failed",
    "stopped",
    "crashed",
    "completed",
    "idle",
    "new",
]
_STYLES = {
    "running": "cyan",
    "asking": "yellow",
    "limited": "yellow",
    "failed": "red",
    "crashed": "red",
    "completed": "green",
}


class StatusLine(NamedTuple):
    text: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The known facts of an execution; `server` is what its server says, if there is one."""

    root: Path
    state: State
    listed: ListedExecution
    now: datetime
    server: ServerStatus | None = None
    page: str | None = None


class _StepText(NamedTuple):
    mark: str
    name: str
    seconds: float | None
    dollars: float | None
    detail: str = ""
    style: str = ""
    about: str = ""
    """`~` before what is only likely."""

    def line(self) -> StatusLine:
        time = "" if self.seconds is None else f"{self.about}{step_time(self.seconds)}"
        cost = "" if not self.dollars else f"{self.about}{dollars(self.dollars)}"
        name = cut(one_line(self.name), NAME_WIDTH)
        row = f"  {self.mark} {name:<{NAME_WIDTH}} {time:>7} {cost:>7}   {one_line(self.detail)}"
        return StatusLine(row.rstrip(), self.style)


def summary_of(facts: StatusFacts) -> Iterator[StatusLine]:
    """Yield the lines: heading, steps, edits of people, what wants attention, what to do next."""
    standing = standing_of(facts)
    yield StatusLine(heading_of(facts), _STYLES.get(standing, "bold"))
    yield StatusLine()
    yield from _steps(facts, standing)
    if edits := _edits(facts.state):
        yield StatusLine()
        yield StatusLine(f"  {edits}")

    yield StatusLine()
    for text in _attention(facts):
        yield StatusLine(one_line(f"  {text}"), "yellow")

    yield from _next_lines(_next_commands(facts, standing))
    where = f"in {facts.root}" if facts.page is None else f"page {facts.page}   in {facts.root}"
    yield StatusLine(one_line(f"  {where}"), "dim")


def heading_of(facts: StatusFacts) -> str:
    """Return which hank it is, how far it is, how it stands, and what it has cost."""
    paid = costs(facts.state, facts.listed.max_dollars if facts.server is None else _budget(facts))
    return one_line(" · ".join(_heading(facts, standing_of(facts), paid)))


def standing_of(facts: StatusFacts) -> Standing:
    """Return where the execution stands, in a word."""
    server, state = facts.server, facts.state
    if server is None:
        match facts.listed.state:
            case "failed" | "stopped" | "crashed" | "completed" | "new" as seen:
                return _of_failure(state) if seen == "failed" else seen
            case "waiting":
                return "idle"
            case _:
                return "crashed" if facts.listed.state == "running" else "idle"

    if server.is_rolling_back:
        return "rolling back"

    if server.active_codon_id is not None:
        if server.waiting is not None:
            return "limited"

        return "asking" if server.pending_permissions else "running"

    if next_codon(state) is None:
        return "completed" if state.execution_plan else "idle"

    return _of_failure(state)


def _of_failure(state: State) -> Standing:
    """Return how the codon ended that is next again, if the plan stops at it."""
    newest = thread(state)[-1:]
    if newest and isinstance(newest[0].codon, FailedCodon):
        return "stopped" if was_stopped(newest[0].codon.failure_reason) else "failed"

    return "idle"


def _budget(facts: StatusFacts) -> float | None:
    return None if facts.server is None else facts.server.budget_usd


def _heading(facts: StatusFacts, standing: Standing, paid: Costs) -> Iterator[str]:
    state, listed = facts.state, facts.listed
    name = listed.hank_name or (facts.server and facts.server.hank_name)
    yield name or facts.root.name
    if runs := {run.run_id for run in state.runs} - attempt_runs(state).keys():
        yield f"run {len(runs)}"

    step, steps = progress(state)
    if steps:
        yield (
            f"failed at step {step} of {steps}" if standing == "failed" else f"{step} of {steps}"
        )

    if words := _in_words(facts, standing):
        yield words

    if paid.total or paid.budget is not None:
        limit = "" if paid.budget is None else f" of {dollars(paid.budget)}"
        yield f"{dollars(paid.total)}{limit}"


def _in_words(facts: StatusFacts, standing: Standing) -> str:
    run, now, server = newest_run(facts.state), facts.now, facts.server
    since = "" if facts.listed.last_activity is None else f" {ago(facts.listed.last_activity, now)}"
    match standing:
        case "running" if run is not None:
            lasted = span((now - from_text(run.start_time)).total_seconds())
            left = (
                None if server is None or server.forecast is None else server.forecast.remaining_ms
            )
            about = "" if left is None else f", about {span(left / 1000)} left"
            return f"running {lasted}{about}"
        case "asking":
            return "waits for you"
        case "limited" if server is not None and server.waiting is not None:
            left_of_it = span((from_text(server.waiting.until) - now).total_seconds())
            return f"waits {left_of_it} for the end of a {server.waiting.kind} limit"
        case "rolling back":
            return "rolling back"
        case "failed":
            return since.strip()
        case "crashed":
            return f"its server was killed{since}"
        case "idle":
            return "idle"
        case "new":
            return "has not begun"
        case _:
            return f"{standing}{since}"


# --- steps ----------------------------------------------------------------------------------------


def _steps(facts: StatusFacts, standing: Standing) -> Iterator[StatusLine]:
    state, plan = facts.state, facts.state.execution_plan
    ran = {entry.codon.codon_id: entry.codon for entry in thread(state)}
    active = active_codon(state) if facts.server is not None else None
    at = next_codon(state) if active is None else active.codon_id
    place = next((i for i, each in enumerate(plan) if each.codon_id == at), len(plan))
    behind = [
        _group_text([ran[each.codon_id] for each in group if each.codon_id in ran], name, facts)
        for name, group in _groups(plan[:place])
    ]
    shown = behind[-1 if place < len(plan) else -_BEHIND :]
    if hidden := len(behind) - len(shown):
        yield StatusLine(f"  ✓ {hidden} before", "dim")

    yield from (each.line() for each in shown)
    if place == len(plan):
        return

    expected = facts.server.forecast if facts.server is not None else forecast(state, facts.now)
    codon = ran.get(plan[place].codon_id)
    if codon is None:
        yield _ahead(plan[place], expected).line()
    else:
        yield _current(plan[place], codon, facts, standing).line()

    following = plan[place + 1 :]
    yield from (_ahead(entry, expected).line() for entry in following[:_AHEAD])
    if len(following) > _AHEAD:
        yield StatusLine(f"  · {len(following) - _AHEAD} more", "dim")


def _groups(plan: Sequence[PlanEntry]) -> Iterator[tuple[str, list[PlanEntry]]]:
    """Yield the steps, with those of the same codon that follow each other as one."""
    for _, group in groupby(plan, lambda entry: entry.codon.id):
        steps = list(group)
        times = f" ×{len(steps)}" if len(steps) > 1 else ""
        yield f"{cut(one_line(steps[0].codon.name), NAME_WIDTH - len(times))}{times}", steps


def _group_text(codons: list[CodonExecution], name: str, facts: StatusFacts) -> _StepText:
    run = newest_run(facts.state)
    assert run is not None, "steps are behind"
    spent = [spent_until(run, codon, facts.now) for codon in codons]
    is_skipped = bool(codons) and all(isinstance(codon, SkippedCodon) for codon in codons)
    is_ignored = any(isinstance(codon, FailedCodon) for codon in codons)
    is_reused = bool(codons) and all(_is_reused(codon) for codon in codons)
    return _StepText(
        "»" if is_skipped else "✗" if is_ignored else "✓",
        name,
        sum(each.seconds for each in spent),
        sum(each.dollars for each in spent),
        "skipped" if is_skipped else "reused" if is_reused else "",
        "" if is_skipped else "green",
    )


def _current(
    entry: PlanEntry, codon: CodonExecution, facts: StatusFacts, standing: Standing
) -> _StepText:
    run = newest_run(facts.state)
    assert run is not None, "it has run"
    spent = spent_until(run, codon, facts.now)
    name, seconds, cost = _name(entry), spent.seconds, spent.dollars
    match codon:
        case FailedCodon():
            mark = "✗" if standing == "failed" else "■"
            why = codon.failure_reason.message or codon.failure_reason.type
            return _StepText(mark, name, seconds, cost, why, _STYLES.get(standing, "yellow"))
        case _ if standing == "crashed":
            return _StepText("✗", name, None, cost, "cut short", "red")
        case _:
            style = _STYLES.get(standing, "")
            return _StepText("▸", name, seconds, cost, facts.listed.doing or "", style)


def _ahead(entry: PlanEntry, expected: Forecast | None) -> _StepText:
    steps = () if expected is None else expected.steps
    likely = next((each for each in steps if each.codon_id == entry.codon_id), None)
    seconds = None if likely is None or likely.ms is None else likely.ms / 1000
    cost = None if likely is None else likely.cost
    return _StepText("·", _name(entry), seconds, cost, style="dim", about="~")


def _name(entry: PlanEntry) -> str:
    name = entry.codon.name or entry.codon_id
    round_ = "" if entry.loop_context is None else f" #{entry.loop_context.iteration}"
    return f"{cut(name, NAME_WIDTH - len(round_))}{round_}"


def _edits(state: State) -> str:
    if not state.edits:
        return ""

    names = [one_line(path) for path in sorted(state.edits)]
    more = f" and {len(names) - _EDITS_NAMED} more" if len(names) > _EDITS_NAMED else ""
    edits = counted(len(names), "edit of yours", "edits of yours")
    return f"{edits}: {', '.join(names[:_EDITS_NAMED])}{more}"


# --- what to do -----------------------------------------------------------------------------------


def _attention(facts: StatusFacts) -> Iterator[str]:
    """Yield what is wrong, or waits for an answer."""
    if facts.server is not None:
        for problem in facts.server.problems:
            yield f"degraded: {problem.message} ({problem.code})"

        for asked in facts.server.pending_permissions:
            what = call_text(asked.tool_name, asked.tool_input)
            yield f"asks: {what}  ({asked.codon_id}, {asked.request_id})"

    for exploration in facts.state.explorations:
        if exploration.ended_at is None:
            statuses = [attempt.status for attempt in exploration.attempts]
            ended = sum(each not in ("waiting", "running") for each in statuses)
            of = counted(len(statuses), "attempt")
            yield f"explores {exploration.codon_id}: {ended} of {of} ended"


def _next_commands(facts: StatusFacts, standing: Standing) -> Iterator[tuple[str, str]]:
    """Yield what to do next, as a command line and its effect."""

    def line(words: str) -> str:
        return command(words, facts.root).strip("`")

    start = f"hankweave run -e {shlex.quote(str(facts.root))}"
    upcoming = next_codon(facts.state)
    step = shlex.quote(upcoming or "")
    has_server = facts.server is not None
    match standing:
        case "running" | "rolling back":
            yield attach_line(facts.root), "watch it"
            yield line("stop"), "stop the step that runs"
        case "asking" if facts.server is not None:
            request = facts.server.pending_permissions[0].request_id
            yield line(f"allow {request}"), "let it"
            yield line(f"deny {request}"), "or not"
        case "limited":
            yield line("next"), "continue now"
        case "failed" | "stopped":
            yield line("log"), "what happened"
            if has_server:
                yield line(f"rollback --before {step} --restart"), "again, from its first files"
                yield line("retry"), "again, on the files as they are"
            else:
                yield start, "again, on the files as they are"

            yield line(f"rollback --before {step}"), "back to before it"
        case "crashed":
            yield start, "continue"
        case "completed":
            yield line("report"), "what became of it"
            yield line("log --graph"), "all checkpoints to go back to"
        case _ if has_server and upcoming is not None:
            yield line("next"), f"start {upcoming}"
        case _ if not has_server:
            yield start, "continue" if facts.state.runs else "begin"
        case _:
            pass


_COMMAND_WIDTH = 44
"""Effects are aligned behind commands up to this width; a longer one does not push them away."""


def _next_lines(commands: Iterator[tuple[str, str]]) -> Iterator[StatusLine]:
    listed = list(commands)
    width = max((len(line) for line, _ in listed if len(line) <= _COMMAND_WIDTH), default=0)
    for line, effect in listed:
        yield StatusLine(one_line(f"  {line:<{width}}   {effect}"))


def step_time(seconds: float) -> str:
    """Return `0:52`, `9:31` or `1:02:03`."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


COMMANDS = (status,)
