"""A simulated user of a server that may die at any moment; it remembers every reply."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    GetServerStatus,
    ListCheckpoints,
    RollbackToCheckpoint,
    RollbackUndo,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import Event, ServerIdle
from hankweave_protocol.ids import Sha
from support.invariants import Acknowledged
from support.running_server import tree
from support.struck import Lost, Tree
from support.waiting import limited

ClientAction = Callable[[Client], Awaitable[None]]

_ENDS_OF_CODONS = ("codon-completed", "all-codons-completed")
"""Kinds for successful codons: after others, the next start returns to the last success."""

_NOT_BEGUN = (ErrorCode.NOTHING_TO_RUN, ErrorCode.SHUTTING_DOWN)


@dataclass
class Person:
    """A user who edits files, sends commands, and knows the expected work tree."""

    execution: Path
    chance: random.Random
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    trees: dict[Sha, Tree] = field(default_factory=dict)
    """The files at each checkpoint that was acknowledged."""
    may_be: list[Tree] = field(default_factory=list)
    """The possible files; several while a rollback is under way."""

    @property
    def work_tree(self) -> Path:
        return self.execution / "agentRoot"

    async def act(self, client: Client) -> None:
        """Send commands until the server is gone."""
        while True:
            await self.chance.choice(self.actions)(client)

    @property
    def actions(self) -> tuple[ClientAction, ...]:
        return (self.save, self.save, self.go_back, self.collect)

    async def save(self, client: Client) -> None:
        name = f"{self.chance.randrange(5)}/{self.chance.randrange(9)}.txt"
        self.write(name, self.chance.randbytes(self.chance.randrange(9_000)))
        self.may_be = [tree(self.work_tree)]
        record = await client.send(CheckpointCreate())
        self.acknowledged.checkpoints.append(record)
        self.trees[record.sha] = self.may_be[0]

    def write(self, name: str, content: bytes) -> None:
        path = self.work_tree / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    async def go_back(self, client: Client) -> None:
        """Roll back to some checkpoint, and sometimes undo it."""
        sha = self.chance.choice(list(self.trees))
        before = self.may_be[0]
        self.may_be = [before, self.trees[sha]]
        report = await client.send(RollbackToCheckpoint(checkpoint_sha=sha))
        self.acknowledged.rollbacks.append(report)
        self.may_be = [self.trees[sha]]
        # A rollback to where the execution is already cannot be undone: an undo takes back another.
        if report.safety is not None and self.chance.random() < 0.5:
            self.may_be.append(before)
            self.acknowledged.rollbacks.append(await client.send(RollbackUndo()))
            self.may_be = [before]

    async def collect(self, client: Client) -> None:
        """Prune all but a few checkpoints; each one that is still listed can be rolled back to."""
        if self.chance.random() < 0.3:
            await client.send(StoreGc(max_count=8))

        page = await client.send(ListCheckpoints())
        known = {record.sha for record in page.checkpoints}
        self.trees = {sha: files for sha, files in self.trees.items() if sha in known}

    async def live(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.listen, client)
            try:
                await self.act(client)
            except Lost:
                group.cancel_scope.cancel()

    async def listen(self, client: Client) -> None:
        try:
            async for event in client.events():
                self.receive(event)
        except Lost:
            return

    def receive(self, event: Event) -> None:
        self.acknowledged.receive(event)


@dataclass
class CarefulPerson(Person):
    """A user of a machine that may lose power: files are flushed before the next action.

    It runs codons, too; the files their agents wrote are known only after a look at the work tree.
    """

    enough: int = 0
    """The number of events after which `has_enough` is set."""
    has_enough: anyio.Event = field(default_factory=anyio.Event)
    _has_ended: anyio.Event = field(default_factory=anyio.Event)
    _begun_after: int = 0
    """The seq of the last event before the codon that runs."""
    _is_gone: bool = False

    @property
    def actions(self) -> tuple[ClientAction, ...]:
        return (*super().actions, self.run_a_codon)

    def will_have_enough(self, more: int) -> anyio.Event:
        """Return an event that is set when that many more events have been received."""
        self.enough = len(self.acknowledged.events) + more
        self.has_enough = anyio.Event()
        self._is_gone = False
        return self.has_enough

    def receive(self, event: Event) -> None:
        super().receive(event)
        if len(self.acknowledged.events) >= self.enough:
            self.has_enough.set()

        is_end = isinstance(event.data, ServerIdle) and event.data.reason in _ENDS_OF_CODONS
        if is_end and event.seq > self._begun_after:
            self._has_ended.set()

    def write(self, name: str, content: bytes) -> None:
        path, edited = self.work_tree / name, self.execution.with_name("edited")
        self.may_be += [before | {name: content} for before in self.may_be]
        edited.write_bytes(content)
        _sync(edited)
        if not path.parent.exists():
            path.parent.mkdir()
            _sync(path.parent.parent)

        edited.rename(path)
        _sync(path.parent)

    async def go_back(self, client: Client) -> None:
        if self.trees and self.may_be:
            await super().go_back(client)

    async def listen(self, client: Client) -> None:
        try:
            await super().listen(client)
        finally:
            self._is_gone = True
            self._has_ended.set()

    async def run_a_codon(self, client: Client) -> None:
        """Run the next codon, if there is one; then flush its files."""
        # Events of earlier codons may still be on their way.
        self._begun_after = (await client.send(GetServerStatus())).last_event_seq
        before, self.may_be = self.may_be, []
        self._has_ended = anyio.Event()
        try:
            await client.send(CodonNext())
        except CommandRefused as refusal:
            if refusal.code not in _NOT_BEGUN:
                raise  # The disk may have failed in the middle of it.

            self.may_be = before
            return

        with limited():
            await self._has_ended.wait()

        if self._is_gone:
            raise ConnectionError("The server was gone before its codon had ended.")

        for path in self.work_tree.rglob("*"):
            _sync(path)

        _sync(self.work_tree)
        self.may_be = [tree(self.work_tree)]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
