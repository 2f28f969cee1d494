"""Random orders of explorations, adoptions, rollbacks, undo, edits and codons, beside a model.

The model is a dictionary of files, the trees at the ends of the codons of the thread, and the two
stacks of undo and redo. After each step, the files, the plan and the adopted attempt of the server
are those of the model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hankweave_client.client import Client
from hankweave_protocol.attempts import Exploration
from hankweave_protocol.commands import (
    CodonNext,
    ExplorationAdopt,
    ExplorationDiscard,
    ExplorationShow,
    ExplorationStart,
    RollbackRedo,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import ServerIdle
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.features.exploration.explorations import adopted
from intruders.tier import IS_LONG
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, running_server, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually

Tree = dict[str, bytes]

CODONS = ("one", "two", "three")
STEPS = 12
SEEDS = range(300 if IS_LONG else 3)


@dataclass(frozen=True)
class Standing:
    """The files, and the position in the plan: each codon that counts, with its tree."""

    files: Tree
    line: tuple[tuple[str, Tree, str | None], ...]
    """Name, files at its end, and the attempt whose work it is."""


@dataclass
class Attempted:
    """A finished attempt: where it began, and what it made."""

    attempt_id: str
    before: tuple[tuple[str, Tree, str | None], ...]
    codon: str
    result: Tree


@dataclass
class Model:
    now: Standing
    undo: list[Standing | Tree] = field(default_factory=list)
    """What an undo goes back to: a whole place, or some files alone."""
    redo: list[Standing | Tree] = field(default_factory=list)
    attempts: list[Attempted] = field(default_factory=list)
    explorations: list[str] = field(default_factory=list)

    def go(self, target: Standing, *, always: bool = False) -> None:
        """Go to a place; to this one only `always`, as what rewinds conversations does."""
        if always or target != self.now:
            self.undo.append(self.now)
            self.redo.clear()
            self.now = target

    def take(self, files: Tree) -> None:
        """Take some files alone; the plan stays."""
        self.undo.append({name: self.now.files[name] for name in files})
        self.redo.clear()
        self.now = Standing(self.now.files | files, self.now.line)

    def travel(self, stack: list[Standing | Tree], other: list[Standing | Tree]) -> None:
        """Go back to the newest of one stack, and let the other lead here again."""
        target = stack.pop()
        if isinstance(target, Standing):
            other.append(self.now)
            self.now = target
        else:
            other.append({name: self.now.files[name] for name in target})
            self.now = Standing(self.now.files | target, self.now.line)


class Play:
    """One interleaving."""

    def __init__(self, server: RunningServer, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._work_tree = server.execution / "agentRoot"
        self._execution = server.execution
        self._number = 0
        self.done: list[str] = []
        line = []
        files: Tree = {}
        for name in CODONS:
            files = files | {f"{name}.txt": name.encode()}
            line.append((name, files, None))

        self.model = Model(Standing(files, tuple(line)))

    async def run(self, name: str) -> None:
        """Run the next codon, whose name is known, and wait until the server is idle."""
        await self._client.send(CodonNext())
        await eventually(lambda: self._has_run(name))

    async def step(self) -> None:
        """Do something that is possible now, and compare."""
        model, possible = self.model, [self._edit, self._back]
        if len(model.now.line) > 1:
            possible += [self._explore, self._explore]

        if model.attempts:
            possible += [self._adopt, self._adopt]
            if all(f"{name}.txt" in model.now.files for name in CODONS):
                possible.append(self._adopt_path)

        if model.undo:
            possible += [self._undo, self._undo]

        if model.redo:
            possible.append(self._redo)

        if len(model.now.line) < len(CODONS):
            possible.append(self._next)

        if model.explorations:
            possible.append(self._discard)

        chosen: Callable[[], Awaitable[None]] = self._chance.choice(possible)
        self.done.append(chosen.__name__)
        await chosen()
        self._compare()

    def _compare(self) -> None:
        now, found = self.model.now, state(self._execution)
        assert tree(self._work_tree) == now.files, self.done
        ran = [entry.codon.codon_id for entry in thread(found)]
        assert ran == [name for name, _, _ in now.line], self.done
        following = CODONS[len(now.line) :]
        assert next_codon(found) == (following[0] if following else None), self.done
        wanted = {attempt for _, _, attempt in now.line if attempt is not None}
        chosen = (adopted(found, exploration) for exploration in found.explorations)
        assert {each.attempt_id for each in chosen if each is not None} == wanted, self.done

    def _text(self) -> str:
        self._number += 1
        return f"text {self._number}"

    async def _edit(self) -> None:
        name, text = f"{self._chance.choice(CODONS)}.txt", self._text()
        (self._work_tree / name).write_text(text)
        now = self.model.now
        self.model.now = Standing(now.files | {name: text.encode()}, now.line)

    async def _explore(self) -> None:
        line = self.model.now.line
        at = self._chance.randrange(1, len(line))
        name = line[at][0]
        texts = [self._text() for _ in range(self._chance.choice((1, 1, 2)))]
        variants = tuple(
            Variant(prompt_text=json.dumps({"steps": [writes(f"{name}.txt", text)]}))
            for text in texts
        )
        begun = await self._client.send(ExplorationStart(codon_id=CodonId(name), variants=variants))
        show = ExplorationShow(exploration_id=begun.exploration_id)

        async def has_ended() -> Exploration | None:
            shown = await self._client.send(show)
            return None if shown.ended_at is None else shown

        shown = await eventually(has_ended)
        assert shown is not None

        self.model.explorations.append(begun.exploration_id)
        for attempt, text in zip(shown.attempts, texts, strict=True):
            assert attempt.status == "completed", attempt.message
            before = line[:at]
            result = before[-1][1] | {f"{name}.txt": text.encode()}
            self.model.attempts.append(Attempted(attempt.attempt_id, before, name, result))

    async def _adopt(self) -> None:
        chosen = self._chance.choice(self.model.attempts)
        await self._client.send(ExplorationAdopt(attempt_id=chosen.attempt_id))
        line = (*chosen.before, (chosen.codon, chosen.result, chosen.attempt_id))
        self.model.go(Standing(chosen.result, line), always=True)

    async def _adopt_path(self) -> None:
        chosen = self._chance.choice(self.model.attempts)
        name = f"{chosen.codon}.txt"
        await self._client.send(ExplorationAdopt(attempt_id=chosen.attempt_id, paths=(name,)))
        self.model.take({name: chosen.result[name]})

    async def _back(self) -> None:
        line = self.model.now.line
        at = self._chance.randrange(len(line))
        name, files, _ = line[at]
        command = RollbackToCodon(codon_id=CodonId(name), checkpoint_type="end")
        await self._client.send(command)
        self.model.go(Standing(files, line[: at + 1]))

    async def _undo(self) -> None:
        await self._client.send(RollbackUndo())
        self.model.travel(self.model.undo, self.model.redo)

    async def _redo(self) -> None:
        await self._client.send(RollbackRedo())
        self.model.travel(self.model.redo, self.model.undo)

    async def _next(self) -> None:
        now = self.model.now
        name = CODONS[len(now.line)]
        await self.run(name)
        files = now.files | {f"{name}.txt": name.encode()}
        self.model.now = Standing(files, (*now.line, (name, files, None)))

    def _has_run(self, name: str) -> bool:
        now = state(self._execution)
        entries = thread(now)
        newest = entries[-1].codon if entries else None
        if not isinstance(newest, CompletedCodon) or newest.codon_id != name:
            return False

        return isinstance(journal(self._execution)[-1].data, ServerIdle)

    async def _discard(self) -> None:
        name = self._chance.choice(self.model.explorations)
        self.model.explorations.remove(name)
        await self._client.send(ExplorationDiscard(exploration_id=name))


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_order_leads_where_the_model_does(tmp_path: Path, seed: int) -> None:
    """Equal after every step, and git finds no fault at the end."""
    hank = write_hank(
        tmp_path / "hank", *(codon(name, writes(f"{name}.txt", name)) for name in CODONS)
    )
    execution = tmp_path / "executions" / "parent"
    async with (
        running_server(hank, None, execution, "--no-autostart") as server,
        server.client() as client,
    ):
        play = Play(server, client, random.Random(seed))
        for name in CODONS:
            await play.run(name)

        for _ in range(STEPS):
            await play.step()

    GitWitness(execution).assert_sound()
