"""Find the checkpoint that a rollback means, and where in the plan work continues from it.

Known checkpoints and the state come in; a `RollbackTarget` or a refusal goes out. A prefix is
looked up among the thread's checkpoints first, and among all timelines only if none matches there;
more than one match is refused, and all matches are listed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, RunId, Sha, is_sha_prefix
from hankweave_protocol.records import (
    CheckpointRecord,
    CodonCheckpointType,
    Coordinate,
    Travel,
)
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    Run,
    SkippedCodon,
    State,
)
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.domain.execution_thread import (
    ThreadEntry,
    beginnings,
    end_checkpoint,
    is_done,
    rig_checkpoint,
    run_named,
    thread,
)
from hankweave_server.plain_text import counted

Checkpoints = Mapping[Sha, CheckpointRecord]
NO_NEW_NAMES: Mapping[Sha, Sha] = MappingProxyType({})
"""Every checkpoint on the shadow repository's refs, oldest first."""


@dataclass(frozen=True, slots=True)
class RollbackTarget:
    """The target of a rollback."""

    checkpoint: CheckpointRecord
    after_codon: CodonId | None
    """The codon after which work continues; None means from the beginning of the plan."""
    passed: tuple[ThreadEntry, ...]
    """Executions of the thread after the target, newest first."""
    undone: Travel | None = None
    """The journey that an undo takes back; its safety checkpoint is the target then."""
    note: str | None = None
    """Information about the choice for the caller, such as the run it was found in."""

    @property
    def is_in_place(self) -> bool:
        """True if only files move: the journey it undoes moved nothing else."""
        return self.undone is not None and self.undone.in_place

    @property
    def place(self) -> Coordinate:
        """The moment of the execution that work continues from."""
        if self.undone is not None and self.undone.source is not None:
            return self.undone.source

        return self.checkpoint.coordinate


def last_success(state: State, known: Checkpoints) -> RollbackTarget:
    """Return the newest completed codon, else the newest rig, else the state before any codon.

    If the plan began again on the files as they were, nothing before that counts: then those files.
    """
    begun = {place: sha for place, sha in beginnings(state).items() if sha in known}
    first = max(begun, default=None)
    entries = thread(state)[first or 0 :]
    for entry in reversed(entries):
        if isinstance(entry.codon, CompletedCodon) and entry.codon.completion_checkpoint in known:
            return target_of(state, known, entry.codon.completion_checkpoint)

    for entry in reversed(entries):
        rig = rig_checkpoint(entry.codon)
        if rig is not None and rig in known:
            return target_of(state, known, rig)

    if first is not None:
        return target_of(state, known, begun[first])

    if state.initial_checkpoint is not None and state.initial_checkpoint in known:
        return target_of(state, known, state.initial_checkpoint)

    raise Refused(
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "There is no checkpoint to restore yet.",
        hint="Checkpoints are taken when a rig is set up and when a codon ends.",
    )


def of_codon(
    state: State, known: Checkpoints, codon_id: CodonId, kind: CodonCheckpointType
) -> RollbackTarget:
    """Return the newest checkpoint of a codon: on the current thread, else on any other run.

    The target's note names the run if that is not on the current thread.
    """
    entries = thread(state)
    sha = _newest_on(state, entries, codon_id, kind, known)
    if sha is not None:
        return target_of(state, known, sha)

    for run in state.runs:
        if any(codon.codon_id == codon_id for codon in run.codons):
            own = thread(_as_seen_by(state, run))
            sha = _newest_on(state, own, codon_id, kind, known, run_id=run.run_id)
            if sha is not None:
                note = f"The {kind} checkpoint of codon {codon_id} was taken from run {run.run_id}"
                note += ", which is not part of the current thread."
                return dataclasses.replace(target_of(state, known, sha), note=note)

    raise _no_codon_checkpoint(state, known, codon_id, kind)


