"""Limits of providers: recognize one in an agent's report, and find the instant when it ends.

A *usage* limit is the end of a plan's allowance for some hours or days; a *rate* limit is too many
requests or tokens in a short time; an *overload* is an outage of the provider. All three pass by
themselves, so a codon waits for their end. *Billing* does not: somebody has to pay first.

`limit_of` is strict, because a wait may take days. It believes what an agent reports in fields of
its own (an HTTP status, the name of an error, the instant of a reset), and sentences that are known
to come from the agent's program. Text that merely mentions a limit, as a model may write it, or a
plain program, is left to `failures.classify`.

An instant comes from the best source there is: the epoch in a field, a `Retry-After` header, a
duration in words, and last a time of day in words. That last one is local to the agent's process
unless it names its zone, may lie in a gap or an overlap of daylight saving time, and has no
seconds: programs cut them off, so a minute is added. If a local time happens twice, the first one
that lies ahead counts; should it be the wrong one, the agent meets the same limit again and waits
another hour.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from hankweave_server.domain.failures import http_date, milliseconds_of, verbose

LimitKind: TypeAlias = Literal["usage", "rate", "overload", "billing"]
LimitSource: TypeAlias = Literal["event", "header", "text", "none"]

FLOORED = timedelta(minutes=1)
"""Added to a time in words: its seconds are missing."""

FURTHEST = timedelta(days=40)
"""An instant further away is not believed; the longest known limit lasts a month."""

_NOWHERE: LimitSource = "none"

_OWN_PAUSES_MS = 30_000
"""A shorter delay is the agent's own pause between two requests, not its provider's wish."""

_MILLISECONDS_FROM = 10**11
"""A larger epoch is in milliseconds: as seconds it would be in the year 5138."""

_OVERLOADED = frozenset({502, 503, 504, 529})
_TOO_MANY = 429
_PAYMENT = 402


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a codon has met."""

    kind: LimitKind
    until: datetime | None
    """When it ends, in UTC; None if that is unknown."""
    source: LimitSource
    """Where `until` comes from: a field of the agent's, a header, its words, or nowhere."""
    model_only: bool = False
    """True if other models of the same account are not affected."""

    @property
    def passes(self) -> bool:
        """Return whether it ends by itself."""
        return self.kind != "billing"


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The facts about a failure that an agent reported."""

    text: str = ""
    status: int | None = None
    """The HTTP status of the provider's answer."""
    error: str = ""
    """The name of the error, as the agent or its provider calls it."""
    resets_at: float | None = None
    """The epoch at which the limit ends, in seconds or milliseconds."""
    retry_ms: float | None = None
    """The delay after which the agent was going to try again."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the provider's answer, names in lower case."""
    window: str = ""
    """The name of the allowance that is used up: `five_hour`, `seven_day_opus`, ..."""

    def merged(self, later: LimitFacts) -> LimitFacts:
        """Return these facts with those that a later report adds or replaces."""
        return LimitFacts(
            text=later.text or self.text,
            status=self.status if later.status is None else later.status,
            error=later.error or self.error,
            resets_at=self.resets_at if later.resets_at is None else later.resets_at,
            retry_ms=self.retry_ms if later.retry_ms is None else later.retry_ms,
            headers={**self.headers, **later.headers},
            window=later.window or self.window,
        )


def limit_of(
    program: str, facts: LimitFacts, *, now: datetime, zone: tzinfo, exit_code: int = 1
) -> Limit | None:
    """Return the limit that ended an agent's turn; None if it was something else.

    `program` is the agent's program (claude, codex, gemini, opencode), or any other name for one
    about which nothing is known. `zone` is the time zone of its process.
    """
    facts = replace(facts, text=_plain(facts.text))
    if (reported := _json_error(facts.text)) is not None:
        facts = facts.merged(reported)

    kind = _kind(program, facts, exit_code)
    if kind is None or kind == "billing":
        return None if kind is None else Limit(kind, None, "none")

    found = next(_instants(facts, now, zone), None)
    until, source = (None, _NOWHERE) if found is None else found
    return Limit(kind, until, source, model_only=kind != "usage" or _is_of_a_model(program, facts))


