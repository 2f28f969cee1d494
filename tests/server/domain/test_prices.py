"""Prices: a listed model is found under each of its names, and no price is guessed."""

from __future__ import annotations

import msgspec
import pytest

from hankweave_protocol.state import NO_TOKENS, Tokens
from hankweave_server.domain.costs import PriceFile, Prices, parse, price_list
from hankweave_server.hank.price_files import PACKAGED

MILLION = Tokens(
    input_tokens=1_000_000,
    output_tokens=1_000_000,
    cache_creation_tokens=1_000_000,
    cache_read_tokens=1_000_000,
)
PACKAGED_FILE = parse(PACKAGED.read_bytes())
PRICES = price_list([PACKAGED_FILE])


def a_file(**models: object) -> PriceFile:
    return parse(msgspec.json.encode({"models": models}))


def test_a_price_is_the_sum_of_four_kinds_of_tokens() -> None:
    """Each kind of token has its own rate, in USD per million."""
    assert PRICES.price_of("anthropic/claude-sonnet-4-5", MILLION) == 3 + 15 + 3.75 + 0.3
    assert PRICES.price_of("anthropic/claude-sonnet-4-5", NO_TOKENS) == 0


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5",
        "anthropic/claude-opus-4-5",
        "Anthropic/Claude-Opus-4-5",
        "claude-opus-4-5-20251101",
        "anthropic/claude-opus-4-5-20251101",
        "claude-opus-4-5@20251101",
        "claude-opus-4-5[1m]",
        "anthropic.claude-opus-4-5-20251101-v1:0",
        "us.anthropic.claude-opus-4-5-20251101-v1:0",
        "bedrock/us.anthropic.claude-opus-4-5-20251101-v1:0",
        "openrouter/anthropic/claude-opus-4-5",
    ],
)
def test_a_model_is_found_under_all_its_names(name: str) -> None:
    """Programs add provider, date, region and version to a name in different ways."""
    assert PRICES.model(name) == PACKAGED_FILE.models["anthropic/claude-opus-4-5"]


@pytest.mark.parametrize("name", ["", "claude", "claude-opus", "claude-opus-4-5-turbo", "grok-9"])
def test_an_unknown_model_has_no_price(name: str) -> None:
    """An unknown price differs from a price of zero."""
    assert PRICES.price_of(name, MILLION) is None
    assert Prices({}).price_of("claude-opus-4-5", MILLION) is None


def test_a_short_name_means_the_newest_of_its_kind() -> None:
    """Aliases such as `sonnet` are part of the price data."""
    assert PRICES.model("sonnet") == PACKAGED_FILE.models["anthropic/claude-sonnet-5-5"]


def test_a_long_prompt_has_rates_of_its_own() -> None:
    """The long rates apply to the whole message if its prompt, cached or not, is longer."""
    file = a_file(
        m={"input": 1, "output": 2, "longPrompt": {"aboveTokens": 5, "input": 10, "output": 20}}
    )
    prices = price_list([file])
    short = Tokens(input_tokens=3, output_tokens=9, cache_creation_tokens=1, cache_read_tokens=1)
    long = Tokens(input_tokens=3, output_tokens=9, cache_creation_tokens=1, cache_read_tokens=2)
    assert prices.price_of("m", short) == pytest.approx((5 + 18) / 1e6)
    assert prices.price_of("m", long) == pytest.approx((60 + 180) / 1e6)


def test_a_kind_without_a_price_costs_as_input() -> None:
    """Missing rates are overestimated, so that a budget holds."""
    prices = price_list([a_file(m={"input": 3, "output": 1})])
    assert prices.price_of("m", MILLION) == 3 + 1 + 3 + 3


def test_a_persons_own_price_counts() -> None:
    """A user's price replaces a model's, under any of its names, and adds new models."""
    own = parse(
        b'{"models": {"anthropic/claude-opus-4-5": {"input": 1, "output": 1, "aliases": ["opus"]},'
        b' "local/llama": {"input": 0, "output": 0}}}'
    )
    prices = price_list([PACKAGED_FILE, own])
    for name in ("anthropic/claude-opus-4-5", "claude-opus-4-5", "opus"):
        assert prices.price_of(name, MILLION) == 4, name

    assert prices.price_of("llama", MILLION) == 0
    assert prices.model("haiku") == PRICES.model("haiku")


def test_a_bare_name_in_ones_own_list_goes_before_all() -> None:
    """Users need not know our name of the provider."""
    prices = price_list([PACKAGED_FILE, a_file(sonnet={"input": 7, "output": 7})])
    assert prices.price_of("sonnet", MILLION) == 28


def test_the_first_provider_is_meant_by_a_bare_name() -> None:
    """A second provider with the same model does not change the meaning of the bare name."""
    one, two = {"input": 1, "output": 1}, {"input": 2, "output": 2}
    prices = price_list([a_file(**{"a/m": one, "b/m": two})])
    assert prices.price_of("m", MILLION) == 4
    assert prices.price_of("b/m", MILLION) == 8


def test_the_packaged_list_can_be_trusted() -> None:
    """The packaged list has a date, and no alias names two models."""
    assert PACKAGED_FILE.as_of
    assert PACKAGED_FILE.sources
    names = [name for model in PACKAGED_FILE.models.values() for name in model.aliases]
    names += [name.rpartition("/")[2] for name in PACKAGED_FILE.models]
    assert len(names) == len(set(names))
    for name, model in PACKAGED_FILE.models.items():
        assert model.input < model.output, name
        assert (model.cache_read or 0) <= model.input, name


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"models": {"m": {"input": -1, "output": 1}}}', "$.models[...].input"),
        (b'{"models": {"m": {"input": 1}}}', "$.models[...]"),
        (b'{"models": {"m": {"input": 1, "output": 1, "inptu": 1}}}', "$.models[...]"),
        (b'{"prices": {}}', "prices"),
    ],
)
def test_a_wrong_list_says_where(text: bytes, path: str) -> None:
    """Misspelt keys and impossible prices are errors with their place."""
    with pytest.raises(msgspec.ValidationError, match=r".") as fault:
        parse(text)

    assert path in str(fault.value)
