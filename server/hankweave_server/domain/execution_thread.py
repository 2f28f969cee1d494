"""The execution thread: the single line of codons that leads to the present, across runs.

A continuation run continues from a checkpoint of an earlier run, so the thread is found by walking
back from the newest run: all its codons, then those of its source up to the point it continued
from. That point is the codon whose checkpoint was restored; a checkpoint taken *before or during*
a codon's work (its rig, a tool call, an error) leaves that codon out, because it runs again
(Hankweave's own thread loses everything before it there, and starts from the first codon).

The same walk answers where an execution stands: the next codon, the conversation to continue, the
starting conditions of a new run, and the coordinate that a rollback leaves and an undo returns to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from operator import is_
from typing import Literal

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import Conversation, Coordinate
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    Continuation,
    ContinuationSource,
    FailedCodon,
    FreshStart,
    PlanEntry,
    PreparingCodon,
    Run,
    SkippedCodon,
    StartingConditions,
    State,
)
from hankweave_server.domain.lifecycle import is_terminal, wait_of


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """One execution of a codon on the thread."""

    run_id: RunId
    codon: CodonExecution


def run_named(state: State, run_id: RunId | None) -> Run | None:
    return next((run for run in state.runs if run.run_id == run_id), None)


def open_run(state: State) -> Run | None:
    """Return the current run while work may be added to it: not after it has ended."""
    run = run_named(state, state.current_run_id)
    return run if run is not None and run.status == "running" else None


def newest_run(state: State) -> Run | None:
    return state.runs[0] if state.runs else None


def waiting_run(state: State) -> Run | None:
    """Return the run that a rollback opened and no codon has begun in, if it is the newest."""
    run = newest_run(state)
    if run is None or run.codons or not isinstance(run.starting_conditions, Continuation):
        return None

    return run if run.starting_conditions.reason == "rollback" else None


def thread(state: State) -> tuple[ThreadEntry, ...]:
    """Return the thread that ends with the newest run, oldest first."""
    runs, recent = state.runs, _recent_threads[0]
    entries = next((entries for known, entries in recent if known is runs), None)
    if entries is None:
        grown = (_grown(entries, known, runs) for known, entries in recent)
        entries = next((each for each in grown if each is not None), None)
        if entries is None:
            entries = _thread(state)

        _recent_threads[0] = ((runs, entries), *recent[: RECENT - 1])

    return entries


RECENT = 3
"""Threads kept: they are asked for many times between two changes of the runs."""

_Runs = tuple[Run, ...]
_recent_threads: list[tuple[tuple[_Runs, tuple[ThreadEntry, ...]], ...]] = [()]


def _grown(
    entries: tuple[ThreadEntry, ...], before: _Runs, after: _Runs
) -> tuple[ThreadEntry, ...] | None:
    """Return the thread after a change of the newest run's last codons, or with one more run.

    Each codon of a long loop changes its run several times. Returns None after another change.
    """
    if not before or not after:
        return None

    old, new = before[0], after[0]
    if len(before) != len(after):
        conditions = new.starting_conditions
        follows = isinstance(conditions, Continuation) and conditions.source.run_id == old.run_id
        if not follows or len(before) + 1 != len(after) or not all(map(is_, before, after[1:])):
            return None

        return _continued(entries, new)

    if not all(map(is_, before[1:], after[1:])):
        return None

    is_same = (old.run_id, old.starting_conditions) == (new.run_id, new.starting_conditions)
    kept = max(0, len(old.codons) - 1)
    if not is_same or kept > len(new.codons) or not all(map(is_, old.codons[:kept], new.codons)):
        return None

    unchanged = len(entries) - len(old.codons) + kept
    own = (ThreadEntry(new.run_id, codon) for codon in new.codons[kept:])
    return (*entries[:unchanged], *own)


def _continued(entries: tuple[ThreadEntry, ...], run: Run) -> tuple[ThreadEntry, ...]:
    """Return the thread of a run; `entries` is that of the run that it continues."""
    own = tuple(ThreadEntry(run.run_id, codon) for codon in run.codons)
    match run.starting_conditions:
        case FreshStart():
            return own
        case Continuation(source=source):
            return _up_to(entries, source) + own


def _thread(state: State) -> tuple[ThreadEntry, ...]:
    entries: tuple[ThreadEntry, ...] = ()
    for run in reversed(line_of(state)):
        entries = _continued(entries, run)

    return entries


def beginnings(state: State) -> dict[int, Sha]:
    """Return the checkpoints at which the plan began again on the files as they were.

    The key is the position on the thread of the first codon after it; what the thread holds before
    that position left other files.
    """
    entries: tuple[ThreadEntry, ...] = ()
    found: dict[int, Sha] = {}
    for run in reversed(line_of(state)):
        match run.starting_conditions:
            case FreshStart():
                entries, found = (), {}
            case Continuation(source=source, reason=reason):
                entries, sha = _up_to(entries, source), source.checkpoint_sha
                at = len(entries)
                found = {
                    place: s for place, s in found.items() if place < at or (place, s) == (at, sha)
                }
                if reason == "continue" and sha not in (None, _left_by(entries, state)):
                    found[at] = sha

        entries += tuple(ThreadEntry(run.run_id, codon) for codon in run.codons)

    return found


def _left_by(entries: tuple[ThreadEntry, ...], state: State) -> Sha | None:
    """Return the checkpoint of the files that a thread's codons left."""
    return end_checkpoint(entries[-1].codon) if entries else state.initial_checkpoint


