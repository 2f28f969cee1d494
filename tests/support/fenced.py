"""Run the attacks of `attacks.py` inside a fence: `fenced.py BASE LAYOUT LEVEL [MACHINE]`.

A program of its own, so that it can run as another user. It builds a home, an execution and a
server in BASE, runs all attacks in one confined process, and prints a report as JSON. The machine
`docker` is imitated by the restrictions of Docker's default profile, `old` by denying that the
kernel has Landlock. With `-- COMMAND` it runs a command instead of the attacks.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec

import hankweave_server
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.confinement import kernel, probe, seccomp
from hankweave_server.confinement.policy import (
    Facts,
    Fence,
    Level,
    Policy,
    workspace_policy,
)
from hankweave_server.confinement.probe import own_programs
from support import attacks, enclosure
from support.waiting import LIMIT

ATTACKS = Path(attacks.__file__)
SOURCES = str(Path(hankweave_server.__file__).parent.parent)
SECRET = "a secret that no attack may see"

_SERVER = """
import ctypes, json, os, signal, socket, sys, threading

sys.path.insert(0, sys.argv[2])
from hankweave_server.agents.process import peers

facts = json.loads(sys.argv[1])
signals = 0

def note(number, frame):
    global signals
    signals += 1

signal.signal(signal.SIGUSR1, note)
token = open(facts["state"] + "/server.token")
memory = ctypes.create_string_buffer(b"original", 8)
primary, secondary = os.openpty()
shared = ctypes.CDLL(None).shmget(facts["memory_key"], 64, 0o600 | 0o1000)

def serve(listener):
    while True:
        connection, _ = listener.accept()
        if listener is tcp and peers.is_confined(connection):
            connection.close()
            continue

        connection.sendall(f"signals: {signals}".encode())
        connection.close()

def listen(family, address):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return listener

