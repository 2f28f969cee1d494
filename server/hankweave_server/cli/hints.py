"""Hints of the server as a person at a shell can use them.

A refusal's hint speaks to programs, in the words of the wire: "send codon.forceStop". Here the same
hint names the command to paste: "run `hankweave stop`". What has no wire name in it stays as it is.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from hankweave_server.local.targeting import is_default

_PHRASES: Final[tuple[tuple[str, str], ...]] = (
    (r"Wait for codon\.started", "Wait until the codon has started"),
    (r"Wait for codon\.completed", "Wait until the codon has ended"),
    (r"Wait for rollback\.completed", "Wait until the rollback has ended"),
    (r"rollback\.completed says so", "`hankweave log` says so"),
    (r"see the rollback\.failed event", "`hankweave log` tells why it failed"),
    (r"server\.recovered tells when to send the command again", "then run the command again"),
    (r"send the command again", "run the command again"),
    (r"permission\.resolved says how", "`hankweave log` says how"),
    (r"send codon\.skip or codon\.forceStop", "run `hankweave skip` or `hankweave stop`"),
    (r"codon\.redo", "`hankweave retry`"),
    (r"codon\.skip", "`hankweave skip`"),
    (r"codon\.forceStop", "`hankweave stop`"),
    (r"codon\.next", "`hankweave next`"),
    (r"rollback\.toCheckpoint", "`hankweave rollback --to SHA`"),
    (r"rollback\.toCodon", "`hankweave rollback --codon CODON`"),
    (r"rollback\.toLastSuccess", "`hankweave rollback`"),
    (r"rollback\.undo", "`hankweave undo`"),
    (r"rollback\.redo", "`hankweave redo`"),
    (r"rollback\.preview", "`hankweave preview`"),
    (r"checkpoint\.list", "`hankweave checkpoints`"),
    (r"replay\.view", "`hankweave replay SHA --tree`"),
    (r"store\.fsck", "`hankweave fsck`"),
    (r"store\.gc", "`hankweave gc`"),
    (r"onRunning: stop", "--stop"),
    (r"onRunning: pause", "--pause"),
    (r"rewindMemory", "--rewind-memory"),
    (r"autoRestart", "--restart"),
    (r"maxAgeSeconds", "--max-age"),
    (r"maxCount", "--max-count"),
    (r"maxBytes", "--max-bytes"),
    (r"Leave out paths", "Leave out --path"),
    (r"or leave paths out", "or leave --path out"),
    (r"\bsinceSeq\b", "--since"),
)


def for_a_person(hint: str | None, root: Path | None = None) -> str | None:
    """Return a hint with commands in place of wire names.

    The commands name the execution `root`, unless they would mean it anyway.
    """
    if hint is None:
        return None

    for pattern, words in _PHRASES:
        hint = re.sub(pattern, words, hint)

    return hint if root is None else _aimed(hint, root)


def command(words: str, root: Path) -> str:
    """Return a command line that means the execution `root`, between backquotes."""
    return f"`hankweave {words}{_option(root)}`"


def _aimed(hint: str, root: Path) -> str:
    option = _option(root)
    return re.sub(r"`(hankweave [^`]+)`", lambda found: f"`{found[1]}{option}`", hint)


def _option(root: Path) -> str:
    return "" if is_default(root) else f" -e {shlex.quote(str(root))}"
