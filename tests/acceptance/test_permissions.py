"""Permission requests of agents on a real server: lists, clients and timeouts answer them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_protocol.commands import (
    CodonForceStop,
    CodonRedo,
    CodonSkip,
    GetServerStatus,
    GetState,
    ListCheckpoints,
    PermissionAnswer,
    RollbackToCheckpoint,
    RollbackToLastSuccess,
)
from hankweave_protocol.events import (
    AssistantAction,
    CodonCompletedEvent,
    Event,
    PermissionRequested,
    PermissionResolved,
    RollbackCompleted,
    ToolResult,
)
from hankweave_protocol.ids import RunId
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import PendingPermission
from hankweave_protocol.state import FailedCodon, RunningCodon, SkippedCodon
from support.command_line import aside, hankweave
from support.git_facts import GitWitness
from support.running_server import (
    RunningServer,
    journal,
    run_headless,
    served,
    state,
    tree,
)
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT
from support.watching import events_of, idle, listed, refused

RUN = {"run": "touch ran.txt"}


@asynccontextmanager
async def asking(
    tmp_path: Path, *steps: Any, options: tuple[str, ...] = (), **permissions: Any
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server whose only codon has these permissions, and a client of it."""
    hank = write_hank(tmp_path / "hank", codon("one", *steps, permissions=permissions))
    async with served(hank, tmp_path / "execution", *options, since_seq=0) as (server, client):
        yield server, client


async def asked(client: Client) -> PermissionRequested:
    event = await client.until(PermissionRequested, timeout=LIMIT)
    return event.data


def allow(request: PermissionRequested | PendingPermission, **fields: Any) -> PermissionAnswer:
    return PermissionAnswer(request_id=request.request_id, decision="allow", **fields)


def deny(request: PermissionRequested) -> PermissionAnswer:
    return PermissionAnswer(request_id=request.request_id, decision="deny")


async def pending_at(client: Client) -> tuple[PendingPermission, ...]:
    """Return the requests that wait for an answer."""
    return (await client.send(GetServerStatus())).pending_permissions


@asynccontextmanager
async def viewer_of(server: RunningServer) -> AsyncIterator[Client]:
    """Connect a client that may look and change nothing."""
    token = (server.execution / ".hankweave" / "server.viewer-token").read_text().strip()
    async with connect(discover(server.execution).url, token=token, since_seq=0) as viewer:
        yield viewer


async def settled(client: Client) -> Event:
    return await client.until(PermissionResolved, timeout=LIMIT)


def resolved(execution: Path) -> list[PermissionResolved]:
    return events_of(execution, PermissionResolved)


def files(tmp_path: Path) -> dict[str, bytes]:
    return tree(tmp_path / "execution" / "agentRoot")


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.story("Permissions allow and deny by lists, and a denial wins.")
async def test_lists_allow_and_deny_and_a_denial_wins(tmp_path: Path, execution: Path) -> None:
    """Each call is reported with the pattern that decided; a denial overrides an allowance.

    A denied call is not made, and the agent continues with the reason as the tool's result.
    """
    async with asking(
        tmp_path,
        writes("src/a.txt", "a"),
        writes("src/../b.txt", "b"),
        {"run": "git --version"},
        {"run": "git --version; touch c.txt"},
        {"delete": "src/a.txt"},
        allow=["Write(src/**)", "Bash(git *)", "Bash(rm *)"],
        deny=["Bash(rm *)"],
        otherwise="deny",
    ) as (_, client):
        await idle(client)

    assert files(tmp_path) == {"src/a.txt": b"a"}
    found = [(each.tool_name, each.decision, each.by, each.rule) for each in resolved(execution)]
    assert found == [
        ("Write", "allow", "policy", "Write(src/**)"),
        ("Write", "deny", "policy", "otherwise"),
        ("Bash", "allow", "policy", "Bash(git *)"),
        ("Bash", "deny", "policy", "otherwise"),
        ("Bash", "deny", "policy", "Bash(rm *)"),
    ]
    assert events_of(execution, PermissionRequested) == []
    assert len({each.request_id for each in resolved(execution)}) == 5
    results = events_of(execution, ToolResult)
    assert [each.is_error for each in results] == [False, True, False, True, True]
    assert results[-1].result == (
        "Hankweave did not let Bash be called: this codon's permissions deny Bash(rm *)."
    )


