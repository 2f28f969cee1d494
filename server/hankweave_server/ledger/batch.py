"""Batches: events that are decided, written and published together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.events import Event, EventData, StateTransition
from hankweave_protocol.ids import CodonId, EventSeq, RunId
from hankweave_protocol.state import State
from hankweave_protocol.transitions import (
    AgentTold,
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    CodonWaitChanged,
    CostsIncremented,
    CostsUpdated,
    EditsNoticed,
    EditsOvertaken,
    ExplorationSet,
    ExtensionCountUpdated,
    InitialCheckpointSet,
    PermissionRuleAdded,
    PlanChanged,
    PlanSet,
    RunImported,
    RunStarted,
    SentinelStatesUpdated,
    TimeTravelled,
    Transition,
    TravelsForgotten,
)
from hankweave_server.clock import Clock
from hankweave_server.domain import plan as plans
from hankweave_server.domain.reducer import apply, as_known, resulting_state

Entry: TypeAlias = EventData | Transition
NewId: TypeAlias = Callable[[], str]

LATER = (
    CheckpointCreated,
    EditsNoticed,
    EditsOvertaken,
    AgentTold,
)
"""Transitions that state.json may lack when they are published; see `writer`."""

TICKS = (CostsIncremented, CostsUpdated, SentinelStatesUpdated, ExtensionCountUpdated)
"""Transitions that come with every message: state.json may lag behind them."""


replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Published:
    """An event in the journal and its encoding, which every client receives."""

    event: Event
    frame: bytes
    stored: bytes = b""
    """The journal's line without its newline, if it is not `frame`; see `snapshots`."""

    @property
    def line(self) -> bytes:
        """The journal's line without its newline."""
        return self.stored or self.frame


@dataclass(frozen=True, slots=True)
class About:
    """The subject of entries that do not name one, and their causes."""

    run_id: RunId | None = None
    codon_id: CodonId | None = None
    causes: tuple[int | str, ...] = ()


def compose(
    state: State, entries: Iterable[Entry], about: About, *, clock: Clock, new_id: NewId
) -> tuple[tuple[Published, ...], State]:
    """Encode and number entries, and return the state they lead to: all of them or none.

    Raises Impossible for a transition that the state does not allow, Refused for one that could
    not be decoded again, and ValueError for an event that does not belong in the journal.
    """
    published: list[Published] = []
    for entry in entries:
        seq = EventSeq(state.last_event_seq + 1)
        if isinstance(entry, Transition):
            state, data, subject = _transition(state, entry, seq)
        else:
            _require_journaled(entry)
            state, data, subject = replace(state, last_event_seq=seq), entry, About()

        event = Event(
            id=new_id(),
            seq=seq,
            timestamp=instants.to_text(clock.now()),
            type=data.TYPE,
            data=data,
            run_id=about.run_id or subject.run_id or state.current_run_id,
            codon_id=about.codon_id or subject.codon_id,
            causes=about.causes,
        )
        published.append(Published(event, _frame(event)))

    return tuple(published), state


def asks_for_save(entry: Entry) -> bool:
    """Return whether state.json is to be written soon after this entry: it is no mere counter."""
    return isinstance(entry, Transition) and not isinstance(entry, TICKS)


def needs_save(entry: Entry) -> bool:
    """Return whether state.json must show this entry when it is published.

    Clients of Hankweave read the file when they hear that a codon or a run has begun or ended.
    """
    return asks_for_save(entry) and not isinstance(entry, LATER)


def _transition(
    state: State, transition: Transition, seq: EventSeq
) -> tuple[State, EventData, About]:
    """Apply a transition as its readers will, from its encoded form.

    Encoding may change a value (a file name that is not valid Unicode). A state that is built
    from the original value would not be the fold of the journal.
    """
    if isinstance(transition, PlanSet):
        transition = plans.change(state.execution_plan, transition.execution_plan)

    body = codec.transition_body(transition)
    after = apply(state, codec.decode_transition_body(body), seq)
    subject = _subject(transition)
    data = StateTransition(
        transition_type=transition.TYPE,
        transition=body,
        resulting_state=resulting_state(after),
        run_id=subject.run_id,
        codon_id=subject.codon_id,
    )
    return after, data, subject


def _require_journaled(entry: EventData) -> None:
    if not entry.JOURNALED:
        raise ValueError(f"{entry.TYPE} answers one client; it is not for the journal")


def _subject(transition: Transition) -> About:
    match as_known(transition):
        case RunStarted(run=run):
            return About(run.run_id)
        case CodonStarted(run_id=run_id, codon=codon):
            return About(run_id, codon.codon_id)
        case CodonTransitioned(run_id=run_id, codon=codon):
            return About(run_id, codon.codon_id)
        case CodonWaitChanged(run_id=run_id, codon_id=codon_id):
            return About(run_id, codon_id)
        case CheckpointCreated(checkpoint=checkpoint):
            return About(checkpoint.coordinate.run_id, checkpoint.coordinate.codon_id)
        case RunImported(run=run):
            return About(run.run_id)
        case InitialCheckpointSet() | PlanSet() | PlanChanged() | ExplorationSet():
            return About()
        case PermissionRuleAdded(rule=rule):
            return About(codon_id=rule.codon_id)
        case TimeTravelled() | TravelsForgotten() | EditsNoticed() | EditsOvertaken() | AgentTold():
            return About()
        case (
            CostsIncremented() | CostsUpdated() | SentinelStatesUpdated() | ExtensionCountUpdated()
        ) as tick:
            return About(tick.run_id, tick.codon_id)
        case ended:
            return About(ended.run_id)


def _frame(event: Event) -> bytes:
    frame = codec.encode(event)
    if b"\n" in frame:
        raise ValueError(f"the frame of {event.type} has a newline; it would be two lines")

    return frame
