"""References and requirements of a hank.

The `fault_of` functions check a reference by its text alone; each returns what is wrong with it, or
None. `references_in` finds the files that a hank names. `requirements_of` checks the variables and
programs that a hank requires of its machine (Hankweave, requirements).
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.hank import Hank
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server.paths import DATA_SOURCE, RIG_ARCHIVE

_DRIVE = re.compile(r"[A-Za-z]:")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_REFERENCE = 1000


def fault_of_relative(reference: str) -> str | None:
    """Check a path that must stay below its folder at every step."""
    if not reference.strip():
        return "The path is empty."

    if "\0" in reference:
        return "The path contains a NUL character."

    if "\\" in reference:
        return f"{reference!r} contains a backslash; use '/' instead."

    if reference.startswith("/") or _DRIVE.match(reference):
        return f"{reference!r} is absolute; use a relative path."

    depth = 0
    for step in reference.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(step, 1)
        if depth < 0:
            return f"{reference!r} leads outside its folder."

    return None


def fault_of_target(reference: str) -> str | None:
    """Check a path in the work tree that will be replaced or moved."""
    fault = fault_of_relative(reference)
    if fault is not None:
        return fault

    if ".." in reference.split("/"):
        return f"{reference!r} contains '..'; write the path without it."

    steps = [step for step in reference.split("/") if step not in ("", ".")]
    if not steps:
        return f"{reference!r} is the whole work tree."

    if steps[0] in (DATA_SOURCE, RIG_ARCHIVE):
        return f"{steps[0]!r} is a protected name."

    protected = next(filter(is_protected, steps), None)
    return None if protected is None else f"{protected!r} is a protected name."


def fault_of_pattern(pattern: str) -> str | None:
    """Check a pattern of tracked files; one that could never match is a fault."""
    if not pattern.strip():
        return "The pattern is empty."

    if "\0" in pattern or "\n" in pattern:
        return "The pattern contains a NUL or a line break."

    if pattern.startswith("#"):
        return f"{pattern!r} is a comment, as in a .gitignore; write '\\#' for a literal '#'."

    if ".." in pattern.removeprefix("!").split("/"):
        return f"{pattern!r} leads outside the work tree, where nothing is tracked."

    return None


def fault_of_variable(name: str) -> str | None:
    """Check the name of an environment variable."""
    if _VARIABLE.fullmatch(name):
        return None

    return f"{name!r} is not a valid environment variable name."


def fault_of_tool(name: str) -> str | None:
    """Check the name of a program that must be on the PATH."""
    if not name or name in (".", "..") or re.search(r"[\s/\\\0]", name):
        return f"{name!r} is not a plain program name."

    return None


def fault_of_outer_path(reference: str) -> tuple[str, str | None] | None:
    """Check a path outside of the work tree that a hank opens; return the fault and a hint."""
    if not reference.strip():
        return "The path is empty.", None

    if "\0" in reference:
        return "The path contains a NUL character.", None

    if "$" in reference or any(character in reference for character in "*?["):
        hint = "Name a folder, which includes everything below it; '~' is the home directory."
        return f"{reference!r} contains a variable or a pattern, which a path here cannot.", hint

    if reference.startswith("~") and reference.split("/")[0] != "~":
        return f"{reference!r} names another user's home directory.", "Write its absolute path."

    if not reference.strip("/"):
        return f"{reference!r} is everything.", "Use the profile 'none' instead."

    return None


def is_protected(name: str) -> bool:
    """Return whether a name belongs to git or the server, on any kind of file system."""
    plain = name.lower().rstrip(". ")
    return plain in (".git", "git~1") or plain.startswith(STATE_DIRECTORY)


PREFIX = "HANKWEAVE_"
_REMOVED = "unset"
"""As the value of HANKWEAVE_X, it removes X from the agents' environment."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One required variable or program."""

    kind: str
    """`env` or `tool`."""
    name: str
    is_met: bool

    @property
    def sentence(self) -> str:
        if self.kind == "env":
            return f"Neither {self.name} nor {PREFIX}{self.name} is set in the environment."

        return f"The program {self.name!r} is not on the PATH."


def requirements_of(
    hank: Hank,
    environment: Mapping[str, str],
    find_program: Callable[[str, str | None], str | None] = lambda name, path: shutil.which(
        name, path=path
    ),
) -> tuple[Requirement, ...]:
    """Return the hank's requirements, and whether each is met for the agents.

    HANKWEAVE_X satisfies X, because agents get it as X; a variable without a value does not.
    """
    if hank.requirements is None:
        return ()

    path = environment.get("PATH")
    variables = (
        Requirement("env", name, _has(environment, name)) for name in hank.requirements.env
    )
    tools = (
        Requirement("tool", name, find_program(name, path) is not None)
        for name in hank.requirements.tools
    )
    return (*variables, *tools)


def _has(environment: Mapping[str, str], name: str) -> bool:
    given = environment.get(PREFIX + name, environment.get(name, ""))
    return given not in ("", _REMOVED)


def references_in(hank: Path) -> Iterator[tuple[str, Path]]:
    """Yield what a hank.json names below its folder, each text once, and what it leads to.

    A file that it names, such as that of a sentinel, names others from its own folder. All are
    given as from the folder of the hank. Raises OSError.
    """
    folder = hank.absolute().parent.resolve()
    pending, seen = [("", hank.read_bytes())], set[str]()
    while pending:
        below, content = pending.pop()
        texts = _texts(_json_in(content))
        for reference in sorted(texts.union(posixpath.join(below, text) for text in texts) - seen):
            path = _referred(folder, reference)
            if path is None or path == folder / hank.name:
                continue

            seen.add(reference)
            yield reference, path
            if path.suffix == ".json" and path.is_file():
                pending.append((posixpath.dirname(reference), path.read_bytes()))


def _json_in(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _texts(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}

    if isinstance(value, dict):
        return set().union(*map(_texts, value.values()))

    return set().union(*map(_texts, value)) if isinstance(value, list) else set()


def _referred(folder: Path, reference: str) -> Path | None:
    """Return the file or folder below the hank's folder that a text names, if it does."""
    if len(reference) > _LONGEST_REFERENCE or not reference.strip("./"):
        return None

    try:
        path = (folder / reference).resolve()
        is_inside = path.is_relative_to(folder) and path != folder
        return path if is_inside and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # A text that no path can be.
        return None
