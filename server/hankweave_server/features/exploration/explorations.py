"""Decisions about an exploration: what runs next, what an attempt's run becomes, when it has ended.

An exploration is one record in the state, which is replaced as a whole when one of its attempts
changes. Which attempt is adopted is not in it: that follows from the execution thread, so that an
undo takes it back as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from hankweave_protocol.attempts import (
    AS_THE_HANK,
    SCORE_CODON,
    AttemptRecord,
    Exploration,
)
from hankweave_protocol.commands import ExplorationAdopt, RollbackPreview
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hank import Variant
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.state import (
    CompletedCodon,
    Continuation,
    FailedCodon,
    Run,
    SkippedCodon,
    State,
    TerminalCodon,
)
from hankweave_server.domain.execution_thread import end_checkpoint, thread

replace = msgspec.structs.replace


def planned_attempts(
    exploration_id: str, n: int | None, variants: tuple[Variant, ...]
) -> tuple[AttemptRecord, ...]:
    """Return the attempts of a new exploration; they take the variants in turn."""
    number = n if n is not None else len(variants) or 2
    chosen = variants or (AS_THE_HANK,)
    return tuple(
        AttemptRecord(
            attempt_id=f"{exploration_id}-{index + 1}", variant=chosen[index % len(chosen)]
        )
        for index in range(number)
    )


def next_attempts(exploration: Exploration) -> tuple[AttemptRecord, ...]:
    """Return the attempts to start now: as many as may run.

    None is started once a score is good enough.
    """
    waiting = [each for each in exploration.attempts if each.status == "waiting"]
    running = sum(each.status == "running" for each in exploration.attempts)
    if is_good_enough(exploration):
        return ()

    return tuple(waiting[: max(0, exploration.parallel - running)])


def share_of_next(exploration: Exploration) -> float | None:
    """Return the share of the budget for the next attempt, in US dollars; None without a budget.

    The attempts that wait have equal parts of what has been neither spent nor reserved, so what an
    attempt does not spend is there for those after it.
    """
    if exploration.max_dollars is None:
        return None

    begun = [each for each in exploration.attempts if each.status != "waiting"]
    left = exploration.max_dollars - sum(map(_reserved_or_spent, begun))
    return max(0.0, left) / max(1, len(exploration.attempts) - len(begun))


def _reserved_or_spent(attempt: AttemptRecord) -> float:
    """Return what an attempt takes of the budget: its share, until it has ended."""
    has_ended = attempt.duration_ms is not None
    return attempt.cost if has_ended else max(attempt.cost, attempt.max_dollars or 0.0)


def dollars_of_attempts(state: State) -> float:
    """Return what attempts that are not on the execution thread have cost, or may still cost."""
    on_thread = {entry.run_id for entry in thread(state)}
    attempts = (each for exploration in state.explorations for each in exploration.attempts)
    return sum(_reserved_or_spent(each) for each in attempts if each.run_id not in on_thread)


def is_good_enough(exploration: Exploration) -> bool:
    wanted, best = exploration.good_enough, exploration.best
    score = None if best is None else best.score
    return wanted is not None and score is not None and score >= wanted


def has_ended(exploration: Exploration) -> bool:
    """Return whether no attempt runs, and none will be started."""
    is_running = any(each.status == "running" for each in exploration.attempts)
    return not is_running and not next_attempts(exploration)


def with_attempt(exploration: Exploration, changed: AttemptRecord) -> Exploration:
    """Replace the record of an attempt."""
    attempts = (
        changed if each.attempt_id == changed.attempt_id else each for each in exploration.attempts
    )
    return replace(exploration, attempts=tuple(attempts))


def exploration_named(state: State, exploration_id: str | None) -> Exploration:
    """Return an exploration, by default the newest; raise Refused."""
    for each in reversed(state.explorations):
        if exploration_id in (None, each.exploration_id):
            return each

    known = ", ".join(each.exploration_id for each in state.explorations) or "none"
    what = "There is no exploration."
    if exploration_id is not None:
        what = f"No exploration is called {exploration_id!r}."

    raise Refused(
        ErrorCode.INVALID_COMMAND,
        what,
        path="$.data.explorationId",
        hint=f"Explorations of this execution: {known}.",
    )


def attempt_named(state: State, attempt_id: str, path: str) -> tuple[Exploration, AttemptRecord]:
    """Return an attempt and its exploration; raise Refused, with the `path` in the command."""
    for exploration in state.explorations:
        for attempt in exploration.attempts:
            if attempt.attempt_id == attempt_id:
                return exploration, attempt

    newest = state.explorations[-1].attempts if state.explorations else ()
    raise Refused(
        ErrorCode.INVALID_COMMAND,
        f"No attempt is called {attempt_id!r}.",
        path=path,
        hint="Attempts of the newest exploration: "
        + (", ".join(each.attempt_id for each in newest) or "none")
        + ".",
    )


def result_of(attempt: AttemptRecord, path: str) -> Sha:
    """Return the checkpoint of an attempt's result; raise Refused if it has none."""
    if attempt.checkpoint_sha is None:
        why = {
            "waiting": "has not been started",
            "running": "is still running",
            "failed": "has failed",
        }.get(attempt.status, "has no result")
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"Attempt {attempt.attempt_id} {why}.",
            path=path,
            hint=Hint.ATTEMPTS,
        )

    return attempt.checkpoint_sha


