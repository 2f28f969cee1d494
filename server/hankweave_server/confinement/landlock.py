"""Landlock: the rights of each version of its interface, and rulesets of paths and ports.

A ruleset lists the rights that it handles. A process that is restricted by it keeps a handled right
only where a rule grants it. Rules add up within a ruleset, and each further ruleset of a process
takes rights away. A rule for a folder applies to everything below it: there are no exceptions,
which is why Landlock alone cannot protect `.hankweave` in a work tree.

Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from typing import Final

from hankweave_server.confinement import kernel

IS_USABLE_SINCE: Final = 2
"""Version 1 forbids every rename and link between folders, on which programs depend."""

_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_RIGHTS = (1 << 13) - 1
"""The thirteen rights of version 1: those above, and to remove and make entries of each kind."""

REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_LATER_RIGHTS = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}

CONNECT_TCP: Final = 1 << 1
_PORTS_SINCE = 4

ABSTRACT_SOCKETS, SIGNALS = 1 << 0, 1 << 1
SCOPES_SINCE: Final = 6

READ: Final = EXECUTE | READ_FILE | READ_DIR
_RIGHTS_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
LAST_PORT: Final = 65535


def version() -> int:
    """Return the version of the interface (ABI); 0 if the kernel has no Landlock."""
    try:
        return kernel.call(kernel.LANDLOCK_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def file_rights(abi: int) -> int:
    """Return all rights to files that a version knows."""
    rights = _FIRST_RIGHTS
    for since, right in _LATER_RIGHTS.items():
        if abi >= since:
            rights |= right

    return rights


def knows_ports(abi: int) -> bool:
    return abi >= _PORTS_SINCE


class Ruleset:
    """A ruleset that is being put together; `restrict` applies it to this process."""

    def __init__(self, abi: int, *, files: bool = True, ports: bool = False) -> None:
        """Create a ruleset without rules, for files, for connections by TCP port, or both.

        A ruleset for files also keeps signals and abstract unix sockets inside, where the version
        can do that. Raises OSError.
        """
        self._handled = file_rights(abi) if files else 0
        ports_handled = CONNECT_TCP if ports and knows_ports(abi) else 0
        scopes = ABSTRACT_SOCKETS | SIGNALS if files and abi >= SCOPES_SINCE else 0
        attribute = struct.pack("<QQQ", self._handled, ports_handled, scopes)
        size = 24 if abi >= SCOPES_SINCE else 16 if knows_ports(abi) else 8
        self.descriptor = kernel.call(
            kernel.LANDLOCK_CREATE_RULESET, attribute[:size].ljust(24, b"\0"), size, 0
        )

    def allow(self, path: str, *, writing: bool) -> None:
        """Allow reading and executing, or everything, for a path and all below it.

        A path that does not exist is left out. Raises OSError.
        """
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # What cannot be reached now needs no permission.

        try:
            rights = self._handled if writing else READ
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _RIGHTS_OF_FILES

            rule = struct.pack("<Qi", rights & self._handled, descriptor)
            kernel.call(kernel.LANDLOCK_ADD_RULE, self.descriptor, _PATH_BENEATH, rule, 0)
        finally:
            os.close(descriptor)

    def allow_ports(self, ports: Iterable[int]) -> None:
        """Allow connections to these TCP ports. Raises OSError."""
        for port in ports:
            rule = struct.pack("<QQ", CONNECT_TCP, port)
            kernel.call(kernel.LANDLOCK_ADD_RULE, self.descriptor, _NET_PORT, rule, 0)


def restrict(descriptor: int) -> None:
    """Apply a ruleset to this thread and all its future children. Raises OSError.

    Needs `kernel.forbid_new_privileges` or CAP_SYS_ADMIN.
    """
    kernel.call(kernel.LANDLOCK_RESTRICT_SELF, descriptor, 0)
