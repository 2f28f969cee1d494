"""What git does to content between work tree and repository: line ends and `$Id$` (its convert.c).

libgit2's own filters cut content at its first NUL when they are asked for bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = bytes(
    code for code in range(256) if (code >= 0x20 and code != 0x7F) or code in b"\b\t\033\014"
)
_ID = re.compile(rb"\$Id(?::[^$\n]*)?\$")


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the content of one path is converted."""

    is_text: bool = False
    """Line ends in the repository are LF."""
    is_guessed: bool = False
    """Only where the content looks like text."""
    is_crlf_outside: bool = False
    """Line ends in the work tree are CRLF."""
    has_ident: bool = False

    @property
    def does_nothing(self) -> bool:
        return not self.is_text and not self.has_ident


RAW = Conversion()


def to_repository(content: bytes, conversion: Conversion, before: bytes | None) -> bytes:
    """Gives what is stored of a file; `before` is what the index has of it, if anything."""
    if conversion.is_text and b"\r\n" in content:
        looks = not conversion.is_guessed or (
            not _is_binary(content) and not _had_crlf(before or b"")
        )
        if looks:
            content = content.replace(b"\r\n", b"\n")

    if conversion.has_ident:
        content = _ID.sub(b"$Id$", content)

    return content


def to_work_tree(content: bytes, conversion: Conversion, digest: bytes) -> bytes:
    """Gives what stands in the work tree of a stored blob, whose name is `digest`."""
    if conversion.has_ident:
        content = _ID.sub(lambda found: _expanded(found[0], digest), content)

    if not conversion.is_text or not conversion.is_crlf_outside:
        return content

    crlf = content.count(b"\r\n")
    if content.count(b"\n") == crlf:
        return content

    if conversion.is_guessed and (crlf or _is_binary(content)):
        return content

    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _expanded(keyword: bytes, digest: bytes) -> bytes:
    if b" " in keyword[5:-2]:
        return keyword  # Another program's, which git leaves alone.

    return b"$Id: " + digest.hex().encode() + b" $"


def _had_crlf(before: bytes) -> bool:
    return b"\r\n" in before and not _is_binary(before)


def _is_binary(content: bytes) -> bool:
    """Guesses as git does: a NUL, a lone CR, or more than one odd byte in 128."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return True

    odd = len(content.translate(None, _PLAIN + b"\r\n")) - content.endswith(b"\032")
    printable = len(content) - content.count(b"\r") - content.count(b"\n") - odd
    return printable >> 7 < odd
