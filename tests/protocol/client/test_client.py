"""A session over real sockets: commands, events, and connections that break."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_server

import anyio
import pytest
from anyio.abc import TaskStatus

import hankweave_client.client as client_module
import hankweave_client.link as link_module
from hankweave_client.client import (
    Client,
    CommandRefused,
    ConnectionLost,
    Inbox,
    Unauthorized,
    connect,
    connect_to,
)
from hankweave_client.discovery import NotRunning, discover
from hankweave_client.reconnect import Backoff
from hankweave_protocol.codec import UnknownEvent, encode
from hankweave_protocol.commands import CodonNext, Command, GetState, Ping, RollbackToLastSuccess
from hankweave_protocol.errors import ErrorCode, Refused, reason_of
from hankweave_protocol.events import Info, Pong, ServerIdle, ServerStarted
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.replies import CodonChosen
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.api.caller import Caller, CommandAnswer
from support.small_server import NOON, SmallRest, SmallServer, small_server
from support.waiting import LIMIT, eventually, limited

QUICK = Backoff(first=0.01, longest=0.05)


def session(server: SmallServer, since_seq: int | None = None, reconnect: bool | Backoff = QUICK):  # type: ignore[no-untyped-def]
    return connect(server.url, token=server.controller, since_seq=since_seq, reconnect=reconnect)


def break_connections(server: SmallServer) -> None:
    """End every TCP connection of the server at once, without a goodbye."""
    for socket in tuple(server.listener._sockets):
        socket.transport.abort()


async def test_a_session_knows_the_server_and_its_state(tmp_path: Path) -> None:
    """After connecting, `ready`, `snapshot`, mode and id are available."""
    async with small_server(tmp_path) as server, session(server) as client:
        assert client.ready.execution_path == "/execution"
        assert client.snapshot.total_cost == 0.0
        assert client.mode == "readandwrite"
        assert client.client_id


async def test_a_command_returns_its_replys_data(tmp_path: Path) -> None:
    """It is a value of the type that the command declares."""

    async def answer(command: Command, caller: Caller) -> CommandAnswer:
        return CommandAnswer(data=EMPTY_STATE)

    async with (
        small_server(tmp_path, SmallRest(handler=answer)) as server,
        session(server) as client,
    ):
        assert await client.send(GetState()) == EMPTY_STATE


async def test_a_refusal_is_raised_with_its_facts(tmp_path: Path) -> None:
    """CommandRefused has code, message, path and hint, and is raised without a wrapper."""

    async def refuse(command: Command, caller: Caller) -> CommandAnswer:
        raise Refused(ErrorCode.CODON_RUNNING, "It runs.", path="$.data", hint="Stop it.")

    with pytest.raises(CommandRefused) as refused:
        async with (
            small_server(tmp_path, SmallRest(handler=refuse)) as server,
            session(server) as client,
        ):
            await client.send(RollbackToLastSuccess(auto_restart=True))

    error = refused.value
    assert (error.code, error.message) == (ErrorCode.CODON_RUNNING, "It runs.")
    assert (error.path, error.hint) == ("$.data", "Stop it.")


async def test_commands_may_be_sent_at_once(tmp_path: Path) -> None:
    """Each caller gets the reply to its own command."""

    async def answer(command: Command, caller: Caller) -> CommandAnswer:
        is_next = isinstance(command.data, CodonNext)
        return CommandAnswer(CodonChosen(codon_id=CodonId("one")) if is_next else EMPTY_STATE)

    rest = SmallRest(handler=answer)
    async with small_server(tmp_path, rest) as server, session(server) as client:
        answers: dict[str, object] = {}

        async def ask(name: str) -> None:
            answers[name] = await client.send({"next": CodonNext(), "state": GetState()}[name])

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "next")
            group.start_soon(ask, "state")

        assert answers == {"next": CodonChosen(codon_id=CodonId("one")), "state": EMPTY_STATE}


async def test_events_come_decoded_and_unknown_ones_are_kept(tmp_path: Path) -> None:
    """An event of a newer server arrives as UnknownEvent with its data unchanged."""
    async with small_server(tmp_path) as server, session(server) as client:
        server.rest.publish(Info(message="hello"))
        line = b'{"id":"e2","seq":2,"timestamp":"t","type":"codon.danced","data":{"steps":3}}'
        server.rest.lines.append(line)
        server.listener.hub.publish(line, 2)
        seen = [event async for event in _first(client, 2)]
        assert seen[0].data == Info(message="hello")
        assert isinstance(seen[1].data, UnknownEvent)
        assert bytes(seen[1].data.raw) == b'{"steps":3}'


async def _first(client: Client, count: int):  # type: ignore[no-untyped-def]
    events = client.events()
    for _ in range(count):
        yield await anext(events)


async def test_until_finds_what_happened_before_it_was_asked_for(tmp_path: Path) -> None:
    """Events are queued from the moment of connecting, so none is missed."""

    async def act(command: Command, caller: Caller) -> CommandAnswer:
        rest.publish(Info(message="one"))
        rest.publish(ServerIdle(reason="startup", message="two"))
        return CommandAnswer(data=None, events=(Pong(message="pong", timestamp=NOON),))

    rest = SmallRest(handler=act)
    async with small_server(tmp_path, rest) as server, session(server) as client:
        await client.send(Ping())
        idle = await client.until(ServerIdle, lambda event: event.seq == 2, timeout=LIMIT)
        assert idle.type == "server.idle"
        await client.until(Pong, timeout=LIMIT)
        rest.publish(ServerIdle(reason="startup", message="three"))
        again = await client.until(ServerIdle, timeout=LIMIT)
        assert again.seq == 3, "each event is found once"
        with pytest.raises(TimeoutError):
            await client.until(ServerIdle, timeout=0)


async def test_broken_connections_leave_neither_gap_nor_duplicate(tmp_path: Path) -> None:
    """While many events arrive, every connection is cut again and again; the stream is complete."""
    rest = SmallRest()
    total = 3_000
    async with small_server(tmp_path, rest) as server, session(server, since_seq=0) as client:

        async def pour() -> None:
            for number in range(total):
                rest.publish()
                await asyncio.sleep(0)
                cuts, left = divmod(number, 250)
                if left == 200:
                    break_connections(server)
                elif left == 249:  # The events since then wait for the next connection.
                    await eventually(lambda cuts=cuts: len(rest.callers) > cuts + 1)

        async with anyio.create_task_group() as group:
            group.start_soon(pour)
            with limited():
                seqs = [event.seq async for event in _first(client, total)]

        assert seqs == list(range(1, total + 1))
        assert len(rest.callers) > 5, "connections were really broken"


async def test_what_comes_twice_is_yielded_once(tmp_path: Path) -> None:
    """An event that a server repeats is not repeated by the session, and the link stays."""
    async with small_server(tmp_path) as server, session(server, reconnect=False) as client:
        for seq in (1, 1, 2):
            if len(server.rest.lines) < seq:
                server.rest.publish()
            else:
                server.listener.hub.publish(server.rest.lines[seq - 1], seq)

        assert [event.seq async for event in _first(client, 2)] == [1, 2]


async def test_a_missing_event_is_fetched(tmp_path: Path) -> None:
    """An event that skips a seq is not yielded before the missing one."""
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server, session(server) as client:
        rest.hub = None
        rest.publish()
        rest.hub = server.listener.hub
        rest.publish()
        with limited():
            assert [event.seq async for event in _first(client, 2)] == [1, 2]

        assert len(rest.callers) == 2


async def test_a_command_survives_its_connection(tmp_path: Path) -> None:
    """The reply arrives on the next connection, and the command was executed once."""
    begun, go = anyio.Event(), anyio.Event()

    async def slow(command: Command, caller: Caller) -> CommandAnswer:
        begun.set()
        await go.wait()
        return CommandAnswer(CodonChosen(codon_id=CodonId("one")))

    rest = SmallRest(handler=slow)
    async with small_server(tmp_path, rest) as server, session(server) as client:
        answers = []

        async def ask() -> None:
            answers.append(await client.send(CodonNext()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await begun.wait()
            break_connections(server)
            with limited():
                await eventually(lambda: len(rest.callers) == 2)

            go.set()

        assert answers == [CodonChosen(codon_id=CodonId("one"))]
        assert len(rest.handled) == 1


def write_lock(execution: Path, port: int) -> None:
    lock = RuntimeLock(
        pid=os.getpid(), run_id=None, start_time=NOON, last_heartbeat=NOON, port=port
    )
    (execution / ".hankweave").mkdir(exist_ok=True)
    (execution / ".hankweave" / "runtime.lock").write_bytes(encode(lock))


@dataclass
class Life:
    """A server in a task of its own, so that a session can outlive it."""

    rest: SmallRest
    folder: Path
    over: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    async def live(self, *, task_status: TaskStatus[SmallServer]) -> None:
        async with small_server(self.folder, self.rest, grace_seconds=0.1) as server:
            write_lock(self.folder, server.listener.port)
            task_status.started(server)
            await self.over.wait()

        (self.folder / ".hankweave" / "runtime.lock").unlink()
        self.gone.set()

    async def end(self) -> None:
        self.over.set()
        await self.gone.wait()


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    """The session continues with a new port and token; uncertain commands raise ConnectionLost."""
    started = anyio.Event()

    async def hang(command: Command, caller: Caller) -> CommandAnswer:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    rest = SmallRest(handler=hang)
    errors: list[ConnectionLost] = []

    async def ask(client: Client) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await client.send(RollbackToLastSuccess())

        errors.append(lost.value)

    async with anyio.create_task_group() as group:
        life = Life(rest, tmp_path)
        first: SmallServer = await group.start(life.live)
        token = first.controller
        async with (
            connect_to(tmp_path, since_seq=0, reconnect=QUICK) as client,
            anyio.create_task_group() as asking,
        ):
            asking.start_soon(ask, client)
            await started.wait()
            rest.publish()
            await life.end()
            rest.publish(ServerStarted(server_version="0", pid=1))
            life = Life(rest, tmp_path)
            second: SmallServer = await group.start(life.live)
            assert second.url != first.url
            assert second.controller != token
            with limited():
                assert [event.seq async for event in _first(client, 2)] == [1, 2]

        assert "may have been done" in str(errors[0])
        assert len(rest.handled) == 1
        await life.end()


async def test_a_session_that_only_commands_keeps_a_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread events beyond the inbox are fetched from the journal when they are read."""
    monkeypatch.setattr(client_module, "Inbox", lambda: Inbox(capacity=50))
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server, session(server) as client:
        for _ in range(1_000):
            rest.publish()
            await asyncio.sleep(0)

        await client.send(Ping())
        assert client.last_seq == 50
        with limited():
            seqs = [event.seq async for event in _first(client, 1_000)]

        assert seqs == list(range(1, 1_001))


