"""Sentinels on a real server: their input, output and cost, and that they delay nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import CodonSkip
from hankweave_protocol.events import (
    CodonCompletedEvent,
    ErrorEvent,
    SentinelError,
    SentinelLoaded,
    SentinelOutput,
    SentinelUnloaded,
)
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.model_endpoint import model_endpoint, rate_limit, silence
from support.running_server import journal, served, state
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT, eventually
from support.watching import events_of, idle


def narrator(**fields: Any) -> dict[str, Any]:
    """Return a sentinel that comments on every changed file."""
    return {
        "id": "narrator",
        "name": "Narrator",
        "model": "scripted/any",
        "trigger": {"type": "event", "on": ["file.updated"]},
        "execution": {"strategy": "immediate"},
        "userPromptText": "SAY: <%= it.events[0].data.path %> in <%= it.codon.id %>",
        **fields,
    }


def watched(name: str, *sentinels: dict[str, Any], **settings: Any) -> dict[str, Any]:
    entries = [{"sentinelConfig": each, "settings": settings} for each in sentinels]
    return codon(name, writes("a.md", "one"), writes("b.md", "two"), sentinels=entries)


async def run(
    tmp_path: Path,
    *codons: dict[str, Any],
    reason: str = "all-codons-completed",
    options: tuple[str, ...] = (),
    **env: str,
) -> Path:
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *codons)
    async with served(hank, execution, *options, env=env) as (_, client):
        await idle(client, reason)

    return execution


UNCHECKED = ("--no-agent-check",)
"""Starts with a required sentinel that is known not to load."""


@pytest.mark.story("A sentinel watches its codon, and what it says is on record.")
async def test_a_sentinel_reports_on_its_codon_and_is_on_record(tmp_path: Path) -> None:
    """A sentinel's output is in its file and the journal, its counts in the codon's record."""
    execution = await run(tmp_path, watched("observe", narrator()))
    outputs: list[SentinelOutput] = events_of(execution, SentinelOutput)
    assert {output.content for output in outputs} == {"a.md in observe", "b.md in observe"}
    (log,) = (execution / ".hankweave/sentinels/outputs/narrator").iterdir()
    assert log.name.startswith("narrator-observe-")
    assert log.read_text().count("\n---\n") == len(outputs)

    (record,) = state(execution).runs[0].codons
    assert isinstance(record, CompletedCodon)
    (executed,) = record.sentinels.executed
    assert (executed.llm_call_count, executed.status) == (len(outputs), "unloaded")
    assert executed.unload_reason == "codon-complete"
    statuses = [
        event.data.transition.data  # type: ignore[attr-defined]
        for event in journal(execution)
        if getattr(event.data, "transition_type", "") == "CodonTransitioned"
    ]
    assert any(b'"completing-sentinels"' in bytes(status) for status in statuses)
    assert (
        len(events_of(execution, SentinelLoaded))
        == len(events_of(execution, SentinelUnloaded))
        == 1
    )


async def test_a_sentinel_receives_the_end_of_its_codon(tmp_path: Path) -> None:
    """A sentinel's output about codon.completed follows that event, and counts in the record."""
    last = narrator(
        trigger={"type": "event", "on": ["codon.completed"]},
        userPromptText="SAY: done",
        output={"file": "notes/last.md"},
    )
    execution = await run(tmp_path, watched("observe", last), codon("next"))
    kinds = [type(event.data) for event in journal(execution)]
    assert kinds.index(CodonCompletedEvent) < kinds.index(SentinelOutput)
    assert state(execution).runs[0].codons[0].sentinels.executed[0].llm_call_count == 1  # type: ignore[union-attr]
    assert (execution / "agentRoot/notes/last.md").read_text() == "\n---\ndone\n"
    sources = [
        event.data.source.kind  # type: ignore[attr-defined]
        for event in journal(execution)
        if event.type == "file.updated" and event.data.path == "notes/last.md"  # type: ignore[attr-defined]
    ]
    assert "person" not in sources


BROKEN = "<% if (it.events.length { %>"


