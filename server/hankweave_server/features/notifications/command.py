"""`hankweave notify`: try out the destinations of notifications."""

from __future__ import annotations

import os
import sys

import anyio
import click

from hankweave_protocol.instants import to_text
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode
from hankweave_server.features.notifications.notifications import Notification
from hankweave_server.features.notifications.notifier import (
    NotificationEnvelope,
    Undelivered,
    attempt,
    destinations,
    new_id,
)
from hankweave_server.features.notifications.run_options import notify_option, webhook_option


@click.command()
@click.option("--test", is_flag=True, required=True, help="Send one test notification to each.")
@webhook_option
@notify_option
def notify(test: bool, webhooks: tuple[str, ...], services: tuple[str, ...]) -> None:
    """Send a test notification to every destination, and print the results.

    The secret that signs webhooks is in HANKWEAVE_RUNTIME_WEBHOOK_SECRET.

    \b
    hankweave notify --test --webhook https://example.org/hook
    hankweave notify --test --notify mailto://me:password@example.org
    """
    if not (webhooks or services):
        raise click.UsageError("Name a destination with --webhook or --notify.")

    clock = SystemClock()
    notification = Notification("test", "Test", "Notifications of Hankweave arrive here.")
    failed = False
    for each in destinations(webhooks, services, os.environ, clock):
        try:
            envelope = NotificationEnvelope(
                new_id(), to_text(clock.now()), "test", notification, with_content=False
            )
            anyio.run(attempt, each, envelope)
        except Undelivered as error:
            failed = True
            click.echo(f"{each.label}: not delivered ({error})")
        else:
            click.echo(f"{each.label}: delivered")

    sys.exit(ExitCode.UNAVAILABLE if failed else ExitCode.DONE)


COMMANDS = (notify,)