async def test_a_link_is_no_way_out_of_what_is_allowed(tmp_path: Path, execution: Path) -> None:
    """A path that leads elsewhere by a link is judged by its target."""
    away = tmp_path / "away"
    away.mkdir()
    rig = [{"type": "command", "command": {"run": f"mkdir src && ln -s {away} src/link"}}]
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            writes("src/link/x.txt", "x"),
            rigSetup=rig,
            permissions={"allow": ["Write(src/**)"], "otherwise": "deny"},
        ),
    )
    assert await run_headless(hank, execution) == 0

    assert list(away.iterdir()) == []
    assert [each.decision for each in resolved(execution)] == ["deny"]


async def test_permissions_of_the_hank_hold_where_a_codon_has_none(tmp_path: Path) -> None:
    """A codon's own permissions replace the hank's as a whole; without any, the hank's apply."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a")),
        codon("two", writes("b.txt", "b"), permissions={"otherwise": "allow"}),
        overrides={"permissions": {"deny": ["Write"]}},
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert files(tmp_path) == {"b.txt": b"b"}
    assert [(each.codon_id, each.rule) for each in resolved(execution)] == [
        ("one", "Write"),
        ("two", "otherwise"),
    ]


async def test_an_agent_can_fail_for_want_of_leave(tmp_path: Path, execution: Path) -> None:
    """A scripted agent that gives up when it is refused fails with the reason it received."""
    script = json.dumps({"steps": [writes("a.txt", "a")], "onRefusal": "fail"})
    one = codon("one", promptText=script, permissions={"otherwise": "deny"})
    assert await run_headless(write_hank(tmp_path / "hank", one), execution) == 1

    (done,) = events_of(execution, CodonCompletedEvent)
    assert "this codon's permissions do not allow such a call" in done.failure_reason.message


@pytest.mark.story("Without permissions in the hank, an agent may do everything without asking.")
async def test_without_permissions_all_is_allowed_without_events(tmp_path: Path) -> None:
    """An agent that requests permission is allowed as before."""
    script = json.dumps({"steps": [writes("a.txt", "a")], "asks": True})
    hank = write_hank(tmp_path / "hank", codon("one", promptText=script))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert files(tmp_path) == {"a.txt": b"a"}
    assert resolved(execution) == []


async def test_an_agent_that_never_asks_is_not_let_in_by_the_command_line(tmp_path: Path) -> None:
    """`--agent` does not select an agent that would bypass the permissions."""
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a"), permissions={"deny": ["Write"]})
    )
    execution = tmp_path / "execution"
    words = ("run", str(hank), "--headless", "--execution", str(execution), "--agent", "codex")
    refused = await aside(*words)
    assert (refused.returncode, execution.exists()) == (78, False)
    assert "permissions" in refused.stderr


# --- clients --------------------------------------------------------------------------------------


@pytest.mark.command("permission.answer")
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_client_answers_and_is_named(tmp_path: Path, decision: Any) -> None:
    """The request has its subject, reason and deadline; the resolution names the client.

    An answer that comes after it is refused.
    """
    async with asking(tmp_path, writes("a.txt", "a"), timeoutSeconds=3600) as (_, client):
        request = await asked(client)
        before = await pending_at(client)
        assert files(tmp_path) == {}
        await client.send(
            PermissionAnswer(request_id=request.request_id, decision=decision, message="Because.")
        )
        event = await settled(client)
        after = await pending_at(client)
        again = await refused(client, allow(request))
        unknown = await refused(client, PermissionAnswer(request_id="none", decision="allow"))

        await idle(client)

    assert (again.code, unknown.code) == ("PERMISSION_ANSWERED", "UNKNOWN_PERMISSION")
    assert (request.codon_id, request.tool_name) == ("one", "Write")
    assert request.tool_input["content"] == "a"
    assert request.reason == "No rule covers this call of Write."
    assert [each.request_id for each in before] == [request.request_id]
    assert after == ()
    done = event.data
    assert (done.decision, done.by, done.rule) == (decision, "client", None)
    assert (done.request_id, done.client_id) == (request.request_id, client.client_id)
    assert done.message == "Because."
    assert len(event.causes) == 1
    assert files(tmp_path) == ({"a.txt": b"a"} if decision == "allow" else {})
    if decision == "deny":
        (result,) = events_of(tmp_path / "execution", ToolResult)
        assert result.result.endswith("the user who is watching this run denied it. Because.")


async def test_a_request_reports_the_time_to_answer(tmp_path: Path) -> None:
    """expiresAt follows the request by the time in the hank."""
    async with asking(tmp_path, RUN, timeoutSeconds=90) as (_, client):
        event = await client.until(PermissionRequested, timeout=LIMIT)

    assert isinstance(event.data, PermissionRequested)
    waits = from_text(event.data.expires_at) - from_text(event.timestamp)
    assert abs(waits - timedelta(seconds=90)) < timedelta(seconds=5)


async def test_a_viewer_sees_requests_and_answers_none(tmp_path: Path) -> None:
    """A viewer's answer is refused; the request stays pending."""
    async with asking(tmp_path, RUN) as (server, client):
        request = await asked(client)
        async with viewer_of(server) as viewer:
            assert (await asked(viewer)).request_id == request.request_id
            assert len(await pending_at(viewer)) == 1
            error = await refused(viewer, allow(request))
        assert error.code == "INSUFFICIENT_PERMISSIONS"
        assert len(await pending_at(client)) == 1
        await client.send(allow(request))
        await idle(client)


