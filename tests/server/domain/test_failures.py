"""Classification of failures by the messages that providers and agents print."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hankweave_server.domain.failures import RULES, classify, is_context_full

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)

MESSAGES: dict[tuple[str, bool], list[str]] = {
    ("rate-limit", True): [
        (
            'API Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"This '
            "request would exceed your organization's rate limit of 40,000 input tokens per "
            'minute."}}'
        ),
        (
            "Rate limit reached for gpt-5.5 in organization org-x on tokens per min (TPM): Limit "
            "30000, Used 29000, Requested 2000. Please try again in 2s."
        ),
        "429 Too Many Requests",
        "exceeded retry limit, last status: 429 Too Many Requests",
        "Rate limit reached for your credit tier",
        "ThrottlingException: Too many tokens, please wait before trying again.",
        "ThrottlingException: Rate exceeded",
        (
            "429 RESOURCE_EXHAUSTED. You exceeded your current quota, please check your plan and "
            "billing details. Quota exceeded for metric: generate_content_free_tier_requests, "
            "limit: 10. Please retry in 33.573245s."
        ),
        "status 429",
    ],
    ("api-error", False): [
        # Billing.
        "Credit balance is too low",
        (
            "Error code: 429 - {'error': {'message': 'You exceeded your current quota, please "
            "check your plan and billing details.', 'type': 'insufficient_quota'}}"
        ),
        "insufficient_quota",
        "Claude AI usage limit reached|1763740800",
        "You've hit your session limit · resets 3pm",
        "402 Payment Required",
        "Quota exceeded. Check your plan and billing details.",
        "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
        # AWS: nothing changes until a user acts.
        "UnrecognizedClientException: The security token included in the request is invalid.",
        "ExpiredTokenException: The security token included in the request is expired",
        "Could not load credentials from any providers",
        "AccessDeniedException: You don't have access to the model with the specified model ID.",
        "User: arn:aws:iam::1:user/x is not authorized to perform: bedrock:InvokeModel",
        (
            "ValidationException: Invocation of model ID anthropic.claude-x with on-demand "
            "throughput isn't supported. Retry your request with the ID of an inference profile."
        ),
        # A full context: the same prompt is as long next time.
        "Prompt is too long",
        (
            "Error code: 400 - {'error': {'message': \"This model's maximum context length is "
            "400000 tokens.\", 'code': 'context_length_exceeded'}}"
        ),
        "API Error: terminated",
        (
            "API Error: Claude's response exceeded the 32000 output token maximum. To configure "
            "this behavior, set the CLAUDE_CODE_MAX_OUTPUT_TOKENS environment variable."
        ),
        # A refusal by the model.
        (
            "API Error: Sonnet 5.5's safeguards flagged this message. This sometimes happens with "
            "safe, normal conversations. Claude Code can't respond to this message with Sonnet 5.5."
        ),
        (
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
            "Please try again with a different prompt."
        ),
        "The response was blocked by the provider's content filter",
        "The model response was blocked due to safety settings.",
        "The model refused to continue (refusal).",
        # Keys and malformed requests.
        "Invalid API key · Please run /login",
        "Authentication failed: 401",
        (
            "API Error: 401 "
            '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
        ),
        "OAuth token has been revoked",
        "Error code: 403 - Forbidden",
        "HTTP 400 bad request",
        "API Error: 404 not_found_error: model: claude-nonesuch",
        "413 request_too_large",
        "unexpected status 401 Unauthorized: Incorrect API key provided: sk-x., url: http://x/v1",
        "The model `sonnet` does not exist or you do not have access to it.",
    ],
    ("timeout", True): [
        "API Error: Request timed out.",
        "connection timeout",
        "connect ETIMEDOUT 160.79.104.10:443",
        "504 Deadline Exceeded",
    ],
    ("api-error", True): [
        'API Error: 529 {"type":"overloaded_error","message":"Overloaded"}',
        "Overloaded",
        "Selected model is at capacity. Please try a different model.",
        "stream disconnected before completion: stream closed before response.completed",
        "Connection failed: error sending request",
        "503 Service Unavailable",
        "API Error: 500 Internal server error",
        "502 Bad Gateway",
        "ECONNRESET: connection reset by peer",
        "getaddrinfo EAI_AGAIN api.example.com",
        "TypeError: fetch failed",
        (
            "API Error: API returned an empty or malformed response (HTTP 200) — check for a proxy "
            "or gateway intercepting the request."
        ),
        "[API Error: terminated]",
        "terminated",
        "connect ECONNREFUSED 127.0.0.1:443, connection refused",
        "socket hang up",
    ],
    ("unknown", True): [
        "port 14010 is fine, the tests are not",
        "AssertionError: 5290 != 5291",
        "the parentheses are unbalanced",
        "",
    ],
}
"""Messages by the kind of failure, and whether a retry can help."""

CASES = [(text, *verdict) for verdict, texts in MESSAGES.items() for text in texts]


@pytest.mark.parametrize(("text", "kind", "retriable"), CASES, ids=lambda each: str(each)[:40])
def test_a_text_determines_the_kind_of_a_failure(text: str, kind: str, retriable: bool) -> None:
    """Rate limits, servers and networks are retriable; money, keys and permissions are not."""
    reason = classify(text, 1, had_session=True)
    assert (reason.type, reason.retriable) == (kind, retriable)
    assert reason.message is not None
    assert text in reason.message


def test_every_rule_has_a_message_of_its_own() -> None:
    """Each rule matches a real message, so that no rule is a guess."""
    reached = set()
    for text, _, _ in CASES:
        found = [number for number, rule in enumerate(RULES) if rule.words.search(text)]
        reached |= set(found[:1])

    assert reached == set(range(len(RULES)))


def test_an_unknown_failure_is_retried_only_with_a_session() -> None:
    """An agent that failed before its session started would fail again."""
    assert not classify("nonsense", 1, had_session=False).retriable
    assert classify("Overloaded", 1, had_session=False).retriable


def test_a_failure_without_words_says_its_exit_code() -> None:
    """A failure without a message gets one that names its exit code."""
    assert classify("  ", 139, had_session=False).message == "The agent exited with code 139."


def test_the_message_says_what_to_do_about_aws() -> None:
    """The original message stays, and the advice follows it."""
    message = classify("The security token included in the request is expired", 1, had_session=True)
    assert message.message is not None
    assert message.message.endswith("sign in again (aws sso login), then redo the codon.")


def test_what_the_provider_asks_to_wait_is_part_of_the_reason() -> None:
    """The delay is added only if a retry can help and the time is known."""
    text = "429 Too Many Requests\nRetry-After: Sat, 21 Nov 2026 12:00:20 GMT"
    assert classify(text, 1, had_session=True, now=NOW).retry_after_ms == 20_000
    assert classify(text, 1, had_session=True).retry_after_ms is None
    permanent = "Usage limit reached, try again in 5 minutes"
    assert classify(permanent, 1, had_session=True, now=NOW).retry_after_ms is None


@pytest.mark.parametrize(
    ("text", "is_full"),
    [
        ("Prompt is too long", True),
        ("API Error: terminated", True),
        ("  API Error: terminated\n", True),
        ("The process said API Error: terminated, and went on", False),
        ("exceeded the 32000 output token maximum", True),
        ("context_length_exceeded", True),
        (
            "Codex ran out of room in the model's context window. Start a new thread or clear "
            "earlier history before retrying.",
            True,
        ),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed", True),
        ("Rate limit reached", False),
        ("", False),
    ],
)
def test_a_full_context_is_known_by_its_words(text: str, is_full: bool) -> None:
    """The wording of Claude Code, OpenAI, Google and Bedrock is recognised."""
    assert is_context_full(text) is is_full
