"""Import a checkpoint from the repository of another execution, as a commit of this one's own.

Only what the two repositories do not share is read: the trees of the checkpoint are compared with
those of the commit that becomes its parent here. The commit is written again, because its message
names a place in the journal and an epoch of sessions, and those of the other execution mean nothing
here. The manifest and the session files come along.

Nothing is visible until `ShadowRepo.publish`, so that a crash leaves the checkpoint or nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import commit_message
from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.errors import CheckpointNotFound
from hankweave_server.checkpoints.model import CheckpointMade, CheckpointRequest
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.session_snapshots import SessionSnapshots
from hankweave_server.git.repo import BRANCHES, NOTES_REF, ShadowRepo
from hankweave_server.git.trees import FOLDER, Entry, parsed
from hankweave_server.wal import Tail

Add = Callable[[str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint:
    """A checkpoint of another execution."""

    repository: Path
    sha: Sha


def import_checkpoint(
    repo: ShadowRepo,
    notes: Notes,
    sessions: SessionSnapshots,
    foreign: ForeignCheckpoint,
    request: CheckpointRequest,
    parent: Sha,
    *,
    highest_epoch: int,
    journal: Path,
) -> tuple[CheckpointRequest, CheckpointMade]:
    """Import a checkpoint on the branch of the request's run, as a child of `parent`.

    Returns the request with the epoch of the imported sessions. Raises CheckpointNotFound,
    KeyError for a damaged checkpoint, and what the disk raises.
    """
    with contextlib.closing(ShadowRepo(foreign.repository)) as source:
        commit = source.commit(foreign.sha)
        facts = None if commit is None else commit_message.facts_of(commit)
        if commit is None or facts is None:
            raise CheckpointNotFound(foreign.sha)

        files = SessionSnapshots(source).tree_of(facts.memory_epoch)
        if files is not None:
            epoch_staging = repo.staging()
            try:
                _copy_tree(source, files, None, repo, epoch_staging.add)
                epoch = sessions.adopt(
                    source.read_tree(files), beyond=highest_epoch, staging=epoch_staging
                )
            except BaseException:
                epoch_staging.abandon()
                raise

            request = replace(request, memory_epoch=epoch)

        with repo.staging() as staging:
            before = repo.commit(parent)
            known = None if before is None else bytes.fromhex(before.tree)
            tree = bytes.fromhex(commit.tree)
            copied = _copy_tree(source, tree, known, repo, staging.add)
            body = commit_message.commit_object(
                tree, (parent,), request.timestamp, commit_message.written(request, facts.summary)
            )
            sha = Sha(staging.add("commit", body).hex())
            moves: dict[str, str] = {}
            manifest = Notes(source).manifest(foreign.sha)
            if not manifest.is_plain:
                content = manifests.encoded(manifest)
                moves[NOTES_REF] = notes.with_note(sha, content, staging.add)

            moves[BRANCHES + branch_of(request.run_id)] = sha
            tail = None if request.journal_tail is None else Tail(journal, *request.journal_tail)
            repo.publish(staging, moves, (), tail=tail)

    return request, CheckpointMade(
        sha=sha,
        tree=commit.tree,
        kind=request.kind,
        skipped=manifest.skipped,
        files=copied,
        changed=(),
        summary=facts.summary,
    )


def _copy_tree(
    source: ShadowRepo, tree: bytes, known: bytes | None, repo: ShadowRepo, add: Add
) -> int:
    """Copy a tree of the source and all it contains, except for what `known` has in its place.

    `known` is a tree of `repo`. Returns the number of files that were copied.
    """
    files = 0
    waiting = [(tree, known)] if tree != known else []
    while waiting:
        wanted, present = waiting.pop()
        content = source.read_tree(wanted)
        here = dict(parsed(repo.read_tree(present))) if present is not None else {}
        for name, entry in parsed(content):
            at_hand = here.get(name)
            if at_hand == entry:
                continue

            if entry.mode == FOLDER:
                waiting.append((entry.digest, _folder(at_hand)))
            else:
                add("blob", source.read_blob(entry.digest))
                files += 1

        add("tree", content)

    return files


def _folder(entry: Entry | None) -> bytes | None:
    return entry.digest if entry is not None and entry.mode == FOLDER else None