async def test_an_answer_for_always_spares_the_next_question_also_after_a_restart(
    tmp_path: Path, execution: Path
) -> None:
    """The rule is in the journal and the state; it has to fit the call, and a viewer adds none.

    A rollback does not take it back.
    """
    steps = (writes("out/a.txt", "a"), writes("out/b.txt", "b"), writes("other.txt", "c"))
    async with asking(tmp_path, *steps, onTimeout="allow") as (server, client):
        request = await asked(client)
        assert (request.suggestion, request.on_expiry) == ("Write(out/*)", "allow")
        (pending,) = await pending_at(client)
        assert (pending.suggestion, pending.on_expiry) == ("Write(out/*)", "allow")
        async with viewer_of(server) as viewer:
            from_viewer = await refused(viewer, allow(request, always="Write(out/*)"))

        wrong = []
        for decision, rule in (("allow", "*"), ("allow", "Write(src/**)"), ("deny", "Write")):
            answer = PermissionAnswer(request_id=request.request_id, decision=decision, always=rule)  # type: ignore[arg-type]
            error = await refused(client, answer)
            wrong.append((error.code, error.path))

        assert from_viewer.code == "INSUFFICIENT_PERMISSIONS"
        assert wrong == [("INVALID_COMMAND", "$.data.always")] * 3
        assert await pending_at(client) == (pending,)
        await client.send(allow(request, always="Write(out/*)"))
        other = await asked(client)
        assert str(other.tool_input["file_path"]).endswith("other.txt")
        await client.send(deny(other))
        await idle(client)

    found = [(each.decision, each.by, each.rule, each.always) for each in resolved(execution)]
    assert found == [
        ("allow", "client", None, "Write(out/*)"),
        ("allow", "policy", "Write(out/*)", None),
        ("deny", "client", None, None),
    ]
    assert [each.rule for each in state(execution).permission_rules] == ["Write(out/*)"]
    async with served(tmp_path / "hank", execution, "--no-autostart", since_seq=0) as (_, client):
        shown = await aside("permissions", "--execution", str(execution))
        assert "  Write(out/*)  (request " in shown.stdout
        await client.send(RollbackToLastSuccess())
        assert (await client.send(GetState())).permission_rules[0].rule == "Write(out/*)"
        last = (await client.send(GetServerStatus())).last_event_seq
        await client.send(CodonRedo())
        event = await client.until(PermissionRequested, lambda each: each.seq > last, LIMIT)
        assert str(event.data.tool_input["file_path"]).endswith("other.txt")


async def test_an_answer_that_was_meant_for_another_run_is_refused(tmp_path: Path) -> None:
    """expectedRunId guards an answer as it guards a rollback."""
    async with asking(tmp_path, RUN) as (_, client):
        request = await asked(client)
        answer = allow(request, expected_run_id=RunId("1736000000000-abc123-def456"))
        assert (await refused(client, answer)).code == "STALE_RUN"
        await client.send(deny(request))
        await idle(client)


async def test_a_client_that_comes_later_sees_what_waits(tmp_path: Path) -> None:
    """server.status has the request as in the event; a client that missed it can answer."""
    async with asking(tmp_path, RUN) as (server, client):
        request = await asked(client)
        async with server.client() as later:
            (pending,) = await pending_at(later)
            assert pending == PendingPermission(
                codon_id=request.codon_id,
                request_id=request.request_id,
                tool_name="Bash",
                tool_input={"command": "touch ran.txt"},
                expires_at=request.expires_at,
                reason=request.reason,
                suggestion=request.suggestion,
            )
            await later.send(allow(pending))

        await idle(client)

    assert files(tmp_path) == {"ran.txt": b""}


