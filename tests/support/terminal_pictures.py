"""Pictures of a command's output on a terminal of a given width, drawn by rich."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest
from rich.console import Console
from rich.text import Text


class _Terminal(io.StringIO):
    """A stdout that passes for a terminal, and keeps what is printed."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(draw: Callable[[], None], columns: int, monkeypatch: pytest.MonkeyPatch) -> Text:
    """Return what a function prints on a terminal; fail if a line is longer than that is wide."""
    with monkeypatch.context() as patch, redirect_stdout(_Terminal()) as terminal:
        for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
            patch.delenv(name, raising=False)

        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TZ", "UTC")
        draw()

    text = Text.from_ansi(terminal.getvalue().rstrip("\n"))
    for line in text.plain.splitlines():
        assert Text(line).cell_len <= columns, line

    return text


def picture(title: str, text: Text, columns: int) -> str:
    """Return an SVG of the text below the command that printed it; ids do not depend on it."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {title}", "bold"))
    console.print(text, no_wrap=True, overflow="crop")
    return console.export_svg(title=title, unique_id=title.split()[1])
