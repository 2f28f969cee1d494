"""Run a command where it cannot harm the machine: `enclosure.py [--grace SECONDS] COMMAND...`.

Some tests mount and unmount, fill disks, send signals to strangers, or run the attacks of
`attacks.py`, a few of them without the fence that should stop them. Inside, the command is in
mount, pid, network, IPC and UTS namespaces of its own, and in a control group of its own where
that is allowed:

- The root is a read-only copy of the machine's mounts, entered by pivot_root(2). Writable are the
  checkout, /sys (control groups), and what is made for the command alone: /tmp and /var/tmp, which
  are folders below the machine's TMPDIR, and /proc, /dev/shm and /dev/pts. What the tests need of a
  folder below the machine's /tmp, such as a home, is there read-only.
- There is one network interface, loopback.
- The first process of the pid namespace is this program. It reaps orphans, and everything that is
  left ends with it. It dies with the program that was started outside.

An ordinary user gets the same in a user namespace. If the kernel does not allow it, nothing runs
and the exit code is 69.

When the command has ended, this program looks for what it has left behind: processes, mounts, loop
devices, control groups, shared memory, files in /tmp, /var/tmp and /dev/shm, and changes of the
checkout. It names them, and the exit code is 1 instead of 0. Processes may end by themselves for a
while, a minute without `--grace`. A command that a signal has ended is not judged.

SIGINT, SIGTERM and SIGHUP are passed on to the command.

As a library, `require()` raises unless the process is inside.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from hankweave_server.confinement import kernel
from hankweave_server.confinement.namespaces import is_below

OUTSIDE = "HANKWEAVE_OUTSIDE"
"""The environment variable with the namespaces of the program that made the enclosure."""

NOT_ALLOWED = 69
REASON = "it needs an enclosure: scripts/test makes one where the kernel allows it, as for root"

_TOP = Path(__file__).resolve().parents[2]
_KINDS = ("mnt", "pid", "net")
_CAP_SYS_ADMIN = 21
_PR_SET_PDEATHSIG = 1

_CLONE_NEWNS, _CLONE_NEWCGROUP, _CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID = 0x08000000, 0x10000000, 0x20000000
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_TEMPORARY = ("/tmp", "/var/tmp")
_BELOW_TEMPORARY = tuple(f"{folder}/" for folder in _TEMPORARY)
_GRACE = 60.0
_MAY_BE_LEFT = ("pytest-of-", "hankweave-probe-")
"""pytest keeps the folders of its last runs. A server that is killed while it tries what the kernel
allows, as tests do, cannot remove what it has made for that."""


class Wanted(NamedTuple):
    """A command, and what has been made for it outside."""

    command: list[str]
    grace: float
    folder: Path
    group: Path | None
    outside: list[str]
    has_terminal: bool


class NotEnclosed(Exception):
    """This process is not inside an enclosure."""


def why_not() -> str | None:
    """Return why this process counts as outside of an enclosure, or None if it is inside.

    The environment alone proves nothing: it outlives the namespaces, and anybody can set it.
    """
    outside = os.environ.get(OUTSIDE, "").split()
    if len(outside) != len(_KINDS) or set(outside) & set(namespaces()):
        return REASON

    init = Path("/proc/1/cmdline").read_bytes().split(b"\0")
    return None if any(word.endswith(b"/enclosure.py") for word in init) else REASON


def require() -> list[str]:
    """Raise NotEnclosed unless this process is inside; return the namespaces outside."""
    if (reason := why_not()) is not None:
        raise NotEnclosed(reason)

    return os.environ[OUTSIDE].split()


def namespaces() -> list[str]:
    """Return the identities of this process's mount, pid and network namespaces."""
    return [os.readlink(f"/proc/self/ns/{kind}") for kind in _KINDS]


def take_own_mounts() -> None:
    """Give this process a mount namespace of its own, if it is inside and may make one.

    A confined agent copies all mounts of its namespace, and so keeps a file system alive that a
    test of another process has unmounted.
    """
    if why_not() is None and kernel.has_capability(_CAP_SYS_ADMIN):
        kernel.unshare(_CLONE_NEWNS)


