"""Searches for the first failure within a server: for a client, or for a check that has failed.

A client's search is carried out in the background, one at a time; it ends with the server, and is
not continued by the next one. A check waits for the result: the reason of its failure names the
first checkpoint at which the command fails. Such a search has a limit, and ends with its codon or
by `bisect.stop`. A search is in the journal from its beginning. It reads the repository beside the
engine, holds nothing up, changes no file and takes no checkpoint.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_protocol.commands import BisectStart, BisectStop
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import BisectEnded, BisectProgress, BisectStarted
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import BisectionBegun
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.checkpoints.commit_message import facts_of
from hankweave_server.confinement.policy import Level
from hankweave_server.domain import targets
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.features.answers.bisection.search import (
    BisectFailed,
    Bisection,
    Candidate,
    Verdict,
)
from hankweave_server.features.answers.bisection.trials import (
    Trials,
    candidates_between,
    commit_of,
    trial_folder,
)
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo

STOPPED = "It was stopped."
_LONGEST_LINE = 200


@dataclass(slots=True)
class CommandSearch:
    """A search for the first failure of a command."""

    command: str
    candidates: list[Candidate]
    parallel: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    bisect_id: str = field(default_factory=lambda: secrets.token_hex(4))
    runs: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def begun(self) -> BisectStarted:
        """The event of its beginning."""
        return BisectStarted(
            bisect_id=self.bisect_id,
            command=self.command,
            good=self.candidates[0].sha,
            bad=self.candidates[-1].sha,
            checkpoints=len(self.candidates),
        )


class Bisector:
    """The searches of one execution."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def between(self, good: Sha | None, bad: Sha) -> list[Candidate]:
        """Return the candidates of a search; raise BisectFailed as `candidates_between`."""

        def found() -> list[Candidate]:
            with closing(ShadowRepo(self._ctx.layout.shadow_repository)) as repo:
                return candidates_between(repo, good, bad)

        return await anyio.to_thread.run_sync(found)

    async def carry_out(self, search: CommandSearch) -> BisectEnded:
        """Return the end of a search, which `bisect.stop` may bring about."""
        ended = BisectEnded(bisect_id=search.bisect_id, message=STOPPED)
        self._ctx.searches[search.bisect_id] = search.scope
        try:
            with search.scope:
                ended = await self._ended(search)
        finally:
            del self._ctx.searches[search.bisect_id]

        return ended

    async def _ended(self, search: CommandSearch) -> BisectEnded:
        try:
            with closing(ShadowRepo(self._ctx.layout.shadow_repository)) as repo:
                async with _folder() as folder:
                    return await self._searched(search, repo, folder)
        except BisectFailed as failed:
            message = f"{failed.message} {failed.hint}"
        except (ShadowRepositoryError, OSError) as error:
            message = f"The checkpoints could not be tried: {error}"

        return BisectEnded(bisect_id=search.bisect_id, message=message)

    async def _searched(self, search: CommandSearch, repo: ShadowRepo, folder: Path) -> BisectEnded:
        ctx = self._ctx
        trials = Trials(
            ctx.layout,
            repo,
            folder,
            search.command,
            await anyio.to_thread.run_sync(self._level),
            ports=ctx.confinement.server_ports(),
            environment=search.environment,
        )
        attempt = partial(self._attempt, search, trials)
        bisection = Bisection(search.candidates, attempt, search.parallel)
        suspects = await bisection.run()
        ended = BisectEnded(
            bisect_id=search.bisect_id,
            suspects=tuple(each.sha for each in suspects),
            runs=bisection.runs,
            skipped=bisection.skipped,
        )
        return ended if len(suspects) > 1 else _with_facts(ended, repo, suspects[0].sha)

    async def _attempt(
        self, search: CommandSearch, trials: Trials, candidate: Candidate
    ) -> Verdict:
        search.runs += 1
        verdict = await trials.attempt(candidate)
        # The ledger removes secrets from what it records; this is not recorded.
        line = self._ctx.checkpointer.clean(trials.last_lines.get(candidate.sha, ""))
        self._ctx.broadcast(
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
    facts = facts_of(commit)
    return BisectEnded(
        bisect_id=ended.bisect_id,
        checkpoint_sha=sha,
        parent_sha=commit.parents[0] if commit.parents else None,
        codon_id=None if facts is None else facts.codon_id,
        summary=None if facts is None else facts.summary,
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


class Bisections:
    """The handler of `bisect.*`; `run` carries the searches out."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._bisector = Bisector(ctx)
        self._search: CommandSearch | None = None
        self._wake = anyio.Event()

    @handles(BisectStart)
    async def start(self, command: BisectStart, request: Request) -> BisectionBegun:
        """Record and begin a search; raise Refused."""
        self._refuse_second()
        good = None if command.good is None else self._named(command.good, "$.data.good")
        bad = self._newest() if command.bad is None else self._named(command.bad, "$.data.bad")
        try:
            found = await self._bisector.between(good, bad)
        except BisectFailed as failed:
            raise Refused(
                ErrorCode.INVALID_COMMAND, failed.message, path="$.data.good", hint=failed.hint
            ) from None

        self._refuse_second()
        search = CommandSearch(command.command, found, command.parallel)
        self._search = search
        try:
            await self._ctx.ledger.record(search.begun, causes=request.causes)
        except BaseException:
            self._search = None
            raise

        self._wake.set()
        return BisectionBegun(bisect_id=search.bisect_id, checkpoints=len(found))

    @handles(BisectStop)
    async def stop(self, command: BisectStop) -> None:
        """End the searches that run, also those of checks; raise Refused if there is none."""
        scopes = list(self._ctx.searches.values())
        if self._search is not None:
            scopes.append(self._search.scope)  # It may not have begun.

        if not scopes:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "No bisection is running.",
                hint="The journal has the result of the last one.",
            )

        for scope in scopes:
            scope.cancel()

    async def run(self) -> None:
        """Carry out searches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            if (search := self._search) is None:
                continue

            ended = await self._bisector.carry_out(search)
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
