"""Every form in which a provider refuses a real agent leads to a wait with the right instant.

The forms are those of each provider's interface. What its program makes of them (an event, a
sentence with a local time, an exit code) is what the server has to understand. None of the instants
is awaited: a client starts the codon as soon as it waits, and the provider relents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from hankweave_protocol.commands import CodonStart
from hankweave_protocol.events import CodonResumed, CodonWaiting, ServerIdle
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text
from hankweave_protocol.state import CompletedCodon
from support.models.turns import Refuses, Says, Writes
from support.real_agents import KINDS, Grounds, Kind
from support.running_server import journal, running_server, state, tree
from support.scripted_hank import write_hank
from support.watching import events_of

DEADLINE = 300.0
FAR = 30_000.0
"""Seconds until the end of a limit that a provider names."""

HOUR = 3600.0

Body = Mapping[str, Any]
Headers = Mapping[str, str]


@dataclass(frozen=True)
class Form:
    """A refusal as a provider sends it, and the wait that follows."""

    kind: str
    name: str
    status: int
    body: Callable[[float], Body]
    """Returns the body for a limit that ends at an epoch."""
    reason: str
    delay: float
    """Seconds from now to the end of the wait."""
    headers: Callable[[float], Headers] = field(default=lambda until: {})
    environment: Headers = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def _unified(claim: str, window: str) -> Callable[[float], Headers]:
    """Return the headers with which Anthropic refuses a subscriber."""
    prefix = "anthropic-ratelimit-unified"

    def headers(until: float) -> Headers:
        return {
            f"{prefix}-status": "rejected",
            f"{prefix}-reset": str(round(until)),
            f"{prefix}-representative-claim": claim,
            f"{prefix}-{window}-status": "rejected",
            f"{prefix}-{window}-reset": str(round(until)),
            f"{prefix}-{window}-utilization": "1.0",
        }

    return headers


def _anthropic(kind: str, message: str) -> Callable[[float], Body]:
    return lambda until: {"type": "error", "error": {"type": kind, "message": message}}


def _openai(code: str, message: str, **more: Any) -> Callable[[float], Body]:
    error = {"message": message, "type": code, "param": None, "code": code, **more}
    return lambda until: {"error": error}


def _codex(until: float | None = None) -> Callable[[float], Body]:
    def body(end: float) -> Body:
        error: dict[str, Any] = {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "pro",
        }
        return {"error": error | ({} if until is None else {"resets_at": round(end)})}

    return body


def _google(status: str, code: int, message: str, *details: Body) -> Callable[[float], Body]:
    error = {"code": code, "status": status, "message": message, "details": list(details)}
    return lambda until: {"error": error}


_LIMITED = _anthropic("rate_limit_error", "This request would exceed your limit.")
_SUBSCRIBER = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "subscriber"}
_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "400s"}
_DAILY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
}

FORMS = (
    *(
        Form("claude", claim, 429, _LIMITED, "usage", FAR, _unified(claim, window), _SUBSCRIBER)
        for claim, window in (
            ("five_hour", "5h"),
            ("seven_day", "7d"),
            ("seven_day_opus", "7d"),
            ("seven_day_sonnet", "7d"),
        )
    ),
    Form("claude", "rate", 429, _LIMITED, "rate", 30),
    Form("claude", "overload", 529, _anthropic("overloaded_error", "Overloaded"), "overload", 30),
    Form("claude", "outage", 503, _anthropic("api_error", "Unavailable"), "overload", 30),
    Form("codex", "usage", 429, _codex(FAR), "usage", FAR),
    Form("codex", "usage without end", 429, _codex(), "usage", 900),
    Form(
        "codex",
        "rate",
        429,
        _openai("rate_limit_exceeded", "Rate limit reached for requests."),
        "rate",
        30,
    ),
    Form("codex", "outage", 503, _openai("server_error", "Overloaded"), "overload", 30),
    Form(
        "gemini",
        "rate",
        429,
        _google("RESOURCE_EXHAUSTED", 429, "Quota exceeded. Please retry in 400s.", _RETRY),
        "rate",
        400,
    ),
    Form(
        "gemini",
        "daily quota",
        429,
        _google("RESOURCE_EXHAUSTED", 429, "Quota exceeded: requests per day.", _DAILY),
        "usage",
        900,
    ),
    Form(
        "gemini",
        "outage",
        503,
        _google("UNAVAILABLE", 503, "The model is overloaded. Please try again later."),
        "overload",
        30,
    ),
    Form(
        "opencode",
        "rate",
        429,
        _openai("rate_limit_exceeded", "Rate limit reached. Please try again in 400s."),
        "rate",
        400,
    ),
    Form("opencode", "outage", 503, _openai("server_error", "Overloaded"), "overload", 30),
)


def _kind_of(form: Form) -> Kind:
    return next(kind for kind in KINDS if kind.name == form.kind)


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize(
    ("kind", "form"), [(_kind_of(form), form) for form in FORMS], ids=map(str, FORMS)
)
async def test_a_refused_agent_waits_and_goes_on(grounds: Grounds, kind: Kind, form: Form) -> None:
    """The codon waits for the end that the provider named, and the conversation continues."""
    until = time.time() + form.delay
    script = grounds.endpoint.script
    script.add(Writes(grounds.work_tree / "a.txt", "a\n", saying="I write a.txt."))
    headers = form.headers(until)
    script.add(Refuses(until + HOUR, form.status, lambda: form.body(until), headers))
    script.add(Writes(grounds.work_tree / "b.txt", "b\n", saying="I write b.txt."), Says("Done."))
    codon = grounds.codon("one", kind, "Write two files.")
    hank = write_hank(grounds.folder / "hank", codon)
    environment = {**grounds.environment, **form.environment}
    async with (
        running_server(hank, None, grounds.execution, env=environment) as server,
        server.client(since_seq=0) as client,
    ):
        with anyio.fail_after(DEADLINE):
            waiting = await client.until(CodonWaiting)
            met = from_text(waiting.timestamp).timestamp()
            assert isinstance(waiting.data, CodonWaiting)
            assert waiting.data.reason == form.reason, waiting
            planned = from_text(waiting.data.until).timestamp()
            first = min(until, met + form.delay)
            assert first - 2 <= planned <= met + form.delay + 62, (planned - met, waiting)
            script.relent()
            await client.send(CodonStart(codon_id=CodonId("one")))
            await client.until(
                ServerIdle,
                lambda event: getattr(event.data, "reason", None) == "all-codons-completed",
                timeout=DEADLINE,
            )

    (run,) = state(grounds.execution).runs
    (one,) = run.codons
    assert isinstance(one, CompletedCodon)
    assert tree(grounds.work_tree) == {"a.txt": b"a\n", "b.txt": b"b\n"}
    assert len(events_of(grounds.execution, CodonWaiting)) == 1
    (resumed,) = (e.data for e in journal(grounds.execution) if e.type == CodonResumed.TYPE)
    assert isinstance(resumed, CodonResumed)
    assert resumed.by == "command"
    request = grounds.endpoint.turns[-1].asked
    assert request is not None
    assert "I write a.txt." in request.shown  # The conversation is the same.
