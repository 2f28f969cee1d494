"""Hints in the words of the terminal: commands and options in place of wire names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from hankweave_server.local.targeting import is_default

_PHRASES: Final[tuple[tuple[str, str], ...]] = (
    (r"`executions\.list` has the paths", "`hankweave ls` lists executions"),
    (r"Wait for codon\.started", "Wait until the codon has started"),
    (r"Wait for codon\.completed", "Wait until the codon has ended"),
    (r"Wait for rollback\.completed", "Wait until the rollback has ended"),
    (r"rollback\.completed confirms it", "`hankweave log` confirms it"),
    (r"see the rollback\.failed event", "`hankweave log` shows why it failed"),
    (r"send the command again after server\.recovered", "run the command again"),
    (r"send the command again", "run the command again"),
    (r"permission\.resolved shows how", "`hankweave log` shows how"),
    (r"send codon\.skip or codon\.forceStop", "run `hankweave skip` or `hankweave stop`"),
    (
        r"restart the server to complete (it|the rollback)",
        r"complete \1 with `hankweave stop --server`, then `hankweave run`",
    ),
    (r"codon\.redo", "`hankweave retry`"),
    (r"codon\.skip", "`hankweave skip`"),
    (r"codon\.forceStop", "`hankweave stop`"),
    (r"codon\.next", "`hankweave next`"),
    (r"exploration\.show", "`hankweave attempts`"),
    (r"with onConflict `ours` or `theirs`", "with --ours or --theirs"),
    (r"rollback\.toCheckpoint", "`hankweave rollback --to SHA`"),
    (r"rollback\.toCodon", "`hankweave rollback --codon CODON`"),
    (r"rollback\.toLastSuccess", "`hankweave rollback`"),
    (r"rollback\.undo", "`hankweave undo`"),
    (r"rollback\.redo", "`hankweave redo`"),
    (r"rollback\.preview", "`hankweave rollback --preview`"),
    (r"checkpoint\.list", "`hankweave checkpoints`"),
    (r"replay\.view", "`hankweave replay SHA --tree`"),
    (r"store\.fsck with repair: true \((`[^`]+`)\)", r"\1"),
    (r"store\.fsck", "`hankweave fsck`"),
    (r"store\.gc", "`hankweave gc`"),
    (r"onRunning: stop", "--stop"),
    (r"onRunning: pause", "--pause"),
    (r"rewindMemory", "--rewind-memory"),
    (r"as `good` and `bad`", "with --good and --bad"),
    (r"as `(good|bad)`", r"with --\1"),
    (r"keepEdits: true", "--keep-edits"),
    (r"autoRestart", "--restart"),
    (r"maxAgeSeconds", "--max-age"),
    (r"maxCount", "--max-count"),
    (r"maxBytes", "--max-bytes"),
    (r"Leave out paths", "Leave out --path"),
    (r"or leave paths out", "or leave --path out"),
    (r"\bsinceSeq\b", "--since"),
)

_WITHOUT_EXECUTION: Final = frozenset(
    {"ls", "agents", "init", "validate", "config", "help", "demo", "completion"}
)
_NAMES_EXECUTION: Final = frozenset({"-e", "--execution", "-w", "--workspace", "--new"})


def for_a_person(hint: str | None, root: Path | None = None) -> str | None:
    """Return a hint with commands in place of wire names.

    The commands name the execution `root`, unless it is the default.
    """
    if hint is None:
        return None

    hint = with_commands(hint)
    return hint if root is None else _aimed(hint, root)


def with_commands(text: str) -> str:
    """Return a text with commands and their options in place of wire names."""
    for pattern, words in _PHRASES:
        text = re.sub(pattern, words, text)

    return text


def command(words: str, root: Path) -> str:
    """Return a command line for the execution `root`, in backquotes."""
    return f"`hankweave {words}{_option(root)}`"


def _aimed(hint: str, root: Path) -> str:
    option = _option(root)

    def aimed(found: re.Match[str]) -> str:
        _, verb, *words = found[1].split()
        if verb in _WITHOUT_EXECUTION or not _NAMES_EXECUTION.isdisjoint(words):
            return found[0]

        if verb == "run":  # Without the option, it may begin a new execution.
            return f"`{found[1]} -e {shlex.quote(str(root))}`"

        return f"`{found[1]}{option}`"

    return re.sub(r"`(hankweave [^`]+)`", aimed, hint)


def _option(root: Path) -> str:
    return "" if is_default(root) else f" -e {shlex.quote(str(root))}"
