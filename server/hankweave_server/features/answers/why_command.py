"""`hankweave why`: the story behind a line of a file, or behind a step that was run or reused.

The form of the argument decides which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.events import CodonCompletedEvent, CodonKeyed, Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import LineStory
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import ReusedResult
from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.cli.show import whole_diff
from hankweave_server.domain.reuse.key import differences
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.answers.blame_command import described, path_in
from hankweave_server.features.answers.local_past import reading_history
from hankweave_server.features.answers.stories import line_story
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.hints import command
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.server_session import run_read_only
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, harmless, one_line
from hankweave_server.worktree.data_source import layout_of

_PLACE = re.compile(r"(.+):([0-9]{1,9})", re.ASCII | re.DOTALL)
_MOST_LINES = 12
"""Lines of a prompt or a message that a terminal shows."""

MOST_PATHS = 20
_TREE = "tracked files"


@click.command()
@click.argument("what", metavar="PATH:LINE|STEP", shell_complete=completions.codons)
@completions.checkpoint_option(
    "--at",
    help="The line in this checkpoint, or at the end of this step. Default: the newest.",
)
@execution_option
@json_option
def why(what: str, at: str | None, execution: Path | None, as_json: bool) -> None:
    """Show why a line of a file is there, or why a step ran.

    For a line: the prompt, the agent's words, the call and its change. For a step, its inputs are
    compared with those of its execution before: prompt, model, agent and its version, rig,
    variables, settings, tracked files and data. No server is needed.

    \b
    hankweave why src/main.py:13
    hankweave why src/main.py:13 --at 6dc2daae
    hankweave why review#2
    """
    root = root_of(execution)
    if _is_line(what):
        _why_line(root, what, at, as_json)
        return

    if at is not None:
        raise click.UsageError("--at goes with a line: src/main.py:13.")

    answer = _of_step(root, CodonId(what))
    if as_json:
        print_json(answer)
    else:
        for line in _lines_of_step(answer, root):
            click.echo(one_line(line))


# --- a line of a file -----------------------------------------------------------------------------


def _is_line(what: str) -> bool:
    """Return whether a text names a line of a file."""
    return _PLACE.fullmatch(what) is not None


def _why_line(root: Path, place: str, at: str | None, as_json: bool) -> None:
    """Print the story behind a line, which is named as `PATH:LINE`."""
    found = _PLACE.fullmatch(place)
    assert found is not None, "it names a line"

    layout, number = layout_of(root), int(found[2])
    with reading_history(layout) as past:
        story = line_story(past, past.named(at), path_in(layout, Path(found[1])), number)

    if as_json:
        print_json(story)
    else:
        _print_story(story, layout)


def _print_story(story: LineStory, layout: Layout) -> None:
    author = story.author
    click.echo(f"{one_line(story.path)}:{story.line}  {harmless(story.text)}")
    cost = "" if author.cost is None else f", ${author.cost:.4f}"
    model = "" if author.model is None or author.by != "agent" else f", {one_line(author.model)}"
    click.echo(f"{encodable(described(author))}{model}, {moment(author.timestamp)}{cost}")
    click.echo(f"checkpoint {author.checkpoint_sha[:12]} of run {author.run_id or '-'}")
    _print_section(f"Prompt of {author.codon_id}", story.prompt)
    _print_section("The agent's words before the call", story.words)
    if author.by != "initial" or author.codon_id is not None:
        click.echo("\nThe change:")
        click.echo(harmless(story.patch).rstrip("\n"))

    if story.later:
        newest = encodable(described(story.later[0]))
        click.echo(f"\n{counted(len(story.later), 'later change')} of the file; last: {newest}")

    if author.event_seq is not None and author.by == "agent":
        words = f"replay --seq {author.event_seq} --events"
        click.echo(f"\nThe transcript up to it: {command(words, layout.root)}")


def _print_section(title: str, text: str | None) -> None:
    if text:
        lines = harmless(text.strip()).split("\n")
        more = [f"({counted(len(lines) - _MOST_LINES, 'more line')})"]
        shortened = lines if len(lines) <= _MOST_LINES else lines[:_MOST_LINES] + more
        click.echo(f"\n{title}:")
        click.echo("\n".join(f"  {line}" for line in shortened))


# --- a step --------------------------------------------------------------------------------------


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
            hint=f"For a line, add its number: src/main.py:13. Codons with inputs: {listed}.",
        )

    now = found[0]
    earlier = next((each for each in found[1:] if each.inputs.inputs), None)
    differing: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    if earlier is not None and now.inputs.inputs:
        differing = differences(earlier.inputs.inputs, now.inputs.inputs)
        if _TREE in differing:
            then = earlier.inputs
            paths = run_read_only(root, lambda calls: _paths(calls, then, now.inputs))

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

    page = await whole_diff(calls, first, second, None, patch=False)
    return tuple(sorted(found.union(each.path for each in page.files if each.path not in same)))


def _lines_of_step(answer: StepAnswer, root: Path) -> Iterator[str]:
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
