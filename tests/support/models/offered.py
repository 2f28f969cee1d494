"""Choose the tool that an agent offers for an action, and its arguments.

No agent is named here: tools are identified by their names, and arguments by the names in the
tool's own schema.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from support.models.turns import Act, Calls, Edits, Reads, Runs, Writes

Schema = Mapping[str, Any]

WRITERS = ("write", "write_file", "create_file", "writefile")
READERS = ("read", "read_file")
EDITORS = ("edit", "edit_file", "replace", "str_replace")
PATCHERS = ("apply_patch",)
SHELLS = (
    "bash",
    "shell",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "local_shell",
    "execute",
)

SCRIPTS = ("exec",)
"""Tools that run JavaScript, from which all others are called (Codex with newer models)."""

_PATHS = ("file_path", "filepath", "path", "absolute_path", "filename", "file")
_OLD = ("old_string", "oldstring")
_NEW = ("new_string", "newstring")
_CONTENTS = ("content", "contents", "text", "file_text")
_COMMANDS = ("command", "cmd")
_PATCHES = ("input", "patch", "patch_text", "patchtext")
_UNFILLED: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": []}


@dataclass(frozen=True)
class Tool:
    """One tool of a request."""

    name: str
    schema: Schema = field(default_factory=dict)
    is_free_form: bool = False
    """True if it takes one text instead of arguments."""


@dataclass(frozen=True)
class Call:
    """A call by the model: `arguments`, or for a free-form tool its one text."""

    tool: Tool
    arguments: Mapping[str, Any]
    text: str = ""


class NoSuchTool(Exception):
    """The agent offers no tool for the action."""


def call_for(act: Act, tools: Iterable[Tool], shown: str = "") -> Call:
    """Choose a tool and fill its arguments; raise NoSuchTool.

    `shown`: all text of the conversation.
    """
    offered = list(tools)
    match act:
        case Writes(path=path, content=content):
            if tool := _named(offered, WRITERS):
                return Call(tool, _filled(tool, {_PATHS: str(path), _CONTENTS: content}))

            if tool := _named(offered, PATCHERS):
                text = _patch(str(path), content)
                return Call(tool, _filled(tool, {_PATCHES: text}), text)

            return _shell(offered, f"printf %s {shlex.quote(content)} > {shlex.quote(str(path))}")
        case Reads(path=path):
            if tool := _named(offered, READERS):
                return Call(tool, _filled(tool, {_PATHS: str(path)}))

            return _shell(offered, f"cat {shlex.quote(str(path))}")
        case Edits(path=path, old=old, new=new):
            if tool := _named(offered, EDITORS):
                return Call(tool, _filled(tool, {_PATHS: str(path), _OLD: old, _NEW: new}))

            if tool := _named(offered, PATCHERS):
                text = _update(str(path), old, new)
                return Call(tool, _filled(tool, {_PATCHES: text}), text)

            return _shell(offered, f"sed -i s/{old}/{new}/ {shlex.quote(str(path))}")
        case Runs(command=command):
            return _shell(offered, command)
        case Calls(tool=name, arguments=arguments):
            tool = next((tool for tool in offered if _ends_with(tool.name, name)), None)
            if tool is None:
                raise NoSuchTool(f"{name} is not among {[tool.name for tool in offered]}")

            given = arguments(shown) if callable(arguments) else arguments
            return Call(tool, {**_filled(tool, {}), **given})
        case _:
            assert_never(act)


def _shell(tools: list[Tool], command: str) -> Call:
    if tool := _named(tools, SHELLS):
        return Call(tool, _filled(tool, {_COMMANDS: command}))

    if tool := _named(tools, SCRIPTS):
        asked = json.dumps({"cmd": command})
        return Call(tool, {}, f"text((await tools.exec_command({asked})).output)")

    raise NoSuchTool(f"there is no shell among {[tool.name for tool in tools]}")


def _named(tools: list[Tool], names: tuple[str, ...]) -> Tool | None:
    by_name = {tool.name.lower(): tool for tool in tools}
    return next((by_name[name] for name in names if name in by_name), None)


def _ends_with(offered: str, name: str) -> bool:
    return offered == name or offered.endswith(("__" + name, "_" + name, "." + name))


def _filled(tool: Tool, values: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Fill every property that means one of `values`, and each other required one."""
    properties: Mapping[str, Schema] = tool.schema.get("properties", {})
    required = tool.schema.get("required", ())
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        meant = next((v for names, v in values.items() if name.lower() in names), None)
        if meant is not None:
            filled[name] = ["bash", "-c", meant] if _is(schema, "array") else meant
        elif name in required:
            filled[name] = _anything(schema)

    return filled


def _anything(schema: Schema) -> Any:
    if choices := schema.get("enum"):
        return choices[0]

    if _is(schema, "object"):
        return {}

    return next((v for kind, v in _UNFILLED.items() if _is(schema, kind)), "as the script says")


def _is(schema: Schema, kind: str) -> bool:
    """Compare types: Gemini writes them in capitals, and JSON Schema allows a list of them."""
    declared = schema.get("type", "")
    kinds: list[str] = declared if isinstance(declared, list) else [declared]
    lower: Callable[[str], str] = str.lower
    return kind in map(lower, kinds)


def _patch(path: str, content: str) -> str:
    lines = "".join(f"+{line}\n" for line in content.splitlines())
    return f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"


def _update(path: str, old: str, new: str) -> str:
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"
