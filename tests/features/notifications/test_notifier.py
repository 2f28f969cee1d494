"""Delivery of notifications to a real HTTP receiver and a real mail server."""

from __future__ import annotations

import base64
import email
import email.policy
import logging
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from hankweave_server.clock import SystemClock
from hankweave_server.config import WEBHOOK_SECRET
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.notifications.command import notify
from hankweave_server.features.notifications.notifications import Notification
from hankweave_server.features.notifications.notifier import (
    NotificationEnvelope,
    Notifier,
    destinations,
    signature,
)
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually, limited

KEY = b"0123456789abcdef0123456789abcdef"
WHSEC = f"whsec_{base64.b64encode(KEY).decode()}"
PASSWORD = "hunter2-in-the-url"
DONE = Notification("plan.finished", "Plan finished", "The plan is finished.", content="words")
PROMPTLY = (0.01, 0.01)
USES_APPRISE = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""Some of its plugins import modules that Python is going to remove."""


@dataclass
class Receiver:
    """An HTTP server that answers with the given statuses, then with 204."""

    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://user:{PASSWORD}@127.0.0.1:{self.port}/hook"

    def bodies(self) -> list[Any]:
        """Return the bodies, each verified by the official library."""
        official = Webhook(WHSEC)
        return [official.verify(body, dict(headers)) for headers, body in self.requests]

    def ids(self) -> list[str]:
        return [headers["Webhook-Id"] for headers, _ in self.requests]


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append((dict(self.headers.items()), body))
            status = receiver.statuses.pop(0) if receiver.statuses else 204
            self.send_response(status)
            if status == 302:
                self.send_header("location", "/elsewhere")

            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()


@contextmanager
def mail_server(*replies: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of an SMTP server and the mails that it has received.

    It gives the replies to the first mails, and takes all further ones.
    """
    mails: list[str] = []
    answers = list(replies)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.reply("220 test")
            for line in iter(self.rfile.readline, b""):
                match line.split()[0].upper():
                    case b"DATA":
                        self.reply("354 go on")
                        lines = iter(self.rfile.readline, b".\r\n")
                        mails.append(b"".join(lines).decode())
                        self.reply(answers.pop(0) if answers else "250 taken")
                    case b"QUIT":
                        self.reply("221 bye")
                        return
                    case _:
                        self.reply("250 ok")

        def reply(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], mails
        finally:
            server.shutdown()


def mail_url(port: int) -> str:
    return f"mailto://127.0.0.1:{port}?from=me@example.org&to=you@example.org&mode=insecure"


async def delivered(*urls: str, services: tuple[str, ...] = (), **settings: Any) -> None:
    """Deliver one notification to all destinations, with prompt retries."""
    clock = SystemClock()
    notifier = Notifier(
        destinations(urls, services, {WEBHOOK_SECRET: WHSEC}, clock),
        clock,
        execution="tonight",
        delays=PROMPTLY,
        **{"with_content": False, **settings},
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run)
        notifier.call(DONE)
        with limited():
            for outbox in notifier._outboxes:
                await outbox.emptied.wait()

        tasks.cancel_scope.cancel()


