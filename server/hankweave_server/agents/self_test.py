"""Test that an agent works here, with one short turn through the adapter that codons use."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.hank import AgentSpec, Confinement, ScriptedAgentSpec
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import ConfinementStatus
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import NO_TOKENS, FailureReason, Tokens
from hankweave_server.agents.base import (
    AgentLimits,
    AgentOutcome,
    AgentSaid,
    AgentSignal,
    AgentTask,
    Exited,
    Granted,
    PermissionAsked,
    ResultReported,
    SessionStarted,
    Stderr,
    TimedOut,
    ToolCalled,
    UsageReported,
)
from hankweave_server.agents.fence import fence_for, status_of
from hankweave_server.agents.registry import Roster
from hankweave_server.confinement.probe import probe
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.failures import classify
from hankweave_server.paths import Layout

FILE = "hello.txt"
WORD = "hello"
LIMITS = AgentLimits(
    start=timedelta(seconds=60), idle=timedelta(seconds=120), total=timedelta(minutes=5)
)

_PROMPT = (
    f"Write a file named {FILE} into the current directory that contains the one word {WORD} and "
    "nothing else. Use your tool for files or for commands, once. Then answer with the word done."
)
_SCRIPT = {"steps": [{"write": {"path": FILE, "text": f"{WORD}\n"}}, {"say": "done"}]}


class SelfTest(Value, kw_only=True, omit_defaults=False):
    """The result of the turn."""

    name: str
    model: str | None
    """The model that was requested, or the agent's own choice; None: it was not reported."""

    passed: bool
    """True if the agent reported success and exited with 0, and the file has the right content."""

    file_written: bool = False
    session_id: str | None = None
    said: str = ""
    """Its last message."""

    tools: tuple[str, ...] = ()
    """Names of the tools, in the order of the calls."""

    tokens: Tokens = NO_TOKENS
    cost: float | None = None
    """USD, as reported by the agent or computed from the price list; None: unknown to both."""

    seconds: float = 0.0
    failure: FailureReason | None = None
    confinement: ConfinementStatus | None = None
    """What confined it; null if it was not started."""


def self_test(name: str, spec: AgentSpec, model: str, prices: Prices) -> SelfTest:
    """Let an agent write a file, in a private temporary directory that is removed afterwards.

    Raises AgentError if the agent cannot be started or ended.
    """
    with TemporaryDirectory(prefix="hankweave-self-test-", ignore_cleanup_errors=True) as folder:
        return anyio.run(_tested, name, spec, model, prices, Path(folder).resolve())


async def _tested(name: str, spec: AgentSpec, model: str, prices: Prices, folder: Path) -> SelfTest:
    roster = Roster(hank_directory=folder, sessions=folder / "sessions", homes=folder / "homes")
    agent, layout = roster.agent_of(spec), Layout.of_execution(folder)
    layout.work_tree.mkdir()
    found = await anyio.to_thread.run_sync(probe)
    task = AgentTask(
        prompt=_prompt_for(spec),
        system_prompt=None,
        model=model,
        work_tree=layout.work_tree,
        data_dir=folder / "data",
        log_path=folder / "agent.log",
        resume_session=None,
        environment={},
        run_id=RunId("self-test"),
        codon_id=CodonId("self-test"),
        processes_dir=folder / "agents",
        limits=LIMITS,
        fence=fence_for(layout, Confinement(), agent.needs({}), found.level, {}),
    )
    turn, began = _Turn(model, prices), anyio.current_time()
    async with agent.start(task) as session:
        async for signal in session.signals():
            turn.hear(signal)
            if isinstance(signal, PermissionAsked):
                await session.answer(signal, Granted())

        outcome = await session.wait()

    seconds = round(anyio.current_time() - began, 1)
    file_written = _has_written(layout.work_tree / FILE)
    failure = turn.failure(outcome, file_written=file_written)
    return SelfTest(
        name=name,
        model=turn.model or None,
        passed=failure is None,
        file_written=file_written,
        session_id=turn.session_id,
        said=turn.said,
        tools=tuple(turn.tools),
        tokens=turn.tokens(),
        cost=turn.cost(),
        seconds=seconds,
        failure=failure,
        confinement=status_of(layout, found, "workspace"),
    )


def _prompt_for(spec: AgentSpec) -> str:
    """Return the prompt for an agent; the scripted agent gets a script."""
    is_scripted = isinstance(spec, ScriptedAgentSpec)
    return msgspec.json.encode(_SCRIPT).decode() if is_scripted else _PROMPT


def _has_written(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8").strip() == WORD
    except (OSError, UnicodeDecodeError):
        return False


class _Turn:
    """The turn of the agent, as far as it is reported."""

    def __init__(self, model: str, prices: Prices) -> None:
        self._prices = prices
        self._result: ResultReported | None = None
        self._used: dict[tuple[str, str], Tokens] = {}
        self._last_words: deque[str] = deque(maxlen=10)
        self.model = model
        self.session_id: str | None = None
        self.tools: list[str] = []
        self.said = ""

    def hear(self, signal: AgentSignal) -> None:
        match signal:
            case SessionStarted(session_id=session, model=model):
                self.session_id, self.model = session, model or self.model
            case ResultReported():
                self._result = signal
            case UsageReported(message_id=message, model=model, tokens=tokens):
                self._used[message or str(len(self._used)), model] = tokens
            case AgentSaid(text=text):
                self.said = text
            case ToolCalled(name=name):
                self.tools.append(name)
            case Stderr(line=line):
                self._last_words.append(line)
            case _:
                pass

    def failure(self, outcome: AgentOutcome, *, file_written: bool) -> FailureReason | None:
        if isinstance(outcome, TimedOut):
            message = f"It exceeded its {outcome.which} time limit and was stopped."
            return FailureReason(type="timeout", retriable=True, message=message)

        result = self._result
        if result is not None and result.success and outcome == Exited(0):
            message = f"It reported success, but {FILE} is missing or has the wrong content."
            failed = FailureReason(type="unknown", retriable=True, message=message)
            return None if file_written else failed

        code = outcome.code if isinstance(outcome, Exited) else 128 + outcome.signal
        said = "" if result is None else result.text
        had_session = self.session_id is not None
        return classify(said or "\n".join(self._last_words), code, had_session=had_session)

    def tokens(self) -> Tokens:
        reported = None if self._result is None else self._result.tokens
        return sum(self._used.values(), NO_TOKENS) if reported is None else reported

    def cost(self) -> float | None:
        """Return the cost that the agent reported, else the price of its messages or its result."""
        if self._result is not None and self._result.cost_usd is not None:
            return self._result.cost_usd

        used = [(model, tokens) for (_, model), tokens in self._used.items()]
        prices = [
            self._prices.price_of(model or self.model, tokens)
            for model, tokens in used or [("", self.tokens())]
        ]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None