async def test_without_reconnecting_a_goodbye_ends_the_events(tmp_path: Path) -> None:
    """An orderly end of the server ends the iteration; later commands raise ConnectionLost."""
    async with small_server(tmp_path) as server, session(server, reconnect=False) as client:
        server.rest.publish()
        await server.listener.aclose()
        with limited():
            assert [event.seq async for event in client.events()] == [1]

        with pytest.raises(ConnectionLost):
            await client.send(GetState())


async def test_without_reconnecting_a_broken_connection_is_an_error(tmp_path: Path) -> None:
    """Events and pending commands end with ConnectionLost, which is a ConnectionError."""

    async def hang(command: Command, caller: Caller) -> CommandAnswer:
        break_connections(server)
        await asyncio.sleep(0)
        return CommandAnswer(data=None)

    async with (
        small_server(tmp_path, SmallRest(handler=hang)) as server,
        session(server, reconnect=False) as client,
    ):
        with limited():
            with pytest.raises(ConnectionError):
                await client.send(GetState())

            with pytest.raises(ConnectionLost):
                await client.until(Info)


async def test_a_wrong_token_is_unauthorized_at_once(tmp_path: Path) -> None:
    """Connecting fails and is not retried."""
    async with small_server(tmp_path) as server:
        for token in ("0" * 64, None):
            with pytest.raises(Unauthorized):
                async with connect(server.url, token=token):
                    pass


