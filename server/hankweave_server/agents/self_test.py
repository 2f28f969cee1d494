"""Test that an agent works here, with one short turn through the adapter that codons use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.hank import Confinement
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import ConfinementStatus
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import NO_TOKENS, FailureReason, Tokens
from hankweave_server.agents.base import (
    Agent,
    AgentKilled,
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
    TokenCounts,
    ToolCalled,
    UsageReported,
)
from hankweave_server.agents.fence import fence_for, status_of
from hankweave_server.confinement.policy import Fence
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

    file_written: bool
    session_id: str | None
    said: str
    """Its last message."""

    tools: tuple[str, ...]
    """Names of the tools, in the order of the calls."""

    tokens: Tokens
    cost: float | None
    """USD, as reported by the agent or computed from the price list; None: unknown to both."""

    seconds: float
    failure: FailureReason | None
    confinement: ConfinementStatus | None = None
    """What confined it; null if it was not started."""


def prompt_for(kind: str) -> str:
    """Return the prompt for an agent of this kind; a scripted agent gets a script."""
    return msgspec.json.encode(_SCRIPT).decode() if kind == "scripted" else _PROMPT


class SelfTestRun:
    """A self-test in a directory of its own."""

    def __init__(self, name: str, agent: Agent, prompt: str, model: str, folder: Path) -> None:
        self._name = name
        self._agent = agent
        self._model = model
        self._folder = folder
        self._layout = Layout.of_execution(folder)
        self._work_tree = self._layout.work_tree
        self._fence: Fence | None = None
        self._prompt = prompt
        self._session: SessionStarted | None = None
        self._result: ResultReported | None = None
        self._used: dict[tuple[str, str], TokenCounts] = {}
        self._tools: list[str] = []
        self._said = ""
        self._last_words: list[str] = []
        self._confinement: ConfinementStatus | None = None

    async def make(self, prices: Prices) -> SelfTest:
        """Run the self-test. Raises AgentError if the agent cannot be started or ended."""
        self._work_tree.mkdir()
        found = await anyio.to_thread.run_sync(probe)
        self._confinement = status_of(self._layout, found, "workspace")
        needs = self._agent.needs({})
        self._fence = fence_for(self._layout, Confinement(), needs, found.level, {})
        began = anyio.current_time()
        async with self._agent.start(self._task()) as session:
            async for signal in session.signals():
                self._hear(signal)
                if isinstance(signal, PermissionAsked):
                    await session.answer(signal, Granted())

            outcome = await session.wait()

        return self._judged(outcome, prices, anyio.current_time() - began)

    def _task(self) -> AgentTask:
        return AgentTask(
            prompt=self._prompt,
            system_prompt=None,
            model=self._model,
            work_tree=self._work_tree,
            data_dir=self._folder / "data",
            log_path=self._folder / "agent.log",
            resume_session=None,
            environment={},
            run_id=RunId("self-test"),
            codon_id=CodonId("self-test"),
            processes_dir=self._folder / "agents",
            limits=LIMITS,
            fence=self._fence,
        )

    def _hear(self, signal: AgentSignal) -> None:
        match signal:
            case SessionStarted():
                self._session = signal
            case ResultReported():
                self._result = signal
            case UsageReported(message_id=message, model=model, tokens=tokens):
                key = (message or str(len(self._used)), model)
                self._used[key] = tokens
            case AgentSaid(text=text):
                self._said = text
            case ToolCalled(name=name):
                self._tools.append(name)
            case Stderr(line=line):
                self._last_words = [*self._last_words[-9:], line]
            case _:
                pass

    def _judged(self, outcome: AgentOutcome, prices: Prices, seconds: float) -> SelfTest:
        written = self._has_written()
        succeeded = self._result is not None and self._result.success and outcome == Exited(0)
        session = self._session
        return SelfTest(
            name=self._name,
            model=self._model_used() or None,
            passed=succeeded and written,
            file_written=written,
            session_id=None if session is None else session.session_id,
            said=self._said,
            tools=tuple(self._tools),
            tokens=self._tokens(),
            cost=self._cost(prices),
            seconds=round(seconds, 1),
            failure=None if succeeded and written else self._failure(outcome, succeeded=succeeded),
            confinement=self._confinement,
        )

    def _has_written(self) -> bool:
        try:
            return (self._work_tree / FILE).read_text(encoding="utf-8").strip() == WORD
        except (OSError, UnicodeDecodeError):
            return False

    def _failure(self, outcome: AgentOutcome, *, succeeded: bool) -> FailureReason:
        match outcome:
            case TimedOut(which=which):
                message = f"It exceeded its {which} time limit and was stopped."
                return FailureReason(type="timeout", retriable=True, message=message)
            case Exited(code=code):
                pass
            case AgentKilled(signal=number):
                code = 128 + number

        if succeeded:
            message = f"It reported success, but {FILE} is missing or has the wrong content."
            return FailureReason(type="unknown", retriable=True, message=message)

        said = "" if self._result is None else self._result.text
        text = said or "\n".join(self._last_words)
        return classify(text, code, had_session=self._session is not None)

    def _tokens(self) -> Tokens:
        if self._result is not None and self._result.tokens is not None:
            return _tokens(self._result.tokens)

        return sum((_tokens(each) for each in self._used.values()), NO_TOKENS)

    def _model_used(self) -> str:
        return self._model if self._session is None else self._session.model or self._model

    def _cost(self, prices: Prices) -> float | None:
        """Return the cost that the agent reported, else the price of its messages or its result."""
        if self._result is not None and self._result.cost_usd is not None:
            return self._result.cost_usd

        model = self._model_used()
        priced = [
            prices.price_of(used_by or model, _tokens(tokens))
            for (_, used_by), tokens in self._used.items()
        ] or [prices.price_of(model, self._tokens())]
        known = [price for price in priced if price is not None]
        return sum(known) if len(known) == len(priced) else None


def not_started(name: str, model: str, message: str) -> SelfTest:
    """Return the result for an agent that could not be started."""
    return SelfTest(
        name=name,
        model=model or None,
        passed=False,
        file_written=False,
        session_id=None,
        said="",
        tools=(),
        tokens=NO_TOKENS,
        cost=None,
        seconds=0.0,
        failure=FailureReason(type="unknown", retriable=False, message=message),
    )


@contextmanager
def folder_of_its_own() -> Iterator[Path]:
    """Provide a private temporary directory, which is removed with its content at the end."""
    with TemporaryDirectory(prefix="hankweave-self-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def _tokens(counts: TokenCounts) -> Tokens:
    return Tokens(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cache_creation_tokens=counts.cache_creation_tokens,
        cache_read_tokens=counts.cache_read_tokens,
    )
