"""`hankweave why`: say why something in an execution is as it is.

The form of the argument decides what is asked: a codon was run, or its result was taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.events import CodonCompletedEvent, CodonKeyed, Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import ReusedResult
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.domain.reuse.key import differences
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.server_session import command, look
from hankweave_server.plain_text import one_line
from hankweave_server.worktree.data_source import layout_of

MOST_PATHS = 20
_TREE = "tracked files"


@click.command()
@click.argument("step", metavar="STEP", shell_complete=completions.codons)
@execution_option
@json_option
def why(step: str, execution: Path | None, as_json: bool) -> None:
    """Say why codon STEP was run, or why it was not.

    Its inputs are compared with those of its execution before: prompt, model, agent and its
    version, rig, variables, settings, tracked files and data. What differs is listed.

    \b
    hankweave why infer
    hankweave why review#2 --json
    """
    root = root_of(execution)
    answer = _of_step(root, CodonId(step))
    if as_json:
        print_json(answer)
    else:
        for line in _lines(answer, root):
            click.echo(one_line(line))


class StepAnswer(Value, kw_only=True, omit_defaults=False):
    """Why a codon was run, or not."""

    codon_id: CodonId
    seq: int
    """The event with its inputs."""
    reused: ReusedResult | None
    """Where its result comes from, if it was not run."""
    reason: str | None
    """Why nothing was taken over, or why its inputs cannot be compared."""
    wanted: bool
    """Whether an earlier result was to be taken over."""
    earlier_seq: int | None
    """The event with the inputs that these are compared with."""
    differences: tuple[str, ...]
    paths: tuple[str, ...]
    """The tracked files that differ, or may: the first 20."""
    more_paths: int


@dataclass(frozen=True, slots=True)
class _Executed:
    """One execution of a codon."""

    seq: int
    inputs: CodonKeyed
    reused: ReusedResult | None


def _of_step(root: Path, codon_id: CodonId) -> StepAnswer:
    found, others = _executions(root, codon_id)
    if not found:
        listed = ", ".join(sorted(others)) or "none"
        raise Stop(
            f"The journal has no inputs of a codon {codon_id}.",
            ExitCode.USAGE,
            hint=f"Codons with inputs: {listed}.",
        )

    now = found[0]
    earlier = next((each for each in found[1:] if each.inputs.inputs), None)
    differing: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    if earlier is not None and now.inputs.inputs:
        differing = differences(earlier.inputs.inputs, now.inputs.inputs)
        if _TREE in differing:
            then = earlier.inputs
            paths = look(root, lambda calls: _paths(calls, then, now.inputs))

    return StepAnswer(
        codon_id=codon_id,
        seq=now.seq,
        reused=now.reused,
        reason=now.inputs.reason,
        wanted=now.inputs.wanted,
        earlier_seq=None if earlier is None else earlier.seq,
        differences=differing,
        paths=paths[:MOST_PATHS],
        more_paths=max(0, len(paths) - MOST_PATHS),
    )


def _executions(root: Path, codon_id: CodonId) -> tuple[list[_Executed], set[CodonId]]:
    """Return the two newest executions of a codon with their inputs, and all codons with inputs."""
    words = of_types((CodonKeyed.TYPE, CodonCompletedEvent.TYPE))
    found: list[_Executed] = []
    others: set[CodonId] = set()
    reused: ReusedResult | None = None
    with searching_journal(layout_of(root)) as journal:
        for _, line in journal.backward(words):
            event: Event = codec.decode_event(line)
            data = event.data
            if isinstance(data, CodonCompletedEvent) and data.codon_id == codon_id:
                reused = data.reused
            elif isinstance(data, CodonKeyed) and data.codon_id != codon_id:
                others.add(data.codon_id)
            elif isinstance(data, CodonKeyed):
                found.append(_Executed(event.seq, data, reused))
                reused = None
                if len(found) > 1 and data.inputs:
                    break

    return found, others


async def _paths(calls: Calls, old: CodonKeyed, new: CodonKeyed) -> tuple[str, ...]:
    """Return the tracked files that differ between the beginnings of two executions.

    Both began from a checkpoint and some changes. A file that only one of them has changed is
    listed even if the other's checkpoint holds the same content.
    """
    before, after = old.changed or {}, new.changed or {}
    found = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    same = before.keys() & after.keys()
    first, second = old.checkpoint_sha, new.checkpoint_sha
    if first is None or second is None or first == second:
        return tuple(sorted(found))

    cursor: str | None = None
    while True:
        page = await calls.diff(first, second, cursor=cursor)
        found.update(each.path for each in page.files if each.path not in same)
        cursor = page.cursor
        if cursor is None:
            return tuple(sorted(found))


def _lines(answer: StepAnswer, root: Path) -> Iterator[str]:
    name, reused = answer.codon_id, answer.reused
    if reused is not None:
        source = f"run {reused.run_id}, checkpoint {reused.checkpoint_sha[:12]}"
        yield f"{name} was not run: its inputs are those of {source}."
        return

    if answer.wanted:
        because = f": {answer.reason}" if answer.reason else ""
        yield f"{name} was run, and nothing was reused{because}."
    elif answer.reason:
        yield f"{name} was run, and no other codon can take over its result: {answer.reason}."
    elif not answer.differences and answer.earlier_seq is not None:
        yield f"{name} was run: its inputs were the same, but nothing was to be reused."
        yield f'Use `{command("redo", root)} --step {name} --reuse`, or "reuse": true in the hank.'
        return
    else:
        yield f"{name} was run."

    if answer.earlier_seq is None:
        yield "There are no inputs of an earlier execution to compare with."
        return

    compared = f"event {answer.seq} with event {answer.earlier_seq}"
    if not answer.differences:
        yield f"No single input differs ({compared})."
        return

    yield f"What differs from its execution before ({compared}):"
    for each in answer.differences:
        yield f"  {each}"
        if each == _TREE:
            for path in answer.paths:
                yield f"    {path}"

            if answer.more_paths:
                yield f"    and {answer.more_paths} more"


COMMANDS = (why,)
