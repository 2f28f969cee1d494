"""The searches for a failure that clients ask for, in the background.

One search runs at a time. It reads the repository beside the engine and holds nothing up; it ends
with the server, and is not continued by the next one.
"""

from __future__ import annotations

from contextlib import closing

import anyio

from hankweave_protocol.commands import BisectStart
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import BisectionBegun
from hankweave_server.domain import targets
from hankweave_server.execution.bisection.bisector import Bisector, CommandSearch
from hankweave_server.execution.bisection.search import BisectFailed
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.git.repo import ShadowRepo


class Bisections:
    """The searches of one execution; `run` carries them out."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._bisector = Bisector(ctx)
        self._search: CommandSearch | None = None
        self._wake = anyio.Event()

    async def start(self, command: BisectStart, causes: tuple[int | str, ...]) -> BisectionBegun:
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
            await self._ctx.ledger.record(search.begun, causes=causes)
        except BaseException:
            self._search = None
            raise

        self._wake.set()
        return BisectionBegun(bisect_id=search.bisect_id, checkpoints=len(found))

    def stop(self) -> None:
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
