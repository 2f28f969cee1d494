"""Every HTTP client of the server bounds what it reads, and follows no redirect."""

from __future__ import annotations

import ast
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

pytest.importorskip("anthropic", reason="the extra llm is not installed")
pytest.importorskip("openai", reason="the extra llm is not installed")
pytest.importorskip("apprise", reason="the extra notify is not installed")
pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from hankweave_server import bounded_requests
from hankweave_server.clock import SystemClock
from hankweave_server.config import WEBHOOK_SECRET
from hankweave_server.features.notifications import notifier as notify
from hankweave_server.features.notifications.notifications import Notification
from hankweave_server.features.notifications.notifier import (
    NotificationEnvelope,
    Undelivered,
    attempt,
    destinations,
)
from hankweave_server.features.tracing.environment import Wanted
from hankweave_server.features.tracing.otlp import open_exporter
from hankweave_server.features.tracing.spans import Span
from hankweave_server.sentinels.providers import transport
from hankweave_server.sentinels.providers.base import CallFailed, Message, ModelCall
from hankweave_server.sentinels.providers.registry import Models
from support.waiting import LIMIT, limited

pytestmark = pytest.mark.feature("notifications", "tracing")

SERVER = Path(__file__).resolve().parents[2] / "server" / "hankweave_server"
CLIENTS = {
    "bounded_requests.py",
    "features/notifications/notifier.py",
    "sentinels/providers/anthropic.py",
    "sentinels/providers/openai.py",
    "sentinels/providers/transport.py",
    "features/tracing/otlp.py",
}
LIBRARIES = {"aiohttp", "anthropic", "apprise", "http.client", "httpx", "httpx2", "openai"}
LIBRARIES |= {"opentelemetry.exporter", "requests", "urllib.request", "urllib3"}
MEBIBYTE = bytes(1 << 20)
ENDLESS = 256
"""Mebibytes after which an endless answer ends, so that a test fails instead of filling memory."""
TIME = "2026-01-01T00:00:00Z"
DONE = Notification("plan.finished", "Plan finished", "The plan is finished.", content="words")


