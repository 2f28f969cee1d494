"""When a provider says to come back: its header, or its words.

Read from whatever text an agent leaves behind, so nothing here trusts it: what cannot be read is
as if it had not been said.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST_MS = 60 * 60 * 1000
"""A provider that asks for more than an hour is not waited for (Hankweave, retries)."""

_MILLISECONDS = re.compile(r"retry-after-ms[\"']?\s*[:=]\s*[\"']?(\d{1,12}(?:\.\d{1,6})?)", re.I)
_HEADER = re.compile(r"retry-after[\"']?\s*[:=]\s*[\"']?([^\"'\r\n}]{1,40})", re.I)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(?:s|sec|seconds?)?\s*(?:[,;)\]].*)?$", re.I)
_WORDS = re.compile(
    r"(?:try(?:ing)? again|retry(?:ing)?|retry[_ ]?delay|retry[_ ]after|wait|available again)"
    r"[\"']?\s*(?:[:=]|in|after|for)?\s*[\"']?(?:about |another |at least )?"
    r"(?P<span>(?:\d{1,9}(?:\.\d{1,9})?\s*"
    r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h)\b[\s,]*(?:and\s+)?"
    r"|\d{1,3}h(?=\d)|\d{1,4}m(?=\d))+)",
    re.I,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.I)

_UNIT_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}


def retry_after_ms(text: str, now: datetime) -> int | None:
    """Finds how long to wait, in milliseconds; None where nothing is said that can be read.

    A date is held against `now`; one that is past means at once. More than `LONGEST_MS` is given
    as it was said: whether to wait for it is for `retrying` to decide.
    """
    if found := _MILLISECONDS.search(text):
        return round(float(found[1]))

    for found in _HEADER.finditer(text):
        waited = _of_header(found[1].strip(), now)
        if waited is not None:
            return waited

    said = _WORDS.search(text)
    return None if said is None else round(sum(_milliseconds(*part) for part in _parts(said)))


def _of_header(value: str, now: datetime) -> int | None:
    """RFC 9110, "Retry-After": seconds, or an HTTP date."""
    if number := _SECONDS.match(value):
        return round(float(number[1]) * 1000)

    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None

    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)

    return max(0, (moment - now) // timedelta(milliseconds=1))


def _parts(said: re.Match[str]) -> list[tuple[str, str]]:
    return _PART.findall(said["span"])


def _milliseconds(number: str, unit: str) -> float:
    unit = unit.lower()
    name = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return float(number) * _UNIT_MS[name]