# --- which limit --------------------------------------------------------------------------------

_USAGE_NAMES = frozenset({"usage_limit_reached", "usage_limit_exceeded"})
_RATE_NAMES = frozenset({"rate_limit", "rate_limit_error", "rate_limit_exceeded"})
_OVERLOAD_NAMES = frozenset({"overloaded", "overloaded_error"})
_BILLING_NAMES = frozenset({"billing_error", "insufficient_quota"})


_BILLING = verbose(
    r"""credit\ balance\ is\ too\ low | insufficient_quota | billing_error
    | check\ your\ plan\ and\ billing | payment\ required"""
)
_USAGE = verbose(
    r"""^you've\ (?:hit|reached)\ your\ (?:.{1,40}\ )?limit\b
    | ^(?:claude\ )?(?:(?:ai|code)\ )?
      (?:usage|\d+-hour|weekly|opus|sonnet)\ (?:\w+\ )?limit\ reached
    | exhausted\ your\ daily\ quota"""
)
_REJECTED = verbose(r"^api\ error:\ .{0,40}\((\d{3})\)|^api\ error:\ (\d{3})\b")
_LAST_STATUS = verbose(r"exceeded\ retry\ limit,\ last\ status:\ (\d{3})")
_DAILY = verbose(r"exhausted\ your\ daily\ quota | per[_\ ]?day\b | requestsperday | daily\ limit")

# Sentences of providers; believed from a program that is known to pass them on, not from others.
_PROVIDER_RATE = verbose(
    r"""\b429\b | rate[\ _-]?limit | too\ many\ requests | resource_?exhausted
    | please\ retry\ in\ \d | quota\ exceeded | exceeded\ your\ current\ quota"""
)
_PROVIDER_OVERLOAD = verbose(
    r"""\boverloaded\b | \bat\ capacity\b | \b(?:502|503|504|529)\b | service\ unavailable
    | status:?\ unavailable | high\ demand"""
)
_PASSES_ON = frozenset({"codex", "gemini", "opencode"})

_ONE_MODEL = verbose(r"\b(?:opus|sonnet|haiku)\b | on\ this\ model")

_GEMINI_EXITS: Mapping[int, LimitKind] = {429 % 256: "rate", 503 % 256: "overload"}
"""Gemini CLI exits with the HTTP status, of which the kernel keeps eight bits."""


def _kind(program: str, facts: LimitFacts, exit_code: int) -> LimitKind | None:
    text = facts.text
    if facts.error in _BILLING_NAMES or facts.status == _PAYMENT or _BILLING.search(text):
        return "billing"

    if facts.error in _USAGE_NAMES or _USAGE.search(text):
        return "usage"

    if (by_status := _of_status(_status(facts))) is not None:
        return "usage" if by_status == "rate" and _DAILY.search(text) else by_status

    if facts.error in _RATE_NAMES | _OVERLOAD_NAMES:
        return "rate" if facts.error in _RATE_NAMES else "overload"

    return _of_provider(program, text, exit_code) if program in _PASSES_ON else None


def _of_provider(program: str, text: str, exit_code: int) -> LimitKind | None:
    if _PROVIDER_RATE.search(text):
        return "usage" if _DAILY.search(text) else "rate"

    if _PROVIDER_OVERLOAD.search(text):
        return "overload"

    return _GEMINI_EXITS.get(exit_code) if program == "gemini" else None


def _is_of_a_model(program: str, facts: LimitFacts) -> bool:
    """Return whether a usage limit counts for one model; Gemini has a quota for each."""
    window = facts.window.replace("_", " ")
    return program == "gemini" or _ONE_MODEL.search(f"{window} {facts.text}") is not None


def _status(facts: LimitFacts) -> int | None:
    if facts.status is not None:
        return facts.status

    for form in (_REJECTED, _LAST_STATUS):
        if found := form.search(facts.text):
            return int(next(filter(None, found.groups())))

    return None


def _of_status(status: int | None) -> LimitKind | None:
    if status == _TOO_MANY:
        return "rate"

    return "overload" if status in _OVERLOADED else None


# --- until when ---------------------------------------------------------------------------------


