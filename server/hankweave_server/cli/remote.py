"""Commands that talk to a running server, built on `hankweave_client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import click
import msgspec

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_protocol import codec
from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_protocol.replies import ServerStatus
from hankweave_server.cli.amounts import size_text
from hankweave_server.cli.executions import newest_execution
from hankweave_server.cli.passing import through_server
from hankweave_server.cli.plain_text import one_line
from hankweave_server.cli.progress import call_text, line_of
from hankweave_server.cli.waiting import Tell, tell_nobody, waiting, watched
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.layout import Layout

T = TypeVar("T")

execution_option = click.option(
    *("--execution", "-e", "--workspace", "-w", "execution"),
    type=click.Path(path_type=Path),
    help="Default: the workspace one is in, else the newest execution.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def ask(
    execution: Path | None, work: Callable[[Client], Awaitable[T]], what: str | None = None
) -> T:
    """Does the work with the server of an execution, or with one for just as long.

    Every failure is a Stop, a refusal too. `what` says what a person waits for, if it takes long.
    """
    root = root_of(execution)
    if what is None:
        return through_server(root, lambda: at_server(root, work))

    with waiting(what) as tell:
        return through_server(root, lambda: at_server(root, work, tell))


def ask_running(execution: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """The same with a server that runs already, for what only such a one can tell."""
    try:
        return at_server(root_of(execution), work)
    except NotRunning as error:
        raise Stop(
            str(error),
            ExitCode.UNAVAILABLE,
            hint="Start it with `hankweave run`; `hankweave log` reads the files without a server.",
        ) from None
    except ConnectionRefusedError as error:
        raise unavailable(error) from None


def root_of(execution: Path | None) -> Path:
    return newest_execution() if execution is None else execution.expanduser().absolute()


def at_server(root: Path, work: Callable[[Client], Awaitable[T]], tell: Tell | None = None) -> T:
    """Does the work with a server; every end but one is a Stop. `tell` hears what it says of it.

    Where there is none it raises NotRunning, or ConnectionRefusedError for a lock that is a lie.
    """

    is_watched = tell not in (None, tell_nobody)

    async def session() -> T:
        address = discover(root)
        async with connect(
            address.url, token=address.token, reconnect=False, progress=is_watched
        ) as client:
            return await (work(client) if tell is None else watched(client, work, tell))

    try:
        return anyio.run(session)
    except (NotRunning, ConnectionRefusedError):
        raise
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error) from None
    except CommandRefused as refused:
        raise refusal(refused) from None


def refusal(refused: CommandRefused) -> Stop:
    return Stop(f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=refused.hint)


def unavailable(error: Exception) -> Stop:
    return Stop(f"The server does not answer: {error}", ExitCode.UNAVAILABLE)


@click.command()
@execution_option
@json_option
def status(execution: Path | None, as_json: bool) -> None:
    """Tell what the server is doing.

    \b
    hankweave status
    hankweave status -e ~/runs/quakes --json
    """
    found = ask_running(execution, lambda client: client.send(GetServerStatus()))
    if as_json:
        print_json(found)
        return

    answer = msgspec.convert(found, ServerStatus)
    doing = answer.active_codon_id or ("rolling back" if answer.is_rolling_back else "idle")
    click.echo(f"{answer.execution_path}")
    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    for problem in answer.problems:
        click.echo(f"  degraded    {problem.message} ({problem.code}, since {problem.since})")

    click.echo(f"  run         {answer.current_run_id or 'none'}")
    click.echo(f"  now         {doing}; next: {answer.next_codon_id or 'nothing'}")
    packed = f"{answer.store_packs} packs, {answer.store_loose_objects} loose objects"
    click.echo(f"  checkpoints {answer.checkpoints}")
    click.echo(f"  store       {size_text(answer.store_bytes)} on disk: {packed}")
    click.echo(f"  cost        ${answer.total_cost:.4f}")
    if answer.data_path is not None:
        click.echo(f"  data        {answer.data_path}")

    click.echo(f"  agents      held by {answer.containment}")
    for asked in answer.pending_permissions:
        what = call_text(asked.tool_name, asked.tool_input)
        click.echo(one_line(f"  asks        {asked.request_id}  {asked.codon_id}  {what}"))

    click.echo(f"  heartbeat   {answer.lock.last_heartbeat}, event {answer.last_event_seq}")


@click.command()
@execution_option
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens now.")
@click.option("--graph", is_flag=True, help="Draw the tree of runs and checkpoints instead.")
def log(execution: Path | None, follow: bool, graph: bool) -> None:
    """Tell the story so far, one line for each thing that matters.

    With --graph: every checkpoint, newest first, with a mark for its kind; which run went on from
    which, what a rollback left behind, where other executions branched off, and where now is.

    \b
    hankweave log --follow
    hankweave log --graph
    """
    if follow and graph:
        raise click.UsageError("--follow and --graph exclude each other.")

    root = root_of(execution)
    if graph:
        from hankweave_server.cli import graph_picture  # Who reads lines draws nothing.

        graph_picture.draw(root)
        return

    seq = 0

    def tell(event: Event) -> None:
        text = line_of(event)
        if text is not None:
            click.echo(text)

    for event in _journal(root):
        seq = event.seq
        tell(event)

    if follow:
        follow_from(root, seq, tell)


def _journal(root: Path) -> Iterator[Event]:
    """Reads the journal's file; a last line that is still being written is left out."""
    path = Layout.of_execution(root).journal
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise Stop(f"There is no execution in {root}.", ExitCode.NO_INPUT) from None

    for number, line in enumerate(lines, start=1):
        try:
            yield codec.decode_event(line)
        except Refused as fault:
            raise Stop(
                f"{path}, line {number}, is no event: {fault.message}",
                ExitCode.BAD_DATA,
                hint="Start the server on this execution: it repairs or names what is damaged.",
            ) from None


def follow_from(root: Path, seq: int, tell: Callable[[Event], None]) -> None:
    """Tells of every event after a seq, as they happen, until the server ends."""

    async def session() -> None:
        address = discover(root)
        async with connect(address.url, token=address.token, since_seq=seq) as client:
            async for event in client.events():
                tell(event)

    try:
        anyio.run(session)
    except CommandRefused as refused:
        raise refusal(refused) from None
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error) from None


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(codec.encode(value)).decode())


COMMANDS = (status, log)
