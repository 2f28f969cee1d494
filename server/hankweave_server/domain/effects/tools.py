"""The tools of agents: what each does, by its name, and where its input names files.

Adapters translate the tools of most agents into Claude Code's, by which permissions and authorship
decide. Reports also know the names that others use, of which it is not certain that they do nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class ToolKind(Enum):
    """The kind of work that a tool does."""

    READS = auto()
    WRITES = auto()
    """It changes the files that its input names, and no other."""
    RUNS = auto()
    """It runs commands, so it can do anything."""
    FETCHES = auto()
    SEARCHES = auto()
    """It searches the web."""


_OF_CLAUDE: Mapping[str, ToolKind] = {
    **dict.fromkeys(("Read", "Glob", "Grep", "LS", "TodoWrite"), ToolKind.READS),
    **dict.fromkeys(("Edit", "MultiEdit", "NotebookEdit", "Write"), ToolKind.WRITES),
    "Bash": ToolKind.RUNS,
    "WebFetch": ToolKind.FETCHES,
    "WebSearch": ToolKind.SEARCHES,
}
_OF_OTHERS: Mapping[str, ToolKind] = {
    **dict.fromkeys(("delete", "move", "create", "apply_patch", "applypatch"), ToolKind.WRITES),
    **dict.fromkeys(("patch", "replace", "write_file", "write_text_file"), ToolKind.WRITES),
    **dict.fromkeys(("shell", "execute", "exec", "exec_command", "local_shell"), ToolKind.RUNS),
    **dict.fromkeys(("terminal", "run_shell_command", "powershell"), ToolKind.RUNS),
    **dict.fromkeys(("web_fetch", "fetch"), ToolKind.FETCHES),
    **dict.fromkeys(("web_search", "google_web_search"), ToolKind.SEARCHES),
}
"""Names in lower case: Codex's, and those of agents that speak ACP."""

_BY_LOWER_CASE = {name.lower(): kind for name, kind in _OF_CLAUDE.items()} | dict(_OF_OTHERS)

FILE_TOOLS = frozenset(name for name, kind in _OF_CLAUDE.items() if kind is ToolKind.WRITES)
"""Tools that change the files that their input names, and no other."""

RISKY_TOOLS = FILE_TOOLS | {"Bash"}
"""Only this server may allow these and tools of MCP servers; an agent's own settings may not."""

READ_ONLY_TOOLS = frozenset(_OF_CLAUDE) - RISKY_TOOLS
"""Tools that cannot change a file; after any other the work tree is scanned."""

PATH_KEYS = ("file_path", "notebook_path", "path", "filePath", "abs_path")
"""The keys of a call's input that hold the path of a file."""


def kind_of(tool: str) -> ToolKind | None:
    """Return what a tool of any agent does, as far as its name tells."""
    return _BY_LOWER_CASE.get(tool.lower())
