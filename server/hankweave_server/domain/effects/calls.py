"""Find what a tool call may have done outside the work tree, from its name and its input."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from hankweave_server.domain.effects.commands import (
    address_of,
    is_outside,
    of_command,
    shortened,
)
from hankweave_server.domain.effects.tools import PATH_KEYS, ToolKind, kind_of

_ELSEWHERE = "mcp__"
_OUR_READERS = frozenset(
    f"mcp__hankweave__{name}"
    for name in ("checkpoint_list", "checkpoint_diff", "replay_view", "blame", "why")
)

_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.M)


def report_line(effect: str, actor: str, codon_id: str, seq: int) -> str:
    """Return a line for reports; the effect is empty if only the call is known."""
    may = f" may have {effect}" if effect else ""
    return f"{actor} of codon {codon_id}{may} (event {seq})"


def of_call(
    tool: str, given: Mapping[str, object], roots: tuple[str, ...], *, is_marked: bool = False
) -> tuple[str, ...]:
    """Return what a tool call may have done outside, each as it follows "may have".

    `roots` are the absolute paths of what counts as inside, the work tree first. `is_marked` means
    that the agent or an earlier version of the server has called it external.
    """
    if tool in _OUR_READERS:
        return ()

    kind = kind_of(tool)
    found = dict.fromkeys(_effects_of(kind, given, roots))
    is_known = kind not in (None, ToolKind.READS)
    is_declared = given.get("external") is True or (is_marked and not is_known)
    if not found and (tool.startswith(_ELSEWHERE) or is_declared):
        return ("",)

    return tuple(found)


def writes_only(tool: str) -> bool:
    """Return whether the tool writes files and does nothing else: if it fails, it did nothing."""
    return kind_of(tool) is ToolKind.WRITES


def runs_commands(tool: str) -> bool:
    """Return whether the tool can do anything at all, seen or not."""
    return kind_of(tool) is ToolKind.RUNS


def _effects_of(
    kind: ToolKind | None, given: Mapping[str, object], roots: tuple[str, ...]
) -> Iterator[str]:
    match kind:
        case ToolKind.WRITES:
            for path in _paths_in(given):
                if is_outside(path, roots[0], roots):
                    yield f"changed {shortened(path)}"
        case ToolKind.RUNS:
            yield from of_command(_command_in(given), roots)
        case ToolKind.FETCHES:
            yield f"sent a request to {address_of(_text(given, 'url', 'uri')) or 'the web'}"
        case ToolKind.SEARCHES:
            yield "sent a search to the web"
        case _:
            pass


def _paths_in(given: Mapping[str, object]) -> Iterator[str]:
    values: list[object] = [given.get(key) for key in PATH_KEYS]
    for key in ("file_paths", "changes"):
        several = given.get(key)
        values += several if isinstance(several, list) else ()

    for value in values:
        match value:
            case str():
                yield value
            case {"path": str() as path}:
                yield path

    patch = _text(given, "input", "patch", "patchText")
    yield from (one or other for one, other in _PATCHED.findall(patch))


def _command_in(given: Mapping[str, object]) -> str:
    match given.get("command", given.get("cmd", given.get("script"))):
        case str() as line:
            return line
        case list() as words if all(isinstance(word, str) for word in words):
            return shlex.join(words)
        case _:
            return ""


def _text(given: Mapping[str, object], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := given.get(key), str)), "")
