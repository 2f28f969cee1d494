"""Token counts in the order in which agents report them."""

from __future__ import annotations

from hankweave_protocol.state import Tokens


def counts(given: int = 0, answered: int = 0, cached: int = 0, from_cache: int = 0) -> Tokens:
    return Tokens(
        input_tokens=given,
        output_tokens=answered,
        cache_creation_tokens=cached,
        cache_read_tokens=from_cache,
    )
