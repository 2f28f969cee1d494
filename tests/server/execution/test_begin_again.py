"""Claims about a plan that begins again at a codon, on the files as they are (`--from`)."""

from __future__ import annotations

from pathlib import Path

from hankweave_protocol.state import CompletedCodon, Continuation
from hankweave_server.domain.history import thread
from support.running_server import running_server, state
from support.scripted_hank import codon, write_hank

SAYS = {"say": "from before"}


def hank_in(folder: Path) -> Path:
    return write_hank(
        folder / "hank",
        codon("one", SAYS, {"run": "echo one >> log.txt"}, outputVar="answer"),
        codon("two", {"run": "echo two {{answer}} >> log.txt"}, outputVar="later"),
        codon("three", {"run": "echo three {{later}} >> log.txt"}),
    )


async def ran(hank: Path, execution: Path, *flags: str) -> int:
    async with running_server(hank, None, execution, "--headless", *flags) as server:
        return await server.ended()


async def test_a_plan_that_has_ended_begins_again(tmp_path: Path) -> None:
    """From the first codon: files stay as they are, answers are forgotten, the past is kept."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution) == 0
    assert await ran(hank, execution, "--from", "one") == 0
    assert (execution / "agentRoot" / "log.txt").read_text().count("one\n") == 2
    newest, former = state(execution).runs
    assert len(former.codons) == len(newest.codons) == 3
    conditions = newest.starting_conditions
    assert isinstance(conditions, Continuation)
    assert (conditions.source.after_codon, conditions.source.checkpoint_sha) == (None, None)
    assert [each.codon.codon_id for each in thread(state(execution))] == ["one", "two", "three"]


async def test_it_begins_at_any_codon_with_the_answers_before_it(tmp_path: Path) -> None:
    """From the second codon: the first one's answer is known, the first does not run again.

    Architect loses captured variables on --from-step (A8, 19).
    """
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution) == 0
    log = execution / "agentRoot" / "log.txt"
    log.write_text("edited\n")
    assert await ran(hank, execution, "--from", "two") == 0
    lines = log.read_text().splitlines()
    assert lines[:2] == ["edited", "two from before"]
    assert lines[2].startswith("three ")
    assert [codon.codon_id for codon in state(execution).runs[0].codons] == ["two", "three"]
    assert all(isinstance(each.codon, CompletedCodon) for each in thread(state(execution)))


async def test_a_first_run_may_begin_in_the_middle(tmp_path: Path) -> None:
    """Nothing has run yet: the plan begins at the codon that is named, and goes on from there."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution, "--from", "three") == 0
    assert [codon.codon_id for codon in state(execution).runs[0].codons] == ["three"]


async def test_an_unknown_codon_is_a_usage_error(tmp_path: Path) -> None:
    """It is named with those that there are; nothing runs; exit code 2."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    async with running_server(hank, None, execution, "--headless", "--from", "tow") as server:
        assert await server.ended() == 2

    assert [codon for run in state(execution).runs for codon in run.codons] == []
    assert any("tow" in line for line in server.output)


async def test_a_changed_hank_begins_again_where_it_is_told_to(tmp_path: Path) -> None:
    """What ran under another hank counts up to the first codon that the new one does not have."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution) == 0
    other = write_hank(
        tmp_path / "hank",
        codon("one", SAYS),
        codon("new", {"run": "echo new {{answer}} >> log.txt"}),
        codon("two", {"run": "echo two again >> log.txt"}),
    )
    assert await ran(other, execution, "--from", "new") == 0
    lines = (execution / "agentRoot" / "log.txt").read_text().splitlines()
    assert lines[-2:] == ["new from before", "two again"]
    assert [each.codon.codon_id for each in thread(state(execution))] == ["one", "new", "two"]
