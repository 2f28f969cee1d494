"""System calls that Python does not have, through ctypes, for x86_64 and aarch64.

Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

MACHINE: Final = os.uname().machine
IS_SUPPORTED: Final = MACHINE in ("x86_64", "aarch64")

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
SECCOMP, CAPSET, PIVOT_ROOT = (317, 126, 155) if MACHINE == "x86_64" else (277, 91, 41)

_MNT_DETACH = 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION = 0x20080522
_ROOT_IS_NOT_SPECIAL = 0b1111  # NOROOT, NO_SETUID_FIXUP, and the locks of both.


class FenceError(Exception):
    """A part of the fence that cannot be set up; the message names the part and the reason."""

    @classmethod
    def at(cls, step: str, error: OSError) -> FenceError:
        return cls(f"{step}: {error.strerror}")


def call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call; bytes are passed by address. Raises OSError."""
    converted = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise _last_error()

    return result


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2). Raises OSError."""
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    result: int = _libc.prctl(ctypes.c_int(option), *padded)
    if result < 0:
        raise _last_error()

    return result


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Call mount(2). Raises OSError."""
    encoded = None if kind is None else kind.encode()
    result: int = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        encoded,
        ctypes.c_ulong(flags),
        options.encode(),
    )
    if result < 0:
        raise _last_error()


def detach(path: str) -> None:
    """Unmount what is at a path, lazily. Raises OSError."""
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) < 0:
        raise _last_error()


def unshare(flags: int) -> None:
    """Call unshare(2). Raises OSError."""
    if _libc.unshare(ctypes.c_int(flags)) < 0:
        raise _last_error()


def forbid_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up all capabilities, also those that a program of root would get at exec.

    Without this a confined root could read the memory and the environment of the server. A process
    that may not shrink its bounding set (CAP_SETPCAP) relies on `forbid_new_privileges` for exec.
    """
    with contextlib.suppress(PermissionError):
        for capability in range(_last_capability() + 1):
            prctl(_PR_CAPBSET_DROP, capability)

        prctl(_PR_SET_SECUREBITS, _ROOT_IS_NOT_SPECIAL)

    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    call(CAPSET, header, bytes(24))


def has_capability(number: int) -> bool:
    """Return whether a capability is effective in this process."""
    with open("/proc/self/status", "rb") as file:
        effective = next(line for line in file if line.startswith(b"CapEff:"))

    return bool(int(effective.split()[1], 16) >> number & 1)


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        return int(file.read())


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
