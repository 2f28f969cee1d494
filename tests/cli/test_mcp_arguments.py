"""The arguments of the tools of `hankweave mcp`: what is refused, and what is documented."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError

from hankweave_client.errors import NotRunning
from hankweave_server.features.mcp.daemon import DaemonProxy
from hankweave_server.features.mcp.server import Tools, ToolServer

pytestmark = pytest.mark.feature("mcp")

WIRE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "wire.md"


def server() -> ToolServer:
    """Return a server of tools whose calls reach nothing."""

    @asynccontextmanager
    async def connect(**_: Any) -> AsyncIterator[Any]:
        raise NotRunning("No server runs.")
        yield

    return ToolServer(DaemonProxy(connect, codon="one"))


async def refused(name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as raised:
        await server().call_tool(name, arguments)

    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("checkpoint_create", {"lable": "x"}, "no argument 'lable'; did you mean 'label'?"),
        ("checkpoint_create", {"message": "x"}, "no argument 'message'."),
        ("checkpoint_create", {"label": "x" * 301}, "label: string should have at most 300"),
        ("rollback_paths", {"sha": "abcd", "paths": ["a"]}, "reason is missing."),
        ("rollback_paths", {"sha": "abcd", "paths": [""], "reason": "r"}, "paths[0]: string"),
        ("checkpoint_diff", {"from_sha": "no"}, "from_sha: string should match pattern"),
        ("checkpoint_list", {"kinds": ["manul"]}, "kinds[0]: input should be"),
        ("replay_view", {}, "Pass either sha or seq."),
    ],
)
async def test_arguments_that_no_tool_takes_are_refused(
    name: str, arguments: Mapping[str, Any], expected: str
) -> None:
    """With a code, a place and the names that exist, and before anything is done."""
    text = await refused(name, **arguments)
    assert "INVALID_ARGUMENTS: " in text
    assert expected in text
    assert "pydantic" not in text
    if arguments:
        assert f"the arguments of {name} are: " in text


async def test_an_unknown_tool_has_a_code_and_the_nearest_name() -> None:
    text = await refused("checkpoint_crate")
    assert text == (
        "NO_SUCH_TOOL: There is no tool 'checkpoint_crate'; did you mean 'checkpoint_create'?"
    )


async def test_a_valid_call_reaches_the_server() -> None:
    assert "NOT_RUNNING: " in await refused("checkpoint_create", label="x")


async def test_a_fault_of_ours_has_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of the exception stays in the log."""

    async def checkpoint_create(_: Tools) -> None:
        raise KeyError("a detail")

    monkeypatch.setattr(Tools, "checkpoint_create", checkpoint_create)
    with pytest.raises(UnexpectedToolError, match="INTERNAL_ERROR: ") as raised:
        await server().call_tool("checkpoint_create", {})

    assert "a detail" not in str(raised.value)


def documented(schema: Mapping[str, Any]) -> str:
    """Return the cell of the documentation for the arguments of a tool."""
    required = schema.get("required", ())
    return ", ".join(
        f"`{name}`{_bounds(field)}{' (required)' if name in required else _default(field)}"
        for name, field in schema["properties"].items()
    )


def _bounds(field: Mapping[str, Any]) -> str:
    form = next((each for each in field.get("anyOf", ()) if each["type"] != "null"), {}) | field
    least = form.get("minimum", form.get("minItems", form.get("minLength")))
    most = form.get("maximum", form.get("maxItems", form.get("maxLength")))
    if most is None:
        return ""

    return f" ≤ {most}" if least is None else f" {least}-{most}"


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    return "" if default in (None, "") else f" ({str(default).lower()})"


def test_the_documented_arguments_are_those_of_the_tools() -> None:
    """The table of docs/reference/wire.md says which are required, their bounds and defaults."""
    listed = {tool.name: tool for tool in anyio.run(super(ToolServer, server()).list_tools)}
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in WIRE.read_text().splitlines()
    ]
    found = {row[0].strip("`"): row[1] for row in rows if row[0].strip("`") in listed}
    assert found == {name: documented(tool.input_schema) for name, tool in listed.items()}


async def test_the_schemas_allow_no_other_arguments() -> None:
    for tool in await server().list_tools():
        assert tool.input_schema["additionalProperties"] is False
