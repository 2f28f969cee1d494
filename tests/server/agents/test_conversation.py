"""Generated sessions, printed results, and tool names."""

from __future__ import annotations

import pytest

from hankweave_server.agents import session as module
from hankweave_server.agents.base import (
    AgentKilled,
    AgentSaid,
    Exited,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    TimedOut,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.agents.session import AgentConversation

DEFAULT_SESSION = SessionStarted("made-up", "m")
REAL = SessionStarted("real", "m")


def verdict(success: bool, text: str) -> ResultReported:
    return ResultReported(success, text, None, None, "made-up", {})


def test_the_first_output_of_a_plain_program_begins_its_made_up_session() -> None:
    """A session is generated once, before the first reported output."""
    talk = AgentConversation(default_session=DEFAULT_SESSION)
    assert list(talk.receive([PlainOutput("a")])) == [DEFAULT_SESSION, PlainOutput("a")]
    assert list(talk.receive([PlainOutput("b")])) == [PlainOutput("b")]


def test_stderr_does_not_begin_a_session() -> None:
    """Warnings before the first message do not make a program plain."""
    talk = AgentConversation(default_session=DEFAULT_SESSION)
    assert list(talk.receive([Stderr("careful")])) == [Stderr("careful")]
    assert not talk.has_begun


def test_a_session_the_program_names_replaces_the_made_up_one() -> None:
    """Output before the first message drops the generated session, not the real one."""
    talk = AgentConversation(default_session=DEFAULT_SESSION)
    assert list(talk.receive([PlainOutput("banner"), REAL])) == [
        DEFAULT_SESSION,
        PlainOutput("banner"),
        REAL,
    ]
    assert list(talk.conclude(Exited(0))) == []


def test_a_session_is_announced_once() -> None:
    """A second turn that names the same session does not announce it again."""
    talk = AgentConversation(default_session=None)
    assert list(talk.receive([REAL, AgentSaid("a"), REAL])) == [REAL, AgentSaid("a")]


@pytest.mark.parametrize(
    ("outcome", "signals", "expected"),
    [
        (Exited(0), [], verdict(True, "")),
        (Exited(3), [], verdict(False, "The program ended with exit code 3.")),
        (Exited(3), [Stderr("429 rate limit")], verdict(False, "429 rate limit")),
        (AgentKilled(9), [], verdict(False, "The program was terminated by signal 9.")),
        (TimedOut("idle"), [], verdict(False, "The program exceeded its idle time limit.")),
    ],
)
def test_a_plain_program_is_judged_by_its_end(outcome, signals, expected) -> None:
    """The exit code is the verdict, and the last lines of stderr are its reason."""
    talk = AgentConversation(default_session=DEFAULT_SESSION)
    list(talk.receive(signals))
    assert list(talk.conclude(outcome)) == [DEFAULT_SESSION, expected]


def test_a_plain_program_that_reports_a_result_is_believed() -> None:
    """No verdict is generated if the program printed one."""
    talk = AgentConversation(default_session=DEFAULT_SESSION)
    list(talk.receive([verdict(False, "own words")]))
    assert list(talk.conclude(Exited(0))) == []


def test_an_agent_that_names_its_session_gets_no_result_made_up() -> None:
    """Exit 0 without a result stays without a result, which the runner treats as a failure."""
    talk = AgentConversation(default_session=None)
    list(talk.receive([REAL, AgentSaid("a")]))
    assert list(talk.conclude(Exited(0))) == []


def test_a_tool_result_gets_the_name_of_its_call() -> None:
    """Only the call has the tool's name; a result without a known call has none."""
    talk = AgentConversation(default_session=None)
    list(talk.receive([ToolCalled("t1", "Write", {})]))
    returned = ToolReturned("t1", "", "ok", False)
    assert list(talk.receive([returned])) == [ToolReturned("t1", "Write", "ok", False)]
    assert list(talk.receive([returned])) == [returned]


def test_calls_that_never_return_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number of open calls is remembered, the newest ones."""
    monkeypatch.setattr(module, "CALLS_REMEMBERED", 2)
    talk = AgentConversation(default_session=None)
    list(talk.receive([ToolCalled(f"t{n}", f"Tool{n}", {}) for n in range(3)]))
    names = [
        signal.name
        for signal in talk.receive(ToolReturned(f"t{n}", "", "", False) for n in range(3))
    ]
    assert names == ["", "Tool1", "Tool2"]
