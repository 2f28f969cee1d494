"""Limits of accounts, shared by all executions of one user on one machine.

A limit that one execution has met holds for every other one with the same account. Each account has
one small file, named by a fingerprint of the account: the limits that are known, without any
secret. Whoever begins a codon reads it and waits, instead of meeting the limit once more.

When a limit ends, one execution makes the first request, and the others wait for its outcome: if
the limit has not ended after all, one request has found out, not one for each. The right to make it
is an exclusive `flock`, which the kernel takes from a process that dies. The execution keeps it
until its model has answered, and then removes the limit, or until it has met the limit again.

All of this only saves requests. A file that cannot be read counts as empty, and one that cannot be
written is not: then each execution waits for itself.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hankweave_protocol.instants import from_text, to_text
from hankweave_server import fsutil

PROBE_TIMEOUT = timedelta(minutes=2)
"""How long after a limit's end the others wait for the outcome of the first request."""

LimitKind: TypeAlias = Literal["usage", "rate", "overload"]


class SharedLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A limit of an account."""

    model: str
    """The model that it holds for; empty: for all."""
    kind: LimitKind
    until: str
    is_exact: bool
    """Whether the provider named the instant."""

    @property
    def end(self) -> datetime:
        return from_text(self.until)


class _File(msgspec.Struct, frozen=True):
    limits: tuple[SharedLimit, ...] = ()


class LimitProbe:
    """The right to make the first request after a limit; given back with `close`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def usual_place(state_home: str | None) -> Path:
    """Return the user's directory of account files; `state_home` is XDG_STATE_HOME, if set."""
    return Path(state_home or "~/.local/state").expanduser() / "hankweave" / "limits"


class AccountLimits:
    """The account files of one user; an account without fingerprint has none."""

    def __init__(self, directory: Path | None) -> None:
        """`directory` is created when a limit is noted; None: nothing is shared."""
        self._directory = directory

    def standing(self, account: str | None, model: str) -> SharedLimit | None:
        """Return the limit of a model that ends last, whether or not its end has passed."""
        known = [each for each in self._read(account) if each.model in ("", model)]
        return max(known, key=lambda each: each.end, default=None)

    def note(
        self,
        account: str | None,
        model: str,
        kind: LimitKind,
        until: datetime,
        *,
        is_exact: bool,
    ) -> None:
        """Note a limit in place of the known one; an empty `model` means all of the account's."""
        new = SharedLimit(model=model, kind=kind, until=to_text(until), is_exact=is_exact)

        def changed(known: tuple[SharedLimit, ...]) -> tuple[SharedLimit, ...]:
            return (*(each for each in known if each.model != model), new)

        self._change(account, changed)

    def remove(self, account: str | None, model: str, now: datetime) -> None:
        """Remove the limits of a model that has answered, unless they are newer than that."""

        def changed(known: tuple[SharedLimit, ...]) -> tuple[SharedLimit, ...]:
            return tuple(each for each in known if each.model not in ("", model) or each.end > now)

        self._change(account, changed)

    def probe(self, account: str | None) -> LimitProbe | None:
        """Return the right to make the first request; None while another process has it.

        The right is free, and held by all, if nothing can be shared.
        """
        if account is None or self._directory is None:
            return LimitProbe(-1)

        try:
            descriptor = self._open(account, "probe")
        except OSError:
            return LimitProbe(-1)

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:  # A file system without locks.
            os.close(descriptor)
            return LimitProbe(-1)

        return LimitProbe(descriptor)

    def _read(self, account: str | None) -> tuple[SharedLimit, ...]:
        if account is None or self._directory is None:
            return ()

        try:
            content = (self._directory / f"{account}.json").read_bytes()
            limits = msgspec.json.decode(content, type=_File).limits
            return tuple(each for each in limits if each.end)
        except (OSError, msgspec.DecodeError, ValueError):
            return ()

    def _change(
        self,
        account: str | None,
        changed: Callable[[tuple[SharedLimit, ...]], tuple[SharedLimit, ...]],
    ) -> None:
        if account is None or self._directory is None:
            return

        with suppress(OSError), self._locked(account):
            known = self._read(account)
            after = changed(known)
            if after != known:
                content = msgspec.json.encode(_File(after))
                fsutil.replace(self._directory / f"{account}.json", content)

    @contextmanager
    def _locked(self, account: str) -> Iterator[None]:
        """Let nobody else change the file; nobody holds this lock for longer than a write."""
        descriptor = self._open(account, "lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _open(self, account: str, suffix: str) -> int:
        assert self._directory is not None
        fsutil.make_private_directory(self._directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._directory / f"{account}.{suffix}", flags, 0o600)
