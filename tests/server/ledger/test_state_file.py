"""The state files: what a save leaves on disk, and how a load handles what it finds."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from hankweave_protocol.hank import ContainerBudget
from hankweave_protocol.records import ValidationError
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server.ledger import state_file as store_module
from hankweave_server.ledger.state_file import (
    Absent,
    FromBackup,
    FromPrimary,
    NewerState,
    StateStore,
    UnreadableState,
)
from hankweave_server.paths import Layout
from support.calls import failing
from support.crashes import crash_after
from support.histories import SteppingClock, a_plan, a_run, completed, running


def state(number: int) -> State:
    return msgspec.structs.replace(
        EMPTY_STATE,
        runs=(a_run(codons=(completed(),)),),
        current_run_id=a_run().run_id,
        execution_plan=a_plan("observe", "review#0"),
        last_event_seq=number,
    )


@pytest.fixture(autouse=True)
def _state_directory(layout: Layout) -> None:
    layout.state_directory.mkdir(parents=True)


def store_in(layout: Layout) -> StateStore:
    return StateStore(layout, SteppingClock())


def saved(layout: Layout, *numbers: int) -> StateStore:
    store = store_in(layout)
    for number in numbers:
        store.save(state(number))

    return store


def names(layout: Layout) -> list[str]:
    return sorted(os.listdir(layout.state_directory))


def kept_in(layout: Layout) -> list[str]:
    return [name for name in names(layout) if ".corrupt-" in name]


def test_a_saved_state_is_read_back(layout: Layout):
    """The next start loads the state that was saved last."""
    saved(layout, 1, 2)
    assert store_in(layout).load() == FromPrimary(state(2))


def test_the_files_are_private_and_pretty(layout: Layout):
    """The files have an indentation of two, as in Hankweave, and are private; nothing is left."""
    saved(layout, 1, 2)
    text = layout.state.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
    assert json.loads(text)["schemaVersion"] == 1
    assert names(layout) == ["state.json", "state.json.bak"]
    assert stat.S_IMODE(layout.state.stat().st_mode) == 0o600


def test_the_backup_is_the_version_before(layout: Layout):
    """`.bak` is the previous file itself, not a copy of it."""
    store = saved(layout, 1)
    first = layout.state.stat().st_ino
    store.save(state(2))
    assert layout.state_backup.stat().st_ino == first
    layout.state.unlink()
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromBackup)
    assert loaded.state == state(1)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "corrupted_data"),
        (b"\0" * 4096, "corrupted_data"),
        (b'{"runs": [', "corrupted_data"),
        (b"[]", "corrupted_data"),
        (b'{"runs":3,"currentRunId":null,"executionPlan":[]}', "corrupted_data"),
        (b'{"runs":[],"currentRunId":"lost","executionPlan":[]}', "missing_run"),
        (b"[" * 100_000, "corrupted_data"),
    ],
    ids=["empty", "zeros", "half", "list", "shape", "missing run", "deep"],
)
def test_a_bad_primary_gives_way_to_its_backup(layout: Layout, content: bytes, kind: str):
    """The backup is used, the fault is reported, and the original is kept."""
    saved(layout, 1, 2)
    layout.state.write_bytes(content)
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromBackup)
    assert loaded.state == state(1)
    assert [error.type for error in loaded.errors] == [kind]
    assert list(loaded.kept) == kept_in(layout)
    assert (layout.state_directory / loaded.kept[0]).read_bytes() == content


def test_a_codon_of_the_wrong_shape_is_an_invalid_codon(layout: Layout):
    """A codon without a field that its status demands is reported as an invalid codon."""
    store = saved(layout, 1, 2)
    del store
    raw = json.loads(layout.state.read_bytes())
    del raw["runs"][0]["codons"][0]["completionCheckpoint"]
    layout.state.write_text(json.dumps(raw), encoding="utf-8")
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromBackup)
    assert [error.type for error in loaded.errors] == ["invalid_codon"]


def test_a_missing_primary_gives_way_to_its_backup(layout: Layout):
    """A missing state.json is not a fresh start.

    Hankweave reads the backup only if state.json is corrupt.
    """
    saved(layout, 1, 2)
    layout.state.unlink()
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromBackup)
    assert [error.message for error in loaded.errors] == ["state.json is missing."]
    assert loaded.kept == ()


def test_a_good_backup_is_never_overwritten_by_a_bad_primary(layout: Layout):
    """After a recovery, the next saves leave two good versions and the bad original."""
    saved(layout, 1, 2)
    layout.state.write_bytes(b"garbage")
    store = store_in(layout)
    store.load()
    store.save(state(3))
    assert state_in(layout.state_backup) == state(1)
    store.save(state(4))
    assert state_in(layout.state_backup) == state(3)
    assert kept_in(layout)


def test_an_unverified_primary_does_not_become_the_backup(layout: Layout):
    """A save without a preceding load leaves the backup alone."""
    saved(layout, 1, 2)
    layout.state.write_bytes(b"garbage")
    store_in(layout).save(state(3))
    assert state_in(layout.state_backup) == state(1)
    assert state_in(layout.state) == state(3)


def state_in(path: Path) -> State:
    return msgspec.json.decode(path.read_bytes(), type=State)


def test_a_version_that_is_not_durable_does_not_become_the_backup(layout: Layout):
    """A power cut may leave it empty: the backup is the last one that was made durable."""
    store = saved(layout, 1)
    for number in (2, 3):
        store.save(state(number), durable=False)
        assert store.saved_seq() == number

    layout.state.write_bytes(b"")
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromBackup)
    assert loaded.state == state(1)


def test_two_bad_files_are_both_kept(layout: Layout):
    """Neither file is lost, and no new state is started over them."""
    saved(layout, 1, 2)
    layout.state.write_bytes(b"one")
    layout.state_backup.write_bytes(b"two")
    loaded = store_in(layout).load()
    assert isinstance(loaded, UnreadableState)
    assert len(loaded.errors) == 2
    contents = {(layout.state_directory / name).read_bytes() for name in loaded.kept}
    assert contents == {b"one", b"two"}
    assert names(layout) == kept_in(layout)


def test_nothing_at_all_is_absent(layout: Layout):
    """A new directory is distinguished from a damaged one."""
    assert store_in(layout).load() == Absent()


def test_a_leftover_temporary_file_loses_against_the_state(layout: Layout):
    """The content of a `.tmp` was never acknowledged, however new it is."""
    saved(layout, 1, 2)
    for leftover in ("state.json.tmp", "state.json.bak.tmp"):
        (layout.state_directory / leftover).write_bytes(msgspec.json.encode(state(9)))

    assert store_in(layout).load() == FromPrimary(state(2))
    assert names(layout) == ["state.json", "state.json.bak"]


def test_the_check_of_the_caller_can_reject_a_valid_state(layout: Layout):
    """A state that is valid in itself can still be rejected by the caller's check."""
    saved(layout, 1, 2)

    def too_new(state: State) -> ValidationError | None:
        fault = ValidationError(type="corrupted_data", message="ahead")
        return fault if state.last_event_seq > 1 else None

    loaded = store_in(layout).load(too_new)
    assert isinstance(loaded, FromBackup)
    assert loaded.state == state(1)


