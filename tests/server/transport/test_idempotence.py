"""The same id with the same frame is the same command on any connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from hankweave_protocol.commands import Command
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CommandId
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.transport.idempotency import RecentAnswers
from support.small_server import SmallRest, small_server
from support.waiting import limited

NEXT = {"id": "once", "type": "codon.next"}


async def test_a_command_sent_twice_is_done_once(tmp_path: Path) -> None:
    """The first reply is sent again, on the same connection and on another one."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readandwrite") as one,
        server.follower(mode="readandwrite") as two,
    ):
        answers = []
        for client in (one, one, two):
            await client.send(NEXT)
            answers.append(await client.receive())

        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["data"] == {"did": "codon.next"}
        assert len(server.rest.handled) == 1


async def test_the_second_waits_while_the_first_is_at_work(tmp_path: Path) -> None:
    """A client that reconnects during a rollback gets the reply of the running one."""
    begun, go = anyio.Event(), anyio.Event()

    async def slow(command: Command, caller: Caller) -> CommandAnswer:
        begun.set()
        await go.wait()
        return CommandAnswer(data="done")

    async with small_server(tmp_path, SmallRest(handler=slow)) as server:
        async with server.raw(mode="readandwrite", protocolVersion=1) as lost:
            await lost.send(NEXT)
            await begun.wait()

        async with server.follower(mode="readandwrite") as client:
            await client.send(NEXT)
            go.set()
            with limited():
                assert (await client.receive())["data"] == "done"

        assert len(server.rest.handled) == 1


async def test_an_id_with_another_frame_is_another_command(tmp_path: Path) -> None:
    """An equal id with a different frame is a different command."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readandwrite") as client,
    ):
        for command in ("codon.next", "codon.redo"):
            await client.send({"id": "same", "type": command})
            assert (await client.receive())["data"] == {"did": command}


async def test_reading_is_done_each_time(tmp_path: Path) -> None:
    """Commands that change nothing are executed each time and reply with the current state."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readandwrite") as client,
    ):
        for _ in range(2):
            await client.send({"id": "s", "type": "state.get"})
            await client.receive()

        assert len(server.rest.handled) == 2


async def test_a_refusal_is_an_answer_too(tmp_path: Path) -> None:
    """A refused command that is sent again is refused again without an attempt."""

    async def refuse(command: Command, caller: Caller) -> CommandAnswer:
        raise Refused(ErrorCode.NOTHING_TO_RUN, "All done.")

    async with (
        small_server(tmp_path, SmallRest(handler=refuse)) as server,
        server.follower(mode="readandwrite") as client,
    ):
        answers: list[Any] = []
        for _ in range(2):
            await client.send(NEXT)
            answers.append(await client.receive())

        assert answers[0] == answers[1]
        assert len(server.rest.handled) == 1


async def test_the_book_forgets_the_oldest_by_number_and_by_bytes() -> None:
    """The record is bounded by number and by bytes, and never drops a command that still runs."""
    calls: list[str] = []

    async def ask(book: RecentAnswers, name: str, size: int = 1) -> None:
        async with book.answer_to(CommandId(name), b"frame") as stored:
            if stored.frames is None:
                calls.append(name)
                stored.frames = (b"x" * size,)

    few = RecentAnswers(kept=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        await ask(few, name)

    assert calls == ["a", "b", "c", "b"]

    calls.clear()
    small = RecentAnswers(kept_bytes=100)
    for name in ("a", "b", "b", "a"):
        await ask(small, name, size=60)

    assert calls == ["a", "b", "a"]
