"""Costs and prices: what an execution has cost, and what a model's tokens cost.

A codon's own cost and that of its sentinels are two numbers everywhere in the state, so they are
two here; a run's cost and the total include both. The total leaves nothing out: work that a
rollback discarded was paid for as well. (`budget.spending` defines what budgets count.)

Prices are data, never code: the packaged list has a date, and a user can lay a file of the same
shape over it. A model that no list contains has no price, which is different from a price of 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from hankweave_protocol.shapes import Value
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PreparingCodon,
    Run,
    SentinelState,
    SkippedCodon,
    State,
    Tokens,
)
from hankweave_server.domain.lifecycle import cost_of, sentinel_cost_of

_Item = TypeVar("_Item")


class _Sum(Generic[_Item]):
    """The sum of a tuple whose beginning rarely changes; the last sum is cached.

    Every event that counts a cost needs the total, and all codons but one are unchanged.
    """

    def __init__(self, cost: Callable[[_Item], float]) -> None:
        self._cost = cost
        self._known: tuple[tuple[_Item, ...], float] = ((), 0.0)

    def of(self, items: tuple[_Item, ...]) -> float:
        known, total = self._known  # Read and replaced as one value: worker threads call this too.
        if items[: len(known)] != known:
            known, total = (), 0.0

        if len(items) > len(known):
            total = sum(map(self._cost, items[len(known) :]), total)
            self._known = (items, total)

        return total


def sentinels_of(codon: CodonExecution) -> tuple[SentinelState, ...]:
    """Return the sentinels of a codon in any state."""
    match codon:
        case PreparingCodon():
            return ()
        case CompletedCodon() | FailedCodon() | SkippedCodon():
            return codon.sentinels.executed
        case _:
            return codon.sentinels.loaded


def run_cost(run: Run) -> float:
    """Return the cost of a run in USD: its codons and their sentinels."""
    return _earlier_codons.of(run.codons[:-1]) + sum(map(dollars_of, run.codons[-1:]))


def total_cost(state: State) -> float:
    """Return the cost of the execution in USD: every codon of every run, sentinels included."""
    return _earlier_runs.of(state.runs[:0:-1]) + sum(map(run_cost, state.runs[:1]))


def dollars_of(codon: CodonExecution) -> float:
    """Return the cost of an execution in USD, with its sentinels."""
    return cost_of(codon) + sentinel_cost_of(codon)


def _full_cost(run: Run) -> float:
    return sum(map(dollars_of, run.codons))


_earlier_codons = _Sum(dollars_of)
_earlier_runs = _Sum(_full_cost)


PER = 1_000_000
"""Prices are per this many tokens."""

_WRAPPING = re.compile(
    r"^(?:(?:[a-z]+\.)?(?:anthropic|amazon|meta|openai)\.)|(?:-v\d+)?:\d+$|\[\w+\]$|@\w+$"
)
"""Additions by clouds and programs to a name: `us.anthropic.`, `-v1:0`, `[1m]`, `@20250929`."""

_DATE = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")

Dollars = Annotated[float, Meta(ge=0)]


class Rates(Value, forbid_unknown_fields=True, kw_only=True):
    """USD per million tokens of each kind; a cache kind without a price costs as input."""

    input: Dollars
    output: Dollars
    cache_write: Dollars | None = None
    cache_read: Dollars | None = None

    def cost_of(self, tokens: Tokens) -> float:
        write = self.input if self.cache_write is None else self.cache_write
        read = self.input if self.cache_read is None else self.cache_read
        millionths = (
            tokens.input_tokens * self.input
            + tokens.output_tokens * self.output
            + tokens.cache_creation_tokens * write
            + tokens.cache_read_tokens * read
        )
        return millionths / PER


class LongPrompt(Rates, forbid_unknown_fields=True, kw_only=True):
    """The rates of a whole message whose prompt is longer than `above_tokens`."""

    above_tokens: Annotated[int, Meta(ge=1)]


class ModelPrice(Rates, forbid_unknown_fields=True, kw_only=True):
    """One model's rates and its other names."""

    long_prompt: LongPrompt | None = None
    aliases: tuple[str, ...] = ()

    def price_of(self, tokens: Tokens) -> float:
        prompt = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
        is_long = self.long_prompt is not None and prompt > self.long_prompt.above_tokens
        rates = self.long_prompt if is_long and self.long_prompt is not None else self
        return rates.cost_of(tokens)


class PriceFile(Value, forbid_unknown_fields=True):
    """The shape of prices.json, packaged or a user's own."""

    models: dict[str, ModelPrice]
    """By `provider/model`, or by a bare name."""
    as_of: str = ""
    """The day on which the prices were looked up."""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list, indexed by name."""

    by_name: Mapping[str, ModelPrice]

    def model(self, name: str) -> ModelPrice | None:
        """Return a model by its full name, bare name, alias, or a name with a date suffix."""
        return next((self.by_name[key] for key in _keys(name) if key in self.by_name), None)

    def price_of(self, model: str, tokens: Tokens) -> float | None:
        """Return the price of one message in USD; None for a model that no list contains.

        A long prompt may have rates of its own, so price each message, not their sum.
        """
        found = self.model(model)
        return None if found is None else found.price_of(tokens)


def price_list(files: Iterable[PriceFile]) -> Prices:
    """Merge price files: a later one overrides an earlier one.

    A name that a file gives, as a key or an alias, takes precedence over one that results from
    leaving out the provider; if two providers have a model of the same bare name, the first wins.
    """
    given: dict[str, ModelPrice] = {}
    bare: dict[str, ModelPrice] = {}
    for file in files:
        own: dict[str, ModelPrice] = {}
        for name, price in file.models.items():
            given |= {each.lower(): price for each in (name, *price.aliases)}
            own.setdefault(name.lower().rpartition("/")[2], price)

        bare |= own

    return Prices(bare | given)


def parse(content: bytes) -> PriceFile:
    """Parse a price file; raise msgspec.ValidationError with the JSON path, or DecodeError."""
    return msgspec.json.decode(content, type=PriceFile)


def _keys(name: str) -> Iterable[str]:
    """Yield the names under which a model may be listed, the closest first."""
    full = name.strip().lower()
    yield full
    bare = full.rpartition("/")[2]
    yield bare
    while (plain := _WRAPPING.sub("", bare)) != bare:
        bare = plain
        yield bare

    yield _DATE.sub("", full)
    yield _DATE.sub("", bare)
