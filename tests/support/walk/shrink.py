"""Find a small script that still goes wrong in the same way, by leaving out acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from support.walk.acts import Act, Round

GoesWrong = Callable[[Sequence[Round]], Awaitable[bool]]


async def shrunk(rounds: Sequence[Round], goes_wrong: GoesWrong, tries: int) -> list[Round]:
    """Return the smallest script that was found with so many further walks; an act is a round."""
    acts = [act for round_ in rounds for act in round_]
    left = tries

    async def still(candidate: Sequence[Act]) -> bool:
        nonlocal left
        left -= 1
        return await goes_wrong([(act,) for act in candidate])

    size = len(acts)
    while size := size // 2:
        at = 0
        while at < len(acts) and left > 0:
            candidate = acts[:at] + acts[at + size :]
            if candidate and await still(candidate):
                acts = candidate
            else:
                at += size

    for at in range(len(acts)):
        progresses = True
        while progresses:
            progresses = False
            for smaller in _smaller(acts[at]):
                if left > 0 and await still([*acts[:at], smaller, *acts[at + 1 :]]):
                    acts[at], progresses = smaller, True
                    break

    return [(act,) for act in acts]


def _smaller(act: Any) -> Iterator[Any]:
    """Yield the act with one of its parts left out, or made smaller."""
    for field in fields(act):
        value = getattr(act, field.name)
        if isinstance(value, tuple) and all(map(is_dataclass, value)):
            for at in range(len(value)):
                yield replace(act, **{field.name: (*value[:at], *value[at + 1 :])})
        elif is_dataclass(value):
            for smaller in _smaller(value):
                yield replace(act, **{field.name: smaller})
        elif value is True:
            yield replace(act, **{field.name: False})
