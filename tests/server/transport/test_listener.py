"""The listener over real sockets: two roles, a bounded shutdown, and a traffic log."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio.trsock import TransportSocket
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from hankweave_protocol.commands import Command
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.transport.exposure import Exposure
from hankweave_server.transport.listener import serve
from support.small_server import SmallRest, settings_in, small_server
from support.waiting import LIMIT, eventually, limited


async def test_a_handshake_is_answered_by_response_ready_and_snapshot(tmp_path: Path) -> None:
    """A protocolVersion client gets the response without id or timestamp, ready, and snapshot."""
    async with small_server(tmp_path) as server, server.raw() as client:
        server.rest.publish()
        server.rest.publish()
        await client.send(
            {
                "type": "handshake",
                "data": {"mode": "readonly", "protocolVersion": 1, "sendPreviousEvents": True},
            }
        )
        response = await client.receive()
        assert response.keys() == {"type", "data"}
        assert response["type"] == "handshake.response"
        assert [event["seq"] for event in response["data"]["eventHistory"]] == [2, 1]
        assert response["data"]["totalEvents"] == 2
        assert response["data"]["mode"] == "readonly"
        assert [(await client.receive())["type"] for _ in range(2)] == [
            "server.ready",
            "state.snapshot",
        ]
        server.rest.publish()
        assert (await client.receive())["seq"] == 3
        assert [caller.mode for caller in server.rest.callers] == ["readonly"]


async def test_a_client_without_protocol_version_gets_hankweaves_behaviour(tmp_path: Path) -> None:
    """Such a client gets no snapshot and no replies, only events."""
    async with (
        small_server(tmp_path) as server,
        server.raw(mode="readandwrite") as client,
    ):
        await client.send({"id": "1", "type": "codon.next"})
        await client.send({"id": "2", "type": "codon.nxt"})
        error = await client.receive()
        assert error["type"] == "error"
        assert "seq" not in error
        assert error["data"]["code"] == "UNKNOWN_COMMAND"
        assert error["data"]["fatal"] is False
        assert error["data"]["severity"] == "operation"
        assert [command.type for command in server.rest.handled] == ["codon.next"]


async def test_no_answer_waits_for_an_acknowledgement(tmp_path: Path) -> None:
    """Each write is sent at once: a reply may follow an event that was not acknowledged yet."""
    async with small_server(tmp_path) as server, server.raw(mode="readonly"):
        (served,) = server.listener._sockets
        opened = served.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_the_role_comes_from_the_token(tmp_path: Path) -> None:
    """A viewer that asks for readandwrite is granted readonly and cannot shut down the server."""
    async with (
        small_server(tmp_path) as server,
        connect(server.url, proxy=None) as socket,
    ):
        await socket.send(
            '{"type":"handshake","data":{"mode":"readandwrite","protocolVersion":1,"token":"'
            + server.viewer
            + '"}}'
        )
        assert '"mode":"readonly"' in await socket.recv(decode=True)
        await socket.recv()
        await socket.recv()
        await socket.send('{"id":"s","type":"server.shutdown"}')
        refusal = await socket.recv(decode=True)
        assert "INSUFFICIENT_PERMISSIONS" in refusal
        assert server.rest.handled == []


async def test_a_wrong_token_in_the_handshake_ends_with_1008(tmp_path: Path) -> None:
    """The client receives UNAUTHORIZED, then the socket closes for a policy violation."""
    async with (
        small_server(tmp_path) as server,
        connect(server.url, proxy=None) as socket,
    ):
        await socket.send(
            '{"type":"handshake","data":{"mode":"readonly","protocolVersion":1,"token":"x"}}'
        )
        assert "UNAUTHORIZED" in await socket.recv(decode=True)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert server.rest.callers == []


async def test_a_client_without_a_handshake_is_disconnected(tmp_path: Path) -> None:
    """After the handshake deadline the socket closes with 1008."""
    async with (
        small_server(tmp_path, handshake_seconds=0.2) as server,
        server.raw() as client,
    ):
        with limited(), pytest.raises(ConnectionClosed) as closed:
            await client.socket.recv()

        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_tokens_are_for_the_owner_and_die_with_the_server(tmp_path: Path) -> None:
    """The files are 0600, hold the bare token and a newline, and last as long as the server."""
    seen = set()
    for _ in range(2):
        async with small_server(tmp_path) as server:
            for path in (server.settings.controller_token, server.settings.viewer_token):
                assert path.stat().st_mode & 0o777 == 0o600
                text = path.read_text()
                assert len(bytes.fromhex(text.removesuffix("\n"))) == 32
                seen.add(text)

        assert not path.exists()

    assert len(seen) == 4


async def served(folder: Path, **settings: Any) -> tuple[int, str, str]:
    """Return the port and the tokens of a server that keeps its address."""
    address = folder / ".hankweave" / "server.address"
    async with small_server(folder, address=address, **settings) as server:
        if server.settings.no_token:
            return server.listener.port, "", ""

        return server.listener.port, server.controller, server.viewer


async def test_an_address_survives_a_restart(tmp_path: Path) -> None:
    """Port and tokens are those of the server before, also after one without tokens."""
    first = await served(tmp_path)
    kept = tmp_path / ".hankweave" / "server.address"
    before = kept.stat()
    assert before.st_mode & 0o777 == 0o600
    assert await served(tmp_path) == first
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    assert (await served(tmp_path, no_token=True))[0] == first[0]
    assert await served(tmp_path) == first
    assert (await served(tmp_path / "another"))[1:] != first[1:]


async def test_new_tokens_hold_from_then_on(tmp_path: Path) -> None:
    """Both are other ones, the port stays, and later starts have the new ones."""
    port, *former = await served(tmp_path)
    renewed = await served(tmp_path, new_tokens=True)
    assert renewed[0] == port
    assert not {*former} & {*renewed[1:]}
    assert await served(tmp_path) == renewed


async def test_tokens_are_kept_before_they_open_anything(tmp_path: Path) -> None:
    """Where they cannot be, the start fails: the former ones would hold again after it."""
    await served(tmp_path)
    kept = tmp_path / ".hankweave" / "server.address"
    kept.with_name("server.address.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        await served(tmp_path, new_tokens=True)

    assert not kept.with_name("server.token").exists()


async def test_a_port_that_is_taken_meanwhile_gives_way_to_another(tmp_path: Path) -> None:
    """The tokens stay; the next start has the new port. A port that was asked for is required."""
    port, *tokens = await served(tmp_path)
    with socket.create_server(("127.0.0.1", port)):
        moved, *kept = await served(tmp_path)
        with pytest.raises(Stop):
            await served(tmp_path, port=port)

    assert moved != port
    assert kept == tokens
    assert (await served(tmp_path))[0] == moved
    assert (await served(tmp_path, port=port))[0] == port
    assert (await served(tmp_path))[0] == port


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "[" * 100_000,
        "\xff",
        '{"port": 70000}',
        '{"port": 0, "tokens": {"controller": "", "viewer": ""}}',
        '{"tokens": {"controller": "a", "viewer": "b"}}',
    ],
)
async def test_a_damaged_address_is_that_of_a_first_start(tmp_path: Path, damaged: str) -> None:
    """No token is taken from it, least of all an empty one, and the file is written anew."""
    kept = tmp_path / ".hankweave" / "server.address"
    kept.parent.mkdir()
    kept.write_bytes(damaged.encode("latin-1"))
    first = await served(tmp_path)
    assert all(len(bytes.fromhex(token)) == 32 for token in first[1:])
    assert await served(tmp_path) == first


async def test_without_tokens_everyone_on_loopback_is_a_controller(tmp_path: Path) -> None:
    """`--no-token` writes no files, removes stale ones, and grants readandwrite."""
    settings = settings_in(tmp_path, no_token=True)
    settings.controller_token.parent.mkdir()
    settings.controller_token.write_text("stale\n")
    rest = SmallRest()
    async with (
        serve(rest.server_api(), settings) as listener,
        connect(listener.url, proxy=None) as socket,
    ):
        assert not settings.controller_token.exists()
        await socket.send('{"type":"handshake","data":{"mode":"readandwrite"}}')
        assert '"mode":"readandwrite"' in await socket.recv(decode=True)


async def test_an_unsafe_exposure_is_refused_before_a_socket_is_opened(tmp_path: Path) -> None:
    """No port and no token is left behind."""
    settings = settings_in(tmp_path, exposure=Exposure("0.0.0.0"))
    with pytest.raises(Stop) as stop:
        async with serve(SmallRest().server_api(), settings):
            pass

    assert stop.value.exit_code == ExitCode.CONFIGURATION
    assert list(tmp_path.iterdir()) == []


async def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    """A port in use is reported as a Stop with a hint, without a traceback or a group."""
    async with small_server(tmp_path) as server:
        with pytest.raises(Stop) as stop:
            async with serve(
                SmallRest().server_api(), settings_in(tmp_path / "other", port=server.listener.port)
            ):
                pass

    assert stop.value.exit_code == ExitCode.UNAVAILABLE
    assert stop.value.hint is not None


async def test_an_exception_of_the_block_is_raised_unwrapped(tmp_path: Path) -> None:
    """The listener's task group does not wrap exceptions of the block."""
    with pytest.raises(KeyError):
        async with small_server(tmp_path):
            raise KeyError("mine")


