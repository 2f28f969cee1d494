"""Error codes of the protocol.

Every refusal has a code for programs, a sentence for people and, if helpful, the JSON path of the
fault and a hint. `Refused` is the caller's fault and is not journaled; any other exception of a
command is reported as `INTERNAL_ERROR` without details.
"""

from __future__ import annotations

import re
from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes of `command.failed` and `error`; the first four are Hankweave's own.

    The string below a code has its cause and, in the last paragraph, what to do about it.
    """

    ROLLBACK_IN_PROGRESS = "ROLLBACK_IN_PROGRESS"
    """A rollback is in progress, or has left files half restored. No codon starts on such files,
    and no checkpoint is taken of them.

    Wait for `rollback.completed`. If the rollback was interrupted (`rollback.failed`), free some
    space on the disk, or roll back again: to the same checkpoint or another one.
    """
    HANDSHAKE_REQUIRED = "HANDSHAKE_REQUIRED"
    """The first frame of the connection was not a handshake.

    Send the handshake first, then commands.
    """
    INSUFFICIENT_PERMISSIONS = "INSUFFICIENT_PERMISSIONS"
    """A command with effects came from a client that may only read: its mode is `readonly`, it has
    the viewer's token, or it is an agent whose hank does not allow this.

    Send a handshake with `readandwrite` and the token of `.hankweave/server.token`. For an agent,
    see `agentTools` in the hank.
    """
    SENTINEL_LOAD_FAILURE = "SENTINEL_LOAD_FAILURE"
    """A sentinel could not be loaded: its configuration is invalid, or a key, a package or an
    address is missing. With `failCodonIfNotLoaded` the codon fails; otherwise it runs without
    the sentinel.

    The message names the fault. Correct the configuration, set the key, or install the package that
    it names. `hankweave validate` finds this before a run.
    """

    MALFORMED_JSON = "MALFORMED_JSON"
    """A frame, or the text of an option, is not JSON, or is nested more than 64 levels deep.

    Correct the text at the place that the message names.
    """
    INVALID_COMMAND = "INVALID_COMMAND"
    """JSON, but not a valid command: a field is missing, has a wrong type or value, or excludes
    another one. `path` has the place.

    Correct the field that `path` names; the [commands](wire.md#commands) have all fields.
    """
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    """There is no command of this type in this version of the server.

    The hint has the nearest name. If a newer client sends it to an older server, restart the server
    with the new version.
    """
    UNAUTHORIZED = "UNAUTHORIZED"
    """The token is invalid or missing; the connection is closed.

    Read `.hankweave/server.token` again: a start with `--new-tokens` has made another one.
    """
    RATE_LIMITED = "RATE_LIMITED"
    """A connection has sent more than 200 frames a second.

    Wait a little, and send fewer.
    """
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    """A frame has more than 1 MiB.

    Send less at once: a shorter list of `paths`, a shorter text.
    """

    CODON_RUNNING = "CODON_RUNNING"
    """A codon runs, and the command requires that none does.

    Wait for its end, skip or stop it (`hankweave skip`, `hankweave stop`), or let the rollback do
    so: `onRunning` `stop` or `pause`, on the command line `--stop` or `--pause`.
    """
    NO_CODON_RUNNING = "NO_CODON_RUNNING"
    """There is no codon to skip or stop.

    `hankweave status` shows what runs.
    """
    UNKNOWN_CODON = "UNKNOWN_CODON"
    """Neither the plan nor the execution thread has this codon.

    The hint lists the codons. The codon of a loop is called `{id}#{iteration}`, such as `review#0`.
    """
    UNKNOWN_PERMISSION = "UNKNOWN_PERMISSION"
    """No request for permission with this id is pending.

    The hint lists the pending ones; so do `hankweave permissions` and `hankweave status`.
    """
    PERMISSION_ANSWERED = "PERMISSION_ANSWERED"
    """The request is already decided; the first answer counts.

    The event `permission.resolved` says who decided, and how.
    """
    NOTHING_TO_RUN = "NOTHING_TO_RUN"
    """The plan is at its end, nothing has run yet, or nothing is left of the budget.

    Run the newest codon again (`hankweave retry`), roll back to an earlier moment, or raise the
    budget.
    """
    UNKNOWN_RUN = "UNKNOWN_RUN"
    """There is no run with this id.

    `hankweave runs` lists the runs, as does `state.get`.
    """
    STALE_RUN = "STALE_RUN"
    """Another run is current than the one that the sender saw (`expectedRunId`). Nothing was
    changed.

    Look at the state again, and decide anew.
    """

    CHECKPOINT_NOT_FOUND = "CHECKPOINT_NOT_FOUND"
    """There is no such checkpoint, or it was pruned.

    `hankweave checkpoints` lists those there are; the hint names the nearest ones.
    """
    AMBIGUOUS_CHECKPOINT = "AMBIGUOUS_CHECKPOINT"
    """Several checkpoints begin with these digits; the hint lists them.

    Give more digits.
    """
    CHECKPOINT_DAMAGED = "CHECKPOINT_DAMAGED"
    """Objects of the checkpoint cannot be read. Nothing was changed, and all other checkpoints
    work.

    Choose another target. `hankweave fsck` reports the damage, and `hankweave fsck --repair`
    restores what can be found, with `--mirror` also in a copy of the execution.
    """
    INVALID_PATH = "INVALID_PATH"
    """The path does not exist, or leads out of the work tree. Or a branch cannot be created there,
    or the execution of an attempt cannot be removed.

    `hankweave show` lists the files of a checkpoint. For a branch or an attempt, the message names
    the obstacle.
    """
    FILE_TOO_LARGE = "FILE_TOO_LARGE"
    """The file has more than 524,288 bytes, and was requested as a whole.

    Read it in ranges: `offset` and `length`.
    """
    NOTHING_TO_UNDO = "NOTHING_TO_UNDO"
    """There is no rollback to undo, or no undo to redo. A new rollback ends what can be redone, and
    pruning a safety checkpoint ends its undo.

    Roll back to a checkpoint instead: `hankweave checkpoints` lists them, `safety` ones included.
    """
    INSUFFICIENT_SPACE = "INSUFFICIENT_SPACE"
    """The disk is full, or a quota is reached. The server is degraded and starts nothing; an
    interrupted rollback is finished when there is space.

    Free some space and wait for `server.recovered`, which comes by itself; then send the command
    again. `hankweave gc` with a limit prunes old checkpoints.
    """
    IO_ERROR = "IO_ERROR"
    """The system refused an operation on a file: the message names the path and the error, such as
    `EACCES` or `EIO`.

    Correct the cause: permissions, a read-only mount, a failing disk. The hint says what fits the
    error.
    """
    STORE_UNUSABLE = "STORE_UNUSABLE"
    """The store of the checkpoints is damaged, or was moved. The server refuses what needs it.

    Follow the hint, usually `hankweave fsck --repair`.
    """
    MERGE_CONFLICT = "MERGE_CONFLICT"
    """The result of an attempt and the present files have changed the same lines. Nothing was
    changed.

    Decide with `onConflict` (`ours` or `theirs`), adopt only some `paths`, or edit the files first.
    """

    MIRROR_UNREACHABLE = "MIRROR_UNREACHABLE"
    """What the journal has could not be pushed to the mirror in the time that was given. The server
    goes on trying.

    The message has the words of git. Try `git ls-remote` with the address, then send the command
    again, with a longer `withinSeconds` if the connection is slow.
    """

    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
    """The answer to a query takes longer than 20 s.

    Restrict the query with `since` and `until`.
    """

    SHUTTING_DOWN = "SHUTTING_DOWN"
    """The server is stopping. In the middle of a rollback, its disk has failed.

    Connect to the next server; it completes an interrupted rollback.
    """
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """A defect of the server.

    `.hankweave/logs/server.log` has the traceback. Report it with that; what was done before is in
    the journal.
    """

    @property
    def anchor(self) -> str:
        """The section of docs/reference/errors.md about this code."""
        return self.value.lower().replace("_", "-")


class Refused(Exception):
    """A request that cannot be executed; nothing was changed."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = path
        """JSON path in the command; `$` is the whole frame."""
        self.hint = hint


def reason_of(error: BaseException) -> str:
    """Return the text of an error, or its kind: time limits and lost connections have no text."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).removesuffix(" Error").lower()
    return str(error).strip() or kind
