"""What kind of failure a text tells of, and whether trying again can help.

The texts are whatever agents, SDKs and providers print, so this is a list of words in an order, and
the order decides (Hankweave, classification): words of a rate limit go first, because they come
with status codes and quotas that mean something else alone; a status code alone comes late, because
any number may be one. Each rule has its real messages in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hankweave_protocol.state import FailureReason
from hankweave_server.domain.retry_after import retry_after_ms

Kind = Literal["timeout", "rate-limit", "api-error", "unknown"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Words that tell of one kind of failure; the advice is added to what was said."""

    kind: Kind
    retriable: bool
    words: re.Pattern[str]
    advice: str | None = None


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


CONTEXT_FULL = _words(
    r"""exceeded\ the\ .{0,40}output\ token\ maximum | prompt\ is\ too\ long
    | context_length_exceeded | maximum\ context\ length | context\ window\ (?:is\ )?exceed
    | exceeds?\ the\ (?:model's\ )?(?:maximum\ )?context\ (?:window|length|limit)
    | ran\ out\ of\ room\ in\ the\ model's\ context
    | input\ is\ too\ long\ for\ requested\ model | input\ token\ count\ .{0,40}exceeds
    | ^api\ error:\ terminated$"""
)
"""A model that takes no more (Hankweave, agent log)."""

_BEDROCK: tuple[tuple[str, str], ...] = (
    (
        r"ExpiredToken | security\ token\ included\ in\ the\ request\ is\ expired | sso\ .*expired",
        "The AWS session has expired: sign in again (aws sso login), then redo the codon.",
    ),
    (
        r"""UnrecognizedClient | InvalidClientTokenId | InvalidSignature | SignatureDoesNotMatch
        | security\ token\ included\ in\ the\ request\ is\ invalid""",
        "AWS does not know these credentials: check AWS_ACCESS_KEY_ID and its secret.",
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
        "AWS denies access to this model: ask for it in the Bedrock console, in this region.",
    ),
    (
        r"on-demand\ throughput\ isn.t\ supported | provided\ model\ identifier\ is\ invalid",
        "Bedrock does not have this model under this name here: try its inference profile.",
    ),
)

RULES: tuple[Rule, ...] = (
    Rule(
        "rate-limit",
        True,
        _words(
            r"""rate[\ _-]?limit | too[\ _]many[\ _](?:requests|tokens) | rate\ exceeded
            | throttl(?:ed|ing) | requests?\ per\ (?:minute|second) | tokens?\ per\ minute
            | please\ retry\ in\ \d"""
        ),
    ),
    Rule(
        "api-error",
        False,
        _words(
            r"""\bcredits?\b | \bbilling\b | \binsufficient(?:\b|_) | quota | \bbalance\b
            | \bbudget\b | usage\ limit | payment\ required | \b402\b | hit\ your\ .{0,20}limit"""
        ),
    ),
    *(Rule("api-error", False, _words(words), advice) for words, advice in _BEDROCK),
    Rule("api-error", False, CONTEXT_FULL, "The agent's context was full."),
    Rule(
        "api-error",
        False,
        _words(
            r"""usage\ policy | safeguards\ flagged | content[\ _-]?filter | model\ refused
            | blocked\ (?:due\ to|by)\ .{0,30}(?:safety|filter)"""
        ),
        "The model refused this prompt: another wording, or another model, may help.",
    ),
    Rule("rate-limit", True, _words(r"\b429\b | resource_?exhausted")),
    Rule(
        "timeout",
        True,
        _words(r"tim(?:ed|e)[\ _-]?out | deadline[\ _]?exceeded | \b408\b | \b504\b"),
    ),
    Rule(
        "api-error",
        False,
        _words(
            r"""unauthori[sz]ed | authenticat | (?:invalid|incorrect|missing|wrong)\ api\ key
            | invalid_api_key | api\ key\ (?:not|is\ not|was\ not)\ | permission[\ _]?denied
            | permission_error | oauth\ token | run\ /login | not\ logged\ in | forbidden
            | does\ not\ exist\ or\ you\ do\ not\ have\ access
            | invalid_request | bad\ request | not_found_error | model_not_found | invalid\ model
            | request[\ _]too[\ _]large | \b40[0134]\b | \b413\b | \b422\b"""
        ),
    ),
    Rule(
        "api-error",
        True,
        _words(
            r"""overloaded | \bat\ capacity\b | \b5[02]\d\b | internal\ server\ error | bad\ gateway
            | unavailable | connection | network | econn\w+ | enotfound | eai_again | epipe
            | socket\ hang\ up | fetch\ failed | reset\ by\ peer | stream\ (?:ended|closed)
            | api_error | malformed\ response | (?:^|:\ )terminated\]?$
            | name\ resolution | getaddrinfo"""
        ),
    ),
)
"""In the order in which they are asked; the first whose words are there decides."""


def classify(
    text: str, exit_code: int, *, had_session: bool, now: datetime | None = None
) -> FailureReason:
    """Reads the kind of a failure from what was said.

    Text that nobody knows is retriable only where the agent had got as far as a session. With
    `now`, what the provider asked to wait is part of the reason.
    """
    said = text.strip()
    message = said or f"The agent exited with code {exit_code}."
    rule = next((rule for rule in RULES if rule.words.search(said)), None)
    if rule is None:
        return FailureReason(type="unknown", retriable=had_session, message=message)

    return FailureReason(
        type=rule.kind,
        retriable=rule.retriable,
        message=" ".join(_sentences(message, rule.advice)),
        retry_after_ms=retry_after_ms(said, now) if rule.retriable and now is not None else None,
    )


def is_context_full(text: str) -> bool:
    """Tells whether an agent's words mean that its model takes no more."""
    return CONTEXT_FULL.search(text.strip()) is not None


def _sentences(message: str, advice: str | None) -> Iterator[str]:
    yield message
    if advice is not None:
        yield advice
