"""`hankweave mcp`: serve tools for agents on stdin and stdout."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import click

from hankweave_server.cli.remote import execution_option, root_of
from hankweave_server.errors import ExitCode, Stop


@click.command()
@execution_option
def mcp(execution: Path | None) -> None:
    """Serve checkpoint tools to an agent over MCP.

    The command speaks the Model Context Protocol on stdin and stdout, and passes every call to the
    running server of the execution. The server offers the tools to the agents that it starts; you
    can also configure your own agent to start this command.

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
    from hankweave_server.cli.mcp.daemon import DaemonProxy
    from hankweave_server.cli.mcp.server import serve

    serve(DaemonProxy(root_of(execution), codon=os.environ.get("HANKWEAVE_CODON_ID")))


COMMANDS = (mcp,)