async def test_a_decision_is_on_the_disk_before_it_is_published(tmp_path: Path) -> None:
    """When the agent has its answer, the journal's file has the line of it."""
    async with asking(
        tmp_path,
        {"run": f"cp {tmp_path}/execution/.hankweave/events/events.jsonl seen.txt"},
    ) as (_, client):
        await client.send(allow(await asked(client)))
        await idle(client)

    assert b'"permission.resolved"' in files(tmp_path)["seen.txt"]


async def test_before_what_is_asked_the_files_are_saved_whatever_the_settings(
    tmp_path: Path,
) -> None:
    """With permissions a risky call has a checkpoint before it, even with no safe points."""
    async with asking(
        tmp_path,
        writes("a.txt", "a"),
        writes("a.txt", "b"),
        options=("--safe-points", "none"),
        allow=["Write"],
    ) as (server, client):
        await idle(client)
        page = await client.send(ListCheckpoints())
        git = GitWitness(server.execution)

    (before,) = [each for each in page.checkpoints if each.kind == "tool"]
    assert (before.summary, git.files(before.sha)) == ("Write a.txt +1", {"a.txt": b"a"})
    first, second = (
        event.seq
        for event in journal(tmp_path / "execution")
        if isinstance(event.data, PermissionResolved)
    )
    assert first < before.coordinate.event_seq < second


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_timeout", ["deny", "allow"])
async def test_silence_is_answered_as_the_hank_says(tmp_path: Path, on_timeout: str) -> None:
    """After timeoutSeconds, onTimeout decides, and a later answer is refused."""
    async with asking(tmp_path, RUN, timeoutSeconds=0.5, onTimeout=on_timeout) as (_, client):
        request = await asked(client)
        event = await settled(client)
        late = await refused(client, allow(request))
        await idle(client)

    done = event.data
    assert (done.decision, done.by, done.rule) == (on_timeout, "timeout", "onTimeout")
    assert late.code == "PERMISSION_ANSWERED"
    assert files(tmp_path) == ({"ran.txt": b""} if on_timeout == "allow" else {})


async def test_while_it_waits_an_agent_is_not_idle(tmp_path: Path, execution: Path) -> None:
    """The idle timeout does not run while the agent waits for an answer."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", RUN, shimIdleTimeout=1, permissions={"timeoutSeconds": 3}),
    )
    assert await run_headless(hank, execution) == 0

    assert [each.by for each in resolved(execution)] == ["timeout"]


# --- ends -----------------------------------------------------------------------------------------


async def ended_by(client: Client) -> None:
    event = await settled(client)
    assert (event.data.decision, event.data.by) == ("deny", "ended")
    assert event.data.message
    assert await pending_at(client) == ()


@pytest.mark.parametrize("way", ["skip", "force stop"])
async def test_a_codon_that_is_ended_drops_its_pending_requests(tmp_path: Path, way: str) -> None:
    """Skip and force stop resolve the request, and the requested call is not made."""
    async with asking(tmp_path, RUN) as (server, client):
        await asked(client)
        await (
            client.send(CodonSkip())
            if way == "skip"
            else client.send(CodonForceStop(reason="Enough."))
        )
        await ended_by(client)
        await client.until(CodonCompletedEvent, timeout=LIMIT)

    last = state(server.execution).runs[0].codons[-1]
    assert isinstance(last, SkippedCodon if way == "skip" else FailedCodon)
    assert files(tmp_path) == {}


async def test_an_agent_that_dies_while_it_waits_ends_its_request(tmp_path: Path) -> None:
    """If the agent is killed, its codon fails, and nothing hangs."""
    async with asking(tmp_path, {"run": "true"}, RUN, allow=["Bash(true)"]) as (server, client):
        await asked(client)
        working = state(server.execution).runs[0].codons[-1]
        assert isinstance(working, RunningCodon)
        os.kill(working.claude_pid, signal.SIGKILL)
        await ended_by(client)
        await idle(client, "codon-failed")

    assert isinstance(state(server.execution).runs[0].codons[-1], FailedCodon)
    assert files(tmp_path) == {}


async def test_a_rollback_that_stops_the_codon_stops_its_waiting(tmp_path: Path) -> None:
    """onRunning stop ends the request, restores the files, and puts the plan at its place."""
    async with asking(tmp_path, writes("a.txt", "a"), RUN, allow=["Write"]) as (_, client):
        await asked(client)
        report = await client.send(RollbackToLastSuccess(on_running="stop"))
        await ended_by(client)
        await client.until(RollbackCompleted, timeout=LIMIT)
        assert [each.path for each in report.removed] == ["a.txt"]

    assert files(tmp_path) == {}


async def test_a_rollback_that_freezes_the_agent_leaves_its_request(tmp_path: Path) -> None:
    """onRunning pause restores files under the agent; the request stays pending, and answerable."""
    async with asking(tmp_path, writes("a.txt", "a"), RUN, allow=["Write"]) as (_, client):
        request = await asked(client)
        (first, *_) = [each for each in await listed(client) if each.kind == "tool"]
        await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha, on_running="pause"))
        assert len(await pending_at(client)) == 1
        await client.send(allow(request))
        await idle(client)

    assert files(tmp_path) == {"a.txt": b"a", "ran.txt": b""}


async def test_a_budget_of_time_ends_who_waits(tmp_path: Path, execution: Path) -> None:
    """Waiting for an answer is not idle time, but counts against the codon's time budget."""
    one = codon("one", RUN, permissions={}, budget={"maxTimeSeconds": 1, "onExceeded": "fail"})
    assert await run_headless(write_hank(tmp_path / "hank", one), execution) == 1

    assert [(each.by, each.decision) for each in resolved(execution)] == [("ended", "deny")]
    assert files(tmp_path) == {}


