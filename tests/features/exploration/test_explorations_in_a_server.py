"""The background work of explorations: attempts that end, fail or are removed, without servers."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hankweave_protocol import codec
from hankweave_protocol.attempts import (
    SCORE_CODON,
    Attempt,
    AttemptRecord,
    AttemptStatus,
    Exploration,
)
from hankweave_protocol.events import AttemptEnded, ErrorEvent, EventData, ExplorationEnded
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import State
from hankweave_protocol.transitions import ExplorationSet, Transition
from hankweave_server.domain.budget.spending import counted, total
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.reducer import apply
from hankweave_server.domain.timelines import timelines
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.features.exploration import child
from hankweave_server.features.exploration.explorer import Explorations, ExplorationSettings
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.ledger.disk_space import Space
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source
from support.histories import LATER, METADATA, MOMENT, a_plan, completed, failed, sha
from support.timelines import a_state, continued, ended
from support.waiting import eventually, limited

FIRST = ended("first", completed("one", 1))
T = TypeVar("T")


class Parent:
    """The execution that explores, as far as explorations need it."""

    def __init__(
        self,
        record: AttemptRecord,
        *,
        imports: bool = False,
        adopts: Literal["ask", "best"] = "ask",
        faults: Iterable[Exception] = (),
    ) -> None:
        """Without `imports`, an import takes for ever; the first calls of the store have faults."""
        exploration = Exploration(
            exploration_id="e",
            created_at=MOMENT,
            checkpoint_sha=sha(1),
            codon_id=CodonId("two"),
            attempts=(record,),
            adopt=adopts,
        )
        self._faults = list(faults)
        self.space = Space(cast("Any", None), pause=lambda _: anyio.lowlevel.checkpoint())
        self.space.allow_waiting()
        self.recorded: list[EventData | Transition] = []
        self.is_importing = anyio.Event()
        self._imports = imports
        self._context: Any = SimpleNamespace(
            state=apply(a_state(FIRST), ExplorationSet(exploration=exploration), 1),
            ledger=self,
            checkpointer=self,
            guard=TreeGuard(),
            patterns=("**",),
            now_text=lambda: LATER,
            layout=Layout.of_execution(Path("/nowhere")),  # It keeps no texts of explorations.
        )
        self.known = {sha(1): None}
        unused: Any = None
        runner: Any = SimpleNamespace(when_explored=lambda _start: None, is_busy=False)
        settings = ExplorationSettings(options=(), home=Path)
        self.explorations = Explorations(self._context, runner, unused, unused, settings)

    async def record(self, *entries: EventData | Transition, **_about: Any) -> None:
        self.recorded += entries
        for each in entries:
            if isinstance(each, Transition):
                self._context.state = apply(self._context.state, each, 1)

    async def run(self) -> None:
        """Run the explorations until they have ended."""
        with limited():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.explorations.run)
                await eventually(lambda: self.of(ExplorationEnded))
                await self.explorations.close()

    def of(self, kind: type[T]) -> list[T]:
        return [each for each in self.recorded if isinstance(each, kind)]

    async def adopt_foreign(self, *_what: Any, **_about: Any) -> SimpleNamespace:
        self.is_importing.set()
        if not self._imports:
            await anyio.sleep_forever()

        self._meet_fault()

        return SimpleNamespace(sha=sha(17))

    async def call(self, _diff: Any) -> tuple[()]:
        self._meet_fault()
        return ()

    def _meet_fault(self) -> None:
        if self._faults:
            raise self._faults.pop(0)

    @property
    def state(self) -> State:
        state: State = self._context.state
        return state


def execution(root: Path, state: State) -> Layout:
    """Make the execution of the attempt `e-1`, as its server has left it."""
    layout = Layout.of_execution(root)
    layout.state_directory.mkdir(parents=True)
    layout.state.write_bytes(codec.encode(state))
    attempt = Attempt(exploration_id="e", attempt_id="e-1", codon_id=CodonId("two"))
    meta = msgspec.structs.replace(METADATA, attempt=attempt)
    data_source.write_meta(layout, meta)
    return layout


def running_at(root: Path) -> AttemptRecord:
    return AttemptRecord(attempt_id="e-1", status="running", execution_path=str(root))


DONE = a_state(
    FIRST,
    continued("try", completed("two", 7), of="first", after="one", at=sha(1)),
    plan=a_plan("one", "two"),
)


async def test_nothing_is_recorded_after_the_close(tmp_path: Path) -> None:
    """The ledger closes next; an import that is not done is repeated by the next start."""
    execution(tmp_path / "attempt", DONE)
    parent = Parent(running_at(tmp_path / "attempt"))
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parent.explorations.run)
            await parent.is_importing.wait()
            await parent.explorations.close()

    assert parent.recorded == []


async def test_background_work_that_has_not_begun_is_closed_too(tmp_path: Path) -> None:
    """A server may be stopped before its tasks have run."""
    execution(tmp_path / "attempt", DONE)
    parent = Parent(running_at(tmp_path / "attempt"))
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parent.explorations.run)
            await parent.explorations.close()

    assert not parent.is_importing.is_set()


@pytest.mark.parametrize("status", ["running", "discarded"])
async def test_damaged_metadata_ends_an_attempt_and_not_its_parent(
    tmp_path: Path, status: AttemptStatus
) -> None:
    """The attempt has failed, or its removal is reported as impossible; nothing is removed."""
    layout = execution(tmp_path / "attempt", DONE)
    layout.meta.write_text("{")
    parent = Parent(msgspec.structs.replace(running_at(tmp_path / "attempt"), status=status))
    await parent.run()
    messages = [each.attempt.message for each in parent.of(AttemptEnded)]
    messages += [each.message for each in parent.of(ErrorEvent)]
    (message,) = messages
    assert f"{layout.meta} is damaged" in (message or "")
    assert layout.state.exists()


async def test_what_a_removal_left_at_its_last_step_is_removed(tmp_path: Path) -> None:
    """A folder that is empty goes with the next start; one with anything in it stays."""
    for name in ("empty", "used"):
        (tmp_path / name).mkdir()

    (tmp_path / "used" / "notes").touch()
    for name in ("empty", "used", "gone"):
        record = running_at(tmp_path / name)
        await Parent(msgspec.structs.replace(record, status="discarded")).run()

    assert [path.name for path in tmp_path.iterdir()] == ["used"]


async def test_an_attempt_whose_server_cannot_start_says_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the newest error of its servers, without the hint below it."""
    layout = execution(tmp_path / "attempt", a_state(FIRST))
    numbers = itertools.count(1)

    def start_server(layout: Layout, _options: object) -> int:
        layout.server_log.parent.mkdir(exist_ok=True)
        with layout.server_log.with_name("attempt.out").open("a") as output:
            print("Starting", file=output)
            print(f"hankweave: Port {next(numbers)} is in use.", file=output)
            print("  Choose another.", file=output)

        return os.posix_spawnp("true", ["true"], os.environ)

    monkeypatch.setattr(child, "start_server", start_server)
    parent = Parent(running_at(layout.root))
    await parent.run()
    (event,) = parent.of(AttemptEnded)
    assert event.attempt.status == "failed"
    assert event.attempt.message == (
        "Its server ended 4 times before its codons were done. The last time: Port 4 is in use."
    )


