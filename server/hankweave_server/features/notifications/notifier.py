"""Deliver notifications: signed webhooks, and the services that the library apprise knows.

Delivery never delays the run. `Notifier.handle` only queues; each destination has a task and a
queue of its own, in which the oldest is dropped when it is full. A request is made in a thread, and
repeated with growing delays until it succeeds, is refused for good, or has failed too often.

A URL of a destination often contains its password. No URL is logged, printed or part of an error
message: destinations are named by their kind and number (`webhook 1`), and of an exception only its
type is shown. Apprise prints whole URLs, so its logger is disabled.

Webhooks follow the Standard Webhooks specification: the headers `webhook-id`, which is the same for
each attempt, `webhook-timestamp` in seconds, and `webhook-signature`, `v1,` and the base64 of an
HMAC-SHA256 over `id.timestamp.body`. The key is what follows `whsec_` in the secret, in base64.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import logging
import math
import secrets
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc
import msgspec

from hankweave_protocol.events import EventData, StateTransition
from hankweave_protocol.instants import to_text
from hankweave_server import __version__
from hankweave_server.clock import Clock
from hankweave_server.config import WEBHOOK_SECRET
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.notifications.notifications import (
    Digest,
    Notification,
    budget_notices,
    of_event,
)
from hankweave_server.ledger.writer import Published
from hankweave_server.logs import logger

log = logger(__name__)

TIMEOUT = 15.0
"""Seconds in which a destination must send something."""

LONGEST = 120.0
"""Seconds for an attempt. One that lasts longer is given up for good: no thread can be ended."""

DELAYS = (1.0, 5.0, 30.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds between two attempts to deliver a notification."""

FINISH_SECONDS = 3.0
"""Seconds for what is left when the server stops."""

PAUSE = 0.5
"""Seconds between two messages to a service of apprise.

Apprise itself pauses for up to 5.5 s, to protect services from programs that send many. This one
sends few, and the last message of a run would be too late: the server is about to end.
"""

QUEUE = 100
_PREFIX = "whsec_"
_SHORTEST_KEY = 24
_AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 after which another attempt may succeed."""


class Undelivered(Exception):
    """A failed attempt, in words without any URL."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class NotificationEnvelope:
    """A notification with its identity, which is the same for each attempt."""

    id: str
    timestamp: str
    execution: str
    """The name of the execution's directory."""
    notification: Notification
    with_content: bool

    @property
    def text(self) -> str:
        notification = self.notification
        more = (
            f" ({notification.count - 1} more like this in the last minute.)"
            if notification.count > 1
            else ""
        )
        content = (
            f"\n\n{notification.content}" if self.with_content and notification.content else ""
        )
        return f"{notification.text}{more}{content}"

    def body(self) -> bytes:
        notification = self.notification
        data = {"execution": self.execution, "title": notification.title, "text": notification.text}
        content = (
            {"content": notification.content} if self.with_content and notification.content else {}
        )
        return msgspec.json.encode(
            {
                "type": notification.kind,
                "timestamp": self.timestamp,
                "data": {**data, "count": notification.count, **notification.data, **content},
            }
        )


def new_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


