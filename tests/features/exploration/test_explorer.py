"""Starts and ends of the servers of attempts: any program stands for a server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from hankweave_protocol.attempts import Attempt, AttemptRecord, Exploration
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import State
from hankweave_protocol.transitions import ExplorationSet
from hankweave_server import fsutil
from hankweave_server.domain.reducer import apply
from hankweave_server.features.exploration import child
from hankweave_server.features.exploration.explorer import Explorations, ExplorationSettings
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import write_meta
from support.histories import METADATA, sha
from support.timelines import a_state
from support.waiting import eventually, limited

NOW = "2026-01-01T00:00:00.000Z"
NAMES = ("e-1", "e-2", "e-3")


class Records:
    """A ledger and context in one, which keeps explorations only."""

    def __init__(self, state: State, layout: Layout) -> None:
        self.state = state
        self.ledger = self
        self.layout = layout

    async def record(self, *entries: object, causes: object = ()) -> None:
        for entry in entries:
            if isinstance(entry, ExplorationSet):
                self.state = apply(self.state, entry, self.state.last_event_seq + 1)

    def now_text(self) -> str:
        return NOW

    def attempts(self) -> tuple[AttemptRecord, ...]:
        (exploration,) = self.state.explorations
        return exploration.attempts


class ARunner:
    def when_explored(self, _explore: object) -> None: ...


@dataclass
class Programs:
    """The servers of attempts: programs that would run for an hour, and that hold no lock yet."""

    started: dict[Path, subprocess.Popen[bytes]]
    removed: list[Path]
    line: str = "exec sleep 3600"
    all: list[subprocess.Popen[bytes]] = field(default_factory=list)
    unremovable: tuple[Path, ...] = ()

    def start(self, layout: Layout, _options: object) -> int:
        child.output_of(layout).parent.mkdir(exist_ok=True)
        with child.output_of(layout).open("ab") as sink:
            program = subprocess.Popen(["/bin/sh", "-c", self.line], stderr=sink)

        self.started[layout.root] = program
        self.all.append(program)
        return self.started[layout.root].pid

    def remove(self, execution: Path) -> None:
        program = self.started.get(execution)
        assert program is None or program.poll() is not None, "it has ended"
        if execution in self.unremovable:
            raise OSError("a file cannot be removed")

        self.removed.append(execution)
        shutil.rmtree(execution)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    found = Programs({}, [])
    unfinished = child.AttemptResult(a_state(), is_over=False)
    monkeypatch.setattr(child, "start_server", found.start)
    monkeypatch.setattr(child, "remove_execution", found.remove)
    monkeypatch.setattr(child, "server_of", lambda _layout: None)
    monkeypatch.setattr(child, "result_of", lambda _layout: unfinished)
    yield found
    for program in found.all:
        program.kill()
        program.wait()


def explorations_in(folder: Path) -> tuple[Explorations, Records]:
    """Return an exploration with three attempts, whose executions exist."""
    attempts = []
    for name in NAMES:
        layout = Layout.of_execution(folder / name)
        fsutil.make_private_directory(layout.state_directory)
        attempt = Attempt(exploration_id="e", attempt_id=name, codon_id=CodonId("two"))
        write_meta(layout, msgspec.structs.replace(METADATA, attempt=attempt))
        attempts.append(
            AttemptRecord(attempt_id=name, status="running", execution_path=str(layout.root))
        )

    exploration = Exploration(
        exploration_id="e",
        created_at=NOW,
        checkpoint_sha=sha(1),
        codon_id=CodonId("two"),
        attempts=tuple(attempts),
    )
    records = Records(
        apply(a_state(), ExplorationSet(exploration=exploration), 1), Layout.in_place(folder)
    )
    settings = ExplorationSettings((), lambda: folder / "new")
    made = Explorations(
        cast(Any, records), cast(Any, ARunner()), cast(Any, None), cast(Any, None), settings
    )
    return made, records


async def test_a_discard_ends_servers_that_are_only_starting(
    tmp_path: Path, programs: Programs
) -> None:
    """They have no lock by which they could be found; none is left when its execution goes."""
    explorations, records = explorations_in(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explorations.run)
        await eventually(lambda: len(programs.started) == len(NAMES))
        with limited():
            await explorations.discard("e", None, ())

        assert programs.removed == [tmp_path / name for name in NAMES]
        assert {each.status for each in records.attempts()} == {"discarded"}
        await eventually(lambda: records.state.explorations[0].ended_at is not None)
        tasks.cancel_scope.cancel()

    assert len(programs.all) == len(NAMES)


async def test_a_discard_ends_all_attempts_if_one_cannot_be_removed(
    tmp_path: Path, programs: Programs
) -> None:
    """The refusal names it and the reason; a later discard removes it."""
    explorations, records = explorations_in(tmp_path)
    programs.unremovable = (tmp_path / "e-1",)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explorations.run)
        await eventually(lambda: len(programs.started) == len(NAMES))
        reason = r"of: e-1 \(a file cannot be removed\)"
        with limited(), pytest.raises(Refused, match=reason) as refused:
            await explorations.discard("e", None, ())

        assert refused.value.code is ErrorCode.INVALID_PATH
        assert programs.removed == [tmp_path / "e-2", tmp_path / "e-3"]
        assert {each.status for each in records.attempts()} == {"discarded"}
        programs.unremovable = ()
        await explorations.discard("e", "e-1", ())
        assert programs.removed[-1] == tmp_path / "e-1"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("line", "starts", "message"),
    [
        (
            "echo 'hankweave: warning: old' >&2; exit 69",
            1,
            "Its server could not start. Its output",
        ),
        (
            "echo 'hankweave: No login.' >&2; exit 78",
            1,
            "Its server could not start: No login. Its",
        ),
        ("echo 'hankweave: Locked.' >&2; exit 75", 4, "Its server ended 4 times"),
        ("kill -9 $$", 4, "Its server ended 4 times"),
    ],
)
async def test_a_start_that_is_refused_is_not_tried_again(
    tmp_path: Path, programs: Programs, line: str, starts: int, message: str
) -> None:
    """The reason is the message of the attempt. A server that died is started again."""
    explorations, records = explorations_in(tmp_path)
    programs.line = line
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explorations.run)
        await eventually(lambda: {each.status for each in records.attempts()} == {"failed"})
        tasks.cancel_scope.cancel()

    assert len(programs.all) == starts * len(NAMES)
    for each in records.attempts():
        assert (each.message or "").startswith(message)
        assert starts > 1 or str(each.execution_path) in (each.message or "")
