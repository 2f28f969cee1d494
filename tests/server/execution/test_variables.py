"""Variables of a hank and answers of its agents, in prompts and conditions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hankweave_protocol.commands import RollbackToCodon
from hankweave_protocol.events import CodonCompletedEvent
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import Captured, CompletedCodon, SkippedCodon
from support.running_server import run_headless, served, state
from support.scripted_hank import codon, rig_command, shell, write_hank, writes
from support.watching import after_plan, events_of, idle, listed


def message(text: str) -> dict[str, Any]:
    return {"say": text}


async def test_a_prompt_holds_what_its_variables_stand_for(tmp_path: Path, execution: Path) -> None:
    """Variables and earlier answers are filled in; unknown names, and names in values, stay
    literal."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", message("forty-two"), outputVar="answer"),
        codon("two", writes("a.txt", "{{greeting}} {{ answer }} {{unknown}} {{greeting}} {{raw}}")),
        variables={"greeting": "hello", "raw": "{{greeting}}"},
    )
    assert await run_headless(hank, execution) == 0

    text = (execution / "agentRoot" / "a.txt").read_text()
    assert text == "hello forty-two {{unknown}} hello {{greeting}}"
    one, _ = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert one.captured == Captured(name="answer", value="forty-two")
    assert events_of(execution, CodonCompletedEvent)[0].captured == one.captured


async def test_a_codon_whose_condition_does_not_hold_is_skipped(tmp_path: Path) -> None:
    """It is skipped before its rig and agent, with the condition on record; the plan continues."""
    rig = [rig_command("touch rig.txt")]
    condition = "review == 'bad' or defined(nothing)"
    hank = write_hank(
        tmp_path / "hank",
        codon("review", message("good"), outputVar="review"),
        codon("repair", writes("a.txt", "a"), condition=condition, rigSetup=rig),
        codon("publish", writes("b.txt", "b"), condition="{{review}} == 'good'"),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    _, repair, publish = state(execution).runs[0].codons
    assert isinstance(repair, SkippedCodon)
    assert (repair.condition, repair.skipped_during) == (condition, "preparing")
    assert isinstance(publish, CompletedCodon)
    names = {path.name for path in (execution / "agentRoot").iterdir()}
    assert names == {"b.txt"}
    ended = events_of(execution, CodonCompletedEvent)[1]
    assert (ended.skipped, ended.condition) == (True, condition)


async def test_a_rollback_takes_answers_back(tmp_path: Path, execution: Path) -> None:
    """After a rollback to before the codon that answered, its variable is undefined again."""
    hank = write_hank(
        tmp_path / "hank",
        codon("zero", writes("0.txt", "0")),
        codon("one", message("yes"), outputVar="answer"),
        codon("two", writes("two.txt", "{{answer}}"), condition="defined(answer)"),
    )
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        raw = json.loads(hank.read_text())
        raw["hank"][1]["condition"] = "false"
        await client.send(RollbackToCodon(codon_id=CodonId("zero"), checkpoint_type="end"))

    hank.write_text(json.dumps(raw))
    assert await run_headless(hank, execution) == 0

    one, two = state(execution).runs[0].codons
    assert isinstance(one, SkippedCodon)
    assert isinstance(two, SkippedCodon)
    assert two.condition == "defined(answer)"


async def test_an_answer_survives_the_server(tmp_path: Path, execution: Path) -> None:
    """A restarted server knows the answers of the codons before its start."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", message("kept"), outputVar="answer"),
        codon("two", {"fail": {"message": "no"}}),
    )
    assert await run_headless(hank, execution) == 1

    raw = json.loads(hank.read_text())
    raw["hank"][1] = codon("two", writes("a.txt", "{{answer}}"))
    hank.write_text(json.dumps(raw))
    assert await run_headless(hank, execution) == 0

    assert (execution / "agentRoot" / "a.txt").read_text() == "kept"


async def test_what_a_plain_program_prints_is_its_answer(tmp_path: Path, execution: Path) -> None:
    """A plain program's answer is its stdout; a long one is truncated, with a note."""
    prints = "echo one; echo two; yes long | head -n 20000"
    plain = codon("one", outputVar="answer", promptText="-") | shell(prints)
    hank = write_hank(tmp_path / "hank", plain)
    assert await run_headless(hank, execution) == 0

    (done,) = state(execution).runs[0].codons
    assert isinstance(done, CompletedCodon)
    assert done.captured is not None
    assert done.captured.value.startswith("one\ntwo\nlong\n")
    assert (len(done.captured.value), done.captured.truncated) == (65_536, True)


async def test_a_checkpoint_carries_its_codons_label(tmp_path: Path, execution: Path) -> None:
    """The checkpoint of the codon's success has the label, and stock git finds it."""
    hank = write_hank(tmp_path / "hank", codon("one", checkpointLabel="architect:checkpoint:one"))
    async with served(hank, execution, since_seq=0) as (_, client):
        await idle(client, "all-codons-completed")
        labels = {record.kind: record.label for record in await listed(client)}

    assert labels["completed"] == "architect:checkpoint:one"
