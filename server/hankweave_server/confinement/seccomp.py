"""The filter of system calls: what neither mounts nor Landlock can prevent.

- Ways to connect by TCP that Landlock does not see: MPTCP, SMC, MSG_FASTOPEN, io_uring.
- Calls that change another process of the same user: its limits, priority and scheduling.
- New namespaces and mounts, in which a process has capabilities again.
- Calls of the kernel with a history of defects that agents do not need.

The filter runs before each call, so it does not see what a pointer points to. Calls that take their
flags by pointer (clone3, io_uring) are refused altogether; with ENOSYS, so that programs use the
older call instead.

A call with the numbers of another architecture (32 bits) is refused as unknown.
Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from hankweave_server.confinement import kernel

_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_GREATER, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 6
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_SET_MODE_FILTER = 1

_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and NEWTIME."""

_CLONE_FLAGS = _NAMESPACE_FLAGS & ~0xFF
"""In clone(2) the lowest byte is a signal."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_PLAIN_PROTOCOLS = 22
"""No protocol up to this number, TCP (6) and UDP (17) among them, makes another kind of stream."""

_PROTOCOL_ICMPV6, _PROTOCOL_UDP_LITE = 58, 136
_MSG_FASTOPEN = 0x20000000
_LEVEL_TCP, _TCP_ULP = 6, 31
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3


class If(NamedTuple):
    """A test of the low 32 bits of an argument, which the kernel uses for these."""

    argument: int
    operator: int
    operand: int


class Unless(NamedTuple):
    """The opposite of `If`."""

    argument: int
    operator: int
    operand: int


Condition: TypeAlias = tuple[If | Unless, ...]
"""Tests that all have to hold; without any, it always holds."""


class SyscallRule(NamedTuple):
    """A call that fails with an errno if one of the conditions holds."""

    x86_64: int | None
    aarch64: int | None
    error: int
    conditions: tuple[Condition, ...] = ((),)

    @property
    def number(self) -> int | None:
        """The call's number on this machine; None if the machine does not have the call."""
        return self.x86_64 if kernel.MACHINE == "x86_64" else self.aarch64


def _equal(argument: int, value: int) -> If:
    return If(argument, _JUMP_IF_EQUAL, value)


def _differs(argument: int, value: int) -> Unless:
    return Unless(argument, _JUMP_IF_EQUAL, value)


def _any_bit(argument: int, bits: int) -> If:
    return If(argument, _JUMP_IF_ANY_BIT, bits)


def _above(argument: int, value: int) -> If:
    return If(argument, _JUMP_IF_GREATER, value)


_OF_ANOTHER: Condition = (_differs(0, 0),)
"""The first argument is a pid and not 0, which means the caller itself."""

_SOCKETS: tuple[SyscallRule, ...] = (
    SyscallRule(
        41,
        198,
        errno.EAFNOSUPPORT,
        (tuple(_differs(0, family) for family in (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)),),
    ),
    SyscallRule(44, 206, errno.EOPNOTSUPP, ((_any_bit(3, _MSG_FASTOPEN),),)),  # sendto
    SyscallRule(46, 211, errno.EOPNOTSUPP, ((_any_bit(2, _MSG_FASTOPEN),),)),  # sendmsg
    SyscallRule(307, 269, errno.EOPNOTSUPP, ((_any_bit(3, _MSG_FASTOPEN),),)),  # sendmmsg
    # setsockopt TCP_ULP would turn a TCP socket into one of SMC.
    SyscallRule(54, 208, errno.ENOPROTOOPT, ((_equal(1, _LEVEL_TCP), _equal(2, _TCP_ULP)),)),
    *(SyscallRule(number, number, errno.ENOSYS) for number in (425, 426, 427)),  # io_uring
)

_STREAMS = SyscallRule(
    41,
    198,
    errno.EPROTONOSUPPORT,
    (
        (
            _above(2, _PLAIN_PROTOCOLS),
            _differs(2, _PROTOCOL_ICMPV6),
            _differs(2, _PROTOCOL_UDP_LITE),
        ),
    ),
)

_OTHER_PROCESSES: tuple[SyscallRule, ...] = (
    SyscallRule(302, 261, errno.EPERM, (_OF_ANOTHER,)),  # prlimit64
    SyscallRule(
        141, 140, errno.EPERM, ((_differs(1, 0),), (_equal(0, _PRIO_USER),))
    ),  # setpriority
    SyscallRule(
        251, 30, errno.EPERM, ((_differs(1, 0),), (_equal(0, _IOPRIO_WHO_USER),))
    ),  # ioprio_set
    SyscallRule(142, 118, errno.EPERM, (_OF_ANOTHER,)),  # sched_setparam
    SyscallRule(144, 119, errno.EPERM, (_OF_ANOTHER,)),  # sched_setscheduler
    SyscallRule(203, 122, errno.EPERM, (_OF_ANOTHER,)),  # sched_setaffinity
    SyscallRule(314, 274, errno.EPERM, (_OF_ANOTHER,)),  # sched_setattr
    SyscallRule(256, 238, errno.EPERM, (_OF_ANOTHER,)),  # migrate_pages
    SyscallRule(279, 239, errno.EPERM, (_OF_ANOTHER,)),  # move_pages
    SyscallRule(438, 438, errno.EPERM),  # pidfd_getfd
    # ioctl: typing into the terminal of the person who started the server.
    SyscallRule(16, 29, errno.EPERM, ((_equal(1, _TIOCSTI),), (_equal(1, _TIOCLINUX),))),
    *(
        SyscallRule(old, new, errno.EPERM) for old, new in ((248, 217), (249, 218), (250, 219))
    ),  # keyrings
)

