"""Claims about times in output for people."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from hankweave_protocol.events import Event, Info, ServerIdle
from hankweave_server.cli.output import text
from hankweave_server.cli.output.event_lines import RunLines

AT = "2026-11-21T23:30:05.123Z"


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def idle(timestamp: str) -> Event:
    data = ServerIdle(reason="startup", message="Waiting.")
    return Event(seq=1, id="e", timestamp=timestamp, type=data.TYPE, data=data)


@pytest.mark.usefixtures("in_berlin")
def test_times_are_local_and_name_their_zone() -> None:
    """Winter and summer time are handled."""
    assert text.moment(AT) == "2026-11-22 00:30:05 CET"
    assert text.precise_moment(AT) == "2026-11-22 00:30:05.123 CET"
    assert text.moment("2026-07-01T10:00:00.000Z") == "2026-07-01 12:00:00 CEST"
    assert text.clock_with_zone(AT) == "00:30:05 CET"
    assert text.zone(AT) == "CET, UTC+01:00"


@pytest.mark.usefixtures("in_berlin")
def test_a_story_names_the_day_and_the_zone_where_a_day_begins() -> None:
    """The other lines have only the time of day."""
    story = RunLines()
    assert story.lines(idle(AT)) == ["2026-11-22 (CET, UTC+01:00)", "00:30:05  Waiting."]
    assert story.lines(idle("2026-11-22T22:00:00.000Z")) == ["23:00:00  Waiting."]
    assert story.lines(idle("2026-11-22T23:00:00.000Z"))[0] == "2026-11-23 (CET, UTC+01:00)"


def test_a_text_that_is_no_time_stays_as_it_is() -> None:
    """A damaged record must not abort a list."""
    assert text.moment("soon") == "soon"
    assert text.moment("2026-01-01") == "2026-01-01"


def test_events_without_a_line_begin_no_day() -> None:
    data = Info(message="x")
    event = Event(seq=1, id="e", timestamp=AT, type=data.TYPE, data=data)
    assert RunLines().lines(event) == []
