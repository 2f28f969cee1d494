"""The verdict on a codon from the facts of its agent's end."""

from __future__ import annotations

from typing import Any

import pytest

from hankweave_server.domain.lifecycle import CodonFailure, CodonSuccess, ContextFull, Ending, judge


def an_ending(**facts: Any) -> Ending:
    """Return a clean success with these changes."""
    clean: dict[str, Any] = {
        "exit_code": 0,
        "timed_out": None,
        "request_timed_out": False,
        "had_session": True,
        "result_success": True,
        "text": "All done.",
    }
    return Ending(**(clean | facts))


VERDICTS: list[tuple[dict[str, Any], str, bool]] = [
    ({"timed_out": "idle"}, "timeout", True),
    ({"timed_out": "total", "exit_code": -1, "result_success": None}, "timeout", True),
    ({"request_timed_out": True}, "timeout", True),
    ({"result_success": False, "text": "nonsense"}, "unknown", True),
    ({"result_success": False, "text": "nonsense", "had_session": False}, "unknown", False),
    ({"result_success": False, "text": "Credit balance is too low"}, "api-error", False),
    ({"exit_code": 1, "result_success": None, "text": ""}, "unknown", True),
    ({"exit_code": 3}, "unknown", True),
    ({"exit_code": 137, "result_success": None, "text": ""}, "unknown", True),
    ({"result_success": None, "text": ""}, "unknown", True),
    ({"result_success": None, "text": "", "had_session": False}, "unknown", False),
]


@pytest.mark.parametrize(("facts", "kind", "retriable"), VERDICTS)
def test_anything_but_a_clean_success_is_a_failure_with_its_kind(
    facts: dict[str, Any], kind: str, retriable: bool
) -> None:
    """A time limit, error result, bad exit code or missing result has a type and a message."""
    verdict = judge(an_ending(**facts))
    assert isinstance(verdict, CodonFailure)
    assert (verdict.reason.type, verdict.reason.retriable) == (kind, retriable)
    assert verdict.reason.message


def test_a_clean_exit_with_a_successful_result_is_a_success() -> None:
    """Success needs both a clean exit and a successful result."""
    assert judge(an_ending()) == CodonSuccess()


def test_a_bad_exit_after_a_successful_result_is_explained_by_its_code() -> None:
    """The text of a successful result is not used as the reason of a failure."""
    verdict = judge(an_ending(exit_code=3, text="Rate limit handled, all done."))
    assert isinstance(verdict, CodonFailure)
    assert verdict.reason.type == "unknown"
    assert verdict.reason.message == "The agent exited with code 3."


OVERFLOW = {"exit_code": 1, "result_success": False, "text": "Prompt is too long"}


def test_a_full_context_is_a_good_end_where_the_hank_waits_for_it() -> None:
    """Elsewhere a full context is a permanent failure."""
    overflown = an_ending(context_exceeded=True, **OVERFLOW)
    assert judge(overflown, awaits_full_context=True) == ContextFull()
    verdict = judge(overflown)
    assert isinstance(verdict, CodonFailure)
    assert (verdict.reason.type, verdict.reason.retriable) == ("api-error", False)


def test_a_context_that_was_made_smaller_ends_only_who_waits_for_a_full_one() -> None:
    """A successful agent that compacts its context succeeds, unless a full context is awaited."""
    compacted = an_ending(compacted=True)
    assert judge(compacted) == CodonSuccess()
    assert judge(compacted, awaits_full_context=True) == ContextFull()
    broken = an_ending(compacted=True, result_success=False, text="Overloaded")
    assert isinstance(judge(broken), CodonFailure)
