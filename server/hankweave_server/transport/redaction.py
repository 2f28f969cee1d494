"""Takes secrets out of frames before they are written anywhere.

Works on encoded JSON: parsing every frame would cost more than the log is worth, and what a tool
printed into a string must be cleaned as well. A rule is tried only where its marker stands in the
frame, because most frames hold no secret and a search for a few bytes costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

REDACTED = b"[redacted]"

_KEYS = (
    rb"(?:[\w.-]*token|authorization|proxy-authorization|set-cookie|cookie|[\w.-]*secret"
    rb"|[\w.-]*password|passwd|[\w.-]*api[_-]?key|x-api-key|private[_-]?key)"
)
_BEGIN = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
"""Where a word begins: after an escaped line break, too, whose last character is a letter."""


@dataclass(frozen=True, slots=True)
class _Rule:
    markers: tuple[bytes, ...]
    """Lower case; the rule is tried where one of them stands in the frame."""
    pattern: re.Pattern[bytes]
    replacement: bytes


_KEY_MARKERS = (
    b'token"',
    b'token\\"',
    b"authorization",
    b"cookie",
    b"secret",
    b"passw",
    b"api",
    b"private",
)
_RULES = (
    # "token": "..." as JSON writes it.
    _Rule(
        _KEY_MARKERS,
        re.compile(rb'(?i)((?<!\\)"' + _KEYS + rb'"\s*:\s*")(?:[^"\\]|\\.)+(?="|\Z)'),
        rb"\1" + REDACTED,
    ),
    # The same inside a string: a tool's output that is JSON itself. No rule may begin with a
    # repetition: a megabyte of what it repeats would be searched from each of its places.
    _Rule(
        _KEY_MARKERS,
        re.compile(rb'(?i)(\\"' + _KEYS + rb'\\+"\s*:\s*\\+")[^"\\]+'),
        rb"\1" + REDACTED,
    ),
    _Rule(
        (b"token=", b"key=", b"password=", b"secret="),
        re.compile(
            rb"(?i)((?:token|api[_-]?key|password|secret)=)"
            rb"(?:'[^'\"\\]+|\\+\"[^\"\\]+|[^&\s\"'\\]+)"
        ),
        rb"\1" + REDACTED,
    ),
    _Rule(
        (b"bearer", b"basic"),
        re.compile(rb"(?i)" + _BEGIN + rb"(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"),
        rb"\1 " + REDACTED,
    ),
    _Rule((b"sk-",), re.compile(_BEGIN + rb"sk-[A-Za-z0-9_-]{16,}"), REDACTED),
    _Rule(
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        re.compile(_BEGIN + rb"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}"),
        REDACTED,
    ),
    _Rule((b"akia",), re.compile(_BEGIN + rb"AKIA[0-9A-Z]{16}\b"), REDACTED),
    # To the end marker, or, in a text that was cut off, to the end of the string.
    _Rule(
        (b"private key-----",),
        re.compile(
            rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[^\"])*"
            rb"(?:-----END [A-Z ]*PRIVATE KEY-----)?"
        ),
        REDACTED,
    ),
)


def redact(frame: bytes, known: tuple[bytes, ...] = ()) -> bytes:
    """Returns the frame without secrets; `known` are values to remove wherever they stand.

    What was valid JSON stays valid JSON: only characters inside strings are replaced.
    """
    for secret in known:
        frame = frame.replace(secret, REDACTED)

    lowered = frame.lower()
    for rule in _RULES:
        if any(marker in lowered for marker in rule.markers):
            frame = rule.pattern.sub(rule.replacement, frame)

    return frame


_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|password|passwd|credential)s?$")
SHORTEST_SECRET = 8
"""Characters a variable's value must have: a shorter one would be found in ordinary words."""


def secrets_in(environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the values of variables whose names say that they hold a secret, longest first."""
    values = {
        value.encode("utf-8", "surrogateescape")
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= SHORTEST_SECRET
    }
    return tuple(sorted(values, key=len, reverse=True))


def redact_text(text: str, known: tuple[bytes, ...] = ()) -> str:
    """Return a plain text without secrets; `known` as for `redact`."""
    frame = text.encode("utf-8", "surrogateescape")
    return redact(frame, known).decode("utf-8", "surrogateescape")
