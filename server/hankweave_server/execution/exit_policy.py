"""Whether the server ends when its plan has ended.

Hankweave ends two seconds after its last codon. A person at a terminal, or one with the page open,
wants to look at what came out, and to go back; a script that waits for the end of `hankweave run`
waits for ever if the server stays. So the server goes where nobody is left: stdout is no terminal
and no client is connected. `exitOnComplete` decides otherwise, either way.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from hankweave_server.domain.history import next_codon
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.settings import RunSettings

LINGER = 2.0
"""Seconds between the plan's end and the server's, as in Hankweave: clients hear the last events,
and one that connects meanwhile keeps the server."""

_BETWEEN_LOOKS = 0.2


class ExitPolicy:
    """Says whether the server ends with its plan, and when the time has come."""

    def __init__(self, settings: RunSettings, clients: Callable[[], int]) -> None:
        """`clients` counts those that are connected and have shaken hands."""
        self._settings = settings
        self._clients = clients

    @property
    def is_immediate(self) -> bool:
        """Tell whether the server ends the moment its plan does."""
        return self._settings.headless and self._settings.exit_on_complete is not False

    def applies(self) -> bool:
        """Tell whether the server would end with its plan, as things stand now."""
        settings = self._settings
        if settings.exit_on_complete is not None:
            return settings.exit_on_complete

        unattended = settings.unattended and settings.autostart and not self._clients()
        return settings.headless or unattended

    async def wait(self, around: Surroundings, runner: Runner) -> Outcome:
        """Wait until the plan has ended and nobody has needed the server for a while."""
        since: float | None = None
        while True:
            now = around.clock.monotonic()
            if not (_has_ended(around, runner) and self.applies()):
                since = None
            elif since is None:
                since = now
            elif now - since >= LINGER:
                return runner.outcome

            await anyio.sleep(_BETWEEN_LOOKS)


def _has_ended(around: Surroundings, runner: Runner) -> bool:
    if runner.is_busy or runner.is_rolling_back:
        return False

    completed = runner.outcome is Outcome.COMPLETED and next_codon(around.state) is None
    return completed or runner.outcome is Outcome.FAILED
