"""A model's name selects the agent that runs it, and the name given to that agent."""

from __future__ import annotations

import pytest

from hankweave_server.domain.model_routes import (
    Route,
    is_of_another_maker,
    routes_of,
    suggestion_for,
)
from hankweave_server.hank.price_files import packaged_prices

CLAUDE = [
    ("sonnet", "sonnet"),
    ("Opus", "opus"),
    ("haiku", "haiku"),
    ("sonnet[1m]", "sonnet[1m]"),
    ("claude", "default"),
    ("claude-sonnet", "sonnet"),
    ("anthropic/haiku", "haiku"),
    ("anthropic/claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
    ("claude-opus-4-1", "claude-opus-4-1"),
    ("claude-sonnet-4.5", "claude-sonnet-4-5"),
    ("sonnet-4.5", "claude-sonnet-4-5"),
    ("opus 4", "claude-opus-4"),
    ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5[1m]"),
    ("claude-3-5-haiku-latest", "claude-3-5-haiku-latest"),
]


@pytest.mark.parametrize(("model", "called"), CLAUDE)
def test_anthropics_models_are_claude_codes(model: str, called: str) -> None:
    """Claude models are matched by family, alias or id, with or without their provider."""
    assert routes_of(model) == (Route("claude", called),)


@pytest.mark.parametrize(
    "model",
    [
        "amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-3-haiku-20240307-v1:0",
        "arn:aws:bedrock:us-east-1:1:inference-profile/x",
    ],
)
def test_claude_on_bedrock_is_claude_codes_too(model: str) -> None:
    """Claude Code is told to use Bedrock; the id is passed unchanged."""
    called = model.removeprefix("amazon-bedrock/")
    assert routes_of(model) == (Route("claude", called, on_bedrock=True),)


@pytest.mark.parametrize(
    ("model", "route"),
    [
        ("gpt-5.2", Route("codex", "gpt-5.2")),
        ("openai/gpt-5.2", Route("codex", "gpt-5.2")),
        ("o3-mini", Route("codex", "o3-mini")),
        ("o4-mini", Route("codex", "o4-mini")),
        ("gpt-5-codex", Route("codex", "gpt-5-codex")),
        ("codex-mini-latest", Route("codex", "codex-mini-latest")),
        ("codex/gpt-5", Route("codex", "gpt-5")),
        ("codex", Route("codex", "")),
        ("gpt-5.2-xhigh", Route("codex", "gpt-5.2", effort="xhigh")),
        ("gemini-3-pro-preview", Route("gemini", "gemini-3-pro-preview")),
        ("google/gemini-2.5-flash", Route("gemini", "gemini-2.5-flash")),
        ("gemini", Route("gemini", "")),
        ("flash", Route("gemini", "gemini-3.8-flash")),
        ("google/flash", Route("gemini", "gemini-3.8-flash")),
    ],
)
def test_openais_and_googles_models_go_to_their_makers_agents(model: str, route: Route) -> None:
    """The provider is dropped, since these agents have one; an effort suffix is a setting."""
    assert routes_of(model) == (route,)


@pytest.mark.parametrize(
    ("model", "routes"),
    [
        ("opencode/anthropic/claude-x", [Route("opencode", "anthropic/claude-x")]),
        ("opencode/big-pickle", [Route("opencode", "opencode/big-pickle")]),
        ("pi/openai/gpt-5.4", [Route("pi", "openai/gpt-5.4"), Route("opencode", "openai/gpt-5.4")]),
        ("mistral/large", [Route("opencode", "mistral/large"), Route("pi", "mistral/large")]),
        (
            "openrouter/anthropic/claude-x",
            [
                Route("opencode", "openrouter/anthropic/claude-x"),
                Route("pi", "openrouter/anthropic/claude-x"),
            ],
        ),
        ("GLM-5.2", [Route("pi", "zai/glm-5.2"), Route("opencode", "zai/glm-5.2")]),
        ("zhipuai/glm-4", [Route("pi", "zai/glm-4"), Route("opencode", "zai/glm-4")]),
    ],
)
def test_other_providers_are_reached_by_agents_of_many(model: str, routes: list[Route]) -> None:
    """Agents are listed in order of preference; `opencode/` and `pi/` select the agent."""
    assert list(routes_of(model)) == routes


@pytest.mark.parametrize("model", ["llama", "my-model", "", "  ", "antropic/claude-x", "openai/"])
def test_a_name_that_says_nothing_leads_to_no_agent(model: str) -> None:
    assert routes_of(model) == ()


def test_the_short_name_of_a_model_has_the_price_of_its_full_name() -> None:
    """The short name and the price list name the same model."""
    (route,) = routes_of("flash")
    assert packaged_prices().model("flash") is not None
    assert packaged_prices().model("flash") is packaged_prices().model(route.model)


def test_a_misspelt_maker_is_recognised() -> None:
    """The names of other providers do not count as misspellings."""
    assert suggestion_for("antropic/claude-x") == "anthropic/claude-x"
    assert suggestion_for("open-ai/gpt-5") == "openai/gpt-5"
    assert suggestion_for("openrouter/x") is None
    assert suggestion_for("llama") is None


def test_only_a_model_that_is_known_to_be_anothers_is_held_against_an_agent() -> None:
    assert is_of_another_maker("gpt-5", "claude")
    assert is_of_another_maker("sonnet", "codex")
    assert not is_of_another_maker("my-own-model", "claude")
    assert not is_of_another_maker("gpt-5", "codex")
    assert not is_of_another_maker("sonnet", "opencode")
