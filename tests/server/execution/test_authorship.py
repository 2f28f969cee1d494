"""The author of a change while a codon ran: an agent's is what its calls reach, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.events import (
    AgentOutput,
    ChangedFolder,
    ChangedPath,
    CodonCompletedEvent,
    EventData,
    ExitStatus,
    FilesChanged,
    FileSource,
    PermissionRequested,
    PermissionResolved,
    TokenUsage,
)
from hankweave_server.execution.codon.authorship import (
    ANYTHING,
    NOTHING,
    AgentCalls,
    Reach,
    WorkSoFar,
    left_running,
    reach_of,
)
from hankweave_server.execution.rollback.user_edits import reach_in
from support.events import ONE, a_file_change, a_tool_call, a_tool_result

A, B = Reach(paths=frozenset({b"a.txt"})), Reach(paths=frozenset({b"b.txt"}))
AGENT, PERSON = FileSource(kind="tool_use"), FileSource(kind="person")


def reach(tool: str, given: Mapping[str, object]) -> Reach:
    return reach_of(tool, given, lambda path: [path.encode()])


# --- one call -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Read", {"file_path": "a.txt"}, NOTHING),
        ("Write", {"file_path": "a.txt"}, A),
        ("NotebookEdit", {"notebook_path": "a.txt"}, A),
        ("Edit", {"filePath": "a.txt"}, A),
        ("Edit", {"changes": [{"path": "a.txt"}, {"path": "b.txt"}]}, A | B),
        ("Edit", {"file_path": "a.txt", "file_paths": ["a.txt", "b.txt"]}, A | B),
        ("Edit", {"file_path": 7}, ANYTHING),
        ("Edit", {"changes": ["a.txt"]}, ANYTHING),
        ("Edit", {"changes": "a.txt"}, ANYTHING),
        ("Write", {}, ANYTHING),
        ("Bash", {"command": "ls"}, ANYTHING),
        ("mcp__files__write", {"path": "a.txt"}, ANYTHING),
    ],
)
def test_a_call_reaches_what_its_tool_and_its_input_say(
    tool: str, given: dict[str, object], expected: Reach
) -> None:
    """A tool that names its files changes only these; an unknown one may change any."""
    assert reach(tool, given) == expected


def test_links_in_the_path_of_a_call_are_followed(tmp_path: Path) -> None:
    """A file that is written through a link is recognized, and one outside is none of ours."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "real").mkdir()
    (tree / "link").symlink_to("real")
    (tmp_path / "other").symlink_to(tree)

    def reached(path: object) -> frozenset[bytes]:
        return reach_in(tree, "Write", {"file_path": str(path)}).paths

    assert b"real/a.txt" in reached("link/a.txt")
    assert b"a.txt" in reached(tmp_path / "other" / "a.txt")
    assert reached(tree / "sub" / ".." / "a.txt") == {b"a.txt"}
    assert reached(tmp_path / "a.txt") == frozenset()


# --- an agent that waits before its calls ---------------------------------------------------------


def waiting() -> AgentCalls:
    return AgentCalls(waits=True)


def test_between_its_calls_a_waiting_agent_changes_nothing() -> None:
    """A person's change while the model was thinking is known when the call asks."""
    calls = waiting()
    assert calls.scans() == NOTHING
    calls.called("1", "Bash", {}, ANYTHING)
    assert calls.scans() == NOTHING
    calls.asked("Bash", ANYTHING)
    assert calls.scans() == ANYTHING
    calls.returned("1")
    assert calls.scans() == ANYTHING
    assert calls.scans() == NOTHING


def test_of_two_calls_the_one_that_asks_begins() -> None:
    """Calls of one tool are told apart by what they reach."""
    calls = waiting()
    calls.called("1", "Write", {}, A)
    calls.called("2", "Write", {}, B)
    calls.asked("Write", B)
    assert calls.reach == B


