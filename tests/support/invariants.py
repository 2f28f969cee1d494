"""Invariants of an execution directory at rest, whatever happened to it before.

All fault campaigns share this checker. It relies on no code under test: objects are read through
the git program and hashed again here, the journal is read line by line from the disk, and delivered
events come from the clients.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.codec import decode_transition
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import (
    CheckpointPruned,
    CheckpointRollback,
    Event,
    RollbackCompleted,
    ServerDegraded,
    ServerIdle,
    ServerRecovered,
    StateTransition,
)
from hankweave_protocol.records import CheckpointRecord, RollbackReport
from hankweave_protocol.replies import BranchMade
from hankweave_protocol.state import EMPTY_STATE
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.domain.lifecycle import Impossible
from hankweave_server.domain.reducer import fold
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.running_server import journal, state, tree

_SHA = re.compile(rb'"([0-9a-f]{40})"')
_SUBMODULE = b"160000"


@dataclass
class Acknowledged:
    """The events that clients received, and so may rely on."""

    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    rollbacks: list[RollbackReport] = field(default_factory=list)
    branches: list[BranchMade] = field(default_factory=list)
    explorations: list[str] = field(default_factory=list)
    events: dict[int, str] = field(default_factory=dict)
    """The id of each event that arrived, by its seq."""
    is_done: bool = False
    """Every command has been answered."""
    is_at_rest: bool = False
    """A codon has run, and no event followed it."""

    def receive(self, event: Event) -> None:
        if event.seq:  # A notice has none: events without disk space come later.
            self.events[event.seq] = event.id

        if isinstance(event.data, ServerDegraded | ServerRecovered):
            return

        idle = event.data if isinstance(event.data, ServerIdle) else None
        self.is_at_rest = idle is not None and idle.reason != "startup"

    @property
    def count(self) -> int:
        answers = len(self.checkpoints) + len(self.rollbacks) + len(self.branches)
        return answers + len(self.explorations) + len(self.events)


def violations(execution: Path, acknowledged: Acknowledged) -> list[str]:
    """Return the faults of an execution whose server has stopped; there should be none."""
    layout = Layout.of_execution(execution)
    if not layout.journal.exists():
        return _of_nothing(layout, acknowledged)

    events = journal(execution)
    record = _Record.of(events)
    return [
        *_numbering(events),
        *_checkpoints(execution, record),
        *_acknowledged(events, record, acknowledged),
        *_folding(execution, events),
        *leftovers(execution),
    ]


def tree_violations(execution: Path, *allowed: dict[str, bytes]) -> list[str]:
    """Compare the work tree byte for byte with each of its allowed contents."""
    found = tree(execution / "agentRoot")
    if found in allowed:
        return []

    expected = allowed[-1]
    paths = sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path))
    return [f"The work tree is neither before nor after: {paths[:9]} differ from the latter."]


def leftovers(execution: Path, *, serving: bool = False) -> list[str]:
    """Return the intents, temporary files and locks of the server that were left behind."""
    layout = Layout.of_execution(execution)
    of_agents = (layout.agent_homes, layout.agent_temporary)
    found = [
        str(path.relative_to(execution))
        for path in execution.rglob("*")
        if _is_leftover(path.name)
        and not any(path.is_relative_to(folder) for folder in of_agents)
        and not (serving and path.name == "runtime.lock")
    ]
    return [f"Left over: {path}" for path in sorted(found)]


def _is_leftover(name: str) -> bool:
    return (
        name.endswith((".tmp", ".lock", ".intent", ".new"))
        or name.startswith((".hankweave-", ".hankweave.", "tmp_"))
        or ".restoring" in name
    )


# --- the journal ----------------------------------------------------------------------------------


@dataclass
class _Record:
    made: Counter[str] = field(default_factory=Counter)
    pruned: set[str] = field(default_factory=set)
    targets: Counter[str] = field(default_factory=Counter)
    """Checkpoints that rollbacks went to, of the whole tree or of some paths."""
    safeties: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, events: Iterable[Event]) -> _Record:
        record = cls()
        for event in events:
            match event.data:
                case StateTransition():
                    made = decode_transition(event.data)
                    if isinstance(made, CheckpointCreated):
                        record.made[made.checkpoint.sha] += 1
                case CheckpointPruned():
                    record.pruned |= set(event.data.checkpoints)
                case RollbackCompleted() | CheckpointRollback():
                    record._went_to(event.data)
                case _:
                    pass

        return record

    def _went_to(self, data: RollbackCompleted | CheckpointRollback) -> None:
        if isinstance(data, CheckpointRollback) and data.report is None:
            return  # `rollback.completed` follows.

        self.targets[data.checkpoint] += 1
        if data.report is not None and data.report.safety is not None:
            self.safeties.add(data.report.safety.checkpoint_sha)


def _numbering(events: list[Event]) -> Iterator[str]:
    seqs = [event.seq for event in events]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"The journal is not numbered 1..{len(seqs)}."

    for name, count in Counter(event.id for event in events).items():
        if count > 1:
            yield f"Event {name} stands {count} times in the journal."


def _acknowledged(
    events: list[Event], record: _Record, acknowledged: Acknowledged
) -> Iterator[str]:
    ids: dict[int, str] = {event.seq: event.id for event in events}
    for seq, name in acknowledged.events.items():
        if ids.get(seq) != name:
            yield f"A client received event {seq} ({name}); the journal has {ids.get(seq)}."

    for checkpoint in acknowledged.checkpoints:
        if record.made[checkpoint.sha] != 1:
            yield f"Checkpoint {checkpoint.sha} was acknowledged, and is not on record."

    for report in acknowledged.rollbacks:
        # Without a safety checkpoint there was nothing to do: the files already matched the target.
        if report.safety and report.safety.checkpoint_sha not in record.safeties:
            yield f"A rollback to {report.target.checkpoint_sha} was acknowledged, and is lost."


def _folding(execution: Path, events: list[Event]) -> Iterator[str]:
    try:
        folded = fold(events, EMPTY_STATE)
    except (Impossible, Refused) as problem:
        yield f"The journal does not fold: {problem}"
        return

    if state(execution) != folded:
        yield "state.json is not what the journal folds to."


def _of_nothing(layout: Layout, acknowledged: Acknowledged) -> list[str]:
    """Check that an execution without a journal never acknowledged anything."""
    lost = ["The journal is gone."] if acknowledged.count else []
    return lost + (["There is a state without a journal."] if layout.state.exists() else [])


# --- the repository -------------------------------------------------------------------------------


def _checkpoints(execution: Path, record: _Record) -> Iterator[str]:
    git = GitWitness(execution)
    try:
        git.assert_sound()
    except subprocess.CalledProcessError as complaint:
        yield f"git fsck: {complaint.stdout!r} {complaint.stderr!r}"

    try:
        on_refs = _commits_on_refs(git)
    except subprocess.CalledProcessError as complaint:
        yield f"git rev-list: {complaint.stderr!r}"
        return

    for sha in sorted(on_refs):
        if record.made[sha] != 1:
            yield f"Commit {sha} is on our refs, and {record.made[sha]} times on record."

    standing = set(record.made) - record.pruned
    for sha in sorted(standing - on_refs):
        yield f"Checkpoint {sha} is on record, and on no ref."

    saved = Layout.of_execution(execution).state.read_bytes()
    named = {sha.decode() for sha in _SHA.findall(saved)}
    with _Objects(execution) as objects:
        for sha in sorted(standing | named - record.pruned):
            yield from objects.faults(sha)


def _commits_on_refs(git: GitWitness) -> set[str]:
    ours = ("refs/heads", "refs/pins", "refs/hankweave/safety", "refs/hankweave/kept")
    refs = git.run("for-each-ref", "--format=%(refname)", *ours).split()
    head: list[str] = []
    with contextlib.suppress(subprocess.CalledProcessError):  # Unborn, or lost: fsck reports it.
        head = git.run("rev-parse", "--quiet", "--verify", "HEAD^{commit}").split()

    return set(git.run("rev-list", *refs, *head).split()) if refs else set()


class _Objects:
    """A reader of objects through `git cat-file` that hashes each again."""

    def __init__(self, execution: Path) -> None:
        self._repository = Layout.of_execution(execution).shadow_repository
        self._sound: set[str] = set()

    def __enter__(self) -> _Objects:
        self._reading = subprocess.Popen(
            ["git", "--git-dir", str(self._repository), "cat-file", "--batch"],
            env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nowhere"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._reading.communicate()

    def faults(self, sha: str) -> Iterator[str]:
        """Walk from an object down to its blobs, parents included."""
        waiting = [sha]
        while waiting:
            name = waiting.pop()
            if name in self._sound:
                continue

            kind, body = self._read(name)
            if hashlib.sha1(b"%s %d\0%s" % (kind, len(body), body)).hexdigest() != name:
                yield f"Object {name} below {sha} is {kind.decode()}."
                continue

            self._sound.add(name)
            waiting += _below(kind, body)

    def _read(self, sha: str) -> tuple[bytes, bytes]:
        assert self._reading.stdin is not None
        assert self._reading.stdout is not None
        self._reading.stdin.write(f"{sha}\n".encode())
        self._reading.stdin.flush()
        _, kind, *length = self._reading.stdout.readline().split()
        if not length:
            return kind, b""

        body = self._reading.stdout.read(int(length[0]) + 1)
        return kind, body[:-1]


def _below(kind: bytes, body: bytes) -> list[str]:
    if kind == b"commit":
        head = body.split(b"\n\n", 1)[0].splitlines()
        pairs = (line.split(b" ", 1) for line in head)
        return [value.decode() for word, value in pairs if word in (b"tree", b"parent")]

    return [name for mode, name in _entries(body) if mode != _SUBMODULE] if kind == b"tree" else []


def _entries(body: bytes) -> Iterator[tuple[bytes, str]]:
    at = 0
    while at < len(body):
        end = body.index(b"\0", at)
        yield body[at:end].split(b" ", 1)[0], body[end + 1 : end + 21].hex()
        at = end + 21
