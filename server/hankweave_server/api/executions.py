"""List the executions of the user, and return the address of the page of one.

A client with this server's token of controllers may see the others, because that is what the
terminal shows to the same user. Viewers may not: their link is to one execution. A server without
tokens exposes nothing, because anyone on the machine may ask it. Tokens of other servers are
exposed only while this one is open on loopback alone: from elsewhere, their addresses lead nowhere.

Reading is done in a worker thread, by one request at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.commands import ExecutionsList, GetExecutionAddress
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.executions import ExecutionAddress, ExecutionPage, ListedExecution
from hankweave_server.api.dispatch import handles
from hankweave_server.clock import Clock

PAGE = 200
"""Executions in one answer, unless the command asks for fewer."""

RECENT = timedelta(days=7)
"""How long a failure waits for a person; later, it is one of the past."""


class Executions:
    """The handler of `executions.*`."""

    def __init__(
        self,
        rows: Callable[[], Sequence[ListedExecution]],
        spent_since: Callable[[datetime], float],
        address_of: Callable[[str], ExecutionAddress | None],
        clock: Clock,
        *,
        exposes_rows: bool,
        exposes_tokens: bool,
    ) -> None:
        """Take callables that read files; they are called in a worker thread."""
        self._rows = rows
        self._spent_since = spent_since
        self._address_of = address_of
        self._clock = clock
        self._exposes_rows = exposes_rows
        self._exposes_tokens = exposes_tokens
        self._thread = anyio.CapacityLimiter(1)

    @handles(ExecutionsList)
    async def list(self, command: ExecutionsList) -> ExecutionPage:
        """Return a page of the executions that match."""
        since = None if command.spent_since is None else _instant(command.spent_since)
        page = page_of_executions(command, await self._known(), self._clock.now())
        if since is None:
            return page

        spent = await anyio.to_thread.run_sync(self._spent_since, since, limiter=self._thread)
        return msgspec.structs.replace(page, spent=spent)

    @handles(GetExecutionAddress)
    async def address(self, command: GetExecutionAddress) -> ExecutionAddress:
        """Return the address of a server's page; raise Refused if no server is there."""
        if self._exposes_rows and not self._exposes_tokens:
            raise Refused(
                ErrorCode.INSUFFICIENT_PERMISSIONS,
                "A server that is open beyond loopback tells no tokens of others.",
                path="$.type",
                hint="On its machine, `hankweave status -e PATH` prints the address.",
            )

        path, found = command.execution_path, None
        if path in {row.path for row in await self._known()}:
            found = await anyio.to_thread.run_sync(self._address_of, path, limiter=self._thread)

        if found is None:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "No server of an execution is there.",
                path="$.data.executionPath",
                hint="Start one with `hankweave run -e PATH`; `hankweave ls` lists the paths.",
            )

        return found

    async def _known(self) -> Sequence[ListedExecution]:
        if not self._exposes_rows:
            raise Refused(
                ErrorCode.INSUFFICIENT_PERMISSIONS,
                "A server without tokens tells nothing of other executions.",
                path="$.type",
                hint="`hankweave ls` lists them in a terminal; a server with tokens does so here.",
            )

        return await anyio.to_thread.run_sync(self._rows, limiter=self._thread)


def page_of_executions(
    command: ExecutionsList, rows: Sequence[ListedExecution], now: datetime
) -> ExecutionPage:
    """Return the page that a command asks for; raise Refused for a cursor that is none."""
    words = command.search.casefold().split()
    found = [row for row in rows if _is_of(row, command.map_path, is_search=bool(words))]
    found = [row for row in found if all(word in _text_of(row) for word in words)]
    found.sort(key=lambda row: row.last_activity or row.last_used or "", reverse=True)
    found.sort(key=lambda row: _rank(row, now))
    begin = _offset(command.cursor)
    end = begin + min(command.limit or PAGE, PAGE)
    return ExecutionPage(
        executions=tuple(found[begin:end]),
        total=len(found),
        needing=sum(needs_a_person(row, now) for row in found),
        cursor=str(end) if end < len(found) else None,
    )


def _is_of(row: ListedExecution, map_path: str | None, *, is_search: bool) -> bool:
    return row.map_of == map_path or (map_path is None and is_search)


def _instant(text: str) -> datetime:
    try:
        return instants.from_text(text)
    except ValueError as error:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"This is no time: {error}.",
            path="$.data.spentSince",
            hint="Write it as 2025-01-04T12:00:00.000Z.",
        ) from None


def needs_a_person(row: ListedExecution, now: datetime) -> bool:
    """Return whether nothing goes on there without a person.

    A failed attempt waits for the client that explores, the row of a map shows its failures, and a
    failure of long ago no longer waits for a person.
    """
    if row.waits_for is not None:
        return True

    has_failed = row.state in ("failed", "crashed") or (row.is_idle and row.failure is not None)
    if not has_failed or (row.attempt or row.map_of) is not None:
        return False

    since = instants.to_text(now - RECENT)
    return row.server_pid is not None or (row.last_activity or "") > since


def _rank(row: ListedExecution, now: datetime) -> int:
    if needs_a_person(row, now):
        return 0 if row.waits_for is not None else 1

    return 2 if row.state == "running" and not row.is_idle else 3


def _text_of(row: ListedExecution) -> str:
    parts = (row.hank_name, row.hank, row.path, row.data, row.last_codon, row.last_codon_name)
    return "\n".join(filter(None, parts)).casefold()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0

    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 9):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "The cursor is not one of a page of executions.",
            path="$.data.cursor",
        )

    return int(cursor)
