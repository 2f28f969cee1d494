"""Unified diffs: in colour on a terminal, in a pipe as they are for a pager or `patch`."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from hankweave_server.cli.output.text import console
from hankweave_server.plain_text import harmless

_STYLES = (
    ("+++", "bold"),
    ("---", "bold"),
    ("diff ", "bold"),
    ("index ", "bold"),
    ("@@", "cyan"),
    ("+", "green"),
    ("-", "red"),
    ("\\", "dim"),
)


def print_patch(patch: str) -> None:
    """Prints one file's patch; control characters in it are shown on a terminal, not obeyed."""
    if not sys.stdout.isatty():
        click.echo(patch, nl=not patch.endswith("\n"))
        return

    out = console()
    in_hunk = False
    for line in patch.removesuffix("\n").split("\n"):
        in_hunk = in_hunk or line.startswith("@@")
        out.print(Text(harmless(line), _style_of(line, in_hunk)), soft_wrap=True)


def _style_of(line: str, in_hunk: bool) -> str:
    """In a hunk a line that begins with `---` is one that went, and no file's name."""
    if in_hunk and line[:1] in ("+", "-"):
        return "green" if line[0] == "+" else "red"

    return next((style for beginning, style in _STYLES if line.startswith(beginning)), "")
