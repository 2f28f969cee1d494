"""States that Hankweave itself wrote, and files that only look like one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hankweave_protocol.errors import Refused
from hankweave_server.ledger.typescript_format import decode_state


def entry(**codon: Any) -> dict[str, Any]:
    return {"codonId": "one", "codon": {"id": "one", "name": "One"} | codon}


def run(**codon: Any) -> dict[str, Any]:
    return {
        "runId": "1736000000000-abc123-def456",
        "runFolder": "runs/1736000000000-abc123-def456",
        "gitBranch": "run-1736000000000-abc123-def456",
        "startingConditions": {"type": "fresh"},
        "codons": [codon] if codon else [],
        "status": "running",
        "startTime": "2025-01-04T12:00:00.000Z",
        "serverPid": 4711,
    }


def test_a_resolved_model_is_read_by_its_name() -> None:
    """Hankweave writes the resolved model as an object; its id is the name that a hank uses."""
    model = {"modelId": "sonnet", "id": "provider/sonnet"}
    state = decode_state(json.dumps({"runs": [], "executionPlan": [entry(model=model)]}).encode())
    assert state.execution_plan[0].codon.model == "sonnet"


def test_an_unknown_status_is_refused_with_its_path() -> None:
    """The path is the one in the file, not in the normalised copy."""
    content = {"runs": [run(codonId="one", status="dreaming")]}
    with pytest.raises(Refused) as refused:
        decode_state(json.dumps(content).encode())

    assert refused.value.path.startswith("$")
    assert "runs" in refused.value.path or refused.value.path == "$.currentRunId"


@pytest.mark.parametrize(
    "content",
    [b"[]", b"{", b'{"runs": 3}', b'{"schemaVersion": 1, "runs": 3}', b'{"runs": [{}]}'],
)
def test_what_no_version_has_written_is_refused(content: bytes) -> None:
    """Nothing is guessed: the state is refused, as any malformed state is."""
    with pytest.raises(Refused):
        decode_state(content)
