"""Machines that push to the same mirror, and what may happen to their pushes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.features.mirror.contents import CapturedExecution, MirrorRepository, Segments
from hankweave_server.features.mirror.lease import Lease, taken
from hankweave_server.features.mirror.remote import LEASE_REF, Remote

WITHIN = 60.0
NOTHING = CapturedExecution("ref: refs/heads/none", {}, {})


class Machine:
    """One machine with a repository of its own."""

    def __init__(self, folder: Path, bare: Path) -> None:
        self.repository = MirrorRepository(folder, None)
        self.remote = Remote(str(bare), folder, os.environ)
        self.name = folder.name

    def lease(self, former: Lease | None = None) -> Lease:
        return taken(former, execution_id="e", owner=self.name, nonce=self.name, ttl=30.0)

    def composed(self, former: Lease | None = None) -> Sha:
        return self.repository.compose(self.lease(former), NOTHING, Segments(), {})


def in_remote(bare: Path) -> str:
    command = ("git", "-C", bare, "rev-parse", "--verify", LEASE_REF)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def retaken(machine: Machine, tip: Sha) -> Sha:
    """Return the commit with which a machine takes over what another one has pushed."""
    assert machine.remote.fetch(WITHIN) == tip
    return machine.repository.retaken(tip, machine.lease(machine.repository.lease(tip)))


def race(machines: Sequence[Machine], bare: Path, rounds: int) -> None:
    """Let all machines take the lease over at the same time, again and again: one gets it."""
    tip: Sha | None = None
    with ThreadPoolExecutor(len(machines)) as pool:
        for _ in range(rounds):
            shas = [each.composed() if tip is None else retaken(each, tip) for each in machines]
            pushes = [
                pool.submit(each.remote.push, sha, tip, WITHIN)
                for each, sha in zip(machines, shas, strict=True)
            ]
            outcomes = [push.result().outcome for push in pushes]
            assert outcomes.count("done") == 1, outcomes
            assert outcomes.count("refused") == len(machines) - 1, outcomes
            tip = shas[outcomes.index("done")]
            assert in_remote(bare) == tip


def kill_a_push(machine: Machine, bare: Path, first: Sha, after: float) -> Sha:
    """Kill a push after some seconds; return the lease after the next one, which succeeds.

    The ref has the old state or the new one, with everything that it leads to.
    """
    second = retaken(machine, first)
    killed_push(machine.repository.path, bare, second, first, after)
    found = in_remote(bare)
    assert found in (first, second)
    checked_by_git = ("git", "-C", bare, "fsck", "--connectivity-only", LEASE_REF)
    assert subprocess.run(checked_by_git, check=False, capture_output=True).returncode == 0
    for now in (0.0, 30.0):
        machine.remote.unblock(30.0, now)

    third = retaken(machine, Sha(found))
    assert machine.remote.push(third, Sha(found), WITHIN).outcome == "done"
    return third


def killed_push(repository: Path, bare: Path, new: Sha, expected: Sha, after: float) -> None:
    """Push as a mirror does, and kill all processes of that, as a power cut does."""
    lease = f"--force-with-lease={LEASE_REF}:{expected}"
    push = subprocess.Popen(
        ("git", "-C", repository, "push", "--quiet", lease, bare, f"{new}:{LEASE_REF}"),
        process_group=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with push:
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.killpg(push.pid, signal.SIGKILL)


_SLOW_SSH = """\
import os, signal, subprocess, sys

program = subprocess.Popen(sys.argv[-1], shell=True, stdin=subprocess.PIPE, bufsize=0)
received, moves_lease = 0, None
while content := os.read(0, 1 << 16):
    if moves_lease is None:
        moves_lease = b"refs/hankweave/lease" in content

    received += len(content)
    if moves_lease and received > 1 << 20:
        signal.pause()

    program.stdin.write(content)

program.stdin.close()
sys.exit(program.wait())
"""
"""Connects git as ssh does, but more than 1 MiB is not through in time when the lease is moved."""


def slow_connection(folder: Path) -> dict[str, str]:
    """Return variables with which git uses such a connection for every ssh:// address."""
    program = folder / "ssh.py"
    program.write_text(_SLOW_SSH)
    return {"GIT_SSH_COMMAND": f"{sys.executable} {program}", "GIT_SSH_VARIANT": "simple"}
