"""Waits of a codon for the end of its provider's limit.

An agent that meets a usage limit at midnight has lost nothing: its conversation is stored, its
files are there. So the codon does not fail. A checkpoint is taken, the agent has ended, the wait is
in the journal, and when the limit ends, the same conversation continues.

A wait may last for days, and the machine may be suspended, restarted or have its clock set
meanwhile. The end is an instant of the wall clock, part of the state, and compared with the clock
every second; a server that starts later compares it again. A clock that is set back would make the
wait longer than it was meant to be, so its planned duration also ends it, by the clock that counts
on in a suspend (`WaitDeadline`). A server that stops leaves the wait in the state (`Suspended`),
and one that dies does so too.

Executions that share an account know each other's limits (`account_limits`). A codon waits before
its first request if a limit is known, and after a limit's end one of them tries first.

A wait ends in one of these ways: its time has come, a client starts the codon, another execution
has found that the limit is over, or the codon is interrupted. Only then does the codon end.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

import anyio
from msgspec import structs

from hankweave_protocol.events import CodonResumed, CodonWaiting, Info
from hankweave_protocol.hank import Codon
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.state import CodonWait
from hankweave_protocol.transitions import CodonWaitChanged
from hankweave_server.agents.base import AFTER_LIMIT, Agent, AgentAccount, AgentTask
from hankweave_server.agents.process.environment import common
from hankweave_server.clock import Clock
from hankweave_server.domain.lifecycle import Ending, wait_of, waited_ms_at
from hankweave_server.domain.limits import Limit, LimitFacts, NoWait, limit_of, planned_end
from hankweave_server.execution.account_limits import PROBE_TIMEOUT, LimitProbe, SharedLimit
from hankweave_server.execution.codon.file_changes import PERSON, FileChangeReporter
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext

CHECK_INTERVAL = 1.0
"""Seconds between two comparisons with the wall clock, which may be set or stand still."""

LONGEST_MESSAGE = 500
"""Characters of the agent's words that the state keeps."""

End: TypeAlias = Literal["time", "command", "other"]
Attention: TypeAlias = Literal["stay", "leave", "suspend"]
"""What the codon is to do: wait on, end because it was interrupted, or let the server stop."""


class Suspended(Exception):
    """The server stops while a codon waits; the state keeps the wait for the next server."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The account and model that a limit belongs to."""

    account: AgentAccount
    model: str
    """By its agent's name for it."""
    codon: Codon
    """The codon with this model in place of its own."""

    def scope(self, limit: Limit) -> str:
        """Return the model that a limit holds for; empty: for all of the account's."""
        is_for_all = self.account.fingerprint is not None and not limit.model_only
        return "" if is_for_all else self.model


def subjects_of(ctx: ExecutionContext, codon: Codon) -> tuple[Subject, ...]:
    """Return the codon's model and its fallbacks; those that need another agent are left out."""
    named = (codon, *(structs.replace(codon, model=each) for each in codon.fallback_models))
    found: dict[str, Subject] = {}
    for each in named:
        model = ctx.model_for(each)
        account = ctx.agent_for(each).account(model, each.env)
        if not found or account.program == next(iter(found.values())).account.program:
            found.setdefault(model, Subject(account, model, each))

    return tuple(found.values())


class WaitDeadline:
    """The end of a wait: its instant, or its planned duration."""

    def __init__(self, wait: CodonWait, clock: Clock) -> None:
        """Begin or continue a wait; after a restart, it lasts no longer than it did as a whole."""
        self._clock = clock
        self.until = from_text(wait.until)
        whole = self.until - from_text(wait.since)
        self._lasts = min(self.until - clock.now(), whole).total_seconds()
        self._begun = clock.boottime()

    def over_by(self) -> timedelta:
        """Return how long the wait has been over; negative while it lasts."""
        passed = self._clock.boottime() - self._begun
        return max(self._clock.now() - self.until, timedelta(seconds=passed - self._lasts))


