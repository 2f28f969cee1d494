"""Permission requests of an ACP agent and their answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from hankweave_server.agents.acp.bridge import Questions
from hankweave_server.agents.acp.events import AcpTranslator
from hankweave_server.agents.acp.json_lines import LONGEST_TEXT
from support.waiting import limited

ALL = ("allow_always", "allow_once", "reject_always", "reject_once")
CANCELLED = {"outcome": {"outcome": "cancelled"}}


class Lines:
    """A writer that stores what was printed."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.notes: list[str] = []

    def emit(self, line: Any) -> None:
        self.written.append(line)

    def note(self, text: str) -> None:
        self.notes.append(text)


def asked(*kinds: str, command: str = "ls") -> dict[str, Any]:
    options = [{"kind": kind, "optionId": kind, "name": kind} for kind in kinds]
    return {
        "toolCall": {"toolCallId": "c", "kind": "execute", "title": command},
        "options": options,
    }


def answer(behavior: object, request: str = "permission-1") -> dict[str, Any]:
    given = {"request_id": request, "subtype": "success", "response": {"behavior": behavior}}
    return {"type": "control_response", "response": given}


async def ask(given: dict[str, Any], *answers: dict[str, Any] | None) -> tuple[Any, Lines]:
    """Ask once and apply the answers in this order; None closes."""
    lines, got = Lines(), []
    questions = Questions(AcpTranslator(lines.emit, lambda: None), lines)

    async def wait() -> None:
        got.append(await questions.ask(given))

    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            for each in answers:
                if each is None:
                    questions.close()
                else:
                    questions.answered(each)

    return got[0], lines


@pytest.mark.parametrize(
    ("kinds", "behavior", "chosen"),
    [
        (ALL, "allow", "allow_once"),
        (ALL, "deny", "reject_once"),
        (ALL, "perhaps", "reject_once"),
        (ALL, None, "reject_once"),
        (("allow_always", "reject_always"), "allow", "allow_always"),
        (("allow_always", "reject_always"), "deny", "reject_always"),
        (("allow_once",), "deny", None),
        ((), "allow", None),
    ],
)
async def test_an_answer_is_one_of_the_agents_options(kinds, behavior, chosen) -> None:
    """An answer is an option of the agent, for one call if possible; all but a grant refuses."""
    got, _ = await ask(asked(*kinds), answer("allow", "another"), answer(behavior))
    selected = {"outcome": {"outcome": "selected", "optionId": chosen}}
    assert got == (CANCELLED if chosen is None else selected)


async def test_without_a_client_it_is_cancelled() -> None:
    """Without a reader the request is cancelled, and the server learns that it is withdrawn."""
    got, lines = await ask(asked(*ALL), None)
    assert got == CANCELLED
    assert lines.written[-1] == {"type": "control_cancel_request", "request_id": "permission-1"}


async def test_what_cannot_be_shown_whole_is_refused() -> None:
    """A call too long to show whole is refused: the end of a command may be what a rule denies."""
    got, lines = await ask(asked(*ALL, command="x" * (LONGEST_TEXT + 1)))
    assert got["outcome"]["optionId"] == "reject_once"
    assert len(lines.notes) == 1
    assert all(line["type"] != "control_request" for line in lines.written)


@pytest.mark.parametrize("odd", [{}, {"options": 3, "toolCall": []}, {"options": [3, {"kind": 1}]}])
async def test_a_request_of_a_wrong_shape_is_asked_all_the_same(odd) -> None:
    """A malformed request is still asked about, but has no option to choose."""
    got, _ = await ask(odd, answer("allow"))
    assert got == CANCELLED
