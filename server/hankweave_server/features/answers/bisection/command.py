"""`hankweave bisect`: find the first checkpoint at which a command fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import ChangeAuthor
from hankweave_server.cli.output.pictures import print_patch
from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import probe
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.answers.bisection.search import (
    BisectFailed,
    Bisection,
    Candidate,
    Verdict,
)
from hankweave_server.features.answers.bisection.trials import (
    Trials,
    candidates_between,
    trial_folder,
)
from hankweave_server.features.answers.blame_command import described
from hankweave_server.features.answers.local_past import LocalHistory, reading_history
from hankweave_server.features.answers.stories import author_of
from hankweave_server.local.hints import command as command_line
from hankweave_server.local.hints import terminal_hint
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.data_source import layout_of

_MOST_PARALLEL = 64
_MOST_PATCHES = 5
"""Files of which a terminal shows the change."""


@click.command()
@click.argument("command", metavar="CMD")
@completions.checkpoint_option(
    "--good",
    metavar="SHA|STEP",
    help="Where CMD passes: a checkpoint, or the end of a step. Default: the beginning.",
)
@completions.checkpoint_option(
    "--bad",
    metavar="SHA|STEP",
    help="Where CMD fails. Default: the newest checkpoint.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _MOST_PARALLEL),
    default=1,
    show_default=True,
    help="Runs of CMD at a time.",
)
@click.option("--no-confinement", is_flag=True, help="Run CMD with all of your rights.")
@execution_option
@json_option
def bisect(
    command: str,
    good: str | None,
    bad: str | None,
    parallel: int,
    no_confinement: bool,
    execution: Path | None,
    as_json: bool,
) -> None:
    """Find the first checkpoint at which CMD fails, and the call behind it.

    CMD is run by the shell in throw-away copies of checkpoints, confined to them as an agent is to
    its work tree; your files are only read. It passes with exit code 0, fails with 1 to 124, and
    skips a checkpoint with 125. No server is needed.

    \b
    hankweave bisect "python -m pytest -q tests"
    hankweave bisect "make" --good build --parallel 2
    """
    layout = layout_of(root_of(execution))
    level = Level.NONE if no_confinement else probe().level
    if level is Level.NONE and not no_confinement:
        click.echo("hankweave: warning: commands cannot be confined on this machine.", err=True)

    with reading_history(layout) as past:
        candidates = _between(past, good, bad, layout)
        try:
            with trial_folder() as folder:
                trials = Trials(layout, past.files.repo, folder, command, level)
                judge = partial(_shown, trials, past, len(candidates))
                bisection = Bisection(candidates, judge, parallel)
                suspects = anyio.run(bisection.run)
        except BisectFailed as failed:
            raise _stop(failed, ExitCode.FAILED, layout) from None

        first = suspects[0]
        author = author_of(past, first.sha)
        found = FirstFailureFound(
            checkpoint_sha=first.sha if len(suspects) == 1 else None,
            codon_id=author.codon_id if len(suspects) == 1 else None,
            call=author.call if len(suspects) == 1 else None,
            runs=bisection.runs,
            skipped=bisection.skipped,
            suspects=tuple(each.sha for each in suspects),
        )
        if as_json:
            print_json(found)
        elif len(suspects) == 1:
            _print_failure(past, author, found, layout)
        else:
            for each in suspects:
                who = encodable(described(author_of(past, each.sha)))
                click.echo(f"{each.sha[:8]}  {who}")

        if len(suspects) > 1:
            raise Stop(
                f"Only skipped checkpoints are left: it is one of {len(suspects)}.",
                ExitCode.FAILED,
                hint="Let the command judge these, or look at them with `hankweave show SHA`.",
            )


class FirstFailureFound(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a bisection, as `--json` prints it."""

    checkpoint_sha: Sha | None
    """The first checkpoint at which the command fails; null if skipped ones hide it."""
    codon_id: str | None
    call: str | None
    runs: int
    """How often the command was run."""
    skipped: int
    """The number of checkpoints that it could not judge."""
    suspects: tuple[Sha, ...]
    """The checkpoints of which one is the first; a single one if nothing was skipped."""


def _between(
    past: LocalHistory, good: str | None, bad: str | None, layout: Layout
) -> list[Candidate]:
    """Return the checkpoints from a good to a bad one, oldest first; raise Stop."""
    until = past.named(bad)
    try:
        since = None if good is None else past.named(good)
        return candidates_between(past.files.repo, since, until)
    except BisectFailed as failed:
        raise _stop(failed, ExitCode.USAGE, layout) from None


def _stop(failed: BisectFailed, code: ExitCode, layout: Layout) -> Stop:
    return Stop(failed.message, code, hint=terminal_hint(failed.hint, layout.root))


async def _shown(trials: Trials, past: LocalHistory, count: int, candidate: Candidate) -> Verdict:
    """Judge a candidate, and print the result on stderr."""
    verdict = await trials.attempt(candidate)
    facts = past.files.facts(candidate.sha)
    title = one_line((facts and (facts.summary or facts.label or facts.kind)) or "")
    last = one_line(trials.last_lines.get(candidate.sha, ""))[:60]
    click.echo(f"{candidate.sha[:8]}  {verdict:<7}  {title:<40}  {last}".rstrip(), err=True)
    return verdict


def _print_failure(
    past: LocalHistory, author: ChangeAuthor, found: FirstFailureFound, layout: Layout
) -> None:
    sha = author.checkpoint_sha
    click.echo(f"\nThe first failure is {sha[:12]}: {encodable(described(author))}")
    click.echo(f"{moment(author.timestamp)}, run {author.run_id or '-'}")
    paths = past.files.changed_paths(sha)
    for path in paths[:_MOST_PATCHES]:
        patch = past.files.change_of(sha, path)
        if patch:
            print_patch(patch.decode("utf-8", "backslashreplace"))

    if len(paths) > _MOST_PATCHES:
        click.echo(f"{counted(len(paths) - _MOST_PATCHES, 'more file')}")

    commit = past.files.commit(sha)
    click.echo(f"{counted(found.runs, 'run')}, {found.skipped} skipped")
    if commit is not None and commit.parents:
        words = f"rollback --to {commit.parents[0][:12]}"
        click.echo(f"Back to just before it: {command_line(words, layout.root)}")


COMMANDS = (bisect,)
