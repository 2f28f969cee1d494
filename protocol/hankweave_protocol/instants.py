"""Timestamps of files and frames: UTC, milliseconds, a trailing `Z`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def to_text(moment: datetime) -> str:
    """Return a text like `2025-01-04T12:00:00.000Z`; the moment must have a time zone."""
    in_utc = moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def from_text(text: str) -> datetime:
    """Parse an ISO 8601 timestamp with an offset or `Z`; raise ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")

    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is before the year 1 or after 9999 in UTC") from None


def from_epoch(seconds: float) -> datetime:
    """Return the moment of a time stamp, or the nearest one in the years 1 to 9999."""
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return earliest if seconds < 0 else latest


def epoch_ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def milliseconds_between(start: datetime, end: datetime) -> int:
    return (end - start) // timedelta(milliseconds=1)
