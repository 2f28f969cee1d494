"""Untrusted text on a terminal."""

from __future__ import annotations


def one_line(text: str) -> str:
    r"""Escape control characters instead of sending them to the terminal: ESC as `\x1b`.

    C0, C1, DEL, marks that change the direction, and bytes that are not UTF-8 are escaped; spaces
    of every kind, newlines included, become plain spaces.
    """
    return "".join(map(_harmless, text))


def _harmless(letter: str) -> str:
    if letter.isprintable():
        return letter

    return (
        " " if letter in "\n\r\t" or (letter.isspace() and ord(letter) > 0x9F) else _escaped(letter)
    )


def _escaped(letter: str) -> str:
    return repr(letter)[1:-1]


def printable(text: str) -> str:
    """Escape control characters in names instead of sending them to the terminal."""
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def harmless(text: str) -> str:
    """Escape control characters except tabs and newlines, in text of many lines."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
