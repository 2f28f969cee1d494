"""`hankweave open`: show the page of a server, or the list of all executions, in a browser.

The address has a token, and everybody on a machine can read command lines. So the browser is given
a private file that leads it to the address.
"""

from __future__ import annotations

import html
import os
import shlex
import sys
import webbrowser
from pathlib import Path

import click

from hankweave_server import fsutil
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.executions import executions_root
from hankweave_server.local.living import living_server
from hankweave_server.local.page_address import address_in_lock, page_of
from hankweave_server.local.register import all_executions
from hankweave_server.local.targeting import require_execution
from hankweave_server.paths import Layout

_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">'


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
    if every and execution is None and living_server(Layout.of_execution(root)) is None:
        root = next(filter(_is_served, all_executions(executions_root())), root)

    page = address_in_lock(root) if _is_served(root) else None
    if page is None:
        require_execution(root)
        start = shlex.quote(str(root))
        raise Stop(
            f"There is no page: no server runs for {root}.",
            ExitCode.UNAVAILABLE,
            hint=f"Start one with `hankweave run -e {start}`; `hankweave ls` lists executions.",
        )

    address = page_of(root, page)
    if every:
        address += "&view=executions" if "#" in address else "#view=executions"

    click.echo(address)
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        way = Layout.of_execution(root).way_to_page
        fsutil.replace(way, _PAGE.format(address=html.escape(address)).encode())
        webbrowser.open(way.absolute().as_uri())


def _is_served(root: Path) -> bool:
    return living_server(Layout.of_execution(root)) is not None


COMMANDS = (open_page,)
