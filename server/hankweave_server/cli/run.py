"""`hankweave run`: load a hank, choose the execution directory and run the server.

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
from typing import TYPE_CHECKING, Any, get_args

import anyio
import click
import msgspec

from hankweave_protocol.hank import Codon, Hank, IterationLimit, Loop
from hankweave_protocol.state import PlanEntry, State
from hankweave_server.cli.live.frame import StyledText
from hankweave_server.cli.live.reporters import Keyboard, Teller, is_drawn, teller_for
from hankweave_server.cli.output.text import complain
from hankweave_server.cli.shared import completions, hank_loading, invocation, run_settings
from hankweave_server.cli.shared.run_settings import (
    confinement_option,
    log_format_option,
    log_level_option,
    notify_option,
    require_confinement_option,
    settings_of,
    variables_of,
    webhook_option,
)
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.config import NO_PROXY
from hankweave_server.daemon.daemon import Daemon
from hankweave_server.daemon.shutdown import Choice
from hankweave_server.domain.costs import Prices
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.attempts import VariantInvalid, attempted
from hankweave_server.hank.load import LoadedHank, no_hank
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.ledger.moments import Moments, has_past
from hankweave_server.local import ephemeral_server, executions
from hankweave_server.local.executions import ChosenExecution, can_ask
from hankweave_server.local.journals import reading_journal
from hankweave_server.notify import SECRET, destinations
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings, WatchMode, duration, safe_points_named
from hankweave_server.telemetry.environment import TelemetryUnavailable, wanted
from hankweave_server.telemetry.subscriber import open_exporter
from hankweave_server.transport.exposure import exposure_of
from hankweave_server.transport.listener import reserve
from hankweave_server.transport.sockets import Port
from hankweave_server.worktree.data_source import read_meta

if TYPE_CHECKING:
    from hankweave_server.telemetry.otlp import Exporter


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
        state: State | None = None
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            state = msgspec.json.decode(layout.state.read_bytes(), type=State)

        if state is None or state.last_event_seq != journal.last_seq:
            # A crash came between the last event and the state file.
            state = Moments(journal).at(journal.last_seq).state

        return state.execution_plan


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
    "c": "go on",
    "escape": "go on",
}
_SAID: dict[Choice, str] = {
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
        self.say(QUESTION)
        chosen = self._unanswered
        keyboard = Keyboard(sys.stdin.fileno())
        with keyboard.taken():
            async for key in keyboard.keys():
                if (meant := _CHOICES.get(key.lower())) is not None:
                    chosen = meant
                    break

        self.say(_SAID[chosen])
        return chosen

    def say(self, text: str) -> None:
        self._notice.text = text
        if text and not self._is_drawn:
            with contextlib.suppress(OSError):  # The terminal may have been closed.
                click.echo(text, err=True)


@click.command()
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@click.argument("data", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="Same as HANK.")
@click.option("--data", "data_option", type=click.Path(path_type=Path), help="Same as DATA.")
@click.option("--input", "-i", metavar="TEXT", help="Use this text as the data; - is stdin.")
@click.option(
    "--execution", "-e", type=click.Path(path_type=Path), help="Execution directory to use."
)
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Project to work in, in place."
)
@click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the history of a project in this directory, outside of the project; one that "
    "exists moves there.",
)
@click.option(
    "--adopt-state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Continue the history in this directory: that of a project that was moved, or a copy.",
)
@click.option(
    *("--port", "-p"),
    type=click.IntRange(0, 65535),
    help="Port. Default: that of the last server here if it is free, or any other.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    callback=lambda _context, _option, text: run_settings.checked("host", text),
    help="IP address to listen on. Default: 127.0.0.1, so only this machine can connect.",
)
@click.option(
    "--public-url",
    metavar="URL",
    callback=lambda _context, _option, text: run_settings.checked("publicUrl", text),
    help="Address at which browsers find the page: that of a proxy or of a published port.",
)
@click.option(
    "--without-tls",
    is_flag=True,
    help="Let tokens cross a network that you trust without encryption.",
)
@click.option("--headless", is_flag=True, help="Exit when the plan ends, with the run's exit code.")
@click.option(
    "--exit-on-complete/--no-exit-on-complete",
    default=None,
    help="Exit when the plan ends, or keep serving. Default: exit if stdout is not a terminal and "
    "no client is connected.",
)
@click.option(
    "--keep-running",
    is_flag=True,
    help="Go on in the background if the terminal is closed; `hankweave attach` shows it again.",
)
@click.option("--no-autostart", is_flag=True, help="Wait for `hankweave next` to start the plan.")
@click.option(
    "--from",
    "begin_at",
    metavar="CODON",
    shell_complete=completions.codons,
    help="Restart the plan at this codon, on the current files.",
)
@click.option(
    "--until",
    metavar="CODON",
    shell_complete=completions.codons,
    help="End the plan after this codon; the next run continues with the rest.",
)
@click.option(
    "--variables",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Values for variables of the hank, a JSON object, for this and later starts.",
)
@click.option("--copy", is_flag=True, help="Copy the data instead of linking to it.")
@click.option(
    "--new", "--start-new", "-n", is_flag=True, help="Create a new execution; do not resume one."
)
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Continue with changed data or a changed hank; with --new, set aside the old execution.",
)
@click.option(
    "--no-wipe", is_flag=True, help="With --new --force, keep the files of the work tree."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--agent", type=click.Choice(sorted(BY_NAME)), help="Agent for all codons.")
@click.option("--model", "-m", help="Model for all codons; overrides the hank.")
@click.option(
    "--no-agent-check",
    is_flag=True,
    help="Start even if an agent is missing or not logged in, or a required sentinel cannot load.",
)
@click.option(
    "--reuse/--no-reuse",
    default=None,
    help="Take over results of earlier codons with the same inputs, or run every codon. "
    "Default: as the hank says.",
)
@click.option("--ignore-rig-failures", is_flag=True, help="Continue when a rig operation fails.")
@click.option(
    "--shim-idle-timeout",
    type=click.IntRange(1, 1800),
    metavar="SECONDS",
    help="Maximum silence of an agent, for codons that do not set it.",
)
@click.option("--anthropic-base-url", metavar="URL", help="Base URL of Anthropic's API.")
@click.option("--no-token", is_flag=True, help="Give every local program full access.")
@click.option(
    "--new-tokens",
    is_flag=True,
    help="Make new tokens; addresses with the previous ones open nothing any more.",
)
@click.option(
    "--safe-points",
    metavar="LIST",
    callback=lambda _context, _option, text: _checked_safe_points(text),
    help="Automatic checkpoints: rig-setup, before-tool, tool, turn; all (default) or none.",
)
@click.option(
    "--max-cost",
    type=float,
    callback=run_settings.checked_budget,
    help="Budget of the execution, in US dollars, above 0.",
)
@click.option(
    "--max-time",
    type=float,
    callback=run_settings.checked_budget,
    help="Budget of all codons together, in seconds, above 0.",
)
@click.option(
    "--max-wait",
    metavar="DURATION",
    callback=lambda _context, _option, text: _checked_duration(text),
    help="Longest wait for the end of a provider's limit: seconds, or 30m, 8h, 2d; 0 for none.",
)
@webhook_option
@notify_option
@click.option(
    "--notify-content",
    is_flag=True,
    help="Send texts of agents and people with notifications, not only names, numbers and times.",
)
@click.option("--prices", type=click.Path(path_type=Path), help="File with your own model prices.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    help="Copy the output files of codons to this directory.",
)
@click.option(
    "--overwrite-output",
    is_flag=True,
    help="Overwrite existing files there; otherwise, a copy gets another name.",
)
@click.option(
    "--watch",
    type=click.Choice(get_args(WatchMode)),
    help="auto: compare only files that changed; off: compare all files for each checkpoint.",
)
@confinement_option
@require_confinement_option
@log_level_option
@log_format_option
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines.")
@click.option("--without-proxy/--proxy", default=None, hidden=True)
@click.option("--idle-timeout", type=click.IntRange(0, 255), hidden=True)
@click.option("--ignore-data-mismatch", is_flag=True, hidden=True)
@click.option(invocation.AS_HANKWEAVE, is_flag=True, hidden=True)
@click.option("--default-hank", type=click.Path(path_type=Path), hidden=True)
@click.option("--default-data", type=click.Path(path_type=Path), hidden=True)
@click.option("--for-a-moment", is_flag=True, hidden=True)
@click.pass_context
def run(context: click.Context, /, **given: Any) -> None:
    """Run HANK on DATA, and serve clients.

    HANK is a hank.json or its directory. It defaults to the hank.json of the current directory, or
    with --execution or --workspace, to the hank that was run there. A workspace without one is
    served without a plan, for checkpoints and rollbacks only. DATA may be - for stdin. An earlier
    execution of the same data is resumed.

    On a terminal, the server runs until it is stopped; elsewhere it exits when the plan ends,
    unless a client is connected. While a step runs on a terminal, Ctrl-C asks whether to finish it
    first, to stop now or to continue; a second Ctrl-C stops now. A closed terminal stops the server
    as well, unless --keep-running is given.

    \b
    hankweave run examples/earthquakes/hank.json examples/earthquakes/data
    hankweave run my.json data/ --headless && echo done
    hankweave run --workspace ~/my-project

    The command line of the original Hankweave works, too: `hankweave my-project`, `hankweave --data
    data/ -y`, or `hankweave` alone in a directory with a hank.json. There, DATA defaults to the
    directory of the hank. Settings come from options, HANKWEAVE_RUNTIME_* variables, the hank's
    overrides and hankweave.json, in this order of precedence; `hankweave config` shows the result.
    """
    if given["for_a_moment"]:
        ephemeral_server.end_with_stdin()

    if given["without_proxy"] is False:
        raise click.UsageError(f"--proxy: {NO_PROXY}.")

    if given["ignore_data_mismatch"]:
        complain("warning: --ignore-data-mismatch is deprecated; use --force instead.")

    sys.exit(serve(settings_of(given, variables_of(context.command) | {SECRET})))


def _checked_safe_points(text: str | None) -> str | None:
    try:
        return None if text is None else (safe_points_named(text), text)[1]
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _checked_duration(text: str | None) -> float | None:
    try:
        return None if text is None else duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def serve(settings: RunSettings, teller: Teller | None = None) -> ExitCode:
    """Load the hank, choose the execution directory and run the server until it ends.

    `teller` reports events; by default, stdout does, in the format that the settings choose.
    """
    clock = SystemClock()
    chosen = executions.choose(settings, clock)
    settings = _within_share(settings, chosen.layout)
    exposure = exposure_of(settings)
    exposure.refuse_open_doors(no_token=settings.no_token)
    for note in exposure.notes():
        complain(note)

    prices = load_prices(settings.prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    loaded = _hank_for(settings, chosen, prices)
    with _reserved_port(settings) as port:
        return _serve_on(port, settings, chosen, loaded, prices, teller)


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
    teller: Teller | None,
) -> ExitCode:
    clock = SystemClock()
    chosen = executions.settled(_made_room(chosen, settings, clock))
    _confirm_hank(chosen.layout, loaded, settings)
    notice = InterruptNotice()
    drawn = teller is None and is_drawn(settings)
    interrupts = None
    if _asks_at_ctrl_c(settings):
        interrupts = Interrupts(notice, is_drawn=drawn, keep_running=settings.keep_running)

    if teller is None:
        teller = teller_for(settings, loaded, clock, notice.lines)

    daemon = Daemon(
        settings,
        chosen,
        loaded,
        clock,
        prices=prices,
        tell_ready=partial(teller.greet, chosen.layout),
        tell_event=teller.tell,
        port=port,
        interrupts=interrupts,
        destinations=destinations(settings.webhooks, settings.services, os.environ, clock),
        exporter=_exporter(chosen.layout, settings),
    )
    try:
        with teller.speaking():
            return anyio.run(daemon.live)
    except BaseExceptionGroup as group:
        raise first_stop(group) from group


def _exporter(layout: Layout, settings: RunSettings) -> Exporter | None:
    """Return the exporter of traces and metrics; None if none is asked for, or none can be had."""
    try:
        asked = wanted(os.environ)
        return None if asked is None else open_exporter(asked, layout.root.name)
    except TelemetryUnavailable as error:
        if not settings.plan_on_record:  # The command that started it reads what this prints.
            complain(f"warning: No traces and metrics: {error.message}", error.hint)

        return None


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
    complain(f"warning: {sentence}")


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


def _made_room(chosen: ChosenExecution, settings: RunSettings, clock: Clock) -> ChosenExecution:
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


COMMANDS = (run,)
