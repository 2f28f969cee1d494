"""A hank of three codons, each run by a different agent: run, rollback and completion."""

from __future__ import annotations

import pytest

from hankweave_protocol.commands import CodonNext, RollbackToCodon, RollbackUndo
from hankweave_protocol.events import CodonCompletedEvent, RollbackCompleted
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.execution_thread import thread
from support.invariants import Acknowledged, violations
from support.models.turns import Says, Writes
from support.real_agents import (
    CLAUDE,
    CODEX,
    GEMINI,
    OPENCODE,
    STANDING_IN,
    Grounds,
    Kind,
    assert_no_secrets,
    processes_of,
)
from support.running_server import running_server, state, tree
from support.scripted_hank import write_hank
from support.watching import events_of, idle

TRIOS = [
    (STANDING_IN, STANDING_IN, STANDING_IN),
    (CLAUDE, CODEX, OPENCODE),
    (GEMINI, CLAUDE, CODEX),
]
CODONS = ("one", "two", "three")


def files(*names: str) -> dict[str, bytes]:
    """Return the files the agents make; each names the attempt that made it."""
    return {f"{name.split('-')[0]}.txt": f"{name}\n".encode() for name in names}


def prompt_of(codon: str) -> str:
    return f"PLEASE-MAKE-{codon.upper()}"


def script(grounds: Grounds, attempt: str, *codons: str) -> None:
    """Return the model script: each codon has its own prompt and its own turns."""
    for codon in codons:
        file = grounds.work_tree / f"{codon}.txt"
        grounds.endpoint.script.on(
            prompt_of(codon),
            Writes(file, f"{codon}-{attempt}\n", saying=f"I make {codon}-{attempt}."),
            Says(f"{codon}-{attempt} is made."),
        )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kinds", TRIOS, ids=lambda kinds: "-".join(map(str, kinds)))
async def test_three_agents_work_go_back_and_come_to_the_end(
    kinds: tuple[Kind, Kind, Kind], grounds: Grounds
) -> None:
    """Three agents pass files on to each other.

    A rollback to the end of the first codon restores files, plan and conversations of the others,
    an undo reverts that, and after a second rollback they make the files again. Each agent was
    called with its own key only, and its cost is in the state.
    """
    script(grounds, "1", *CODONS)
    hank = write_hank(
        grounds.folder / "hank",
        *(
            grounds.codon(name, kind, f"{prompt_of(name)}, please.")
            for name, kind in zip(CODONS, kinds, strict=True)
        ),
    )
    first, second = (files(f"one-{n}", f"two-{n}", f"three-{n}") for n in (1, 2))
    to_one = RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end", rewind_memory=True)
    async with (
        running_server(hank, None, grounds.execution, env=grounds.environment) as server,
        server.client() as client,
    ):
        await idle(client)
        assert tree(grounds.work_tree) == first
        await client.send(to_one)
        assert tree(grounds.work_tree) == files("one-1")
        await client.send(RollbackUndo())
        assert tree(grounds.work_tree) == first
        await client.send(to_one)
        script(grounds, "2", "two", "three")
        await client.send(CodonNext())
        await idle(client)
        assert await server.stop() == 0

    assert tree(grounds.work_tree) == second | files("one-1")
    assert [done.codon.codon_id for done in thread(state(grounds.execution))] == [*CODONS]
    ends = events_of(grounds.execution, CodonCompletedEvent)
    assert [(end.codon_id, end.success) for end in ends] == [
        *((name, True) for name in CODONS),
        ("two", True),
        ("three", True),
    ]
    assert len(events_of(grounds.execution, RollbackCompleted)) == 3
    assert_each_was_asked_for_itself(grounds, kinds)
    assert processes_of(grounds.execution) == []
    assert_no_secrets(grounds)
    assert violations(grounds.execution, Acknowledged()) == []


def assert_each_was_asked_for_itself(grounds: Grounds, kinds: tuple[Kind, ...]) -> None:
    """Assert that no conversation contains text of another codon or of a rolled-back attempt."""
    for name, kind in zip(CODONS, kinds, strict=True):
        asked = [turn for turn in grounds.endpoint.turns if prompt_of(name) in turn.shown]
        others = [prompt_of(other) for other in CODONS if other != name]
        assert len(asked) == (2 if name == "one" else 4)
        assert {key for turn in asked for key in turn.keys} == {kind.key}
        assert [turn for turn in asked if any(other in turn.shown for other in others)] == []
        assert [f"{name}-1" in turn.shown for turn in asked[2:]] == [False] * len(asked[2:])

    assert grounds.endpoint.script.is_done
