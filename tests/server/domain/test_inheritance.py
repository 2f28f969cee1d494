"""The history that a branch inherits equals what a rollback would continue with."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import EMPTY_STATE, CodonExecution, FreshStart, Run, State
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.inheritance import (
    NO_SERVER,
    Inheritance,
    continuation,
    inherited,
    inherited_coordinates,
)
from hankweave_server.domain.targets import RollbackTarget, target_of
from hankweave_server.domain.validation import errors_in, validate
from support.histories import a_plan, a_run, completed, failed, running, sha, skipped
from support.timelines import INITIAL, after, ended, record, rigged

PLAN = a_plan("one", "two", "three")
NAMES = ("one", "two", "three")


@dataclass
class Past:
    """An execution that grows run by run, with the commits of its checkpoints."""

    state: State
    known: dict[Sha, CheckpointRecord] = field(default_factory=dict)
    parents: dict[Sha, Sha | None] = field(default_factory=dict)
    count: int = 0

    @classmethod
    def begun(cls) -> Past:
        state = State(
            runs=(ended("run-0"),),
            current_run_id=None,
            execution_plan=PLAN,
            initial_checkpoint=INITIAL,
        )
        past = cls(state)
        past.note("initial", "run-0", None, INITIAL, None)
        return past

    def note(self, kind: str, run: str, name: str | None, at: Sha, parent: Sha | None) -> Sha:
        self.known[at] = record(kind, RunId(run), name, at)  # type: ignore[arg-type]
        self.parents[at] = parent
        return at

    def new_sha(self) -> Sha:
        self.count += 1
        return sha(0x1000 + self.count)

    def work(self, how: str, *, with_rig: bool, with_tool: bool) -> None:
        """Run the next codon in the newest run, and take its checkpoints."""
        run = self.state.runs[0]
        name = next_codon(self.state)
        if name is None or (run.codons and run.codons[-1].codon_id == name):
            return

        head = self.head_of(run)
        if with_rig:
            rig = head = self.note("rig-setup", run.run_id, name, self.new_sha(), head)

        if with_tool:
            head = self.note("tool", run.run_id, name, self.new_sha(), head)

        end = self.new_sha()
        codon: CodonExecution = {
            "completed": completed(name, int(end, 16)),
            "failed": failed(name, end),
            "skipped": skipped(name, end),
            "crashed": failed(name),
            "running": running(name),
        }[how]
        if how in ("completed", "failed", "skipped"):
            kinds = {"completed": "completed", "failed": "error", "skipped": "skipped"}
            self.note(kinds[how], run.run_id, name, end, head)

        if with_rig:
            codon = msgspec.structs.replace(codon, rig_setup_checkpoint=rig)

        status = {"failed": "failed", "crashed": "crashed", "running": "running"}.get(how)
        grown = msgspec.structs.replace(run, codons=(*run.codons, codon))
        if status is not None:
            grown = msgspec.structs.replace(grown, status=status)

        self.state = msgspec.structs.replace(self.state, runs=(grown, *self.state.runs[1:]))

    def head_of(self, run: Run) -> Sha | None:
        own = [each for each in self.known.values() if each.coordinate.run_id == run.run_id]
        if own:
            return own[-1].sha

        conditions = run.starting_conditions
        return None if isinstance(conditions, FreshStart) else conditions.source.checkpoint_sha

    def roll_back(self, choice: int) -> None:
        at = list(self.known)[choice % len(self.known)]
        run = self.first_run(target_of(self.state, self.known, at))
        closed = tuple(
            msgspec.structs.replace(each, status="completed") if each.status == "running" else each
            for each in self.state.runs
            if not any(codon.codon_id and _is_active(codon) for codon in each.codons)
        )
        if len(closed) == len(self.state.runs):
            self.state = msgspec.structs.replace(self.state, runs=(run, *closed))

    def first_run(self, target: RollbackTarget) -> Run:
        self.count += 1
        run = a_run(f"run-{self.count}")
        return msgspec.structs.replace(
            run, starting_conditions=continuation(target), server_pid=NO_SERVER
        )

    def history_of(self, at: Sha) -> dict[Sha, CheckpointRecord]:
        line: set[Sha] = set()
        step: Sha | None = at
        while step is not None:
            line.add(step)
            step = self.parents[step]

        return {each: known for each, known in self.known.items() if each in line}


def _is_active(codon: CodonExecution) -> bool:
    return codon.__struct_config__.tag in ("running",)


def folded(inheritance: Inheritance, after_seq: int) -> State:
    """Fold the transitions, one event each, into a state."""
    start = msgspec.structs.replace(EMPTY_STATE, last_event_seq=after_seq)
    return after(*inheritance.transitions(after_seq), start=start)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["completed", "completed", "failed", "skipped", "crashed", "running"]),
            st.booleans(),
            st.booleans(),
        ),
        st.integers(0, 50),
    ),
    max_size=14,
)


def a_past(steps: list[tuple[str, bool, bool] | int]) -> Past:
    past = Past.begun()
    for step in steps:
        if isinstance(step, int):
            past.roll_back(step)
        else:
            past.work(step[0], with_rig=step[1], with_tool=step[2])

    return past


@given(STEPS)
def test_a_branch_stands_where_a_rollback_would(steps: list[tuple[str, bool, bool] | int]) -> None:
    """From every checkpoint, branch and rollback have an equal thread and next codon."""
    past = a_past(steps)
    for at in list(past.known):
        target = target_of(past.state, past.known, at)
        run = past.first_run(target)
        there = folded(inherited(past.state, target, past.history_of(at), PLAN, run), 1)
        rolled = msgspec.structs.replace(past.state, runs=(run, *past.state.runs))
        assert thread(there) == thread(rolled)
        assert next_codon(there) == next_codon(rolled)
        assert there.current_run_id == run.run_id


@given(STEPS)
def test_a_branch_names_only_what_it_has(steps: list[tuple[str, bool, bool] | int]) -> None:
    """A branch's state is valid, names only checkpoints in its history, and has no running run
    except its own first one."""
    past = a_past(steps)
    for at in list(past.known):
        history = past.history_of(at)
        target = target_of(past.state, past.known, at)
        there = folded(
            inherited(past.state, target, history, PLAN, past.first_run(target)), after_seq=1
        )
        assert errors_in(there) == ()
        found = validate(there, run_folders=frozenset(), checkpoint_exists=history.__contains__)
        assert found.warnings == ()
        assert [run.status for run in there.runs].count("running") == 1
        assert not any(_is_active(codon) for run in there.runs for codon in run.codons)


@given(STEPS, st.integers(0, 9))
def test_an_inherited_coordinate_names_the_end_of_the_past(
    steps: list[tuple[str, bool, bool] | int], after_seq: int
) -> None:
    """The inherited seq is that of the last event before the branch's own first run."""
    past = a_past(steps)
    at = list(past.known)[-1]
    target = target_of(past.state, past.known, at)
    run = past.first_run(target)
    inheritance = inherited(past.state, target, past.history_of(at), PLAN, run)
    transitions = list(inheritance.transitions(after_seq))
    seqs = {
        each.checkpoint.coordinate.event_seq for each in transitions if hasattr(each, "checkpoint")
    }
    assert seqs == {after_seq + len(transitions) - 1}


