"""Requests before the upgrade and clients before their handshake receive nothing.

The whole matrix of hosts, origins and tokens is in `tests/server/transport/test_http_handler.py`;
here the same checks run in a real process, against a web page and a malicious client.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import msgspec
import pytest

from intruders.servers import target
from intruders.wire import ask, frame, peer, port_of, request
from support.small_server import small_server

STRANGE = [
    b"GET //[ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET //[?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET http://[::1/ws HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET /ws?token=%ff%00 HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n\r\n",
    b"GET /ws?" + b"token=&" * 500 + b" HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n\r\n",
    b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\nX: \x00\r\n\r\n",
    b"GET /\xe2\x84\x80 HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET /../../.hankweave/server.token HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/1.1\nHost: {host}\n\n",
    b"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
    b"\x00\r\n\r\n",
]
FAKE_HOSTS = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost",
    "[::ffff:127.0.0.1]",
    "2130706433",
]


async def test_a_strange_request_is_turned_away_and_leaves_no_trace(tmp_path: Path) -> None:
    """Any request line or headers get no upgrade, no traceback and no token."""
    async with target(tmp_path) as aim:
        port = port_of(aim.url)
        log = aim.log("server.log")
        for text in STRANGE:
            text = text.replace(b"{host}", b"127.0.0.1:%d" % port)
            answer = await ask(port, text.replace(b"{token}", aim.controller.encode()))
            assert not answer.startswith((b"HTTP/1.1 1", b"HTTP/1.1 5")), (text[:60], answer)
            assert b"root:" not in answer
            assert aim.controller.encode() not in answer

        assert aim.log("server.log") == log


@pytest.mark.parametrize("path", ["/", "/ws", "/healthz", "/metrics", "/app.js"])
async def test_a_name_that_was_bound_to_loopback_reaches_nothing(tmp_path: Path, path: str) -> None:
    """DNS rebinding: with the page's own name in Host, even a valid token gets 403."""
    async with small_server(tmp_path) as server:
        port = port_of(server.url)
        token = f"Authorization: Bearer {server.controller}"
        for name, suffix in product(FAKE_HOSTS, ("", f":{port}")):
            host = name + suffix
            if host == f"localhost:{port}":
                continue

            answer = await ask(port, request(port, path, token, host=host))
            assert answer.startswith(b"HTTP/1.1 403 "), (host, answer)
            plain = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n"
            assert (await ask(port, plain.encode())).startswith(b"HTTP/1.1 403 "), host

        assert server.rest.callers == []


@pytest.mark.story("No web page but the server's own gets in.", of="SECURITY.md")
async def test_a_web_page_gets_in_from_nowhere(tmp_path: Path) -> None:
    """A page's Origin is refused with any token, and no page can read the response."""
    async with small_server(tmp_path) as server:
        port = port_of(server.url)
        for origin in (
            "http://evil.example",
            "https://127.0.0.1",
            "null",
            "file://",
            "http://localhost",
        ):
            for token in (server.controller, server.viewer):
                asked = request(port, f"/ws?token={token}", f"Origin: {origin}")
                answer = await ask(port, asked)
                assert answer.startswith(b"HTTP/1.1 403 "), origin
                assert b"access-control-allow" not in answer.lower()


@pytest.mark.story("No event is sent before the token.", of="SECURITY.md")
async def test_before_the_token_nothing_is_disclosed(tmp_path: Path) -> None:
    """A client without a token receives no event, and is disconnected at its deadline."""
    async with small_server(tmp_path, handshake_seconds=3600) as server, peer(server.url) as late:
        for _ in range(5):
            for _ in range(10):
                server.rest.publish()

            late.send(frame(b'{"id":"1","type":"history.sync"}'))
            assert (await late.message())["data"]["code"] == "HANDSHAKE_REQUIRED"

        assert (server.rest.callers, server.rest.handled) == ([], [])

    async with (
        small_server(tmp_path / "impatient", handshake_seconds=0.05) as server,
        peer(server.url) as late,
    ):
        server.rest.publish()
        assert await late.close_code() == 1008
        assert (server.rest.callers, server.rest.handled) == ([], [])


@pytest.mark.parametrize("token", ["", "0" * 64, "x", "\x00", "é" * 32, "a" * 100_000, "{viewer}0"])
async def test_a_wrong_token_gets_only_its_refusal(tmp_path: Path, token: str) -> None:
    """A wrong token gets UNAUTHORIZED and 1008, and no other frame; no log contains the token."""
    async with small_server(tmp_path) as server:
        token = token.format(viewer=server.viewer)
        async with peer(server.url) as client:
            data = {"mode": "readonly", "protocolVersion": 1, "token": token}
            client.send(frame(msgspec.json.encode({"type": "handshake", "data": data})))
            assert (await client.message())["data"]["code"] == "UNAUTHORIZED"
            assert await client.close_code() == 1008

        log = server.settings.traffic_log

    assert len(token) < 4 or token not in log.read_text()
