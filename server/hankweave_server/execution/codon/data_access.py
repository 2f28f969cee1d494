"""How agents, rigs and checks reach the data of an execution."""

from __future__ import annotations

import os

import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.events import Info
from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.base import AgentError
from hankweave_server.execution.context import Surroundings
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_link

DATA_VARIABLE = "HANKWEAVE_DATA_DIR"


async def restore_data_link(around: Surroundings, run_id: RunId, codon_id: CodonId) -> None:
    """Make `read_only_data_source` in the work tree the data again; report what was in its place.

    Waits while the disk has no room for it. Raises AgentError where it cannot be made.
    """
    now_ms = instants.epoch_ms(around.clock.now())
    try:
        displaced = await around.ledger.space.insist(
            lambda: anyio.to_thread.run_sync(data_link.restore_link, around.layout, now_ms)
        )
    except OSError as error:
        raise AgentError(
            f"The link {around.layout.data_link} to the data cannot be made: {error.strerror}.",
            hint="Make the work tree writable, then start the codon again.",
        ) from error

    if displaced is not None:
        await around.ledger.post(Info(message=displaced.sentence), run_id=run_id, codon_id=codon_id)


def command_environment(layout: Layout, codon: Codon) -> dict[str, str]:
    """Return the variables of a codon's rig commands, checks and output commands."""
    if not os.path.lexists(layout.data_source):
        return dict(codon.env)

    return {DATA_VARIABLE: str(layout.data_path), **codon.env}


def whereabouts(layout: Layout) -> str | None:
    """Say how the data is reached where nothing of ours may lie in the work tree; else None."""
    if not layout.is_in_place or not os.path.lexists(layout.data_source):
        return None

    return (
        f"The data is at {layout.data_path}: <%DATA_DIR%> in prompts, ${DATA_VARIABLE} for agents, "
        "rigs and checks. Nothing is added to the project, so read_only_data_source/... does not "
        "lead to it."
    )
