"""Report the progress of long operations to clients.

An operation only counts on its meter (`meter`). One task polls the meters of all running
operations, and sleeps while there are none, so a short operation costs one dictionary entry and is
never reported. Progress is not journaled; a client that misses a report misses nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio

from hankweave_protocol.events import StoreProgress
from hankweave_protocol.ids import CommandId
from hankweave_protocol.records import StoreOperation
from hankweave_server.meter import Meter, MeterReading

DELAY_SECONDS = 0.2
"""Operations that end within this time are not reported."""

POLL_SECONDS = 0.1
"""Ten reports a second for each operation: more than anyone can read."""


@dataclass(slots=True, eq=False)
class _Operation:
    kind: StoreOperation
    command_id: CommandId | None
    began: float
    operation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    meter: Meter = field(default_factory=Meter)
    reported: MeterReading | None = None
    """The reading that was reported last."""


_within: ContextVar[_Operation | None] = ContextVar("_within", default=None)
"""The operation that the current task is part of."""


class ProgressWatch:
    """The long operations of one execution and their progress."""

    def __init__(
        self,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        """`now` returns seconds of a monotonic clock.

        `report` is called in the event loop; it must not block or raise.
        """
        self._now = now
        self._going_on: list[_Operation] = []
        self._begun = anyio.Event()
        self._report: Callable[[StoreProgress], None] = lambda _progress: None

    def attach(self, report: Callable[[StoreProgress], None]) -> None:
        """Report progress to `report` from now on, as given to the constructor."""
        self._report = report

    @contextmanager
    def watching(self, kind: StoreOperation, causes: tuple[int | str, ...] = ()) -> Iterator[Meter]:
        """Track what the block does; within another operation the work counts as part of that.

        The block counts on the meter that it is given, in any thread.
        """
        outer = _within.get()
        if outer in self._going_on:  # A task that was begun in an operation may have outlived it.
            yield outer.meter
            return

        operation = _Operation(kind, _command_in(causes), self._now())
        token = _within.set(operation)
        self._going_on.append(operation)
        self._begun.set()
        try:
            yield operation.meter
        finally:
            _within.reset(token)
            self._going_on.remove(operation)
            self._report_end(operation)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._begun.wait()
            while self._going_on:
                await anyio.sleep(POLL_SECONDS)
                self.poll()

            self._begun = anyio.Event()

    def poll(self) -> None:
        """Report each operation that has run for long and has advanced."""
        now = self._now()
        for operation in self._going_on:
            if now - operation.began < DELAY_SECONDS:
                continue

            reading = operation.meter.read()
            if reading is not None and reading != operation.reported:
                operation.reported = reading
                self._report_reading(operation, reading, ended=False)

    def _report_end(self, operation: _Operation) -> None:
        reading = operation.meter.read()
        if operation.reported is not None and reading is not None:
            self._report_reading(operation, reading, ended=True)

    def _report_reading(self, operation: _Operation, reading: MeterReading, *, ended: bool) -> None:
        self._report(
            StoreProgress(
                operation=operation.kind,
                operation_id=operation.operation_id,
                phase=reading.phase,
                done=reading.done,
                total=reading.total,
                unit=reading.unit,
                command_id=operation.command_id,
                ended=ended,
            )
        )


def _command_in(causes: tuple[int | str, ...]) -> CommandId | None:
    return next((CommandId(cause) for cause in causes if isinstance(cause, str)), None)
