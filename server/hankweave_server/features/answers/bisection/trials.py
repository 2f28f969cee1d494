"""Run a command on checkpoints.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.to_thread

from hankweave_protocol.hank import Confinement
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.agents.base import AgentNeeds
from hankweave_server.agents.fence import fence_for
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.checkpoints.commit_message import facts_of
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.manifest import ManifestCorrupt
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.restore import TargetSnapshot
from hankweave_server.confinement.own_program import own_program
from hankweave_server.confinement.policy import Fence, Level
from hankweave_server.execution.codon.environment import DATA_VARIABLE
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.features.answers.bisection import cleanup
from hankweave_server.features.answers.bisection.search import (
    SKIP,
    BisectFailed,
    Candidate,
    Verdict,
)
from hankweave_server.fsutil import make_private_directory, temporary_folder
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import RawCommit, ShadowRepo
from hankweave_server.git.trees import LINK
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import link_data, linked_file, restore_link
from hankweave_server.worktree.removal import remove
from hankweave_server.worktree.rigs import RigCommandFailed, RigError, run_rig_command

_LAST_OF_A_FAILURE = 127
"""A greater exit code, or a signal, means that the command itself is broken, as for git."""


def candidates_between(repo: ShadowRepo, good: Sha | None, bad: Sha) -> list[Candidate]:
    """Return the checkpoints from a good one, or the beginning, to a bad one, oldest first.

    Raises BisectFailed if the bad one does not continue from the good one, and
    ShadowRepositoryError for damage.
    """
    found: list[Candidate] = []
    sha: Sha | None = bad
    while sha is not None:
        commit = commit_of(repo, sha)
        if commit is None:
            break

        found.append(Candidate(sha, commit.tree))
        if sha == good:
            return found[::-1]

        sha = commit.parents[0] if commit.parents else None

    if good is None:
        return found[::-1]

    raise BisectFailed(
        f"Checkpoint {good[:12]} does not come before {bad[:12]}.",
        "Name a good one that the bad one continues from: `hankweave runs` shows how they follow "
        "each other.",
    )


def candidates_since(repo: ShadowRepo, moment: datetime, bad: Sha) -> list[Candidate]:
    """Return the last checkpoint before a moment and those after it up to a bad one, oldest first.

    Raises ShadowRepositoryError for damage.
    """
    found: list[Candidate] = []
    sha: Sha | None = bad
    while sha is not None and (commit := commit_of(repo, sha)) is not None:
        found.append(Candidate(sha, commit.tree))
        facts = facts_of(commit)
        if facts is None or facts.timestamp < moment:
            break

        sha = commit.parents[0] if commit.parents else None

    return found[::-1]


def commit_of(repo: ShadowRepo, sha: Sha) -> RawCommit | None:
    """Return a commit; None if it is gone. Raises ShadowRepositoryError for damage."""
    try:
        return repo.commit(sha)
    except KeyError as problem:
        raise ShadowRepositoryError(f"checkpoint {sha[:12]} is damaged") from problem


@contextmanager
def trial_folder() -> Iterator[Path]:
    """Provide a private folder that is removed at the end, also after `kill -9`."""
    folder = Path(temporary_folder()) / f"hankweave-bisect-{secrets.token_hex(8)}"
    with cleanup.private_folder(folder, own_program(cleanup.__name__)):
        yield folder


class Trials:
    """Runs of one command on checkpoints, each in a work tree of its own."""

    def __init__(
        self,
        layout: Layout,
        repo: ShadowRepo,
        folder: Path,
        command: str,
        level: Level,
        *,
        ports: tuple[int, ...] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`ports` are those of a server that the command must not reach.

        `environment` are variables of the command besides that of the data.
        """
        self._layout = layout
        self._repo = repo
        self._folder = folder
        self._command = command
        self._level = level
        self._ports = ports
        self._variables = environment
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
                start=below_a_keeper(self._subprocess_tasks(layout)),
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
        if failed.exit_code == SKIP:
            return "skipped"

        if 0 < failed.exit_code <= _LAST_OF_A_FAILURE:
            return "fails"

        raise BisectFailed(
            f"{failed} That is no verdict.",
            "Let it exit with 0 if it passes, 1 to 124 if it fails, and 125 to skip a checkpoint.",
        ) from failed

    def _subprocess_tasks(self, layout: Layout) -> SubprocessTasks:
        return SubprocessTasks(
            RunId("bisect"), CodonId("bisect"), layout.agent_processes, fence=self._fence(layout)
        )

    def _fence(self, layout: Layout) -> Fence | None:
        file = linked_file(self._layout)
        wanted = Confinement(extra_read=() if file is None else (str(file),))
        return fence_for(layout, wanted, AgentNeeds(), self._level, {}, ports=self._ports)

    def _environment(self, layout: Layout) -> Mapping[str, str]:
        has_data = os.path.lexists(layout.data_source)
        data = {DATA_VARIABLE: str(layout.data_path)} if has_data else {}
        return {**self._variables, **data}

    def _filled(self, layout: Layout, sha: Sha) -> None:
        try:
            self._fill(layout, sha)
        except (KeyError, ManifestCorrupt) as problem:
            raise ShadowRepositoryError(f"checkpoint {sha[:12]} is damaged") from problem

    def _fill(self, layout: Layout, sha: Sha) -> None:
        """Write the files of a checkpoint into a new work tree, with a link to the data."""
        commit = commit_of(self._repo, sha)
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
