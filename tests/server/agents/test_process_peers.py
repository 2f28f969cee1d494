"""Which connections are a confined program's, on a real kernel with real control groups."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hankweave_server.agents.process import peers, process_table

if not peers.can_recognize():
    pytest.skip("this machine grants no control groups", allow_module_level=True)

CLIENT = """
import os, socket, struct, sys

group, address, port, *actions = sys.argv[1:]
if group:
    open(group + "/cgroup.procs", "w").write("0")

connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
connection.connect((address, int(port)))
if "pass it on" in actions:
    if os.fork() != 0:
        os._exit(0)

    open(os.path.dirname(group) + "/cgroup.procs", "w").write("0")

if "send and close" in actions:
    connection.sendall(b"an order")
    if "reset" in actions:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    connection.close()

print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    made = process_table.make("test-of-peers", is_confined=True)
    assert made is not None
    yield made
    process_table.kill(made)
    process_table.remove(made)


def is_confined(
    group: Path | None, *actions: str, host: str = "127.0.0.1", address: str = ""
) -> bool:
    """Return the verdict on a connection of a process, which is in the group if there is one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port = str(listener.getsockname()[1])
        client = [sys.executable, "-I", "-S", "-c", CLIENT, str(group or ""), address or host, port]
        with subprocess.Popen(
            [*client, *actions], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            connection, _ = listener.accept()
            with connection:
                assert process.stdout.readline() == b"done\n"
                verdict = peers.is_confined(connection)
                if "send and close" in actions:
                    assert connection.recv(64) == b"an order"

            process.communicate()
            return verdict


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", ""), ("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1"), ("::1", "")],
    ids=["loopback", "any address", "a mapped address", "version 6"],
)
def test_a_connection_of_a_confined_program_is_recognized(
    group: Path, host: str, address: str
) -> None:
    """The group of the other end decides; a program outside of it is not taken for confined."""
    assert is_confined(group, host=host, address=address)
    assert not is_confined(None, host=host, address=address)


@pytest.mark.parametrize("actions", [(), ("reset",)], ids=["closed", "reset"])
def test_a_program_that_is_gone_is_no_other_machine(group: Path, actions: tuple[str, ...]) -> None:
    """Its data can still be read, but the kernel no longer knows its socket."""
    assert is_confined(group, "send and close", *actions)


def test_a_socket_keeps_its_group(group: Path) -> None:
    """A process outside of the group that got the socket is recognized, too."""
    assert is_confined(group, "pass it on")


def test_a_group_inside_of_a_group_counts(group: Path) -> None:
    """A process may make groups below its own where it can write."""
    inner = group / "inner"
    inner.mkdir()
    assert is_confined(inner)


def test_other_programs_in_groups_are_not_confined(group: Path) -> None:
    """An agent that is not confined has a control group of another name."""
    other = process_table.make("test-of-peers-too")
    assert other is not None
    try:
        assert not is_confined(other)
    finally:
        process_table.remove(other)


def test_a_connection_from_another_network_is_welcome(group: Path) -> None:
    """The kernel does not know the other end, but it is established: another machine's."""

    class FromElsewhere:
        family = socket.AF_INET

        def getsockname(self) -> tuple[str, int]:
            return ("192.0.2.1", 443)

        def getpeername(self) -> tuple[str, int]:
            return ("192.0.2.2", 50_000)

        def getsockopt(self, _level: int, _option: int, _size: int, /) -> bytes:
            return struct.pack("B", 1)  # TCP_ESTABLISHED

    assert not peers.is_confined(FromElsewhere())
