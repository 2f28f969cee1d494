"""Decide whether the server ends when its plan has ended.

Hankweave ends two seconds after its last codon. A person at a terminal, or one with the page open,
wants to look at the results and perhaps go back; a script that waits for `hankweave run` to end
would wait for ever if the server stayed. So the server ends if there is no user: stdout is not a
terminal and no client is connected. `exitOnComplete` overrides this either way.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.settings import RunSettings

LINGER = 2.0
"""Seconds between the plan's end and the server's, as in Hankweave.

Clients get the last events in that time, and one that connects keeps the server running.
"""

_BETWEEN_LOOKS = 0.2


class ExitPolicy:
    """The decision whether, and when, the server ends with its plan."""

    def __init__(self, settings: RunSettings, clients: Callable[[], int]) -> None:
        """`clients` counts the clients that are connected and have completed the handshake."""
        self._settings = settings
        self._clients = clients

    @property
    def is_immediate(self) -> bool:
        """Return whether the server ends the moment its plan does."""
        return self._settings.headless and self._settings.exit_on_complete is not False

    def applies(self) -> bool:
        """Return whether the server would end with its plan, as things stand now."""
        settings = self._settings
        if settings.exit_on_complete is not None:
            return settings.exit_on_complete

        unattended = settings.unattended and settings.autostart and not self._clients()
        return settings.headless or unattended

    async def wait(self, ctx: ExecutionContext, runner: Runner) -> Outcome:
        """Wait until the plan has ended and no client has needed the server for a while."""
        since: float | None = None
        while True:
            now = ctx.clock.monotonic()
            if not (_has_ended(ctx, runner) and self.applies()):
                since = None
            elif since is None:
                since = now
            elif now - since >= LINGER:
                return runner.outcome

            await anyio.sleep(_BETWEEN_LOOKS)


def _has_ended(ctx: ExecutionContext, runner: Runner) -> bool:
    if runner.is_busy or ctx.guard.is_rolling_back:
        return False

    completed = runner.outcome is Outcome.COMPLETED and runner.upcoming is None
    return completed or runner.outcome is Outcome.FAILED
