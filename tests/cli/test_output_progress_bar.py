"""Claims about the progress shown for long operations."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from hankweave_protocol.commands import (
    CheckpointCreate,
    GetServerStatus,
    RollbackToCodon,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.events import RollbackProgress, RollbackStarted
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import FsckReport
from hankweave_server.cli.events import READING, counted
from hankweave_server.execution.maintenance import progress
from hankweave_server.ledger.journal import Journal
from hankweave_server.local.fsck import fsck
from hankweave_server.local.server_session import at_server
from hankweave_server.paths import Layout
from support.abandoned import dead_end
from support.running_server import environment
from support.screens import screen
from support.waiting import LIMIT
from support.watching import events_of

Calls = list[tuple[str | None, int | None, int | None]]


def listening(
    calls: Calls,
    text: str | None = None,
    done: int | None = None,
    total: int | None = None,
    *,
    unit: str = "",
) -> None:
    calls.append((text, done, total))


async def test_a_rollback_reports_its_steps(tmp_path: Path) -> None:
    """The lines follow the server's events: files to save and restore, then numbered steps.

    In between they may say how far reading and writing are, where these take long.
    """
    async with dead_end(tmp_path) as past:
        calls: Calls = []
        since = (await past.client.send(GetServerStatus())).last_event_seq
        root, one = past.server.execution, CodonId("one")
        await anyio.to_thread.run_sync(
            lambda: at_server(
                root,
                lambda client: client.send(RollbackToCodon(codon_id=one, checkpoint_type="end")),
                partial(listening, calls),
            )
        )

    (begun,) = events_of(root, RollbackStarted, since)
    steps = events_of(root, RollbackProgress, since)
    assert [each.current_step for each in steps] == list(range(1, len(steps) + 1))
    expected = [
        (f"The current files are saved; restoring {begun.to_checkpoint[:12]}", None, None),
        *((each.message, each.current_step, len(steps)) for each in steps),
    ]
    assert [each for each in calls if each in expected] == expected
    assert steps


async def test_a_gc_reports_its_progress(tmp_path: Path) -> None:
    """The output says how many checkpoints were pruned, and that the store is being packed."""
    async with dead_end(tmp_path) as past:
        calls: Calls = []
        await anyio.to_thread.run_sync(
            lambda: at_server(
                past.server.execution,
                lambda client: client.send(StoreGc(max_count=0)),
                partial(listening, calls),
            )
        )

    assert any("3 checkpoints pruned" in (text or "") for text, _, _ in calls)


async def test_without_a_server_fsck_counts_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are counted out of all stored ones; with a zero delay, progress appears at once."""
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.001)
    async with dead_end(tmp_path) as past:
        tree = past.server.execution / "agentRoot"
        for number in range(40):
            (tree / f"noise-{number}").write_bytes(os.urandom(1 << 20))

        await past.client.send(CheckpointCreate(label="noise"))
        await past.server.stop()

    calls: Calls = []
    layout = Layout.of_execution(past.server.execution)
    work = partial(fsck, layout, StoreFsck(), partial(listening, calls))
    report = await anyio.to_thread.run_sync(work)
    assert isinstance(report, FsckReport)
    assert (report.damages, report.missing) == ((), ())
    assert {text for text, _, _ in calls} == {"Reading the store"}
    counts = [done or 0 for _, done, _ in calls]
    assert counts == sorted(counts)
    assert counts[-1] >= 40
    assert all(total is not None and (done or 0) <= total for _, done, total in calls)


async def test_an_export_of_the_journal_counts_its_events(tmp_path: Path) -> None:
    """The number of events is printed before they are read; the lines are the journal's own."""
    async with dead_end(tmp_path) as past:
        await past.server.stop()

    calls: Calls = []
    with closing(Journal.for_reading(Layout.of_execution(past.server.execution).journal)) as lines:
        read = counted(lines, partial(listening, calls))
        assert [*read(0, 10), *read(10, 10)] == lines.read(0, 20)
        assert calls == [(READING, 0, lines.last_seq), (READING, 10, lines.last_seq)]


SCRIPT = """
import sys
from hankweave_server.cli.output.progress_bar import waiting
with waiting("Reading") as tell:
    tell("Reading checkpoints", 3, 10)
    sys.stdin.readline()
    tell("Reading checkpoints", 7)
    sys.stdin.readline()
print("done")
"""


def test_on_a_terminal_a_bar_counts_and_leaves_nothing_behind() -> None:
    """The bar appears after half a second and follows the events.

    Its line is erased at the end, and the cursor is never hidden.
    """
    with screen(program=[sys.executable, "-c", SCRIPT]) as shown:
        shown.until(lambda text: "3 of 10" in text)
        os.write(shown.master, b"\n")
        shown.until(lambda text: "7 of 10" in text)
        os.write(shown.master, b"\n")
        assert shown.ended() == 0
        assert b"\x1b[?25l" not in shown.bytes
        assert b"\x1b[2K" in shown.bytes[shown.bytes.rindex(b"7 of 10") :]


PHASES = """
import sys
from hankweave_server.cli.output.progress_bar import waiting
with waiting("Branching") as tell:
    tell("Copying", 1 << 20, 2 << 20, unit="bytes")
    sys.stdin.readline()
    tell("Flushing", 0, None, unit="files")
    sys.stdin.readline()
    tell("Writing", 1234, 5678, unit="files")
    sys.stdin.readline()
with waiting(None) as tell:
    tell("Secret", 1, 2)
    sys.stdin.readline()
"""


def test_each_phase_is_counted_anew_and_in_its_unit() -> None:
    """Bytes have readable units; a phase without a count shows none."""
    with screen(program=[sys.executable, "-c", PHASES]) as shown:
        shown.until(lambda text: "1.0 MiB of 2.0 MiB" in text)
        shown.forget()
        os.write(shown.master, b"\n")
        shown.until(lambda text: "Flushing" in text)
        assert " of " not in shown.text()[shown.text().index("Flushing") :]
        os.write(shown.master, b"\n")
        shown.until(lambda text: "1,234 of 5,678 files" in text)
        os.write(shown.master, b"\n\n")
        assert shown.ended() == 0
        assert "Secret" not in shown.text()


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_elsewhere_nothing_is_drawn(term: str) -> None:
    """No bar is drawn in a pipe, or on a terminal that cannot draw."""
    if term == "dumb":
        with screen(program=[sys.executable, "-c", SCRIPT], env={"TERM": term}) as shown:
            os.write(shown.master, b"\n\n")
            assert shown.ended() == 0
            assert "Reading" not in shown.text()
    else:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment(TERM=term),
            input=b"\n\n",
            capture_output=True,
            timeout=LIMIT,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"done\n", b"")