def _instants(
    facts: LimitFacts, now: datetime, zone: tzinfo
) -> Iterator[tuple[datetime, LimitSource]]:
    """Yield the instants that the report names, the best first."""
    if facts.resets_at is not None and (moment := _of_epoch(facts.resets_at, now)) is not None:
        yield moment, "event"

    for moment in _of_headers(facts.headers, now):
        yield moment, "header"

    if facts.retry_ms is not None and facts.retry_ms >= _OWN_PAUSES_MS:
        yield now + _delay(facts.retry_ms), "event"

    for moment in _of_text(facts.text, now, zone):
        if moment - now <= FURTHEST:
            yield moment, "text"


def _of_epoch(epoch: float, now: datetime) -> datetime | None:
    seconds = epoch / 1000 if epoch >= _MILLISECONDS_FROM else epoch
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None

    return moment if moment - now <= FURTHEST else None


def _delay(milliseconds: float) -> timedelta:
    """Return a delay that an agent or its provider has named, within what is believed."""
    furthest = FURTHEST / timedelta(milliseconds=1)
    return timedelta(milliseconds=min(max(milliseconds, 0.0), furthest))


def _of_headers(headers: Mapping[str, str], now: datetime) -> Iterator[datetime]:
    if (value := headers.get("retry-after-ms")) is not None and _is_number(value):
        yield now + _delay(float(value))

    value = headers.get("retry-after")
    if value is None:
        return

    if _is_number(value):
        yield now + _delay(float(value) * 1000)
        return

    if (moment := http_date(value)) is not None:
        yield moment


def _is_number(value: str) -> bool:
    return re.fullmatch(r"\s*\d{1,12}(?:\.\d{1,9})?\s*", value) is not None


_EPOCH = re.compile(r"limit reached\|(\d{10,13})\b", re.I)
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|milliseconds?|ms|seconds?|secs?|s)"
_SPAN = re.compile(
    r"(?:try again|retry|resets?|available again)\s+(?:in|after)\s+"
    rf"(?P<span>(?:\d{{1,9}}(?:\.\d{{1,9}})?\s*{_UNIT}(?![a-z])[\s,]*(?:and\s+)?)+)",
    re.I,
)
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])", re.I)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WHEN = re.compile(
    r"(?:resets|try\ again\ at)\s+(?:at\s+)?"
    r"(?:(?P<month>[A-Z][a-z]{2})[a-z]*\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?"
    r"(?:,?\s+(?P<year>20\d\d))?(?:,|\s+at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap])\.?m\b\.?"
    r"(?:\s*\((?P<zone>[A-Za-z0-9_+\-/]{1,64})\))?",
    re.I | re.VERBOSE,
)


def _of_text(text: str, now: datetime, zone: tzinfo) -> Iterator[datetime]:
    if found := _EPOCH.search(text):
        moment = _of_epoch(float(found[1]), now)
        if moment is not None:
            yield moment

    if said := _SPAN.search(text):
        parts: list[tuple[str, str]] = _PART.findall(said["span"])
        yield now + _delay(sum(milliseconds_of(*part) for part in parts))

    if when := _WHEN.search(text):
        yield from _of_local_time(when, now, _zone_of(when["zone"]) or zone)


def _zone_of(name: str | None) -> tzinfo | None:
    try:
        return None if name is None else ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # Not in this machine's database, or not a name.
        return None