class LimitWaits:
    """The waits of one codon, in a row or with work in between."""

    def __init__(
        self,
        ctx: ExecutionContext,
        record: CodonRecord,
        *,
        attention: Callable[[], Attention],
        before: Callable[[str], Awaitable[None]],
    ) -> None:
        """`before` announces and saves the files under a label, before a wait begins."""
        self._ctx = ctx
        self._record = record
        self._attention = attention
        self._before = before
        self._ends: dict[tuple[str | None, str], datetime] = {}
        """When the limits end that this codon has met, by account and model."""
        self._over: datetime | None = None
        """When the limit of the last wait was to end: it is over, whatever the clock says."""
        self._number = 0
        self._probe: LimitProbe | None = None
        self.is_waiting = False
        self._is_ended = False
        self._was_known = False
        """The limit was in the account's file during this wait; it is over if it no longer is."""
        self._woken = anyio.Event()

    @property
    def is_first(self) -> bool:
        """Return whether this execution is the first to try after a limit."""
        return self._probe is not None

    def end(self) -> None:
        """Continue now: a client does not want to wait."""
        self._is_ended = True
        self.wake()

    def wake(self) -> None:
        """Wake the wait, so that it checks what to do."""
        self._woken.set()

    async def before_first(self, subjects: tuple[Subject, ...]) -> Subject | None:
        """Choose the model to begin with, and wait for the end of its limit, if one is known.

        Returns None if the codon was interrupted.
        """
        subject = self._choice(subjects)
        known = self._known(subject)
        if known is None:
            await self._report_fallback(subject, subjects[0])
            return subject

        if known.end <= self._now():
            self._probe = self._ctx.accounts.probe(subject.account.fingerprint)
            if self._probe is not None:
                return subject

        limit = Limit(known.kind, known.end, "event")
        if isinstance(self._planned(limit, 1), NoWait):
            return subject  # Its provider will say whether the limit still holds.

        wait = self._shared(known, subject)
        return subject if await self._wait(subject, wait, None) else None

    async def after(
        self,
        limit: Limit,
        subject: Subject,
        subjects: tuple[Subject, ...],
        *,
        message: str,
        session_id: str,
        has_worked: bool,
    ) -> Subject | NoWait | None:
        """Wait for the end of a limit that the agent has met, or choose another model.

        Returns the model to continue with, or None if the codon was interrupted.
        """
        kind = limit.kind
        if kind == "billing":
            return NoWait("")

        self._number = 1 if has_worked else self._number + 1
        limit = self._with_exact_end(limit, subject)
        until = self._planned(limit, self._number)
        if isinstance(until, NoWait):
            self.release()
            return until

        is_exact = limit.source in ("event", "header")
        account, scope = subject.account.fingerprint, subject.scope(limit)
        self._ends[account, scope] = until
        self._ctx.accounts.note(account, scope, kind, until, is_exact=is_exact)
        self.release()
        chosen = self._choice(subjects)
        if chosen.model != subject.model:
            end = self._end_for(chosen)
            if end is None or end <= self._now():
                await self._report_fallback(chosen, subject)
                return chosen

            until = end

        wait = CodonWait(
            kind=kind,
            until=to_text(until),
            since=self._ctx.now_text(),
            source=limit.source,
            number=self._number,
            model=chosen.model,
            message=message[:LONGEST_MESSAGE],
        )
        return chosen if await self._wait(chosen, wait, session_id) else None

    async def resume_wait(
        self, subjects: tuple[Subject, ...], session_id: str | None
    ) -> Subject | None:
        """Continue the wait of an earlier server; return None if interrupted."""
        wait = wait_of(self._record.current)
        assert wait is not None, "only a codon that waits is resumed"
        self._number = wait.number
        self._record.hold_time()
        subject = next((each for each in subjects if each.model == wait.model), subjects[0])
        return subject if await self._wait_out(subject, wait, session_id) else None

    def answered(self, subject: Subject) -> None:
        """Note that the model has answered: the limit is over, for other executions too."""
        over = max(filter(None, (self._now(), self._over)))
        self._ctx.accounts.remove(subject.account.fingerprint, subject.model, over)
        self.release()

    def release(self) -> None:
        """Give back the right to try first."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    # --- the model -------------------------------------------------------------------------------

    def _choice(self, subjects: tuple[Subject, ...]) -> Subject:
        """Return the first model that may be used soon, else the one that may be used first."""
        now = self._now()
        longest_delay = timedelta(seconds=subjects[0].codon.fallback_after)
        ends = [self._end_for(each) or now for each in subjects]
        soon = (
            each for each, end in zip(subjects, ends, strict=True) if end - now <= longest_delay
        )
        first = min(zip(ends, subjects, strict=True), key=lambda pair: pair[0])[1]
        return next(soon, first)

    def _end_for(self, subject: Subject) -> datetime | None:
        account, known = subject.account.fingerprint, self._known(subject)
        ends = [self._ends.get((account, scope)) for scope in ("", subject.model)]
        return max(filter(None, (*ends, None if known is None else known.end)), default=None)

    async def _report_fallback(self, chosen: Subject, instead_of: Subject) -> None:
        if chosen.model != instead_of.model:
            codon = self._record.entry.codon_id
            limited = instead_of.model or "its model"
            await self._record.append(
                Info(message=f"Codon {codon} uses {chosen.model}: {limited} has reached a limit.")
            )

    # --- one wait --------------------------------------------------------------------------------

    async def _wait(self, subject: Subject, wait: CodonWait, session_id: str | None) -> bool:
        await self._before(f"waiting: {wait.kind} limit")
        await self._begin(wait, session_id)
        return await self._wait_out(subject, wait, session_id)

    async def _begin(self, wait: CodonWait, session_id: str | None) -> None:
        record = self._record
        record.hold_time()
        await record.append(
            CodonWaitChanged(
                run_id=record.run_id,
                codon_id=record.entry.codon_id,
                wait=wait,
                waited_ms=record.current.waited_ms,
                session_id=session_id,
            ),
            CodonWaiting(
                codon_id=record.entry.codon_id,
                until=wait.until,
                reason=wait.kind,
                source=wait.source,
                number=wait.number,
                model=wait.model,
                message=wait.message,
            ),
        )

    async def _wait_out(self, subject: Subject, wait: CodonWait, session_id: str | None) -> bool:
        self.is_waiting = True
        try:
            return await self._wait_until_over(subject, wait, session_id)
        finally:
            self.is_waiting = False

    async def _wait_until_over(
        self, subject: Subject, wait: CodonWait, session_id: str | None
    ) -> bool:
        self._is_ended = self._was_known = False
        jitter = timedelta(seconds=self._ctx.jitter())
        deadline = WaitDeadline(wait, self._ctx.clock)
        while (attention := self._attention()) == "stay":
            known = self._known(subject)
            self._was_known |= known is not None
            if known is not None and known.end > deadline.until:
                # Another request has met the limit again.
                wait = self._shared(known, subject, since=wait.since, number=wait.number)
                await self._begin(wait, session_id)
                deadline = WaitDeadline(wait, self._ctx.clock)

            if (end := self._end_of(deadline.over_by() - jitter, subject, known)) is not None:
                self._over = deadline.until
                self._ends = {key: ends for key, ends in self._ends.items() if ends > self._over}
                await self._resume(end, session_id)
                return True

            self._woken = anyio.Event()
            if not self._is_ended and self._attention() == "stay":
                with anyio.move_on_after(CHECK_INTERVAL):
                    await self._woken.wait()

        if attention == "suspend":
            raise Suspended

        return False

    def _end_of(
        self, over_by: timedelta, subject: Subject, known: SharedLimit | None
    ) -> End | None:
        """Return how the wait ends now; None if it lasts. `over_by` is for how long it is over."""
        if self._is_ended:
            return "command"

        account = subject.account.fingerprint
        if known is None and self._was_known:
            return "other"

        if over_by < timedelta(0):
            return None

        if known is None or over_by >= PROBE_TIMEOUT:
            return "time"

        self._probe = self._ctx.accounts.probe(account)
        if self._probe is None:
            return None

        if self._known(subject) is None:  # Removed a moment ago, by the one who had the right.
            self.release()
            return "other"

        return "time"

    async def _resume(self, end: End, session_id: str | None) -> None:
        record = self._record
        waited = waited_ms_at(record.current, self._ctx.now_text())
        await FileChangeReporter(self._ctx).scan_and_report(PERSON, record.run_id, None)
        record.count_time()
        await record.append(
            CodonWaitChanged(
                run_id=record.run_id, codon_id=record.entry.codon_id, waited_ms=waited
            ),
            CodonResumed(
                codon_id=record.entry.codon_id, by=end, waited_ms=waited, session_id=session_id
            ),
        )

    # --- facts -----------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return self._ctx.clock.now()

    def _planned(self, limit: Limit, number: int) -> datetime | NoWait:
        longest = self._ctx.longest_wait
        return planned_end(limit, number=number, now=self._now(), longest=longest)

    def _known(self, subject: Subject) -> SharedLimit | None:
        return self._ctx.accounts.standing(subject.account.fingerprint, subject.model)

    def _with_exact_end(self, limit: Limit, subject: Subject) -> Limit:
        """Return the limit with the instant that is known of the account, if that one is exact.

        Claude Code reports the instant only for the first refused turn of a session.
        """
        known = self._known(subject)
        if known is None or limit.kind != known.kind or limit.source in ("event", "header"):
            return limit

        is_usable = known.is_exact and known.end > self._now()
        return Limit(limit.kind, known.end, "event", known.model != "") if is_usable else limit

    def _shared(
        self, known: SharedLimit, subject: Subject, *, since: str | None = None, number: int = 1
    ) -> CodonWait:
        return CodonWait(
            kind=known.kind,
            until=known.until,
            since=since or self._ctx.now_text(),
            source="shared",
            number=number,
            model=subject.model,
        )


# --- before and after a wait --------------------------------------------------------------------


def limit_in(
    ending: Ending,
    facts: LimitFacts,
    agent: Agent,
    environment: Mapping[str, str],
    clock: Clock,
) -> Limit | None:
    """Return the limit in an agent's failure; `environment` is the codon's `env`."""
    return limit_of(
        agent.account("", environment).program,
        facts.merged(LimitFacts(text=ending.text)),
        now=clock.now(),
        zone=zone_of(environment),
        exit_code=ending.exit_code,
    )


def zone_of(environment: Mapping[str, str]) -> tzinfo:
    """Return the time zone of an agent's process; `environment` is the codon's `env`.

    UTC if the machine has none, or none of that name.
    """
    named = {**common(os.environ, {}), **environment}.get("TZ", "").removeprefix(":")
    try:
        return ZoneInfo(named) if named else _local_zone()
    except (KeyError, ValueError, OSError):
        return UTC


def _local_zone() -> tzinfo:
    with _LOCAL_TIME.open("rb") as file:
        return ZoneInfo.from_file(file)


_LOCAL_TIME = Path("/etc/localtime")


def continued(task: AgentTask, agent: Agent, session_id: str, subject: Subject) -> AgentTask:
    """Return the task that continues a conversation after a limit has interrupted it.

    If the agent has not kept the conversation, because the limit met its first request, the task
    begins anew.
    """
    task = replace(task, model=subject.model)
    files = agent.memory_of(session_id, task.work_tree, task.environment)
    if files and not any(os.path.lexists(path) for path in files):
        return task

    return replace(
        task,
        resume_session=session_id,
        forks=False,
        fork_at=None,
        continues=True,
        continuation_prompt=AFTER_LIMIT,
    )
