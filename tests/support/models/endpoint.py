"""The endpoint: real HTTP on loopback, in threads of its own, for one test."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, assert_never
from urllib.parse import urlsplit

from support.models import anthropic, gemini
from support.models.anthropic import Anthropic
from support.models.chat import Chat
from support.models.dialect import Asked, Body, Dialect, Reply, Spoken
from support.models.gemini import Gemini
from support.models.offered import NoSuchTool, call_for
from support.models.responses import Responses
from support.models.script import Script, is_aside
from support.models.turns import (
    Calls,
    Edits,
    Fails,
    Held,
    Reads,
    Refuses,
    Runs,
    Says,
    Trouble,
    Turn,
    Writes,
)
from support.waiting import LIMIT

DIALECTS: tuple[Dialect, ...] = (Anthropic(), Responses(), Chat(), Gemini())

_COUNTERS: Mapping[str, ModuleType] = {"/count_tokens": anthropic, ":countTokens": gemini}
_ASIDE = '{"title": "A title", "reasoning": "The script says so.", "next_speaker": "user"}'
_MODELS = {"object": "list", "data": [], "models": [], "has_more": False}
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Seen:
    """One request as received, and its reply."""

    dialect: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Body
    asked: Asked | None
    """None for a request that is not for a model, such as a list of models."""
    turn: Turn | None
    """None for a request outside the script."""

    @property
    def shown(self) -> str:
        """Return all text of the conversation that the model received."""
        return self.asked.shown if self.asked is not None else ""

    @property
    def keys(self) -> set[str]:
        """Return the credentials that the agent sent."""
        names = ("authorization", "x-api-key", "x-goog-api-key")
        given = (self.headers[name] for name in names if name in self.headers)
        return {key.removeprefix("Bearer ") for key in given}


@dataclass
class Endpoint:
    """The endpoint from a test's point of view."""

    port: int
    script: Script
    seen: list[Seen] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Actions that the script could not do; a test that ends with one fails."""
    closing: threading.Event = field(default_factory=threading.Event)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def turns(self) -> list[Seen]:
        """Return the requests that the script has answered, oldest first."""
        with self._news:
            return [seen for seen in self.seen if seen.turn is not None]

    def note(self, seen: Seen) -> None:
        with self._news:
            self.seen.append(seen)
            self._news.notify_all()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Block until a condition on the requests holds; raise TimeoutError."""
        with self._news:
            if not self._news.wait_for(holds, LIMIT):
                raise TimeoutError(
                    f"after {len(self.seen)} requests: {[s.path for s in self.seen]}"
                )

    def reply_to(self, path: str, headers: Mapping[str, str], body: Body) -> _Sending:
        """Choose the reply to a request, and record both."""
        for suffix, module in _COUNTERS.items():
            if path.endswith(suffix):
                self.note(Seen("", path, headers, body, None, None))
                return _Sending(module.counted(body))

        if headers.get("upgrade") == "websocket":
            self.note(Seen("", path, headers, body, None, None))
            return _Sending(Reply(426, (b"{}",), {"content-type": "application/json"}))

        dialect = next((dialect for dialect in DIALECTS if dialect.accepts(path)), None)
        if dialect is None:
            self.note(Seen("", path, headers, body, None, None))
            return _Sending(_other(path))

        asked = dialect.read(path, body)
        turn = None if is_aside(asked) else self.script.next(asked.shown)
        self.note(Seen(dialect.name, path, headers, body, asked, turn))
        return self._sending(dialect, asked, turn or Says(_ASIDE))

    def _sending(self, dialect: Dialect, asked: Asked, turn: Turn) -> _Sending:
        match turn:
            case Held(answer=answer, until=until):
                until.wait(LIMIT)
                return self._sending(dialect, asked, answer)
            case Fails(trouble=Trouble.SILENCE):
                return _Sending(None)
            case Fails(trouble=Trouble.DROPPED_STREAM):
                half = Spoken("This is the first half of an answer that")
                return _Sending(dialect.answer(asked, half), is_dropped=True)
            case Refuses(status=status, body=body, headers=headers):
                sent = {"content-type": "application/json", **headers}
                return _Sending(Reply(status, (json.dumps(body()).encode(),), sent))
            case Fails(trouble=trouble):
                return _Sending(dialect.trouble(asked, trouble))
            case Says(text=text, usage=usage):
                return _Sending(dialect.answer(asked, Spoken(text, usage=usage)))
            case Writes() | Reads() | Edits() | Runs() | Calls():
                try:
                    call = call_for(turn, asked.tools, asked.shown)
                except NoSuchTool as error:
                    self.faults.append(f"{dialect.name}: {error}")
                    return _Sending(dialect.trouble(asked, Trouble.WRONG_KEY))

                return _Sending(dialect.answer(asked, Spoken(turn.saying, call, turn.usage)))
            case _:
                assert_never(turn)


@dataclass(frozen=True)
class _Sending:
    reply: Reply | None
    """None: silence."""
    is_dropped: bool = False


def _other(path: str) -> Reply:
    """Answer lists of models, and other requests to the makers of agents."""
    found = _MODELS if path.endswith("/models") else {}
    return Reply(200, (json.dumps(found).encode(),), {"content-type": "application/json"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A thread that keeps an agent waiting must not block the test's end.
    block_on_close = False
    endpoint: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnected; any other error fails the test."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            self.endpoint.faults.append(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)

        headers = {name.lower(): value for name, value in self.headers.items()}
        path = urlsplit(self.path).path
        self._send(self.server.endpoint.reply_to(path, headers, _object(data)))

    def do_GET(self) -> None:
        self.do_POST()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: requests are recorded in `seen`."""

    def _send(self, sending: _Sending) -> None:
        reply = sending.reply
        if reply is None:
            self.server.endpoint.closing.wait()
            self.close_connection = True
            return

        streams = reply.headers["content-type"].startswith("text/event-stream")
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)

        if streams or sending.is_dropped:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(len(reply.body)))

        self.end_headers()
        if sending.is_dropped:
            self._drop(reply)
        elif streams:
            for part in reply.parts:
                self._chunk(part)

            self._chunk(b"")
        else:
            self.wfile.write(reply.body)

    def _chunk(self, part: bytes) -> None:
        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.flush()

    def _drop(self, reply: Reply) -> None:
        """Send the first half, then reset the connection as a lost peer does."""
        self._chunk(reply.body[: len(reply.body) // 2])
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.connection.close()
        self.close_connection = True


def _object(data: bytes) -> Body:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}

    return found if isinstance(found, dict) else {"list": found}


@contextmanager
def scripted_models(*turns: Turn) -> Iterator[Endpoint]:
    """Serve while the block runs; afterwards fail if the script could not do an action."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint = endpoint = Endpoint(server.server_address[1], Script(turns))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()

    assert endpoint.faults == [], endpoint.faults