async def test_a_server_that_is_ended_drops_its_pending_requests(tmp_path: Path) -> None:
    """SIGTERM resolves the request and ends the server.

    The next one starts the codon anew, and an answer to the old request is refused.
    """
    async with asking(tmp_path, RUN) as (server, client):
        request = await asked(client)
        code = await server.stop()

    assert code == 0
    assert [(each.by, each.decision) for each in resolved(server.execution)] == [("ended", "deny")]
    assert files(tmp_path) == {}
    hank = tmp_path / "hank" / "hank.json"
    async with served(hank, server.execution) as (_, other):
        again = await asked(other)
        stale = await refused(other, allow(request))
        assert stale.code == "UNKNOWN_PERMISSION"
        await other.send(allow(again))
        await idle(other)


async def test_a_server_that_is_killed_leaves_no_pending_requests(tmp_path: Path) -> None:
    """After kill -9 the agent and its request are gone; the next server has none pending."""
    async with asking(tmp_path, RUN) as (server, client):
        await asked(client)
        server.kill()
        await server.ended()

    hank = tmp_path / "hank" / "hank.json"
    async with served(hank, server.execution, "--no-autostart") as (_, other):
        assert await pending_at(other) == ()

    assert files(tmp_path) == {}


# --- several requests at once ---------------------------------------------------------------------

TWO_AT_ONCE = """
import json, sys
def emit(message): print(json.dumps(message), flush=True)
for _ in range(2): sys.stdin.readline()
emit({"type": "system", "subtype": "init", "session_id": "s1", "model": "m"})
for name in ("r1", "r2", "r2") if not MANY else map(str, range(MANY)):
    emit({"type": "control_request", "request_id": name,
          "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": name}}})
emit({"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": "busy"}]}})
got = []
for line in sys.stdin:
    answer = json.loads(line)["response"]
    got.append([answer["request_id"], answer["response"]["behavior"]])
    if len(got) == 2 and not MANY: break
emit({"type": "result", "subtype": "success", "is_error": False, "result": json.dumps(got)})
"""


