"""Times as a person reads them: in the zone of this machine, with the zone's name.

Only text for people goes through here. `--json` keeps the protocol's UTC timestamps.
"""

from __future__ import annotations

from datetime import datetime

from hankweave_protocol import instants


def moment(timestamp: str) -> str:
    """Return `2026-11-21 15:44:34 CET`; a text that is no timestamp is returned as it is."""
    at = _local(timestamp)
    return timestamp if at is None else f"{at:%Y-%m-%d %H:%M:%S %Z}"


def precise_moment(timestamp: str) -> str:
    """Return the same with milliseconds."""
    at = _local(timestamp)
    if at is None:
        return timestamp

    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {at:%Z}"


def date(timestamp: str) -> str:
    """Return `2026-11-21`."""
    at = _local(timestamp)
    return timestamp[:10] if at is None else f"{at:%Y-%m-%d}"


def clock(timestamp: str) -> str:
    """Return `15:44:34`, for lines whose heading names the zone."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S}"


def clock_with_zone(timestamp: str) -> str:
    """Return `15:44:34 CET`."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S %Z}"


def zone(timestamp: str) -> str:
    """Return the zone that an instant has here: `CET, UTC+01:00`, or `UTC`."""
    at = _local(timestamp)
    if at is None:
        return "UTC"

    name, offset = at.tzname() or "", f"{at:%z}"
    if name == "UTC":
        return name

    sign = f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{name}, {sign}" if name[:1].isalpha() else sign


def _local(timestamp: str) -> datetime | None:
    try:
        return instants.from_text(timestamp).astimezone()
    except (ValueError, OverflowError):
        return None
