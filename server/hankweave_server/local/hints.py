"""Hints in the words of the terminal: commands and options in place of wire names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hankweave_client.errors import CommandRefused
from hankweave_protocol.errors import Refused
from hankweave_protocol.hints import Hint
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.targeting import is_default

WORDS: Final[Mapping[str, str]] = {
    Hint.CHECKPOINTS: "`hankweave checkpoints` lists the existing checkpoints.",
    Hint.FILES_OF_CHECKPOINT: "`hankweave replay SHA --tree` lists the files of a checkpoint.",
    Hint.NOTHING_TO_UNDO: "`hankweave rollback --to SHA` restores any checkpoint; "
    "`hankweave checkpoints` lists them.",
    Hint.PLAN_HAS_RUN: "`hankweave retry` runs the last one again; a rollback goes back further.",
    Hint.CODON_IS_RUNNING: "Wait until the codon has ended, or run `hankweave skip` or "
    "`hankweave stop` first.",
    Hint.ROLLBACK_IS_INCOMPLETE: "Roll back again, or complete the rollback with "
    "`hankweave stop --server`, then `hankweave run`.",
    Hint.ROLLBACK_NEEDS_ROOM: "Free some space; the server then completes the rollback, at the "
    "latest when it starts again, and reports that.",
    Hint.PERMISSION_IS_ANSWERED: "`hankweave log` shows how, and by whom.",
    Hint.AGENT_ROLLBACK: "Send paths, --keep-edits and --pause, and nothing else.",
    Hint.MEMORY_OF_PART: "Leave out --path and --pause, or leave out --rewind-memory.",
    Hint.LIMITS_OF_GC: "Add --max-age, --max-count or --max-bytes; a --max-count of 0 prunes all "
    "of them.",
    Hint.OTHER_JOURNAL: "This may be the journal of another execution: connect without --since.",
    Hint.ATTEMPTS: "`hankweave attempts` lists the attempts and their results.",
    Hint.CONFLICT: "Choose one side with --ours or --theirs, or adopt only some paths.",
}
"""What the terminal shows for each hint that names the wire."""

_WITHOUT_EXECUTION: Final = frozenset(
    {"ls", "agents", "init", "validate", "config", "help", "demo", "completion"}
)
_NAMES_EXECUTION: Final = frozenset({"-e", "--execution", "-w", "--workspace", "--new"})


def terminal_hint(hint: str | None, root: Path | None = None) -> str | None:
    """Return a hint in the words of the terminal.

    Its commands name the execution `root`, unless it is the default.
    """
    if hint is None:
        return None

    hint = WORDS.get(hint, hint)
    return hint if root is None else _aimed(hint, root)


def stop_at(refused: Refused | CommandRefused, hint: str | None) -> Stop:
    """Return the error for a refusal, with its hint in these words."""
    message = f"{refused.message} ({refused.code})"
    return Stop(message, ExitCode.FAILED, hint=hint, code=refused.code)


def command(words: str, root: Path) -> str:
    """Return a command line for the execution `root`, in backquotes."""
    return f"`hankweave {words}{_option(root)}`"


def _aimed(hint: str, root: Path) -> str:
    """Let each command between backquotes name the execution."""
    parts = hint.split("`")
    parts[1:-1:2] = (_aimed_command(part, root) for part in parts[1:-1:2])
    return "`".join(parts)


def _aimed_command(code: str, root: Path) -> str:
    match code.split():
        case ["hankweave", verb, *words]:
            if verb in _WITHOUT_EXECUTION or not _NAMES_EXECUTION.isdisjoint(words):
                return code

            if verb == "run":  # Without the option, it may begin a new execution.
                return f"{code} -e {shlex.quote(str(root))}"

            return code + _option(root)
        case _:
            return code


def _option(root: Path) -> str:
    return "" if is_default(root) else f" -e {shlex.quote(str(root))}"