def line_of(state: State) -> list[Run]:
    """Return the runs from the newest back to the fresh one, each the source of the one before."""
    by_id = {run.run_id: run for run in state.runs}
    line: list[Run] = []
    run = newest_run(state)
    while run is not None:
        line.append(run)
        by_id.pop(run.run_id, None)
        conditions = run.starting_conditions
        run = by_id.get(conditions.source.run_id) if isinstance(conditions, Continuation) else None

    return line


def _up_to(entries: tuple[ThreadEntry, ...], source: ContinuationSource) -> tuple[ThreadEntry, ...]:
    """Cut a thread at the point that a continuation started from."""
    for index in reversed(range(len(entries))):
        codon = entries[index].codon
        if source.checkpoint_sha is not None and source.checkpoint_sha == end_checkpoint(codon):
            return entries[: index + 1 if codon.codon_id == source.after_codon else index]

    if source.after_codon is None:
        return ()

    for index in reversed(range(len(entries))):
        if entries[index].codon.codon_id == source.after_codon:
            return entries[: index + 1]

    return ()


def end_checkpoint(codon: CodonExecution) -> Sha | None:
    """Return the checkpoint of a codon's end, whatever the end was; None while it is active."""
    match codon:
        case CompletedCodon(completion_checkpoint=sha):
            return sha
        case FailedCodon(error_checkpoint=sha):
            return sha
        case SkippedCodon(skip_checkpoint=sha):
            return sha
        case _:
            return None


def rig_checkpoint(codon: CodonExecution) -> Sha | None:
    return None if isinstance(codon, PreparingCodon) else codon.rig_setup_checkpoint


def is_done(codon: CodonExecution, plan: tuple[PlanEntry, ...]) -> bool:
    """Return whether the plan continues after this execution: success, skip, or ignored failure."""
    match codon:
        case CompletedCodon() | SkippedCodon():
            return True
        case FailedCodon():
            entry = plan_entry(plan, codon.codon_id)
            return entry is not None and entry.codon.on_failure == "ignore"
        case _:
            return False


def plan_entry(plan: tuple[PlanEntry, ...], codon_id: CodonId) -> PlanEntry | None:
    place = places(plan).get(codon_id)
    return None if place is None else plan[place]


def places(plan: tuple[PlanEntry, ...]) -> Mapping[CodonId, int]:
    """Return the position of each entry in a plan."""
    known, found = _last_places[0]  # Called many times between two changes of the plan.
    if known is not plan:
        if plan[: len(known)] != known:
            known, found = (), {}

        # A loop makes a plan longer at its end, again and again.
        more = {entry.codon_id: place for place, entry in enumerate(plan[len(known) :], len(known))}
        found = {**found, **more}
        _last_places[0] = (plan, found)

    return found


