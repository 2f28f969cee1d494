"""A fork server: `hankweave` as a process, without the start of an interpreter.

Most tests of the whole system start `hankweave` several times, and each start costs half a second
to a second of CPU time for Python and the imports. A fork server pays it once: it imports the
command line, and forks at each start. The child takes over the standard streams, environment,
working directory, session and process group that the test wants, then does what the console script
does.

A test calls `subprocess` or `anyio.open_process` as before: `ForkServer.start` stands in for the C
function at the bottom of `subprocess.Popen`, which returns a pid. The new process is a child of the
process that runs the test, not of the fork server, because it is made with CLONE_PARENT. So it can
be waited for, signalled and killed like any other.

What is not a plain start of the console script is executed as always: a prefix, a preloaded
library, another user, inherited descriptors, or variables that an interpreter and its libraries
read when they start. A forked process differs in a few ways, and tests about them are marked
`executed`: /proc/PID/cmdline and /proc/PID/environ are those of the fork server, more modules are
imported than the command needs, and pages of memory are shared.

This file is a module of the tests, and the program of the fork server.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import marshal
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, TypeAlias, cast

_CLONE_PARENT = 0x0000_8000
_CLONE_CHILD_CLEARTID = 0x0020_0000
_CLONE_CHILD_SETTID = 0x0100_0000
_PR_GET_TID_ADDRESS = 40
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0)
"""The number of the system call; 0 on machines where it is not known."""

_READ_AT_START = (b"PYTHON", b"LD_", b"LC_", b"LANG", b"MALLOC_", b"GLIBC_", b"OPENSSL_", b"SSL_")
"""Prefixes of variables that an interpreter and its libraries read only when they start."""

_IMPORTED_LATE = (
    "anyio._backends._asyncio",
    "encodings.idna",
    "hankweave_server.sentinels.engine",
)
"""What a server imports while it runs, beside the modules of the commands."""

_Variables: TypeAlias = dict[bytes, bytes]
_Request: TypeAlias = tuple[list[bytes], _Variables, bool, int]
"""The words, the variables, whether it gets a session of its own, and its process group or -1.

Its streams and its working directory are sent as descriptors.
"""
_PID = struct.Struct("=i")


class ForkServer:
    """A fork server for one console script; it starts at the first start of the script."""

    def __init__(self, script: Path, environment: Mapping[str, str]) -> None:
        self.is_used = True
        self._script = os.fsencode(script)
        self._environment = dict(environment)
        self._read_at_start = _read_at_start(
            {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        )
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let `subprocess` use it in this process; end it afterwards."""
        execute = getattr(subprocess, "_fork_exec", None)
        if not _CLONE or execute is None:
            yield
            return

        def start(*arguments: Any) -> int:
            return self._start(execute, *arguments)

        subprocess._fork_exec = start  # type: ignore[attr-defined]
        try:
            yield
        finally:
            subprocess._fork_exec = execute  # type: ignore[attr-defined]
            self._end()

    def _start(
        self,
        execute: Callable[..., int],
        words: Sequence[str | bytes],
        programs: Sequence[bytes],
        close_fds: bool,
        kept: Sequence[int],
        cwd: str | None,
        variables: Sequence[bytes] | None,
        *rest: Any,
    ) -> int:
        """Fork or execute a process; the arguments are those of `_posixsubprocess.fork_exec`."""
        stdin, _, _, stdout, _, stderr, _, _, restores, session, group = rest[:11]
        given = os.environb if variables is None else dict(v.split(b"=", 1) for v in variables)
        is_plain = (
            tuple(programs) == (self._script,)
            and (close_fds, len(kept), restores) == (True, 1, True)
            and rest[11:16] == (None, None, None, -1, None)  # user, groups, umask and hook
        )
        is_used = self.is_used and os.getpid() == self._pid
        if is_used and is_plain and _read_at_start(given) == self._read_at_start:
            request = (list(map(os.fsencode, words)), dict(given), bool(session), group)
            pid = self._fork(request, stdin, stdout, stderr, cwd)
            if pid > 0:
                return pid

        return execute(words, programs, close_fds, kept, cwd, variables, *rest)

    def _fork(
        self, request: _Request, stdin: int, stdout: int, stderr: int, cwd: str | None
    ) -> int:
        """Return the pid of the new process, or -1 if it has to be executed."""
        streams = [n if given == -1 else given for n, given in enumerate((stdin, stdout, stderr))]
        try:
            folder = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return -1  # The error is raised where it is always raised.

        try:
            with self._lock:
                connection = self._connect()
                socket.send_fds(connection, [b"f"], [*streams, folder])
                connection.sendall(marshal.dumps(request))
                answer = connection.recv(_PID.size, socket.MSG_WAITALL)
        finally:
            os.close(folder)

        if not answer:
            raise RuntimeError("the fork server has ended; stderr has its error")

        return int(*_PID.unpack(answer))

    def _connect(self) -> socket.socket:
        if self._connection is None:
            self._connection, theirs = socket.socketpair()
            words = [sys.executable, __file__, str(theirs.fileno()), os.fsdecode(self._script)]
            with theirs:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=self._environment,
                )

        return self._connection

    def _end(self) -> None:
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.wait()
            self._connection = self._process = None