def _newest_on(
    state: State,
    entries: tuple[ThreadEntry, ...],
    codon_id: CodonId,
    kind: CodonCheckpointType,
    known: Checkpoints,
    run_id: RunId | None = None,
) -> Sha | None:
    """Return the checkpoint of the codon's newest execution on a thread, if there is one."""
    position = next(
        (
            index
            for index in reversed(range(len(entries)))
            if entries[index].codon.codon_id == codon_id and run_id in (None, entries[index].run_id)
        ),
        None,
    )
    if position is None:
        return None

    sha = _codon_checkpoint(state, entries, position, kind)
    return sha if sha in known else None


def _no_codon_checkpoint(
    state: State, known: Checkpoints, codon_id: CodonId, kind: CodonCheckpointType
) -> Refused:
    """Build the refusal for a codon that never ran, or that has no such checkpoint on any run."""
    executions = [codon for run in reversed(state.runs) for codon in run.codons]
    own = [codon for codon in executions if codon.codon_id == codon_id]
    if not own:
        ran = dict.fromkeys(c.codon_id for c in executions if _types_of(c, known))
        return Refused(
            ErrorCode.UNKNOWN_CODON,
            f"Codon {codon_id} has not run in this execution.",
            path="$.data.codonId",
            hint=f"Codons with checkpoints: {', '.join(ran) or 'none'}.",
        )

    types = dict.fromkeys(name for codon in own for name in _types_of(codon, known))
    return Refused(
        ErrorCode.CHECKPOINT_NOT_FOUND,
        f"Codon {codon_id} has no {kind} checkpoint.",
        path="$.data.checkpointType",
        hint=f"It has: {', '.join(types) or 'none'}.",
    )


def named(state: State, known: Checkpoints, text: str) -> CheckpointRecord:
    """Return the checkpoint of a SHA, of its prefix, or of the end of a codon; raise Refused."""
    if any(codon.codon_id == text for run in state.runs for codon in run.codons):
        return of_codon(state, known, CodonId(text), "end").checkpoint

    return of_prefix(state, known, text).checkpoint


def of_prefix(
    state: State,
    known: Checkpoints,
    prefix: str,
    missing: Collection[Sha] = (),
    renamed: Mapping[Sha, Sha] = NO_NEW_NAMES,
) -> RollbackTarget:
    """Return the only checkpoint whose SHA has this prefix.

    `missing` are the ones that the journal names and the repository lacks, for a precise refusal.
    `renamed` has the present sha of each one that a redaction has rewritten.
    """
    prefix, given = prefix.lower(), prefix
    if not is_sha_prefix(prefix):
        raise Refused(
            ErrorCode.CHECKPOINT_NOT_FOUND,
            f"{given!r} is not the start of a commit id.",
            path="$.data.checkpointSha",
            hint="Enter 4 to 40 hexadecimal digits.",
        )

    on_thread = thread_checkpoints(state)
    matches = [sha for sha in known if sha.startswith(prefix) and sha in on_thread]
    matches = matches or [sha for sha in known if sha.startswith(prefix)]
    former = (new for old, new in renamed.items() if old.startswith(prefix))
    matches = matches or [sha for sha in dict.fromkeys(former) if sha in known]
    match matches:
        case [] if any(sha.startswith(prefix) for sha in missing):
            raise Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {prefix[:12]} is recorded, but its commit is lost or damaged.",
                path="$.data.checkpointSha",
                hint="`hankweave fsck --repair` restores what can be found.",
            )
        case []:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"No checkpoint begins with {prefix}.",
                path="$.data.checkpointSha",
                hint=Hint.CHECKPOINTS,
            )
        case [sha]:
            return target_of(state, known, sha)
        case _:
            raise Refused(
                ErrorCode.AMBIGUOUS_CHECKPOINT,
                f"{counted(len(matches), 'checkpoint')} begin with {prefix}.",
                path="$.data.checkpointSha",
                hint="Matches: " + "; ".join(_described(known[sha]) for sha in matches) + ".",
            )