def test_a_codon_at_work_is_left_behind_with_its_rig() -> None:
    """After a branch from a rig checkpoint the codon is failed, has its rig, and costs nothing."""
    done = rigged(completed("one", 0x11), 0x10)
    state = State(
        runs=(ended("run-0", done),),
        current_run_id=None,
        execution_plan=PLAN,
        initial_checkpoint=INITIAL,
    )
    rig = record("rig-setup", RunId("run-0"), done.codon_id, sha(0x10))
    end = record("completed", RunId("run-0"), done.codon_id, sha(0x11))
    target = target_of(state, {rig.sha: rig, end.sha: end}, rig.sha)
    run = msgspec.structs.replace(a_run("new"), starting_conditions=continuation(target))
    (past,) = inherited(state, target, {rig.sha: rig}, PLAN, run).past
    (left,) = past.codons
    assert left.__struct_config__.tag == "failed"
    assert getattr(left, "rig_setup_checkpoint", None) == rig.sha
    assert (past.status, past.end_time) == ("completed", rig.timestamp)


def test_a_journal_that_is_no_branchs_has_inherited_nothing() -> None:
    """An empty journal and that of a normal execution have inherited nothing."""
    assert list(inherited_coordinates(())) == []
    line = b'{"id":"1","seq":1,"timestamp":"t","type":"info","data":{"message":"x"}}'
    assert list(inherited_coordinates((line, b"never read"))) == []
