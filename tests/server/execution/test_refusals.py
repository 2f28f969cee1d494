"""Warnings about agents that were refused all tools with which they could have worked."""

from __future__ import annotations

from hankweave_protocol.ids import CodonId
from hankweave_server.agents.base import ResultReported, ToolCalled, ToolReturned
from hankweave_server.execution.codon.limits import Refusals

ONE = CodonId("one")


def result(*denied: str) -> ResultReported:
    return ResultReported(True, "done", None, None, None, {}, denied_calls=denied)


def after(refusals: Refusals, name: str, call: str, *, is_error: bool, **more: bool) -> None:
    refusals.handle(ToolCalled(call, name, {}))
    refusals.handle(ToolReturned(call, name, "", is_error=is_error, **more))


def test_what_the_agent_says_it_was_refused_is_a_refusal() -> None:
    """Refusals are in the last report (Claude Code) or a call's result (Codex), and counted."""
    refusals = Refusals()
    after(refusals, "Bash", "1", is_error=True)
    after(refusals, "Bash", "2", is_error=True)
    after(refusals, "Write", "3", is_error=True, is_refused=True)
    assert refusals.warning(ONE) is None
    refusals.handle(result("1", "2"))
    warning = refusals.warning(ONE)
    assert warning is not None
    assert (warning.codon_id, warning.kind) == (ONE, "tools-refused")
    assert warning.tools == ("Bash", "Write")
    assert "Bash (2)" in warning.message


def test_what_the_permissions_deny_is_a_refusal() -> None:
    """A denied call counts, whether the agent reports it as failed or not at all."""
    for is_reported in (True, False):
        refusals = Refusals()
        refusals.handle(ToolCalled("1", "Bash", {}))
        refusals.deny("Bash")
        if is_reported:
            refusals.handle(ToolReturned("1", "Bash", "no", is_error=True))

        warning = refusals.warning(ONE)
        assert warning is not None
        assert warning.tools == ("Bash",)


def test_one_tool_that_did_work_is_enough() -> None:
    """A tool that failed by itself counts as not refused; read-only tools do not count."""
    refusals = Refusals()
    after(refusals, "Bash", "1", is_error=True)
    refusals.handle(result("1"))
    after(refusals, "Read", "2", is_error=False)
    after(refusals, "TodoWrite", "3", is_error=False)
    assert refusals.warning(ONE) is not None
    after(refusals, "Bash", "4", is_error=True)
    assert refusals.warning(ONE) is None


def test_a_denied_call_that_is_tried_again_and_allowed_is_no_refusal() -> None:
    """The call that succeeded is not counted as the denied one."""
    refusals = Refusals()
    refusals.deny("Bash")
    after(refusals, "Bash", "1", is_error=True)
    after(refusals, "Bash", "2", is_error=False)
    assert refusals.warning(ONE) is None


def test_an_agent_that_asked_for_no_tool_was_refused_nothing() -> None:
    refusals = Refusals()
    refusals.handle(result())
    assert refusals.warning(ONE) is None
