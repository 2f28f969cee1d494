"""`hankweave map`: run a hank on many inputs, each in an execution of its own.

The first Ctrl-C lets the items that run finish, the second asks their servers to end. Both leave a
map that the same command continues. What a command is given goes into the journal of the map, so
`--resume` needs nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import click

from hankweave_server.cli import run as run_command
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.text import SIZE, Parsed, can_be_drawn_on
from hankweave_server.cli.remote import json_option
from hankweave_server.cli.shared import hank_loading, run_settings
from hankweave_server.cli.shared.serving import first_stop
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map import directory as map_directory
from hankweave_server.features.map import inputs
from hankweave_server.features.map.directory import MapDirectory, MapJournal
from hankweave_server.features.map.executor import Executor, ItemLimits, LocalPool
from hankweave_server.features.map.inputs import MapInput
from hankweave_server.features.map.plan import (
    MapBegun,
    MapEnded,
    Placement,
    WantedItem,
)
from hankweave_server.features.map.remote import RemoteExecutor, ray_cluster
from hankweave_server.features.map.results import write_results
from hankweave_server.features.map.supervisor import MapSettings, Supervisor
from hankweave_server.features.map.view import (
    JsonMapDisplay,
    LiveMapDisplay,
    MapDisplay,
    PlainMapDisplay,
    summary_lines,
)
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.hank.references import requirements_of
from hankweave_server.local.executions import executions_root
from hankweave_server.plain_text import one_line

INTERRUPTED = 130
MOST_PROCESSES = 1000
"""Processes of an item, unless the command line says otherwise."""

_PASSED_ON = frozenset(
    {"agent", "model", "no_agent_check", "confinement", "require_confinement", "copy", "reuse"}
    | {"ignore_rig_failures", "shim_idle_timeout", "anthropic_base_url", "safe_points", "prices"}
    | {"max_time", "max_wait", "watch", "log_level", "log_format"}
)
"""Options of `run` that hold for every item."""

_RUN_OPTIONS = {
    next(name for name in each.opts if name.startswith("--")): each
    for each in run_command.run.params
    if each.name in _PASSED_ON
}


_EXECUTOR = re.compile(r"local|ray|ray://([^\s/:]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")


def _executor_named(text: str) -> str:
    if _EXECUTOR.fullmatch(text):
        return text

    raise ValueError(
        f"{text!r} is not an executor. Name local, ray, or ray://HOST:PORT with the address "
        "that `ray start` prints."
    )


def _amount_of_resource(text: str) -> tuple[str, float]:
    if found := re.fullmatch(r"([^\s=]+)=([0-9]+(?:\.[0-9]+)?)", text):
        return found[1], float(found[2])

    raise ValueError(f"{text!r} is not NAME=NUMBER, such as GPU=1.")


def _absolute_place(
    _context: click.Context, _option: click.Parameter, place: str | None
) -> str | None:
    return place if place is None or "://" in place else os.path.abspath(place)


@click.command(name="map")
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@click.argument("paths", metavar="[INPUT]...", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--from",
    "rows",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="One input for each row of this file: JSON Lines, or .csv with a header. Repeatable.",
)
@click.option(
    "--id", "id_field", metavar="FIELD", help="Field that names a row. Default: id, else name."
)
@click.option(
    *("--directory", "-d"),
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the map. Default: one for each hank, in the directory of executions.",
)
@click.option(
    *("--parallel", "-j"),
    type=click.IntRange(1, 1000),
    help="Number of items that run at a time. Default: the number of cores.",
)
@run_settings.budget_option("--max-cost", "Budget of all items together, in US dollars, above 0.")
@click.option(
    *("--output", "-o"),
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    help="Directory for results.jsonl, summary.csv and, for each item, its output files.",
)
@click.option("--resume", is_flag=True, help="Continue the last command on this map.")
@click.option(
    "--retry-failed", is_flag=True, help="Run failed items again, from the codon that failed."
)
@click.option("--fail-fast", is_flag=True, help="Start no further items after the first failure.")
@click.option(
    "--memory",
    type=SIZE,
    metavar="SIZE",
    help="Maximum memory of an item with its agents, such as 4GiB.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help=f"Maximum number of processes of an item with its agents. Default: {MOST_PROCESSES}.",
)
@click.option(
    "--executor",
    type=Parsed("executor", _executor_named),
    help="Where items run: local (the default), on this machine; ray, on its Ray cluster, which is "
    "started if there is none; ray://HOST:PORT, on this cluster.",
)
@click.option(
    "--cpus",
    type=click.FloatRange(0),
    help="Cores of the cluster that an item reserves. Default: 1. Only for ray.",
)
@click.option(
    "--resources",
    metavar="NAME=NUMBER",
    type=Parsed("resource", _amount_of_resource),
    multiple=True,
    help="A resource of the cluster that an item reserves. Repeatable. Only for ray.",
)
@click.option(
    "--storage",
    metavar="PLACE",
    callback=_absolute_place,
    help="Path or URL that all machines reach, for inputs and results. Default: Ray transfers "
    "them. Only for ray.",
)
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
@json_option
def map_hank(hank: Path | None, as_json: bool, plain: bool, **given: Any) -> None:
    """Run HANK on every INPUT, each in an execution of its own.

    An INPUT is a file or a folder, and the data of its execution. With --from, each row of a file
    is an input: the row is the data, and its fields are variables of the hank, such as {{city}}.
    Items that fail do not affect others.

    After any interruption, run the same command again to continue. Finished items run again only if
    the hank or the input has changed. `hankweave ls` lists the map with its items, and
    `hankweave attach -e DIR` shows one while it runs.

    \b
    hankweave map review/ reports/*.pdf --parallel 4 --max-cost 20 --output results/
    hankweave map hank.json --from cities.csv
    hankweave map hank.json --resume --retry-failed
    hankweave map review/ reports/*.pdf --executor ray://10.0.0.1:6379 --cpus 2

    Exit code: 0 if all items are completed, 1 if not, 130 after Ctrl-C. The first Ctrl-C lets
    running items finish; the second stops them, and they can be resumed.
    """
    directory, begun = _place(hank, given)
    settings = _settings(hank, given, begun)
    named = _inputs(given)
    if begun is None and not named:
        raise Stop(
            "There is no input: the files of --from have no rows.",
            ExitCode.NO_INPUT,
            hint="Write one row for each input.",
        )

    journal = MapJournal(directory)
    try:
        with waiting("Reading the inputs"):
            wanted = inputs.wanted_items(journal, named, begun, SystemClock())

        supervisor, ended = _run(journal, wanted, settings, _display(directory, as_json, plain))
        folder = write_results(supervisor.items, directory, settings.output)
    finally:
        journal.close()

    if not as_json:
        _print_end(ended, supervisor, folder, directory)

    if ended.outcome == "interrupted":
        sys.exit(INTERRUPTED)

    sys.exit(ExitCode.DONE if ended.outcome == "completed" else ExitCode.FAILED)


map_hank.params += _RUN_OPTIONS.values()


# --- what is given --------------------------------------------------------------------------------


def _place(hank: Path | None, given: dict[str, Any]) -> tuple[MapDirectory, MapBegun | None]:
    """Return the directory of the map and, with --resume, its last command."""
    if given["directory"] is not None:
        root: Path = given["directory"].expanduser().absolute()
    elif hank is not None:
        root = map_directory.default_root(executions_root(), hank_loading.file_of(hank))
    else:
        raise click.UsageError("Name a HANK, or with --resume, the --directory of a map.")

    directory = MapDirectory(root)
    if not given["resume"]:
        if hank is None:
            raise click.UsageError("Name a HANK, or add --resume.")

        if not (given["paths"] or given["rows"]):
            raise click.UsageError("Name an INPUT, or --from FILE, or add --resume.")

        _require_usable(directory)
        return directory, None

    begun = directory.state().begun
    if begun is None:
        raise Stop(
            f"There is no map to resume in {root}.",
            ExitCode.NO_INPUT,
            hint="Omit --resume and name the inputs; `hankweave ls` lists all maps.",
        )

    return directory, begun


def _require_usable(directory: MapDirectory) -> None:
    root = directory.root
    if directory.lock.exists() or not root.exists() or not any(root.iterdir()):
        return

    raise Stop(
        f"{root} is not empty and is not the directory of a map.",
        ExitCode.USAGE,
        hint="Name a new or empty directory with --directory.",
    )


def _settings(hank: Path | None, given: dict[str, Any], begun: MapBegun | None) -> MapSettings:
    """Return the settings of the command, above those of the one that it resumes. Raises Stop.

    The hank is checked once for all items.
    """
    given = given | (_given_before(begun, given) if begun is not None else {})
    file = Path(begun.hank) if hank is None and begun is not None else hank
    assert file is not None
    file = hank_loading.file_of(file).absolute()
    _check(file, given)
    return MapSettings(
        hank=file,
        hank_hash=inputs.hank_hash(file),
        options=dict(_options(given)),
        parallel=given["parallel"] or 0,
        max_cost=given["max_cost"],
        output=given["output"],
        memory=given["memory"],
        processes=given["processes"] or MOST_PROCESSES,
        placement=_placement(given),
        retry_failed=given["retry_failed"],
        fail_fast=given["fail_fast"],
    )


def _given_before(begun: MapBegun, given: dict[str, Any]) -> dict[str, Any]:
    """Return what the last command was given, and this one is not."""
    before: dict[str, Any] = {
        "parallel": begun.parallel,
        "max_cost": begun.max_cost,
        "output": None if begun.output is None else Path(begun.output),
        "memory": begun.memory,
        "processes": begun.processes,
        "executor": begun.placement.executor,
        "cpus": begun.placement.cpus,
        "resources": tuple(begun.placement.resources.items()),
        "storage": begun.placement.storage,
    }
    for name, option in _RUN_OPTIONS.items():
        if (value := begun.options.get(name)) is not None:
            before[option.name or ""] = Path(str(value)) if name == "--prices" else value

    return {name: value for name, value in before.items() if _is_omitted(given[name])}


def _is_omitted(value: object) -> bool:
    return value is None or value is False or value == ()


def _placement(given: dict[str, Any]) -> Placement:
    """Return where the items run. Raises UsageError for an option that local has no use for."""
    placement = Placement(
        executor=given["executor"] or "local",
        cpus=given["cpus"],
        resources=dict(given["resources"]),
        storage=given["storage"],
    )
    for name in ("cpus", "resources", "storage"):
        if placement.kind == "local" and getattr(placement, name) not in (None, {}):
            raise click.UsageError(f"--{name} requires --executor ray.")

    return placement


def _check(hank: Path, given: dict[str, Any]) -> None:
    loaded = hank_loading.read(hank, given["model"])
    requirements = requirements_of(loaded.hank, os.environ)
    if given["no_agent_check"]:
        hank_loading.refuse(requirements)
        return

    prices = load_prices(given["prices"], usual_place(os.environ.get("XDG_CONFIG_HOME")))
    agents = hank_loading.agents_of(loaded, given["agent"], given["model"], prices)
    codons = hank_loading.codons_to_run(loaded.hank, None)
    sentinels = hank_loading.sentinels_of(loaded, codons, prices)
    hank_loading.refuse(requirements, agents, sentinels)


def _options(given: dict[str, Any]) -> Iterable[tuple[str, str | int | float | bool]]:
    """Yield the options of `run` as they were given, for the command lines of the items."""
    for name, option in _RUN_OPTIONS.items():
        value = given[option.name or ""]
        if value is not None and value is not False:
            yield name, str(value.absolute()) if isinstance(value, Path) else value


def _inputs(given: dict[str, Any]) -> list[MapInput]:
    """Return the inputs that the command line names, each once. Raises Stop and OSError."""
    found = list(inputs.inputs_of(given["paths"]))
    for file in given["rows"]:
        found += inputs.rows_of(file, given["id_field"])

    return list({each.key: each for each in found}.values())


# --- the course -----------------------------------------------------------------------------------


def _display(directory: MapDirectory, as_json: bool, plain: bool) -> MapDisplay:
    if as_json:
        return JsonMapDisplay()

    greeting = f"Map in {one_line(str(directory.root))}"
    if plain or not can_be_drawn_on():
        return PlainMapDisplay(greeting)

    return LiveMapDisplay(SystemClock(), greeting)


def _run(
    journal: MapJournal, wanted: Sequence[WantedItem], settings: MapSettings, display: MapDisplay
) -> tuple[Supervisor, MapEnded]:
    _require_same_kind(journal, settings)
    limits = ItemLimits(settings.memory, settings.processes)
    with _executor(journal.directory, settings, limits) as executor:
        settings = replace(settings, parallel=settings.parallel or executor.slots)
        supervisor = Supervisor(journal, wanted, settings, executor, SystemClock(), display.report)
        try:
            return supervisor, anyio.run(_supervise, supervisor, display)
        except BaseExceptionGroup as group:
            raise first_stop(group) from group


@contextmanager
def _executor(
    directory: MapDirectory, settings: MapSettings, limits: ItemLimits
) -> Iterator[Executor]:
    if settings.placement.kind == "local":
        yield LocalPool(limits)
        return

    folder = directory.root / "ray"
    with ray_cluster(settings.placement, folder, limits.memory) as (cluster, storage):
        yield RemoteExecutor(cluster, storage, folder / "scratch", settings.hank_hash, limits)


def _require_same_kind(journal: MapJournal, settings: MapSettings) -> None:
    """Raise Stop if items still run, or may run, where this command would not look for them."""
    begun = journal.state.begun
    running = [item for item in journal.state.items.values() if item.status == "running"]
    if begun is None or not running or begun.placement.kind == settings.placement.kind:
        return

    raise Stop(
        f"{len(running)} items of the map still run with --executor {begun.placement.executor}.",
        ExitCode.USAGE,
        hint="Finish them first: `hankweave map --resume "
        f"-d {shlex.quote(str(journal.directory.root))} --executor {begun.placement.executor}`.",
    )


async def _supervise(supervisor: Supervisor, display: MapDisplay) -> MapEnded:
    with display.writing():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_handle_signals, supervisor, display)
            tasks.start_soon(display.follow, supervisor)
            ended = await supervisor.run()
            tasks.cancel_scope.cancel()

    return ended


async def _handle_signals(supervisor: Supervisor, display: MapDisplay) -> None:
    is_first = True
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            if number == signal.SIGINT and is_first:
                is_first = False
                supervisor.finish()
                display.notify(
                    "Nothing more is started; waiting for what runs. Ctrl-C stops it now."
                )
            else:
                display.notify("Stopping.")
                supervisor.stop()


def _print_end(
    ended: MapEnded, supervisor: Supervisor, folder: Path, directory: MapDirectory
) -> None:
    for text in summary_lines(ended, supervisor.items):
        click.echo(text)

    click.echo(f"Results: {one_line(str(folder / 'results.jsonl'))} and summary.csv")
    again = f"hankweave map --resume -d {shlex.quote(str(directory.root))}"
    match ended.outcome:
        case "budget":
            click.echo(f"The budget is used up. With a larger one: {again} --max-cost ...")
        case "interrupted":
            click.echo(f"Interrupted. To continue: {again}")
        case "failed" if ended.failed:
            click.echo(f"To run the failed items again: {again} --retry-failed")
        case "failed":
            click.echo(f"To run the rest: {again}")
        case "completed":
            pass


COMMANDS = (map_hank,)
