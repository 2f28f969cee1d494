"""Serve an execution: load a hank, choose the execution directory and run the server.

Ctrl-C on a terminal asks whether to finish the running step, to stop it or to continue; a second
Ctrl-C stops at once. While the question is shown, the terminal delivers each key as it is pressed;
its settings are restored afterwards.

A temporary server, which only executes a command such as a rollback, gets its plan from the journal
(`plan_on_record`) instead of a hank: the hank may have been deleted, broken or changed since, and
none of that affects the recorded execution. Loops are rebuilt from the iterations in the plan, so
that a rollback removes the right ones.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from hankweave_protocol.hank import Codon, Hank, IterationLimit, Loop
from hankweave_protocol.state import PlanEntry
from hankweave_server.cli.live.frame import StyledText
from hankweave_server.cli.live.reporters import Keyboard, RunOutput, is_drawn, output_for
from hankweave_server.cli.output.text import print_error
from hankweave_server.cli.shared import hank_loading, run_settings
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.daemon import observers
from hankweave_server.daemon.daemon import Daemon
from hankweave_server.daemon.shutdown import Choice
from hankweave_server.domain.costs import Prices
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.attempts import VariantInvalid, attempted
from hankweave_server.hank.load import LoadedHank, no_hank
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.ledger.moments import has_past, saved_state, state_at_end
from hankweave_server.local import executions
from hankweave_server.local.executions import ChosenExecution, can_ask
from hankweave_server.local.journals import reading_journal
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings
from hankweave_server.transport.exposure import exposure_of
from hankweave_server.transport.listener import reserve
from hankweave_server.transport.sockets import Port
from hankweave_server.worktree.data_source import read_meta


def plan_on_record(layout: Layout) -> LoadedHank:
    """Return a hank that expands to the recorded plan; it has no prompts, so nothing can run."""
    meta = read_meta(layout)
    try:
        plan = _plan_of(layout) if has_past(layout) else ()
    except Stop:
        plan = ()  # Opening the ledger reports the damage and ends the server.

    if meta is None or not plan:
        return no_hank(layout.work_tree)

    directory = layout.work_tree if meta.hank_path is None else Path(meta.hank_path).parent
    steps = tuple(_steps(plan))
    return LoadedHank(Hank(hank=steps), directory, hank_hash=meta.hank_hash or "", prompts={})


def _plan_of(layout: Layout) -> tuple[PlanEntry, ...]:
    with reading_journal(layout) as journal:
        return state_at_end(journal, saved_state(layout)).execution_plan


def _steps(plan: tuple[PlanEntry, ...]) -> list[Codon | Loop]:
    found: list[Codon | Loop] = []
    seen: set[str] = set()
    for entry in plan:
        if entry.loop_context is None:
            found.append(entry.codon)
        elif entry.loop_context.loop_id not in seen:
            seen.add(entry.loop_context.loop_id)
            found.append(_loop(plan, entry.loop_context.loop_id))

    return found


def _loop(plan: tuple[PlanEntry, ...], name: str) -> Loop:
    own = [(e.codon, c) for e in plan if (c := e.loop_context) is not None and c.loop_id == name]
    known = max(context.iteration for _, context in own) + 1
    first = min(context.iteration for _, context in own)
    return Loop(
        id=name,
        name=name,
        terminate_on=IterationLimit(limit=known),
        codons=tuple(codon for codon, context in own if context.iteration == first),
        budget=own[0][1].loop_budget,
    )


QUESTION = "What should happen to this step?\nf finish, then stop   s stop   c continue"
"""Short lines, so that a narrow terminal shows them completely."""

_CHOICES: dict[str, Choice] = {
    "f": "finish",
    "s": "stop",
    "q": "stop",
    "\x04": "stop",
    "c": "go on",
    "\x1b": "go on",
}
"""Answers by key; Ctrl-D is `\\x04`, and Escape is `\\x1b`."""

_REPLIES: dict[Choice, str] = {
    "finish": "Stopping after this step.\nCtrl-C stops now.",
    "stop": "Stopping.",
    "go on": "",
}


@dataclass(slots=True)
class InterruptNotice:
    """A question or message below the live view."""

    text: str = ""

    def lines(self) -> tuple[StyledText, ...]:
        return tuple(StyledText(line, "bold yellow") for line in self.text.splitlines())


class Interrupts:
    """The question on the terminal after Ctrl-C."""

    def __init__(
        self, notice: InterruptNotice, *, is_drawn: bool, keep_running: bool = False
    ) -> None:
        """Show `notice` in the live view if `is_drawn`, or else write it to stderr."""
        self._notice = notice
        self._is_drawn = is_drawn
        self._unanswered: Choice = "go on" if keep_running else "stop"

    async def ask(self) -> Choice:
        """Ask, and return the answer; without one, because the terminal is closed, what is set."""
        self.show(QUESTION)
        chosen = self._unanswered
        keyboard = Keyboard(sys.stdin.fileno())
        with keyboard.taken():
            async for key in keyboard.keys():
                if (meant := _CHOICES.get(key.lower())) is not None:
                    chosen = meant
                    break

        self.show(_REPLIES[chosen])
        return chosen

    def show(self, text: str) -> None:
        self._notice.text = text
        if text and not self._is_drawn:
            with contextlib.suppress(OSError):  # The terminal may have been closed.
                click.echo(text, err=True)


def serve(settings: RunSettings, output: RunOutput | None = None) -> ExitCode:
    """Load the hank, choose the execution directory and run the server until it ends.

    `output` reports events; by default, stdout does, in the format that the settings choose.
    """
    clock = SystemClock()
    chosen = executions.choose(settings, clock)
    settings = _within_share(settings, chosen.layout)
    exposure = exposure_of(settings)
    exposure.refuse_insecure(no_token=settings.no_token)
    for note in exposure.notes():
        print_error(note)

    prices = load_prices(settings.prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    loaded = _hank_for(settings, chosen, prices)
    with _reserved_port(settings) as port:
        return _serve_on(port, settings, chosen, loaded, prices, output)


@contextmanager
def _reserved_port(settings: RunSettings) -> Iterator[Port | None]:
    """Reserve the requested port, so that a port in use ends the start before it changes a file."""
    if settings.port == 0:
        yield None
        return

    with contextlib.closing(reserve(settings.host, settings.port)) as port:
        yield port


def _serve_on(
    port: Port | None,
    settings: RunSettings,
    chosen: ChosenExecution,
    loaded: LoadedHank,
    prices: Prices,
    output: RunOutput | None,
) -> ExitCode:
    clock = SystemClock()
    chosen = executions.settled(_set_aside_former(chosen, settings, clock))
    _confirm_hank(chosen.layout, loaded, settings)
    notice = InterruptNotice()
    drawn = output is None and is_drawn(settings)
    interrupts = None
    if _asks_at_ctrl_c(settings):
        interrupts = Interrupts(notice, is_drawn=drawn, keep_running=settings.keep_running)

    if output is None:
        output = output_for(settings, loaded, clock, notice.lines)

    daemon = Daemon(
        settings,
        chosen,
        loaded,
        clock,
        prices=prices,
        report_ready=partial(output.begin, chosen.layout),
        report_event=output.report,
        port=port,
        interrupts=interrupts,
        observers=tuple(observers.prepared(settings, chosen.layout, clock)),
    )
    try:
        with output.writing():
            return anyio.run(daemon.live)
    except BaseExceptionGroup as group:
        raise first_stop(group) from group


def _asks_at_ctrl_c(settings: RunSettings) -> bool:
    return can_ask() and not (settings.json_output or settings.plan_on_record)


def _hank_for(settings: RunSettings, chosen: ChosenExecution, prices: Prices) -> LoadedHank:
    if settings.plan_on_record:
        return plan_on_record(chosen.layout)

    hank = executions.hank_of(settings, chosen)
    if hank is None:
        return no_hank(chosen.layout.work_tree)

    loaded = _with_variables(hank_loading.read(hank, settings.model), chosen.layout, settings)
    loaded = _as_attempt(loaded, chosen.layout)
    hank_loading.require(loaded, chosen.layout, settings, prices, _warn)
    hank_loading.require_confinement(loaded, settings)
    return loaded


def _warn(sentence: str) -> None:
    print_error(f"warning: {sentence}")


def _within_share(settings: RunSettings, layout: Layout) -> RunSettings:
    """Keep an attempt within its share of the exploration's budget, and on loopback."""
    meta = read_meta(layout)
    if meta is None or meta.attempt is None:
        return settings

    settings = settings.on_loopback()
    if meta.attempt.max_dollars is None:
        return settings

    limits = filter(None, (settings.max_cost, meta.attempt.max_dollars))
    return replace(settings, max_cost=min(limits))


