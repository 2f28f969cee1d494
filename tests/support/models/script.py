"""Hand out the turns of a script, one for each request that continues the agent's work."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from support.models.dialect import Asked
from support.models.turns import Fails, Refuses, Says, Turn

NOTHING_MORE = Says("The script has no more turns.")


class Script:
    """Turns in order; a trouble stays first for its number of requests."""

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self._turns = deque(turns)
        self._by_words: dict[str, deque[Turn]] = {}
        self._guard = threading.Lock()
        self.has_run_over = False
        """True after a request for which the test has no turn."""

    def add(self, *turns: Turn) -> None:
        with self._guard:
            self._turns.extend(turns)

    def on(self, words: str, *turns: Turn) -> None:
        """Add turns that only a conversation in which these words came last gets."""
        with self._guard:
            self._by_words.setdefault(words, deque()).extend(turns)

    def relent(self) -> None:
        """Refuse no more: the limit is over earlier than its provider said."""
        with self._guard:
            for turns in self._queues():
                while turns and isinstance(turns[0], Refuses):
                    turns.popleft()

    @property
    def is_done(self) -> bool:
        """Return True if only endless troubles are left."""
        with self._guard:
            left = [turn for turns in self._queues() for turn in turns]
            return all(isinstance(turn, Fails) and turn.times is None for turn in left)

    def next(self, shown: str) -> Turn:
        """Return the turn for a model that receives this conversation."""
        with self._guard:
            turns = self._turns_for(shown)
            while turns and isinstance(turns[0], Refuses) and turns[0].until <= time.time():
                turns.popleft()

            if not turns:
                self.has_run_over = True
                return NOTHING_MORE

            turn = turns[0]
            match turn:
                case Fails(times=None) | Refuses():
                    pass
                case Fails(times=int(times)) if times > 1:
                    turns[0] = replace(turn, times=times - 1)
                case _:
                    turns.popleft()

            return turn

    def _queues(self) -> Iterator[deque[Turn]]:
        yield self._turns
        yield from self._by_words.values()

    def _turns_for(self, shown: str) -> deque[Turn]:
        matching = [words for words in self._by_words if words in shown]
        return self._by_words[max(matching, key=shown.rfind)] if matching else self._turns


def is_aside(asked: Asked) -> bool:
    """Return True for requests for titles, summaries and quotas, which offer the model no tools."""
    return not asked.tools