_last_places: list[tuple[tuple[PlanEntry, ...], Mapping[CodonId, int]]] = [((), {})]


def next_codon(state: State) -> CodonId | None:
    """Return the next codon: after the last one done, or a failed one again; None at the end.

    Uses the thread and the plan alone; the caller knows whether a codon is active now.
    """
    entries = thread(state)
    plan = state.execution_plan
    if not entries:
        return plan[0].codon_id if plan else None

    newest = entries[-1].codon
    if not is_done(newest, plan):
        return newest.codon_id

    position = places(plan).get(newest.codon_id)
    if position is None or position + 1 >= len(plan):
        return None

    return plan[position + 1].codon_id


def upcoming_codon(state: State, until: CodonId | None) -> CodonId | None:
    """Return the next codon, or None if the codon `until` or one after it was the last one done."""
    following = next_codon(state)
    place = places(state.execution_plan)
    if following is None or until is None or until not in place:
        return following

    return following if place[following] <= place[until] else None


def active_codon(state: State) -> CodonExecution | None:
    """Return the codon that is not terminal in the current run, if there is one."""
    run = run_named(state, state.current_run_id)
    if run is None or not run.codons:
        return None

    newest = run.codons[-1]
    return None if is_terminal(newest) else newest


def suspended_codon(state: State) -> CodonExecution | None:
    """Return the codon that waits for the end of a limit; it goes on under the next server."""
    run = newest_run(state)
    if run is None or run.status != "running" or not run.codons:
        return None

    newest = run.codons[-1]
    return None if wait_of(newest) is None else newest


def attempts_made(state: State, codon_id: CodonId) -> int:
    """Count the attempts that `failed_attempts` yields, including one that still runs."""
    return sum(1 for _ in failed_attempts(state, codon_id))


def failed_attempts(state: State, codon_id: CodonId) -> Iterator[CodonExecution]:
    """Yield the attempts of the thread's newest codon, newest first, if it is the named one.

    They end at a success, and may begin with one that still runs. Runs that continue each other for
    a retry count as one, so that a restart forgets no attempt.
    """
    for run in line_of(state):
        for codon in reversed(run.codons):
            if codon.codon_id != codon_id or isinstance(codon, CompletedCodon | SkippedCodon):
                return

            yield codon

        conditions = run.starting_conditions
        if not isinstance(conditions, Continuation) or conditions.reason != "retry":
            return


def session_of(codon: CodonExecution) -> str | None:
    """Return the agent's own ID of the conversation; None if it had not begun."""
    return getattr(codon, "claude_session_id", None) or None


def previous_session(state: State, codon_id: CodonId) -> str | None:
    """Return the agent session that `continue-previous` resumes: the newest one before this codon.

    A skipped codon counts if its agent had written a message (Hankweave, codon start).
    """
    for entry in reversed(thread(state)):
        if entry.codon.codon_id == codon_id:
            continue

        match entry.codon:
            case CompletedCodon(claude_session_id="") as unstarted:
                # Its budget was spent: the conversation is where the codon before it left it.
                planned = plan_entry(state.execution_plan, unstarted.codon_id)
                if planned is None or planned.codon.continuation_mode == "fresh":
                    return None
            case CompletedCodon(claude_session_id=session):
                return session
            case SkippedCodon(claude_session_id=str() as session, assistant_message_count=count):
                return session if count else None
            case _:
                return None

    return None


def conversation_of(state: State, codon_id: CodonId) -> Conversation | None:
    """Return where in a codon's own work the current run continues it, also in a retry."""
    run = newest_run(state)
    if run is None or not isinstance(run.starting_conditions, Continuation):
        return None

    conversation = run.starting_conditions.source.conversation
    if conversation is None:
        return None

    done = {entry.codon.codon_id for entry in thread(state)[: -len(run.codons) or None]}
    others = {codon.codon_id for codon in run.codons} - {codon_id}
    if others or codon_id in done:
        return None

    is_its_own = any(
        codon.codon_id == codon_id and session_of(codon) == conversation.session_id
        for earlier in state.runs
        for codon in earlier.codons
    )
    return conversation if is_its_own else None


