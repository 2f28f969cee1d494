"""The tools that agents are offered: `hankweave mcp`, a server of tools that asks this one.

It runs as a child of the agent, in whatever directory and environment the agent gives it, so the
command line names everything: the interpreter, where our packages lie, and the execution. Nothing
secret is in it; the program reads the token's file itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from hankweave_protocol.hank import AgentTools
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import AgentToolsGranted
from hankweave_server.agents.base import McpServer
from hankweave_server.execution.context import Surroundings

NAME = "hankweave"

# What lies where the interpreter looks by itself stays behind the standard library.
_BOOTSTRAP = (
    "import sys; at = sys.argv.index('--'); "
    "sys.path[:0] = [root for root in sys.argv[1:at] if root not in sys.path]; "
    "del sys.argv[1:at + 1]; "
    "from hankweave_server.cli.app import main; main()"
)
_PACKAGES = ("hankweave_server", "hankweave_client", "hankweave_protocol", "mcp")


def granted(around: Surroundings) -> AgentToolsGranted:
    """Says what the hank lets agents have; without a hank what it has by default."""
    overrides = around.hank.hank.overrides
    tools = AgentTools() if overrides is None else overrides.agent_tools
    return AgentToolsGranted(enabled=tools.enabled, rollback_paths=tools.rollback_paths)


def offered(around: Surroundings, run_id: RunId, codon_id: CodonId) -> tuple[McpServer, ...]:
    """Gives the server of tools for a codon's agent; none where the hank has switched it off, or
    the extra `mcp` is not installed."""
    if not granted(around).enabled or find_spec("mcp") is None:
        return ()

    command = mcp_command(around.layout.root)
    environment = {"HANKWEAVE_RUN_ID": run_id, "HANKWEAVE_CODON_ID": codon_id}
    return (McpServer(NAME, command, environment),)


def mcp_command(execution: Path) -> tuple[str, ...]:
    """Gives the command line of `hankweave mcp` for an execution.

    The interpreter is isolated (no PYTHON… variable, nothing of the directory it starts in), so
    that no file of a work tree is taken for a module.
    """
    arguments = ("mcp", "--execution", str(execution))
    return (sys.executable, "-I", "-X", "utf8", "-c", _BOOTSTRAP, *_roots(), "--", *arguments)


def _roots() -> Iterable[str]:
    """The directories that our packages lie in: one if they are installed."""
    specs = (find_spec(package) for package in _PACKAGES)
    origins = (spec.origin for spec in specs if spec is not None and spec.origin is not None)
    return dict.fromkeys(str(Path(origin).parent.parent) for origin in origins)
