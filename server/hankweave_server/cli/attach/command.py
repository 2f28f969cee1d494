"""`hankweave attach` and `hankweave open`: watch a running server in the terminal, or in a browser.

The address of the page has a token, and everybody on a machine can read command lines. So the
browser is given a private file that leads it to the address.
"""

from __future__ import annotations

import html
import os
import sys
import webbrowser
from pathlib import Path

import anyio
import click

from hankweave_client.errors import CommandRefused, NotRunning
from hankweave_server import fsutil
from hankweave_server.cli.output.text import can_be_drawn_on
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.executions import executions_root
from hankweave_server.local.living import is_served
from hankweave_server.local.page_address import address_in_lock, page_of
from hankweave_server.local.register import all_executions
from hankweave_server.local.server_session import refusal, unavailable
from hankweave_server.local.targeting import listening_on, require_execution, start_line
from hankweave_server.paths import Layout

_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">'


@click.command()
@execution_option
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="Port of the server.")
@click.option("--readonly", is_flag=True, help="Only watch; change nothing.")
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
def attach(execution: Path | None, port: int | None, readonly: bool, plain: bool) -> None:
    """Watch a running server live, and control it with single keys.

    The screen has the steps, and what the selected one says, does and changes. Leaving it does not
    stop the server. Keys that destroy something ask first. After a lost connection or a restart of
    the server, it reconnects and misses no event. With the viewer token, it is read-only. In a
    pipe, and with --plain, the log is printed as lines.

    \b
    Keys:
      z back to before the step   p checkpoints   u undo   U redo   c changes
      a allow, A always allow or d deny a permission request        / search
      n next step   s skip   x stop   r retry     ? all keys        q leave

    \b
    hankweave attach
    hankweave attach -e ~/runs/quakes --readonly
    """
    root = root_of(execution) if port is None else listening_on(port)
    is_live = not plain and can_be_drawn_on() and sys.stdin.isatty() and sys.stderr.isatty()

    try:
        # Imported here so that `--help` does not load them, and a pipe does not load Textual.
        if is_live:
            from hankweave_server.cli.attach.screen import watch

            sys.exit(anyio.run(watch, root, "readonly" if readonly else "readandwrite"))

        from hankweave_server.cli.attach.session import print_log

        anyio.run(print_log, root, click.echo)
    except NotRunning as error:
        require_execution(root)
        hint = f"Start a server with `{start_line(root)}`; `hankweave ls` shows the running ones."
        raise Stop(str(error), ExitCode.UNAVAILABLE, hint=hint) from None
    except CommandRefused as refused:
        raise refusal(refused) from None
    except (ConnectionError, TimeoutError) as error:
        raise unavailable(error, root) from None


@click.command(name="open")
@execution_option
@click.option("--all", "every", is_flag=True, help="Show the list of all executions.")
def open_page(execution: Path | None, every: bool) -> None:
    """Show the page of a running server in a browser, and print its address.

    Without a display, the address is only printed. --all shows all executions, those first that
    need a person; any running server has that list.

    \b
    hankweave open
    hankweave open --all
    """
    root = root_of(execution)
    if every and execution is None and not is_served(root):
        root = next(filter(is_served, all_executions(executions_root())), root)

    page = address_in_lock(root) if is_served(root) else None
    if page is None:
        require_execution(root)
        raise Stop(
            f"There is no page: no server runs for {root}.",
            ExitCode.UNAVAILABLE,
            hint=f"Start one with `{start_line(root)}`; `hankweave ls` lists executions.",
        )

    address = page_of(root, page)
    if every:
        address += "&view=executions" if "#" in address else "#view=executions"

    click.echo(address)
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        way = Layout.of_execution(root).way_to_page
        fsutil.replace(way, _PAGE.format(address=html.escape(address)).encode())
        webbrowser.open(way.absolute().as_uri())


COMMANDS = (attach, open_page)