def target_of(state: State, known: Checkpoints, sha: Sha) -> RollbackTarget:
    """Return the target for a known checkpoint, on any timeline."""
    record = known[sha]
    entries = thread(state)
    if record.kind == "initial":
        return RollbackTarget(record, None, tuple(reversed(entries)))

    for place, begun in beginnings(state).items():
        if begun == sha:
            before, passed = entries[:place], entries[place:]
            return RollbackTarget(record, _newest_of(before), tuple(reversed(passed)))

    if not _is_on(entries, record):
        return RollbackTarget(record, _after_in_old_timeline(state, known, record), ())

    keeps = _count_finished(state, known, entries, record)
    passed = entries[keeps:]
    if passed and passed[0].codon.codon_id == record.coordinate.codon_id:
        passed = passed[1:]  # The rollback goes back into its own codon, not past it.

    return RollbackTarget(record, _newest_of(entries[:keeps]), tuple(reversed(passed)))


ATTEMPT_START = "before attempt"
"""The label prefix of a checkpoint that the next attempt of its codon starts from."""


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """The start of a failed attempt of a codon."""

    checkpoint: CheckpointRecord
    rig: Sha | None
    """The SHA of the checkpoint if it is the rig's."""


def attempt_start(state: State, known: Checkpoints, codon_id: CodonId) -> AttemptStart | None:
    """Return the checkpoint that the next attempt of the thread's newest codon starts from.

    None if the codon is not the newest, or no such checkpoint was kept.
    """
    entries = thread(state)
    if not entries or entries[-1].codon.codon_id != codon_id:
        return None

    rig = rig_checkpoint(entries[-1].codon)
    if rig is not None and rig in known:
        return AttemptStart(known[rig], rig)

    begun = (record for record in known.values() if _begins_attempt(record, codon_id))
    newest = max(begun, key=lambda record: record.coordinate.event_seq, default=None)
    return None if newest is None else AttemptStart(newest, None)


def _begins_attempt(record: CheckpointRecord, codon_id: CodonId) -> bool:
    label = record.label or ""
    return record.coordinate.codon_id == codon_id and label.startswith(ATTEMPT_START)


def of_travel(state: State, known: Checkpoints, travel: Travel) -> RollbackTarget:
    """Return the target for the undo of a journey: its safety checkpoint, and the place it left."""
    safety = known.get(travel.safety)
    if safety is None:
        raise Refused(
            ErrorCode.CHECKPOINT_NOT_FOUND,
            f"The safety checkpoint {travel.safety[:12]} was pruned.",
            hint=Hint.CHECKPOINTS,
        )

    source = None if travel.source is None else travel.source.checkpoint_sha
    if travel.in_place or source is None or source not in known:
        entries = thread(state)
        after = None if not travel.in_place else _newest_of(entries)
        passed = () if travel.in_place else tuple(reversed(entries))
        return RollbackTarget(safety, after, passed, travel)

    there, left = target_of(state, known, source), known[source]
    # A failed step that the rollback left stands there again as failed, and is next.
    after = left.coordinate.codon_id if left.kind == "error" else there.after_codon
    return RollbackTarget(safety, after, there.passed, travel)


def _codon_checkpoint(
    state: State, entries: tuple[ThreadEntry, ...], position: int, kind: CodonCheckpointType
) -> Sha | None:
    codon = entries[position].codon
    match kind:
        case "rig-setup":
            return rig_checkpoint(codon)
        case "completed" | "error" | "skipped":
            return end_checkpoint(codon) if _END_TYPES.get(type(codon)) == kind else None
        case "end":
            return end_checkpoint(codon) or rig_checkpoint(codon)
        case "start":
            return rig_checkpoint(codon) or _before(state, entries, position)
        case "beginning":
            while position and entries[position - 1].codon.codon_id == codon.codon_id:
                position -= 1  # Earlier attempts have left other files.

            return _before(state, entries, position)


def _before(state: State, entries: tuple[ThreadEntry, ...], position: int) -> Sha | None:
    """Return the start of a codon without a rig: the end of the codon before it.

    If the plan began again with it, the start is the files as they were then.
    """
    if (begun := beginnings(state).get(position)) is not None:
        return begun

    for entry in reversed(entries[:position]):
        sha = end_checkpoint(entry.codon)
        if sha is not None:
            return sha

    return state.initial_checkpoint