tcp, free = (listen(socket.AF_INET, ("127.0.0.1", 0)) for _ in range(2))
tcp.setsockopt(socket.IPPROTO_TCP, 23, 5)  # TCP_FASTOPEN
mptcp = None
listen(socket.AF_UNIX, "\\0" + facts["abstract"])
listen(socket.AF_UNIX, facts["socket"])
listen(socket.AF_UNIX, facts["socket_at_home"])
print(json.dumps({
    "port": tcp.getsockname()[1],
    "open_port": free.getsockname()[1],
    "address": ctypes.addressof(memory),
    "token_descriptor": token.fileno(),
    "terminal": os.ttyname(secondary),
}), flush=True)
for line in sys.stdin:
    print(json.dumps({
        "signals": signals,
        "memory": memory.raw.decode(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": len(os.sched_getaffinity(0)),
        "policy": os.sched_getscheduler(0),
        "name": open("/proc/self/comm").read(),
        "oom": open("/proc/self/oom_score_adj").read(),
    }), flush=True)
ctypes.CDLL(None).shmctl(shared, 0, None)
"""


STATE = {
    "beside": "home/work/execution/.hankweave",
    "in place": "home/work/execution/.hankweave",
    "apart": "home/.local/state/hankweave/projects/0/.hankweave",
}
"""Where the state of the attacked execution lies, by layout."""


def build(base: Path, layout: str) -> SimpleNamespace:
    """Make the user's home, two executions and a system folder; return where everything is."""
    home, system = base / "home", base / "system"
    root = home / "work" / "execution"
    tree = root / "agentRoot" if layout == "beside" else root
    state, other = base / STATE[layout], home / "work" / "other" / ".hankweave"
    for name in attacks.ATTACKS:
        _write(home / "projects" / name / "precious", f"the user's file for {name}")

    _write(home / ".ssh" / "id", SECRET)
    _write(home / ".ssh" / "authorized_keys", "the user's keys")
    _write(system / "program", "a program")
    for folder in (state, other):
        _write(folder / "server.token", SECRET)
        _write(folder / "events" / "events.jsonl", SECRET)

    _write(state / "homes" / "agent" / "settings", "its own")
    tree.mkdir(exist_ok=True)
    (base / "sockets").mkdir()
    linked = home / "linked tree"
    linked.symlink_to(tree)
    shared = Path("/dev/shm", f"hankweave-{os.getpid()}")
    shared.write_text("shared")
    return SimpleNamespace(
        home=str(home),
        system=str(system),
        tree=str(tree),
        state=str(state),
        other=str(other),
        linked_tree=str(linked),
        shared_memory=str(shared),
        abstract=f"hankweave-{os.getpid()}",
        memory_key=0x48570000 | os.getpid() & 0xFFFF,
        socket=str(base / "sockets" / "door"),
        socket_at_home=str(home / "door"),
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def policy_of(facts: SimpleNamespace, base: Path) -> Policy:
    policy = workspace_policy(
        Facts(
            work_tree=facts.linked_tree,
            state_directory=facts.state,
            home=facts.home,
            search_path=os.environ["PATH"],
            agent_home=f"{facts.state}/homes/agent",
            temporary=f"{facts.state}/temporary",
            agent_read=(*own_programs(), str(ATTACKS.parent)),
            server_ports=(facts.port,),
            is_root=os.geteuid() == 0,
        )
    )
    return msgspec.structs.replace(policy, hidden=(*policy.hidden, str(base / "sockets")))


def snapshot(base: Path, inside: Path) -> dict[str, str]:
    """Return what is outside of the work tree: kind, mode, times and content of each entry."""
    private = {"homes", "temporary"}
    found = {}
    for path in sorted(base.rglob("*")):
        is_private = private & set(path.parts)
        is_inside = path.is_relative_to(inside) and ".hankweave" not in path.parts
        if is_private or is_inside or path.is_socket():
            continue

        facts = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        times = "" if path.is_dir() else str(facts.st_mtime_ns)
        attributes = [] if path.is_symlink() else os.listxattr(path)
        digest = hashlib.sha256(content).hexdigest()
        found[str(path.relative_to(base))] = f"{facts.st_mode:o} {times} {attributes} {digest}"

    return found


async def run(
    command: list[str], facts: SimpleNamespace, base: Path, level: Level
) -> tuple[int, str, str]:
    """Run a command at a level; return its exit code, stdout and stderr."""
    fence = None if level is Level.NONE else Fence(policy_of(facts, base), level)
    subprocess_tasks = SubprocessTasks(RunId("run"), CodonId("codon"), base / "processes", fence)
    output: list[bytes] = [b"", b""]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": facts.home,
    }
    async with subprocess_tasks.start(command, Path(facts.linked_tree), environment) as child:
        async with anyio.create_task_group() as tasks:
            for number, stream in enumerate((child.stdout, child.stderr)):
                tasks.start_soon(_collect, stream, output, number)

        await child.ended()
        return child.exit_code, output[0].decode(), output[1].decode()


async def _collect(stream: Any, output: list[bytes], number: int) -> None:
    async for chunk in stream.chunks():
        output[number] += chunk


def imitate_docker() -> None:
    """Restrict this process as Docker's default seccomp profile and capabilities do."""
    if kernel.has_capability(21):
        for capability in (*range(12, 13), *range(14, 18), *range(19, 27), *range(30, 41)):
            kernel.prctl(24, capability)

        _drop_to_bounding_set()

    kernel.forbid_new_privileges()
    seccomp.install(seccomp.NAMESPACES)


def _drop_to_bounding_set() -> None:
    kept = sum(1 << one for one in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    low, high = (kept & 0xFFFFFFFF).to_bytes(4, "little"), (kept >> 32).to_bytes(4, "little")
    kernel.call(kernel.CAPSET, header, (low + low + bytes(4)) + (high + high + bytes(4)))


def try_command(base: Path, layout: str, level: Level, command: list[str]) -> Mapping[str, object]:
    facts = build(base, layout)
    os.unlink(facts.shared_memory)
    facts.port = 7
    facts.home = str(Path.home())  # The real one, because of the toolchains in it.
    code, output, trouble = anyio.run(run, command, facts, base, level)
    return {"code": code, "said": output, "trouble": trouble}


def attack(base: Path, layout: str, level: Level) -> Mapping[str, object]:
    outside = enclosure.require()
    facts = build(base, layout)
    facts.outside = outside
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SERVER, json.dumps(vars(facts)), SOURCES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"SECRET": SECRET},
        start_new_session=True,
    )
    assert server.stdin
    assert server.stdout
    try:
        vars(facts).update(json.loads(server.stdout.readline()), server=server.pid)
        Path(facts.tree, "facts.json").write_text(json.dumps(vars(facts)))
        before = _ask(server), snapshot(base, Path(facts.tree))
        command = [sys.executable, "-I", "-S", str(ATTACKS), "facts.json"]
        code, output, trouble = anyio.run(run, command, facts, base, level)
        after = _ask(server), snapshot(base, Path(facts.tree))
    finally:
        os.unlink(facts.shared_memory)
        server.send_signal(signal.SIGCONT)
        server.stdin.close()
        server.wait(LIMIT)

    changed = {
        name for name in {*before[1], *after[1]} if before[1].get(name) != after[1].get(name)
    }
    return {
        "outcomes": json.loads(output or "{}"),
        "trouble": trouble if code == 0 else f"exit code {code}: {trouble}",
        "server before": before[0],
        "server after": after[0],
        "changed": sorted(changed),
        "said": output,
    }


def _ask(server: subprocess.Popen[str]) -> object:
    assert server.stdin
    assert server.stdout
    server.stdin.write("\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def main() -> None:
    base, layout, level, *rest = sys.argv[1:]
    os.umask(0o022)
    match rest:
        case ["docker", *_]:
            imitate_docker()
        case ["old", *_]:
            vars(probe)["landlock_abi"] = lambda: 0

    where = (Path(base).resolve(), layout, Level(level))
    if "--" in rest:
        command = rest[rest.index("--") + 1 :]
        sys.stdout.write(json.dumps(try_command(*where, command)))
    else:
        sys.stdout.write(json.dumps(attack(*where)))


if __name__ == "__main__":
    main()
