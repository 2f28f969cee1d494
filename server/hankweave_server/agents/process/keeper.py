"""The keeper: a small process between the daemon and one agent, so that no process gets away.

`kill` and `killpg` reach only those who stay where they were put; a child in a session of its
own, or one that was double-forked, is neither below the agent nor in its group any more. Three
facilities of the kernel close this:

- The keeper is a *subreaper*. Whoever loses its parent below it becomes its child, so the whole
  tree is always below it, whatever sessions, groups and environments it chose. When wait(2) says
  that there are no children left, nothing of the agent lives: known, not guessed from a scan.
- The keeper holds the read end of a pipe whose only write end is in the daemon. Orders come through
  it, and its end, which even a daemon killed with SIGKILL brings about, means: end it all.
- The agent itself dies with the keeper (PR_SET_PDEATHSIG). What it leaves behind then is found by
  its control group, where there is one (`control_group.py`), and by its mark (`leftovers.py`).

Signals are sent from here and not from the daemon, for only the parent knows a pid to be valid: it
stays so until the parent has waited for it. They go to process groups, because that is atomic: a
process cannot fork its way out of a group while the group is being signalled.

Orders are single bytes, each answered with `done`. Reports are lines: `started PID`,
`failed ERRNO`, `exited CODE`, `killed SIGNAL`, `done`, `empty`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import time
from types import FrameType

from hankweave_server.agents.process import process_table
from hankweave_server.agents.process.process_table import ProcessFacts

INTERRUPT, TERMINATE, PAUSE, RESUME = b"I", b"T", b"P", b"R"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = b"500"  # Of 1000: the agent goes before the daemon when memory runs out.
_FIRST_LOOK = 0.05
_LONGEST_BETWEEN_LOOKS = 1.0
_PAUSE_DEADLINE = 2.0
_BETWEEN_PAUSE_LOOKS = 0.005
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    report, orders, group, *command = arguments
    Keeper(int(report), int(orders), group).keep(command)
    return 0


class Keeper:
    def __init__(self, report: int, orders: int, group: str = "") -> None:
        """`group` is the folder of the agent's control group, empty if there is none."""
        self._group = group
        self._report = report
        self._orders = orders
        self._agent: int | None = None
        for descriptor in (report, orders):
            os.set_inheritable(descriptor, False)

        os.set_blocking(orders, False)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._alarm = _alarm_at(signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def keep(self, command: list[str]) -> None:
        self._agent, error = _start(command, self._group)
        if error:
            self._tell(f"failed {error}")
            return

        self._tell(f"started {self._agent}")
        _let_go_of_standard_streams()
        while self._agent is not None and self._obey():
            self._reap()

        self._end_tree()
        self._remove_group()
        self._tell("empty")

    def _remove_group(self) -> None:
        if self._group:
            # Not empty if the agent has made groups in it: who sweeps knows how.
            with contextlib.suppress(OSError):
                os.rmdir(self._group)

    def _obey(self) -> bool:
        """Waits for something to happen and carries out orders; False if the daemon has let go."""
        _wait_for(self._orders, self._alarm)
        _drain(self._alarm)
        try:
            orders = os.read(self._orders, 64)
        except BlockingIOError:
            return True

        for order in orders:
            self._carry_out(bytes([order]))
            self._tell("done")

        return orders != b""

    def _carry_out(self, order: bytes) -> None:
        match order:
            case b"I":
                # What a terminal does on Ctrl-C; the agent may want to end its children itself.
                self._signal({self._agent} if self._agent else set(), signal.SIGINT)
            case b"T":
                self._signal(self._groups(), signal.SIGTERM)
            case b"P":
                self._pause()
            case b"R":
                self._signal(self._groups(), signal.SIGCONT)

    def _pause(self) -> None:
        """Stops group after group, until a look finds nothing that moves.

        A process that hangs in the kernel is not waited for: it stops as soon as it leaves it.
        """
        deadline = time.monotonic() + _PAUSE_DEADLINE
        while time.monotonic() < deadline:
            moving = {facts.group for facts in self._tree() if facts.state not in "TtZX"}
            if not moving:
                return

            self._signal(moving, signal.SIGSTOP)
            _wait_for(seconds=_BETWEEN_PAUSE_LOOKS)

    def _end_tree(self) -> None:
        pause = _FIRST_LOOK
        while self._reap():
            self._signal(self._groups(), signal.SIGKILL)
            _wait_for(self._alarm, seconds=pause)
            _drain(self._alarm)
            pause = min(2 * pause, _LONGEST_BETWEEN_LOOKS)

    def _reap(self) -> bool:
        """Waits for every child that is dead; False if there is no child left, dead or alive."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True

                if pid == self._agent:
                    self._agent = None
                    self._tell(_ending(status))

        return False

    def _tree(self) -> list[ProcessFacts]:
        table = process_table.scan()
        return [table[pid] for pid in process_table.descendants(table, [os.getpid()])]

    def _groups(self) -> set[int]:
        return {facts.group for facts in self._tree()}

    def _signal(self, groups: set[int], number: signal.Signals) -> None:
        for group in groups - {os.getpgrp()}:
            # Gone already, or under another user: the daemon names those who survive.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def _tell(self, report: str) -> None:
        # Without a daemon there is nobody to tell, and the tree still has to be ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report, report.encode() + b"\n")


def _start(command: list[str], group: str) -> tuple[int, int]:
    """Starts the agent in a session of its own; returns its pid and, if it failed, the errno."""
    keeper = os.getpid()
    error_read, error_write = os.pipe()  # Closed by a successful exec: then there is no error.
    agent = os.fork()
    if agent == 0:
        _become(command, keeper, group, error_write)

    os.close(error_write)
    with open(error_read, "rb") as errors:
        error = errors.read()

    return agent, int(error) if error else 0


def _hear_all_signals() -> None:
    """Ignores nothing that Python ignores, or whoever started us (a shell does it with `&`)."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _become(command: list[str], keeper: int, group: str, errors: int) -> None:
    """Turns the fork into the agent; never returns."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)

        _join(group)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _offer_to_oom_killer()
        _hear_all_signals()
        os.execvp(command[0], command)
    except OSError as error:
        os.write(errors, str(error.errno).encode())
    finally:
        os._exit(127)


def _join(group: str) -> None:
    if group:
        # Where the group refuses us, its keeper still holds the agent.
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "wb") as file:
            file.write(b"0")


def _offer_to_oom_killer() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_OOM_SCORE)


def _let_go_of_standard_streams() -> None:
    """Closes the agent's pipes here, so that they end when the agent's own ends are closed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _alarm_at(*numbers: signal.Signals) -> int:
    """Returns a descriptor that is readable after any of these signals, which end nothing.

    They get a handler and are not ignored: handlers do not outlive exec, so the agent has its own.
    """
    alarm_read, alarm_write = os.pipe()
    os.set_blocking(alarm_read, False)
    os.set_blocking(alarm_write, False)
    signal.set_wakeup_fd(alarm_write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _note_only)

    return alarm_read


def _note_only(_number: int, _frame: FrameType | None) -> None:
    """Leaves everything to the wake-up descriptor."""


def _wait_for(*descriptors: int, seconds: float | None = None) -> None:
    anything = select.poll()
    for descriptor in descriptors:
        anything.register(descriptor, select.POLLIN)

    anything.poll(None if seconds is None else seconds * 1000)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exited {code}" if code >= 0 else f"killed {-code}"


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
