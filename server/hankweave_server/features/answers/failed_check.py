"""The call that broke a check, if the check wants to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from hankweave_protocol.events import EventData
from hankweave_protocol.hank import CheckFailure
from hankweave_protocol.ids import Sha
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.features.answers.bisection.bisector import Bisector


async def explain(
    ctx: ExecutionContext,
    wanted: CheckFailure,
    since: datetime,
    bad: Sha,
    tell: Callable[[EventData], Awaitable[None]],
    environment: Mapping[str, str],
) -> str:
    return await Bisector(ctx).explain(wanted, since, bad, tell, environment)
