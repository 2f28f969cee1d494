"""What the program's streams are: terminals that can be drawn on, or files and pipes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000
"""Nobody's screen: in a pipe no line is folded and no name cut."""


def can_be_drawn_on(stream: TextIO | None = None) -> bool:
    """Tells whether a stream (stdout if it is none else) is a terminal that can be drawn on."""
    is_terminal = (stream or sys.stdout).isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def can_ask() -> bool:
    """Say whether a person sees our questions and can answer them."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def console() -> Console:
    """Makes what draws on stdout: in colour on a terminal, if NO_COLOR does not say otherwise."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Prints a line; its style is for a terminal alone."""
    if style and sys.stdout.isatty():
        from rich.text import Text

        console().print(Text(text, style), soft_wrap=True)
    else:
        click.echo(text)
