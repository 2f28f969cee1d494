"""Attempts of real agents: each continues a copy of one conversation, and nothing of another's."""

from __future__ import annotations

import pytest

from hankweave_protocol.commands import (
    CodonNext,
    ExplorationAdopt,
    ExplorationShow,
    ExplorationStart,
)
from hankweave_protocol.events import ExplorationEnded
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.execution_thread import thread
from support.invariants import Acknowledged, violations
from support.models.turns import Says, Writes
from support.real_agents import Grounds, Kind, assert_no_secrets, processes_of
from support.running_server import running_server, state, tree
from support.scripted_hank import write_hank
from support.watching import idle

SIDES = ("LEFT", "RIGHT")


def a_plan(grounds: Grounds, kind: Kind) -> None:
    """Write a hank whose second and third codons continue the conversation, and their turns."""
    later = {"continuationMode": "continue-previous"}
    script = grounds.endpoint.script
    script.on(
        "PROMPT-ONE",
        Writes(grounds.work_tree / "a.txt", "a\n", saying="I write A."),
        Says("A is written."),
    )
    script.on("PROMPT-TWO", Says("TWO is done."))
    script.on("PROMPT-THREE", Says("THREE is done."), Says("THREE is done again."))
    for side in SIDES:
        script.on(f"PROMPT-{side}", Says(f"{side} is done."))

    write_hank(
        grounds.folder / "hank",
        grounds.codon("one", kind, "Please write PROMPT-ONE."),
        grounds.codon("two", kind, "Please do PROMPT-TWO.", **later),
        grounds.codon("three", kind, "Please do PROMPT-THREE.", **later),
    )


@pytest.mark.timeout(240)
async def test_attempts_continue_copies_of_one_conversation(grounds: Grounds, kind: Kind) -> None:
    """Both are shown the same first codon, and neither is shown the other's turns.

    The one that is adopted continues: the next codon is shown its turns, and no others.
    """
    a_plan(grounds, kind)
    hank = grounds.folder / "hank" / "hank.json"
    async with (
        running_server(hank, None, grounds.execution, env=grounds.environment) as server,
        server.client() as client,
    ):
        await idle(client)
        files, before = tree(grounds.work_tree), len(grounds.endpoint.turns)
        variants = tuple(Variant(prompt_text=f"Please do PROMPT-{side}.") for side in SIDES)
        await client.send(ExplorationStart(codon_id=CodonId("two"), variants=variants))
        await client.until(ExplorationEnded, timeout=120)
        found = await client.send(ExplorationShow())
        assert [each.status for each in found.attempts] == ["completed", "completed"], [
            each.message for each in found.attempts
        ]
        assert tree(grounds.work_tree) == files
        assert_each_saw_its_own(grounds, before)

        await client.send(ExplorationAdopt(attempt_id=found.attempts[0].attempt_id))
        await idle(client, "rollback-completed")
        before = len(grounds.endpoint.turns)
        await client.send(CodonNext())
        await idle(client)
        assert await server.stop() == 0

    (turn,) = [each for each in grounds.endpoint.turns[before:] if "PROMPT-THREE" in each.shown]
    assert "LEFT is done." in turn.shown
    assert not [words for words in ("RIGHT", "PROMPT-TWO", "TWO is done.") if words in turn.shown]
    ran = [entry.codon.codon_id for entry in thread(state(grounds.execution))]
    assert ran == ["one", "two", "three"]
    assert processes_of(grounds.execution) == []
    assert_no_secrets(grounds)
    assert violations(grounds.execution, Acknowledged()) == []


def assert_each_saw_its_own(grounds: Grounds, since: int) -> None:
    """Assert that the attempts share the beginning of their conversations, and no more."""
    beginnings = []
    for side, other in (SIDES, SIDES[::-1]):
        turns = grounds.endpoint.turns[since:]
        (turn,) = [each for each in turns if f"PROMPT-{side}" in each.shown]
        shown = turn.shown
        assert "A is written." in shown
        assert not [words for words in (other, "PROMPT-TWO", "TWO is done.") if words in shown]
        begin = shown.index("PROMPT-ONE")
        beginnings.append(shown[begin : shown.rindex("A is written.")])

    assert beginnings[0] == beginnings[1]
