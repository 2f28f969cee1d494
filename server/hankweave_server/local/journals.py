"""The journal of an execution, with or without its server, opened without changing it.

`searching_journal` is for the end or a part of it, `reading_journal` for an answer that depends on
every line, and `journal_lines` for a quick search. Damage is raised as Stop.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TypeVar

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.moments import open_for_reading, open_for_search, whole_lines
from hankweave_server.ledger.open import KnownShas
from hankweave_server.ledger.searched_journal import SearchedJournal
from hankweave_server.local.targeting import start_line
from hankweave_server.paths import Layout

J = TypeVar("J", Journal, SearchedJournal)


def reading_journal(layout: Layout) -> AbstractContextManager[Journal]:
    """Read the whole journal; raise Stop if there is none, or if it is damaged."""
    return _opened(layout, lambda: open_for_reading(layout))


def searching_journal(
    layout: Layout, known_shas: KnownShas = tuple
) -> AbstractContextManager[SearchedJournal]:
    """Open the journal; raise Stop if there is none, or if what the block reads is damaged."""
    return _opened(layout, lambda: open_for_search(layout, known_shas))


def journal_lines(layout: Layout) -> Iterator[bytes]:
    """Yield the journal's lines without checking them; none if there is no journal."""
    with _stopping_at_damage(layout), suppress(FileNotFoundError):
        yield from whole_lines(layout)


@contextmanager
def _opened(layout: Layout, journal_of: Callable[[], J]) -> Iterator[J]:
    with _stopping_at_damage(layout):
        try:
            journal = journal_of()
        except FileNotFoundError:
            raise nothing_in(layout) from None

        with closing(journal):
            yield journal


@contextmanager
def _stopping_at_damage(layout: Layout) -> Iterator[None]:
    try:
        yield
    except JournalCorrupt as damage:
        raise Stop(
            f"The journal cannot be read: {damage}.",
            ExitCode.BAD_DATA,
            hint=f"`hankweave log -e {shlex.quote(str(layout.root))}` shows the events before that "
            f"line; `{start_line(layout.root)}` repairs or reports the damage.",
        ) from None


def nothing_in(layout: Layout) -> Stop:
    return Stop(
        f"There is no execution in {layout.root}.",
        ExitCode.NO_INPUT,
        hint="Name an execution directory with --execution.",
    )
