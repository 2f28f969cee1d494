"""Count what a codon's agent costs: tokens and USD, by message and by conversation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hankweave_protocol.events import TokenUsage
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import NO_TOKENS, Tokens
from hankweave_protocol.transitions import CostsIncremented, CostsUpdated
from hankweave_server.agents.base import ResultReported, UsageReported
from hankweave_server.ledger.batch import Entry


class CodonCosts:
    """The costs of one codon; counting continues through its conversations."""

    def __init__(
        self, run_id: RunId, codon_id: CodonId, price: Callable[[str, Tokens], float | None]
    ) -> None:
        """`price` returns USD for tokens of a model; None if its price is unknown."""
        self._run_id = run_id
        self._codon_id = codon_id
        self._price = price
        self._model = ""
        self._counts = False
        """True once the codon is running: usage reported before its session is not counted."""
        self._message = ("", NO_TOKENS)
        self._before: tuple[float, Tokens] = (0.0, NO_TOKENS)
        """Cost and tokens of the conversations of this codon that have ended."""
        self._spent: tuple[float, Tokens] = (0.0, NO_TOKENS)

    def carry_over(self, cost: float, tokens: Tokens) -> None:
        """Count on from what the codon had cost under an earlier server."""
        self._spent = (cost, tokens)

    def begin_conversation(self) -> None:
        self._before = self._spent
        self._message = ("", NO_TOKENS)

    def begin_session(self, model: str) -> None:
        """Count from now on, by the prices of a model."""
        self._model = model
        self._counts = True

    def count(self, usage: UsageReported) -> tuple[Entry, ...]:
        """Count the usage of a message; a later report for the same message replaces it.

        Returns the entries for the journal; none if the usage does not count.
        """
        if not self._counts:
            return ()

        message_id, before = self._message
        same = bool(message_id) and message_id == usage.message_id
        total = usage.tokens
        delta = _difference(total, before) if same else total
        self._message = (usage.message_id, total)
        cost = self._cost_of(usage.model, total) - (
            self._cost_of(usage.model, before) if same else 0
        )
        self._spent = (self._spent[0] + cost, self._spent[1] + delta)
        return (
            CostsIncremented(
                run_id=self._run_id,
                codon_id=self._codon_id,
                cost=cost,
                tokens=delta,
                messages=0 if same else 1,
            ),
            self._usage(delta, cost, usage.model),
        )

    def conclude(self, result: ResultReported) -> tuple[Entry, ...]:
        """Count what the result reports instead of what was counted; return the entries."""
        if not self._counts or (result.cost_usd is None and result.tokens is None):
            return ()

        cost, tokens = self._spent = self._total(result)
        usage = self._usage(tokens, cost, self._model)
        return (
            CostsUpdated(run_id=self._run_id, codon_id=self._codon_id, cost=cost, tokens=tokens),
            msgspec.structs.replace(
                usage, model_usage=dict(result.model_usage) or None, final=True
            ),
        )

    def _total(self, result: ResultReported) -> tuple[float, Tokens]:
        """Return the codon's cost and tokens from what the agent reports for this conversation.

        Missing values are derived: a cost from the tokens, tokens as the sum of messages.
        """
        earlier_cost, earlier_tokens = self._before
        reckoned, tokens = self._spent
        if result.tokens is not None:
            tokens = earlier_tokens + result.tokens

        if result.cost_usd is not None:
            return earlier_cost + result.cost_usd, tokens

        if reckoned == earlier_cost:
            # No message had a price: an agent that reports only at its end.
            return earlier_cost + self._cost_of(self._model, tokens), tokens

        return reckoned, tokens

    def _cost_of(self, model: str, tokens: Tokens) -> float:
        """Return USD by the price list; 0 for a model that is not in it."""
        return self._price(model or self._model, tokens) or 0.0

    def _usage(self, tokens: Tokens, cost: float, model: str) -> TokenUsage:
        return TokenUsage(
            codon_id=self._codon_id,
            input_tokens=tokens.input_tokens,
            output_tokens=tokens.output_tokens,
            cache_creation_tokens=tokens.cache_creation_tokens,
            cache_read_tokens=tokens.cache_read_tokens,
            total_cost=cost,
            model_id=model or None,
        )


def _difference(after: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        cache_creation_tokens=after.cache_creation_tokens - before.cache_creation_tokens,
        cache_read_tokens=after.cache_read_tokens - before.cache_read_tokens,
    )
