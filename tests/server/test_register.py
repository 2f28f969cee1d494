"""Claims about where the executions of a user are found, and what their files tell of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AssistantAction,
    CodonStartedEvent,
    Event,
    EventData,
    PermissionRequested,
    PermissionResolved,
)
from hankweave_protocol.ids import CodonId, EventSeq
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.state import State
from hankweave_server.local import catalog, register, targeting
from hankweave_server.local.catalog import Catalog
from hankweave_server.local.register import all_executions, executions_outside
from support.calls import noted
from support.histories import MOMENT, a_plan, a_run, completed, failed, running
from support.timelines import a_state

ROOT = "HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR"


@pytest.fixture(autouse=True)
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which executions usually are, in a home of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(ROOT, raising=False)
    folder = tmp_path / "home" / ".hankweave-executions"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home")
    return folder


def execution(path: Path, state: State | None = None, **meta: Any) -> Path:
    folder = path / ".hankweave"
    folder.mkdir(parents=True)
    known = {
        "version": "1.0.0",
        "readOnlySourceDataPath": None,
        "readOnlySourceResolvedDataPath": None,
        "dataHash": None,
        "hankHash": None,
        "hankPath": "/hanks/quakes/hank.json",
        "linkType": "none",
        "createdAt": MOMENT,
        "lastUsed": MOMENT,
    }
    (folder / "execution-meta.json").write_text(json.dumps(known | meta))
    if state is not None:
        (folder / "state.json").write_bytes(codec.encode(state))

    return path


def serve(monkeypatch: pytest.MonkeyPatch, *roots: Path) -> None:
    def lives(layout: Any) -> int | None:
        return 1 if layout.root in roots else None

    monkeypatch.setattr(targeting, "living_server", lives)
    monkeypatch.setattr(catalog, "living_server", lives)


def entries(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state" / "hankweave" / "executions").iterdir())


# --- the register ---------------------------------------------------------------------------------


def test_an_execution_elsewhere_is_found_until_it_is_gone(tmp_path: Path, usual: Path) -> None:
    """It is noted once, for its owner alone; reading forgets what is no longer there."""
    inside, outside = execution(usual / "in"), execution(tmp_path / "projects" / "out")
    for each in (inside, outside, outside):
        register.register(each)

    (entry,) = entries(tmp_path)
    assert entry.parent.stat().st_mode & 0o777 == 0o700
    assert all_executions(usual) == [inside, outside]
    assert all_executions(tmp_path / "projects") == [outside]
    (outside / ".hankweave").rename(outside / ".hankweave.removing")
    assert executions_outside(usual) == [outside]
    (outside / ".hankweave.removing").rename(tmp_path / "elsewhere")
    assert executions_outside(usual) == []
    assert entries(tmp_path) == []


def test_many_servers_may_note_executions_at_once(tmp_path: Path, usual: Path) -> None:
    """Each is noted, and the same one is noted once."""
    roots = [execution(tmp_path / "runs" / str(number)) for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(register.register, roots * 5))

    assert sorted(executions_outside(usual)) == sorted(roots)
    assert len(entries(tmp_path)) == 20


def test_a_server_that_begins_while_the_register_is_read_stays_in_it(
    tmp_path: Path, usual: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found its entry there, and created nothing; the reader puts the entry back."""
    root = execution(tmp_path / "out")
    register.register(root)
    original: Callable[[Path], Path | None] = register.state_folder_of
    results: list[Path | None] = [None]
    monkeypatch.setattr(
        register, "state_folder_of", lambda path: results.pop() if results else original(path)
    )
    assert executions_outside(usual) == []
    assert executions_outside(usual) == [root]


def test_what_is_not_ours_in_the_register_does_no_harm(tmp_path: Path, usual: Path) -> None:
    """Files, folders and links in a circle are left alone."""
    root = execution(tmp_path / "out")
    register.register(root)
    folder = entries(tmp_path)[0].parent
    (folder / "file").write_text("")
    (folder / "folder").mkdir()
    assert executions_outside(usual) == [root]
    assert len(entries(tmp_path)) == 3


def test_a_register_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(OSError, match="directory"):
        register.register(execution(tmp_path / "out"))


# --- which one is meant ---------------------------------------------------------------------------


