"""The choice of the tool for an action, over the shapes that tools of real agents have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.models.offered import NoSuchTool, Tool, call_for
from support.models.turns import Act, Calls, Runs, Writes

WRITES = Writes(Path("/w/a.txt"), "one\ntwo\n")


def tool(name: str, *required: str, **properties: Any) -> Tool:
    shapes = {p: s if isinstance(s, dict) else {"type": s} for p, s in properties.items()}
    return Tool(name, {"type": "object", "properties": shapes, "required": list(required)})


CLAUDE = tool("Write", "file_path", "content", file_path="string", content="string")
OPENCODE = tool("write", "filePath", "content", filePath="string", content="string")
GEMINI = tool("write_file", "file_path", "content", file_path="STRING", content="STRING")
BASH = tool("Bash", "command", command="string", timeout="number", description="string")
CODEX = tool("exec_command", "cmd", cmd="string", yield_time_ms="integer", justification="string")
OLD_SHELL = tool("shell", "command", command={"type": "array", "items": {"type": "string"}})
NEEDY = tool(
    "run_shell_command",
    *("command", "why", "count", "is_sure", "tags", "more", "mode"),
    command="string",
    why="string",
    count="integer",
    is_sure="boolean",
    tags="array",
    more="object",
    mode={"type": ["string", "null"], "enum": ["a", "b"]},
)
PATCH = Tool("apply_patch", is_free_form=True)
MCP = tool("mcp__hankweave__checkpoint_create", "label", label="string")


@pytest.mark.parametrize(
    ("act", "offered", "name", "arguments"),
    [
        (WRITES, (BASH, CLAUDE), "Write", {"file_path": "/w/a.txt", "content": "one\ntwo\n"}),
        (WRITES, (OPENCODE,), "write", {"filePath": "/w/a.txt", "content": "one\ntwo\n"}),
        (WRITES, (GEMINI,), "write_file", {"file_path": "/w/a.txt", "content": "one\ntwo\n"}),
        (WRITES, (CODEX,), "exec_command", {"cmd": "printf %s 'one\ntwo\n' > /w/a.txt"}),
        (Runs("ls"), (CLAUDE, BASH), "Bash", {"command": "ls"}),
        (Runs("ls"), (OLD_SHELL,), "shell", {"command": ["bash", "-c", "ls"]}),
        (
            Runs("ls"),
            (NEEDY,),
            "run_shell_command",
            {
                "command": "ls",
                "why": "as the script says",
                "count": 1,
                "is_sure": False,
                "tags": [],
                "more": {},
                "mode": "a",
            },
        ),
        (Calls("checkpoint_create", {"label": "x"}), (MCP,), MCP.name, {"label": "x"}),
    ],
)
def test_an_act_finds_its_tool_and_fills_it(
    act: Act, offered: tuple[Tool, ...], name: str, arguments: dict[str, Any]
) -> None:
    """Tools are found by name in any spelling; optional arguments are not filled."""
    call = call_for(act, offered)
    assert (call.tool.name, call.arguments) == (name, arguments)


def test_a_free_form_tool_gets_a_patch() -> None:
    """A free-form tool has no arguments, but the text of a patch that adds a file."""
    call = call_for(WRITES, [CODEX, PATCH])
    assert call.text == "*** Begin Patch\n*** Add File: /w/a.txt\n+one\n+two\n*** End Patch\n"


def test_nothing_is_made_up_where_no_tool_fits() -> None:
    """If the agent offers neither the tool nor a shell, the choice fails."""
    with pytest.raises(NoSuchTool, match="no shell"):
        call_for(WRITES, [MCP])

    with pytest.raises(NoSuchTool, match="rollback_paths"):
        call_for(Calls("rollback_paths"), [MCP])
