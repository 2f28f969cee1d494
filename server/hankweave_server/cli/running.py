"""`hankweave run`."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import click

from hankweave_protocol.ids import CodonId
from hankweave_server.cli import (
    agent_checks,
    completions,
    executions,
    hanks,
    passing,
    recorded_plan,
    setting_aside,
)
from hankweave_server.cli.executions import Chosen
from hankweave_server.cli.tellers import Teller, teller_for
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.daemon import Daemon
from hankweave_server.domain.prices import Prices
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hanks.load import LoadedHank, no_hank
from hankweave_server.hanks.named_agents import BY_NAME
from hankweave_server.hanks.price_files import load_prices, usual_place
from hankweave_server.layout import Layout
from hankweave_server.settings import LOOPBACK, RunSettings, SafePoint, safe_points_named
from hankweave_server.transport.listener import reserve
from hankweave_server.transport.port import Port
from hankweave_server.workspace.data import read_meta


@click.command()
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option("--execution", "-e", type=click.Path(path_type=Path), help="Use this directory.")
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Work in this project itself."
)
@click.option("--port", "-p", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option("--headless", is_flag=True, help="End with the plan, with the run's exit code.")
@click.option(
    "--exit-on-complete/--no-exit-on-complete",
    default=None,
    envvar="HANKWEAVE_RUNTIME_EXIT_ON_COMPLETE",
    help="End with the plan, or serve on. [default: end if stdout is no terminal and no client "
    "is connected]",
)
@click.option("--no-autostart", is_flag=True, help="Wait for codon.next instead of starting.")
@click.option(
    "--from",
    "begin_at",
    metavar="CODON",
    shell_complete=completions.codons,
    help="Begin the plan again with this codon, on the files as they are.",
)
@click.option("--copy", is_flag=True, help="Copy the data instead of linking to it.")
@click.option("--new", "-n", is_flag=True, help="Never resume: make a new execution.")
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Go on with changed data or a changed hank; with --new, set aside what is there.",
)
@click.option("--agent", type=click.Choice(sorted(BY_NAME)), help="Who does every codon.")
@click.option("--model", "-m", help="The model of every codon, whatever the hank says.")
@click.option(
    "--no-agent-check",
    is_flag=True,
    envvar="HANKWEAVE_RUNTIME_NO_AGENT_CHECK",
    help="Start even if an agent is missing or not logged in.",
)
@click.option("--no-token", is_flag=True, help="Let every local program in, as a controller.")
@click.option(
    "--safe-points",
    default="all",
    show_default=True,
    envvar="HANKWEAVE_RUNTIME_SAFE_POINTS",
    callback=lambda _context, _option, text: _safe_points(text),
    help="Checkpoints taken unasked: rig-setup, before-tool, tool, turn; or all, or none.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(0),
    callback=lambda _context, _option, limit: _finite(limit),
    help="Dollars that the execution may cost.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(0, min_open=True),
    callback=lambda _context, _option, limit: _finite(limit),
    help="Seconds that its codons may take together.",
)
@click.option("--prices", type=click.Path(path_type=Path), help="A price list of your own.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    envvar="HANKWEAVE_RUNTIME_OUTPUT_DIRECTORY",
    help="Copy the output files of codons to this directory.",
)
@click.option("--plain", is_flag=True, help="Print lines on a terminal too, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON line each.")
@click.option("--for-a-moment", is_flag=True, hidden=True)
def run(
    hank: Path | None,
    data: Path | None,
    execution: Path | None,
    workspace: Path | None,
    port: int,
    headless: bool,
    exit_on_complete: bool | None,
    no_autostart: bool,
    begin_at: str | None,
    copy: bool,
    new: bool,
    force: bool,
    agent: str | None,
    model: str | None,
    no_agent_check: bool,
    no_token: bool,
    safe_points: frozenset[SafePoint],
    max_cost: float | None,
    max_time: float | None,
    prices: Path | None,
    output: Path | None,
    plain: bool,
    as_json: bool,
    for_a_moment: bool,
) -> None:
    """Serve HANK (a hank.json or its directory) on DATA.

    The same data is resumed where it was. At a terminal the server keeps serving until it is
    stopped; elsewhere it ends with its plan, unless a client is connected. Without
    HANK an execution or workspace goes on with the one it had; a workspace that had none is served
    without a plan, for checkpoints and rollbacks alone.

    \b
    hankweave run examples/earthquakes/hank.json examples/earthquakes/data
    hankweave run my.json data/ --headless && echo done
    hankweave run --workspace ~/my-project
    """
    _check_usage(hank, execution, workspace, new=new)
    if begin_at is not None and no_autostart:
        raise click.UsageError("--from and --no-autostart exclude each other.")

    if for_a_moment:
        passing.end_with_stdin()

    settings = RunSettings(
        hank=None if hank is None else hanks.file_of(hank),
        data=data,
        execution=execution,
        workspace=workspace,
        executions_root=executions.executions_root(),
        port=port,
        headless=headless,
        exit_on_complete=False if for_a_moment else exit_on_complete,
        unattended=not sys.stdout.isatty(),
        autostart=not (no_autostart or for_a_moment),
        plan_on_record=for_a_moment,
        begin_at=None if begin_at is None else CodonId(begin_at),
        copy=copy,
        new=new,
        force=force,
        agent=agent,
        model=model,
        agent_check=not no_agent_check,
        no_token=no_token,
        safe_points=safe_points,
        max_cost=max_cost,
        max_time=max_time,
        prices=prices,
        output=output,
        plain=plain,
        json_output=as_json,
    )
    sys.exit(serve(settings))


def _safe_points(text: str) -> frozenset[SafePoint]:
    try:
        return safe_points_named(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _finite(limit: float | None) -> float | None:
    if limit is not None and not math.isfinite(limit):
        raise click.BadParameter("That is no amount.")

    return limit


def _check_usage(
    hank: Path | None, execution: Path | None, workspace: Path | None, *, new: bool
) -> None:
    if hank is None and execution is None and workspace is None:
        raise click.UsageError("Name a HANK, or an --execution or --workspace to go on with.")

    if workspace is not None and (execution is not None or new):
        raise click.UsageError("--workspace excludes --execution and --new.")


def serve(settings: RunSettings, teller: Teller | None = None) -> ExitCode:
    """Loads the hank, chooses the directory, and lives the server's life.

    What happens is told on stdout as the settings say, if not by a `teller` of the caller's.
    """
    clock = SystemClock()
    chosen = executions.choose(settings, clock)
    loaded = _hank_for(settings, chosen)
    prices = load_prices(settings.prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    with _reserved_port(settings.port) as port:
        return _serve_on(port, settings, chosen, loaded, prices, teller)


@contextmanager
def _reserved_port(number: int) -> Iterator[Port | None]:
    """Hold the port that was asked for: a taken one must end the start before it changes a file."""
    if number == 0:
        yield None
        return

    with contextlib.closing(reserve(LOOPBACK, number)) as port:
        yield port


def _serve_on(
    port: Port | None,
    settings: RunSettings,
    chosen: Chosen,
    loaded: LoadedHank,
    prices: Prices,
    teller: Teller | None,
) -> ExitCode:
    clock = SystemClock()
    chosen = _made_room(chosen, settings, clock)
    _confirm_hank(chosen.layout, loaded, settings)
    if teller is None:
        teller = teller_for(settings, loaded, clock)

    daemon = Daemon(
        settings,
        chosen,
        loaded,
        clock,
        prices=prices,
        tell_ready=partial(teller.greet, chosen.layout),
        tell_event=teller.tell,
        port=port,
    )
    try:
        with teller.speaking():
            return anyio.run(daemon.live)
    except BaseExceptionGroup as group:
        raise _first_stop(group) from group


def _hank_for(settings: RunSettings, chosen: Chosen) -> LoadedHank:
    if settings.plan_on_record:
        return recorded_plan.plan_on_record(chosen.layout)

    hank = executions.hank_of(settings, chosen)
    if hank is None:
        return no_hank(chosen.layout.work_tree)

    loaded = hanks.read(hank, settings.model)
    hanks.require(loaded)
    agent_checks.require_agents(loaded, chosen.layout, settings)
    return loaded


def _made_room(chosen: Chosen, settings: RunSettings, clock: Clock) -> Chosen:
    """Sets aside what `--new --force` says, or a start before this one began to."""
    layout = chosen.layout
    wanted = settings.new and settings.execution is not None and layout.state_directory.is_dir()
    if not wanted and not setting_aside.was_interrupted(layout):
        return chosen

    return replace(chosen, set_aside=setting_aside.set_aside(layout, clock))


def _confirm_hank(layout: Layout, hank: LoadedHank, settings: RunSettings) -> None:
    """Asks the person at the terminal whether an execution goes on with a changed hank."""
    former = read_meta(layout)
    if former is None or not executions.is_other_hank(former, hank) or settings.force:
        return

    is_asked = sys.stdin.isatty() and sys.stdout.isatty()
    if settings.headless or settings.json_output or not is_asked:
        return  # The event `hank.changed` tells of it.

    if not click.confirm("hank.json has changed since this execution began. Go on with it?"):
        raise Stop(
            "Nothing was touched.",
            ExitCode.FAILED,
            hint="--new makes a new execution of the hank as it is now.",
        )


def _first_stop(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The end a person should read about, out of the errors of several tasks."""
    for error in _leaves(group):
        if isinstance(error, Stop | OSError):
            return error

    return group


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]

    return [error]


COMMANDS = (run,)
