"""The hints of refusals that name commands, events or fields of the wire."""

from __future__ import annotations

from enum import StrEnum


class Hint(StrEnum):
    """Advice about a refused command, as a client receives it.

    A client whose users do not know the names of the wire looks a hint up by its member and shows
    words of its own. Any other hint reads the same everywhere.
    """

    CHECKPOINTS = "checkpoint.list lists the existing checkpoints."
    FILES_OF_CHECKPOINT = "replay.view lists the files of a checkpoint."
    NOTHING_TO_UNDO = "rollback.toCheckpoint restores any checkpoint; checkpoint.list lists them."
    PLAN_HAS_RUN = "codon.redo runs the last one again; a rollback goes back further."
    CODON_IS_RUNNING = "Wait for codon.completed, or send codon.skip or codon.forceStop first."
    ROLLBACK_IS_INCOMPLETE = "Roll back again, or restart the server to complete the rollback."
    ROLLBACK_NEEDS_ROOM = (
        "Free some space; the server then completes the rollback, at the latest when it starts "
        "again; rollback.completed confirms it."
    )
    PERMISSION_IS_ANSWERED = "permission.resolved shows how, and by whom."
    AGENT_ROLLBACK = "Send paths, keepEdits: true and onRunning: pause, and nothing else."
    MEMORY_OF_PART = "Leave out paths and onRunning: pause, or leave out rewindMemory."
    LIMITS_OF_GC = "Add maxAgeSeconds, maxCount or maxBytes; a maxCount of 0 prunes all of them."
    OTHER_JOURNAL = "This may be the journal of another execution: connect without sinceSeq."
    ATTEMPTS = "exploration.show lists the attempts and their results."
    CONFLICT = "Choose one side with onConflict `ours` or `theirs`, or adopt only some paths."
    BISECT_GOOD = "Search again with `good`: a checkpoint or step at which it passes."
    BISECT_BAD = "Search again with `bad`: a checkpoint or step at which it fails."
    BISECT_RANGE = "Search again between others, with `good` and `bad`."
