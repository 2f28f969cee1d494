"""`hankweave run` and `hankweave validate`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import click

from hankweave_protocol import codec
from hankweave_protocol.events import ServerReady
from hankweave_server.cli import executions
from hankweave_server.cli.progress import line_of
from hankweave_server.clock import SystemClock
from hankweave_server.daemon import Daemon
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hanks.load import load
from hankweave_server.layout import Layout
from hankweave_server.ledger.ledger import Published
from hankweave_server.settings import RunSettings

HANK_FILE = "hank.json"


@click.command()
@click.argument("hank", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option("--execution", "-e", type=click.Path(path_type=Path), help="Use this directory.")
@click.option("--port", "-p", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option("--headless", is_flag=True, help="End with the plan, with the run's exit code.")
@click.option("--no-autostart", is_flag=True, help="Wait for codon.next instead of starting.")
@click.option("--copy", is_flag=True, help="Copy the data instead of linking to it.")
@click.option("--new", "-n", is_flag=True, help="Never resume: make a new execution.")
@click.option("--agent", type=click.Choice(["claude", "scripted"]), help="Who does every codon.")
@click.option("--no-token", is_flag=True, help="Let every local program in, as a controller.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON line each.")
def run(
    hank: Path,
    data: Path | None,
    execution: Path | None,
    port: int,
    headless: bool,
    no_autostart: bool,
    copy: bool,
    new: bool,
    agent: str | None,
    no_token: bool,
    as_json: bool,
) -> None:
    """Serve HANK (a hank.json or its directory) on DATA.

    The same data is resumed where it was; the server keeps serving until it is stopped.

    \b
    hankweave run examples/earthquakes/hank.json examples/earthquakes/data
    hankweave run my.json data/ --headless && echo done
    """
    settings = RunSettings(
        hank=_hank_file(hank),
        data=data,
        execution=execution,
        executions_root=executions.executions_root(),
        port=port,
        headless=headless,
        autostart=not no_autostart,
        copy=copy,
        new=new,
        agent=agent,
        no_token=no_token,
        json_output=as_json,
    )
    sys.exit(serve(settings))


def _hank_file(path: Path) -> Path:
    file = path / HANK_FILE if path.is_dir() else path
    if not file.exists():
        raise Stop(
            f"There is no hank at {file}.",
            ExitCode.NO_INPUT,
            hint="Name a hank.json, or a directory that holds one.",
        )

    return file


def serve(settings: RunSettings) -> ExitCode:
    """Loads the hank, chooses the directory, and lives the server's life."""
    clock = SystemClock()
    loaded = load(settings.hank)
    chosen = executions.choose(settings, clock)
    tell_ready, tell_event = _voices(settings, chosen.layout)
    daemon = Daemon(settings, chosen, loaded, clock, tell_ready=tell_ready, tell_event=tell_event)
    try:
        return anyio.run(daemon.live)
    except BaseExceptionGroup as group:
        raise _first_stop(group) from group


Voices = tuple[Callable[[ServerReady], None], Callable[[Published], None]]


def _voices(settings: RunSettings, layout: Layout) -> Voices:
    """How the server speaks on stdout: events as JSON lines, or sentences for people."""
    if settings.json_output:
        return _ready_as_json, lambda published: _print(published.frame.decode())

    def ready(event: ServerReady) -> None:
        page = f"http://127.0.0.1:{event.port}/{_token_of(layout)}"
        _print(f"Hankweave serves {event.execution_path}")
        _print(f"  watch it: {page}   WebSocket: {event.url}")

    def told(published: Published) -> None:
        line = line_of(published.event)
        if line is not None:
            _print(line)

    return ready, told


def _ready_as_json(event: ServerReady) -> None:
    _print(codec.encode({"type": event.TYPE, "data": event}).decode())


def _token_of(layout: Layout) -> str:
    try:
        return f"?token={layout.controller_token.read_text().strip()}"
    except FileNotFoundError:
        return ""


def _print(line: str) -> None:
    click.echo(line)


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


@click.command()
@click.argument("hank", type=click.Path(path_type=Path))
def validate(hank: Path) -> None:
    """Check HANK and print all its errors at once; nothing is run or created."""
    loaded = load(_hank_file(hank))
    codons = len(loaded.hank.hank)
    click.echo(f"{hank} is a valid hank with {codons} entries.")
