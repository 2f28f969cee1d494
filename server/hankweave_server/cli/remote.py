"""Commands that talk to a running server, built on `hankweave_client`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import click
import msgspec

from hankweave_client.client import Client, connect, connect_to
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_client.reconnect import Backoff
from hankweave_protocol import codec
from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import State
from hankweave_server.cli import hints
from hankweave_server.cli.output.amounts import size_text
from hankweave_server.cli.output.local_time import moment
from hankweave_server.cli.output.progress_bar import Tell, tell_nobody, waiting, watched
from hankweave_server.cli.output.run_lines import Story, call_text
from hankweave_server.cli.page_address import page_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.reading import whole_lines
from hankweave_server.local.ephemeral_server import through_server
from hankweave_server.local.targeting import require_execution, root_of
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line

__all__ = ["root_of"]

T = TypeVar("T")

_PATIENCE = Backoff(longest=2.0, attempts=8)
"""Some seven seconds: a connection that was cut off is opened again at the first or second try."""

execution_option = click.option(
    *("--execution", "-e", "--workspace", "-w", "execution"),
    type=click.Path(path_type=Path),
    help="Default: the one you are in, else the only one with a server, else the one used last.",
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
    root = root_of(execution)
    try:
        return at_server(root, work)
    except NotRunning:
        require_execution(root)
        raise Stop(
            f"No server runs on {root}.",
            ExitCode.UNAVAILABLE,
            hint=f"Start one with `hankweave run -e {shlex.quote(str(root))}`; "
            f"{hints.command('log', root)} tells the story so far without one.",
        ) from None
    except ConnectionRefusedError as error:
        raise unavailable(error) from None


def at_server(root: Path, work: Callable[[Client], Awaitable[T]], tell: Tell | None = None) -> T:
    """Do the work with a server; every end but one is a Stop. `tell` hears what it says of it.

    A connection that is cut off is opened anew, and commands without an answer are sent again under
    their ids: the server does each of them once. Raises NotRunning if there is no server, and
    ConnectionRefusedError if the lock file names one that does not listen.
    """

    is_watched = tell not in (None, tell_nobody)
    has_connected = False

    async def session() -> T:
        nonlocal has_connected
        async with connect_to(root, reconnect=_PATIENCE, progress=is_watched) as client:
            has_connected = True
            return await (work(client) if tell is None else watched(client, work, tell))

    try:
        return anyio.run(session)
    except (ConnectionError, TimeoutError) as error:
        if has_connected:
            raise _unanswered(error, root) from None

        if isinstance(error, NotRunning | ConnectionRefusedError):
            raise

        raise unavailable(error) from None
    except CommandRefused as refused:
        raise refusal(refused, root) from None


def refusal(refused: CommandRefused, root: Path | None = None) -> Stop:
    hint = hints.for_a_person(refused.hint, root)
    return Stop(f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=hint)


def _unanswered(error: Exception, root: Path) -> Stop:
    """The end of a command whose fate is not known: it was sent, and its server is gone."""
    return Stop(
        f"The server was lost before it answered: {error}",
        ExitCode.UNAVAILABLE,
        hint=f"The command may have been carried out; {hints.command('log', root)} tells.",
    )


def unavailable(error: Exception) -> Stop:
    return Stop(f"The server does not answer: {error}", ExitCode.UNAVAILABLE)


async def _status_and_state(client: Client) -> tuple[object, State]:
    return await client.send(GetServerStatus()), await client.state()


@click.command()
@execution_option
@json_option
def status(execution: Path | None, as_json: bool) -> None:
    """Tell what the server is doing.

    \b
    hankweave status
    hankweave status -e ~/runs/quakes --json
    """
    found, state = ask_running(execution, _status_and_state)
    if as_json:
        print_json(found)
        return

    _print_status(msgspec.convert(found, ServerStatus), state)


def _print_status(answer: ServerStatus, state: State) -> None:
    click.echo(one_line(answer.execution_path))
    if answer.lock.port is not None:
        click.echo(f"  page        {page_of(Path(answer.execution_path), answer.lock.port)}")

    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    for problem in answer.problems:
        since = moment(problem.since)
        click.echo(f"  degraded    {problem.message} ({problem.code}, since {since})")

    click.echo(f"  run         {answer.current_run_id or 'none'}")
    doing = answer.active_codon_id or ("rolling back" if answer.is_rolling_back else "idle")
    click.echo(f"  now         {doing}; next: {_following(answer, state) or 'nothing'}")
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

    heartbeat = moment(answer.lock.last_heartbeat)
    click.echo(f"  heartbeat   {heartbeat}, event {answer.last_event_seq}")


def _following(answer: ServerStatus, state: State) -> CodonId | None:
    """Return what comes after the codon that runs now, as far as the plan is known."""
    if answer.next_codon_id != answer.active_codon_id:
        return answer.next_codon_id

    plan = [entry.codon_id for entry in state.execution_plan]
    later = plan[plan.index(answer.next_codon_id) + 1 :] if answer.next_codon_id in plan else []
    return later[0] if later else None


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
        from hankweave_server.cli.output import log_graph  # Who reads lines draws nothing.

        log_graph.draw(root)
        return

    seq, story = 0, Story()

    def tell(event: Event) -> None:
        for line in story.lines(event):
            click.echo(line)

    for event in _journal(root):
        seq = event.seq
        tell(event)

    if follow:
        follow_from(root, seq, tell)


def _journal(root: Path) -> Iterator[Event]:
    """Reads the journal's file; a last line that is still being written is left out."""
    layout = Layout.of_execution(root)
    try:
        for number, line in enumerate(whole_lines(layout), start=1):
            yield _event(layout.journal, number, line)
    except FileNotFoundError:
        require_execution(root)
        return
    except JournalCorrupt as damage:
        raise Stop(str(damage), ExitCode.BAD_DATA) from None


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        return codec.decode_event(line)
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
        raise refusal(refused, root) from None
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error) from None


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(codec.encode(value)).decode())


COMMANDS = (status, log)
