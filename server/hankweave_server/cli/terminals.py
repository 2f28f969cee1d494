"""What the program's streams are: terminals that can be drawn on, or files and pipes."""

from __future__ import annotations

import os
import sys
from typing import TextIO

PIPE_WIDTH = 10_000
"""Nobody's screen: in a pipe no line is folded and no name cut."""


def can_be_drawn_on(stream: TextIO | None = None) -> bool:
    """Tells whether a stream (stdout if it is none else) is a terminal that can be drawn on."""
    is_terminal = (stream or sys.stdout).isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
