"""A check that fails may search for the call that broke it: `"onFailure": {"bisect": CMD}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import BisectStop, CodonSkip
from hankweave_protocol.events import BisectEnded, BisectStarted, CodonRetrying
from hankweave_protocol.state import FailedCodon, SkippedCodon
from support.git_facts import GitWitness
from support.running_server import run_headless, served, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of, idle

STEPS = tuple(writes("a.txt", word) for word in ("one", "two", "three", "four"))
HAS_THREE = "! grep -qs -e three -e four a.txt"


def broken(bisect: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"run": HAS_THREE, "onFailure": {"bisect": bisect, **fields}}]


async def test_the_reason_of_a_failed_check_names_the_call_that_broke_it(tmp_path: Path) -> None:
    """The search is in the journal, and has changed neither files nor the number of checkpoints."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", *STEPS, checks=broken(HAS_THREE), env={"WORD": "three"}),
    )
    plain = write_hank(tmp_path / "plain", codon("one", *STEPS, checks=[{"run": HAS_THREE}]))
    executions = tmp_path / "execution", tmp_path / "without"
    for source, execution in zip((hank, plain), executions, strict=True):
        assert await run_headless(source, execution) == 1

    execution, without = executions
    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    (ended,) = events_of(execution, BisectEnded)
    (started,) = events_of(execution, BisectStarted)
    assert (started.command, ended.message) == (HAS_THREE, None)
    witness = GitWitness(execution)
    assert witness.files(ended.checkpoint_sha)["a.txt"] == b"three"
    assert witness.files(ended.parent_sha)["a.txt"] == b"two"
    reason = str(failed.failure_reason.message)
    assert reason.startswith("Check 1 of 1 failed: The command exited with code 1")
    assert reason.endswith(
        f"It first failed after {ended.summary}, checkpoint {ended.checkpoint_sha[:12]}."
    )
    assert ended.summary.startswith("Write a.txt")
    assert tree(execution / "agentRoot") == tree(without / "agentRoot")
    counts = [GitWitness(each).run("rev-list", "--count", "HEAD") for each in executions]
    assert counts[0] == counts[1]


@pytest.mark.full
async def test_a_retry_waits_for_the_search_and_each_attempt_is_searched_by_itself(
    tmp_path: Path, execution: Path
) -> None:
    """The policy of the codon counts afterwards; what an earlier attempt did is no candidate."""
    policy = {"onFailure": "retry", "retryConfig": {"maxAttempts": 2, "delayMs": 1}}
    hank = write_hank(tmp_path / "hank", codon("one", *STEPS, checks=broken(HAS_THREE), **policy))
    assert await run_headless(hank, execution) == 1

    first, second = events_of(execution, BisectEnded)
    assert len(events_of(execution, CodonRetrying)) == 1
    assert first.checkpoint_sha != second.checkpoint_sha
    assert {first.message, second.message} == {None}
    for codon_of, ended in zip(state(execution).runs[0].codons, (first, second), strict=True):
        assert isinstance(codon_of, FailedCodon)
        assert ended.checkpoint_sha[:12] in str(codon_of.failure_reason.message)


async def test_a_search_that_takes_too_long_ends_without_a_result(tmp_path: Path) -> None:
    """The codon fails with the reason of its check, and why nothing was found."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", *STEPS, checks=broken("sleep 600", timeoutSeconds=0.5)),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    reason = str(failed.failure_reason.message)
    assert reason.endswith("The first failure was not found: It took longer than 0.5 s.")
    (ended,) = events_of(execution, BisectEnded)
    assert (ended.message, ended.checkpoint_sha) == ("It took longer than 0.5 s.", None)


async def test_a_person_need_not_wait_for_the_search(tmp_path: Path, execution: Path) -> None:
    """`bisect.stop` ends the search, and the codon fails; `codon.skip` skips the codon."""
    began = tmp_path / "began"
    search = f"touch {began}; sleep 600"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", *STEPS, checks=broken(search), onFailure="ignore"),
        codon("two", *STEPS, checks=broken(search)),
        overrides={"confinement": {"extraWrite": [".."]}},
    )
    async with served(hank, execution, since_seq=0) as (server, client):
        for stop in (BisectStop(), CodonSkip()):
            await client.until(BisectStarted)
            await client.send(stop)
            await client.until(BisectEnded)

        await idle(client, "codon-completed")
        await server.stop()

    one, two = state(execution).runs[0].codons
    assert isinstance(one, FailedCodon)
    assert str(one.failure_reason.message).endswith("was not found: It was stopped.")
    assert isinstance(two, SkippedCodon)
