"""Previews of adoptions, which need no server."""

from __future__ import annotations

from collections.abc import Iterable

from hankweave_protocol.commands import ExplorationAdopt
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import RollbackReport
from hankweave_server.api.dispatch import handles
from hankweave_server.domain.execution_thread import active_codon
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.exploration.explorations import adoption_preview
from hankweave_server.local.living import living_server
from hankweave_server.local.reader import FileCalls


def handlers(calls: FileCalls) -> Iterable[object]:
    return (_Previews(calls),)


class _Previews:
    def __init__(self, calls: FileCalls) -> None:
        self._calls = calls

    @handles(ExplorationAdopt)
    async def adopt(self, command: ExplorationAdopt) -> RollbackReport:
        assert command.preview, "to adopt something requires a server"
        if command.merge:
            return await self._merge_preview(command)

        return await self._calls.preview(adoption_preview(self._calls.state, command))

    async def _merge_preview(self, command: ExplorationAdopt) -> RollbackReport:
        # Imported here because only this needs the merge.
        from hankweave_server.features.exploration.merge_preview import (
            StoreKeepsChanging,
            merge_preview,
        )

        self._refuse_while_running()
        try:
            return await merge_preview(
                self._calls.plan_sources(), command, self._calls.sources.last_seq()
            )
        except StoreKeepsChanging:
            raise Stop(
                "The checkpoints change while they are read.",
                ExitCode.UNAVAILABLE,
                hint="Wait until the server is idle, and try again.",
            ) from None

    def _refuse_while_running(self) -> None:
        active = active_codon(self._calls.state)
        if active is not None and living_server(self._calls.layout):
            raise Refused(
                ErrorCode.CODON_RUNNING,
                f"Codon {active.codon_id} is running.",
                hint="Wait until it has ended, or run `hankweave stop` first.",
            )
