"""`hankweave bisect`: find the first checkpoint at which a command fails.

The search
----------
`FirstFailure` decides which checkpoints to try. It knows one that passes and a later one that
fails, and halves what lies between; with several tries at a time, it divides that into one part
more. A checkpoint that cannot be judged is passed over, as in `git bisect`: the neighbours decide,
and if only such ones are left, all of them are suspects. Both ends are tried first, so the number
of runs is at most log2(n) + 2. The result of a run is that of the tree: checkpoints that changed
nothing are no candidates, and a tree that comes again is not run again.

The trials
----------
Each run has a work tree of its own, which holds a checkpoint and is removed afterwards: what a
command builds cannot change the next result. It lies in the folder for temporary files, with a
link to the data, and the command is confined in it as the checks of a step are. The work tree and
the files of the execution are only read. `cleanup` removes everything, also after `kill -9`, and
the keeper of each command ends its processes.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import click
import msgspec

from hankweave_protocol.hank import Confinement
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.agents.base import AgentNeeds
from hankweave_server.agents.fence import fence_for
from hankweave_server.agents.process.own_program import own_program
from hankweave_server.agents.process.subprocess_task import Errands
from hankweave_server.answers import cleanup
from hankweave_server.answers.authors import ChangeAuthor, authors_of
from hankweave_server.answers.history import ReadHistory, reading_history
from hankweave_server.background_tasks import task_group
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.manifest import ManifestCorrupt
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.restore import TargetSnapshot
from hankweave_server.cli.answers.blame import described
from hankweave_server.cli.output.pictures import print_patch
from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.confinement.policy import Fence, Level
from hankweave_server.confinement.probe import probe
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.codon.environment import DATA_VARIABLE
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.fsutil import make_private_directory, temporary_folder
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import LINK
from hankweave_server.local.server_session import command as command_line
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.data_source import layout_of, link_data, linked_file, restore_link
from hankweave_server.worktree.removal import remove
from hankweave_server.worktree.rigs import RigCommandFailed, RigError, run_rig_command

Verdict = Literal["passes", "fails", "skipped"]

_SKIP = 125
_LAST_OF_A_FAILURE = 127
"""A greater exit code, or a signal, means that the command itself is broken, as for git."""


class BisectFailed(Exception):
    """A search that has no result; the message says why, and the hint what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class FirstFailure:
    """A search among candidates: number 0 passes, the last one fails."""

    def __init__(self, last: int) -> None:
        self._passes = 0
        self._fails = last
        self._skipped: set[int] = set()

    def tries(self, most: int) -> tuple[int, ...]:
        """Return the candidates to try next, at most so many; none at the end."""
        between = range(self._passes + 1, self._fails)
        left = [number for number in between if number not in self._skipped]
        parts = min(most, len(left)) + 1
        return tuple(left[part * len(left) // parts] for part in range(1, parts))

    def note(self, number: int, verdict: Verdict) -> None:
        """Take the result of a candidate into account."""
        match verdict:
            case "passes" if number < self._fails:
                self._passes = max(self._passes, number)
            case "fails":
                self._fails = min(self._fails, number)
            case "skipped":
                self._skipped.add(number)
            case _:
                pass

    @property
    def suspects(self) -> range:
        """The candidates of which one is the first failure; a single one if nothing was skipped."""
        return range(self._passes + 1, self._fails + 1)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that may be the first failure."""

    sha: Sha
    tree: Sha


@dataclass(slots=True)
class Bisection:
    """A search over checkpoints, from one that passes to one that fails, oldest first."""

    candidates: Sequence[Candidate]
    attempt: Callable[[Candidate], Awaitable[Verdict]]
    """Run the command on a checkpoint."""
    parallel: int = 1
    runs: int = 0
    known: dict[Sha, Verdict] = field(default_factory=dict)
    """The results, by tree."""

    @property
    def skipped(self) -> int:
        """The number of trees that could not be judged."""
        return sum(verdict == "skipped" for verdict in self.known.values())

    async def run(self) -> tuple[Candidate, ...]:
        """Return the first failure, or all that it may be; raise BisectFailed."""
        changed = list(_without_repetitions(self.candidates))
        await self._try((changed[0], changed[-1]) if self.parallel > 1 else (changed[0],))
        self._require(changed[0], "passes")
        await self._try((changed[-1],))
        self._require(changed[-1], "fails")
        search = FirstFailure(len(changed) - 1)
        while numbers := search.tries(self.parallel):
            await self._try([changed[number] for number in numbers])
            for number in numbers:
                search.note(number, self.known[changed[number].tree])

        return tuple(changed[number] for number in search.suspects)

    async def _try(self, candidates: Sequence[Candidate]) -> None:
        new = {each.tree: each for each in candidates if each.tree not in self.known}
        try:
            async with task_group() as tasks:
                for each in new.values():
                    tasks.start_soon(self._judge, each)
        except ExceptionGroup as group:  # The first error has cancelled the others.
            raise group.exceptions[0] from None

    async def _judge(self, candidate: Candidate) -> None:
        self.runs += 1
        self.known[candidate.tree] = await self.attempt(candidate)

    def _require(self, candidate: Candidate, wanted: Verdict) -> None:
        found = self.known[candidate.tree]
        if found == wanted:
            return

        sha = candidate.sha[:12]
        if found == "skipped":
            raise BisectFailed(
                f"The command cannot judge checkpoint {sha}: it exited with {_SKIP}.",
                "Name other checkpoints with --good and --bad.",
            )

        if wanted == "passes":
            raise BisectFailed(
                f"The command fails at checkpoint {sha} already.",
                "Name an earlier or other checkpoint or step at which it passes with --good.",
            )

        raise BisectFailed(
            f"The command does not fail at checkpoint {sha}.",
            "Name a checkpoint or step at which it fails with --bad.",
        )


def _without_repetitions(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that differ from the one before."""
    before = None
    for each in candidates:
        if each.tree != before:
            yield each

        before = each.tree


# --- trials ---------------------------------------------------------------------------------------


@contextmanager
def trial_folder() -> Iterator[Path]:
    """Provide a private folder that is removed at the end, also after `kill -9`."""
    folder = Path(temporary_folder()) / f"hankweave-bisect-{secrets.token_hex(8)}"
    with cleanup.throw_away(folder, own_program(cleanup.__name__)):
        yield folder


class Trials:
    """Runs of one command on checkpoints, each in a work tree of its own."""

    def __init__(
        self, layout: Layout, repo: ShadowRepo, folder: Path, command: str, level: Level
    ) -> None:
        self._layout = layout
        self._repo = repo
        self._folder = folder
        self._command = command
        self._level = level
        self._filling = anyio.Lock()
        """Held while files are read: the repository is for one thread at a time."""
        self.last_lines: dict[Sha, str] = {}
        """The last line that each run has printed, by checkpoint."""

    async def attempt(self, candidate: Candidate) -> Verdict:
        """Run the command on a checkpoint; raise BisectFailed if the command itself is broken."""
        layout = Layout.of_execution(self._folder / secrets.token_hex(8))
        async with self._filling:
            await anyio.to_thread.run_sync(self._filled, layout, candidate.sha)

        async def note(_: str, line: str) -> None:
            if line.strip():
                self.last_lines[candidate.sha] = line

        try:
            await run_rig_command(
                self._command,
                start=below_a_keeper(self._errands(layout)),
                cwd=layout.work_tree,
                env=self._environment(layout),
                timeout_seconds=None,
                on_line=note,
            )
        except RigCommandFailed as failed:
            return self._verdict(failed)
        except RigError as error:
            raise BisectFailed(str(error), "Try the command in a shell first.") from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove, layout.root)

        return "passes"

    def _verdict(self, failed: RigCommandFailed) -> Verdict:
        if failed.exit_code == _SKIP:
            return "skipped"

        if 0 < failed.exit_code <= _LAST_OF_A_FAILURE:
            return "fails"

        raise BisectFailed(
            f"{failed} That is no verdict.",
            "Let it exit with 0 if it passes, 1 to 124 if it fails, and 125 to skip a checkpoint.",
        ) from failed

    def _errands(self, layout: Layout) -> Errands:
        return Errands(
            RunId("bisect"), CodonId("bisect"), layout.agent_processes, fence=self._fence(layout)
        )

    def _fence(self, layout: Layout) -> Fence | None:
        file = linked_file(self._layout)
        wanted = Confinement(extra_read=() if file is None else (str(file),))
        return fence_for(layout, wanted, AgentNeeds(), self._level, {})

    def _environment(self, layout: Layout) -> Mapping[str, str]:
        has_data = os.path.lexists(layout.data_source)
        return {DATA_VARIABLE: str(layout.data_path)} if has_data else {}

    def _filled(self, layout: Layout, sha: Sha) -> None:
        try:
            self._fill(layout, sha)
        except (KeyError, ManifestCorrupt) as problem:
            raise ShadowRepositoryError(f"checkpoint {sha[:12]} is damaged") from problem

    def _fill(self, layout: Layout, sha: Sha) -> None:
        """Write the files of a checkpoint into a new work tree, with a link to the data."""
        commit = self._repo.commit(sha)
        assert commit is not None, "a candidate exists"
        manifest = Notes(self._repo).manifest(sha)
        snapshot = TargetSnapshot(self._repo, sha, bytes.fromhex(commit.tree), manifest)
        make_private_directory(layout.agent_processes)
        layout.work_tree.mkdir()
        top, contents = os.fsencode(layout.work_tree), Contents(self._repo)
        for folder in sorted(snapshot.folders):
            os.mkdir(os.path.join(top, folder))

        for path, entry in snapshot.files():
            place = os.path.join(top, path)
            if entry.mode == LINK:
                os.symlink(b"".join(contents.pieces(entry.digest)), place)
                continue

            with open(place, "xb") as file:
                file.writelines(contents.pieces(entry.digest))

            os.chmod(place, stat.S_IMODE(snapshot.mode(path, entry)))

        if os.path.lexists(self._layout.data_source):
            source = linked_file(self._layout) or self._layout.data_source.resolve()
            link_data(layout, source, copy=False)
            restore_link(layout, 0)


# --- the command ---------------------------------------------------------------------------------

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
        candidates = _between(past, good, bad)
        try:
            with trial_folder() as folder:
                trials = Trials(layout, past.files.repo, folder, command, level)
                judge = partial(_shown, trials, past, len(candidates))
                bisection = Bisection(candidates, judge, parallel)
                suspects = anyio.run(bisection.run)
        except BisectFailed as failed:
            raise Stop(failed.message, ExitCode.FAILED, hint=failed.hint) from None

        first = suspects[0]
        author = _author_of(past, first.sha)
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
            _tell(past, author, found, layout)
        else:
            for each in suspects:
                who = encodable(described(_author_of(past, each.sha)))
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


def _between(past: ReadHistory, good: str | None, bad: str | None) -> list[Candidate]:
    """Return the checkpoints from a good to a bad one, oldest first; raise Stop."""
    until = past.named(bad)
    line = list(past.files.line(until))
    start = len(line) - 1
    if good is not None:
        sha = past.named(good)
        places = [place for place, commit in enumerate(line) if commit.sha == sha]
        if not places:
            raise Stop(
                f"Checkpoint {sha[:12]} does not come before {until[:12]}.",
                ExitCode.USAGE,
                hint="Name a good one that the bad one continues from: `hankweave runs` shows how "
                "they follow each other.",
            )

        start = places[0]

    return [Candidate(commit.sha, commit.tree) for commit in reversed(line[: start + 1])]


async def _shown(trials: Trials, past: ReadHistory, count: int, candidate: Candidate) -> Verdict:
    """Judge a candidate, and print the result on stderr."""
    verdict = await trials.attempt(candidate)
    facts = past.files.facts(candidate.sha)
    title = one_line((facts and (facts.summary or facts.label or facts.kind)) or "")
    last = one_line(trials.last_lines.get(candidate.sha, ""))[:60]
    click.echo(f"{candidate.sha[:8]}  {verdict:<7}  {title:<40}  {last}".rstrip(), err=True)
    return verdict


def _author_of(past: ReadHistory, sha: Sha) -> ChangeAuthor:
    """Return who made a checkpoint's change: the first call, if several have changed files."""
    paths = past.files.changed_paths(sha)
    authors = authors_of(past, [(sha, path) for path in paths] or [(sha, b"")])
    called = (author for author in authors.values() if author.call is not None)
    return next(called, next(iter(authors.values())))


def _tell(
    past: ReadHistory, author: ChangeAuthor, found: FirstFailureFound, layout: Layout
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
