"""Labelled checkpoints as commits of the project's own branch, where the hank asks for that.

They come on top of those of the shadow repository, and after them: what is on record is what can
be gone back to, whatever a person's repository has against the commit.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import anyio.to_thread

from hankweave_protocol.events import ErrorEvent, Info
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import Surroundings
from hankweave_server.user_git.errors import CheckpointError, CheckpointWarning

PREFIX = "architect:checkpoint:"
"""What the labels begin with that a person's repository gets to see (seed 003, "Concept")."""


async def publish(around: Surroundings, record: CodonRecord, label: str | None) -> None:
    """Commits the work tree on the branch that it is on; a refusal is told, and fails nothing."""
    overrides = around.hank.hank.overrides
    if overrides is None or overrides.checkpoint_repository != "workspace":
        return

    if label is None or not label.startswith(PREFIX):
        return

    # Newest first: the one that was just made.
    known = reversed(around.checkpointer.known.values())
    made = next((each.sha for each in known if each.label == label), None)
    commit = partial(_commit, around.layout.work_tree, label.removeprefix(PREFIX), made)
    try:
        told = await anyio.to_thread.run_sync(commit)
    except CheckpointError as error:
        message = f"{label} is no commit of the project's branch: {error.message}"
        await record.tell(
            ErrorEvent(
                message=" ".join(filter(None, (message, error.hint))),
                fatal=False,
                codon=record.entry.codon_id,
                severity="operation",
            )
        )
    else:
        await record.tell(*(Info(message=sentence) for sentence in told))


def _commit(root: Path, title: str, checkpoint: str | None) -> list[str]:
    """Makes the commit, if anything changed; gives what was left out of it."""
    from hankweave_server.user_git.store import WorkspaceGit  # For the few.

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CheckpointWarning)
        WorkspaceGit(root).create(title, checkpoint=checkpoint)

    return [str(each.message) for each in caught]