@dataclass
class Rude:
    """An HTTP server that answers with a redirect to itself, or with an endless body."""

    port: int
    status: int = 200
    paths: list[str] = field(default_factory=list)
    sent: int = 0
    """Mebibytes of bodies."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering(status: int) -> Iterator[Rude]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            rude.paths.append(self.path)
            self.send_response(rude.status)
            if rude.status == 200:
                self.end_headers()
                self.endless()
            else:
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

        do_GET = do_POST

        def endless(self) -> None:
            try:
                for _ in range(ENDLESS):
                    self.wfile.write(MEBIBYTE)
                    rude.sent += 1
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        rude = Rude(server.server_address[1], status)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield rude
        finally:
            server.shutdown()


def ask(name: str) -> Callable[[Rude, pytest.MonkeyPatch], str]:
    def send(rude: Rude, _: pytest.MonkeyPatch) -> str:
        environment = {
            f"HANKWEAVE_SENTINEL_{provider}_{key}": value
            for provider in ("ANTHROPIC", "OPENAI")
            for key, value in (("API_KEY", "k"), ("BASE_URL", rude.url))
        }

        async def main() -> None:
            model = Models(environment, timeout=timedelta(seconds=LIMIT)).open(name)
            try:
                with limited():
                    await model.ask(ModelCall((Message("user", "hello"),), max_retries=0))
            finally:
                await model.aclose()

        with pytest.raises(CallFailed) as raised:
            anyio.run(main)

        return raised.value.message

    return send


def deliver(kind: str) -> Callable[[Rude, pytest.MonkeyPatch], str]:
    def send(rude: Rude, _: pytest.MonkeyPatch) -> str:
        hooks = [rude.url] if kind == "webhook" else []
        services = [] if hooks else [f"json://127.0.0.1:{rude.port}/hook"]
        secret = {WEBHOOK_SECRET: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
        (destination,) = destinations(hooks, services, secret, SystemClock())
        envelope = NotificationEnvelope(
            "msg_1", "2026-01-01T00:00:00Z", "tonight", DONE, with_content=False
        )

        async def main() -> str:
            try:
                with limited():
                    await attempt(destination, envelope)
            except Undelivered as error:
                return str(error)

            return ""

        return anyio.run(main)

    return send


def export(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", rude.url)
    monkeypatch.setattr("hankweave_server.features.tracing.otlp.FLUSH", LIMIT)
    output: list[str] = []
    monkeypatch.setattr(
        "hankweave_server.features.tracing.otlp.log",
        type("Log", (), {"warning": lambda _, text, *words: output.append(text % words)})(),
    )
    exporter = open_exporter(Wanted(traces=True, metrics=False, with_content=False), "tonight")
    exporter.open_log()
    exporter.send(Span("one", 1, 2, None, 1, {}).ended(2))
    exporter.close(within=LIMIT)
    return "\n".join(output)


SENDERS = {
    "anthropic": ask("anthropic/claude-test"),
    "openai": ask("openai/gpt-test"),
    "collector": export,
    "webhook": deliver("webhook"),
    "service": deliver("service"),
}


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what the clients configure for the whole process."""
    import requests.sessions

    monkeypatch.setattr("requests.sessions.HTTPAdapter", requests.sessions.HTTPAdapter)
    library = logging.getLogger("opentelemetry")
    handlers = list(library.handlers)
    yield
    library.handlers[:] = handlers or [logging.NullHandler()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("sender", SENDERS)
def test_an_endless_answer_is_cut_off(sender: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read part is bounded; a webhook and a service count by their status."""
    with answering(200) as rude:
        output = SENDERS[sender](rude, monkeypatch)

    assert rude.paths
    assert rude.sent < ENDLESS // 2
    if sender not in ("webhook", "service"):
        assert "larger than" in output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("sender", SENDERS)
def test_a_redirect_is_reported_and_not_followed(
    sender: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in a header stays with the host that was named, and nothing is lost in silence."""
    with answering(status) as rude:
        output = SENDERS[sender](rude, monkeypatch)

    assert "/elsewhere" not in rude.paths
    assert str(status) in output or sender == "service"
    assert "redirects are not followed" in output or "did not accept" in output


@pytest.mark.parametrize("sender", ["anthropic", "collector"])
def test_an_answer_that_takes_too_long_is_given_up(
    sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is one for the whole body, not one for each read."""
    monkeypatch.setattr(bounded_requests, "LARGEST", 1 << 40)
    monkeypatch.setattr(transport, "LARGEST", 1 << 40)
    monkeypatch.setattr(bounded_requests, "LONGEST", 0.0)
    at_once = transport.fail_after
    monkeypatch.setattr(transport, "fail_after", lambda _: at_once(0))
    with answering(200) as rude:
        output = SENDERS[sender](rude, monkeypatch)

    assert rude.sent < ENDLESS // 2
    assert "took longer" in output or "timed out" in output


async def test_a_destination_that_never_ends_its_headers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt has a limit; a thread that hangs delays no other notification."""
    monkeypatch.setattr(notify, "LONGEST", 0.0)
    hanging = threading.Event()

    class Hangs:
        label = "webhook 1"

        def send(self, _: NotificationEnvelope) -> None:
            hanging.wait(LIMIT)

    envelope = NotificationEnvelope(
        "msg_1", "2026-01-01T00:00:00Z", "tonight", DONE, with_content=False
    )
    with pytest.raises(Undelivered, match="no answer within") as raised:
        await attempt(Hangs(), envelope)

    hanging.set()
    assert raised.value.is_final


def test_the_clients_of_this_module_are_all() -> None:
    """A module that sends HTTP requests has its place in the tests above."""
    found = set()
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]

            if any(f"{name}.".startswith(f"{each}.") for name in names for each in LIBRARIES):
                found.add(path.relative_to(SERVER).as_posix())

    assert found == CLIENTS
