"""Machines as network namespaces around one with a git server; only inside an enclosure."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from support import enclosure

_ADDRESS = "10.77.0."
_BRIDGE = "hw-bridge"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: a network namespace, and a cable to the others."""

    name: str
    namespace: int
    """The pid of a process that keeps the namespace."""
    cable: str

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a program on this machine, in a process group of its own."""
        inside = ("nsenter", "--net", f"--target={self.namespace}", "--", *command)
        return subprocess.Popen(
            inside,
            env={**environment, "HOSTNAME": self.name},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def output_of(self, command: Sequence[str], environment: Mapping[str, str]) -> bytes:
        """Run a program on this machine to its end, and return what it prints."""
        inside = ("nsenter", "--net", f"--target={self.namespace}", "--", *command)
        run = subprocess.run(
            inside, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
        )
        return run.stdout

    def cut(self) -> None:
        """Unplug the cable: packets are lost without an answer."""
        _ip("link", "set", self.cable, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self.cable, "up")


@contextmanager
def hosts(names: Sequence[str], repositories: Path) -> Iterator[tuple[str, tuple[Host, ...]]]:
    """Provide the address of a git server, and machines that reach it."""
    enclosure.require()
    with ExitStack() as stack:
        _ip("link", "set", "lo", "up")
        _ip("link", "add", _BRIDGE, "type", "bridge")
        stack.callback(_ip, "link", "delete", _BRIDGE)
        _ip("address", "add", f"{_ADDRESS}1/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        found = tuple(_host(stack, number, name) for number, name in enumerate(names, 2))
        server = subprocess.Popen(
            (
                *("git", "daemon", "--export-all", "--enable=receive-pack", "--max-connections=0"),
                *(f"--base-path={repositories}", f"--listen={_ADDRESS}1", str(repositories)),
            ),
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(server.wait)
        stack.callback(server.terminate)
        yield f"git://{_ADDRESS}1", found


def _host(stack: ExitStack, number: int, name: str) -> Host:
    keeper = subprocess.Popen(("unshare", "--net", "sleep", "infinity"), stdin=subprocess.DEVNULL)
    stack.callback(keeper.wait)
    stack.callback(keeper.kill)
    _wait_for_namespace(keeper.pid)
    cable, inside = f"hw-{number}", f"hw-{number}-in"
    _ip("link", "add", cable, "type", "veth", "peer", "name", inside)
    _ip("link", "set", cable, "master", _BRIDGE, "up")
    _ip("link", "set", inside, "netns", str(keeper.pid))
    host = Host(name, keeper.pid, cable)
    enter = ("nsenter", "--net", f"--target={keeper.pid}", "--")
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{_ADDRESS}{number}/24", "dev", inside),
        ("link", "set", inside, "up"),
    ):
        subprocess.run((*enter, "ip", *words), check=True)

    return host


def _wait_for_namespace(pid: int) -> None:
    own = Path("/proc/self/ns/net").readlink()
    while True:
        if Path(f"/proc/{pid}/ns/net").readlink() != own:
            return


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)
