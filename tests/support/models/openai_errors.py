"""OpenAI's error responses, the same for both of its protocols."""

from __future__ import annotations

import json

from support.models.dialect import Body, Reply
from support.models.turns import Trouble

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream; charset=utf-8"}

_TROUBLES = {
    Trouble.RATE_LIMIT: (
        429,
        "Rate limit reached for this model in organization org-x on tokens per min (TPM): "
        "Limit 30000, Used 29000, Requested 2000. Please try again in 1s.",
        "tokens",
        "rate_limit_exceeded",
    ),
    Trouble.OVERLOAD: (
        503,
        "The engine is currently overloaded, please try again later",
        "server_error",
        None,
    ),
    Trouble.BILLING: (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
        "insufficient_quota",
    ),
    Trouble.WRONG_KEY: (
        401,
        "Incorrect API key provided. You can find your API key in your account.",
        "invalid_request_error",
        "invalid_api_key",
    ),
    Trouble.REFUSAL: (
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
        "Please try again with a different prompt.",
        "invalid_request_error",
        "invalid_prompt",
    ),
    Trouble.CONTEXT_FULL: (
        400,
        "Your input exceeds the context window of this model. "
        "Please adjust your input and try again.",
        "invalid_request_error",
        "context_length_exceeded",
    ),
}

_PASSING = (Trouble.RATE_LIMIT, Trouble.OVERLOAD)


def error_of(trouble: Trouble) -> Body | None:
    if (found := _TROUBLES.get(trouble)) is None:
        return None

    _, message, kind, code = found
    return {"message": message, "type": kind, "param": None, "code": code}


def refusal(trouble: Trouble) -> Reply | None:
    if (error := error_of(trouble)) is None:
        return None

    status = _TROUBLES[trouble][0]
    waits = {"retry-after": "1", "retry-after-ms": "20"} if trouble in _PASSING else {}
    return Reply(status, (json.dumps({"error": error}).encode(),), JSON | waits)
