"""Strike a server at the N-th system call of a group: kill it there, or let the call fail.

strace counts calls for each thread by itself; if a server's work moves between worker threads, some
calls would never be the N-th. This tracer counts over all threads of the process, in the order in
which the kernel sees them, and follows no child: agents run untraced. It is a program of its own,
because a traced process belongs to the one thread that traces it.

    python nth_call.py SPEC -- COMMAND...      start the command, traced from its first call
    python nth_call.py SPEC PID                attach to a running process

SPEC is a Strike as JSON. "attached" is printed once calls are counted. The number of calls of each
group is written to the report file at the end. System call numbers are those of x86-64.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

GROUPS: dict[str, frozenset[int]] = {
    "rename": frozenset({82, 264, 316}),
    "fsync": frozenset({74, 75, 306}),
    "unlink": frozenset({87, 263, 84}),
    "write": frozenset({1, 18, 20, 296}),
    "link": frozenset({86, 265, 88, 266}),
    "mkdir": frozenset({83, 258}),
    "open": frozenset({2, 85, 257}),
}
"""rename*; fsync, fdatasync, syncfs; unlink*, rmdir; write, pwrite64, writev, pwritev; link* and
symlink*; mkdir*; open, creat, openat."""

_BY_DESCRIPTOR = GROUPS["fsync"] | GROUPS["write"]
_OPENS = {2: 0, 85: 0, 257: 1}
"""The argument that is the path."""

StrikeAction = Literal["kill", "fail", "cut"]


@dataclass(frozen=True)
class Strike:
    """The action, and the call at which it happens."""

    group: str
    below: str
    """Writes and flushes count only on files below this folder: not sockets, pipes, stdout."""
    report: str
    at: int = 0
    """Counted from 1; 0 only counts."""
    action: StrikeAction = "kill"
    error: int = 0
    """The errno of "fail"."""
    for_ever: bool = False
    """True if every later call fails as well."""
    switch: str = ""
    """Calls count, and fail, only while a file of this name exists; empty: always."""

    def __str__(self) -> str:
        what = errno.errorcode[self.error] if self.error else self.action
        return f"{what} at {self.group} {self.at}{' and later' if self.for_ever else ''}"

    def argv(self) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), json.dumps(asdict(self))]

    @property
    def counted(self) -> dict[str, int]:
        """Return the number of calls of each group; to be read after the tracer has ended."""
        counted: dict[str, int] = json.loads(Path(self.report).read_text())
        return counted

    @property
    def was_met(self) -> bool:
        return self.at != 0 and self.counted[self.group] >= self.at


def why_not() -> str | None:
    """Return the missing requirement if a process cannot be traced."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the tracer knows the system calls of Linux on x86-64 only"

    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() != 0 and scope.exists() and scope.read_text().strip() not in ("0", "1"):
        return "this system lets nobody but root trace a process"

    return None


# --- ptrace(2) ------------------------------------------------------------------------------------

_CONT_TO_CALL, _POKEUSER, _SEIZE, _INTERRUPT, _CALL_INFO = 24, 6, 0x4206, 0x4207, 0x420E
_SYSGOOD, _THREADS, _EXECS, _KILL_WITH_US = 0x1, 0x8, 0x10, 0x100000
_EVENT_STOP, _WALL, _ENTRY, _EXIT = 128, 0x40000000, 1, 2
_CALL_STOP = signal.SIGTRAP | 0x80
_NUMBER, _RESULT, _THIRD = 15 * 8, 10 * 8, 12 * 8
"""Offsets of orig_rax, rax and rdx in `struct user`."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class _CallInfo(ctypes.Structure):
    """struct ptrace_syscall_info, as far as an entry needs it."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> bool:
    """Return False if the thread was killed in the meantime."""
    if _libc.ptrace(request, thread, address, data) != -1:
        return True

    number = ctypes.get_errno()
    if number == errno.ESRCH:
        return False

    raise OSError(number, os.strerror(number))