@asynccontextmanager
async def two_at_once(tmp_path: Path, many: int = 0) -> AsyncIterator[Client]:
    """Run a stand-in for Claude Code that asks twice, or many times, without waiting."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\nMANY = {many}\n{TWO_AT_ONCE}")
    program.chmod(0o755)
    one = codon("one", agent={"type": "claude"}, permissions={})
    hank = write_hank(tmp_path / "hank", one)
    path = f"{program.parent}:{os.environ['PATH']}"
    env = {"PATH": path, "ANTHROPIC_API_KEY": "no-key"}
    async with served(hank, tmp_path / "execution", env=env, since_seq=0) as (_, client):
        yield client


async def test_requests_wait_side_by_side(tmp_path: Path, execution: Path) -> None:
    """Two requests are pending, other output is reported, and each gets its own answer."""
    async with two_at_once(tmp_path) as client:
        first, second = await asked(client), await asked(client)
        await client.until(
            AssistantAction,
            lambda event: getattr(event.data, "content", None) == "busy",
            timeout=LIMIT,
        )
        assert len(await pending_at(client)) == 2
        await client.send(deny(second))
        await client.send(allow(first))
        await idle(client)

    log = next((execution / ".hankweave" / "runs").rglob("*-claude.log")).read_text()
    assert '[[\\"r2\\", \\"deny\\"], [\\"r1\\", \\"allow\\"]]' in log
    assert len(resolved(execution)) == 2


async def test_an_agent_that_asks_without_end_fills_nobodys_memory(tmp_path: Path) -> None:
    """At most a hundred requests are pending; further ones are denied at once."""
    async with two_at_once(tmp_path, many=150) as client:
        for _ in range(100):
            await asked(client)

        for _ in range(50):
            event = await settled(client)
            assert (event.data.decision, event.data.by) == ("deny", "policy")
            assert event.data.message == "100 requests are already pending."

        assert len(await pending_at(client)) == 100
        await client.send(CodonSkip())
        await idle(client, "codon-completed")

    ended = [each for each in resolved(tmp_path / "execution") if each.by == "ended"]
    assert len(ended) == 100


# --- the command line -----------------------------------------------------------------------------


@pytest.mark.story("`permissions`, `allow` and `deny` answer an agent from the command line.")
async def test_a_person_answers_from_the_command_line(tmp_path: Path) -> None:
    """`permissions` lists pending requests; allow and deny answer the only or the named one."""
    at = ("--execution", str(tmp_path / "execution"))
    async with asking(tmp_path, RUN, {"run": "touch b.txt"}) as (_, client):
        request = await asked(client)
        listed = await aside("permissions", *at)
        assert request.request_id in listed.stdout
        assert "Bash(touch ran.txt)" in listed.stdout
        assert ", then denied" in listed.stdout
        assert "--always would allow every Bash(touch ran.txt)" in listed.stdout
        as_json = await aside("permissions", "--json", *at)
        (pending,) = json.loads(as_json.stdout)
        assert pending["toolInput"] == {"command": "touch ran.txt"}
        wrong = await aside("allow", "nothing", *at)
        assert (wrong.returncode, "UNKNOWN_PERMISSION" in wrong.stderr) == (1, True)
        unfit = await aside("allow", request.request_id, "--always", "Write", *at)
        assert (unfit.returncode, "does not allow the call" in unfit.stderr) == (1, True)
        allowed = await aside("allow", request.request_id, *at, "--always", code=0)
        assert "is allowed, and every Bash(touch ran.txt) from now on." in allowed.stdout
        request = await asked(client)
        await aside("deny", request.request_id, "--reason", "No.", *at, code=0)
        await idle(client)
        nothing = await aside("deny", *at)
        assert (nothing.returncode, "No permission request is pending" in nothing.stderr) == (
            1,
            True,
        )
        assert "No permission request is pending" in (await aside("permissions", *at)).stdout

    assert files(tmp_path) == {"ran.txt": b""}
    found = [(each.decision, each.message) for each in resolved(tmp_path / "execution")]
    assert found == [("allow", None), ("deny", "No.")]


async def test_a_run_in_plain_lines_shows_what_is_asked(tmp_path: Path) -> None:
    """The line has the command to type, and its answer has a line of its own."""
    hank = write_hank(tmp_path / "hank", codon("one", RUN, permissions={"timeoutSeconds": 0.3}))
    words = ("run", str(hank), "--execution", str(tmp_path / "execution"), "--headless")
    done = await aside(*words)
    (request,) = events_of(tmp_path / "execution", PermissionRequested)
    asks, denied = [line for line in done.stdout.splitlines() if " one " in line][1:3]
    assert asks.endswith(
        f"asks       Bash(touch ran.txt)  (hankweave allow {request.request_id}, or deny)"
    )
    assert denied.endswith("denied     Bash  by timeout: onTimeout")


def test_permissions_that_cannot_be_enforced_are_reported(tmp_path: Path) -> None:
    """validate names each malformed pattern, and each agent that does not ask for permission."""
    hank = write_hank(
        tmp_path,
        codon("one", permissions={"allow": ["Bash(git; rm)"]}),
        codon("two", agent={"type": "codex"}, permissions={"deny": ["Bash"]}),
        overrides={"permissions": {"deny": ["Write(../x)"], "otherwise": "allow"}},
    )
    done = hankweave("validate", str(hank), code=2)
    text = done.stdout + done.stderr
    assert "$.hank[0].permissions.allow[0]" in text
    assert "$.hank[1].agent" in text
    assert "$.overrides.permissions.deny[0]" in text
    assert "one plain command" in text
    assert "never asks for permission" in text
