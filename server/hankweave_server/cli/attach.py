"""`hankweave attach`: watch a running server live, and control it with keys."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import anyio
import click

from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_server.cli.output.text import can_be_drawn_on
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.server_session import refusal, unavailable
from hankweave_server.local.targeting import listening_on, require_execution


@click.command()
@execution_option
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="Port of the server.")
@click.option("--readonly", is_flag=True, help="Only watch; change nothing.")
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
def attach(execution: Path | None, port: int | None, readonly: bool, plain: bool) -> None:
    """Watch a running server live, and control it with single keys.

    Leaving does not stop the server. Keys that destroy something ask for confirmation. After a lost
    connection or a restart of the server, the view reconnects and misses no event. With the viewer
    token, it is read-only. In a pipe, the log is printed as lines.

    \b
    Keys:
      n next codon   s skip codon   x stop codon by force   r run the newest again
      p choose a checkpoint, preview the rollback, roll back    u undo   U redo
      a allow or d deny a permission request    ? help    q quit

    \b
    hankweave attach
    hankweave attach -e ~/runs/quakes --readonly
    """
    root = root_of(execution) if port is None else listening_on(port)
    is_live = not plain and can_be_drawn_on() and sys.stdin.isatty()

    # Imported here so that `--help` and usage errors do not load rich.
    from hankweave_server.cli.live import session

    try:
        if is_live:
            sys.exit(anyio.run(session.watch, root, "readonly" if readonly else "readandwrite"))

        anyio.run(session.tell, root, click.echo)
    except NotRunning as error:
        require_execution(root)
        start = f"`hankweave run -e {shlex.quote(str(root))}`"
        hint = f"Start a server with {start}; `hankweave ls` shows the running ones."
        raise Stop(str(error), ExitCode.UNAVAILABLE, hint=hint) from None
    except CommandRefused as refused:
        raise refusal(refused) from None
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error, root) from None


COMMANDS = (attach,)