def _read_at_start(variables: Mapping[bytes, bytes]) -> _Variables:
    return {k: v for k, v in variables.items() if k.startswith(_READ_AT_START)}


def _serve(connection: socket.socket) -> None:
    """Fork at each request; return in a child that has become the process that was requested."""
    requests = connection.makefile("rb")
    while True:
        sent, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
        if not sent:
            sys.exit()

        request: _Request = marshal.load(requests)
        pid = _fork_sibling()
        if pid == 0:
            requests.close()
            connection.close()
            _become(request, descriptors)
            return

        for descriptor in descriptors:
            os.close(descriptor)

        connection.sendall(_PID.pack(pid))


def _fork_sibling() -> int:
    """Do as os.fork() does, but make a child of this process's parent. Return -1 on failure."""
    python, tid = ctypes.pythonapi, ctypes.c_void_p()
    # The C library keeps the thread's id in memory; only its own fork() renews it by itself.
    python.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(tid))
    flags = _CLONE_PARENT | (_CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID if tid else 0)
    python.PyOS_BeforeFork()
    # The architectures differ in the order of the last two; CLONE_SETTLS is not set.
    pid: int = python.syscall(ctypes.c_long(_CLONE), ctypes.c_long(flags), None, None, tid, tid)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()

    return pid


def _become(request: _Request, descriptors: Sequence[int]) -> None:
    words, variables, session, group = request
    if session:
        os.setsid()

    if group >= 0:
        os.setpgid(0, group)

    *streams, folder = descriptors
    os.fchdir(folder)
    os.close(folder)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)

    sys.stdin = _stream(0, "r", sys.stdin)
    sys.stdout = _stream(1, "w", sys.stdout)
    sys.stderr = _stream(2, "w", sys.stderr)
    sys.stderr.reconfigure(line_buffering=True)
    sys.argv = list(map(os.fsdecode, words))
    os.environb.clear()
    os.environb.update(variables)
    time.tzset()
    tempfile.tempdir = None


def _stream(number: int, mode: str, model: TextIO) -> TextIOWrapper:
    """Return a standard stream as an interpreter makes it when it starts."""
    stream = os.fdopen(
        number, mode, encoding=model.encoding, errors=model.errors, newline="\n", closefd=False
    )
    return cast(TextIOWrapper, stream)


def _run(main: Callable[[], None]) -> None:
    """Call the function of the console script, and end the process.

    The end is that of an interpreter, without what takes nine tenths of its time: it would free
    every object, and so copy the pages that the fork server shares. What is not a plain exit code
    is raised, and left to the interpreter.
    """
    code = 0
    try:
        main()
    except SystemExit as exit:
        if not isinstance(exit.code, int | None):
            raise

        code = exit.code or 0

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = os.path.dirname(sys.argv[2])
    app = import_module("hankweave_server.cli.app")
    modules = (f"hankweave_server.{place}" for place in app.PLACES.values())
    for name in (*modules, *_IMPORTED_LATE):
        import_module(name)

    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be forked"
    # A collection in a child would otherwise write to, and so copy, every page that it inherits.
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _run(app.main)
