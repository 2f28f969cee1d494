"""Each provider failure ends its codon in time, with the right kind of failure."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from hankweave_protocol.state import CodonExecution, CompletedCodon, FailedCodon
from support.invariants import Acknowledged, violations
from support.models.turns import Fails, Says, Trouble
from support.real_agents import OVER_TIME, End, Grounds, Kind, assert_no_secrets, processes_of
from support.running_server import running_server, state
from support.scripted_hank import write_hank
from support.waiting import limited

DEADLINE = 240.0
ENDS: dict[Trouble, End] = {
    Trouble.RATE_LIMIT: ("rate-limit", True),
    Trouble.OVERLOAD: ("api-error", True),
    Trouble.BILLING: ("api-error", False),
    Trouble.WRONG_KEY: ("api-error", False),
    Trouble.CONTEXT_FULL: ("api-error", False),
    Trouble.REFUSAL: ("api-error", False),
    Trouble.DROPPED_STREAM: ("api-error", True),
    Trouble.MALFORMED_STREAM: ("api-error", True),
    Trouble.SILENCE: ("timeout", True),
}


@pytest.mark.timeout(2 * DEADLINE)
async def test_each_trouble_of_a_provider_ends_as_what_it_was(grounds: Grounds, kind: Kind) -> None:
    """Each failure ends its codon with the right kind and retriable flag.

    There is one codon for each failure, all ignored. The plan reaches its end, and no process of
    any agent survives. Limits are not waited for.
    """
    ends = {t: kind.ends.get(t, end) for t, end in ENDS.items() if t not in kind.spared}
    codons = []
    for trouble in ends:
        grounds.endpoint.script.on(_marker_of(trouble), Fails(trouble))
        codons.append(_codon(grounds, kind, trouble))

    hank = write_hank(grounds.folder / "hank", *codons)
    async with running_server(
        hank, None, grounds.execution, "--headless", "--max-wait", "0", env=grounds.environment
    ) as server:
        with anyio.fail_after(DEADLINE):
            assert await server.process.wait() == 0, server.output[-5:]

    (run,) = state(grounds.execution).runs
    assert {codon.codon_id: _end(codon) for codon in run.codons} == {
        trouble.value: end for trouble, end in ends.items()
    }, [getattr(codon, "failure_reason", None) for codon in run.codons]
    assert_no_secrets(grounds)
    assert processes_of(grounds.execution) == []
    assert violations(grounds.execution, Acknowledged()) == []


async def test_an_agent_gets_over_a_passing_trouble_by_itself(grounds: Grounds, kind: Kind) -> None:
    """A provider that is overloaded once costs the codon only the second request."""
    grounds.endpoint.script.add(Fails(Trouble.OVERLOAD, times=1), Says("Here I am again."))
    codon = grounds.codon("one", kind, "Please say something.", timeoutSeconds=3600)
    hank = write_hank(grounds.folder / "hank", codon)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=grounds.environment
    ) as server:
        with limited():
            assert await server.process.wait() == 0, server.output[-5:]

    (run,) = state(grounds.execution).runs
    assert [type(codon) for codon in run.codons] == [CompletedCodon]
    assert grounds.endpoint.script.is_done


def _codon(grounds: Grounds, kind: Kind, trouble: Trouble) -> dict[str, Any]:
    quiet = {"shimIdleTimeout": kind.quiet} if trouble is Trouble.SILENCE else {}
    seconds = 12 if kind.ends.get(trouble) == OVER_TIME else 30
    prompt = f"Please meet {_marker_of(trouble)}."
    return grounds.codon(
        trouble.value, kind, prompt, onFailure="ignore", timeoutSeconds=seconds, **quiet
    )


def _marker_of(trouble: Trouble) -> str:
    return f"TROUBLE-{trouble.value.upper()}-AHEAD"


def _end(codon: CodonExecution) -> End | str:
    if isinstance(codon, FailedCodon):
        return codon.failure_reason.type, codon.failure_reason.retriable

    return codon.__struct_config__.tag
