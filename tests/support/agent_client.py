"""`hankweave mcp` as agents start it, driven by the official client of MCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from hankweave_server.execution.codon.environment import mcp_command
from support.waiting import LIMIT


class AgentClient:
    """A real process, with the calls that an agent can make."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must succeed; return the structured answer."""
        result = await self._called(tool, arguments)
        assert not result.is_error, text_of(result)
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail; return the text that the agent reads."""
        result = await self._called(tool, arguments)
        assert result.is_error, text_of(result)
        return text_of(result)

    async def _called(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result


@asynccontextmanager
async def agent_client(
    place: Path, codon: str | None = None, cwd: Path | None = None, **env: str
) -> AsyncIterator[AgentClient]:
    """Start it as a person's own agent does, or on an agent's socket; stop it at the block's end.

    `place` is an execution, or the socket of an agent that the daemon runs.
    """
    program, *arguments = mcp_command("--socket" if place.is_socket() else "--execution", place)
    if codon is not None:
        env["HANKWEAVE_CODON_ID"] = codon

    parameters = StdioServerParameters(command=program, args=arguments, env=env, cwd=cwd)
    async with Client(parameters, read_timeout_seconds=LIMIT) as client:
        yield AgentClient(client)


def text_of(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))