def adoption_preview(state: State, command: ExplorationAdopt) -> RollbackPreview:
    """Return the preview of the rollback by which an attempt is adopted; raise Refused."""
    _, attempt = attempt_named(state, command.attempt_id, "$.data.attemptId")
    return RollbackPreview(
        checkpoint_sha=result_of(attempt, "$.data.attemptId"),
        paths=command.paths,
        keep_edits=command.keep_edits,
    )


def adopted(state: State, exploration: Exploration) -> AttemptRecord | None:
    """Return the attempt whose run is on the execution thread, if there is one."""
    runs = {entry.run_id for entry in thread(state)}
    return next((each for each in exploration.attempts if each.run_id in runs), None)


def score_in(output: str) -> float | None:
    """Return the number in the last line of a score command's output; None if it is none."""
    lines = [line for line in output.splitlines() if line.strip()]
    try:
        score = float(lines[-1].split()[-1]) if lines else math.nan
    except ValueError:
        return None

    return score if math.isfinite(score) else None


def own_runs(of_attempt: State, of_parent: State) -> list[Run]:
    """Return the runs of an attempt that its parent does not have, oldest first."""
    known = {run.run_id for run in of_parent.runs}
    return [run for run in reversed(of_attempt.runs) if run.run_id not in known]


def as_timeline(run: Run, shas: Mapping[Sha, Sha]) -> Run:
    """Return a run of an attempt as its parent records it.

    `shas` has the parent's own commits by those of the attempt, and the ones that both have. Other
    checkpoints are left out, and so is the score.
    """
    codons = tuple(
        _with_own_commits(codon, shas)
        for codon in run.codons
        if codon.codon_id != SCORE_CODON
        and isinstance(codon, CompletedCodon | SkippedCodon | FailedCodon)
    )
    conditions = run.starting_conditions
    if isinstance(conditions, Continuation):
        source = conditions.source
        sha = None if source.checkpoint_sha is None else shas.get(source.checkpoint_sha)
        conditions = replace(conditions, source=replace(source, checkpoint_sha=sha))

    return replace(
        run,
        codons=codons,
        starting_conditions=conditions,
        status="completed" if run.status == "running" else run.status,
        end_time=run.end_time or run.start_time,
    )


def _with_own_commits(codon: TerminalCodon, shas: Mapping[Sha, Sha]) -> TerminalCodon:
    rig = codon.rig_setup_checkpoint
    codon = replace(codon, rig_setup_checkpoint=None if rig is None else shas.get(rig))
    if isinstance(codon, CompletedCodon):
        return replace(codon, completion_checkpoint=shas[codon.completion_checkpoint])

    if isinstance(codon, FailedCodon):
        return replace(codon, error_checkpoint=None)

    return replace(codon, skip_checkpoint=None)


def completed_in(run: Run) -> Iterable[CompletedCodon]:
    """Yield the codons whose checkpoints a parent imports, oldest first."""
    for codon in run.codons:
        if isinstance(codon, CompletedCodon) and codon.codon_id != SCORE_CODON:
            yield codon


def beginning_of(state: State, codon_id: CodonId) -> Sha | None:
    """Return the checkpoint from which a codon of the thread began: the end of the one before it.

    None if the codon is not on the thread, or that checkpoint was not kept.
    """
    entries = thread(state)
    places = [i for i, entry in enumerate(entries) if entry.codon.codon_id == codon_id]
    if not places:
        return None

    before = [entry for entry in entries[: places[-1]] if entry.codon.codon_id != codon_id]
    return end_checkpoint(before[-1].codon) if before else state.initial_checkpoint
