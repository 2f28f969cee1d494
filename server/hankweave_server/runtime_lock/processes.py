"""Processes as this machine tells them apart: by pid and start time, within one boot."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import psutil


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; null where nothing runs under that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None

    # The name stands in parentheses and may hold any byte; all that follows it is plain.
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def started_at(ticks: int) -> datetime:
    """Turns ticks since boot into a moment; right to two seconds if nobody moved the clock."""
    return datetime.fromtimestamp(psutil.boot_time() + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def pid_namespace() -> int:
    """Returns the number of the namespace in which our pids mean something."""
    return os.stat("/proc/self/ns/pid").st_ino
