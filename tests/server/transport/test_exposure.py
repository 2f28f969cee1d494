"""Claims about exposure: which settings are refused, and which requests an open port accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from hankweave_client.discovery import discover
from hankweave_protocol import codec
from hankweave_protocol.records import RuntimeLock
from hankweave_server.config import SETTINGS
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import RunSettings
from hankweave_server.transport.exposure import Exposure, exposure_of
from support.small_server import UPGRADE, SmallServer, small_server

PUBLISHED = "http://127.0.0.1:8080"
PROXY = "https://hankweave.example.org"
LAN = "http://192.0.2.7:7777"


@pytest.mark.parametrize(
    ("exposure", "no_token", "named"),
    [
        (Exposure("0.0.0.0"), False, "--public-url http://127.0.0.1:PORT"),
        (Exposure("::"), False, "--public-url https://NAME"),
        (Exposure("0.0.0.0", without_tls=True), False, "--public-url"),
        (Exposure("192.0.2.7"), False, "--without-tls"),
        (Exposure("0.0.0.0", LAN), False, "--without-tls"),
        (Exposure("127.0.0.1", LAN), False, "--without-tls"),
        (Exposure("0.0.0.0", PUBLISHED), True, "--no-token"),
        (Exposure("127.0.0.1", PROXY), True, "--no-token"),
        (Exposure("192.0.2.7", without_tls=True), True, "--no-token"),
    ],
)
def test_an_open_port_without_address_tls_or_token_is_refused(
    exposure: Exposure, no_token: bool, named: str
) -> None:
    """The start ends with a hint that names the missing option."""
    with pytest.raises(Stop) as stop:
        exposure.refuse_insecure(no_token=no_token)

    assert stop.value.exit_code == ExitCode.CONFIGURATION
    assert named in (stop.value.hint or "")


@pytest.mark.parametrize(
    ("exposure", "page", "notes"),
    [
        (Exposure(), "http://127.0.0.1:7777", []),
        (Exposure("::1"), "http://[::1]:7777", []),
        (Exposure("127.0.0.1", PROXY), PROXY, []),
        (Exposure("0.0.0.0", PROXY), PROXY, ["note"]),
        (Exposure("0.0.0.0", PUBLISHED), PUBLISHED, ["note"]),
        (Exposure("::", LAN, without_tls=True), LAN, ["note", "warning"]),
        (Exposure("192.0.2.7", without_tls=True), LAN, ["note", "warning"]),
    ],
)
def test_a_server_prints_the_address_of_its_page_and_its_risks(
    exposure: Exposure, page: str, notes: list[str]
) -> None:
    """The address is the public one; a port beyond loopback and plain text are mentioned."""
    exposure.refuse_insecure(no_token=False)
    assert exposure.page(7777) == page
    assert [note.partition(":")[0] for note in exposure.notes()] == notes


def test_servers_that_programs_start_stay_on_loopback() -> None:
    """An attempt or an ephemeral server does not take over the user's host and address."""
    settings = RunSettings(hank=None, data=None, host="0.0.0.0", public_url=PROXY)
    assert exposure_of(settings.on_loopback()) == Exposure()


def test_a_page_without_encryption_is_not_that_of_a_proxy_with_tls() -> None:
    """An attacker on the network may serve one under the same name."""
    assert PROXY in Exposure(public_url=PROXY).origins(7777)
    assert PROXY.replace("https", "http") not in Exposure(public_url=PROXY).origins(7777)
    assert Exposure(public_url=PUBLISHED).origins(7777) >= {PUBLISHED, "http://localhost:7777"}


async def status(server: SmallServer, host: str, origin: str) -> int:
    """Ask for an upgrade with the right token; return the status."""
    path = f"/ws?token={server.controller}"
    return (await server.ask(path, *UPGRADE, f"Origin: {origin}", host=host)).status


@pytest.mark.parametrize("exposure", [Exposure("0.0.0.0", PUBLISHED), Exposure("::", PROXY)])
async def test_an_open_port_still_refuses_rebound_names(tmp_path: Path, exposure: Exposure) -> None:
    """Only loopback's names and the public address get in, with a page of either."""
    async with small_server(tmp_path, exposure=exposure) as server:
        port = server.listener.port
        own = f"127.0.0.1:{port}"
        public = exposure.page(port)
        name = public.partition("://")[2]
        for host, origin, expected in (
            (own, f"http://{own}", 101),
            (name, public, 101),
            (name, f"http://evil.example:{port}", 403),
            (f"evil.example:{port}", public, 403),
            ("evil.example", public, 403),
            (f"{name}.evil.example", public, 403),
            (f"0.0.0.0:{port}", f"http://0.0.0.0:{port}", 403),
            (f"192.0.2.7:{port}", f"http://192.0.2.7:{port}", 403),
        ):
            assert await status(server, host, origin) == expected, (host, origin)


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
async def test_programs_of_this_machine_find_a_server_on_another_address(
    tmp_path: Path, host: str
) -> None:
    """The lock names the address, the client connects there, and the page's name is accepted."""
    async with small_server(tmp_path, exposure=Exposure(host)) as server:
        listener = server.listener
        lock = RuntimeLock(
            pid=1,
            run_id=None,
            start_time="",
            last_heartbeat="",
            port=listener.port,
            host=listener.local_host,
        )
        (tmp_path / ".hankweave" / "runtime.lock").write_bytes(codec.encode(lock))
        address = discover(tmp_path)
        assert address.url == listener.url
        async with connect(f"{address.url}?token={address.token}", proxy=None):
            pass

        name = listener.page_url.removeprefix("http://")
        assert await status(server, name, listener.page_url) == 101


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("host", "localhost", "127.0.0.1"),
        ("host", "0.0.0.0", "0.0.0.0"),
        ("host", "0:0:0:0:0:0:0:0", "::"),
        ("host", "example.org", None),
        ("host", "fe80::1%eth0", None),
        ("host", "", None),
        ("publicUrl", "https://Hank.Example.org/", "https://hank.example.org"),
        ("publicUrl", "https://hank.example.org:443", "https://hank.example.org"),
        ("publicUrl", "http://[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080"),
        ("publicUrl", "http://127.0.0.1:80", "http://127.0.0.1"),
        ("publicUrl", "https://hank.example.org/page", None),
        ("publicUrl", "https://user@hank.example.org", None),
        ("publicUrl", "https://hank.example.org:70000", None),
        ("publicUrl", "http://[1]", None),
        ("publicUrl", "ws://hank.example.org", None),
        ("publicUrl", "hank.example.org", None),
    ],
)
def test_addresses_are_read_as_a_browser_writes_them(
    key: str, text: str, value: str | None
) -> None:
    """A public address is compared with Host and Origin as it is, so it is normalised first."""
    parse = SETTINGS[key].parse
    if value is not None:
        assert parse(text) == value
        return

    with pytest.raises(ValueError, match=r"expected|permitted|At least"):
        parse(text)