def _is_on(entries: tuple[ThreadEntry, ...], record: CheckpointRecord) -> bool:
    """Return whether an execution of the thread took a checkpoint, during its work or after."""
    return _owner(entries, record.sha) is not None or any(
        entry.run_id == record.coordinate.run_id
        and entry.codon.codon_id == record.coordinate.codon_id
        for entry in entries
    )


def _owner(entries: tuple[ThreadEntry, ...], sha: Sha) -> int | None:
    """Return the newest execution that has this checkpoint as its rig or end."""
    for index in reversed(range(len(entries))):
        codon = entries[index].codon
        if sha in (end_checkpoint(codon), rig_checkpoint(codon)):
            return index

    return None


def _count_finished(
    state: State, known: Checkpoints, entries: tuple[ThreadEntry, ...], record: CheckpointRecord
) -> int:
    """Count the executions whose finished work is in the files of a checkpoint.

    A checkpoint outside a codon (manual, tool, safety) contains everything that ended before it.
    """
    owner = _owner(entries, record.sha)
    if owner is not None:
        return owner + 1 if _holds_end(entries[owner], record.sha) else owner

    order = {sha: index for index, sha in enumerate(known)}
    for index in reversed(range(len(entries))):
        codon = entries[index].codon
        end = end_checkpoint(codon)
        ended_before = end is not None and order.get(end, len(order)) < order[record.sha]
        if ended_before and is_done(codon, state.execution_plan):
            return index + 1

    return 0


def _holds_end(entry: ThreadEntry, sha: Sha) -> bool:
    """Return whether the files of this checkpoint contain the codon's finished work."""
    # An error checkpoint has broken work: the codon runs again, not the one after it.
    is_finished = isinstance(entry.codon, CompletedCodon | SkippedCodon)
    return is_finished and end_checkpoint(entry.codon) == sha


def _newest_of(entries: tuple[ThreadEntry, ...]) -> CodonId | None:
    return entries[-1].codon.codon_id if entries else None


def _after_in_old_timeline(
    state: State, known: Checkpoints, record: CheckpointRecord
) -> CodonId | None:
    """Return the codon to continue after for a checkpoint whose run left the thread."""
    run = run_named(state, record.coordinate.run_id)
    if run is None:
        return record.coordinate.codon_id if record.kind in ("completed", "skipped") else None

    entries = thread(_as_seen_by(state, run))
    return _newest_of(entries[: _count_finished(state, known, entries, record)])


def _as_seen_by(state: State, run: Run) -> State:
    """Return the state as the given run saw it: with that run as the newest."""
    runs = state.runs
    at = next(index for index, other in enumerate(runs) if other is run)
    return State(
        runs=runs[at:],
        current_run_id=None,
        execution_plan=state.execution_plan,
        initial_checkpoint=state.initial_checkpoint,
    )


def thread_checkpoints(state: State) -> frozenset[Sha]:
    """Return the checkpoints that the thread names, and the initial one."""
    entries = thread(state)
    shas = (
        sha
        for entry in entries
        for sha in (rig_checkpoint(entry.codon), end_checkpoint(entry.codon))
    )
    return frozenset(sha for sha in (*shas, state.initial_checkpoint) if sha is not None)


def _types_of(codon: CodonExecution, known: Checkpoints) -> list[str]:
    """Return the types of the checkpoints that an execution of a codon still has."""
    found = []
    if rig_checkpoint(codon) in known:
        found.append("rig-setup")

    if end_checkpoint(codon) in known:
        found.append(_END_TYPES[type(codon)])

    return found


_END_TYPES: Mapping[type, CodonCheckpointType] = {
    CompletedCodon: "completed",
    FailedCodon: "error",
    SkippedCodon: "skipped",
}
"""The type of the checkpoint at a codon's end, by how it ended."""


def _described(record: CheckpointRecord) -> str:
    of = f"{record.kind}:{record.coordinate.codon_id or '-'}"
    return f"{record.sha[:12]} {of} ({title_of(record)})"
