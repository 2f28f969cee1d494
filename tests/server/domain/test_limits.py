"""Recognition of a provider's limit, and of the instant when it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.domain.limits import (
    FURTHEST,
    Limit,
    LimitFacts,
    LimitSource,
    NoWait,
    limit_of,
    planned_end,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def at(day: str, time: str) -> datetime:
    return datetime.fromisoformat(f"2026-{day}T{time}+00:00")


def limit(
    text: str, program: str = "claude", *, now: datetime = NOW, zone: str = "UTC", code: int = 1
) -> Limit | None:
    return limit_of(program, LimitFacts(text), now=now, zone=ZoneInfo(zone), exit_code=code)


# --- Claude Code --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "until"),
    [
        # The minute is cut off, so one is added. Without a zone, the child's counts (here UTC).
        ("You've hit your 5-hour limit · resets 3:54pm (Europe/Berlin)", at("11-21", "14:55")),
        ("You\u2019ve hit your weekly limit · resets 3:54pm (UTC)", at("11-21", "15:55")),
        (
            "You've hit your Opus limit · resets Nov 25, 10:24pm (Europe/Berlin)",
            at("11-25", "21:25"),
        ),
        ("You've hit your weekly limit ∙ resets Nov 25 at 10:24\u202fPM", at("11-25", "22:25")),
        ("You've hit your limit · resets 12:05am (America/New_York)", at("11-22", "05:06")),
        ("You've hit your session limit · resets 11am (UTC)", at("11-22", "11:01")),
        ("You've hit your session limit · resets 12pm (UTC)", at("11-21", "12:01")),
        ("You've hit your 5-hour limit · resets 3:54pm (Nowhere/At_All)", at("11-21", "15:55")),
        ("5-hour limit reached ∙ resets 6pm", at("11-21", "18:01")),
        ("Weekly limit reached ∙ resets Dec 2, 6pm", at("12-02", "18:01")),
        ("Claude AI usage limit reached|1795262400", at("11-21", "12:00:00")),
        ("Claude AI usage limit reached|1795269600", at("11-21", "14:00")),
        ("Claude usage limit reached. Your limit will reset soon.", None),
        ("You've hit your usage limit.", None),
    ],
)
def test_each_sentence_about_a_usage_limit_names_its_instant(
    text: str, until: datetime | None
) -> None:
    """Today's and older sentences, with and without date, minutes and zone."""
    found = limit(text)
    source: LimitSource = "none" if until is None else "text"
    assert found == Limit("usage", until, source, model_only="Opus" in text)


def test_the_epoch_of_the_event_beats_the_words() -> None:
    """`resetsAt` is exact; the sentence is cut to minutes and depends on a zone."""
    text = "You've hit your 5-hour limit · resets 3:54pm (Europe/Berlin)"
    facts = LimitFacts(text, status=429, error="usage_limit_reached", resets_at=1795272870)
    found = limit_of("claude", facts, now=NOW, zone=UTC)
    assert found == Limit("usage", datetime(2026, 11, 21, 14, 54, 30, tzinfo=UTC), "event")


@pytest.mark.parametrize("epoch", [1795272870, 1795272870_000])
def test_an_epoch_may_be_in_seconds_or_milliseconds(epoch: int) -> None:
    """Claude Code and Codex give seconds, OpenCode milliseconds."""
    facts = LimitFacts(error="usage_limit_reached", resets_at=epoch)
    found = limit_of("claude", facts, now=NOW, zone=UTC)
    assert found is not None
    assert found.until == datetime(2026, 11, 21, 14, 54, 30, tzinfo=UTC)


