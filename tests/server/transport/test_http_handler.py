"""Checks before the upgrade: hosts, origins, tokens, and the pages."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from hankweave_protocol.records import Problem
from hankweave_protocol.replies import MirrorStatus, ServerStatus, WatchStatus
from hankweave_protocol.state import NO_TOKENS, Tokens
from hankweave_server.transport.http import metrics_text
from support.attached import a_status
from support.small_server import UPGRADE, SmallServer, small_server

HOSTS = {
    "127.0.0.1:{port}": True,
    "localhost:{port}": True,
    "[::1]:{port}": True,
    "127.0.0.1": False,
    "127.0.0.1:1": False,
    "evil.example:{port}": False,
    "127.0.0.1.evil.example:{port}": False,
    "localhost.:{port}": False,
    None: False,
}
ORIGINS = {
    None: True,
    "http://127.0.0.1:{port}": True,
    "http://localhost:{port}": True,
    "https://127.0.0.1:{port}": False,
    "http://127.0.0.1": False,
    "http://evil.example": False,
    "http://localhost:{port}.evil.example": False,
    "null": False,
}
TOKENS = [
    "header",
    "query",
    "none",
    "wrong header",
    "wrong query",
    "wrong scheme",
    "both, one wrong",
    "both, two roles",
    "all but its end",
    "empty",
]


async def upgraded(
    server: SmallServer, path: str, host: str | None, origin: str | None, *headers: str
) -> int:
    """Ask for an upgrade; return the status."""
    if origin is not None:
        headers += (f"Origin: {origin.format(port=server.listener.port)}",)

    return (await server.ask(path, *UPGRADE, *headers, host=host)).status


def credentials(server: SmallServer, kind: str) -> tuple[str, tuple[str, ...], int]:
    """Return the path, the headers and the expected status."""
    right, wrong = server.controller, "0" * 64
    match kind:
        case "header":
            return "/ws", (f"Authorization: Bearer {right}",), 101
        case "query":
            return f"/?token={right}", (), 101
        case "none":
            return "/ws", (), 101
        case "wrong header":
            return "/ws", (f"Authorization: Bearer {wrong}",), 401
        case "wrong query":
            return f"/ws?token={wrong}", (), 401
        case "wrong scheme":
            return "/ws", (f"Authorization: Basic {right}",), 401
        case "all but its end":
            return f"/ws?token={right[:-1]}", (), 401
        case "empty":
            return "/ws?token=", (), 401
        case "both, two roles":
            return f"/ws?token={server.viewer}", (f"Authorization: Bearer {right}",), 401
        case _:
            return f"/ws?token={wrong}", (f"Authorization: Bearer {right}",), 401


async def test_host_origin_and_token_are_checked_before_the_upgrade(tmp_path: Path) -> None:
    """Only allowed hosts and origins avoid 403, and only then does a wrong token cause 401."""
    async with small_server(tmp_path) as server:
        for host, origin, kind in product(HOSTS, ORIGINS, TOKENS):
            path, headers, with_right_address = credentials(server, kind)
            expected = with_right_address if HOSTS[host] and ORIGINS[origin] else 403
            status = await upgraded(server, path, host, origin, *headers)
            assert status == expected, (host, origin, kind)

        assert server.rest.callers == []


async def test_two_hosts_or_two_origins_are_one_too_many(tmp_path: Path) -> None:
    """A request that names two addresses is ambiguous: 403."""
    async with small_server(tmp_path) as server:
        port = server.listener.port
        own = "127.0.0.1:{port}"
        for extra in (f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}"):
            assert await upgraded(server, "/ws", own, "http://127.0.0.1:{port}", extra) == 403


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/app.js", 200),
        ("GET", "/base.css", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 503),
        ("GET", "/metrics", 200),
        ("HEAD", "/healthz", 200),
        ("POST", "/healthz", 405),
        ("DELETE", "/", 405),
        ("GET", "/nothing", 404),
        ("GET", "/../auth.py", 404),
        ("GET", "/ws", 404),
    ],
)
async def test_the_pages(tmp_path: Path, method: str, path: str, status: int) -> None:
    """Each path has its status and a strict policy, and no request changes anything."""
    async with small_server(tmp_path) as server:
        server.rest.health = type(server.rest.health)(alive=True, ready=False)
        response = await server.ask(path, host="localhost:{port}", method=method)
        assert response.status == status
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "'unsafe" not in policy
        assert (response.body == b"") == (method == "HEAD")


async def test_an_upgrade_elsewhere_is_not_found(tmp_path: Path) -> None:
    """Upgrades are accepted only on `/ws` and on `/`."""
    async with small_server(tmp_path) as server:
        assert await upgraded(server, "/healthz", "127.0.0.1:{port}", None) == 404


async def test_metrics_come_as_they_were_given(tmp_path: Path) -> None:
    """`/metrics` serves the bytes that it was given, with Prometheus' content type."""
    async with small_server(tmp_path) as server:
        response = await server.ask("/metrics")
        assert response.body == b"hankweave_clients 1\n"
        assert "text/plain; version=0.0.4" in response.headers["content-type"]