def _of_local_time(when: re.Match[str], now: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Yield the first instant ahead that a clock in the zone shows as this date and time."""
    hour = int(when["hour"]) % 12 + (12 if when["half"].lower() == "p" else 0)
    minute = int(when["minute"] or 0)
    if int(when["hour"]) > 12 or minute > 59:
        return

    instants = (
        (datetime(*day, hour, minute, tzinfo=zone, fold=fold)).astimezone(UTC) + FLOORED
        for day in _days(when, now.astimezone(zone))
        for fold in (0, 1)
    )
    ahead = sorted(moment for moment in instants if moment > now)
    yield from ahead[:1]


def _days(when: re.Match[str], local: datetime) -> Iterator[tuple[int, int, int]]:
    """Yield the dates that a text without a year, or without a date, may mean."""
    if when["month"] is None:
        for either in (local, local + timedelta(days=1)):
            yield either.year, either.month, either.day

        return

    name = when["month"].lower()
    if name not in _MONTHS:
        return

    years = (local.year, local.year + 1) if when["year"] is None else (int(when["year"]),)
    for year in years:
        day = (year, _MONTHS.index(name) + 1, int(when["day"]))
        if _is_date(*day):
            yield day


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False

    return True


# --- the text -----------------------------------------------------------------------------------

_SPACES = re.compile(r"[^\S\n]+")
_JSON_FROM = re.compile(r'\{\s*"(?:name|type|error|data|attempt)"')


def _plain(text: str) -> str:
    """Return the text with plain quotes and spaces; programs print U+2019 and U+202F."""
    return _SPACES.sub(" ", text.replace("\u2019", "'")).strip()


def _json_error(text: str) -> LimitFacts | None:
    """Return the facts in an error object of OpenCode, or None if the text contains none.

    `{"name": "APIError", "data": {"statusCode", "responseHeaders", "responseBody"}}`, also inside
    of `{"type": "error", "error": ...}`; or a status `{"type": "retry", "next": epoch}`.
    """
    found = _JSON_FROM.search(text)
    if found is None:
        return None

    try:
        value, _ = json.JSONDecoder().raw_decode(text, found.start())
    except (ValueError, RecursionError):
        return None

    return _facts_in(value)


def _facts_in(value: object) -> LimitFacts | None:
    match value:
        case {"type": "retry", "next": int() | float() as following, **rest}:
            return LimitFacts(text=_text(rest.get("message")), resets_at=float(following))
        case {"type": "error", "error": {"data": dict() as data}}:
            return _api_error(data)
        case {"name": str(), "data": dict() as data}:
            return _api_error(data)
        case _:
            return None


def _api_error(data: Mapping[str, object]) -> LimitFacts:
    status, headers = data.get("statusCode"), data.get("responseHeaders")
    given = headers.items() if isinstance(headers, dict) else ()
    body = _text(data.get("responseBody"))
    return LimitFacts(
        text=_plain("\n".join(filter(None, (_text(data.get("message")), body)))),
        status=status if isinstance(status, int) else None,
        headers={str(name).lower(): value for name, value in given if isinstance(value, str)},
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# --- how long to wait ---------------------------------------------------------------------------

MOST_WAITS = 12
"""Waits in a row without an answer of the model, after which its codon fails.

An outage is waited for three and a half hours with them, and a usage limit without a known end for
eleven.
"""

_DELAYS: Mapping[LimitKind, tuple[timedelta, timedelta]] = {
    "usage": (timedelta(minutes=15), timedelta(hours=1)),
    "rate": (timedelta(seconds=30), timedelta(minutes=15)),
    "overload": (timedelta(seconds=30), timedelta(minutes=30)),
}
"""The first and the longest delay if the end of a limit is unknown; it doubles with each wait."""

_LONGEST_PAUSE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class NoWait:
    """A limit whose end is not waited for."""

    sentence: str
    """Why not; empty if waiting is disabled."""


def planned_end(
    limit: Limit, *, number: int, now: datetime, longest: timedelta | None
) -> datetime | NoWait:
    """Return the instant until which to wait for the end of a limit.

    `number` counts the waits in a row, this one included, and `longest` is the longest that may be
    waited at once. A provider that names an instant in the past, or the next second again and
    again, is given more time with each wait.
    """
    if longest == timedelta():
        return NoWait("")

    if number > MOST_WAITS:
        return NoWait(f"It waited {MOST_WAITS} times in a row, and was refused after each wait.")

    doubled = 1 << min(number - 1, 16)
    if limit.until is None:
        first, most = _DELAYS[limit.kind]
        until = now + min(first * doubled, most)
    else:
        until = max(limit.until, now + min(timedelta(seconds=1) * doubled, _LONGEST_PAUSE))

    if longest is not None and until - now > longest:
        moment = until.isoformat(timespec="seconds").replace("+00:00", "Z")
        return NoWait(f"The limit ends at {moment}, later than `hankweave run --max-wait` allows.")

    return until
