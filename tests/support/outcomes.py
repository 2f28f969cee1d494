"""The outcome of a call that may be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def outcome(error: type[E], call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | E:
    """Return the call's result, or the one error it may raise; any other one is a bug."""
    try:
        return call(*args, **kwargs)
    except error as raised:
        return raised
