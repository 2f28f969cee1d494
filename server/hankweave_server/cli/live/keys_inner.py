"""Keys as a terminal sends them, by their names."""

from __future__ import annotations

from collections.abc import Iterator

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
}
_LETTERS = {"\r": "enter", "\n": "enter", "k": "up", "j": "down", "\x04": "q"}


def keys_of(text: str) -> Iterator[str]:
    """Gives the keys in what was read at once; other sequences than ours are no key at all."""
    while text:
        key, text = _first(text)
        if key is not None:
            yield key


def _first(text: str) -> tuple[str | None, str]:
    for sequence, name in _SEQUENCES.items():
        if text.startswith(sequence):
            return name, text[len(sequence) :]

    if text[0] != "\x1b":
        return _LETTERS.get(text[0], text[0]), text[1:]

    if text[1:2] in ("[", "O"):
        return None, _after_sequence(text[2:])

    return "escape", text[1:]


def _after_sequence(text: str) -> str:
    """Passes over the rest of a control sequence, which a letter or `~` ends."""
    for at, letter in enumerate(text):
        if "@" <= letter <= "~":
            return text[at + 1 :]

    return ""
