"""The traces and metrics of a real server, as a collector receives them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from hankweave_protocol.commands import CodonStart, RollbackToCodon
from support.waiting import LIMIT, eventually

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.events import CodonWaiting, Event, RollbackCompleted, ServerIdle, ToolResult
from hankweave_protocol.ids import CodonId
from hankweave_server.features.tracing.environment import CONTENT
from support.collector import Collector, ReceivedSpan, collecting
from support.running_server import run_headless, running_server, state
from support.scripted_hank import codon, waits_for, write_hank, writes

pytestmark = pytest.mark.feature("tracing")

WORDS = "words-that-an-agent-wrote"
PASSWORD = "hunter2-of-the-collector"
PRINTS = {"run": "printenv TRACEPARENT > context.txt"}


def hank_of(folder: Path) -> Path:
    limit = {"limit": {"resetsIn": 7800}}
    return write_hank(
        folder / "hank",
        codon("review", PRINTS, writes("secret-name.txt", WORDS), limit, {"say": WORDS}),
        codon("publish", writes("done.txt", WORDS), {"cost": 0.5}),
        meta={"name": "nightly", "version": "1"},
    )


def is_at_the_end(event: Event) -> bool:
    return isinstance(event.data, ServerIdle) and event.data.reason == "all-codons-completed"


async def continued(client: Client, codon_id: CodonId) -> None:
    """End the wait of a codon; a server that has just started refuses that for a moment."""

    async def is_started() -> bool:
        with suppress(CommandRefused):
            await client.send(CodonStart(codon_id=codon_id))
            return True

        return False

    await eventually(is_started)


def runs_of(collector: Collector) -> list[ReceivedSpan]:
    return sorted(collector.named("invoke_workflow nightly"), key=lambda span: span.start)


@pytest.mark.story(
    "A run is one trace, even across servers, and a rollback begins another one.",
    of="docs/how-to/tracing.md",
)
async def test_a_run_is_one_trace_over_two_servers_and_a_rollback_another(tmp_path: Path) -> None:
    """The tree is whole: run, codons, tools; events say what happened; nothing is exported twice.

    The agent's environment names the span of its codon. No content is exported.
    """
    hank, execution = hank_of(tmp_path), tmp_path / "execution"
    with collecting() as collector:
        env = collector.environment
        async with running_server(hank, None, execution, env=env) as server:
            async with server.client(since_seq=0) as client:
                await client.until(CodonWaiting, timeout=LIMIT)

            await server.stop()

        assert [span.name for span in collector.spans] == [
            "execute_tool Bash",
            "execute_tool Write",
        ]
        async with running_server(hank, None, execution, env=env) as server:
            async with server.client(since_seq=0) as client:
                await client.until(CodonWaiting, timeout=LIMIT)
                await continued(client, CodonId("review"))
                await client.until(ServerIdle, is_at_the_end, timeout=LIMIT)
                await client.send(
                    RollbackToCodon(
                        codon_id=CodonId("review"), checkpoint_type="completed", auto_restart=True
                    )
                )
                await client.until(RollbackCompleted, timeout=LIMIT)
                await client.until(ServerIdle, is_at_the_end, timeout=LIMIT)

            await server.stop()

    first, second = runs_of(collector)
    newer, older = state(execution).runs
    assert [run.attributes["hankweave.run.id"] for run in (first, second)] == [
        older.run_id,
        newer.run_id,
    ]
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert collector.below(first) == ["invoke_agent review", "invoke_agent publish"]
    assert collector.below(second) == ["invoke_agent publish"]
    review = collector.the("invoke_agent review")
    assert collector.below(review) == ["execute_tool Bash", "execute_tool Write"]
    assert [name for name in review.event_names if ".codon." in name] == [
        "hankweave.codon.waiting",
        "hankweave.codon.resumed",
    ]
    assert "hankweave.checkpoint.created" in review.event_names
    assert [name for name in first.event_names if ".server." in name] == [
        "hankweave.server.started",
        "hankweave.server.stopping",
        "hankweave.server.started",
    ]
    assert "hankweave.rollback.completed" in second.event_names
    ((trace, span, why),) = second.links
    assert (trace, span) == (first.trace_id, first.span_id)
    assert why == {"hankweave.link": "rollback"}
    written = (execution / "agentRoot" / "context.txt").read_text().strip()
    assert written == f"00-{review.trace_id}-{review.span_id}-01"
    assert review.attributes["gen_ai.usage.output_tokens"] > 0
    assert not any(WORDS.encode() in body or b"secret-name" in body for body in collector.bodies)
    assert collector.resources[0]["service.name"] == "hankweave"
    codons = collector.counts["gen_ai.invoke_agent.duration"]
    assert sum(codons.values()) > 0
    assert sum(collector.sums["hankweave.cost"].values()) == pytest.approx(1.0, abs=0.2)


async def test_a_server_that_is_killed_leaves_a_trace_that_the_next_one_ends(
    tmp_path: Path,
) -> None:
    """Codon and run have failed, in the trace that the agent was told of; the new run links to it.

    Calls that had no result are gone with their server.
    """
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", PRINTS, waits_for(gate)))
    with collecting() as collector:
        env = collector.environment
        async with running_server(hank, None, execution, env=env) as server:
            async with server.client(since_seq=0) as client:
                await client.until(ToolResult, timeout=LIMIT)

            written = (execution / "agentRoot" / "context.txt").read_text().strip()
            server.kill()
            await server.ended()

        gate.touch()
        assert await run_headless(hank, execution, env=env) == 0

    first, second, *rest = sorted(collector.named("invoke_workflow hank"), key=lambda s: s.start)
    crashed, completed = collector.named("invoke_agent one")
    assert written == f"00-{crashed.trace_id}-{crashed.span_id}-01"
    assert (first.error, crashed.parent_id) == ("crashed", first.span_id)
    assert crashed.error is not None
    assert [link[:2] for link in second.links] == [(first.trace_id, first.span_id)]
    last = rest[-1] if rest else second
    assert (completed.error, completed.parent_id) == (None, last.span_id)
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)


@pytest.mark.story("Content is exported only on request.", of="docs/how-to/tracing.md")
async def test_content_is_exported_on_request(tmp_path: Path) -> None:
    """The standard variable asks for it; secrets are removed, as in the journal."""
    key = "sk-" + "ant-" + "api03-" + "a1B2" * 24
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", f"{WORDS} {key}")))
    with collecting() as collector:
        env = {**collector.environment, CONTENT: "true"}
        assert await run_headless(hank, tmp_path / "e", env=env) == 0

    call = collector.the("execute_tool Write")
    assert WORDS in call.attributes["gen_ai.tool.call.arguments"]
    assert "gen_ai.tool.call.result" in call.attributes
    assert not any(key.encode() in body for body in collector.bodies)


@pytest.mark.parametrize("how", ["refused", "silent", "unwilling"])
@pytest.mark.story(
    "A collector that is down delays and loses no run.",
    of="docs/how-to/tracing.md",
    cases=("refused",),
)
async def test_a_collector_that_is_down_loses_no_run(tmp_path: Path, how: str) -> None:
    """The run is completed, its server ends in time, and server.log says it in a few lines.

    A silent collector takes connections and never answers; the exporter would wait for an hour.
    """
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    execution = tmp_path / "execution"
    with socket.create_server(("127.0.0.1", 0)) as silent, collecting() as collector:
        collector.status = 503
        port = {"refused": 9, "silent": silent.getsockname()[1], "unwilling": collector.port}[how]
        env = {
            **collector.environment,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://me:{PASSWORD}@127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={PASSWORD}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
        }
        assert await run_headless(hank, execution, env=env) == 0

    assert state(execution).runs[0].status == "completed"
    files = [path for path in execution.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    text = (execution / ".hankweave" / "logs" / "server.log").read_text()
    assert 1 <= text.count("OpenTelemetry: ") <= 5


NOT_INSTALLED = [
    "hankweave: warning: No traces and metrics: OpenTelemetry is not installed.",
    "  hint: Install it with: pip install 'hankweave[otel]'",
]
TRAP = "open({marker!r}, 'w').close()\nraise ImportError('it is not installed')\n"


@pytest.mark.parametrize(
    ("variables", "is_loaded"),
    [
        ({}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
    ],
)
async def test_the_library_is_loaded_only_if_it_is_asked_for(
    tmp_path: Path, execution: Path, variables: dict[str, str], is_loaded: bool
) -> None:
    """A stand-in without content takes its place: without the extra, one warning says what to do.

    The run goes on.
    """
    marker, stand_in = tmp_path / "loaded", tmp_path / "path" / "opentelemetry"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text(TRAP.format(marker=str(marker)))
    hank = write_hank(tmp_path / "hank", codon("one", PRINTS, writes("a.txt", "a")))
    env = {**variables, "PYTHONPATH": os.pathsep.join((str(stand_in.parent), *packages()))}
    async with running_server(hank, None, execution, "--headless", env=env) as server:
        assert await server.ended() == 0

    assert marker.exists() is is_loaded
    lines = [line for line in server.output if "OpenTelemetry" in line or "otel" in line]
    assert lines == (NOT_INSTALLED if is_loaded else [])
    assert state(execution).runs[0].status == "completed"
    assert (execution / "agentRoot" / "context.txt").read_text() == ""


def packages() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