def test_a_newer_version_of_the_file_is_left_alone(layout: Layout):
    """Reading and saving it would lose fields that this version does not know."""
    content = b'{"runs":[],"currentRunId":null,"executionPlan":[],"schemaVersion":99}'
    layout.state.write_bytes(content)
    with pytest.raises(NewerState):
        store_in(layout).load()

    assert layout.state.read_bytes() == content


def test_without_hard_links_the_backup_is_a_copy(layout: Layout, monkeypatch):
    """File systems without hard links get the same two versions."""
    store = saved(layout, 1)
    monkeypatch.setattr(store_module.os, "link", failing(errno.EPERM))
    store.save(state(2))
    assert state_in(layout.state_backup) == state(1)


# --- crashes --------------------------------------------------------------------------------------


NAMES = ("open", "write", "fsync", "link", "rename", "replace", "unlink")
CHANGES = [(os, name) for name in NAMES]


@pytest.mark.parametrize("number", range(9))
def test_a_crash_at_any_step_of_a_save_leaves_a_loadable_state(layout: Layout, number: int):
    """This start and the next one load either the previous version or the new one."""
    store = saved(layout, 1, 2)
    with crash_after(number, *CHANGES) as crash:
        store.save(state(3))

    assert crash.happened
    again = store_in(layout)
    loaded = again.load()
    assert isinstance(loaded, FromPrimary)
    assert loaded.state in (state(2), state(3))
    again.save(state(4))
    again.save(state(5))
    assert store_in(layout).load() == FromPrimary(state(5))
    assert state_in(layout.state_backup) == state(4)
    assert names(layout) == ["state.json", "state.json.bak"]


@pytest.mark.parametrize("number", range(6))
def test_a_crash_while_bad_files_are_put_aside_loses_nothing(layout: Layout, number: int):
    """A recovery that dies is repeated by the next start."""
    saved(layout, 1, 2)
    layout.state.write_bytes(b"one")
    layout.state_backup.write_bytes(b"two")
    with crash_after(number, *CHANGES) as crash:
        store_in(layout).load()

    assert crash.happened
    assert isinstance(store_in(layout).load(), UnreadableState | Absent)
    contents = {(layout.state_directory / each).read_bytes() for each in kept_in(layout)}
    assert contents == {b"one", b"two"}


