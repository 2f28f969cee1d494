"""The summary of `status`: heading, steps, changed files, what wants attention, what to do next.

`summary_of` needs no terminal and no clock, and is the same whether a server has told the facts or
the files have.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from hankweave_protocol.instants import from_text
from hankweave_protocol.replies import MirrorStatus
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.text import ago, dollars, span
from hankweave_server.cli.status.changes import change_lines
from hankweave_server.cli.status.standing import (
    STYLES,
    Standing,
    StatusFacts,
    StatusLine,
    standing_of,
)
from hankweave_server.cli.status.steps import step_rows
from hankweave_server.domain.budget.spending import Costs, costs
from hankweave_server.domain.execution_thread import newest_run, next_codon, thread
from hankweave_server.domain.plan import progress
from hankweave_server.domain.timelines import attempt_runs
from hankweave_server.local.hints import command
from hankweave_server.local.targeting import attach_line, start_line
from hankweave_server.plain_text import counted, one_line


def summary_of(facts: StatusFacts, columns: int = 80) -> Iterator[StatusLine]:
    """Yield the lines: heading, steps, changed files, what wants attention, what to do next.

    `columns` is the width of the terminal.
    """
    standing = standing_of(facts)
    yield StatusLine(heading_of(facts), STYLES.get(standing, "bold"))
    yield StatusLine()
    yield from step_rows(facts, standing)
    if changed := list(change_lines(facts.changes, facts.state)):
        yield StatusLine()
        yield from (StatusLine(f"  {line}") for line in changed)

    yield StatusLine()
    for text in _attention(facts):
        yield StatusLine(one_line(f"  {text}"), "yellow")

    yield from _next_lines(_next_commands(facts, standing), columns)
    if facts.server is not None and facts.server.mirror is not None:
        yield StatusLine(one_line(f"  mirror {_mirror_text(facts.server.mirror)}"), "dim")

    if facts.page is not None:
        yield StatusLine(one_line(f"  page {facts.page}"), "dim", is_whole=True)

    yield StatusLine(one_line(f"  in {facts.root}"), "dim", is_whole=True)


def heading_of(facts: StatusFacts) -> str:
    """Return which hank it is, how far it is, how it stands, and what it has cost."""
    budget = facts.listed.max_dollars if facts.server is None else facts.server.budget_usd
    paid = costs(facts.state, budget)
    return one_line(" · ".join(_heading(facts, standing_of(facts), paid)))


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

    if words := _standing_text(facts, standing):
        yield words

    if paid.total or paid.budget is not None:
        limit = "" if paid.budget is None else f" of {dollars(paid.budget)}"
        yield f"{dollars(paid.total)}{limit}"


def _standing_text(facts: StatusFacts, standing: Standing) -> str:
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


def _mirror_text(mirror: MirrorStatus) -> str:
    if not mirror.events_behind:
        return f"{mirror.address}, up to date"

    events = counted(mirror.events_behind, "event")
    return f"{mirror.address}, {events} behind, at most {span(mirror.seconds_behind)}"


def _next_commands(facts: StatusFacts, standing: Standing) -> Iterator[tuple[str, str]]:
    """Yield what to do next, as a command line and its effect."""

    def line(words: str) -> str:
        return command(words, facts.root).strip("`")

    start = start_line(facts.root)
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
            elif upcoming in {entry.codon.codon_id for entry in thread(facts.state)[-1:]}:
                yield start, "again, on the files as they are"
            else:
                yield start, "continue"
                return  # The next step has not begun.

            yield line(f"rollback --before {step}"), "back to before it"
        case "crashed":
            yield start, "continue"
        case "completed":
            yield line("report"), "summary on one page"
            yield line("log --graph"), "all checkpoints to go back to"
        case _ if has_server and upcoming is not None:
            yield line("next"), f"start {upcoming}"
        case _ if not has_server:
            yield start, "continue" if facts.state.runs else "begin"
        case _:
            pass


_COMMAND_WIDTH = 44
"""A longer command has a line of its own, with its effect below, unless the terminal is wide."""


def _next_lines(commands: Iterator[tuple[str, str]], columns: int) -> Iterator[StatusLine]:
    listed = list(commands)
    most = max(_COMMAND_WIDTH, columns - 5 - max((len(effect) for _, effect in listed), default=0))
    width = max((len(line) for line, _ in listed if len(line) <= most), default=1)
    for line, effect in listed:
        if len(line) <= width:
            yield StatusLine(one_line(f"  {line:<{width}}   {effect}"))
        else:
            yield StatusLine(one_line(f"  {line}"), is_whole=True)
            yield StatusLine(f"  {'':<{width}}   {effect}")