def test_the_signature_is_that_of_the_specification() -> None:
    """A test vector of the official libraries."""
    body = b'{"event_type":"ping","data":{"success":true}}'
    key = base64.b64decode("plJ3nmyCDGBKInavdOK15jsl")
    made = signature(key, "msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert made == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


async def test_the_official_library_verifies_a_webhook() -> None:
    """It has no content; the password of its URL becomes a header."""
    with receiving() as receiver:
        await delivered(receiver.url)

    ((headers, _),) = receiver.requests
    login = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    assert headers["Authorization"] == f"Basic {login}"
    (body,) = receiver.bodies()
    assert body["type"] == "plan.finished"
    assert body["data"] == {
        "execution": "tonight",
        "title": "Plan finished",
        "text": "The plan is finished.",
        "count": 1,
    }


@pytest.mark.parametrize("forged", ["body", "Webhook-Id", "Webhook-Timestamp", "secret"])
async def test_the_official_library_refuses_a_forged_webhook(forged: str) -> None:
    """The signature covers the id, the time and the body."""
    with receiving() as receiver:
        await delivered(receiver.url)

    ((sent, body),) = receiver.requests
    headers = dict(sent)
    official = Webhook(base64.b64encode(KEY[::-1]).decode() if forged == "secret" else WHSEC)
    if forged == "body":
        body = body.replace(b"finished", b"finishes")
    elif forged == "Webhook-Id":
        headers[forged] += "x"
    elif forged == "Webhook-Timestamp":
        headers[forged] = str(int(headers[forged]) - 1)

    with pytest.raises(WebhookVerificationError):
        official.verify(body, headers)


async def test_content_is_sent_on_request() -> None:
    """Texts of agents and people go only where the user wants them."""
    with receiving() as receiver:
        await delivered(receiver.url, with_content=True)

    assert receiver.bodies()[0]["data"]["content"] == "words"


async def test_a_failure_is_repeated_with_the_same_id(capfd: pytest.CaptureFixture[str]) -> None:
    """A receiver can tell a repetition; the log has no URL."""
    with receiving(500, 429) as receiver:
        await delivered(receiver.url)

    assert [body["type"] for body in receiver.bodies()] == ["plan.finished"] * 3
    assert len(set(receiver.ids())) == 1
    logged = str(capfd.readouterr())
    assert "webhook 1: plan.finished was not delivered (status 500)" in logged
    assert PASSWORD not in logged
    assert "127.0.0.1" not in logged


@pytest.mark.parametrize(("statuses", "attempts"), [((410,), 1), ((302,), 1), ((500,) * 9, 3)])
async def test_a_refusal_or_too_many_failures_end_the_attempts(
    statuses: tuple[int, ...], attempts: int
) -> None:
    """A redirect is not followed: the host that was named gets the message, or none does."""
    with receiving(*statuses) as receiver:
        await delivered(receiver.url)

    assert len(receiver.requests) == attempts


async def test_a_dead_destination_delays_no_other() -> None:
    """Each has its own queue and its own attempts."""
    with receiving() as receiver:
        await delivered("http://127.0.0.1:9/nobody", receiver.url)

    assert len(receiver.requests) == 1


class Silent:
    """A destination that accepts a notification and never answers."""

    label = "webhook 1"

    def __init__(self) -> None:
        self.is_asked, self.is_over = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def send(self, envelope: NotificationEnvelope) -> None:
        self.thread = threading.current_thread()
        self.is_asked.set()
        self.is_over.wait()


async def test_the_end_of_a_server_waits_for_no_answer() -> None:
    """Work that is left at the end runs in a thread for which the interpreter does not wait."""
    silent = Silent()
    notifier = Notifier([silent], SystemClock(), execution="e", with_content=False)
    try:
        with limited():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(notifier.run)
                notifier.call(DONE)
                await eventually(silent.is_asked.is_set)
                await notifier.finish(within=0)
                tasks.cancel_scope.cancel()

        assert silent.thread.is_alive()
        assert silent.thread.daemon
    finally:
        silent.is_over.set()


@USES_APPRISE
async def test_a_mail_is_sent_through_apprise(caplog: pytest.LogCaptureFixture) -> None:
    """A real SMTP server receives it."""
    with caplog.at_level(logging.DEBUG), mail_server() as (port, mails):
        await delivered(services=(mail_url(port),))

    (mail,) = mails
    assert "Subject: Plan finished (tonight)" in mail
    assert "The plan is finished." in mail
    assert "example.org" not in caplog.text


@USES_APPRISE
async def test_a_mail_that_is_not_accepted_is_sent_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The mail server refuses it for now, then takes it."""
    with mail_server("451 try again later", "452 no room") as (port, mails):
        await delivered(services=(mail_url(port),))

    assert ["Subject: Plan finished (tonight)" in mail for mail in mails] == [True] * 3
    logged = str(capfd.readouterr())
    assert logged.count("service 1: plan.finished was not delivered") == 2
    assert "example.org" not in logged


@USES_APPRISE
@pytest.mark.parametrize(
    ("webhooks", "services", "secret", "words"),
    [
        (("https://x.org",), (), None, f"{WEBHOOK_SECRET} is not set"),
        (("https://x.org",), (), "whsec_short", "base64 of at least 24 bytes"),
        ((f"ftp://me:{PASSWORD}@x.org",), (), WHSEC, "The URL of webhook 1 is invalid"),
        (("https://",), (), WHSEC, "The URL of webhook 1 is invalid"),
        ((), (f"nonsense://me:{PASSWORD}@x",), None, "The URL of service 1 is invalid"),
    ],
)
def test_a_destination_that_cannot_be_used_is_refused(
    webhooks: tuple[str, ...],
    services: tuple[str, ...],
    secret: str | None,
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With what to do next, and without its URL."""
    environment = {} if secret is None else {WEBHOOK_SECRET: secret}
    with pytest.raises(Stop, match=words) as refused:
        destinations(webhooks, services, environment, SystemClock())

    assert refused.value.hint
    assert refused.value.exit_code is ExitCode.USAGE
    assert PASSWORD not in f"{refused.value.message} {refused.value.hint} {capfd.readouterr()}"


def test_the_command_tries_each_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hankweave notify --test` prints what became of each, and fails if one failed."""
    monkeypatch.setenv(WEBHOOK_SECRET, WHSEC)
    with receiving(204, 403) as receiver:
        words = ["--test", "--webhook", receiver.url, "--webhook", receiver.url]
        tried = CliRunner().invoke(notify, words)

    assert tried.output == "webhook 1: delivered\nwebhook 2: not delivered (status 403)\n"
    assert tried.exit_code == ExitCode.UNAVAILABLE
    assert [each["type"] for each in receiver.bodies()] == ["test", "test"]


NIGHT = (
    ("budget.80", "80 % of the budget"),
    ("codon.waiting", "one waits"),
    ("codon.resumed", "one continues"),
    ("plan.finished", "Plan finished"),
)
"""The kinds and titles of what the run below tells."""


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.story(
    "People are called when a codon waits and continues and when the plan is finished.",
    of="docs/how-to/unattended.md",
    cases=("False",),
)
async def test_a_server_calls_people(tmp_path: Path, execution: Path, is_dead: bool) -> None:
    """A run is reported before its server ends, through webhooks and by mail.

    What a destination refuses at first is sent again; one that is down loses no run. No file of the
    execution contains a URL.
    """
    # An early notification has time to be repeated before the server ends.
    steps = ({"cost": 0.9}, {"limit": {"resetsIn": 1}}, writes("a.txt", "a"))
    hank = write_hank(tmp_path / "hank", codon("one", *steps))
    with receiving(503) as receiver, mail_server("451 later") as (port, mails):
        url = receiver.url.replace(f":{receiver.port}/", ":9/") if is_dead else receiver.url
        env = {
            WEBHOOK_SECRET: WHSEC,
            "HANKWEAVE_RUNTIME_WEBHOOK": url,
            "HANKWEAVE_RUNTIME_NOTIFY": mail_url(9 if is_dead else port),
        }
        async with running_server(
            hank, None, execution, "--headless", "--max-cost", "1", env=env
        ) as server:
            assert await server.ended() == 0

    expected = [] if is_dead else [NIGHT[0], *NIGHT]
    assert [each["type"] for each in receiver.bodies()] == [kind for kind, _ in expected]
    assert len(set(receiver.ids())) == len(set(expected))
    assert len(mails) == len(expected)
    assert all(title in _subject(mail) for mail, (_, title) in zip(mails, expected, strict=True))
    files = [path for path in execution.rglob("*") if path.is_file()]
    secrets = (PASSWORD.encode(), b"example.org")
    assert [path for path in files if any(each in path.read_bytes() for each in secrets)] == []
    assert not any(PASSWORD in line or "example.org" in line for line in server.output)


def _subject(mail: str) -> str:
    return str(email.message_from_string(mail, policy=email.policy.default)["subject"])
