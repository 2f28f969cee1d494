"""Declare handlers, and dispatch each command to its own, after the checks that apply to all.

A handler is an async method that takes the command, and the `Request` if it needs the sender or
the causes. It returns the reply's data, a `CommandAnswer`, or None if the reply has no data. A
handler that refuses a command raises `Refused` before it changes anything. The transport checks
the client's rights, the command's shape and its idempotence; the ledger orders what is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from hankweave_protocol.commands import Command, CommandData
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import RunId
from hankweave_server.api.caller import Caller, CommandAnswer, Request, refuse_agent
from hankweave_server.api.lookup import faults_refused
from hankweave_server.execution.codon.environment import granted
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.git.errors import code_of, refusal_of
from hankweave_server.ledger.disk_space import Space
from hankweave_server.logs import logger

log = logger(__name__)


Method = TypeVar("Method", bound=Callable[..., Awaitable[object]])
Handler = Callable[[CommandData, Request], Awaitable[object]]

_HANDLED = "handled_commands"


def handles(*commands: type[CommandData]) -> Callable[[Method], Method]:
    """Declare that a method handles these commands."""

    def declared(method: Method) -> Method:
        setattr(method, _HANDLED, commands)
        return method

    return declared


class Handlers:
    """The handlers of several objects, by command."""

    def __init__(self, objects: Iterable[object]) -> None:
        self._of_command: dict[type[CommandData], Handler] = {}
        for each in objects:
            for command, function in handled_by(type(each)):
                if command in self._of_command:
                    raise ValueError(f"{command.TYPE} has two handlers")

                self._of_command[command] = _bound(function, each)

    async def answer(self, command: CommandData, request: Request) -> CommandAnswer:
        """Call the handler of a command; raise Refused if there is none."""
        handler = self._of_command.get(type(command))
        if handler is None:
            raise Refused(
                ErrorCode.UNKNOWN_COMMAND,
                f"This server does not have the command {command.TYPE}.",
                path="$.type",
                hint="The part of Hankweave that handles it is not installed.",
            )

        result = await handler(command, request)
        return result if isinstance(result, CommandAnswer) else CommandAnswer(result)


def handled_by(kind: type) -> Iterator[tuple[type[CommandData], Callable[..., Any]]]:
    """Yield the commands that a class handles, each with the function that does."""
    for _, function in inspect.getmembers(kind, inspect.isfunction):
        for command in getattr(function, _HANDLED, ()):
            yield command, function


def _bound(function: Callable[..., Any], instance: object) -> Handler:
    if len(inspect.signature(function).parameters) == 3:
        return partial(function, instance)

    async def without_request(command: CommandData, request: Request) -> object:
        return await function(instance, command)

    return without_request


class Dispatch:
    """The dispatcher of commands to their handlers."""

    def __init__(
        self, ctx: ExecutionContext, handlers: Iterable[object], *, space: Space, quiet: Quiet
    ) -> None:
        """Take objects with methods that are declared as handlers."""
        self._ctx = ctx
        self._handlers = Handlers(handlers)
        self._space = space
        self._quiet = quiet

    async def handle(self, command: Command, caller: Caller) -> CommandAnswer:
        """Execute one command; raise Refused if it cannot be done."""
        data = command.data
        if caller.is_agent:
            refuse_agent(data, granted(self._ctx))

        if not data.DURING_ROLLBACK:
            self._ctx.guard.refuse_command(command.type)

        self._expect_run(getattr(data, "expected_run_id", None))
        if self._space.is_short and data.NEEDS_ROOM:
            raise _out_of_space()

        try:
            with faults_refused(), self._quiet.serving():
                return await self._handlers.answer(data, Request(command.id, caller))
        except Refused:
            raise
        except Exception as error:
            match code_of(error):
                case ErrorCode.INTERNAL_ERROR:
                    raise
                case ErrorCode.INSUFFICIENT_SPACE:
                    self._space.note(error)
                    raise _out_of_space() from error
                case _:
                    refusal = refusal_of(error, self._ctx.layout.root)
                    log.warning("%s failed: %s", command.type, refusal.message)
                    raise refusal from error

    def _expect_run(self, expected: RunId | None) -> None:
        """Refuse a command that was meant for a run that another one has followed.

        If no run is current, the newest one counts.
        """
        newest = next((run.run_id for run in self._ctx.state.runs), None)
        current = self._ctx.state.current_run_id or newest
        if expected is not None and expected != current:
            raise Refused(
                ErrorCode.STALE_RUN,
                f"The current run is {current or 'none'}, not {expected}.",
                path="$.data.expectedRunId",
                hint="Check the current state, then try again.",
            )


def _out_of_space() -> Refused:
    return Refused(
        ErrorCode.INSUFFICIENT_SPACE,
        "The disk is full.",
        hint="Free some space, and try again when the server has recovered.",
    )
