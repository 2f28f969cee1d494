"""Claims about ids and timestamps in files and on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import ids, instants
from hankweave_protocol.ids import RunId

moments = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001 - hypothesis wants naive bounds and adds the zone itself.
    datetime(9998, 12, 31),  # noqa: DTZ001
    timezones=st.timezones(),
)


def test_a_moment_is_written_as_in_the_seeds() -> None:
    """The form is UTC, with milliseconds and a trailing Z (seed 001)."""
    noon = datetime(2025, 1, 4, 12, tzinfo=UTC)
    assert instants.to_text(noon) == "2025-01-04T12:00:00.000Z"


def test_a_moment_elsewhere_is_written_in_utc() -> None:
    """A reader need not know the writer's time zone."""
    there = datetime(2025, 1, 4, 14, 30, tzinfo=timezone(timedelta(hours=2, minutes=30)))
    assert instants.to_text(there) == "2025-01-04T12:00:00.000Z"


def test_the_rest_of_a_millisecond_is_cut_off() -> None:
    """A timestamp is never rounded up into the future."""
    late = datetime(2025, 1, 4, 12, 0, 0, 999_999, tzinfo=UTC)
    assert instants.to_text(late) == "2025-01-04T12:00:00.999Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.000Z"),
        (10_413_792_000, "2300-01-01T00:00:00.000Z"),
        (10**12, "9999-12-31T23:59:59.999Z"),
        (-(10**12), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_any_time_stamp_of_a_file_can_be_shown(seconds: int, text: str) -> None:
    """One that no date can express becomes the first or the last date."""
    assert instants.to_text(instants.from_epoch(seconds)) == text


@given(moments)
def test_a_moment_comes_back_to_the_millisecond(moment: datetime) -> None:
    """Reading a written timestamp gives the same millisecond, in UTC."""
    read = instants.from_text(instants.to_text(moment))
    assert read.tzinfo is UTC
    assert timedelta() <= moment - read < timedelta(milliseconds=1)


@given(moments, moments)
def test_moments_of_this_age_sort_as_their_texts(one: datetime, other: datetime) -> None:
    """Years have four digits: a log can be sorted without being parsed."""
    earlier, later = sorted((one, other))
    assert instants.to_text(earlier) <= instants.to_text(later)


@pytest.mark.parametrize(
    "text",
    ["2025-01-04T12:00:00Z", "2025-01-04T14:00:00+02:00", "2025-01-04T12:00:00.000000+00:00"],
)
def test_a_moment_is_read_with_any_offset(text: str) -> None:
    """Other programs write the same moment in other forms."""
    assert instants.from_text(text) == datetime(2025, 1, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2025-01-04",
        "2025-01-04T12:00:00",
        "2025-13-04T12:00:00Z",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
    ],
)
def test_what_is_no_moment_is_a_value_error(text: str) -> None:
    """No zone, no such day, and a date outside Python's calendar all raise the same error."""
    with pytest.raises(ValueError, match=r"."):
        instants.from_text(text)


@given(moments)
def test_epoch_milliseconds_are_those_of_the_text(moment: datetime) -> None:
    """A run's id and its startTime name the same millisecond."""
    read = instants.from_text(instants.to_text(moment))
    assert instants.epoch_ms(moment) == instants.epoch_ms(read)


def test_milliseconds_are_counted_between_moments() -> None:
    """The count is a whole number, negative where the clock went back."""
    start = datetime(2025, 1, 4, tzinfo=UTC)
    assert instants.milliseconds_between(start, start + timedelta(microseconds=1_999)) == 1
    assert instants.milliseconds_between(start, start - timedelta(seconds=1)) == -1000


@pytest.mark.parametrize(
    ("text", "is_prefix"),
    [
        ("a" * 40, True),
        ("0123456789abcdef0123456789abcdef01234567", True),
        ("a" * 39, True),
        ("abcd", True),
        ("abc", False),
        ("a" * 41, False),
        ("A" * 40, False),
        ("g" * 40, False),
        ("a" * 40 + "\n", False),
        ("HEAD", False),
        ("", False),
        ("١" * 40, False),
    ],
)
def test_the_prefix_of_a_sha_is_four_to_forty_digits(text: str, is_prefix: bool) -> None:
    """No other text is passed to git: no ref, no option, no other alphabet's digits."""
    assert ids.is_sha_prefix(text) is is_prefix


def test_names_are_made_as_in_the_seeds() -> None:
    """`review#1` is iteration 1 (seed 002), and a run's branch has its id (seed 000)."""
    assert ids.iteration_id("review", 1) == "review#1"
    assert ids.branch_of(RunId("1736000000000-abc123-def456")) == "run-1736000000000-abc123-def456"