async def test_stopping_sends_1001_to_reading_clients(tmp_path: Path) -> None:
    """A client that reads gets all events and a goodbye within the grace."""
    rest = SmallRest()
    async with (
        small_server(tmp_path, rest, grace_seconds=LIMIT) as server,
        server.raw(mode="readonly") as client,
    ):
        for _ in range(100):
            rest.publish()

        with limited():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.listener.aclose)
                assert len([frame async for frame in client.socket]) == 100

        assert client.socket.close_code == 1001


async def test_stopping_does_not_wait_for_stalled_clients(tmp_path: Path) -> None:
    """Stalled and silent clients are cut off after the grace."""
    rest = SmallRest()
    async with small_server(tmp_path, rest, grace_seconds=0.05) as server:
        silent = socket.create_connection(("127.0.0.1", server.listener.port))
        async with server.raw(mode="readonly") as stalled:
            stalled.socket.transport.pause_reading()
            for _ in range(100):
                rest.publish()

            with limited():
                await server.listener.aclose()

            stalled.socket.transport.abort()

        silent.close()


async def test_more_connections_than_allowed_are_cut_off(tmp_path: Path) -> None:
    """The cap counts sockets from their first byte, with or without a handshake."""
    async with small_server(tmp_path, max_connections=2) as server:
        kept = [socket.create_connection(("127.0.0.1", server.listener.port)) for _ in range(2)]
        await eventually(lambda: server.listener.connections == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
        with limited(), contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""

        writer.close()
        for each in kept:
            each.close()


async def test_an_unwelcome_connection_is_closed_before_it_is_read(tmp_path: Path) -> None:
    """It gets no answer, not even to a request that needs no token; others are served."""
    unwelcome: set[int] = set()

    def is_refused(connection: TransportSocket) -> bool:
        return connection.getpeername()[1] in unwelcome

    async with small_server(tmp_path, is_refused=is_refused) as server:
        for answer in (b"HTTP/1.1 200 OK", b""):
            client = socket.socket()
            client.bind(("127.0.0.1", 0))
            if not answer:
                unwelcome.add(client.getsockname()[1])

            client.setblocking(False)
            with limited(), contextlib.suppress(ConnectionResetError):
                address = ("127.0.0.1", server.listener.port)
                await asyncio.get_running_loop().sock_connect(client, address)
                reader, writer = await asyncio.open_connection(sock=client)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % address[1])
                assert (await reader.read(64)).startswith(answer)
                assert answer or reader.at_eof()
                writer.close()


async def test_a_command_continues_after_its_client_disconnects(tmp_path: Path) -> None:
    """A rollback is completed even if its client disconnects."""
    begun, finished, go = anyio.Event(), anyio.Event(), anyio.Event()

    async def slow(command: Command, caller: Caller) -> CommandAnswer:
        begun.set()
        await go.wait()
        finished.set()
        return CommandAnswer(data=None)

    rest = SmallRest(handler=slow)
    async with small_server(tmp_path, rest) as server:
        async with server.raw(mode="readandwrite", protocolVersion=1) as client:
            await client.send({"id": "1", "type": "rollback.toLastSuccess"})
            with limited():
                await begun.wait()

        go.set()
        with limited():
            await finished.wait()

        assert finished.is_set()
