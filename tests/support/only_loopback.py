"""Run a command in a network namespace that has only loopback.

    python tests/support/only_loopback.py COMMAND...

If the kernel does not allow it, nothing runs and the exit code is 69. A user namespace is created
only where it is needed: root does not need one.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

NOT_ALLOWED = 69
MARK = "HANKWEAVE_ONLY_LOOPBACK"
"""Set in the command's environment to show that it runs there."""

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Move this process there; raise OSError where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")

    _bring_up("lo")


def _unshare(what: int) -> None:
    if _libc.unshare(what) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh22x", interface.encode(), 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
        wanted = struct.pack("16sh22x", interface.encode(), flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, wanted)


def main(command: list[str]) -> None:
    try:
        enter()
    except OSError as error:
        print(f"no network namespace: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(NOT_ALLOWED)

    os.environ[MARK] = "1"
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
