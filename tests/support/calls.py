"""Functions that a test replaces: their calls are noted, or fail as a system call does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import pytest


def noted(patch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple[Any, ...]]:
    """Pass the calls of a function on; return the list of their positional arguments."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return real(*arguments, **named)

    patch.setattr(owner, name, call)
    return calls


def failing(number: int) -> Callable[..., NoReturn]:
    """Return a function that fails with this errno, whatever its arguments are."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail
