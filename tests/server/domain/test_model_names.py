"""A misspelt name of a model is told from the name of a model that is not listed yet."""

from __future__ import annotations

import pytest

from hankweave_server.domain.model_names import spelling_of
from hankweave_server.hank.price_files import packaged_prices

LISTED = packaged_prices().by_name


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("claude-sonet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnett-4-5", "claude-sonnet-4-5"),
        ("sonet", "sonnet"),
        ("sonnett", "sonnet"),
        ("claud-opus-4-8", "claude-opus-4-8"),
        ("cluade-haiku-4-5", "claude-haiku-4-5"),
        ("gtp-5.4", "gpt-5.4"),
        ("gpt-5.4-minni", "gpt-5.4-mini"),
        ("gemin-2.5-flash", "gemini-2.5-flash"),
        ("google/gemini-2.5-falsh", "google/gemini-2.5-flash"),
        ("opencode/anthropic/claude-sonet-4-5", "opencode/anthropic/claude-sonnet-4-5"),
        ("anthropic/claude-hiaku-4-5-20251001", "anthropic/claude-haiku-4-5-20251001"),
    ],
)
def test_a_slip_of_the_pen_is_corrected(model: str, meant: str) -> None:
    spelling = spelling_of(model, LISTED)
    assert spelling is not None
    assert (spelling.is_misspelt, spelling.nearest) == (True, meant)


@pytest.mark.parametrize("model", ["gpt-9-nope", "claude-sonnet-19", "claude-novella-7", "o3-mini"])
def test_a_name_of_known_or_new_words_may_be_a_newer_model(model: str) -> None:
    """A list of models is older than the newest model, so this is no fault."""
    spelling = spelling_of(model, LISTED)
    assert spelling is not None
    assert not spelling.is_misspelt


@pytest.mark.parametrize(
    "model",
    [
        *("sonnet", "opus", "haiku", "Sonnet[1m]", "claude-sonnet-4.5", "claude-sonnet-4-5[1m]"),
        *("claude-sonnet-4-5-20250929", "anthropic/claude-opus-4-8", "gpt-5.4-xhigh", "flash"),
        *("amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "gpt-6-luna"),
        *("google/gemini-2.5-flash", "opencode/big-pickle", "mistral/larg", "openrouter/qwen/qwne"),
        "arn:aws:bedrock:us-east-1:1:inference-profile/x",
    ],
)
def test_a_listed_model_and_one_of_another_maker_are_not_judged(model: str) -> None:
    """Aliases, dates, efforts and additions of clouds belong to listed models."""
    assert spelling_of(model, LISTED) is None


def test_no_listed_model_is_a_slip_of_another() -> None:
    """Each is recognized, whatever the list contains."""
    assert [name for name in LISTED if spelling_of(name, LISTED) is not None] == []
