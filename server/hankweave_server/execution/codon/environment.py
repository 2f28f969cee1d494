"""The environment of a codon: the tool server for its agent, and the data for its commands.

Agents are offered `hankweave mcp`, an MCP server whose tools call this server. It runs as a child
of the agent, in whatever directory and environment the agent gives it, so the command line names
everything: the interpreter, the directories of our packages, and the agent's own socket. That
socket exists while the codon runs, and accepts only the commands that the hank's `agentTools`
allow. It needs no token, so there is none to steal: its folder is closed to other users.

Rigs, checks and output commands find the data of an execution through environment variables and the
link `read_only_data_source`, which is recreated if an agent has replaced it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.events import Info
from hankweave_protocol.hank import AgentTools, Codon
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import AgentToolsGranted
from hankweave_server.agents.base import NOTICES, AgentError, McpServer
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.fsutil import make_private_directory
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source

NAME = "hankweave"
_SOCKET = "agent.sock"

# The added directories come after the standard library, so that nothing in them can shadow it.
_BOOTSTRAP = (
    "import sys; at = sys.argv.index('--'); "
    "sys.path[:0] = [root for root in sys.argv[1:at] if root not in sys.path]; "
    "del sys.argv[1:at + 1]; "
    "from hankweave_server.cli.app import main; main()"
)
_PACKAGES = ("hankweave_server", "hankweave_client", "hankweave_protocol", "mcp")


def granted(ctx: ExecutionContext) -> AgentToolsGranted:
    """Return what the hank lets agents have; the defaults without a hank."""
    overrides = ctx.hank.hank.overrides
    tools = AgentTools() if overrides is None else overrides.agent_tools
    return AgentToolsGranted(enabled=tools.enabled, rollback_paths=tools.rollback_paths)


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The files that give one running agent access to the server."""

    folder: Path
    """A folder for sockets of the server and for notices."""
    socket: Path | None
    """The agent's own socket; None if the hank gives its agents no tools."""


@asynccontextmanager
async def agent_access(ctx: ExecutionContext, log_path: Path) -> AsyncIterator[AgentAccess]:
    """Create what an agent is given of the server; remove it when the block is left.

    Notices that were left for the agent are kept beside its log. Waits while the disk is full.
    Raises AgentError.
    """
    folder = ctx.layout.agent_access / secrets.token_hex(4)
    socket = folder / _SOCKET if granted(ctx).enabled else None
    async with AsyncExitStack() as stack:
        try:
            await ctx.ledger.space.retry(lambda: anyio.to_thread.run_sync(_recreate, folder))
            stack.push_async_callback(_discard, folder, log_path)
            if socket is not None:
                await stack.enter_async_context(ctx.open_agent_access(socket))
        except OSError as error:
            raise AgentError(
                f"The agent's socket {folder / _SOCKET} cannot be created: {error.strerror}.",
                hint="Make .hankweave writable, then start the codon again.",
            ) from error

        yield AgentAccess(folder, socket)


def _recreate(folder: Path) -> None:
    """Create the folder, and remove what a crash has left beside it."""
    shutil.rmtree(folder.parent, ignore_errors=True)
    make_private_directory(folder)


async def _discard(folder: Path, log_path: Path) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(_remove, folder, log_path)


def _remove(folder: Path, log_path: Path) -> None:
    notices = folder / NOTICES
    if notices.exists() and notices.stat().st_size:
        notices.replace(log_path.with_suffix(f".{NOTICES}"))

    shutil.rmtree(folder, ignore_errors=True)


def offered(
    ctx: ExecutionContext, run_id: RunId, codon_id: CodonId, socket: Path | None
) -> tuple[McpServer, ...]:
    """Return the tool server for a codon's agent, which talks to this server over `socket`.

    Empty if the hank has switched it off or the extra `mcp` is not installed.
    """
    if not granted(ctx).enabled or socket is None or find_spec("mcp") is None:
        return ()

    command = mcp_command("--socket", socket)
    environment = {"HANKWEAVE_RUN_ID": run_id, "HANKWEAVE_CODON_ID": codon_id}
    return (McpServer(NAME, command, environment),)


def mcp_command(option: Literal["--execution", "--socket"], path: Path) -> tuple[str, ...]:
    """Return the command line of `hankweave mcp` for an execution, or for an agent's own socket.

    The interpreter is isolated (no PYTHON… variable, nothing of the directory it starts in), so
    that no file of a work tree is taken for a module.
    """
    arguments = ("mcp", option, str(path))
    return (sys.executable, "-I", "-X", "utf8", "-c", _BOOTSTRAP, *_roots(), "--", *arguments)


def _roots() -> Iterable[str]:
    """Return the directories that contain our packages: one if they are installed."""
    specs = (find_spec(package) for package in _PACKAGES)
    origins = (spec.origin for spec in specs if spec is not None and spec.origin is not None)
    return dict.fromkeys(str(Path(origin).parent.parent) for origin in origins)


DATA_VARIABLE = "HANKWEAVE_DATA_DIR"


async def restore_data_link(ctx: ExecutionContext, run_id: RunId, codon_id: CodonId) -> None:
    """Make `read_only_data_source` in the work tree the data again; report what was in its place.

    Waits while the disk has no space for it. Raises AgentError if it cannot be made.
    """
    now_ms = instants.epoch_ms(ctx.clock.now())
    try:
        displaced = await ctx.ledger.space.retry(
            lambda: anyio.to_thread.run_sync(data_source.restore_link, ctx.layout, now_ms)
        )
    except OSError as error:
        raise AgentError(
            f"The link {ctx.layout.data_link} to the data cannot be created: {error.strerror}.",
            hint="Make the work tree writable, then start the codon again.",
        ) from error

    if displaced is not None:
        await ctx.ledger.post(Info(message=displaced.sentence), run_id=run_id, codon_id=codon_id)


def command_environment(layout: Layout, codon: Codon) -> dict[str, str]:
    """Return the variables of a codon's rig commands, checks and output commands."""
    if not os.path.lexists(layout.data_source):
        return dict(codon.env)

    return {DATA_VARIABLE: str(layout.data_path), **codon.env}


def data_location(layout: Layout) -> str | None:
    """Return how the data is reached if the work tree may hold no link to it; else None."""
    if not layout.is_in_place or not os.path.lexists(layout.data_source):
        return None

    return (
        f"The data is at {layout.data_path}: <%DATA_DIR%> in prompts, ${DATA_VARIABLE} for "
        "agents, rigs and checks. Nothing is added to the project, so paths under "
        "read_only_data_source/ do not work."
    )
