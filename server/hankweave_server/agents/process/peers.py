"""Recognize connections of confined programs by the control groups of their sockets.

The kernel stores with each socket the control group of the process that created it, and reports it
for any connection of this network namespace (sock_diag(7), INET_DIAG_CGROUP_ID, Linux 5.8). A
socket keeps its group when it is passed on, and a confined process cannot leave its own: its fence
forbids writes to the control groups and the system call that starts a process in another one.

So the server does not have to deny its port to each confined process, which is slow with Landlock:
it closes the connection instead, before it reads anything. Without control groups the port is
denied (`confinement.probe.prepared`).

Standard library only, as far as tests need it in an isolated interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from hankweave_server.agents.process import process_table

_DEADLINE = 5.0
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_INET_DIAG_CGROUP_ID = 21
_ESTABLISHED, _LISTEN = 1, 10
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_SOCKET_ID = struct.Struct("=2s2s16s16sI8s")
_MESSAGE_SIZE = 72
_ATTRIBUTE = struct.Struct("=HH")
_ANY_COOKIE = b"\xff" * 8


class PeerSocket(Protocol):
    """The part of an accepted TCP socket that is needed here."""

    @property
    def family(self) -> int: ...

    def getsockname(self) -> tuple[str, int]: ...

    def getpeername(self) -> tuple[str, int]: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def is_confined(connection: PeerSocket) -> bool:
    """Return whether a confined program of this server holds the other end of a connection.

    Also True if that cannot be determined, because the other end has closed it already.
    """
    groups = process_table.confined_groups()
    if not groups:
        return False

    try:
        group = group_of_peer(connection)
        if group is not None:
            return group in groups

        # It is in another network namespace or on another machine. One that was here until it was
        # closed would not be established any more.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return True

    return state[0] != _ESTABLISHED


def group_of_peer(connection: PeerSocket) -> int | None:
    """Return the inode of the control group that the other end's socket was created in.

    None if the kernel does not know that socket. Raises OSError.
    """
    here, there = connection.getsockname(), connection.getpeername()
    request = _REQUEST.pack(connection.family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    request += _SOCKET_ID.pack(
        struct.pack(">H", there[1]),
        struct.pack(">H", here[1]),
        _packed(connection.family, there[0]),
        _packed(connection.family, here[0]),
        there[3] if len(there) > 3 else 0,
        _ANY_COOKIE,
    )
    size = _HEADER.size + len(request)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_DEADLINE)
        kernel.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
        return _group_in(kernel.recv(16384))


def _packed(family: int, address: str) -> bytes:
    return socket.inet_pton(family, address.partition("%")[0]).ljust(16, b"\0")


def _group_in(answer: bytes) -> int | None:
    size, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -number == errno.ENOENT:
            return None

        raise OSError(-number, os.strerror(-number))

    if answer[_HEADER.size + 1] == _LISTEN:
        return None

    offset = _HEADER.size + _MESSAGE_SIZE
    while offset + _ATTRIBUTE.size <= size:
        length, attribute = _ATTRIBUTE.unpack_from(answer, offset)
        if attribute == _INET_DIAG_CGROUP_ID:
            (group,) = struct.unpack_from("=Q", answer, offset + _ATTRIBUTE.size)
            return int(group)

        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)

    return None


_CONNECT_FROM_GROUP = """
import os, socket, sys

with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")

with socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5) as connection:
    connection.recv(1)
"""


@functools.cache
def can_recognize() -> bool:
    """Return whether this machine tells the control groups of sockets; tries it once.

    Blocks for about 30 ms the first time.
    """
    group = process_table.make(f"probe-{secrets.token_hex(8)}")
    if group is None:
        return False

    try:
        with contextlib.suppress(OSError):
            return _try_with(group)

        return False
    finally:
        process_table.kill(group)
        process_table.remove(group)


def _try_with(group: Path) -> bool:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_DEADLINE)
        port = str(listener.getsockname()[1])
        isolated = [sys.executable, "-I", "-S", "-c", _CONNECT_FROM_GROUP]
        with subprocess.Popen(
            [*isolated, str(group), port], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            connection, _ = listener.accept()
            with connection:
                return group_of_peer(connection) == group.stat().st_ino