def test_metrics_have_the_types_of_their_names() -> None:
    """A name that ends with `_total` is a counter; the tokens of the running codon are there."""
    status = ServerStatus(
        server_version="1",
        pid=1,
        execution_path="/e",
        started_at="",
        uptime_ms=1000,
        current_run_id=None,
        active_codon_id=None,
        next_codon_id=None,
        is_rolling_back=False,
        last_event_seq=9,
        total_cost=0.5,
        checkpoints=3,
        clients=1,
        lock=cast("Any", None),
        store_bytes=0,
        store_packs=0,
        store_loose_objects=0,
        containment="subreaper",
        watch=WatchStatus(active=True, reason=None, watched_scans=2, full_scans=1),
    )
    text = metrics_text(
        status,
        Tokens(input_tokens=1, output_tokens=2, cache_creation_tokens=3, cache_read_tokens=4),
    ).decode()
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert {name for name, kind in types.items() if kind == "counter"} == {
        name for name in types if name.endswith("_total")
    }
    assert {"hankweave_events_total", "hankweave_watched_scans_total"} <= types.keys()
    assert 'hankweave_running_codon_tokens{type="output"} 2.0' in text
    assert "mirror" not in text


def test_metrics_say_how_far_a_mirror_is_behind() -> None:
    """There are figures of it if there is one; none of them has its address."""
    mirror = MirrorStatus(
        address="git@host:mirror.git",
        mode="async",
        ttl_seconds=30.0,
        owner="here:/e",
        epoch=1,
        lease_held=False,
        lease_seconds_left=0.0,
        mirrored_seq=7,
        mirrored_bytes=700,
        events_behind=2,
        bytes_behind=200,
        seconds_behind=1.5,
        seconds_since_push=1.5,
        pushes=3,
        sent_bytes=4096,
    )
    lines = metrics_text(a_status(mirror=mirror), NO_TOKENS).decode().splitlines()
    assert {
        "hankweave_mirror_behind_events 2.0",
        "hankweave_mirror_behind_seconds 1.5",
        "hankweave_mirror_sent_bytes_total 4096.0",
        "hankweave_mirror_lease_held 0.0",
    } <= {*lines}
    assert not any("host" in line or "here" in line for line in lines)


FULL = Problem(code="INSUFFICIENT_SPACE", message="Full.", since="2025-01-04T12:00:00.000Z")


async def test_a_degraded_server_says_why_it_is_not_ready(tmp_path: Path) -> None:
    """`/readyz` is 503 with code, sentence and time; `/healthz` stays 200: the server runs."""
    async with small_server(tmp_path) as server:
        server.rest.health = type(server.rest.health)(
            alive=True, ready=False, detail="Full.", problems=(FULL,)
        )
        for path, expected in (("/readyz", 503), ("/healthz", 200)):
            response = await server.ask(path)
            assert response.status == expected
            page = json.loads(response.body)
            assert page["detail"] == "Full."
            assert page["problems"] == [
                {"code": FULL.code, "message": FULL.message, "since": FULL.since}
            ]


async def test_a_new_client_of_a_degraded_server_is_notified_at_once(tmp_path: Path) -> None:
    """A notice without a seq follows the greeting, because the journal may not have it yet."""
    async with small_server(tmp_path) as server:
        server.rest.health = type(server.rest.health)(
            alive=True, ready=False, detail="Full.", problems=(FULL,)
        )
        async with server.follower(mode="readonly") as client:
            event = await client.receive()

    assert (event["type"], "seq" in event) == ("server.degraded", False)
    assert event["data"]["code"] == "INSUFFICIENT_SPACE"
