"""Drop root's right to read and write everything, so that tests run as an ordinary user."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2
_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def as_ordinary_user() -> AbstractContextManager[None]:
    """Drop them for the calling thread only; a caller that is not root is unaffected."""
    return without_capabilities(_DAC_OVERRIDE | _DAC_READ_SEARCH)


@contextmanager
def without_capabilities(dropped: int) -> Iterator[None]:
    """Let root act in this thread without these capabilities, which are among the first 32."""
    if os.geteuid() != 0:
        yield
        return

    header, data = _Header(_VERSION_3, 0), (_Data * 2)()
    assert _libc.capget(ctypes.byref(header), data) == 0
    before = data[0].effective
    data[0].effective = before & ~dropped
    assert _libc.capset(ctypes.byref(header), data) == 0
    try:
        yield
    finally:
        data[0].effective = before
        assert _libc.capset(ctypes.byref(header), data) == 0


def ordinary_command(*words: str) -> list[str]:
    """Return the words that do the same for a program; root without `setpriv` keeps its rights."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return [*words]

    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]


def programs_can_be_ordinary() -> bool:
    return os.geteuid() != 0 or shutil.which("setpriv") is not None