def mounts() -> set[str]:
    """Return where something is mounted in this process's namespace, and of which kind."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, source = line.partition(" - ")
        found.add(f"{fields.split()[4]} ({source.split()[0]})")

    return found


# Outside: the namespaces, and what has to be removed afterwards.


def main() -> int:
    parser = argparse.ArgumentParser(usage="enclosure.py [--grace SECONDS] COMMAND...")
    parser.add_argument("--grace", type=float, default=_GRACE)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("which command?")

    _signals.catch()
    has_terminal = _has_terminal()
    with _folder() as folder, _group() as group:
        wanted = Wanted(
            arguments.command, arguments.grace, folder, group, namespaces(), has_terminal
        )
        code = _in_child(lambda: _leave_the_machine(wanted))
        if has_terminal:
            _give_terminal_to(os.getpgrp())

        return code


def _in_child(work: Callable[[], int]) -> int:
    """Do the work in a child, which dies with this process; return its exit code."""
    with _signals.held():
        pid = os.fork()
        if pid:
            _signals.pass_on_to(pid)

    if pid == 0:
        code = 1
        try:
            kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="hankweave-tests-")
    try:
        yield Path(folder)
    finally:
        # Tests make trees that are too deep for shutil.rmtree.
        subprocess.run(["rm", "-rf", "--one-file-system", folder], check=False)


@contextlib.contextmanager
def _group() -> Iterator[Path | None]:
    """Make a control group below this process's own; None where that is not allowed."""
    own = _own_group()
    group = None if own is None else own / f"hankweave-tests-{os.getpid()}"
    if group is None or not os.access(group.parent / "cgroup.procs", os.W_OK):
        yield None
        return

    try:
        group.mkdir()
    except OSError:
        yield None
        return

    try:
        yield group
    finally:
        for path, _, _ in os.walk(group, topdown=False):
            os.rmdir(path)


def _own_group() -> Path | None:
    root = _mount_of_groups()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if root is not None and line.startswith("0::/"):
            return root / line.removeprefix("0::/")

    return None


def _mount_of_groups() -> Path | None:
    found = (each.removesuffix(" (cgroup2)") for each in mounts() if each.endswith(" (cgroup2)"))
    return next(map(Path, found), None)


def _leave_the_machine(wanted: Wanted) -> int:
    """Start the first process inside, in new namespaces; return its exit code."""
    try:
        _unshare()
    except OSError as error:
        return _not_allowed(error)

    return _in_child(lambda: _init(wanted))


