"""The confinement that this machine offers: the strongest level that a process of its own finds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO

import hankweave_protocol
import hankweave_server
from hankweave_server.confinement import bwrap, kernel, landlock
from hankweave_server.confinement import fence as fence_program
from hankweave_server.confinement.fence import Plan
from hankweave_server.confinement.namespaces import is_below
from hankweave_server.confinement.own_program import own_program
from hankweave_server.confinement.policy import (
    SYSTEM_READ,
    Fence,
    Level,
    Policy,
    Probe,
)
from hankweave_server.fsutil import temporary_folder

_DEADLINE = 20.0
"""Seconds; the programs that this module runs take a fraction of one."""


@cache
def probe() -> Probe:
    """Try the levels, from strong to weak, until one works; cached for the life of the server.

    Blocks for about 100 ms the first time. Raises nothing: whatever goes wrong is a reason.
    """
    abi = landlock_abi()
    reasons: dict[str, str] = {}
    for level in (Level.NAMESPACE, Level.BWRAP, Level.LANDLOCK):
        reason = _reason_against(level, abi)
        if reason is None:
            return Probe(level, abi, reasons)

        reasons[level.value] = reason

    return Probe(Level.NONE, abi, reasons)


@cache
def landlock_abi() -> int:
    """Return the version of Landlock's interface, 0 where there is none."""
    return landlock.version() if kernel.IS_SUPPORTED else 0


@cache
def bubblewrap() -> str | None:
    """Return the path of bubblewrap, searched only where agents cannot write."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    system = os.pathsep.join(entry for entry in entries if _is_system(os.path.realpath(entry)))
    return shutil.which(bwrap.PROGRAM, path=system)


def _reason_against(level: Level, abi: int) -> str | None:
    if not kernel.IS_SUPPORTED:
        return f"the machine ({kernel.MACHINE}) is neither x86_64 nor aarch64"

    if level is Level.BWRAP:
        if bubblewrap() is None:
            return "bubblewrap (bwrap) is not installed"
    elif level is Level.LANDLOCK and abi < landlock.IS_USABLE_SINCE:
        return f"the kernel's Landlock is too old (version {abi})" if abi else "it has no Landlock"

    try:
        return try_level(level)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def try_level(level: Level) -> str | None:
    """Apply a level in a child process and attack it; return why it does not hold, or None."""
    with tempfile.TemporaryDirectory(prefix="hankweave-probe-", dir=temporary_folder()) as name:
        top = Path(name).resolve()
        inside, covered, outside = top / "inside", top / "inside" / "covered", top / "outside"
        for folder in (covered, outside):
            folder.mkdir(parents=True)
            (folder / "secret").touch()

        policy = Policy(
            read=(*SYSTEM_READ, *own_programs()),
            write=(str(inside), os.devnull),
            hidden=(str(covered),),
        )
        with _plan_file(Fence(policy, level)) as plan:
            trial = subprocess.run(
                _own_program("try", str(plan.fileno()), str(outside)),
                pass_fds=(plan.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_DEADLINE,
                check=False,
            )

    said = trial.stdout.decode(errors="replace").strip()
    return (said or f"exit code {trial.returncode}") if said or trial.returncode else None


def own_programs() -> tuple[str, ...]:
    """Return the folders of this server's interpreter and packages, which its own programs read."""
    packages = (hankweave_server, hankweave_protocol)
    sources = (Path(package.__file__ or "").parent.parent for package in packages)
    folders = {sys.prefix, sys.base_prefix, *map(str, sources)}
    real = {os.path.realpath(folder) for folder in folders}
    return tuple(sorted(folder for folder in real if not _is_system(folder)))


def _is_system(folder: str) -> bool:
    return any(is_below(folder, known) for known in SYSTEM_READ)