class Destination(Protocol):
    """A place to which notifications are sent."""

    @property
    def label(self) -> str:
        """Its name in messages; never its URL."""

    def send(self, envelope: NotificationEnvelope) -> None:
        """Make one attempt, in a thread; raise Undelivered."""


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a webhook as its header has it."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A refusal of redirects: a webhook is for the host that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Webhook:
    """An HTTP endpoint that gets signed JSON."""

    label: str
    url: str = field(repr=False)
    key: bytes = field(repr=False)
    clock: Clock

    def send(self, envelope: NotificationEnvelope) -> None:
        body, now = envelope.body(), int(self.clock.now().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": f"hankweave/{__version__}",
            "webhook-id": envelope.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self.key, envelope.id, now, body),
        }
        url, login = _without_login(self.url)
        request = urllib.request.Request(url, body, headers | login, method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=TIMEOUT) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            is_final = error.code < 500 and error.code not in _AGAIN
            redirects = ", redirects are not followed" if 300 <= error.code < 400 else ""
            raise Undelivered(f"status {error.code}{redirects}", is_final=is_final) from None
        except urllib.error.URLError as error:
            raise Undelivered(type(error.reason).__name__) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Undelivered(type(error).__name__) from None


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without user and password, and the header that has them instead."""
    parts = urllib.parse.urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    if not login:
        return url, {}

    encoded = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
    return parts._replace(netloc=place).geturl(), {"authorization": f"Basic {encoded}"}


@dataclass(frozen=True, slots=True)
class Service:
    """A service that apprise knows: mail, Slack, ntfy, the desktop, and many more."""

    label: str
    client: Any = field(repr=False)

    def send(self, envelope: NotificationEnvelope) -> None:
        title = f"{envelope.notification.title} ({envelope.execution})"
        try:
            is_sent = self.client.notify(body=envelope.text, title=title)
        except Exception as error:
            # Its plugins raise whatever their libraries do, with the URL in the message.
            raise Undelivered(type(error).__name__) from None

        if not is_sent:
            raise Undelivered("the service did not accept it")


def destinations(
    webhooks: Sequence[str],
    services: Sequence[str],
    environment: Mapping[str, str],
    clock: Clock,
) -> tuple[Destination, ...]:
    """Return the destinations of these URLs; raise Stop for one that cannot be used."""
    key = _key(environment.get(WEBHOOK_SECRET)) if webhooks else b""
    hooks = [
        Webhook(f"webhook {number}", _checked(url, number), key, clock)
        for number, url in enumerate(webhooks, 1)
    ]
    return (*hooks, *_services(services))


def _key(secret: str | None) -> bytes:
    hint = f"This makes one: export {WEBHOOK_SECRET}=whsec_$(openssl rand -base64 32)"
    if not secret:
        raise Stop(
            f"A webhook needs a secret, and {WEBHOOK_SECRET} is not set.", ExitCode.USAGE, hint=hint
        )

    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""

    if len(key) < _SHORTEST_KEY:
        message = (
            f"{WEBHOOK_SECRET} is not base64 of at least {_SHORTEST_KEY} bytes after 'whsec_'."
        )
        raise Stop(message, ExitCode.USAGE, hint=hint)

    return key


def _checked(url: str, number: int) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False

    if not is_valid:
        raise Stop(
            f"The URL of webhook {number} is invalid.",
            ExitCode.USAGE,
            hint="It must begin with https:// or http://, followed by a host.",
        )

    return url


def _services(urls: Sequence[str]) -> Iterable[Destination]:
    if not urls:
        return

    # Before its import: it logs whole URLs, also those that it cannot parse.
    logging.getLogger("apprise").disabled = True
    try:
        import apprise

        from hankweave_server import bounded_requests
    except ImportError:
        raise Stop(
            "--notify needs a library that is not installed.",
            ExitCode.UNAVAILABLE,
            hint="Install it with: pip install 'hankweave[notify]'",
        ) from None

    logging.getLogger("apprise").disabled = True
    bounded_requests.install()
    for number, url in enumerate(urls, 1):
        client = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
        if not client.add(url):
            raise Stop(
                f"The URL of service {number} is invalid, or of an unknown kind.",
                ExitCode.USAGE,
                hint="https://github.com/caronc/apprise/wiki lists the forms of all services.",
            )

        for plugin in client:
            plugin.request_rate_per_sec = min(plugin.request_rate_per_sec, PAUSE)

        yield Service(f"service {number}", client)


@dataclass(slots=True, eq=False)
class _Outbox:
    """The queue of one destination."""

    destination: Destination
    waiting: deque[NotificationEnvelope] = field(default_factory=deque)
    filled: anyio.Event = field(default_factory=anyio.Event)
    emptied: anyio.Event = field(default_factory=anyio.Event)
    """Set while nothing waits and nothing is being sent."""

    def put(self, envelope: NotificationEnvelope) -> None:
        if len(self.waiting) == QUEUE:
            self.waiting.popleft()
            log.warning("%s: a notification was dropped, the queue is full", self.destination.label)

        self.waiting.append(envelope)
        self.emptied = anyio.Event()
        self.filled.set()

    async def next(self) -> NotificationEnvelope:
        while not self.waiting:
            self.emptied.set()
            self.filled = anyio.Event()
            await self.filled.wait()

        return self.waiting.popleft()


class Notifier:
    """The notifications of one execution, from its events to their destinations."""

    def __init__(
        self,
        destinations: Sequence[Destination],
        clock: Clock,
        *,
        execution: str,
        with_content: bool,
        spent: float = 0.0,
        max_dollars: float | None = None,
        delays: Sequence[float] = DELAYS,
    ) -> None:
        """`spent` are the USD that the execution has cost until now, of `max_dollars`."""
        self._outboxes = [_Outbox(each) for each in destinations]
        self._clock = clock
        self._execution = execution
        self._with_content = with_content
        self._spent = spent
        self._max_dollars = max_dollars
        self._delays = delays
        self._digest = Digest()
        self._held = anyio.Event()
        self._stopping = anyio.Event()

    def handle(self, published: Published) -> None:
        """Queue what an event is about.

        Runs in the ledger's writer, so it neither waits nor raises.
        """
        data = published.event.data
        if isinstance(data, StateTransition):
            before, self._spent = self._spent, data.resulting_state.total_cost
            for each in budget_notices(before, self._spent, self._max_dollars):
                self.call(each)
        else:
            self.notice(data)

    def notice(self, data: EventData) -> None:
        """Queue what an event is about, on record or not."""
        if self._outboxes and (notification := of_event(data)) is not None:
            self.call(notification)

    def call(self, notification: Notification) -> None:
        """Queue a notification for every destination, unless one of its kind was just sent."""
        due = self._digest.offer(notification, self._clock.monotonic())
        if due is None:
            self._held.set()
        else:
            self._put(due)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with anyio.create_task_group() as tasks:
            for outbox in self._outboxes:
                tasks.start_soon(self._deliver, outbox)

            while True:
                seconds = self._digest.due_in(self._clock.monotonic())
                with anyio.move_on_after(math.inf if seconds is None else seconds):
                    await self._held.wait()

                self._held = anyio.Event()
                for each in self._digest.due(self._clock.monotonic()):
                    self._put(each)

    async def finish(self, within: float = FINISH_SECONDS) -> None:
        """Send what is left, for a few seconds; nothing is repeated any more."""
        for each in self._digest.take_held():
            self._put(each)

        self._stopping.set()
        with anyio.move_on_after(min(within, FINISH_SECONDS)):
            for outbox in self._outboxes:
                await outbox.emptied.wait()

    def _put(self, notification: Notification) -> None:
        envelope = NotificationEnvelope(
            id=new_id(),
            timestamp=to_text(self._clock.now()),
            execution=self._execution,
            notification=notification,
            with_content=self._with_content,
        )
        for outbox in self._outboxes:
            outbox.put(envelope)

    async def _deliver(self, outbox: _Outbox) -> None:
        while True:
            envelope = await outbox.next()
            await self._send(outbox.destination, envelope)

    async def _send(self, destination: Destination, envelope: NotificationEnvelope) -> None:
        """Make attempts until one succeeds or none will; the server's end is the last one."""
        for delay in (*self._delays, None):
            was_stopping = self._stopping.is_set()
            try:
                await attempt(destination, envelope)
            except Undelivered as error:
                is_last = error.is_final or delay is None or was_stopping
                log.warning(
                    "%s: %s was not delivered (%s), %s",
                    destination.label,
                    envelope.notification.kind,
                    error,
                    "given up" if is_last else f"again in {delay:g} s",
                )
                if is_last or delay is None:
                    return

                with anyio.move_on_after(delay):
                    await self._stopping.wait()
            else:
                return


async def attempt(destination: Destination, envelope: NotificationEnvelope) -> None:
    """Make one attempt in a thread; raise Undelivered, also after `LONGEST` seconds.

    It is a daemon thread: at its end, the interpreter waits for each thread of `anyio.to_thread`,
    and so for a destination that never answers.
    """
    loop, done = asyncio.get_running_loop(), anyio.Event()
    faults: list[Exception] = []

    def send() -> None:
        try:
            destination.send(envelope)
        except Exception as error:
            faults.append(error)

        with contextlib.suppress(RuntimeError):  # The server has ended meanwhile.
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=send, name=destination.label, daemon=True).start()
    with anyio.move_on_after(LONGEST) as limit:
        await done.wait()

    if limit.cancelled_caught:
        raise Undelivered(f"no answer within {LONGEST:g} s", is_final=True)

    if faults:
        raise faults[0]
