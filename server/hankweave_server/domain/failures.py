"""Failures of codons: classify the text, read the delay a provider asks for, decide what follows.

The texts are whatever agents, SDKs and providers print, so `RULES` is an ordered list of words
(Hankweave, classification). Words of a rate limit come first, because they appear together with
status codes and quotas that mean something else on their own; a bare status code comes late,
because any number may look like one. The tests have real messages for each rule.

`retry_after_ms` reads how long a provider asks to wait, from its header or its words. The text
comes from an agent and is not trusted: what cannot be parsed is ignored.

`retry_of` decides whether there is another attempt. The number of attempts is counted from the
state, so that a restart neither forgets attempts nor grants new ones (Hankweave keeps the counters
in memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from hankweave_protocol.hank import Codon, RetryConfig
from hankweave_protocol.state import FailureReason

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

_UNIT_MS = {
    "ms": 1.0,
    "s": 1000.0,
    "m": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
    "w": 604_800_000.0,
}


def retry_after_ms(text: str, now: datetime) -> int | None:
    """Return the delay in milliseconds that a text asks for; None if it has none that can be read.

    A date is compared with `now`; one in the past means no delay. More than `LONGEST_MS` is
    returned unchanged: `delay_ms` decides whether to wait for it.
    """
    if found := _MILLISECONDS.search(text):
        return round(float(found[1]))

    for found in _HEADER.finditer(text):
        waited = _of_header(found[1].strip(), now)
        if waited is not None:
            return waited

    said = _WORDS.search(text)
    return None if said is None else round(sum(milliseconds_of(*part) for part in _parts(said)))


def _of_header(value: str, now: datetime) -> int | None:
    """Parse RFC 9110, "Retry-After": seconds, or an HTTP date."""
    if number := _SECONDS.match(value):
        return round(float(number[1]) * 1000)

    moment = http_date(value)
    return None if moment is None else max(0, (moment - now) // timedelta(milliseconds=1))


def http_date(value: str) -> datetime | None:
    """Parse an HTTP date (RFC 9110), in UTC; None if it is none."""
    try:
        moment = parsedate_to_datetime(value)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _parts(said: re.Match[str]) -> list[tuple[str, str]]:
    return _PART.findall(said["span"])


def milliseconds_of(number: str, unit: str) -> float:
    """Return a span of time whose unit is a word or its abbreviation, from `ms` to weeks."""
    unit = unit.lower()
    name = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return float(number) * _UNIT_MS[name]


Kind = Literal["timeout", "rate-limit", "api-error", "unknown"]


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Words that identify one kind of failure; the advice is appended to the message."""

    kind: Kind
    retriable: bool
    words: re.Pattern[str]
    advice: str | None = None


