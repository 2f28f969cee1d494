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
    """Give an agent tools for checkpoints, over the Model Context Protocol.

    It speaks on stdin and stdout, and asks the running server of the execution for everything. The
    server offers it to the agents that it starts; your own agent can be told to start it, too.

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
    from hankweave_server.cli.mcp.daemon import Daemon
    from hankweave_server.cli.mcp.server import serve

    serve(Daemon(root_of(execution), codon=os.environ.get("HANKWEAVE_CODON_ID")))


COMMANDS = (mcp,)
