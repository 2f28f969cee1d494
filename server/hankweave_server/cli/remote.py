"""Commands that talk to a running server, built on `hankweave_client`.

Hints of the server as a person at a shell can use them.

A refusal's hint speaks to programs, in the words of the wire: "send codon.forceStop". Here the same
hint names the command to paste: "run `hankweave stop`". What has no wire name in it stays as it is.

Where a server's page is.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from hankweave_client.client import Client
from hankweave_client.errors import NotRunning
from hankweave_protocol import codec
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.ephemeral_server import through_server
from hankweave_server.local.server_session import at_server, command, unavailable
from hankweave_server.local.targeting import require_execution, root_of
from hankweave_server.paths import Layout
from hankweave_server.settings import LOOPBACK


def page_of(root: Path, port: int) -> str:
    """Return the address of a server's page, with the best token that this user may read."""
    layout = Layout.of_execution(root)
    token = token_in(layout.controller_token) or token_in(layout.viewer_token)
    return f"http://{LOOPBACK}:{port}/{token}"


def token_in(path: Path) -> str:
    """Return the part of an address that holds a token; empty if there is none to be read.

    It stands behind `#`: a browser sends that to nobody.
    """
    try:
        return f"#token={path.read_text().strip()}"
    except (FileNotFoundError, PermissionError):
        return ""


__all__ = ["root_of"]

T = TypeVar("T")


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
            f"{command('log', root)} tells the story so far without one.",
        ) from None
    except ConnectionRefusedError as error:
        raise unavailable(error) from None


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(codec.encode(value)).decode())
