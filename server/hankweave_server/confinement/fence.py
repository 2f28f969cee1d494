"""Apply a fence to this process, which is about to become an agent or a command.

The keeper calls `apply` between fork and exec, where the process has a single thread. The order of
the parts is fixed: mounts need the capabilities of the new namespace; Landlock needs the promise
not to gain privileges; and the filter of system calls comes last, because it forbids the calls that
the other parts are made of. Each part holds for everything that the process starts, for good.

Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hankweave_server.confinement import bwrap, kernel, landlock, namespaces, seccomp
from hankweave_server.confinement.kernel import FenceError
from hankweave_server.confinement.namespaces import MountContent, Step

_MORE_THAN_ANY_PLAN = 1 << 24
_NOT_RUN = 126
_FOR_THE_AGENT = (signal.SIGINT, signal.SIGTERM)
"""Signals to a process group, which bubblewrap must survive so that the agent can answer them."""


class Plan(NamedTuple):
    """A policy with its links resolved, in types that an isolated interpreter can read."""

    level: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    hidden: tuple[str, ...]
    concealed: tuple[str, ...]
    granted: tuple[str, ...]
    protected: tuple[str, ...]
    """This server's own programs, where they lie in a writable folder."""

    temporary: str | None
    landlock_abi: int
    bubblewrap: str | None
    own_program: tuple[str, ...]
    """The command that runs `main` of this module."""

    connect: tuple[int, ...] | None
    """The only TCP ports to connect to; None if `port_rules` or nothing restricts them."""

    must_join: bool = False
    """True if the program may only run in its control group, which the server recognizes."""

    def encode(self) -> bytes:
        """Return the plan for `decode` by the same interpreter, so its own format will do."""
        return marshal.dumps(tuple(self))

    @classmethod
    def decode(cls, encoded: bytes) -> Plan:
        return cls(*marshal.loads(encoded))

    @classmethod
    def read_from(cls, descriptor: int) -> Plan:
        """Read the plan in a file from its beginning, whatever has been read from it before."""
        return cls.decode(os.pread(descriptor, _MORE_THAN_ANY_PLAN, 0))


def apply(plan: Plan, command: Sequence[str], port_rules: int | None = None) -> list[str]:
    """Confine this process; return the command to execute. Raises FenceError.

    `port_rules` is the descriptor of a ruleset of ports.
    """
    is_usable = plan.landlock_abi >= landlock.IS_USABLE_SINCE
    decides = plan.level == "landlock" or (plan.level == "namespace" and is_usable)
    mounts = namespaces.steps(
        read=plan.read,
        write=plan.write,
        hidden=plan.hidden,
        concealed=plan.concealed,
        granted=plan.granted,
        protected=plan.protected,
        temporary=plan.temporary,
        otherwise=MountContent.READABLE if decides else MountContent.NOTHING,
    )
    if plan.level == "bwrap":
        return _in_bubblewrap(plan, mounts, command, port_rules)

    if plan.level == "namespace":
        namespaces.enclose(mounts, plan.temporary, in_new_root=not decides)

    _part("Dropping capabilities", kernel.drop_capabilities)
    _part("no_new_privs", kernel.forbid_new_privileges)
    if decides:
        _part("Landlock", lambda: _restrict(plan, port_rules))

    _part("The filter of system calls", seccomp.install)
    return list(command)


def _in_bubblewrap(
    plan: Plan, mounts: Sequence[Step], command: Sequence[str], port_rules: int | None
) -> list[str]:
    """Return a command that runs `main` in bubblewrap, to complete the fence from inside."""
    if plan.bubblewrap is None:
        raise FenceError("bubblewrap is not installed")

    for number in _FOR_THE_AGENT:
        signal.signal(number, signal.SIG_IGN)

    handed_over = os.memfd_create("fence", 0)
    os.write(handed_over, plan.encode())
    rules = ""
    if port_rules is not None:
        os.set_inheritable(port_rules, True)
        rules = str(port_rules)

    complete = [*plan.own_program, "complete", str(handed_over), rules, *command]
    _part("no_new_privs", kernel.forbid_new_privileges)
    return bwrap.wrap(plan.bubblewrap, mounts, plan.temporary, complete)


def _complete(descriptor: int, rules: str, command: list[str]) -> int:
    """Add Landlock, inside of bubblewrap, and run the command."""
    for number in _FOR_THE_AGENT:
        signal.signal(number, signal.SIG_DFL)

    plan = Plan.read_from(descriptor)
    os.set_inheritable(descriptor, False)
    try:
        if plan.landlock_abi >= landlock.IS_USABLE_SINCE:
            _part("Landlock", lambda: _restrict(plan, int(rules) if rules else None))

        if rules:
            os.set_inheritable(int(rules), False)

        os.execvp(command[0], command)
    except (FenceError, OSError) as error:
        sys.stderr.write(f"The program could not be confined and was not run: {error}\n")

    return _NOT_RUN


def _restrict(plan: Plan, port_rules: int | None) -> None:
    abi = plan.landlock_abi
    ruleset = landlock.Ruleset(abi, ports=plan.connect is not None)
    for path in plan.read:
        ruleset.allow(path, writing=False)

    for path in plan.write:
        ruleset.allow(path, writing=True)

    if plan.connect is not None and landlock.knows_ports(abi):
        ruleset.allow_ports(plan.connect)

    landlock.restrict(ruleset.descriptor)
    if port_rules is not None:
        # Last, because the rules of a ruleset are copied by each that follows.
        landlock.restrict(port_rules)


def _part(name: str, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        raise FenceError.at(name, error) from error


def main(arguments: list[str]) -> int:
    """Do what needs a process of its own: complete a fence, try one, or build rules of ports."""
    task, descriptor, *others = arguments
    if task == "complete":
        return _complete(int(descriptor), others[0], others[1:])

    if task == "try":
        return _try(Plan.read_from(int(descriptor)), *others)

    import socket  # Not at the top, because every start of an agent would load it.

    rules = landlock.Ruleset(landlock.version(), files=False, ports=True)
    denied = {int(port) for port in others}
    rules.allow_ports(port for port in range(landlock.LAST_PORT + 1) if port not in denied)
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            socket.send_fds(connection, [b"rules"], [rules.descriptor])
        except BrokenPipeError:
            return 1  # The server has been killed meanwhile.

    return 0


_TRIAL = """
import os, sys

def must_fail(what, action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return
    print(what, "is possible")

inside, outside, hides, covered = sys.argv[1:]
open(inside + "/written", "w").close()
must_fail("writing outside", open, outside + "/written", "w")
must_fail("reading outside", open, outside + "/secret")
if hides:
    must_fail("changing a mode outside", os.chmod, outside, 0o700)
    must_fail("reading what is hidden", open, covered + "/secret")
"""


def _try(plan: Plan, outside: str) -> int:
    """Attack a plan from inside; print the reason if it does not hold, nothing if it does.

    The first folders in `write` and `hidden` are the one that is open and the covered one.
    """
    inside, covered = plan.write[0], plan.hidden[0]
    hides = "" if plan.level == "landlock" else "yes"
    attack = [sys.executable, "-I", "-S", "-c", _TRIAL, inside, outside, hides, covered]
    os.chdir(inside)
    try:
        command = apply(plan, attack)
        os.execvp(command[0], command)
    except (FenceError, OSError) as error:
        sys.stdout.write(f"{error}\n")

    return 1
