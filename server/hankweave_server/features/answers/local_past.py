"""The past of an execution, opened for answers on its files.

Nothing is changed, and a server may be running. Damage is raised as Stop, and a checkpoint, file or
line that does not exist as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.records import all_records
from hankweave_server.domain import targets
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.answers.file_versions import ReadHistory, file_versions
from hankweave_server.ledger.moments import saved_state, state_at_end
from hankweave_server.local.hints import terminal_hint
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.reader import reading_store, stopping_at_damage
from hankweave_server.paths import Layout


class LocalHistory(ReadHistory):
    """The history of an execution on this machine."""

    def named(self, text: str | None) -> Sha:
        """Return the checkpoint of a SHA or of the end of a step; the newest one without a name.

        Raises Refused, and Stop if there is no checkpoint at all.
        """
        if text is None:
            newest = self.files.newest()
            if newest is None:
                raise Stop(
                    "There is no checkpoint yet.",
                    ExitCode.NO_INPUT,
                    hint="`hankweave checkpoint` takes one; a server takes them by itself.",
                )

            return newest

        with reading_store(self.layout) as engine:
            known = all_records(engine)

        return targets.named(self.state, known, text).sha


@contextmanager
def reading_history(layout: Layout, *, copies: bool = False) -> Iterator[LocalHistory]:
    """Open the history of an execution; raise Stop if there is none, or if it is damaged."""
    saved = saved_state(layout)
    with searching_journal(layout) as journal, stopping_at_damage():
        state = state_at_end(journal, saved)
        with file_versions(layout, journal, state, copies=copies) as files:
            try:
                yield LocalHistory(layout, files, journal, state)
            except Refused as refused:
                raise _stopped(refused) from None


def _stopped(refused: Refused) -> Stop:
    is_input = refused.code in (ErrorCode.INVALID_PATH, ErrorCode.INVALID_COMMAND)
    exit_code = ExitCode.NO_INPUT if is_input else ExitCode.FAILED
    hint = terminal_hint(refused.hint)
    code = None if is_input else refused.code
    return Stop(refused.message, exit_code, hint=hint, code=code)
