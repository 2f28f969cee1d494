"""Keep the messages of a conversational sentinel: `history/{sentinelId}-codon-{codonId}.json`.

The file has `turns` and `metadata`. Hankweave's own format, a list of messages, is read as well.
The file is replaced atomically after each exchange, so a crash leaves the previous version.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never

from hankweave_protocol.sentinels import MaxTokens, MaxTurns
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.sentinels.providers.base import Message
from hankweave_server.sentinels.providers.scripted import CHARACTERS_PER_TOKEN

INVALID_SHARE = 0.2
"""A file in which a larger share of entries is not a message is set aside, as in Hankweave."""

LARGEST_FILE = 64 * 1024 * 1024


class ConversationDamaged(Exception):
    """A conversation could not be parsed; its file is kept under another name."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: Literal["user", "assistant"]
    content: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer; trimming never separates them."""

    question: Turn
    answer: Turn

    @property
    def tokens(self) -> int:
        return self.question.tokens + self.answer.tokens


class SentinelConversation:
    """The exchanges of one sentinel in one codon; its methods block."""

    def __init__(
        self,
        path: Path,
        trimming: MaxTurns | MaxTokens,
        *,
        persists: bool,
        clean: Callable[[str], str] = str,
    ) -> None:
        """`clean` removes secrets from a turn."""
        self._path = path
        self._trimming = trimming
        self._persists = persists
        self._clean = clean
        self._exchanges: tuple[Exchange, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that precede the next question, oldest first."""
        return tuple(
            Message(turn.role, turn.content)
            for exchange in self._exchanges
            for turn in (exchange.question, exchange.answer)
        )

    def load(self, aside: str) -> None:
        """Read the conversation of an earlier run of the codon.

        A file that cannot be parsed is renamed with the suffix `aside`; the conversation is then
        empty, and ConversationDamaged is raised.
        """
        try:
            if self._path.stat().st_size > LARGEST_FILE:
                raise ValueError("it is too large")

            turns = _turns(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return
        except (ValueError, RecursionError) as error:
            kept = self._path.with_name(f"{self._path.name}.corrupt-{aside}")
            self._path.rename(kept)
            raise ConversationDamaged(
                f"{self._path.name} cannot be read ({error}); it is kept as {kept.name}."
            ) from None

        self._exchanges = self._trimmed(tuple(_paired(turns)))

    def add(self, question: str, answer: str, *, answered: int | None = None) -> None:
        """Add an exchange, trim, and write the file; unknown token counts are estimated."""
        question, answer = self._clean(question), self._clean(answer)
        exchange = Exchange(
            Turn("user", question, _estimated(question)),
            Turn("assistant", answer, answered or _estimated(answer)),
        )
        self._exchanges = self._trimmed((*self._exchanges, exchange))
        if self._persists:
            make_private_directory(self._path.parent)
            replace_durably(self._path, self._encoded())

    def _trimmed(self, exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        match self._trimming:
            case MaxTurns(max_turns=count):
                return exchanges[-count:]
            case MaxTokens(max_tokens=limit):
                return _within(exchanges, limit)
            case other:
                assert_never(other)

    def _encoded(self) -> bytes:
        turns = [
            {"role": turn.role, "content": turn.content, "tokenCount": turn.tokens}
            for exchange in self._exchanges
            for turn in (exchange.question, exchange.answer)
        ]
        match self._trimming:
            case MaxTurns(max_turns=count):
                metadata: dict[str, Any] = {"trimStrategy": "maxTurns", "maxTurns": count}
            case MaxTokens(max_tokens=limit):
                metadata = {"trimStrategy": "maxTokens", "maxTokens": limit}
            case other:
                assert_never(other)

        whole = {"turns": turns, "metadata": metadata}
        return json.dumps(whole, indent=2, ensure_ascii=False).encode("utf-8", "replace")


def _within(exchanges: tuple[Exchange, ...], limit: int) -> tuple[Exchange, ...]:
    kept, tokens = 0, 0
    for exchange in reversed(exchanges):
        tokens += exchange.tokens
        if tokens > limit:
            break

        kept += 1

    return exchanges[len(exchanges) - kept :]


def _turns(whole: Any) -> list[Turn]:
    """Parse the current format, Hankweave's, and its older list of plain messages."""
    entries = whole.get("turns") if isinstance(whole, dict) else whole
    if not isinstance(entries, list):
        raise ValueError("it has no turns")

    turns = [turn for entry in entries if (turn := _turn(entry)) is not None]
    if len(entries) - len(turns) > INVALID_SHARE * len(entries):
        raise ValueError(f"{len(entries) - len(turns)} of {len(entries)} entries are not messages")

    return turns


def _turn(entry: Any) -> Turn | None:
    if not isinstance(entry, dict):
        return None

    message = entry.get("message", entry)
    match message:
        case {"role": ("user" | "assistant") as role, "content": str(content)}:
            count = entry.get("tokenCount", entry.get("tokens"))
            return Turn(role, content, count if isinstance(count, int) else _estimated(content))
        case _:
            return None


def _paired(turns: list[Turn]) -> Iterator[Exchange]:
    """Pair questions with their answers; a question without an answer is dropped."""
    for first, second in itertools.pairwise(turns):
        if first.role == "user" and second.role == "assistant":
            yield Exchange(first, second)


def _estimated(content: str) -> int:
    return max(1, len(content) // CHARACTERS_PER_TOKEN)