async def test_the_run_with_the_result_is_the_attempts_although_a_later_one_has_the_score(
    tmp_path: Path,
) -> None:
    """Its server was started again during the score command; that run is not imported."""
    tried = continued("try", completed("two", 7), of="first", after="one", at=sha(1))
    score = continued("again", completed(SCORE_CODON, 8), of="try", after="two", at=sha(7))
    plan = a_plan("one", "two", SCORE_CODON)
    execution(tmp_path / "attempt", a_state(FIRST, tried, score, plan=plan))
    parent = Parent(running_at(tmp_path / "attempt"), imports=True)
    await parent.run()
    ((attempt,),) = (exploration.attempts for exploration in parent.state.explorations)
    assert (attempt.status, attempt.run_id, attempt.earlier_runs) == ("completed", "try", ())
    assert [run.run_id for run in parent.state.runs] == ["first", "try"]


async def test_what_a_failed_attempt_has_cost_is_in_the_total(tmp_path: Path) -> None:
    """Its runs are timelines with the failed codon; they count towards no codon's budget."""
    codon = msgspec.structs.replace(failed("two", sha(6)), partial_cost=2.0)
    begun = continued("try", codon, of="first", after="one", at=sha(1))
    again = continued("again", codon, of="try", after=None, at=sha(1))
    failed_run = msgspec.structs.replace(again, status="failed")
    plan = a_plan("one", "two")
    execution(tmp_path / "attempt", a_state(FIRST, begun, failed_run, plan=plan))
    parent = Parent(running_at(tmp_path / "attempt"), imports=True)
    cost, spent = total_cost(parent.state), total(counted(parent.state))
    await parent.run()
    ((attempt,),) = (exploration.attempts for exploration in parent.state.explorations)
    assert (attempt.status, attempt.run_id, attempt.earlier_runs) == ("failed", "again", ("try",))
    assert attempt.cost == 4.0
    assert total_cost(parent.state) == cost + 4.0
    assert total(counted(parent.state)) == spent
    assert {line.attempt for line in timelines(parent.state, ())} == {None, "e-1"}


async def test_an_attempt_for_which_nothing_is_left_is_not_made(tmp_path: Path) -> None:
    """It has failed, and says why."""
    record = msgspec.structs.replace(running_at(tmp_path / "attempt"), max_dollars=0.0)
    parent = Parent(record)
    await parent.run()
    ((attempt,),) = (exploration.attempts for exploration in parent.state.explorations)
    assert attempt.status == "failed"
    assert attempt.message == "Nothing was left of the exploration's budget."
    assert list(tmp_path.iterdir()) == []


async def test_a_full_disk_does_not_end_an_attempt_that_was_paid_for(tmp_path: Path) -> None:
    """Its result is imported when there is space again."""
    execution(tmp_path / "attempt", DONE)
    faults = (InsufficientSpace(10, 5), OSError(errno.ENOSPC, "No space left on device"))
    parent = Parent(running_at(tmp_path / "attempt"), imports=True, faults=faults)
    await parent.run()
    ((attempt,),) = (exploration.attempts for exploration in parent.state.explorations)
    assert attempt.status == "completed"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "/nowhere: Too many open files (EMFILE)."),
        (ShadowRepositoryError("A tree is damaged."), "The store of /nowhere cannot be used"),
        (InsufficientSpace(10, 5), "10 bytes are needed, 5 are free"),
    ],
    ids=["system", "store", "space"],
)
async def test_a_best_attempt_that_cannot_be_adopted_ends_nothing(
    tmp_path: Path, fault: Exception, why: str
) -> None:
    """An event says why, and what to do; the exploration has ended and waits for a person."""
    done = msgspec.structs.replace(
        running_at(tmp_path / "attempt"), status="completed", checkpoint_sha=sha(7), score=1.0
    )
    parent = Parent(done, adopts="best", faults=[fault])
    await parent.run()
    (event,) = parent.of(ErrorEvent)
    assert event.message.startswith("Attempt e-1 was not adopted: ")
    assert why in event.message
    assert not event.fatal