def test_the_tools_since_a_scan_are_those_that_have_begun() -> None:
    """A change is never told to be of a call that still waits, or of one before the last scan."""
    calls = waiting()
    calls.called("1", "Write", {}, A)
    calls.called("2", "Bash", {}, ANYTHING)
    assert calls.tools == ()
    calls.asked("Bash", ANYTHING)
    assert calls.tools == ("Bash",)
    calls.asked("Write", A)
    calls.returned("1")
    assert calls.tools == ("Write", "Bash")
    calls.scans()
    assert calls.tools == ("Bash",)
    calls.returned("2")
    calls.scans()
    assert calls.tools == ()


def test_a_call_may_ask_before_it_is_reported() -> None:
    """Hooks come on another channel than messages; a call counts once."""
    calls = waiting()
    calls.asked("Write", A)
    assert calls.scans() == A
    calls.called("1", "Write", {}, A)
    calls.returned("1")
    assert calls.scans() == A
    assert calls.scans() == NOTHING


def test_what_a_call_did_that_did_not_ask_is_taken_from_people() -> None:
    """The agent should have waited and did not, which is known when the call returns."""
    calls = waiting()
    calls.called("1", "Write", {}, A)
    assert calls.scans() == NOTHING
    calls.credit(frozenset({b"a.txt", b"b.txt"}))
    assert calls.returned("1") == {b"a.txt"}


def test_a_tool_that_never_asks_begins_when_it_is_called() -> None:
    calls = waiting()
    calls.called("1", "Bash", {}, ANYTHING, asks=False)
    assert calls.reach == ANYTHING


@pytest.mark.parametrize(
    ("given", "lasts"),
    [
        ({"command": "npm run dev &"}, True),
        ({"command": "nohup ./serve > log 2>&1"}, True),
        ({"command": "make", "run_in_background": True}, True),
        ({"command": "make && make test 2>&1 | tail; make &> log"}, False),
    ],
)
def test_a_command_in_the_background_goes_on_after_its_call(
    given: dict[str, Any], lasts: bool
) -> None:
    """From then on, any change may be the agent's."""
    calls = waiting()
    calls.called("1", "Bash", given, ANYTHING)
    calls.asked("Bash", ANYTHING)
    calls.returned("1")
    calls.scans()
    assert calls.reach.anything == lasts


# --- other agents ---------------------------------------------------------------------------------


def test_a_program_that_reports_no_calls_may_have_changed_anything() -> None:
    """Until its first message it is not known whether it reports any."""
    calls = AgentCalls(waits=False)
    assert calls.reach == ANYTHING
    calls.note_message()
    assert calls.reach == NOTHING
    calls.printed()
    assert calls.reach == ANYTHING


def test_calls_of_an_agent_that_does_not_wait_may_have_begun_before_they_were_read() -> None:
    """However many calls it is ahead, what they name and was credited to people is the agent's."""
    calls = AgentCalls(waits=False)
    calls.note_message()
    calls.credit(frozenset({b"a.txt", b"b.txt", b"c.txt"}))
    assert calls.called("1", "Write", {}, A) == {b"a.txt"}
    assert calls.called("2", "Write", {}, A) == frozenset()
    assert calls.called("3", "Write", {}, B) == {b"b.txt"}


def test_a_call_that_is_read_while_a_scan_is_recorded_takes_what_it_names() -> None:
    """The scan began before the call was read, and the agent had written the file before that."""
    calls = AgentCalls(waits=False)
    calls.note_message()
    assert calls.scans() == NOTHING
    calls.called("1", "Write", {}, A)
    assert calls.credit(frozenset({b"a.txt", b"b.txt"})) == {b"a.txt"}
    assert calls.called("2", "Write", {}, B) == {b"b.txt"}


def test_a_call_that_may_change_anything_takes_only_what_changed_since_the_call_before() -> None:
    """Otherwise every edit that a person ever made beside the agent would be the agent's."""
    calls = AgentCalls(waits=False)
    calls.note_message()
    calls.credit(frozenset({b"a.txt"}))
    assert calls.called("1", "Read", {}, NOTHING) == frozenset()
    assert calls.called("2", "Write", {}, B) == frozenset()
    calls.credit(frozenset({b"c.txt"}))
    assert calls.called("3", "Bash", {}, ANYTHING) == {b"c.txt"}