def _unshare() -> None:
    """Make all namespaces but those of mounts and control groups, which follow inside."""
    namespaces = _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    if kernel.has_capability(_CAP_SYS_ADMIN):
        kernel.unshare(namespaces)
        return

    user, group = os.geteuid(), os.getegid()
    kernel.unshare(namespaces | _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # New credentials have undone that.


def _not_allowed(error: OSError) -> int:
    print(f"no enclosure: {error.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_ALLOWED


_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Signals:
    """Passes signals on to a process; those that come before it exists wait for it.

    A forked process inherits it without a process to pass them on to.
    """

    def __init__(self) -> None:
        self._pid: int | None = None
        self._early: list[int] = []

    def catch(self) -> None:
        for number in _PASSED_ON:
            signal.signal(number, self._receive)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals back while a process is forked.

        The interpreter of the child begins by forgetting those that it has caught so far.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def pass_on_to(self, pid: int) -> None:
        self._pid = pid
        for number in self._early:
            self._receive(number, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._pid is None:
            self._early.append(number)
            return

        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


_signals = _Signals()


def _has_terminal() -> bool:
    """Return whether this process's group reads from the terminal and gets its signals."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _give_terminal_to(group: int) -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # The command may have ended.
        os.tcsetpgrp(0, group)


# Inside: the first process.


def _init(wanted: Wanted) -> int:
    command, grace, folder, group, outside, has_terminal = wanted
    try:
        if group is not None:
            (group / "cgroup.procs").write_text("0")

        kernel.unshare(_CLONE_NEWNS | (_CLONE_NEWCGROUP if group else 0))
        _bring_up("lo")
        _enter_private_root(folder, group)
    except OSError as error:
        return _not_allowed(error)

    os.environ |= {OUTSIDE: " ".join(outside), "TMPDIR": _TEMPORARY[0]}
    before = _traces(has_group=group is not None)
    try:
        # Without a group of its own it would have the group 0: that of a process outside.
        program = subprocess.Popen(command, process_group=0)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127

    _signals.pass_on_to(program.pid)
    if has_terminal:
        _give_terminal_to(program.pid)

    code = _reap(program.pid)
    if code < 0:
        return 128 - code

    left = [*_remaining_processes(grace), *sorted(_traces(has_group=group is not None) - before)]
    for each in left:
        print(f"left behind: {each}", file=sys.stderr)  # noqa: T201

    return code or bool(left)


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh22x", interface.encode(), 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
        wanted = struct.pack("16sh22x", interface.encode(), flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, wanted)


def _enter_private_root(folder: Path, group: Path | None) -> None:
    here, groups = os.getcwd(), _mount_of_groups()
    root = folder / "root"
    root.mkdir()
    kernel.mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _bind(Path("/"), root)
    _make_read_only(root)
    for number, path in enumerate(_TEMPORARY):
        own = folder / str(number)
        own.mkdir()
        own.chmod(0o1777)
        _bind(own, _inside(root, path))

    for path in _needed_of_temporary():
        _inside(root, path).mkdir(parents=True, exist_ok=True)
        _bind(Path(path), _inside(root, path))
        _make_read_only(_inside(root, path))

    _inside(root, _TOP).mkdir(parents=True, exist_ok=True)
    for writable in (_TOP, Path("/sys")):
        _bind(writable, _inside(root, writable))

    kernel.mount("proc", str(root / "proc"), "proc", 0)
    kernel.mount("tmpfs", str(root / "dev/shm"), "tmpfs", 0, "mode=1777")
    options = "newinstance,ptmxmode=0666,mode=620"
    kernel.mount("devpts", str(root / "dev/pts"), "devpts", 0, options)
    if not (root / "dev/ptmx").is_symlink():
        kernel.mount(str(root / "dev/pts/ptmx"), str(root / "dev/ptmx"), None, _MS_BIND)

    if group is not None and groups is not None:
        _bind(group, _inside(root, groups))

    os.chdir(root)
    kernel.call(kernel.PIVOT_ROOT, b".", b".")
    kernel.detach(".")  # The old root, which is on top of the new one here.
    os.chdir(here if os.path.isdir(here) else _TOP)


def _needed_of_temporary() -> list[str]:
    """Return the folders below /tmp or /var/tmp that programs need; parents first."""
    needed = [
        str(Path.home()),
        sys.prefix,
        sys.base_prefix,
        *os.environ.get("PATH", "").split(os.pathsep),
    ]
    below = (each for each in map(os.path.realpath, needed) if each.startswith(_BELOW_TEMPORARY))
    return sorted({each for each in below if os.path.isdir(each) and not is_below(each, str(_TOP))})


def _inside(root: Path, path: Path | str) -> Path:
    return root / str(path).lstrip("/")


def _bind(source: Path, target: Path) -> None:
    kernel.mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def _make_read_only(path: Path) -> None:
    attribute = struct.pack("<QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    kernel.call(
        kernel.MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(path),
        _AT_RECURSIVE,
        attribute,
        len(attribute),
    )


def _reap(pid: int) -> int:
    """Wait for the command, and for every orphan that ends meanwhile; return its exit code.

    A command that was ended by a signal has the negative number of it.
    """
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


# What is left behind.


def _remaining_processes(grace: float) -> list[str]:
    """Return the processes that do not end by themselves within so many seconds."""
    end = time.monotonic() + grace
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        if not pids or time.monotonic() > end:
            return [f"process {pid}: {_command_of(pid)}" for pid in pids]

        time.sleep(0.02)


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    return "has just ended"


def _traces(*, has_group: bool) -> set[str]:
    """Return what there is of all that must not be left behind, except for processes."""
    found = {f"mount: {each}" for each in mounts()}
    for device in Path("/sys/block").glob("loop*/loop"):
        # All others vanish with their last mount, and there may be others' of that kind.
        with contextlib.suppress(OSError):
            if (device / "autoclear").read_text().strip() == "0":
                found.add(f"loop device: {(device / 'backing_file').read_text().strip()}")

    for folder in (*_TEMPORARY, "/dev/shm"):
        names = (name for name in os.listdir(folder) if not name.startswith(_MAY_BE_LEFT))
        found |= {f"file: {folder}/{name}" for name in names}

    groups = list(Path("/sys/fs/cgroup/pids").glob("hankweave*"))
    if has_group and (own := _own_group()) is not None:  # Otherwise that of the machine.
        groups += own.glob("hankweave*")

    found |= {f"control group: {each}" for each in groups if not each.name.startswith(_MAY_BE_LEFT)}

    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        found.add(f"shared memory: {line.split()[0]}")

    if shutil.which("git") is not None:
        words = ["git", "-C", str(_TOP), "status", "--porcelain"]
        changed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        found |= {f"change of the checkout: {line}" for line in changed.splitlines()}

    return found


if __name__ == "__main__":
    sys.exit(main())
