"""Run the search for a failure that a client has asked for, in the background.

One search runs at a time. It reads the repository beside the engine and holds nothing up; it ends
with the server, and is not continued by the next one.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_protocol.commands import BisectStart
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import BisectEnded, BisectProgress, BisectStarted, EventData
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import BisectionBegun
from hankweave_server.checkpoints.commit_message import NotACheckpoint, read_back
from hankweave_server.confinement.policy import Level
from hankweave_server.domain import targets
from hankweave_server.execution.bisection.search import (
    BisectFailed,
    Bisection,
    Candidate,
    Verdict,
)
from hankweave_server.execution.bisection.trials import (
    Trials,
    candidates_between,
    commit_of,
    trial_folder,
)
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo

STOPPED = "It was stopped."
_LONGEST_LINE = 200


@dataclass(slots=True)
class _Search:
    """A search that runs."""

    bisect_id: str
    command: BisectStart
    candidates: list[Candidate]
    runs: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Bisections:
    """The searches of one execution; `run` carries them out."""

    def __init__(self, ctx: ExecutionContext, broadcast: Callable[[EventData], None]) -> None:
        self._ctx = ctx
        self._broadcast = broadcast
        self._search: _Search | None = None
        self._wake = anyio.Event()

    async def start(self, command: BisectStart, causes: tuple[int | str, ...]) -> BisectionBegun:
        """Record and begin a search; raise Refused."""
        self._refuse_second()
        good = None if command.good is None else self._named(command.good, "$.data.good")
        bad = self._newest() if command.bad is None else self._named(command.bad, "$.data.bad")
        try:
            found = await anyio.to_thread.run_sync(self._between, good, bad)
        except BisectFailed as failed:
            raise Refused(
                ErrorCode.INVALID_COMMAND, failed.message, path="$.data.good", hint=failed.hint
            ) from None

        self._refuse_second()
        search = self._search = _Search(secrets.token_hex(4), command, found)
        begun = BisectStarted(
            bisect_id=search.bisect_id,
            command=command.command,
            good=found[0].sha,
            bad=found[-1].sha,
            checkpoints=len(found),
        )
        try:
            await self._ctx.ledger.record(begun, causes=causes)
        except BaseException:
            self._search = None
            raise

        self._wake.set()
        return BisectionBegun(bisect_id=search.bisect_id, checkpoints=len(found))

    def stop(self) -> None:
        """End the search that runs; raise Refused if there is none."""
        if self._search is None:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "No bisection is running.",
                hint="The journal has the result of the last one.",
            )

        self._search.scope.cancel()

    async def run(self) -> None:
        """Carry out searches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            if (search := self._search) is None:
                continue

            ended = BisectEnded(bisect_id=search.bisect_id, message=STOPPED)
            with search.scope:
                ended = await self._ended(search)

            self._search = None
            await self._ctx.ledger.record(ended)

    def _refuse_second(self) -> None:
        if self._search is not None:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"Bisection {self._search.bisect_id} is running.",
                hint="Wait until it has ended, or stop it.",
            )

    def _named(self, text: str, place: str) -> Sha:
        """Return the checkpoint of a SHA or of the end of a step."""
        try:
            return targets.named(self._ctx.state, self._ctx.checkpointer.known, text).sha
        except Refused as refused:
            raise Refused(refused.code, refused.message, path=place, hint=refused.hint) from None

    def _newest(self) -> Sha:
        with closing(ShadowRepo(self._ctx.layout.shadow_repository)) as repo:
            newest = repo.head()

        if newest is None:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                "There is no checkpoint yet.",
                hint="Take one first.",
            )

        return newest

    def _between(self, good: Sha | None, bad: Sha) -> list[Candidate]:
        with closing(ShadowRepo(self._ctx.layout.shadow_repository)) as repo:
            return candidates_between(repo, good, bad)

    async def _ended(self, search: _Search) -> BisectEnded:
        try:
            with closing(ShadowRepo(self._ctx.layout.shadow_repository)) as repo:
                async with _folder() as folder:
                    return await self._searched(search, repo, folder)
        except BisectFailed as failed:
            message = f"{failed.message} {failed.hint}"
        except (ShadowRepositoryError, OSError) as error:
            message = f"The checkpoints could not be tried: {error}"

        return BisectEnded(bisect_id=search.bisect_id, message=message)

    async def _searched(self, search: _Search, repo: ShadowRepo, folder: Path) -> BisectEnded:
        ctx = self._ctx
        trials = Trials(
            ctx.layout,
            repo,
            folder,
            search.command.command,
            await anyio.to_thread.run_sync(self._level),
            ports=ctx.confinement.server_ports(),
        )
        attempt = partial(self._attempt, search, trials)
        bisection = Bisection(search.candidates, attempt, search.command.parallel)
        suspects = await bisection.run()
        ended = BisectEnded(
            bisect_id=search.bisect_id,
            suspects=tuple(each.sha for each in suspects),
            runs=bisection.runs,
            skipped=bisection.skipped,
        )
        return ended if len(suspects) > 1 else _with_facts(ended, repo, suspects[0].sha)

    async def _attempt(self, search: _Search, trials: Trials, candidate: Candidate) -> Verdict:
        search.runs += 1
        verdict = await trials.attempt(candidate)
        # The ledger removes secrets from what it records; this is not recorded.
        line = self._ctx.checkpointer.clean(trials.last_lines.get(candidate.sha, ""))
        self._broadcast(
            BisectProgress(
                bisect_id=search.bisect_id,
                checkpoint_sha=candidate.sha,
                verdict=verdict,
                last_line=line[:_LONGEST_LINE],
                runs=search.runs,
            )
        )
        return verdict

    def _level(self) -> Level:
        """Return the level for commands: none if the execution runs its own without."""
        confinement = self._ctx.confinement
        is_without = (confinement.chosen or confinement.default) == "none"
        return Level.NONE if is_without else confinement.probe().level


def _with_facts(ended: BisectEnded, repo: ShadowRepo, sha: Sha) -> BisectEnded:
    """Add what the commit of the first failure says."""
    commit = commit_of(repo, sha)
    assert commit is not None, "a candidate exists"
    codon_id, summary = None, None
    try:
        facts = read_back(sha, commit.tree, commit.parents, commit.committed, commit.message)
        codon_id, summary = facts.codon_id, facts.summary
    except NotACheckpoint:
        pass  # Another program has made it.

    return BisectEnded(
        bisect_id=ended.bisect_id,
        checkpoint_sha=sha,
        parent_sha=commit.parents[0] if commit.parents else None,
        codon_id=codon_id,
        summary=summary,
        suspects=ended.suspects,
        runs=ended.runs,
        skipped=ended.skipped,
    )


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    """Provide the folder of trials; its removal is waited for in a thread."""
    manager = trial_folder()
    folder = await anyio.to_thread.run_sync(manager.__enter__)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(manager.__exit__, None, None, None)
