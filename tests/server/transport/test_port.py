"""Claims about the listening socket that reserves descriptors."""

from __future__ import annotations

import math
import os
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hankweave_server.transport import sockets
from hankweave_server.transport.sockets import Port
from support.waiting import LIMIT

ROOM = 30


@pytest.fixture
def port() -> Iterator[Port]:
    """Open a port in a process that has only a given number of free descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as filled:
        highest = max(int(each.name) for each in os.scandir("/proc/self/fd"))
        # Code that ran earlier in this process has left gaps among its descriptors.
        while (taken := os.open(os.devnull, os.O_RDONLY)) <= highest:
            filled.callback(os.close, taken)

        os.close(taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + ROOM, hard))
        filled.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        made = Port.bound("127.0.0.1", 0)
        made.setblocking(False)
        made.listen(100)
        with made:
            yield made


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    with ExitStack() as opened:
        while True:
            try:
                descriptor = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                break

            opened.callback(os.close, descriptor)

        yield


def caller(port: Port) -> socket.socket:
    """Return a client socket that is connected and waits to be accepted."""
    connected = socket.create_connection(port.getsockname(), timeout=LIMIT)
    # The client's end is connected before the server's is certain to be in the queue.
    assert select.select([port], [], [], 10)[0]
    return connected


def test_connections_take_a_third_and_leave_the_rest_for_work(port: Port) -> None:
    """Every later connection is closed at once, and each one is reported."""
    turned_away = []
    port.on_full = lambda: turned_away.append(1)
    with ExitStack() as held:
        late, taken = held.enter_context(caller(port)), 0
        while port.has_room:
            assert turned_away == []
            held.enter_context(port.accept()[0])
            late, taken = held.enter_context(caller(port)), taken + 1

        with pytest.raises(BlockingIOError):
            port.accept()

        assert taken > 0
        assert late.recv(1) == b""
        assert turned_away == [1]
        with ExitStack() as work:
            for _ in range(ROOM // 2):
                work.callback(os.close, os.open(os.devnull, os.O_RDONLY))

    assert port.has_room
    with caller(port), port.accept()[0]:
        pass


def test_the_spare_descriptor_refuses_a_connection_when_none_is_left(port: Port) -> None:
    """Without the spare descriptor the connection would wait and wake the loop endlessly."""
    with caller(port) as late:
        with no_descriptor_left():
            with pytest.raises(BlockingIOError):
                port.accept()

            with pytest.raises(BlockingIOError):
                port.accept()

        assert late.recv(1) == b""


def test_without_the_spare_descriptor_the_loop_pauses_after_one_error(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error makes asyncio pause for a second; more of them would only fill the log."""
    monkeypatch.setattr(sockets, "_REST_SECONDS", math.inf)
    with caller(port), no_descriptor_left():
        port._close_spare()
        with no_descriptor_left():
            with pytest.raises(OSError, match="Too many open files"):
                port.accept()

            for _ in range(1_000):
                with pytest.raises(BlockingIOError):
                    port.accept()