async def test_another_executions_seq_is_refused(tmp_path: Path) -> None:
    """A seq beyond the journal does not belong to this server's history."""
    async with small_server(tmp_path) as server:
        with pytest.raises(CommandRefused) as refused:
            async with session(server, since_seq=7):
                pass

    assert refused.value.path == "$.data.sinceSeq"


async def test_a_missing_server_is_not_running(tmp_path: Path) -> None:
    """No lock, no port yet, a dead pid, or no listener at the port: NotRunning each time."""
    with pytest.raises(NotRunning):
        discover(tmp_path)

    write_lock(tmp_path, 1)
    with pytest.raises(NotRunning):
        async with connect_to(tmp_path):
            pass

    lock = tmp_path / ".hankweave" / "runtime.lock"
    for content in (b"{", lock.read_bytes().replace(str(os.getpid()).encode(), b"4194304")):
        lock.write_bytes(content)
        with pytest.raises(NotRunning):
            discover(tmp_path)


async def test_a_server_that_accepts_and_says_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a handshake that takes too long says whom it waited for, and how long."""
    monkeypatch.setattr(link_module, "OPEN_SECONDS", 0)
    with create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        write_lock(tmp_path, port)
        with pytest.raises(TimeoutError, match=rf":{port}\S* did not answer within 0 seconds"):
            async with connect_to(tmp_path):
                pass


async def test_an_event_that_does_not_come_is_named(tmp_path: Path) -> None:
    """The error of a wait that takes too long says what it waited for."""
    async with small_server(tmp_path) as server, session(server) as client:
        with pytest.raises(TimeoutError, match=r"No server\.idle came within 0 seconds"):
            await client.until(ServerIdle, timeout=0)


def test_an_error_without_a_text_has_a_reason() -> None:
    """Its kind is the reason; any other error's is its text."""
    assert reason_of(TimeoutError()) == "timeout"
    assert reason_of(ConnectionResetError()) == "connection reset"
    assert reason_of(EOFError(" ")) == "eoferror"
    assert reason_of(OSError(2, "No such file")) == "[Errno 2] No such file"


