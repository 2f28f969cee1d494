"""A journal and a state for an execution that does not live yet: a branch begins with its past."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.ledger.batch import About, Entry, NewId, compose
from hankweave_server.ledger.state_file import StateStore
from hankweave_server.paths import Layout


def found_ledger(
    layout: Layout,
    entries: Iterable[Entry],
    clock: Clock,
    new_id: NewId = lambda: str(uuid.uuid4()),
) -> State:
    """Writes the first events of a journal and the state they lead to; blocking, and durable.

    Raises Impossible for entries that contradict one another, and OSError.
    """
    published, state = compose(EMPTY_STATE, entries, About(), clock=clock, new_id=new_id)
    fsutil.make_private_directory(layout.journal.parent)
    fsutil.replace_durably(layout.journal, b"".join(each.frame + b"\n" for each in published))
    StateStore(layout, clock).save(state)
    return state
