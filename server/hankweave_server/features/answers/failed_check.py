"""The call that broke a check, if the check wants to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from datetime import datetime

import anyio
import anyio.to_thread

from hankweave_protocol.events import BisectEnded, EventData
from hankweave_protocol.hank import CheckFailure
from hankweave_protocol.ids import Sha
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.features.answers.bisection.bisector import STOPPED, Bisector, CommandSearch
from hankweave_server.features.answers.bisection.search import Candidate
from hankweave_server.features.answers.bisection.trials import candidates_since
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo


async def explain(
    ctx: ExecutionContext,
    wanted: CheckFailure,
    since: datetime,
    bad: Sha,
    record: Callable[[EventData], Awaitable[None]],
    environment: Mapping[str, str],
) -> str:
    """Return what broke a check, in a sentence, and record the search.

    The candidates are the checkpoints since a moment, and the last one before it.
    """

    def found() -> list[Candidate]:
        with closing(ShadowRepo(ctx.layout.shadow_repository)) as repo:
            return candidates_since(repo, since, bad)

    try:
        candidates = await anyio.to_thread.run_sync(found)
    except ShadowRepositoryError as error:
        return f"The first failure could not be searched for: {error}."

    search = CommandSearch(wanted.bisect, candidates, environment=environment)
    await record(search.begun)
    ended = BisectEnded(bisect_id=search.bisect_id, message=STOPPED)
    try:
        with anyio.move_on_after(wanted.timeout_seconds) as limit:
            ended = await Bisector(ctx).carry_out(search)

        if limit.cancelled_caught:
            message = f"It took longer than {wanted.timeout_seconds:g} s."
            ended = BisectEnded(bisect_id=search.bisect_id, runs=search.runs, message=message)
    finally:
        with anyio.CancelScope(shield=True):
            await record(ended)

    return _sentence(ended)


def _sentence(ended: BisectEnded) -> str:
    if ended.checkpoint_sha is not None:
        what = ended.summary or "a change"
        return f"It first failed after {what}, checkpoint {ended.checkpoint_sha[:12]}."

    if ended.suspects:
        named = ", ".join(sha[:12] for sha in ended.suspects)
        return f"It first failed at one of these checkpoints: {named}."

    return f"The first failure was not found: {ended.message}"
