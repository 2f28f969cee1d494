"""Data that is given as text: `--input TEXT`, or `-` for what comes on stdin (Hankweave's `-i`).

The text becomes a file whose name is a hash of it, so that the same text is the same data and the
execution is found again.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from hankweave_server import fsutil
from hankweave_server.errors import ExitCode, Stop

CACHE = Path("~/.hankweave-cache/inputs")
STDIN = Path("-")


def of_text(text: str) -> Path:
    """Return the file that holds a text from the command line."""
    return _stored(text.encode("utf-8", "surrogateescape"), "input")


def of_stdin() -> Path:
    """Return the file that holds what came on stdin; raise Stop if nobody writes there."""
    if sys.stdin.isatty():
        raise Stop(
            "There is nothing on stdin.",
            ExitCode.NO_INPUT,
            hint='Write into it, as in `echo "some text" | hankweave hank.json -`.',
        )

    return _stored(sys.stdin.buffer.read(), "stdin")


def _stored(content: bytes, kind: str) -> Path:
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = CACHE.expanduser() / f"{kind}-{digest}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written once: its time is part of what the execution is found by.
    if not path.exists():
        fsutil.replace_durably(path, content)

    return path