def thread_before(
    state: State, plan: tuple[PlanEntry, ...], codon_id: CodonId
) -> tuple[ThreadEntry, ...]:
    """Return the thread up to the first codon that the plan does not have before the named one."""
    earlier = {entry.codon_id for entry in takewhile(lambda e: e.codon_id != codon_id, plan)}
    return tuple(takewhile(lambda entry: entry.codon.codon_id in earlier, thread(state)))


def answers_of(entries: Iterable[ThreadEntry]) -> dict[str, str]:
    """Return the captured answers of codons by variable name; the last one counts."""
    return {
        answer.name: answer.value
        for entry in entries
        if isinstance(entry.codon, CompletedCodon) and (answer := entry.codon.captured) is not None
    }


def starting_at(
    state: State, plan: tuple[PlanEntry, ...], codon_id: CodonId, files: Sha
) -> StartingConditions:
    """Return how a new run begins with any codon of a plan, on the files of a checkpoint.

    The thread from that codon on is left out; what comes before stays.
    """
    run = newest_run(state)
    if run is None:
        return FreshStart(initial_checkpoint_sha=state.initial_checkpoint)

    before = thread_before(state, plan, codon_id)
    after = before[-1].codon.codon_id if before else None
    source = ContinuationSource(run_id=run.run_id, after_codon=after, checkpoint_sha=files)
    return Continuation(source=source, reason="continue")


def starting_conditions(
    state: State, codon_id: CodonId | None, reason: Literal["rollback", "retry", "continue"]
) -> StartingConditions:
    """Return how a run begins with this codon: after the thread, or in place of its end.

    A run that repeats its codon continues from before the codon's newest execution, so that the
    thread never holds two executions of one step.
    """
    entries = thread(state)
    source_run: RunId | None
    if entries and entries[-1].codon.codon_id == codon_id:
        again = len(entries) - 1
        while again and entries[again - 1].codon.codon_id == codon_id:
            again -= 1

        source_run = entries[-1].run_id
        entries = entries[:again]
    else:
        source_run = entries[-1].run_id if entries else None

    if source_run is None:
        return FreshStart(initial_checkpoint_sha=state.initial_checkpoint)

    begun = beginnings(state).get(len(entries))
    return Continuation(
        source=ContinuationSource(
            run_id=source_run,
            after_codon=entries[-1].codon.codon_id if entries else None,
            checkpoint_sha=begun or _left_by(entries, state),
        ),
        reason=reason,
    )


def restored_checkpoint(state: State) -> Sha | None:
    """Return the target of a rollback that no codon has continued from yet; it may be a rig's."""
    run = waiting_run(state)
    if run is None or not isinstance(run.starting_conditions, Continuation):
        return None

    return run.starting_conditions.source.checkpoint_sha


def now_coordinate(state: State, last_seq: int) -> Coordinate | None:
    """Return where the execution stands: the newest checkpoint of the thread, if there is one."""
    run = newest_run(state)
    for entry in reversed(thread(state)):
        sha = end_checkpoint(entry.codon) or rig_checkpoint(entry.codon)
        if sha is not None and run is not None:
            return Coordinate(
                checkpoint_sha=sha,
                event_seq=last_seq,
                run_id=entry.run_id,
                codon_id=entry.codon.codon_id,
                codon_state=str(entry.codon.__struct_config__.tag),
            )

    return None


def span_of(state: State, codon_id: CodonId) -> tuple[Sha, Sha | None] | None:
    """Return the checkpoints between which a codon has worked; None if there are none yet.

    Without the second one, the files as they are now are its end.
    """
    line = thread(state)
    at = next((i for i, each in enumerate(line) if each.codon.codon_id == codon_id), None)
    if at is None:
        return None

    ends = (end_checkpoint(each.codon) for each in reversed(line[:at]))
    before = next(filter(None, ends), state.initial_checkpoint)
    begin = rig_checkpoint(line[at].codon) or before
    if begin is None:
        return None

    return begin, None if at == len(line) - 1 else end_checkpoint(line[at].codon)