@pytest.mark.parametrize("epoch", [10**11 - 1, 9e15, float("1e300")])
def test_an_epoch_far_away_is_not_believed(epoch: float) -> None:
    """The limit is one, but its end counts as unknown."""
    facts = LimitFacts(error="usage_limit_reached", resets_at=epoch)
    assert limit_of("claude", facts, now=NOW, zone=UTC) == Limit("usage", None, "none")


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (
            LimitFacts("API Error: Request rejected (429) · slow down"),
            Limit("rate", None, "none", model_only=True),
        ),
        (
            LimitFacts("API Error: Request rejected (429) · x", status=429, retry_ms=37500),
            Limit("rate", NOW + timedelta(seconds=37.5), "event", model_only=True),
        ),
        (
            # Its own pause between two requests.
            LimitFacts("API Error: Request rejected (429) · x", status=429, retry_ms=600),
            Limit("rate", None, "none", model_only=True),
        ),
        (
            LimitFacts("API Error: 529 Overloaded", status=529),
            Limit("overload", None, "none", model_only=True),
        ),
        (
            LimitFacts("API Error: 503 Service Unavailable"),
            Limit("overload", None, "none", model_only=True),
        ),
        (
            LimitFacts("API Error: x", error="overloaded"),
            Limit("overload", None, "none", model_only=True),
        ),
        (LimitFacts("Credit balance is too low", status=400), Limit("billing", None, "none")),
        (LimitFacts("x", status=400, error="billing_error"), Limit("billing", None, "none")),
        (LimitFacts("API Error: x", status=402), Limit("billing", None, "none")),
    ],
)
def test_other_limits_of_claude_code(facts: LimitFacts, found: Limit) -> None:
    """Rate limits and overloads pass; billing does not."""
    assert limit_of("claude", facts, now=NOW, zone=UTC) == found
    assert found.passes is (found.kind != "billing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Done. I have added handling for when you've hit your usage limit.",
        "The endpoint returns 429 when the rate limit is reached.",
        "API Error: 500 Internal server error",
        "API Error: 400 invalid_request_error",
        "overloaded",
    ],
)
@pytest.mark.parametrize("program", ["claude", "command", "scripted"])
def test_text_that_mentions_a_limit_is_none(text: str, program: str) -> None:
    """Only sentences that the program itself begins with count; a wait may take days."""
    assert limit(text, program) is None


# --- Codex --------------------------------------------------------------------------------------

HIT = "You\u2019ve hit your usage limit. Upgrade to Pro (https://x), or "


@pytest.mark.parametrize(
    ("text", "until"),
    [
        (HIT + "try again at 2:50 PM.", at("11-21", "13:51")),
        (HIT + "try again at 2:50\u202fPM.", at("11-21", "13:51")),
        (HIT + "try again at Nov 27th, 2026 2:15 AM.", at("11-27", "01:16")),
        (HIT + "try again at Dec 1st, 2026 12:00 AM.", at("11-30", "23:01")),
        (
            HIT + "try again in 3 days 6 hours 57 minutes.",
            NOW + timedelta(days=3, hours=6, minutes=57),
        ),
        (HIT + "try again in 1 day 2 hours.", NOW + timedelta(days=1, hours=2)),
        (HIT + "try again later.", None),
    ],
)
def test_each_sentence_of_codex_names_its_instant(text: str, until: datetime | None) -> None:
    """Codex prints no zone: the time is its process's local one."""
    found = limit(text, "codex", zone="Europe/Berlin")
    assert found == Limit("usage", until, "none" if until is None else "text")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate"),
        ("exceeded retry limit, last status: 503 Service Unavailable, request id: x", "overload"),
        ("Selected model is at capacity. Please try a different model.", "overload"),
        ("Quota exceeded. Check your plan and billing details.", "billing"),
    ],
)
def test_other_limits_of_codex(text: str, kind: str) -> None:
    """None of them names an instant."""
    found = limit(text, "codex")
    assert found is not None
    assert (found.kind, found.until) == (kind, None)


def test_the_rollout_of_codex_is_exact() -> None:
    """Its rollout has the error's name and the epoch, which its output lacks."""
    facts = LimitFacts(
        HIT + "try again at 2:50 PM.", error="usage_limit_exceeded", resets_at=1795269000
    )
    found = limit_of("codex", facts, now=NOW, zone=BERLIN)
    assert found == Limit("usage", at("11-21", "13:50"), "event")


