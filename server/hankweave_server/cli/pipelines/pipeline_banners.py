"""What `hankweave pipeline` tells on stderr while steps run, and what it keeps for the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    CheckCompleted,
    CodonCompletedEvent,
    CodonRetrying,
    CodonStartedEvent,
    CodonWarning,
    ErrorEvent,
    Event,
    FileUpdated,
    PermissionRequested,
    PermissionResolved,
    RollbackCompleted,
    ServerDegraded,
    ServerReady,
    ServerRecovered,
    ServerStopping,
    StateTransition,
)
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.cli.live.model import asking_line
from hankweave_server.cli.live.reporters import greeting
from hankweave_server.cli.output.server_lines import Voice
from hankweave_server.domain.history import end_checkpoint, thread
from hankweave_server.domain.standing import restored_checkpoint
from hankweave_server.ledger.writer import Published
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line

LONGEST = 100
"""Characters of what an agent says that go into a line."""

SHOWN_OF_A_CHECK = 5
"""Lines of a failed check's output."""


class Banners:
    """Tells of each step as it begins and ends, unless it is to be quiet."""

    def __init__(self, agents: Mapping[CodonId, str], *, quiet: bool) -> None:
        """`agents` names each step's agent, in the order of the plan."""
        self._agents = agents
        self._quiet = quiet
        self._voice = Voice(sys.stderr)
        self._state: Callable[[], State] = lambda: EMPTY_STATE
        self._announced: CodonId | None = None
        self._has_begun = False
        self.touched: set[str] = set()
        """The files that a step has changed, be it for a while."""
        self.checks: dict[CodonId, list[CheckCompleted]] = {}
        """Of the last attempt of each step."""
        self.before: Sha | None = None
        """The checkpoint that the files lay as when the first step of this call began."""
        self.warnings: list[str] = []
        """What went wrong besides, and has failed no step."""
        self.stopped_by: str | None = None

    @property
    def state(self) -> State:
        """How things stand, or stood at the end."""
        return self._state()

    def greet(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        self._state = state
        self.before = self.before or _where_it_stands(state())
        if not self._quiet:
            self._voice.open(greeting(layout, ready))

    def tell(self, published: Published) -> None:
        event = published.event
        self._keep(event)
        if not self._quiet:
            for line in (*self._headline(event), *_lines_of(event)):
                self._voice.say(line)

    def speaking(self) -> AbstractContextManager[None]:
        return self._voice.speaking()

    def _headline(self, event: Event) -> Iterator[str]:
        """Announces a step with the first that is heard of its agent."""
        match event.data:
            case CodonStartedEvent(codon_id=codon) | AgentOutput(codon_id=codon):
                if codon != self._announced:
                    self._announced = codon
                    number, agent = 1 + list(self._agents).index(codon), self._agents[codon]
                    yield one_line(f"── step {number}/{len(self._agents)}: {codon} ({agent})")
            case CodonCompletedEvent():
                self._announced = None
            case _:
                pass

    # --- what the report wants --------------------------------------------------------------------

    def _keep(self, event: Event) -> None:
        match event.data:
            case CodonStartedEvent(codon_id=codon):
                self._has_begun = True
                self.checks.pop(codon, None)
            case StateTransition() as change if not self._has_begun:
                match codec.decode_transition(change):
                    case CheckpointCreated(checkpoint=made):
                        self.before = made.sha
                    case _:
                        pass
            case RollbackCompleted(checkpoint=sha) if not self._has_begun:
                self.before = sha  # The way back from what a crash has left.
            case FileUpdated(path=path, source=source):
                if source.kind in ("tool_use", "codon-end"):
                    self.touched.add(path)
            case ErrorEvent(fatal=False, message=message):
                self.warnings.append(message)
            case CodonWarning(codon_id=codon, message=message):
                self.warnings.append(f"{codon}: {message}")
            case CheckCompleted(codon_id=codon) as check:
                self.checks.setdefault(codon, []).append(check)
            case ServerStopping(reason=reason):
                self.stopped_by = reason
            case _:
                pass


def _where_it_stands(state: State) -> Sha | None:
    """The newest checkpoint of the execution thread: of a failure, too, whose files lie there."""
    ends = (end_checkpoint(entry.codon) for entry in reversed(thread(state)))
    newest = next((sha for sha in ends if sha is not None), state.initial_checkpoint)
    return restored_checkpoint(state) or newest


# --- banners --------------------------------------------------------------------------------------


def _lines_of(event: Event) -> Iterator[str]:
    """The lines that an event is worth."""
    match event.data:
        case AssistantAction(action="message", content=text) | AgentOutput(line=text):
            yield f"   {_short(text)}"
        case AssistantAction(action="tool_use", tool_name=tool, tool_input=given):
            yield f"   {_short(f'{tool} {_object_of(given)}')}"
        case CheckCompleted() as check:
            yield from _check(check)
        case PermissionRequested() as asked:
            _, line = asking_line(asked)
            yield f"   {line}"
        case PermissionResolved(by="policy", decision="allow"):
            return  # The many that are as the pipeline says.
        case PermissionResolved(tool_name=tool, decision=decision, by=by):
            verb = "allowed" if decision == "allow" else "denied"
            yield f"   {_short(tool)} is {verb} by {by}"
        case CodonRetrying(attempt=attempt, max_attempts=most, delay_ms=delay):
            yield f"   again in {delay / 1000:g} s, attempt {attempt} of {most}"
        case CodonWarning(message=message):
            yield f"   warning: {one_line(message)}"
        case CodonCompletedEvent() as done:
            yield _ended(done)
        case ErrorEvent(message=message) | ServerDegraded(message=message):
            yield f"hankweave: {one_line(message)}"
        case ServerRecovered(message=message):
            yield f"hankweave: {one_line(message)}"
        case _:
            pass


def _check(check: CheckCompleted) -> Iterator[str]:
    word = "passed" if check.passed else "failed, and may" if check.ignored else "failed"
    yield f"   check {word}: {_short(check.command)} ({check.duration_ms / 1000:.1f} s)"
    if not check.passed:
        shown = check.output.splitlines()[-SHOWN_OF_A_CHECK:]
        yield from (f"     {_short(line)}" for line in shown)


def _ended(done: CodonCompletedEvent) -> str:
    name = one_line(done.codon_id)
    if done.condition is not None:
        return f"── {name}: skipped, for this does not hold: {_short(done.condition)}"

    outcome = "success" if done.success else "skipped" if done.skipped else "failed"
    line = f"── {name}: {outcome} in {done.duration / 1000:.1f} s, ${done.cost:.4f}"
    reason = done.failure_reason
    return line if reason is None or not reason.message else f"{line}: {_short(reason.message)}"


def _object_of(given: Mapping[str, object] | None) -> str:
    """What a tool is used on: the one thing that people want to see of its input."""
    for key in ("file_path", "path", "command", "pattern", "url"):
        if given and isinstance(value := given.get(key), str):
            return value

    return ""


def _short(text: str) -> str:
    line = one_line(text.strip().partition("\n")[0])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
