"""The keeper: a small process between the server and one agent that holds on to all its processes.

The problem. An agent starts compilers, test runners, development servers. When its codon ends, is
stopped, or the server dies, all of them must end too: a process that lives on writes to the work
tree while a checkpoint or a rollback reads it. Killing "the agent" is not enough. `kill` and
`killpg` only reach processes that stay where they were started: a child that calls setsid(2) leaves
the process group, and one whose parent ends (a double fork) is no longer the agent's descendant.
Cleanup code in the server is not enough either, because SIGKILL runs none.

The solution. Each agent gets a parent of its own, this program, and four mechanisms of the kernel:

- *Subreaper* (PR_SET_CHILD_SUBREAPER). A process below the keeper whose parent ends becomes the
  keeper's child, not init's. So the whole tree stays below the keeper, whatever sessions, groups
  and environments its processes choose. When wait(2) fails with ECHILD, no process of the agent is
  left. This is known, not guessed from a scan of /proc.
- *End of file.* The keeper reads its orders from a pipe whose only write end the server holds.
  However the server ends, the kernel closes that end, and the keeper kills the tree. It does the
  same when the agent itself ends.
- *Parent death signal* (PR_SET_PDEATHSIG). If the keeper itself is killed, the kernel kills the
  agent. The signal is not inherited: it covers the agent, not the agent's children.
- *Control group*, where the kernel lets it create one (`process_table.place`). Processes
  stay in it when their keeper is gone, and `cgroup.kill` ends all of them at once.

Signals are sent by the keeper, not by the server. Only a parent knows that a pid is valid, because
the kernel does not reuse it before the parent has waited for it. They go to process groups, because
that is atomic: no process can fork out of a group while the group is signalled. Groups that appear
after a scan of the tree are found by the next one. `_end_tree` therefore repeats "scan, SIGKILL,
reap" until wait(2) finds no child. The keeper never signals its own group; the agent cannot join
that one, because it is in another session.

What can still go wrong, and what catches it:

- The keeper is stopped (SIGSTOP). It then reports nothing. `child.AgentProcess.watch_keeper`
  continues it, and ends an agent that keeps stopping it.
- The keeper is killed. The agent dies with it, and `AgentProcess.end` hunts the rest with
  `leftovers.kill_members`: recorded pids, control group, sessions, descendants, and the mark in the
  environment of each process.
- Server and keeper are both killed. The record on disk (`leftovers.AgentRecord`) lets the next
  server do the same hunt when it starts.
- A process hangs in the kernel, or belongs to another user, so SIGKILL does not end it. The keeper
  keeps trying; the server waits for a bounded time, then reports the pids (`AgentUnkillable`).
- SIGINT, SIGTERM or SIGHUP arrives, say from a terminal. These only wake the keeper up. It ends
  when its tree is empty, not before.

The fence. The keeper itself stays outside the agent's fence, so that it can signal and watch all of
the tree. The forked process applies the fence to itself (`confinement.fence`) right before exec; if
it cannot, it does not become the agent.

The protocol. Orders are single bytes (INTERRUPT, TERMINATE, PAUSE, RESUME), each answered with
`done`. Reports are lines: `started PID`, `failed ERRNO` or `unconfined REASON`, then `exited CODE`
or `killed SIGNAL` for the agent itself, and `empty` when nothing of its tree is left.

Read `Keeper.keep` first (the life of an agent), then `_follow_order`, `_end_tree` and `_reap`, then
`_start` and `_become` (what happens between fork and exec). The module runs in an isolated
interpreter, so it imports the standard library and modules that do the same (see `own_program`).
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
from typing import TYPE_CHECKING

from hankweave_server.confinement import fence
from hankweave_server.confinement.fence import Plan
from hankweave_server.confinement.kernel import FenceError

if TYPE_CHECKING:
    from hankweave_server.agents.process.process_table import ProcessFacts

INTERRUPT, TERMINATE, PAUSE, RESUME = b"I", b"T", b"P", b"R"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = b"500"  # Of 1000: the agent goes before the daemon when memory runs out.
_FIRST_POLL = 0.05
_LONGEST_POLL = 1.0
_PAUSE_DEADLINE = 2.0
_PAUSE_POLL = 0.005
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    report, orders, group, confinement, ended, *command = arguments
    descriptors = tuple(int(descriptor) for descriptor in confinement.split(",") if descriptor)
    Keeper(int(report), int(orders), group, descriptors, ended).keep(command)
    return 0


class Keeper:
    """The parent of one agent's processes."""

    def __init__(
        self,
        report: int,
        orders: int,
        group: str = "",
        confinement: tuple[int, ...] = (),
        ended: str = "",
    ) -> None:
        """Become a subreaper and install the signal handlers.

        `report` and `orders` are descriptors of pipes. `group` is the folder of the agent's control
        group, empty if there is none. `confinement` has the descriptors of the fence's plan and its
        rules of ports; without any the agent runs unconfined. `ended` is the path of a file that is
        written when nothing of the tree is left, in the folder that is there now: another one may
        take its name meanwhile.
        """
        self._group = group
        self._confinement = confinement
        self._report = report
        self._orders = orders
        folder, self._ended = os.path.split(ended)
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if ended else -1
        self._left_alone_ns = 0
        self._agent: int | None = None
        for descriptor in (report, orders, *confinement):
            os.set_inheritable(descriptor, False)

        os.set_blocking(orders, False)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._signals = _signal_descriptor(
            signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        )

    def keep(self, command: list[str]) -> None:
        """Run the agent until it ends or the server closes its pipe, then end its tree."""
        # Made here, because this process outlives a server that is killed, and removes it.
        _make_group(self._group)
        self._agent, error = _start(command, self._group, self._confinement)
        if error:
            self._remove_group()
            self._send(error)
            return

        self._send(f"started {self._agent}")
        _release_standard_streams()
        self._tree()  # Loads modules for which the agent does not have to wait.
        while self._agent is not None and self._follow_order():
            self._reap()

        self._left_alone_ns = time.time_ns()
        self._end_tree()
        self._remove_group()
        self._leave_times()
        self._send("empty")

    def _leave_times(self) -> None:
        """Leave when the server was gone, and by the file's time when the tree was.

        For the next server. A server that lives removes the file: whether it does cannot be known
        here, because the kernel closes the pipes of a dying process one after the other.
        """
        if not self._ended:
            return

        with contextlib.suppress(OSError):
            flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._ended, flags, 0o600, dir_fd=self._folder)
            with open(descriptor, "w") as file:
                file.write(str(self._left_alone_ns))

    def _remove_group(self) -> None:
        if self._group:
            # Fails if the agent created groups in it; `process_table.remove` handles those.
            with contextlib.suppress(OSError):
                os.rmdir(self._group)

    def _follow_order(self) -> bool:
        """Wait for a signal or orders and carry the orders out; False if the server is gone."""
        _wait_for(self._orders, self._signals)
        _drain(self._signals)
        try:
            orders = os.read(self._orders, 64)
        except BlockingIOError:
            return True

        for order in orders:
            self._carry_out(bytes([order]))
            self._send("done")

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
        """Send SIGSTOP to group after group until a scan finds no running process.

        Give up after 2 seconds: a process that hangs in the kernel stops as soon as it leaves it.
        """
        deadline = time.monotonic() + _PAUSE_DEADLINE
        while time.monotonic() < deadline:
            moving = {facts.group for facts in self._tree() if facts.state not in "TtZX"}
            if not moving:
                return

            self._signal(moving, signal.SIGSTOP)
            _wait_for(seconds=_PAUSE_POLL)

    def _end_tree(self) -> None:
        pause = _FIRST_POLL
        while self._reap():
            self._signal(self._groups(), signal.SIGKILL)
            _wait_for(self._signals, seconds=pause)
            _drain(self._signals)
            pause = min(2 * pause, _LONGEST_POLL)

    def _reap(self) -> bool:
        """Wait for every dead child; False if there is no child left, dead or alive."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True

                if pid == self._agent:
                    self._agent = None
                    self._send(_ending(status))

        return False

    def _tree(self) -> list[ProcessFacts]:
        from hankweave_server.agents.process import process_table

        found = map(process_table.read, process_table.below(os.getpid()))
        return [facts for facts in found if facts is not None]

    def _groups(self) -> set[int]:
        return {facts.group for facts in self._tree()}

    def _signal(self, groups: set[int], number: signal.Signals) -> None:
        for group in groups - {os.getpgrp()}:
            # The group is gone, or belongs to another user: the server reports survivors.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def _send(self, report: str) -> None:
        # The server may be gone; the tree still has to be ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report, report.encode() + b"\n")


def _start(command: list[str], group: str, confinement: tuple[int, ...]) -> tuple[int, str]:
    """Start the agent in its own session; return its pid and a report if it could not start."""
    keeper = os.getpid()
    error_read, error_write = os.pipe()  # A successful exec closes the write end: no error.
    agent = os.fork()
    if agent == 0:
        _become(command, keeper, group, confinement, error_write)

    os.close(error_write)
    with open(error_read, "rb") as errors:
        error = errors.read().decode()

    if error:
        os.waitpid(agent, 0)  # Its group can be removed only then.

    return agent, error


def _make_group(group: str) -> None:
    if group:
        # `_join` then notices that there is none.
        with contextlib.suppress(OSError):
            os.mkdir(group)


def _reset_ignored_signals() -> None:
    """Reset ignored signals to their default action.

    Python ignores some, and a shell that starts a program with `&` ignores others; both survive
    exec.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _become(
    command: list[str], keeper: int, group: str, confinement: tuple[int, ...], errors: int
) -> None:
    """Turn the forked process into the agent; does not return."""
    try:
        os.setsid()
        _die_with(keeper)
        has_joined = _join(group)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _offer_to_oom_killer()
        _reset_ignored_signals()
        if confinement:
            descriptor, *port_rules = confinement
            plan = Plan.read_from(descriptor)
            if plan.must_join and not has_joined:
                raise FenceError("its control group did not accept it")

            command = fence.apply(plan, command, *port_rules)
            _die_with(keeper)  # Again, because a change of credentials can clear it.

        os.execvp(command[0], command)
    except FenceError as error:
        os.write(errors, f"unconfined {error}".encode())
    except OSError as error:
        os.write(errors, f"failed {error.errno}".encode())
    finally:
        os._exit(127)


def _die_with(keeper: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)


def _join(group: str) -> bool:
    """Enter the group; return False if it does not accept this process, or if there is none.

    The keeper alone has to hold it then.
    """
    if not group:
        return False

    try:
        # Without a buffer, so that it fails here.
        with open(f"{group}/cgroup.procs", "wb", buffering=0) as file:
            file.write(b"0")
    except OSError:
        return False

    return True


def _offer_to_oom_killer() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_OOM_SCORE)


def _release_standard_streams() -> None:
    """Replace the agent's pipes in this process, so that they end when the agent closes its own."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _signal_descriptor(*numbers: signal.Signals) -> int:
    """Return a descriptor that becomes readable after any of these signals.

    The signals get a handler that does nothing; they are not ignored, because ignoring survives
    exec and would reach the agent.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _note_only)

    return read_end


def _note_only(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; the wake-up descriptor reports the signal."""


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
