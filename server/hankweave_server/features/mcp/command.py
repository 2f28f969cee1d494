"""`hankweave mcp`: serve tools for agents on stdin and stdout."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from hankweave_server.agents.process.environment import AGENT_SOCKET
from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.errors import ExitCode, Stop


@click.command()
@execution_option
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="Socket of an agent that the server runs. Default in an agent: its own.",
)
def mcp(execution: Path | None, socket: Path | None) -> None:
    """Serve checkpoint tools to an agent over MCP.

    The command speaks the Model Context Protocol on stdin and stdout, and passes every call to the
    running server of the execution. The server offers the tools to the agents that it starts, each
    over a socket of its own; you can also configure your own agent to start this command.

    \b
    hankweave mcp --workspace ~/my-project
    """
    if find_spec("mcp") is None:
        raise Stop(
            "The tools for agents need the package mcp, which is not installed.",
            ExitCode.UNAVAILABLE,
            hint="pip install 'hankweave[mcp]'",
        )

    # Imported here because the SDK takes most of a second to load.
    from hankweave_client.client import connect_agent, connect_to
    from hankweave_server.features.mcp.daemon import DaemonProxy
    from hankweave_server.features.mcp.server import serve

    own = os.environ.get(AGENT_SOCKET)
    if socket is None and execution is None and own:
        socket = Path(own)

    codon = os.environ.get("HANKWEAVE_CODON_ID")
    if socket is not None:
        serve(DaemonProxy(partial(connect_agent, socket), codon=codon))
    else:
        serve(DaemonProxy(partial(connect_to, root_of(execution)), codon=codon))


COMMANDS = (mcp,)