class Tracer:
    """A tracer of all threads of one process."""

    def __init__(self, strike: Strike, pid: int) -> None:
        self._strike = strike
        self._pid = pid
        self._group_of = {number: name for name, all_ in GROUPS.items() for number in all_}
        self._below = os.fsencode(os.path.realpath(strike.below))
        self._info = _CallInfo()
        self._inside: dict[int, int | None] = {}
        """Threads in a call that was modified, with the length to restore."""
        self.counted = dict.fromkeys(GROUPS, 0)

    def seize(self) -> None:
        known: set[int] = set()
        # A thread may start during the attachment; a traced thread brings its own new threads
        # along.
        while new := {int(name) for name in os.listdir(f"/proc/{self._pid}/task")} - known:
            for thread in new:
                self._seize(thread)

            known |= new

    def _seize(self, thread: int) -> None:
        options = _SYSGOOD | _THREADS | _EXECS | _KILL_WITH_US
        try:
            if _ptrace(_SEIZE, thread, 0, options):
                _ptrace(_INTERRUPT, thread)
        except PermissionError:
            if not _is_traced_by_us(self._pid, thread):
                raise

    def follow(self) -> int:
        """Serve the process until it ends; return its wait status."""
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                self._serve(thread, status)
            elif thread == self._pid:
                return status

    def _serve(self, thread: int, status: int) -> None:
        stop = os.WSTOPSIG(status)
        passed_on = 0
        if stop == _CALL_STOP:
            self._inspect(thread)
        elif status >> 16 == 0:
            passed_on = stop

        _ptrace(_CONT_TO_CALL, thread, 0, passed_on)

    def _inspect(self, thread: int) -> None:
        info = self._info
        if not _ptrace(_CALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info)):
            return

        if info.op == _ENTRY:
            group = self._group_of.get(info.number)
            if group is not None and self._counts(thread):
                self.counted[group] += 1
                if group == self._strike.group:
                    self._strike_at(thread)
        elif info.op == _EXIT and thread in self._inside:
            self._leave(thread)

    def _counts(self, thread: int) -> bool:
        if self._strike.switch and not os.path.exists(self._strike.switch):
            return False

        if self._info.number not in _BY_DESCRIPTOR:
            return self._info.number not in _OPENS or self._opens_below(thread)

        try:
            path = os.readlink(b"/proc/%d/fd/%d" % (thread, self._info.arguments[0]))
        except OSError:
            return False

        return path.startswith(self._below)

    def _opens_below(self, thread: int) -> bool:
        where = self._info.arguments[_OPENS[self._info.number]]
        try:
            with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
                memory.seek(where)
                path = memory.read(4096).split(b"\0")[0]
            # A pinned open descriptor is named by its number.
            _, pinned, rest = path.partition(b"/proc/self/fd/")
            if pinned:
                descriptor, _, name = rest.partition(b"/")
                path = os.readlink(b"/proc/%d/fd/%b" % (thread, descriptor)) + b"/" + name
        except OSError:
            return False

        return path.startswith(self._below)

    def _strike_at(self, thread: int) -> None:
        strike = self._strike
        now = self.counted[strike.group]
        if now != strike.at and not (strike.for_ever and now > strike.at > 0):
            return

        if strike.action == "kill":
            os.kill(self._pid, signal.SIGKILL)
        elif strike.action == "fail":
            _ptrace(_POKEUSER, thread, _NUMBER, -1)
            self._inside[thread] = None
        elif self._info.number == 1 and (length := self._info.arguments[2]) > 1:
            _ptrace(_POKEUSER, thread, _THIRD, length // 2)
            self._inside[thread] = length

    def _leave(self, thread: int) -> None:
        length = self._inside.pop(thread)
        if length is None:
            _ptrace(_POKEUSER, thread, _RESULT, -self._strike.error)
        else:
            _ptrace(_POKEUSER, thread, _THIRD, length)


def _is_traced_by_us(pid: int, thread: int) -> bool:
    status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
    return f"TracerPid:\t{os.getpid()}\n" in status


def _started(command: list[str]) -> tuple[int, int]:
    """Fork a child that waits for a byte before it becomes the command; return pid and pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os.execvp(command[0], command)

    os.close(reader)
    return pid, writer


def _pass_on(pid: int) -> None:
    # A caller that asks for its end may not have seen yet that the tracer killed it.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def main() -> int:
    strike = Strike(**json.loads(sys.argv[1]))
    command = sys.argv[3:] if sys.argv[2] == "--" else []
    pid, go = _started(command) if command else (int(sys.argv[2]), -1)
    tracer = Tracer(strike, pid)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(pid))
    tracer.seize()
    if command:
        os.write(go, b"g")
        os.close(go)
    else:
        sys.stdout.write("attached\n")
        sys.stdout.flush()

    status = tracer.follow()
    # Python would exit with it, and the server's end would look like another one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(strike.report).write_text(json.dumps(tracer.counted))
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main())