def test_the_only_server_is_meant_wherever_it_is(
    tmp_path: Path, usual: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server, the usual folder comes first; others are meant if it has none."""
    inside, outside = execution(usual / "in"), execution(tmp_path / "out")
    register.register(outside)
    assert targeting.choose(None).root == inside
    serve(monkeypatch, outside)
    assert (targeting.choose(None).root, targeting.choose(None).why) == (outside, "only server")
    serve(monkeypatch, inside, outside)
    assert targeting.choose(None).is_ambiguous
    serve(monkeypatch)
    (inside / ".hankweave").rename(tmp_path / "gone")
    assert targeting.choose(None).root == outside


# --- the catalog ----------------------------------------------------------------------------------


def rows(usual: Path) -> dict[str, Any]:
    return {Path(row.path).name: row for row in Catalog(usual).rows()}


def test_a_row_says_what_became_of_an_execution(usual: Path) -> None:
    """Its hank, its progress, its cost, its budget and the reason of its failure."""
    run = a_run(codons=(completed("one"), failed("two")))
    run = msgspec.structs.replace(run, status="failed")
    execution(usual / "a", a_state(run, plan=a_plan("one", "two", "three")), maxDollars=5.0)
    execution(usual / "b", hankName="Earthquakes")
    execution(usual / "c", hankPath="/hanks/daily.json")
    found = rows(usual)
    failed_one = found["a"]
    assert (failed_one.state, failed_one.hank_name) == ("failed", "quakes")
    assert (failed_one.codons_done, failed_one.codons_planned) == (1, 3)
    assert (failed_one.step, failed_one.steps) == (2, 3)
    assert (failed_one.last_codon, failed_one.last_codon_name) == ("two", "Two")
    assert failed_one.max_dollars == 5.0
    assert failed_one.cost == 0.0
    assert failed_one.failure
    assert found["b"].hank_name == "Earthquakes"
    assert found["c"].hank_name == "daily"
    assert (found["b"].state, found["b"].failure, found["b"].cost) == ("new", None, 0.0)


def journal(root: Path, *journaled: EventData) -> None:
    path = root / ".hankweave" / "events" / "events.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        for seq, data in enumerate(journaled, 1):
            event = Event(
                id=f"e{seq}", seq=EventSeq(seq), timestamp=MOMENT, type=data.TYPE, data=data
            )
            file.write(codec.encode(event) + b"\n")


def test_a_row_says_what_a_running_codon_does_and_waits_for(
    usual: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest request without an answer, and the newest call; nothing without a server."""
    one = CodonId("one")
    root = execution(usual / "a", a_state(a_run(codons=(running("one"),)), plan=a_plan("one")))
    asks = [
        PermissionRequested(
            codon_id=one,
            request_id=name,
            tool_name="Write",
            tool_input={"file_path": f"out/{name}.md", "content": "x" * 300_000},
            expires_at=MOMENT,
            reason="r",
        )
        for name in ("first", "second", "third")
    ]
    journal(
        root,
        CodonStartedEvent(codon_id=one, codon_name="One", session_id="s", start_time=MOMENT),
        AssistantAction(codon_id=one, action="message", content="Hello."),
        AssistantAction(
            codon_id=one,
            action="tool_use",
            content="",
            tool_name="Bash",
            tool_input={"command": "make\nmake test"},
        ),
        *asks,
        PermissionResolved(
            codon_id=one, request_id="first", tool_name="Write", decision="allow", by="client"
        ),
    )
    assert rows(usual)["a"].state == "crashed"
    assert rows(usual)["a"].waits_for is None
    serve(monkeypatch, root)
    lock = RuntimeLock(pid=1, run_id=None, start_time=MOMENT, last_heartbeat=MOMENT, port=4242)
    (root / ".hankweave" / "runtime.lock").write_bytes(codec.encode(lock))
    row = rows(usual)["a"]
    assert (row.state, row.page_url) == ("running", "http://127.0.0.1:4242/")
    assert (row.waits_for, row.answer_until) == ("Write out/second.md", MOMENT)
    assert row.doing == "Bash make"


def test_attempts_follow_the_execution_that_they_explore(tmp_path: Path, usual: Path) -> None:
    """Also if they are elsewhere; attempts of what is gone, or of each other, are listed, too."""
    project = execution(tmp_path / "project", inPlace=True, lastUsed="2026-01-01T00:00:00.000Z")
    register.register(project)

    def attempt(name: str, of: Path, used: str = "2026-02-01T00:00:00.000Z") -> None:
        coordinate = {"checkpointSha": "0" * 40, "eventSeq": 1, "runId": a_run().run_id}
        execution(
            usual / name,
            origin={"executionPath": str(of), "coordinate": coordinate},
            attempt={"explorationId": "x", "attemptId": f"x-{name}", "codonId": "one"},
            lastUsed=used,
        )

    execution(usual / "other", lastUsed="2026-01-15T00:00:00.000Z")
    attempt("1", project)
    attempt("2", project, "2026-03-01T00:00:00.000Z")
    attempt("orphan", tmp_path / "gone", "2025-12-01T00:00:00.000Z")
    attempt("it", usual / "itself")
    (usual / "it").rename(usual / "itself")
    found = Catalog(usual).rows()
    names = [Path(row.path).name for row in found]
    assert names == ["other", "project", "2", "1", "orphan", "itself"]
    assert found[2].attempt_of == str(project)


def test_what_was_spent_since_a_time_is_counted_once(usual: Path) -> None:
    """By the ends of codons; a branch shares those of its origin, and what works counts."""
    past, begin = "2025-01-03T12:00:00.000Z", from_text(MOMENT)
    codons = (
        msgspec.structs.replace(completed("old"), end_time=past, final_cost=1.0),
        msgspec.structs.replace(completed("new"), final_cost=2.0),
        msgspec.structs.replace(running("now"), current_cost=4.0),
    )
    execution(usual / "a", a_state(a_run(codons=codons), plan=a_plan("old", "new", "now")))
    execution(usual / "b", a_state(a_run(codons=codons[:2]), plan=a_plan("old", "new")))
    everything = Catalog(usual)
    everything.rows()
    assert everything.spent_since(begin) == 6.0
    assert everything.spent_since(from_text(past)) == 7.0


def test_only_what_has_changed_is_read_again(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second list costs a look at each file; a change of one is seen."""
    decoded = noted(monkeypatch, catalog, "decode_state")
    for name in ("a", "b", "c"):
        execution(usual / name, a_state(a_run(codons=(completed("one"),)), plan=a_plan("one")))

    everything = Catalog(usual)
    first = everything.rows()
    assert len(decoded) == 3
    assert everything.rows() == first
    assert len(decoded) == 3
    state = usual / "b" / ".hankweave" / "state.json"
    changed = a_state(a_run(codons=(completed("one"),)), plan=a_plan("one", "two"))
    state.with_name("new").write_bytes(codec.encode(changed))
    os.replace(state.with_name("new"), state)
    (usual / "c" / ".hankweave").rename(usual / "c" / "gone")
    planned = {Path(row.path).name: row.codons_planned for row in everything.rows()}
    assert planned == {"a": 1, "b": 2}
    assert len(decoded) == 4
    assert msgspec.json.decode(*decoded[-1])["executionPlan"]
