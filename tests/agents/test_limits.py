"""Each agent's usage and rate limits are waited for, and its conversation continues."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from hankweave_protocol.events import CodonResumed, CodonWaiting
from hankweave_protocol.instants import from_text
from hankweave_protocol.state import CompletedCodon
from support.invariants import Acknowledged, violations
from support.models.turns import Refuses, Says, Writes
from support.real_agents import Grounds, Kind, assert_no_secrets, processes_of
from support.running_server import journal, running_server, state, tree
from support.scripted_hank import write_hank
from support.watching import events_of

DEADLINE = 240.0
SECONDS = {"opencode": 110}
"""From the start of a test to the end of its limit; OpenCode retries for about a minute."""

Refusal = Callable[[float], Refuses]


def anthropic(until: float) -> Refuses:
    """Return the end of an allowance of five hours, as subscribers of Claude meet it."""
    reset = str(round(until))
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": reset,
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-5h-status": "rejected",
        "anthropic-ratelimit-unified-5h-reset": reset,
        "anthropic-ratelimit-unified-5h-utilization": "1.0",
    }
    error = {"type": "rate_limit_error", "message": "This request would exceed your limit."}
    return Refuses(until, 429, lambda: {"type": "error", "error": error}, headers)


def codex(until: float) -> Refuses:
    error = {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "pro",
        "resets_at": round(until),
    }
    used = {
        "x-codex-primary-used-percent": "100.0",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(round(until)),
    }
    return Refuses(until, 429, lambda: {"error": error}, used)


def openai(until: float) -> Refuses:
    """Return a rate limit without Retry-After, because OpenCode sleeps for that by itself."""

    def body() -> dict[str, Any]:
        error = {
            "message": f"Rate limit reached. Please try again in {left(until)}s.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        return {"error": error}

    return Refuses(until, 429, body)


def gemini(until: float) -> Refuses:
    def body() -> dict[str, Any]:
        delay = f"{left(until)}s"
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        error = {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "message": f"You exceeded your current quota. Please retry in {delay}.",
            "details": [retry],
        }
        return {"error": error}

    return Refuses(until, 429, body)


def left(until: float) -> int:
    return max(1, math.ceil(until - time.time()))


LIMITS: Mapping[str, tuple[Refusal, str]] = {
    "stand-in": (anthropic, "rate"),
    "claude": (anthropic, "usage"),
    "codex": (codex, "usage"),
    "opencode": (openai, "rate"),
    "gemini": (gemini, "rate"),
}


@pytest.mark.timeout(2 * DEADLINE)
async def test_a_conversation_continues_after_its_limit(grounds: Grounds, kind: Kind) -> None:
    """The agent writes a file, meets its limit, ends, and goes on where it was when it is over.

    It makes no request between the first refusals and the end of the limit.
    """
    if not kind.is_real:
        pytest.skip("only real agents report limits in their own ways")

    refusal, reason = LIMITS[kind.name]
    until = time.time() + SECONDS.get(kind.name, 45)
    script = grounds.endpoint.script
    script.add(Writes(grounds.work_tree / "a.txt", "a\n", saying="I write a.txt."))
    script.add(refusal(until))
    script.add(Writes(grounds.work_tree / "b.txt", "b\n", saying="I write b.txt."), Says("Done."))
    hank = write_hank(grounds.folder / "hank", grounds.codon("one", kind, "Write two files."))
    environment: dict[str, Any] = {**grounds.environment, **_login(kind)}
    _forget_retries(grounds)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=environment
    ) as server:
        with anyio.fail_after(DEADLINE):
            assert await server.process.wait() == 0, server.output[-5:]

    (run,) = state(grounds.execution).runs
    (one,) = run.codons
    assert isinstance(one, CompletedCodon)
    assert tree(grounds.work_tree) == {"a.txt": b"a\n", "b.txt": b"b\n"}
    waits = events_of(grounds.execution, CodonWaiting)
    assert {each.reason for each in waits} == {reason}, waits
    last = from_text(waits[-1].until).timestamp()
    assert until - 1 <= last <= until + 62, (last - until, waits)
    resumed = [event for event in journal(grounds.execution) if event.type == CodonResumed.TYPE]
    assert 0 <= from_text(resumed[-1].timestamp).timestamp() - last < 5
    request = grounds.endpoint.turns[-1].asked
    assert request is not None
    assert "I write a.txt." in request.shown  # The conversation is the same.
    assert_no_secrets(grounds)
    assert processes_of(grounds.execution) == []
    assert violations(grounds.execution, Acknowledged()) == []


def _forget_retries(grounds: Grounds) -> None:
    """Remove what other tests set for Gemini CLI, so that the server's own setting counts."""
    path = grounds.folder / "home" / ".gemini" / "settings.json"
    if path.exists():
        settings = json.loads(path.read_text())
        del settings["general"]["maxAttempts"]
        path.write_text(json.dumps(settings))


def _login(kind: Kind) -> dict[str, str]:
    """Return what makes Claude Code a subscriber's: only then has it an allowance."""
    if kind.name != "claude":
        return {}

    return {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": kind.key}