NAMESPACES: tuple[SyscallRule, ...] = (
    SyscallRule(56, 220, errno.EPERM, ((_any_bit(0, _CLONE_FLAGS),),)),  # clone
    SyscallRule(435, 435, errno.ENOSYS),  # clone3
    SyscallRule(272, 97, errno.EPERM, ((_any_bit(0, _NAMESPACE_FLAGS),),)),  # unshare
    SyscallRule(308, 268, errno.EPERM),  # setns
    SyscallRule(165, 40, errno.EPERM),  # mount
    SyscallRule(166, 39, errno.EPERM),  # umount2
    SyscallRule(155, 41, errno.EPERM),  # pivot_root
    SyscallRule(161, 51, errno.EPERM),  # chroot
    # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, open_tree_attr
    *(SyscallRule(number, number, errno.EPERM) for number in (*range(428, 434), 442, 467)),
)

_SELDOM_USED: tuple[SyscallRule, ...] = tuple(
    SyscallRule(old, new, errno.EPERM)
    for old, new in (
        (304, 265),  # open_by_handle_at
        (321, 280),  # bpf
        (298, 241),  # perf_event_open
        (323, 282),  # userfaultfd
        (300, 262),  # fanotify_init
        (246, 104),  # kexec_load
        (320, 294),  # kexec_file_load
        (175, 105),  # init_module
        (313, 273),  # finit_module
        (176, 106),  # delete_module
        (169, 142),  # reboot
        (167, 224),  # swapon
        (168, 225),  # swapoff
        (163, 89),  # acct
        (179, 60),  # quotactl
        (443, 443),  # quotactl_fd
        (172, None),  # iopl
        (173, None),  # ioperm
        (103, 116),  # syslog
        (164, 170),  # settimeofday
        (227, 112),  # clock_settime
        (305, 266),  # clock_adjtime
        (170, 161),  # sethostname
        (171, 162),  # setdomainname
        (212, 18),  # lookup_dcookie
        (153, 58),  # vhangup
    )
)

RULES: Final = (*_SOCKETS, _STREAMS, *_OTHER_PROCESSES, *NAMESPACES, *_SELDOM_USED)


def program(rules: Iterable[SyscallRule] = RULES) -> bytes:
    """Return the filter for this machine as instructions of classic BPF."""
    return b"".join(
        (
            _instruction(_LOAD_WORD, _ARCHITECTURE_AT),
            _instruction(_JUMP_IF_EQUAL, _ARCHITECTURES[kernel.MACHINE], if_true=1),
            _instruction(_RETURN, _FAIL_WITH | errno.ENOSYS),
            _instruction(_LOAD_WORD, _NUMBER_AT),
            _instruction(_JUMP_IF_ANY_BIT, _X32_BIT, if_false=1),
            _instruction(_RETURN, _FAIL_WITH | errno.ENOSYS),
            *_calls(rules),
            _instruction(_RETURN, _ALLOW),
        )
    )


def install(rules: Iterable[SyscallRule] = RULES) -> None:
    """Apply the filter to this process for good. Raises OSError.

    Needs `kernel.forbid_new_privileges` or CAP_SYS_ADMIN.
    """
    instructions = program(rules)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("<H6xQ", len(instructions) // 8, ctypes.addressof(buffer))
    kernel.call(kernel.SECCOMP, _SET_MODE_FILTER, 0, header)


def _calls(rules: Iterable[SyscallRule]) -> Iterator[bytes]:
    by_number: dict[int, list[SyscallRule]] = {}
    for rule in rules:
        if rule.number is not None:
            by_number.setdefault(rule.number, []).append(rule)

    for number, those in by_number.items():
        body = b"".join(
            _condition(condition, rule.error) for rule in those for condition in rule.conditions
        )
        body += _instruction(_RETURN, _ALLOW)  # The number is no longer loaded.
        yield _instruction(_JUMP_IF_EQUAL, number, if_false=len(body) // 8) + body


def _condition(condition: Condition, error: int) -> bytes:
    """Return instructions that fail the call if all tests hold, and continue behind them if not."""
    failing = _instruction(_RETURN, _FAIL_WITH | error)
    tests = b""
    for test in reversed(condition):
        behind = (len(tests) + len(failing)) // 8
        jump = {"if_false": behind} if isinstance(test, If) else {"if_true": behind}
        tests = (
            _instruction(_LOAD_WORD, _ARGUMENTS_AT + 8 * test.argument)
            + _instruction(test.operator, test.operand, **jump)
            + tests
        )

    return tests + failing


def _instruction(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)
