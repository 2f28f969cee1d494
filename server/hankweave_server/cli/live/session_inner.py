"""One look at a server that lasts: what it does as it does it, and what the keys ask of it.

Everything comes over the public protocol. The state is asked for once and then follows the
journal, of which the client misses nothing, however often the connection is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol import codec
from hankweave_protocol.events import (
    BudgetFigures,
    Event,
    ServerReady,
    StateTransition,
    StoreProgress,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.cli.live.actions import perform
from hankweave_server.cli.live.foot import foot
from hankweave_server.cli.live.frame import Said
from hankweave_server.cli.live.keys import Mode, Sight, Waiting, Watching, step
from hankweave_server.cli.live.model import NOTHING, Heard, asking_line, hear
from hankweave_server.cli.live.wishes import Wish
from hankweave_server.cli.output.progress_bar import line_of_progress
from hankweave_server.cli.output.run_lines import Story
from hankweave_server.domain.history import active_codon, next_codon
from hankweave_server.domain.reducer import apply
from hankweave_server.plain_text import one_line

RECENT = 200
"""Events before now that the story begins with."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a look begins with."""

    heard: Heard
    lines: tuple[str, ...]
    """Of what happened last."""


class Session:
    """A connection, the state as it follows from the events, and what the keys mean now."""

    def __init__(self, client: Client) -> None:
        self.state = EMPTY_STATE
        self.story = Story()
        self._client = client
        self._known = 0
        """The seq of the state that was asked for: older events are in it already."""
        self._heard = NOTHING
        self._mode: Mode = Watching()
        self._allowed: dict[CodonId, BudgetFigures] = {}
        """What the codon that runs may use; the server alone knows the hank's budget."""
        self._progress: dict[str, tuple[ServerReady, StoreProgress]] = {}
        """Long work that goes on, by its id; of a connection that was lost nothing counts."""

    async def begin(self) -> Past:
        """Learns how things stand, and what happened last."""
        self.state = await self._client.state()
        self._known = self.state.last_event_seq
        since = max(0, self._known - RECENT)
        page = await self._client.query_events(since=since, until=self._known, limit=RECENT)
        recent = [codec.decode_event(bytes(line)) for line in page.events or ()]
        status = await self._client.status()
        self._note_budget(status)
        asking = dict(map(asking_line, status.pending_permissions))
        self._heard = replace(reduce(hear, recent, NOTHING), asking=asking)
        lines = (line for event in recent for line in self.story.lines(event))
        return Past(self._heard, tuple(lines))

    async def news(self) -> AsyncIterator[Event]:
        """Yields what happens after `begin`, and keeps the state up to it."""
        async for event in self._client.events():
            if 0 < event.seq <= self._known:
                continue

            if isinstance(event.data, StateTransition):
                self.state = apply(self.state, codec.decode_transition(event.data), event.seq)

            if isinstance(event.data, StoreProgress):
                self._note_progress(event.data)

            self._heard = hear(self._heard, event)
            yield event

    def _note_progress(self, told: StoreProgress) -> None:
        """Replaces what is known, for the thread that draws may be reading it."""
        others = {key: each for key, each in self._progress.items() if key != told.operation_id}
        now = {} if told.ended else {told.operation_id: (self._client.ready, told)}
        self._progress = others | now

    # --- what the codon may use --------------------------------------------------------------

    def allowed(self, codon_id: CodonId) -> BudgetFigures:
        """What a codon that runs may use in all, as far as the server has said."""
        return self._allowed.get(codon_id, BudgetFigures())

    async def learn_budget(self) -> None:
        """Asks for it anew, once a codon has begun; until then its budget is not shown."""
        with suppress(ConnectionError, CommandRefused):
            self._note_budget(await self._client.status())

    def _note_budget(self, status: ServerStatus) -> None:
        codon, allowed = status.active_codon_id, status.active_allowance
        self._allowed = {} if codon is None or allowed is None else {codon: allowed}

    # --- what the keys do --------------------------------------------------------------------

    def sight(self) -> Sight:
        """What a key pressed now acts upon."""
        active, coming = active_codon(self.state), next_codon(self.state)
        return Sight(
            may_change=self._client.mode == "readandwrite",
            run_id=self.state.current_run_id,
            active=None if active is None else one_line(active.codon_id),
            next=None if coming is None else one_line(coming),
            asking=tuple(self._heard.asking),
        )

    def foot(self, width: int) -> tuple[Said, ...]:
        """The lines below the table; asked by the thread that draws."""
        latest = self._client.ready
        going_on = tuple(
            Said(line_of_progress(told), "cyan")
            for connection, told in self._progress.values()
            if connection is latest
        )
        is_connected = self._client.is_connected
        return going_on + foot(self._mode, self.sight(), is_connected=is_connected, width=width)

    def press(self, key: str) -> Wish | None:
        """Takes a key, and gives the wish it comes to."""
        self._mode, wish = step(self._mode, key, self.sight())
        return wish

    async def fulfil(self, wish: Wish) -> None:
        """Does what was wished; what it came to is in the foot then."""
        done = await perform(self._client, wish)
        if isinstance(self._mode, Waiting):
            self._mode = done