@contextmanager
def prepared(fence: Fence | None, *, is_recognized: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield the descriptors to pass to the keeper: the plan, and the rules of ports if needed.

    There are none without a fence. `is_recognized`: the server closes the program's connections
    because it recognizes its control group, so no rules of ports are needed. Blocks for about
    100 ms if the rules of these ports are new; see `prepare_ports`. Raises OSError.
    """
    if fence is None or fence.is_open:
        yield ()
        return

    if fence.policy.temporary is not None:
        os.makedirs(fence.policy.temporary, mode=0o700, exist_ok=True)

    with _plan_file(fence, is_recognized) as plan:
        rules = None if is_recognized else _port_rules_of(fence)
        yield (plan.fileno(),) if rules is None else (plan.fileno(), rules)


def prepare_ports(denied: tuple[int, ...]) -> None:
    """Build the rules that deny these ports, so that no start has to wait for them. Blocks."""
    if denied and landlock.knows_ports(landlock_abi()):
        _port_rules(denied)


def _port_rules_of(fence: Fence) -> int | None:
    policy = fence.policy
    if policy.connect is not None or not policy.denied_ports:
        return None

    if not landlock.knows_ports(landlock_abi()):
        return None

    return _port_rules(policy.denied_ports).descriptor


class _PortRules:
    """A ruleset that allows connections to all TCP ports but some; kept for all agents."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


@lru_cache(maxsize=4)
def _port_rules(denied: tuple[int, ...]) -> _PortRules:
    """Build the rules in another process: 65,535 calls would hold this one up."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ports = map(str, denied)
        subprocess.run(
            _own_program("ports", str(theirs.fileno()), *ports),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            timeout=_DEADLINE,
            check=True,
        )
        _, descriptors, _, _ = socket.recv_fds(ours, 16, 1)

    return _PortRules(descriptors[0])


def _plan_file(fence: Fence, is_recognized: bool = False) -> BinaryIO:
    """Return a file in memory with the plan; a pipe could be too small for it."""
    file = open(os.memfd_create("fence"), "wb")  # noqa: SIM115 - the caller closes it.
    file.write(plan_of(fence)._replace(must_join=is_recognized).encode())
    file.flush()
    return file


def _own_program(*arguments: str) -> tuple[str, ...]:
    return (*own_program(fence_program.__name__), *arguments)


def plan_of(fence: Fence) -> Plan:
    """Return the plan of a fence: its policy with all links resolved.

    This server's own programs become read-only, even in a writable folder, as in a project whose
    virtual environment it is installed in: the next keeper would run what an agent puts there.

    A link below a hidden path cannot be resolved inside; it stays, and its target is added. Where
    an agent may write, it can plant links: one that leads out of there opens nothing.
    """
    policy = fence.policy
    connect = policy.connect
    if connect is not None:
        connect = tuple(port for port in connect if port not in policy.denied_ports)

    writable = policy.write
    helper = own_programs() if fence.level is Level.BWRAP else ()
    temporary = _resolved(() if policy.temporary is None else (policy.temporary,), writable)
    return Plan(
        level=fence.level.value,
        landlock_abi=landlock_abi(),
        bubblewrap=bubblewrap() if fence.level is Level.BWRAP else None,
        own_program=_own_program(),
        read=_resolved((*policy.read, *helper), writable),
        write=_resolved(policy.write, writable),
        hidden=_real(policy.hidden),
        concealed=_real(policy.concealed),
        granted=_resolved(policy.granted, writable),
        protected=_among(own_programs(), _real(writable)),
        temporary=temporary[-1] if temporary else None,
        connect=connect,
    )


def _among(paths: Iterable[str], folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if any(is_below(path, folder) for folder in folders))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _resolved(paths: Iterable[str], writable: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path in paths:
        real = os.path.realpath(path)
        around = (os.path.realpath(folder) for folder in writable if _is_inside(path, folder))
        if all(is_below(real, folder) for folder in around):
            found |= dict.fromkeys((_with_real_parent(path), real))

    return tuple(found)


def _is_inside(path: str, folder: str) -> bool:
    path, folder = os.path.normpath(path), os.path.normpath(folder)
    return path != folder and is_below(path, folder)


def _with_real_parent(path: str) -> str:
    parent, name = os.path.split(path.rstrip("/"))
    return os.path.join(os.path.realpath(parent), name)
