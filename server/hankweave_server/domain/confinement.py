"""The confinement of the agent and the commands of a codon, and the refusals that it causes.

A refused path is recognised from the text of the error that the agent or one of its tools prints:
the kernel reports no refusals to unprivileged processes. So `refusals_in` finds error messages that
name an absolute path. The caller keeps those that the fence can explain, and `setting_for` says
which line of the hank would allow the path.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from hankweave_protocol.hank import Codon, Confinement, ConfinementProfile, Overrides

Operation = Literal["read", "write"]


def confinement_of(
    codon: Codon,
    overrides: Overrides | None,
    *,
    chosen: ConfinementProfile | None = None,
    default: ConfinementProfile = "workspace",
) -> Confinement:
    """Return the confinement of a codon: its own, as a whole, else the hank's, else the default.

    `chosen` is the profile of the command line, which replaces that of the hank; paths and ports
    of the hank stay.
    """
    written = _written(codon, overrides)
    if written is None:
        return Confinement(profile=chosen or default)

    found = Confinement(profile=written) if isinstance(written, str) else written
    return found if chosen is None else msgspec.structs.replace(found, profile=chosen)


def _written(codon: Codon, overrides: Overrides | None) -> ConfinementProfile | Confinement | None:
    if codon.confinement is not None or overrides is None:
        return codon.confinement

    return overrides.confinement


def outer_path(reference: str, *, home: str, hank_directory: str) -> str:
    """Return the absolute path that a hank's `extraRead` or `extraWrite` means."""
    if reference == "~" or reference.startswith("~/"):
        reference = home + reference[1:]

    return posixpath.normpath(posixpath.join(hank_directory, reference))


def setting_for(path: str, operation: Operation, codon: Codon, overrides: Overrides | None) -> str:
    """Return the complete line of the hank that allows a path besides what it allows now."""
    is_own = codon.confinement is not None
    now = confinement_of(codon, overrides)
    if now.profile == "readonly" and operation == "write":
        allowing = msgspec.structs.replace(now, profile="workspace", extra_write=(path,))
    elif operation == "write":
        allowing = msgspec.structs.replace(now, extra_write=(*now.extra_write, path))
    else:
        allowing = msgspec.structs.replace(now, extra_read=(*now.extra_read, path))

    line = f'"confinement": {_as_json(allowing)}'
    return f"{line} in codon {codon.id}" if is_own else f'"overrides": {{{line}}}'


def _as_json(confinement: Confinement) -> str:
    fields = {
        "profile": None if confinement.profile == "workspace" else confinement.profile,
        "extraRead": confinement.extra_read or None,
        "extraWrite": confinement.extra_write or None,
        "connect": confinement.connect,
    }
    shown = {name: value for name, value in fields.items() if value is not None}
    pairs = (f'"{name}": {msgspec.json.encode(value).decode()}' for name, value in shown.items())
    return f"{{{', '.join(pairs)}}}"


# --- refusals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error message that names a path."""

    path: str
    operation: Operation | None
    """None if the message does not say what was refused."""
    is_missing: bool = False
    """True if the message says that the path does not exist, as hidden paths seem to do."""


_LONGEST_LINE = 2000
_MOST_LINES = 400
"""Lines at each end of a text that are searched: an error is rarely in the middle of megabytes."""

_REFUSED = re.compile(
    r"permission denied|read-only file system|operation not permitted|\b(?:EACCES|EROFS|EPERM)\b",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"no such file or directory|directory nonexistent|\bENOENT\b"
    r"|cannot connect to the docker daemon",
    re.IGNORECASE,
)

_WRITES = re.compile(
    r"read-only file system|\bEROFS\b|directory nonexistent"
    r"|\b(?:create|creating|touch|mkdir|make directory|remove|removing|unlink|rename|move|write"
    r"|writing|overwrite|chmod|chown|utime|rmdir|symlink|link|lock|open for writing"
    r"|permissions of|mode of|times of)\b",
    re.IGNORECASE,
)
_READS = re.compile(r"\b(?:scandir|open directory|reading|read|lstat|stat|exec|execute)\b", re.I)
_PATH = re.compile(
    r"""(?:'(/[^'\n]{1,1000})'|"(/[^"\n]{1,1000})"|‘(/[^’\n]{1,1000})’|`(/[^`\n]{1,1000})`"""
    r"""|(?:^|(?<=[\s:=(,\[]))(?:unix://)?(/[^\s:'"`,;()<>|\]]{1,1000}))"""
)


def refusals_in(text: str) -> Iterator[Refusal]:
    """Yield each refused path that a text reports, in its order; a path may be named twice."""
    lines = text.splitlines()
    if len(lines) > 2 * _MOST_LINES:
        lines = lines[:_MOST_LINES] + lines[-_MOST_LINES:]

    for line in lines:
        line = line[:_LONGEST_LINE]
        is_refused = _REFUSED.search(line) is not None
        if not is_refused and not _MISSING.search(line):
            continue

        if path := _path_in(line):
            yield Refusal(posixpath.normpath(path), _operation(line), is_missing=not is_refused)


def _path_in(line: str) -> str | None:
    """Return the path that a message is about: the last one in quotes, or else the last one.

    The first one is often the program that prints the message.
    """
    found = list(_PATH.finditer(line))
    quoted = [path for match in found for path in match.groups()[:-1] if path]
    bare = [match.groups()[-1].rstrip(".") for match in found if match.groups()[-1]]
    return next(reversed(quoted or bare), None)


def _operation(line: str) -> Operation | None:
    if _WRITES.search(line):
        return "write"

    return "read" if _READS.search(line) else None
