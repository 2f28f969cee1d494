"""What an agent answers: the text of its result, else its last message, else what it printed."""

from __future__ import annotations

from hankweave_protocol.state import Captured

LIMIT = 64 * 1024
"""Characters of an answer that go into the state; the codon's log has all of it."""


class Answer:
    """The answer of one conversation, as far as it has been heard."""

    def __init__(self) -> None:
        self._said = ""
        self._printed: list[str] = []
        self._printed_characters = 0
        self._result = ""

    def said(self, text: str) -> None:
        self._said = text or self._said

    def printed(self, line: str) -> None:
        """Adds a line of a program that does not speak in messages; beyond the limit it is lost."""
        if self._printed_characters <= LIMIT:
            self._printed.append(line)
            self._printed_characters += len(line) + 1

    def concluded(self, text: str) -> None:
        self._result = text

    def captured_as(self, name: str) -> Captured:
        """Gives the answer as a variable's value."""
        text = self._result or self._said or "\n".join(self._printed)
        return Captured(name=name, value=text[:LIMIT], truncated=len(text) > LIMIT)