def _as_attempt(loaded: LoadedHank, layout: Layout) -> LoadedHank:
    """Return the hank with the variant of the execution, if that is an attempt."""
    meta = read_meta(layout)
    if meta is None or meta.attempt is None:
        return loaded

    try:
        return attempted(loaded, meta.attempt)
    except VariantInvalid as fault:
        raise Stop(
            f"The attempt {meta.attempt.attempt_id} cannot run: {fault}",
            ExitCode.USAGE,
            hint="Correct the hank, or start another exploration.",
        ) from None


def _with_variables(loaded: LoadedHank, layout: Layout, settings: RunSettings) -> LoadedHank:
    """Return the hank with the values that this or an earlier start gave its variables."""
    meta = read_meta(layout)
    given = {} if meta is None else meta.variables
    variables = {**loaded.hank.variables, **given, **dict(settings.variables)}
    return replace(loaded, hank=msgspec.structs.replace(loaded.hank, variables=variables))


def _set_aside_former(
    chosen: ChosenExecution, settings: RunSettings, clock: Clock
) -> ChosenExecution:
    """Set the old execution aside for `--new --force`, or finish an interrupted attempt."""
    layout = chosen.layout
    wanted = settings.new and settings.execution is not None and layout.state_directory.is_dir()
    if not wanted and not run_settings.was_interrupted(layout):
        return chosen

    aside = run_settings.set_aside(layout, clock, keep_work_tree=settings.keep_work_tree)
    return replace(chosen, set_aside=aside)


def _confirm_hank(layout: Layout, hank: LoadedHank, settings: RunSettings) -> None:
    """Ask on a terminal whether to continue an execution with a changed hank."""
    former = read_meta(layout)
    if former is None or not executions.is_other_hank(former, hank):
        return

    if settings.force or settings.yes:
        return

    if settings.headless or settings.json_output or not can_ask():
        return  # The event `hank.changed` reports it.

    if not click.confirm(
        "hank.json has changed since this execution began. Continue with the changed hank?"
    ):
        raise Stop(
            "Nothing was changed.",
            ExitCode.FAILED,
            hint="--new creates a new execution with the current hank.",
        )


def first_stop(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to report, out of the errors of several tasks."""
    for error in _leaves(group):
        if isinstance(error, Stop | OSError):
            return error

    return group


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]

    return [error]
