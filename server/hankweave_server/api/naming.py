"""What a client's words mean: shas and paths of a command, read before anything is touched.

A path on the wire is text and a name in a work tree is bytes. A byte that is no UTF-8 is shown as
`\\xff`; what is shown can be given back, and means a file that is really called so first.
"""

from __future__ import annotations

from collections.abc import Collection

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import State
from hankweave_server.domain import targets
from hankweave_server.domain.targets import Checkpoints
from hankweave_server.worktree.names import is_out_of_bounds, meanings


def the_checkpoint(
    state: State, known: Checkpoints, name: str, *, at: str, missing: Collection[Sha] = ()
) -> CheckpointRecord:
    """Return the one checkpoint a sha or a prefix means; Refused names the path `at`."""
    record = known.get(Sha(name))
    if record is not None:
        return record

    try:
        return targets.of_prefix(state, known, name, missing).checkpoint
    except Refused as refusal:
        raise Refused(refusal.code, refusal.message, path=at, hint=refusal.hint) from None


def the_path(text: str, *, at: str) -> tuple[bytes, ...]:
    """What a path may mean, the likelier first; refuses what is in no work tree."""
    paths = meanings(text.removesuffix("/"))
    # A person's project may hold our names at its top; in an execution they are just not there.
    if is_out_of_bounds(paths[0], frozenset()):
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"{text!r} is no path inside the work tree.",
            path=at,
            hint="Paths are relative to the work tree, without `..`, `.git` and our own files.",
        )

    return paths


def no_such_path(text: str, where: str, *, at: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_PATH,
        f"There is no {text!r} {where}.",
        path=at,
        hint="replay.view lists the files of a checkpoint.",
    )