# --- after a crash --------------------------------------------------------------------------------


def asked(tool: str) -> EventData:
    return PermissionRequested(
        codon_id=ONE, request_id="r", tool_name=tool, tool_input={}, expires_at="", reason=""
    )


def allowed(tool: str) -> EventData:
    return PermissionResolved(
        codon_id=ONE, request_id="r", tool_name=tool, decision="allow", by="client"
    )


USAGE = TokenUsage(
    codon_id=ONE,
    input_tokens=0,
    output_tokens=0,
    cache_creation_tokens=0,
    cache_read_tokens=0,
    total_cost=0,
    final=True,
)
ENDED = CodonCompletedEvent(
    codon_id=ONE, success=False, cost=0, duration=0, exit_status=ExitStatus(type="error", code=1)
)


def left(*events: EventData, **fields: Any) -> Reach:
    known = {"phase": "running", "waits": True, "has_rig": False, "has_checks": False} | fields
    phase = known.pop("phase")
    return left_running(events, phase, reach, **known)


LS = a_tool_call("Bash", "1", command="ls")
WRITE = a_tool_call("Write", "2", file_path="a.txt")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), NOTHING),
        ((LS,), ANYTHING),
        ((LS, a_tool_result("1")), NOTHING),
        ((LS, a_tool_result("1"), WRITE), A),
        ((WRITE, asked("Write")), NOTHING),
        ((WRITE, asked("Write"), allowed("Write")), A),
        ((LS, ENDED), NOTHING),
    ],
)
def test_after_a_crash_the_calls_without_a_result_may_have_changed_files(
    events: tuple[EventData, ...], expected: Reach
) -> None:
    assert left(*events) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phase": "preparing"}, NOTHING),
        ({"phase": "preparing", "has_rig": True}, ANYTHING),
        ({"phase": "starting", "has_rig": True}, NOTHING),
        ({"phase": "initializing"}, NOTHING),
        ({"phase": "initializing", "waits": False}, ANYTHING),
        ({"waits": False}, ANYTHING),
        ({"has_checks": True}, ANYTHING),
        ({"phase": "completing-sentinels"}, ANYTHING),
    ],
)
def test_rigs_checks_and_programs_that_report_nothing_may_have_changed_anything(
    fields: dict[str, Any], expected: Reach
) -> None:
    """A change of unknown origin is the agent's: it is saved, named and taken back."""
    assert left(USAGE, **fields) == expected


def test_lines_of_an_agent_that_reports_its_calls_change_nothing() -> None:
    line = AgentOutput(codon_id=ONE, stream="stdout", line="a warning")
    assert left(line) == NOTHING


# --- files that both changed ----------------------------------------------------------------------


def burst(total: int, listed: str, *folders: str) -> EventData:
    return FilesChanged(
        total=total,
        created=total,
        modified=0,
        deleted=0,
        folders=tuple(ChangedFolder(folder=each, files=1) for each in folders),
        other_folders=0,
        in_other_folders=0,
        paths=(ChangedPath(path=listed, action="created"),),
        source=AGENT,
    )


@pytest.mark.parametrize(
    ("events", "both"),
    [
        ((a_file_change("a", AGENT), a_file_change("b", AGENT)), {"a"}),
        ((a_file_change("b", AGENT), a_file_change("a", PERSON)), set()),
        ((burst(1, "a"),), {"a"}),
        ((burst(1, "b", ""),), set()),
        ((burst(9, "b", ""),), {"a"}),
        ((burst(9, "b", "lib"),), set()),
    ],
)
def test_a_file_that_a_person_and_an_agent_changed_is_contested(
    events: tuple[EventData, ...], both: set[str]
) -> None:
    """The order does not matter. A burst lists only some files, so its folders count."""
    work = WorkSoFar(people={"a"})
    for event in events:
        work.handle(event)

    assert work.by_both() == both
