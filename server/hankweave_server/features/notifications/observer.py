"""The notifier of a server, which hears of every event."""

from __future__ import annotations

import os
from functools import partial

from hankweave_server.app import OpenedExecution
from hankweave_server.clock import Clock
from hankweave_server.daemon.observers import Observer, OpensObserver
from hankweave_server.domain.budget.allowance import dollar_limit
from hankweave_server.domain.costs import total_cost
from hankweave_server.features.notifications.notifier import Destination, Notifier, destinations
from hankweave_server.features.notifications.run_options import NotificationOptions
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings


def prepared(settings: RunSettings, _layout: Layout, clock: Clock) -> OpensObserver | None:
    chosen = settings.of_features.get("notifications")
    if not isinstance(chosen, NotificationOptions):
        return None

    found = destinations(chosen.webhooks, chosen.services, os.environ, clock)
    return partial(_open, found, chosen.with_content) if found else None


async def _open(
    found: tuple[Destination, ...], with_content: bool, opened: OpenedExecution
) -> Observer:
    notifier = Notifier(
        found,
        opened.clock,
        execution=opened.layout.root.name,
        with_content=with_content,
        spent=total_cost(opened.ledger.state),
        max_dollars=dollar_limit(opened.hank.hank, opened.settings.max_cost),
    )
    return Observer(notifier.handle, notifier.finish, notice=notifier.notice, run=notifier.run)