# --- Gemini CLI and OpenCode ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "kind", "seconds"),
    [
        ("You exceeded your current quota. Please retry in 34.07s.", 173, "rate", 34.07),
        ("RESOURCE_EXHAUSTED: Please retry in 2m5s.", 1, "rate", 125),
        ("You have exhausted your daily quota on this model.", 173, "usage", None),
        ("Quota exceeded for metric: GenerateRequestsPerDayPerProject", 1, "usage", None),
        ("The model is overloaded. Please try again later.", 247, "overload", None),
        ("status: UNAVAILABLE", 1, "overload", None),
        ("An unexpected critical error occurred", 173, "rate", None),
        ("An unexpected critical error occurred", 247, "overload", None),
    ],
)
def test_limits_of_gemini(text: str, code: int, kind: str, seconds: float | None) -> None:
    """Its exit code is the HTTP status modulo 256, and decides where words do not."""
    found = limit(text, "gemini", code=code)
    assert found is not None
    assert found.kind == kind
    assert found.until == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_the_exit_code_means_nothing_from_other_programs() -> None:
    """173 is only a status from Gemini CLI."""
    assert limit("it broke", "codex", code=173) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ('{"retry-after": "90"}', 90),
        ('{"Retry-After": "90", "retry-after-ms": "1500"}', 1.5),
        ('{"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"}', 90),
        ('{"retry-after": "soon"}', None),
        ("{}", None),
    ],
)
def test_the_headers_in_an_error_of_opencode(headers: str, seconds: float | None) -> None:
    """Its error object has the status and the provider's headers."""
    text = (
        '{"type":"error","error":{"name":"APIError","data":{"message":"Slow down","statusCode":429,'
        f'"isRetryable":true,"responseHeaders":{headers},"responseBody":"x"}}}}}}'
    )
    found = limit(text, "opencode")
    until = None if seconds is None else NOW + timedelta(seconds=seconds)
    source: LimitSource = "none" if until is None else "header"
    assert found == Limit("rate", until, source, model_only=True)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"name":"APIError","data":{"message":"x","statusCode":529}}', "overload"),
        ('{"name":"APIError","data":{"responseBody":"insufficient_quota"}}', "billing"),
        ("Internal error: Rate limit reached for gpt-5", "rate"),
        ("Internal error: Overloaded", "overload"),
        ('{"type":"retry","attempt":2,"message":"Rate Limited","next":1795269000000}', "rate"),
        ('{"name":"APIError","data":{"message":"no such model","statusCode":404}}', None),
        ('{"name":"APIError","data":', None),
    ],
)
def test_other_limits_of_opencode(text: str, kind: str | None) -> None:
    """It reports a provider's error as an object, or within a JSON-RPC error."""
    found = limit(text, "opencode")
    assert (None if found is None else found.kind) == kind


def test_opencode_waits_until_an_epoch_in_milliseconds() -> None:
    """`session.status` says when its next attempt is due."""
    found = limit('{"type":"retry","message":"Rate limited","next":1795269000000}', "opencode")
    assert found == Limit("rate", at("11-21", "13:50"), "event", model_only=True)


# --- how long to wait ---------------------------------------------------------------------------


def wait_for(known: Limit, number: int = 1, longest: timedelta | None = None) -> float | str:
    planned = planned_end(known, number=number, now=NOW, longest=longest)
    return planned.sentence if isinstance(planned, NoWait) else (planned - NOW).total_seconds()


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        ("usage", [900, 1800, 3600, 3600]),
        ("rate", [30, 60, 120, 240, 480, 900, 900]),
        ("overload", [30, 60, 120, 240, 480, 960, 1800, 1800]),
    ],
)
def test_a_delay_grows_where_the_end_is_unknown(kind: Any, delays: list[int]) -> None:
    """Each wait in a row is twice as long as the one before, up to a bound."""
    unknown = Limit(kind, None, "none")
    assert [wait_for(unknown, number) for number in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("seconds", "number", "waited"),
    [(7200, 1, 7200), (7200, 9, 7200), (0, 1, 1), (-60, 3, 4), (5, 5, 16), (5, 12, 900)],
)
def test_an_instant_is_kept_unless_it_is_refused_again(
    seconds: int, number: int, waited: int
) -> None:
    """A provider that names the next second after each wait is given more and more time."""
    known = Limit("usage", NOW + timedelta(seconds=seconds), "event")
    assert wait_for(known, number) == waited


