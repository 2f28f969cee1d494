"""The options of `run` that say whom to call, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import click

webhook_option = click.option(
    "--webhook",
    "webhooks",
    metavar="URL",
    multiple=True,
    envvar="HANKWEAVE_RUNTIME_WEBHOOK",
    help="Call people: POST signed JSON to this URL. Repeatable.",
)
notify_option = click.option(
    "--notify",
    "services",
    metavar="URL",
    multiple=True,
    envvar="HANKWEAVE_RUNTIME_NOTIFY",
    help="Call people through a service, such as mailto:// or ntfy:// (see apprise). Repeatable.",
)

OPTIONS: Final[tuple[Callable[..., Any], ...]] = (
    webhook_option,
    notify_option,
    click.option(
        "--notify-content",
        is_flag=True,
        help="Send texts of agents and people with notifications, not only names, numbers and "
        "times.",
    ),
)


@dataclass(frozen=True, slots=True)
class NotificationOptions:
    """The destinations of a run."""

    webhooks: tuple[str, ...] = field(repr=False)
    """URLs that get signed notifications; they may contain passwords."""
    services: tuple[str, ...] = field(repr=False)
    """URLs of services by which people are called; they contain passwords."""
    with_content: bool
    """Send what agents and people wrote with notifications."""


def chosen(given: Mapping[str, Any]) -> NotificationOptions | None:
    """Return the destinations; None if there are none."""
    found = NotificationOptions(given["webhooks"], given["services"], given["notify_content"])
    return found if found.webhooks or found.services else None
