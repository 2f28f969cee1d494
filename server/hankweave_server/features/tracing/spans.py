"""Spans, their ids, and measurements.

A run may outlive its server: a codon waits for the end of a limit while the machine is restarted,
or the server is killed and the next one marks the run as crashed. So nothing here is random: the
ids of traces and spans are hashes of what the journal says. Whichever server ends a span names it
as the servers before it have named it, to its children and to agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from hankweave_protocol import instants
from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import RunId
from hankweave_protocol.state import (
    CodonExecution,
    Continuation,
    Run,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_server.domain.lifecycle import cost_of, tokens_of
from hankweave_server.domain.model_routes import maker_of, served_by
from hankweave_server.features.tracing import conventions as names
from hankweave_server.features.tracing.conventions import Instrument

Attribute: TypeAlias = str | bool | int | float

MOST_EVENTS = 128
"""Events of one span: OpenTelemetry's own default."""

LONGEST = 8192
"""Characters of content in one attribute."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    name: str
    time: int
    """Nanoseconds since the epoch, as all times here."""
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class SpanLink:
    trace_id: int
    span_id: int
    attributes: Mapping[str, Attribute]


@dataclass(slots=True)
class Span:
    """A span: open, until `ended` hands it out to be exported."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start: int
    attributes: dict[str, Attribute]
    links: tuple[SpanLink, ...] = ()
    events: list[SpanEvent] = field(default_factory=list)
    left_out: int = 0
    end: int = 0
    error: str = ""
    """Empty if it has not failed; else the message, if content is exported, or the error's type."""

    def note(self, event: SpanEvent) -> None:
        """Add an event; one from before the span's start is at its start, and says when it was."""
        if len(self.events) >= MOST_EVENTS:
            self.left_out += 1
            return

        if event.time < self.start:
            before = {names.BEFORE: (self.start - event.time) / 1e9}
            event = SpanEvent(event.name, self.start, {**event.attributes, **before})

        self.events.append(event)

    def ended(self, end: int, *, error: str = "", message: str | None = None) -> Span:
        """End it, and return it; `error` is the type of the failure, if any."""
        if error:
            self.attributes[names.ERROR] = error

        if self.left_out:
            self.attributes[names.LEFT_OUT] = self.left_out

        # The wall clock may have been set back.
        self.end = max(self.start, end, *(event.time for event in self.events))
        self.error = error and (message or error)
        return self


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value to be recorded in a metric."""

    instrument: Instrument
    value: float
    attributes: Mapping[str, Attribute]


Exported: TypeAlias = Span | Measurement


def trace_id_of(run_id: RunId) -> int:
    return hashed(16, "run", run_id)


def span_id_of_run(run: Run) -> int:
    """Return the id of a run's span; a run that no codon has begun in may be started again."""
    return hashed(8, "run", run.run_id, run.start_time)


def span_id_of_codon(run_id: RunId, codon: CodonExecution) -> int:
    return hashed(8, "codon", run_id, codon.codon_id, codon.start_time)


def traceparent(run_id: RunId, codon: CodonExecution, *, is_sampled: bool) -> str:
    """Return the W3C Trace Context for what a codon starts."""
    trace_id, span_id = trace_id_of(run_id), span_id_of_codon(run_id, codon)
    return f"00-{trace_id:032x}-{span_id:016x}-{int(is_sampled):02x}"


def hashed(size: int, *parts: str) -> int:
    """Return an id of `size` bytes that is the same for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=size).digest()
    return int.from_bytes(digest) or 1  # Zero is not a valid id.


def nanoseconds(text: str) -> int:
    return instants.epoch_ms(instants.from_text(text)) * 1_000_000


def links_of(run: Run, state: State, first_of_branch: RunId | None = None) -> Iterator[SpanLink]:
    """Yield a run's links: to the run that it continues, and to the one before it.

    A branch begins as a rollback does, but its first run is not linked as one.
    """
    others = {each.run_id: each for each in state.runs if each.start_time < run.start_time}
    source, reason = None, ""
    if isinstance(run.starting_conditions, Continuation):
        source = others.pop(run.starting_conditions.source.run_id, None)
        reason = run.starting_conditions.reason if run.run_id != first_of_branch else "branch"

    if source is not None:
        yield SpanLink(trace_id_of(source.run_id), span_id_of_run(source), {names.LINK: reason})

    newest = max(others.values(), key=lambda each: each.start_time, default=None)
    if newest is not None and (source is None or newest.start_time > source.start_time):
        attributes = {names.LINK: "previous"}
        yield SpanLink(trace_id_of(newest.run_id), span_id_of_run(newest), attributes)


def duration(instrument: Instrument, span: Span, *kept: str) -> Measurement:
    """Return the duration of a span, with some of its attributes."""
    attributes = {name: span.attributes[name] for name in kept}
    if span.error:
        attributes[names.ERROR] = span.attributes[names.ERROR]

    return Measurement(instrument, (span.end - span.start) / 1e9, attributes)


def attributes_of(value: object, fields: Iterable[str]) -> Iterator[tuple[str, Attribute]]:
    for name in fields:
        found = getattr(value, name)
        if isinstance(found, str):
            yield f"{names.OURS}{name}", found[:LONGEST]
        elif isinstance(found, bool | int | float):
            yield f"{names.OURS}{name}", found


def provider_of(codon: Codon) -> str | None:
    """Return the provider of a codon's model, by its name in the conventions; None if unknown."""
    if codon.model:
        provider = served_by(codon.model)
    else:
        provider = None if codon.agent is None else maker_of(str(codon.agent.__struct_config__.tag))

    return None if provider is None else names.PROVIDERS.get(provider, provider)


def usage_of(tokens: Tokens) -> dict[str, Attribute]:
    cached = tokens.cache_read_tokens + tokens.cache_creation_tokens
    return {
        names.INPUT_TOKENS: tokens.input_tokens + cached,
        names.OUTPUT_TOKENS: tokens.output_tokens,
        names.CACHE_READ_TOKENS: tokens.cache_read_tokens,
        names.CACHE_WRITE_TOKENS: tokens.cache_creation_tokens,
    }


def used_by(
    codon: TerminalCodon, agent: str, model: str | None, call_count: int
) -> Iterator[Measurement]:
    """Yield what a codon has used, once it has ended: only then are the figures final."""
    who: dict[str, Attribute] = {names.AGENT: agent}
    yield Measurement(names.INFERENCE_CALLS, codon.assistant_message_count, who)
    yield Measurement(names.TOOL_CALLS, call_count, who)
    if model:
        who = {**who, names.MODEL: model}

    if cost := cost_of(codon):
        yield Measurement(names.DOLLARS, cost, {**who, names.COST_SOURCE: "agent"})

    tokens = tokens_of(codon)
    for kind, count in (
        ("input", tokens.input_tokens),
        ("output", tokens.output_tokens),
        ("cache_read", tokens.cache_read_tokens),
        ("cache_write", tokens.cache_creation_tokens),
    ):
        if count:
            yield Measurement(names.TOKENS, count, {**who, names.TOKEN_TYPE: kind})