def test_there_is_an_end_to_waiting() -> None:
    """After too many waits in a row, for a limit too far away, and if no limit is waited for."""
    far = Limit("usage", NOW + timedelta(hours=3), "event")
    assert "12 times in a row" in str(wait_for(far, 13))
    assert wait_for(far, longest=timedelta(hours=3)) == 10_800
    assert "2026-11-21T15:00:00Z, later than `hankweave run --max-wait` allows" in str(
        wait_for(far, longest=timedelta(hours=2))
    )
    assert wait_for(far, longest=timedelta()) == ""


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "reset", "until"),
    [
        # Berlin leaves daylight saving time on 25 October 2026 at 03:00, which becomes 02:00.
        ("2026-10-24T20:00", "resets 4:30am", "2026-10-25T03:31"),
        ("2026-10-24T20:00", "resets 2:30am", "2026-10-25T00:31"),  # Happens twice: the first.
        ("2026-10-25T00:40", "resets 2:30am", "2026-10-25T01:31"),  # Only the second is ahead.
        # It enters it on 28 March 2027 at 02:00, which becomes 03:00; 02:30 does not exist.
        ("2027-03-27T20:00", "resets 4:30am", "2027-03-28T02:31"),
        ("2027-03-27T20:00", "resets 2:30am", "2027-03-28T00:31"),
        # Midnight, the end of a year, and a minute that has begun.
        ("2026-12-31T22:30", "resets 12:30am", "2026-12-31T23:31"),
        ("2026-12-31T22:30", "resets Jan 1, 1:30am", "2027-01-01T00:31"),
        ("2026-11-21T14:54:30", "resets 3:54pm", "2026-11-21T14:55"),
    ],
)
def test_local_times_follow_the_rules_of_their_zone(now: str, reset: str, until: str) -> None:
    """The offset is the one that holds then, not the one that holds now."""
    moment = datetime.fromisoformat(now + "+00:00")
    found = limit(f"You've hit your limit · {reset} (Europe/Berlin)", now=moment)
    assert found is not None
    assert found.until == datetime.fromisoformat(until + "+00:00")


@pytest.mark.parametrize(
    "reset", ["resets 13pm", "resets 5:75pm", "resets Feb 31, 5pm", "resets Foo 3, 5pm"]
)
def test_a_time_that_no_clock_shows_is_not_read(reset: str) -> None:
    """The limit counts, its instant is unknown."""
    assert limit(f"You've hit your limit · {reset}") == Limit("usage", None, "none")


@pytest.mark.parametrize(
    "facts",
    [
        LimitFacts("429 RESOURCE_EXHAUSTED. Please retry in 999999999 weeks."),
        LimitFacts(error="rate_limit", retry_ms=1e300),
        LimitFacts(error="rate_limit", headers={"retry-after-ms": "9" * 12}),
    ],
)
def test_a_delay_beyond_all_dates_counts_as_the_longest_one(facts: LimitFacts) -> None:
    """Agents print such numbers; they are no reason for an error."""
    found = limit_of("gemini", facts, now=NOW, zone=UTC)
    assert found is not None
    assert found.until == NOW + FURTHEST


@given(text=st.text(max_size=80), code=st.integers(-1, 255), epoch=st.floats(allow_nan=False))
def test_whatever_an_agent_prints_is_survived(text: str, code: int, epoch: float) -> None:
    """Its text is untrusted; an instant is never further away than believed."""
    for program in ("claude", "codex", "gemini", "opencode"):
        for begun in ("", "You've hit your limit · resets ", "Please retry in "):
            facts = LimitFacts(begun + text, resets_at=epoch if epoch > 0 else None)
            found = limit_of(program, facts, now=NOW, zone=BERLIN, exit_code=code)
            if found is not None and found.until is not None:
                assert found.until - NOW <= FURTHEST
