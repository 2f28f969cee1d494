"""What an ACP agent's answers amount to: its abilities, its offer, and how a turn ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from acp.meta import AGENT_METHODS

from hankweave_server.agents.acp.json_lines import Message, as_list, as_object, as_text

_KEYS: Mapping[str, tuple[str, ...]] = {
    "gemini-api-key": ("GEMINI_API_KEY",),
    "vertex-ai": ("GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"),
    "openai-api-key": ("OPENAI_API_KEY",),
    "codex-api-key": ("CODEX_API_KEY",),
}
"""Ways to authenticate that need no person, by the variables of which one has to be there."""

STOPPED = {
    "max_tokens": "The answer exceeded the model's output token maximum (max_tokens).",
    "max_turn_requests": "The agent stopped: it had asked its model as often as a turn allows "
    "(max_turn_requests).",
    "refusal": "The model refused to go on (refusal).",
    "cancelled": "The agent's turn was cancelled.",
}
"""Why a turn ended that did not end well; the first as every reader knows a full model."""

WORDLESS = "The turn ended without a word or a call: perhaps the model refused this prompt."
"""Gemini CLI says no more than that of a prompt that was blocked."""


def resuming(abilities: Message, forks: bool) -> str:
    """The method that takes up an earlier session; empty if there is none."""
    within = as_object(abilities.get("sessionCapabilities"))
    if forks and isinstance(within.get("fork"), dict):
        return AGENT_METHODS["session_fork"]

    if isinstance(within.get("resume"), dict):
        return AGENT_METHODS["session_resume"]

    return AGENT_METHODS["session_load"] if abilities.get("loadSession") is True else ""


def fitting(methods: list[Any]) -> Iterator[str]:
    """The ways to authenticate for which the environment has what they need."""
    for each in methods:
        match each:
            case {"id": str() as name, "type": "env_var", "vars": [_, *_] as variables}:
                needed = [as_object(one) for one in variables]
                if all(_is_set(as_text(one.get("name"))) or one.get("optional") for one in needed):
                    yield name
            case {"id": str() as name} if any(_is_set(key) for key in _KEYS.get(name, ())):
                yield name


def _is_set(variable: str) -> bool:
    return bool(variable and os.environ.get(variable))


def unauthenticated(message: str, methods: list[Any]) -> str:
    offered = ", ".join(named(methods, "id")) or "none"
    return (
        f"Not authenticated: {message} Give it a key in the environment, or log in with the agent "
        f"itself first. Its ways to authenticate: {offered}."
    )


def option(offer: Message, category: str) -> Message:
    for each in as_list(offer.get("configOptions")):
        match each:
            case {"category": str() as found, "type": "select"} if found == category:
                return dict(each)

    return {}


def options(offer: Message, category: str) -> list[str]:
    """The values of a setting, out of their groups where they are in groups."""
    values: list[str] = []
    for each in as_list(option(offer, category).get("options")):
        grouped = as_object(each).get("options")
        values += named(grouped if isinstance(grouped, list) else [each], "value")

    return values


def named(entries: Any, name: str) -> list[str]:
    found = [as_text(as_object(each).get(name)) for each in as_list(entries)]
    return [each for each in found if each]


def match_of(wanted: str, offered: list[str]) -> str | None:
    """The model of that name, or the only one of that name at any provider."""
    if wanted in offered:
        return wanted

    same = [each for each in offered if each.rpartition("/")[2] == wanted]
    return same[0] if len(same) == 1 else None


def usage_of(answer: Message) -> Message:
    """Tokens of the turn, as the protocol has them or as Gemini CLI says them."""
    usage = as_object(answer.get("usage"))
    if usage:
        return {
            "usage": {
                "input_tokens": usage.get("inputTokens"),
                "output_tokens": usage.get("outputTokens"),
                "cache_creation_input_tokens": usage.get("cachedWriteTokens"),
                "cache_read_input_tokens": usage.get("cachedReadTokens"),
            }
        }

    quota = as_object(as_object(answer.get("_meta")).get("quota"))
    counts = as_object(quota.get("token_count"))
    if not counts:
        return {}

    by_model = {
        as_text(each.get("model")): _in_camel(as_object(each.get("token_count")))
        for each in map(as_object, as_list(quota.get("model_usage")))
    }
    return {"usage": counts, "modelUsage": by_model}


def _in_camel(counts: Message) -> Message:
    return {"inputTokens": counts.get("input_tokens"), "outputTokens": counts.get("output_tokens")}


def cost_of(before: float | None, after: float | None) -> Message:
    """What this conversation cost: the agent tells what its whole session has.

    Of a resumed session that told none before, it cannot be known; tokens are priced then.
    """
    if before is None or after is None:
        return {}

    return {"total_cost_usd": max(after - before, 0.0)}