@pytest.mark.parametrize(
    "fields",
    [{"model": "anthropic/claude-test"}, {"userPromptText": BROKEN}],
    ids=["no key", "broken template"],
)
async def test_a_required_sentinel_that_cannot_load_fails_the_codon(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """The failure names the sentinel, in `starting`, and is not retriable; no agent has run.

    Hankweave skips a sentinel without a key.
    """
    execution = await run(
        tmp_path,
        watched("observe", narrator(**fields), failCodonIfNotLoaded=True),
        reason="codon-failed",
        options=UNCHECKED,
        ANTHROPIC_API_KEY="",
    )
    [record] = state(execution).runs[0].codons
    assert isinstance(record, FailedCodon)
    assert record.failed_during == "starting"
    assert record.failure_reason.type == "sentinel-load-failure"
    assert record.failure_reason.retriable is False
    assert record.failure_reason.sentinel_refs == ("narrator",)
    assert "SENTINEL_LOAD_FAILURE" in {error.code for error in events_of(execution, ErrorEvent)}
    assert not (execution / "agentRoot" / "a.md").exists()


async def test_a_sentinel_with_a_broken_template_is_never_passed_over_in_silence(
    tmp_path: Path,
) -> None:
    """The codon runs without it, and an error event says why it was not loaded."""
    sound = narrator(id="sound")
    execution = await run(tmp_path, watched("observe", narrator(userPromptText=BROKEN), sound))
    [error] = events_of(execution, ErrorEvent)
    assert (error.code, error.severity, error.fatal) == ("SENTINEL_LOAD_FAILURE", "warning", False)
    assert "not valid Eta" in error.message
    assert {each.sentinel_id for each in events_of(execution, SentinelOutput)} == {"sound"}


async def test_sentinels_of_hankweave_run_as_there(tmp_path: Path) -> None:
    """Templates are JavaScript, braces are text, and a schema has all features of zod."""
    text = "SAY: {{x}} <%= it.events.reduce((n, e) => n + Math.floor(e.data.bytes), 0) %>"
    graded = narrator(
        id="graded",
        userPromptText='SAY: {"path": "<%= `${it.events[0].data.path}` %>"}',
        structuredOutput={
            "output": "object",
            "schemaStr": "z.object({ path: z.string().endsWith('.md').transform(p => p.length) })",
        },
    )
    execution = await run(tmp_path, watched("observe", narrator(userPromptText=text), graded))
    contents = {each.sentinel_id: each.content for each in events_of(execution, SentinelOutput)}
    assert contents == {"narrator": "{{x}} 3", "graded": {"path": 4}}


async def test_an_optional_sentinel_that_fails_stops_nothing(tmp_path: Path) -> None:
    """After three failures a sentinel is unloaded; the codon completes, the journal says why."""
    broken = narrator(userPromptText="FAIL: overloaded", trigger={"type": "event", "on": ["*"]})
    execution = await run(tmp_path, watched("observe", broken))
    assert isinstance(state(execution).runs[0].codons[0], CompletedCodon)
    errors: list[SentinelError] = events_of(execution, SentinelError)
    assert [each.error_type for each in errors].count("llm-call-failed") == 3
    (gone,) = events_of(execution, SentinelUnloaded)
    assert gone.reason == "consecutive-failures"


async def test_a_real_sdk_is_asked_through_a_real_socket(tmp_path: Path) -> None:
    """A request to a busy endpoint is retried, and the JSON response is validated."""
    structured = narrator(
        model="anthropic/claude-test",
        execution={"strategy": "count", "threshold": 50},
        structuredOutput={"output": "object", "schemaStr": "z.object({ risk: z.string() })"},
    )
    async with model_endpoint(rate_limit) as endpoint:
        execution = await run(tmp_path, watched("observe", structured), **endpoint.environment)
        assert len(endpoint.requests) == 2

    (output,) = events_of(execution, SentinelOutput)
    assert output.content == {"risk": "high"}
    (log,) = (execution / ".hankweave/sentinels/outputs/narrator").iterdir()
    assert json.loads(log.read_text()) == {"risk": "high"}


async def test_a_silent_model_does_not_hold_up_a_skip(tmp_path: Path, execution: Path) -> None:
    """A skip waits for seconds, not for a model; the pending request is reported as dropped."""
    silent = narrator(model="anthropic/claude-test")
    entry = [{"sentinelConfig": silent}]
    waiting = codon("observe", writes("a.md", "x"), waits_for(tmp_path / "never"), sentinels=entry)
    hank = write_hank(tmp_path / "hank", waiting)
    async with (
        model_endpoint(*[silence] * 9) as endpoint,
        served(hank, execution, env=endpoint.environment) as (_, client),
    ):
        await eventually(lambda: endpoint.requests)

        await client.send(CodonSkip())
        await client.until(CodonCompletedEvent, timeout=LIMIT)
        await idle(client, "codon-completed")

    errors: list[SentinelError] = events_of(execution, SentinelError)
    assert [error.error_type for error in errors] == ["triggers-dropped"]
