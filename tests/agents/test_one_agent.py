"""One agent at work: its files, events and checkpoints, and rollbacks of files and conversation."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import CodonNext, RollbackToCheckpoint, RollbackToCodon
from hankweave_protocol.events import (
    AssistantAction,
    Event,
    StateTransition,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.state import CompletedCodon
from support.git_facts import GitWitness
from support.invariants import Acknowledged, violations
from support.models.turns import Held, Says, Turn, Writes
from support.real_agents import REAL, Grounds, Kind, assert_no_secrets
from support.running_server import running_server, state, tree
from support.scripted_hank import write_hank
from support.waiting import LIMIT
from support.watching import events_of, idle, listed


def writing(grounds: Grounds, name: str, content: str, then: str) -> tuple[Turn, ...]:
    """Return a model script that writes a file: one tool call, then a closing message."""
    return Writes(grounds.work_tree / name, content, saying=f"I write {name}."), Says(then)


def two_codons(grounds: Grounds, kind: Kind) -> tuple[dict[str, Any], ...]:
    return (
        grounds.codon("one", kind, "Please write PROMPT-ONE."),
        grounds.codon(
            "two", kind, "Please write PROMPT-TWO.", continuationMode="continue-previous"
        ),
    )


async def test_an_agent_writes_a_file_with_its_own_tool(grounds: Grounds, kind: Kind) -> None:
    """The agent's file, messages, calls and usage are in checkpoints and events.

    The file is in the codon's checkpoint, and another one was taken while the agent worked. The
    model saw only its own key.
    """
    grounds.endpoint.script.add(*writing(grounds, "a.txt", "first\nsecond\n", "A is written."))
    codon = grounds.codon("one", kind, "Please write PROMPT-ONE.")
    hank = write_hank(grounds.folder / "hank", codon)
    async with (
        running_server(hank, None, grounds.execution, env=grounds.environment) as server,
        server.client() as client,
    ):
        await idle(client)
        taken = await listed(client)
        assert await server.stop() == 0

    assert tree(grounds.work_tree) == {"a.txt": b"first\nsecond\n"}
    assert {record.kind for record in taken} & {"tool", "turn"}
    completed = next(record for record in taken if record.kind == "completed")
    assert GitWitness(grounds.execution).run("show", f"{completed.sha}:a.txt") == "first\nsecond\n"
    acts = events_of(grounds.execution, AssistantAction)
    spoken = "\n".join(act.content for act in acts if act.action == "message")
    assert "I write a.txt." in spoken
    assert "A is written." in spoken
    (called,) = [act for act in acts if act.action == "tool_use"]
    (returned,) = events_of(grounds.execution, ToolResult)
    assert (returned.tool_use_id, returned.is_error) == (called.tool_use_id, False)
    assert events_of(grounds.execution, TokenUsage)
    assert {key for seen in grounds.endpoint.turns for key in seen.keys} == {kind.key}
    assert grounds.endpoint.script.is_done
    assert_no_secrets(grounds)
    assert violations(grounds.execution, Acknowledged()) == []


@pytest.mark.story("Files and conversation of an agent go back together.", cases=("stand-in",))
async def test_files_and_conversation_go_back_together(grounds: Grounds, kind: Kind) -> None:
    """Files and conversation are rolled back together.

    With `continue-previous` the second codon's model is shown the whole first conversation. After a
    rollback with rewindMemory the second codon's file is gone, and its model, asked again, is shown
    the first codon and nothing of the second.
    """
    grounds.endpoint.script.add(*writing(grounds, "a.txt", "a\n", "A is written."))
    grounds.endpoint.script.add(*writing(grounds, "b.txt", "wrong\n", "WRONG is written."))
    hank = write_hank(grounds.folder / "hank", *two_codons(grounds, kind))
    async with (
        running_server(hank, None, grounds.execution, env=grounds.environment) as server,
        server.client() as client,
    ):
        await idle(client)
        before = len(grounds.endpoint.turns)
        assert_goes_on([turn.shown for turn in grounds.endpoint.turns])
        await to_the_end_of_one(client)
        assert tree(grounds.work_tree) == {"a.txt": b"a\n"}
        grounds.endpoint.script.add(*writing(grounds, "b.txt", "right\n", "RIGHT is written."))
        await client.send(CodonNext())
        await idle(client)
        assert await server.stop() == 0

    assert tree(grounds.work_tree) == {"a.txt": b"a\n", "b.txt": b"right\n"}
    shown = [turn.shown for turn in grounds.endpoint.turns[before:]]
    assert ["A is written." in text for text in shown] == [True, True]
    assert [text for text in shown if "wrong" in text.lower()] == []
    assert shown[0].count("PROMPT-TWO") == 1
    newest = state(grounds.execution).runs[0]
    assert [(codon.codon_id, type(codon)) for codon in newest.codons] == [("two", CompletedCodon)]
    assert_no_secrets(grounds)
    assert violations(grounds.execution, Acknowledged()) == []


@pytest.mark.parametrize("kind", REAL, ids=str)
async def test_an_agent_goes_on_from_the_midst_of_its_work(grounds: Grounds, kind: Kind) -> None:
    """A rolled-back agent resumes after its first tool, without its prompt a second time.

    After a rollback with conversation to the checkpoint after its first tool, it knows of that call
    and of no later one.
    """
    second = threading.Event()
    script = grounds.endpoint.script
    script.add(Writes(grounds.work_tree / "a.txt", "a\n", saying="I write A."))
    script.add(Held(Writes(grounds.work_tree / "b.txt", "wrong\n", saying="WRONG."), second))
    script.add(Says("Both are written, I think."))
    hank = write_hank(grounds.folder / "hank", grounds.codon("one", kind, "Please PROMPT-ONE."))
    async with (
        running_server(hank, None, grounds.execution, env=grounds.environment) as server,
        server.client() as client,
    ):
        target = await after_the_first_tool(client, grounds)
        second.set()
        await idle(client)
        before = len(grounds.endpoint.turns)
        command = RollbackToCheckpoint(checkpoint_sha=target, rewind_memory=True)
        await client.send(command)
        assert tree(grounds.work_tree) == {"a.txt": b"a\n"}
        script.add(*writing(grounds, "b.txt", "right\n", "RIGHT is written."))
        await client.send(CodonNext())
        await idle(client)
        assert await server.stop() == 0

    assert tree(grounds.work_tree) == {"a.txt": b"a\n", "b.txt": b"right\n"}
    shown = [turn.shown for turn in grounds.endpoint.turns[before:]]
    assert [text.count("PROMPT-ONE") for text in shown] == [1, 1]
    assert ["I write A." in text for text in shown] == [True, True]
    assert [text for text in shown if "wrong" in text.lower() or "I think" in text] == []
    assert violations(grounds.execution, Acknowledged()) == []


async def after_the_first_tool(client: Client, grounds: Grounds) -> Sha:
    """Wait for the checkpoint, taken while the agent works, that contains the agent's file.

    It follows the tool call; or, for an agent that reports its calls late, the message before it.
    """
    git = GitWitness(grounds.execution)
    while True:
        for record in await listed(client):
            if record.kind in {"tool", "turn"} and git.files(record.sha) == {"a.txt": b"a\n"}:
                return record.sha

        await client.until(StateTransition, is_checkpoint, timeout=LIMIT)


def is_checkpoint(event: Event) -> bool:
    return getattr(event.data, "transition_type", None) == "CheckpointCreated"


def assert_goes_on(shown: list[str]) -> None:
    """Assert two requests per codon; the second codon's include the first codon's text."""
    assert [("PROMPT-ONE" in text, "PROMPT-TWO" in text) for text in shown] == [
        (True, False),
        (True, False),
        (True, True),
        (True, True),
    ]
    assert "A is written." in shown[-1]


async def to_the_end_of_one(client: Client) -> None:
    command = RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end", rewind_memory=True)
    await client.send(command)
