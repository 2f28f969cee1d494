"""Text for people: untrusted text on a terminal, and numbers with their nouns."""

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


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`; `more` is an irregular plural."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def acted_on(number: int, one: str, more: str = "", *, is_preview: bool = False) -> str:
    """Return `1 file was`, `2 files were`, or if it has not been done yet, `2 files would be`."""
    verb = "would be" if is_preview else "was" if number == 1 else "were"
    return f"{counted(number, one, more)} {verb}"
