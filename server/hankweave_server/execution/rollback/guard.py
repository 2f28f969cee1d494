"""The claim of a rollback on the work tree: one at a time, and no codon on half-restored files.

Between rollbacks, codons run. While one is in progress, most commands are refused and no codon
starts; one that runs is stopped or frozen by the rollback itself. A rollback that could not finish
leaves the files half restored, and no codon may start until one does. Nor may a checkpoint of them
be acknowledged, because the rollback would not be finished any more. Once the server stops, neither
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint


class TreeGuard:
    """Whether a rollback is changing the work tree of one execution, or has left it half done."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when a rollback begins and when it ends."""
        self._on_change = on_change
        self._free = anyio.Event()
        self._free.set()
        self._is_half_restored = False
        self._is_closing = False

    @property
    def is_rolling_back(self) -> bool:
        return not self._free.is_set()

    @property
    def is_half_restored(self) -> bool:
        """True after a rollback that could not finish, until one does: no codon may start."""
        return self._is_half_restored

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @contextmanager
    def rolling_back(self) -> Iterator[None]:
        """Mark a rollback in progress; refuse a second one, as in Hankweave."""
        self.refuse_when_closing()
        self._refuse_in_rollback("A rollback is in progress.")
        self._free = anyio.Event()
        self._on_change()
        try:
            yield
        finally:
            self._free.set()
            self._on_change()

    def leave(self, *, half_restored: bool) -> None:
        """Note how a rollback has left the files."""
        self._is_half_restored = half_restored

    async def close(self) -> None:
        """Refuse rollbacks and codons from now on; return when no rollback is in progress."""
        self._is_closing = True
        if self.is_rolling_back:
            await self._free.wait()

    async def settled(self) -> None:
        """Return when no rollback is in progress."""
        while self.is_rolling_back:
            await self._free.wait()

    # --- refusals --------------------------------------------------------------------------------

    def refuse_when_closing(self) -> None:
        if self._is_closing:
            raise Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.")

    def refuse_command(self, command: str) -> None:
        """Refuse a command while a rollback is in progress."""
        self._refuse_in_rollback(f"{command} cannot run while a rollback is in progress.")

    def refuse_codon(self) -> None:
        """Refuse any codon while files are half restored."""
        if self._is_half_restored:
            raise Refused(
                ErrorCode.ROLLBACK_IN_PROGRESS,
                "A rollback is incomplete; codons cannot run on partly restored files.",
                hint=Hint.ROLLBACK_IS_INCOMPLETE,
            )

    def refuse_checkpoint(self) -> None:
        """Refuse a checkpoint that a client asks for while files are half restored."""
        if self._is_half_restored:
            raise Refused(
                ErrorCode.ROLLBACK_IN_PROGRESS,
                "A rollback is incomplete; a checkpoint would hold partly restored files.",
                hint="Free disk space, and the server completes the rollback; or roll back again.",
            )

    def _refuse_in_rollback(self, message: str) -> None:
        if self.is_rolling_back:
            hint = "Wait until the rollback has ended."
            raise Refused(ErrorCode.ROLLBACK_IN_PROGRESS, message, hint=hint)