async def test_discovery_finds_port_and_token(tmp_path: Path) -> None:
    """The controller's token is used if it can be read, else the viewer's."""
    async with small_server(tmp_path) as server:
        write_lock(tmp_path, server.listener.port)
        address = discover(tmp_path)
        assert (address.url, address.token) == (server.url, server.controller)
        server.settings.controller_token.unlink()
        assert discover(tmp_path).token == server.viewer


def test_delays_double_with_jitter_up_to_a_limit() -> None:
    """Each delay lies between half the ceiling and the ceiling; attempts are counted."""
    backoff = Backoff(first=1, longest=5, attempts=5)
    assert list(backoff.delays(lambda low, high: high)) == [1, 2, 4, 5, 5]
    assert list(backoff.delays(lambda low, high: low)) == [0.5, 1, 2, 2.5, 2.5]


async def test_giving_up_raises_the_last_failure(tmp_path: Path) -> None:
    """After the last attempt the session ends with the error of that attempt."""
    twice = Backoff(first=0.01, longest=0.01, attempts=2)
    async with anyio.create_task_group() as group:
        life = Life(SmallRest(), tmp_path)
        server: SmallServer = await group.start(life.live)
        async with session(server, reconnect=twice) as client:
            await life.end()
            with limited(), pytest.raises(NotRunning):
                await client.until(Info)
