"""Agents that are extended until a limit, and loops that end with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonExtended,
    CodonStartedEvent,
    LoopIterationCompleted,
)
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.git_facts import GitWitness
from support.running_server import run_headless, state
from support.scripted_hank import codon, loop, shell, write_hank, writes
from support.watching import events_of

FULL = {"fail": {"message": "Prompt is too long"}}


def script(*steps: dict[str, Any]) -> str:
    return json.dumps({"steps": list(steps)})


async def test_an_agent_is_sent_on_in_its_own_session(tmp_path: Path, execution: Path) -> None:
    """exhaustWithPrompt: after a clean end the agent gets the prompt in the same session, up to
    maxExtensions times; costs and messages are added, and one log has everything."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            {"say": "begun"},
            {"cost": 0.5},
            exhaustWithPrompt=script(
                {"say": "more"}, {"append": {"path": "more.txt", "text": "x"}}, {"cost": 0.25}
            ),
            maxExtensions=2,
        ),
    )
    assert await run_headless(hank, execution) == 0

    done = state(execution).runs[0].codons[0]
    assert isinstance(done, CompletedCodon)
    assert (done.extension_count, done.final_cost, done.context_exceeded) == (2, 1.0, False)
    assert (execution / "agentRoot" / "more.txt").read_text() == "xx"
    assert len(events_of(execution, CodonStartedEvent)) == 1
    extended = events_of(execution, CodonExtended)
    assert [each.extension_number for each in extended] == [1, 2]
    assert [each.cumulative_cost for each in extended] == [0.5, 0.75]
    log = (execution / done.claude_log_path).read_text()
    assert log.count('"init"') == 3
    assert GitWitness(execution).files(done.completion_checkpoint) == {"more.txt": b"xx"}


async def test_a_full_context_is_the_good_end_of_an_exhausted_codon(tmp_path: Path) -> None:
    """The codon is complete, with the reason of its end; the files it wrote are kept."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), exhaustWithPrompt=script(FULL)),
        codon("two"),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    done = state(execution).runs[0].codons[0]
    assert isinstance(done, CompletedCodon)
    assert (done.context_exceeded, done.extension_count) == (True, 1)
    assert [event.success for event in events_of(execution, CodonCompletedEvent)] == [True, True]


async def test_an_unexpected_full_context_is_a_failure(tmp_path: Path) -> None:
    """A full context fails other codons; a retry would not help, and the reason names the limit."""
    hank = write_hank(tmp_path / "hank", codon("one", FULL))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    failed = state(execution).runs[0].codons[0]
    assert isinstance(failed, FailedCodon)
    assert failed.failure_reason.retriable is False
    assert "context" in (failed.failure_reason.message or "")


async def test_a_failure_in_an_extension_fails_the_codon(tmp_path: Path, execution: Path) -> None:
    """The codon's earlier work is in its error checkpoint."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), exhaustWithPrompt=script({"fail": {"message": "no"}})),
    )
    assert await run_headless(hank, execution) == 1

    failed = state(execution).runs[0].codons[0]
    assert isinstance(failed, FailedCodon)
    assert failed.extension_count == 1
    assert GitWitness(execution).files(failed.error_checkpoint or "") == {"a.txt": b"a"}


async def test_a_loop_until_the_context_is_full_ends_in_mid_iteration(tmp_path: Path) -> None:
    """The rest of the iteration is removed from the plan, the codon after the loop runs, and a
    second start finds nothing to do."""
    counter = tmp_path / "count"
    full = '{"type":"result","subtype":"error","is_error":true,"result":"Prompt is too long"}'
    begin = '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
    good = '{"type":"result","subtype":"success","is_error":false,"result":"ok"}'
    line = (
        f"n=$(( $(cat {counter} 2>/dev/null || echo 0) + 1 )); echo $n > {counter}; "
        f"echo '{begin}'; [ $n -ge 3 ] && {{ echo '{full}'; exit 1; }}; echo '{good}'"
    )
    goes_on = {"continuationMode": "continue-previous"}
    talks = shell(f"echo '{begin}'; echo '{good}'")
    search = loop("search", codon("look") | goes_on | shell(line), codon("note") | goes_on | talks)
    hank = write_hank(tmp_path / "hank", codon("begin") | talks, search, codon("report"))
    execution = tmp_path / "execution"
    for _ in range(2):
        assert await run_headless(hank, execution) == 0

    names = [each.codon_id for each in state(execution).runs[0].codons]
    assert names == ["begin", "look#0", "note#0", "look#1", "note#1", "look#2", "report"]
    assert [entry.codon_id for entry in state(execution).execution_plan] == names
    ends = events_of(execution, LoopIterationCompleted)
    assert [(end.iteration, end.is_final, end.termination_reason) for end in ends] == [
        (0, False, None),
        (1, False, None),
        (2, True, "context_exceeded"),
    ]
