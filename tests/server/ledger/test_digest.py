"""The digest of a journal: what it says equals what the lines say, and it is used only if safe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.server.ledger.conftest import open_ledger

from hankweave_protocol.events import AssistantAction, CheckpointPruned, Info
from hankweave_protocol.ids import CodonId
from hankweave_protocol.transitions import (
    CheckpointCreated,
    CostsIncremented,
    RunStarted,
)
from hankweave_server.domain.checkpoints.records import on_record
from hankweave_server.ledger import journal as journal_module
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.histories import (
    SteppingClock,
    a_checkpoint,
    a_run,
    recounted_costs,
    running,
    sha,
    some_tokens,
)

OBSERVE = CodonId("observe")
RUN = a_run(codons=(running(OBSERVE),))
TICK = CostsIncremented(
    run_id=RUN.run_id, codon_id=OBSERVE, cost=0.25, tokens=some_tokens(1), messages=1
)
CALL = AssistantAction(
    codon_id=OBSERVE, action="tool_use", content="", tool_name="mcp__mail__send", external=True
)


async def live(layout: Layout, first: int) -> None:
    """Record some checkpoints, costs and effects, as one server's life."""
    async with open_ledger(layout) as ledger:
        if first == 0:
            await ledger.record(RunStarted(run=RUN))

        for number in range(first, first + 20):
            made = a_checkpoint("manual", RUN.run_id, None, number)
            await ledger.record(CheckpointCreated(checkpoint=made), TICK, Info(message="x" * 2000))

        await ledger.record(CheckpointPruned(checkpoints=(sha(first + 3),)), CALL)
        check(ledger, layout)


def check(ledger: Ledger, layout: Layout) -> None:
    """Compare the digest with the lines of the file."""
    lines = layout.journal.read_bytes().splitlines()
    assert ledger.digest.checkpoints() == on_record(lines)
    assert ledger.digest.costs() == recounted_costs(lines)
    external = [at for at, line in enumerate(lines, 1) if b'"external":true' in line]
    assert ledger.digest.effects.after(0) == external
    assert ledger.digest.effects.after(external[0]) == external[1:]
    assert ledger.read(0) == lines
    assert ledger.read(len(lines) - 3, 2) == lines[-3:-1]


def every_line(layout: Layout) -> list[int]:
    """Return the numbers of all lines that the journal has now."""
    return list(range(1, len(layout.journal.read_bytes().splitlines()) + 1))


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the numbers of all lines that are read and accepted."""
    numbers: list[int] = []
    original = journal_module.seq_in

    def counted(line: bytes) -> int | None:
        seq = original(line)
        numbers.append(seq or 0)
        return seq

    monkeypatch.setattr(journal_module, "seq_in", counted)
    return numbers


async def test_after_an_orderly_end_no_line_is_read_again(
    layout: Layout, accepted: list[int]
) -> None:
    """The digest says the same as the lines over several lives."""
    for life in range(3):
        accepted.clear()
        await live(layout, 20 * life)
        assert accepted == []


async def test_after_a_crash_every_line_is_read(layout: Layout, accepted: list[int]) -> None:
    """A journal that has grown since the digest was saved is read from its beginning."""
    await live(layout, 0)
    saved = layout.journal_digest.read_bytes()
    await live(layout, 20)
    layout.journal_digest.write_bytes(saved)
    accepted.clear()
    async with open_ledger(layout) as ledger:
        check(ledger, layout)
        assert accepted == list(range(1, ledger.last_seq + 1))


async def test_a_journal_that_was_changed_is_not_taken_for_the_old_one(layout: Layout) -> None:
    """Damage in the middle is found, though size and modification time are as before."""
    await live(layout, 0)
    before = layout.journal.stat()
    content = bytearray(layout.journal.read_bytes())
    content[content.index(b"\n", len(content) // 2) - 1] = 0
    with layout.journal.open("r+b") as journal:
        journal.write(content)

    os.utime(layout.journal, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(JournalCorrupt):
        await Ledger.open(layout, SteppingClock())


async def test_a_copied_execution_has_the_same_past(
    layout: Layout, tmp_path: Path, accepted: list[int]
) -> None:
    """A copy is another file, and read anew."""
    await live(layout, 0)
    shutil.copytree(layout.root, tmp_path / "copy", symlinks=True)
    await live(Layout.of_execution(tmp_path / "copy"), 20)
    assert accepted == every_line(layout)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda saved: b"",
    "one byte": lambda saved: saved[:1],
    "a hundred bytes": lambda saved: saved[:100],
    "all but a byte": lambda saved: saved[:-1],
    "zeros, as a power cut may leave": lambda saved: bytes(len(saved)),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_torn_digest_is_ignored(layout: Layout, damage: str, accepted: list[int]) -> None:
    """The lines are read instead."""
    await live(layout, 0)
    expected = every_line(layout)
    layout.journal_digest.write_bytes(DAMAGES[damage](layout.journal_digest.read_bytes()))
    await live(layout, 20)
    assert accepted == expected