def verbose(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of words, in which spaces are escaped."""
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


CONTEXT_FULL = verbose(
    r"""exceeded\ the\ .{0,40}output\ token\ maximum | prompt\ is\ too\ long
    | context_length_exceeded | maximum\ context\ length | context\ window\ (?:is\ )?exceed
    | exceeds?\ the\ (?:model's\ )?(?:maximum\ )?context\ (?:window|length|limit)
    | ran\ out\ of\ room\ in\ the\ model's\ context
    | input\ is\ too\ long\ for\ requested\ model | input\ token\ count\ .{0,40}exceeds
    | ^api\ error:\ terminated$"""
)
"""A model that accepts no more input (Hankweave, agent log)."""

_BEDROCK: tuple[tuple[str, str], ...] = (
    (
        r"ExpiredToken | security\ token\ included\ in\ the\ request\ is\ expired | sso\ .*expired",
        "The AWS session has expired: sign in again (aws sso login), then redo the codon.",
    ),
    (
        r"""UnrecognizedClient | InvalidClientTokenId | InvalidSignature | SignatureDoesNotMatch
        | security\ token\ included\ in\ the\ request\ is\ invalid""",
        "AWS does not recognize these credentials: check AWS_ACCESS_KEY_ID and its secret.",
    ),
    (
        r"""could\ not\ load\ credentials\ from\ any\ providers | CredentialsProviderError
        | unable\ to\ locate\ credentials | NoCredentials""",
        "There are no AWS credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID for the server.",
    ),
    (
        r"""not\ authorized\ to\ perform:?\ bedrock
        | (?:don't|do\ not)\ have\ access\ to\ the\ model | model\ access\ is\ denied
        | AccessDeniedException""",
        "AWS denies access to this model: request it in the Bedrock console, in this region.",
    ),
    (
        r"on-demand\ throughput\ isn.t\ supported | provided\ model\ identifier\ is\ invalid",
        "Bedrock has no model of this name in this region: try its inference profile.",
    ),
)

RULES: tuple[FailureRule, ...] = (
    FailureRule(
        "rate-limit",
        True,
        verbose(
            r"""rate[\ _-]?limit | too[\ _]many[\ _](?:requests|tokens) | rate\ exceeded
            | throttl(?:ed|ing) | requests?\ per\ (?:minute|second) | tokens?\ per\ minute
            | please\ retry\ in\ \d"""
        ),
    ),
    FailureRule(
        "api-error",
        False,
        verbose(
            r"""\bcredits?\b | \bbilling\b | \binsufficient(?:\b|_) | quota | \bbalance\b
            | \bbudget\b | usage\ limit | payment\ required | \b402\b | hit\ your\ .{0,20}limit"""
        ),
    ),
    *(FailureRule("api-error", False, verbose(words), advice) for words, advice in _BEDROCK),
    FailureRule("api-error", False, CONTEXT_FULL, "The agent's context was full."),
    FailureRule(
        "api-error",
        False,
        verbose(
            r"""usage\ policy | safeguards\ flagged | content[\ _-]?filter | model\ refused
            | blocked\ (?:due\ to|by)\ .{0,30}(?:safety|filter)"""
        ),
        "The model refused this prompt: try another wording or another model.",
    ),
    FailureRule("rate-limit", True, verbose(r"\b429\b | resource_?exhausted")),
    FailureRule(
        "timeout",
        True,
        verbose(r"tim(?:ed|e)[\ _-]?out | deadline[\ _]?exceeded | \b408\b | \b504\b"),
    ),
    FailureRule(
        "api-error",
        False,
        verbose(
            r"""unauthori[sz]ed | authenticat | (?:invalid|incorrect|missing|wrong)\ api\ key
            | invalid_api_key | api\ key\ (?:not|is\ not|was\ not)\ | permission[\ _]?denied
            | permission_error | oauth\ token | run\ /login | not\ logged\ in | forbidden
            | does\ not\ exist\ or\ you\ do\ not\ have\ access
            | invalid_request | bad\ request | not_found_error | model_not_found | invalid\ model
            | request[\ _]too[\ _]large | \b40[0134]\b | \b413\b | \b422\b"""
        ),
    ),
    FailureRule(
        "api-error",
        True,
        verbose(
            r"""overloaded | \bat\ capacity\b | \b5[02]\d\b | internal\ server\ error | bad\ gateway
            | unavailable | connection | network | econn\w+ | enotfound | eai_again | epipe
            | socket\ hang\ up | fetch\ failed | reset\ by\ peer | stream\ (?:ended|closed)
            | api_error | malformed\ response | (?:^|:\ )terminated\]?$
            | name\ resolution | getaddrinfo"""
        ),
    ),
)
"""In the order in which they are tried; the first that matches decides."""


def classify(
    text: str, exit_code: int, *, had_session: bool, now: datetime | None = None
) -> FailureReason:
    """Classify a failure by its text.

    Unknown text is retriable only if the agent had started a session. With `now`, the delay that
    the provider asked for is part of the reason.
    """
    said = text.strip()
    message = said or f"The agent exited with code {exit_code}."
    rule = next((rule for rule in RULES if rule.words.search(said)), None)
    if rule is None:
        return FailureReason(type="unknown", retriable=had_session, message=message)

    return FailureReason(
        type=rule.kind,
        retriable=rule.retriable,
        message=" ".join(filter(None, (message, rule.advice))),
        retry_after_ms=retry_after_ms(said, now) if rule.retriable and now is not None else None,
    )


def is_context_full(text: str) -> bool:
    """Return whether an agent's text means that its model accepts no more input."""
    return CONTEXT_FULL.search(text.strip()) is not None


DEFAULT_RETRIES = RetryConfig()


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The codon is tried again in the same run, from the files of the attempt's start."""

    attempt: int
    """The number of the next attempt: 2 after the first failure."""
    max_attempts: int
    after_ms: int


def retry_of(codon: Codon, reason: FailureReason, *, attempts: int) -> RetryDecision | None:
    """Return the next attempt of a failed codon by its failure policy; None: the run has failed.

    `attempts` counts the one that has just failed (Hankweave, failure policy and retries).
    """
    config = codon.retry_config or DEFAULT_RETRIES
    if codon.on_failure != "retry" or not reason.retriable or attempts >= config.max_attempts:
        return None

    wait = delay_ms(config, attempts, reason.retry_after_ms)
    return RetryDecision(attempts + 1, config.max_attempts, wait)


def delay_ms(config: RetryConfig, attempts: int, retry_after_ms: int | None = None) -> int:
    """Return the delay after this many failed attempts: 1, 2, 4 ... times `delayMs`.

    The provider's request takes precedence, up to an hour; `maxDelayMs` caps both.
    """
    asked = retry_after_ms
    if asked is None or asked > LONGEST_MS:
        # Without a bound on the exponent the numbers would grow without limit.
        asked = config.delay_ms * 2 ** min(max(attempts - 1, 0), 32)

    return min(max(asked, 0), config.max_delay_ms)