def test_a_save_that_fails_leaves_the_state_as_it_was(layout: Layout, monkeypatch):
    """A full disk costs the new version, not the old ones."""
    store = saved(layout, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            store.save(state(3))

    assert store_in(layout).load() == FromPrimary(state(2))
    assert state_in(layout.state_backup) == state(1)


def test_a_reader_never_sees_a_torn_or_absent_state(layout: Layout):
    """A reader of either file during a save gets a whole version.

    For the backup this holds once it exists.
    """
    store = saved(layout, 1, 2)
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            paths = (layout.state, layout.state_backup)
            seen.extend(state_in(path).last_event_seq for path in paths)

    with_reader = threading.Thread(target=read)
    with_reader.start()
    for number in range(3, 150):
        store.save(state(number))

    stop.set()
    with_reader.join()
    assert seen
    assert max(seen) > 2


# --- Hankweave's files ----------------------------------------------------------------------------


HANKWEAVE_STATE = {
    "runs": [
        {
            "runId": "1736000000000-abc123-def456",
            "runFolder": "/x/.hankweave/runs/1736000000000-abc123-def456",
            "gitBranch": "run-1736000000000-abc123-def456",
            "startingConditions": {"type": "fresh"},
            "codons": [
                {
                    "codonId": "research",
                    "startTime": "2025-01-04T12:00:00.000Z",
                    "status": "failed",
                    "endTime": "2025-01-04T12:01:45.000Z",
                    "failedDuring": "starting",
                    "exitCode": -1,
                    "failureReason": {"type": "unknown", "retriable": False, "message": "no"},
                    "partialCost": 0,
                },
                {
                    "codonId": "research",
                    "startTime": "2025-01-04T12:02:00.000Z",
                    "status": "running",
                    "claudePid": 12345,
                    "claudeSessionId": "session-uuid",
                    "claudeLogPath": "runs/1736000000000-abc123/research-claude.log",
                    "currentCost": 0.0234,
                    "currentTokens": {
                        "inputTokens": 1500,
                        "outputTokens": 800,
                        "cacheCreationTokens": 0,
                        "cacheReadTokens": 500,
                    },
                    "assistantMessageCount": 5,
                    "budgetExceeded": {"currency": "cost", "limit": 1, "used": 2},
                },
            ],
            "status": "running",
            "startTime": "2025-01-04T12:00:00.000Z",
            "serverPid": 12345,
        }
    ],
    "currentRunId": "1736000000000-abc123-def456",
    "executionPlan": [
        {
            "codon": {
                "id": "research",
                "name": "Research Phase",
                "model": {"providerId": "anthropic", "modelId": "claude-sonnet-4", "cost": {}},
                "promptText": "Go.",
                "somethingNew": {"a": 1},
            },
            "codonId": "research",
        },
        {
            "codon": {"id": "review", "name": "Review", "model": "m", "promptText": "Go."},
            "codonId": "review#0",
            "loopContext": {
                "loopId": "loop",
                "iteration": 0,
                "codonIndexInLoop": 0,
                "loopBudget": {"maxDollars": 2, "allocation": "shared", "shares": None, "new": 1},
            },
        },
    ],
}


def test_a_state_that_hankweave_wrote_is_read(layout: Layout):
    """Missing sentinels, resolved models and unknown keys do not make the state corrupt."""
    layout.state.write_text(json.dumps(HANKWEAVE_STATE), encoding="utf-8")
    loaded = store_in(layout).load()
    assert isinstance(loaded, FromPrimary)
    assert loaded.state.schema_version == 0
    assert loaded.state.execution_plan[0].codon.model == "claude-sonnet-4"
    failed, active = loaded.state.runs[0].codons
    assert failed.sentinels.executed == ()  # type: ignore[union-attr]
    assert active.current_cost == 0.0234  # type: ignore[union-attr]
    context = loaded.state.execution_plan[1].loop_context
    assert context is not None
    assert context.loop_budget == ContainerBudget(max_dollars=2)


def test_a_gap_in_our_own_file_is_not_filled(layout: Layout):
    """Only files of the TypeScript Hankweave may lack fields; elsewhere this is damage."""
    raw = HANKWEAVE_STATE | {"schemaVersion": 1}
    layout.state.write_text(json.dumps(raw), encoding="utf-8")
    assert isinstance(store_in(layout).load(), UnreadableState)


def test_the_last_saved_seq_is_read_without_loading(layout: Layout):
    """The last saved seq says how far the journal is known to be durable."""
    store = store_in(layout)
    assert store.saved_seq() is None
    store.save(msgspec.structs.replace(state(7), runs=(a_run(codons=(running(),)),)))
    assert store.saved_seq() == 7
    layout.state.write_bytes(b"{")
    assert store.saved_seq() is None
