"""Find the session files of agents and sentinels, for checkpoints and rewinds.

An agent names the files of each of its sessions; for sentinels it is everything below their history
folder. A file is called `sessions/<session>/<file>` or `sentinels/<path>`, wherever it is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CodonExecution
from hankweave_server.agents.base import Agent
from hankweave_server.domain.execution_thread import conversation_of, session_of, thread
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout

_SENTINELS = "sentinels/"
_BEING_WRITTEN = ".tmp"


class SessionFiles:
    """The session files of one execution; its methods are called in a worker thread."""

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        agent_for: Callable[[Codon], Agent],
        original: Callable[[Codon], Codon],
    ) -> None:
        """`original` returns a codon of the plan as the hank has it, with its secrets."""
        self._layout = layout
        self._ledger = ledger
        self._agent_for = agent_for
        self._original = original

    def of_checkpoint(self, also: frozenset[str]) -> dict[str, Path]:
        """Return the files that a checkpoint keeps, and those in `also` that any timeline has.

        Three sessions of a codon are kept: the one at work, the one it continues, and the one
        before. Older ones are never resumed.
        """
        found = {**self._sentinels(), **self._sessions(self._resumable())}
        if also <= found.keys():
            return found

        sessions = self._sessions(self._all())
        return found | {name: path for name, path in sessions.items() if name in also}

    def of_rewind(self) -> tuple[Callable[[str], Path | None], Iterable[str]]:
        """Return where a rewind puts each file, and the names of those it may remove.

        It removes what sentinels have stored anew since then. Sessions that agents began since then
        stay, as they are never resumed.
        """
        sentinels, sessions = self._sentinels(), self._sessions(self._all())

        def place_of(name: str) -> Path | None:
            return sessions.get(name) or self._sentinel_place(name)

        return place_of, sentinels

    def of_branch(self, name: str) -> Path | None:
        """Return where a branch gets its copy of a file of the original; None for nowhere.

        A file outside of the execution that exists already may be the original's own: both use one
        home of the agent then.
        """
        places, _ = self.of_rewind()
        path = places(name)
        if path is None or path.is_relative_to(self._layout.state_directory):
            return path

        return None if os.path.lexists(path) else path

    # --- sentinels -----------------------------------------------------------------------------

    def _sentinels(self) -> dict[str, Path]:
        home = self._layout.sentinel_conversations
        found = (Path(folder, name) for folder, _, names in os.walk(home) for name in names)
        return {
            _SENTINELS + path.relative_to(home).as_posix(): path
            for path in found
            if path.suffix != _BEING_WRITTEN
        }

    def _sentinel_place(self, name: str) -> Path | None:
        below = PurePosixPath(name.removeprefix(_SENTINELS))
        if not name.startswith(_SENTINELS) or below.is_absolute() or ".." in below.parts:
            return None

        return self._layout.sentinel_conversations / below

    # --- agents --------------------------------------------------------------------------------

    def _sessions(self, executions: Iterable[CodonExecution]) -> dict[str, Path]:
        work_tree = self._layout.work_tree
        # An iteration that has left the plan counts like any other of its codon.
        plan = self._ledger.state.execution_plan
        codons = {entry.codon.id: entry.codon for entry in plan}
        found: dict[str, Path] = {}
        for session, codon_id in _sessions_of(executions).items():
            codon = codons.get(codon_id.partition("#")[0])
            if codon is None:
                continue

            codon = self._original(codon)
            for path in self._agent_for(codon).memory_of(session, work_tree, codon.env):
                found[f"sessions/{session}/{path.name}"] = path

        return found

    def _resumable(self) -> tuple[CodonExecution, ...]:
        entries = thread(self._ledger.state)
        if not entries:
            return ()

        newest = entries[-1].codon
        earlier = (entry.codon for entry in reversed(entries))
        others = (each for each in earlier if each.codon_id != newest.codon_id)
        return (newest, *self._taken_up(newest.codon_id), *islice(others, 1))

    def _taken_up(self, codon_id: CodonId) -> Iterator[CodonExecution]:
        """Yield the execution whose conversation a codon will continue."""
        conversation = conversation_of(self._ledger.state, codon_id)
        if conversation is not None:
            session = conversation.session_id
            yield from islice((each for each in self._all() if session_of(each) == session), 1)

    def _all(self) -> Iterator[CodonExecution]:
        return (codon for run in reversed(self._ledger.state.runs) for codon in run.codons)


def _sessions_of(executions: Iterable[CodonExecution]) -> dict[str, CodonId]:
    """Return every session, with a codon that used it."""
    return {session: codon.codon_id for codon in executions if (session := session_of(codon))}
