"""`hankweave agents`: list the agents on this machine, and test them."""

from __future__ import annotations

import os
import shlex
import sys
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
import click
import msgspec
from rich.table import Table
from rich.text import Text

from hankweave_protocol.hank import AcpAgentSpec, AgentSpec, Confinement, ScriptedAgentSpec
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import ConfinementStatus
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import NO_TOKENS, FailureReason, Tokens
from hankweave_server.agents.base import (
    AgentError,
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
from hankweave_server.agents.inventory import Found, find_agent, find_agents, known_of
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.cli.output.text import confinement_text, console
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.confinement.probe import probe
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.failures import classify
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line

ALL = "all"
"""The value of `--test` without a name."""

_HOW_TO_INSTALL = "`hankweave agents` shows how to install them."


@click.command()
@json_option
@click.option(
    "--acp",
    "commands",
    metavar="COMMAND",
    multiple=True,
    help="Include the agent that COMMAND starts, named after its program. It must speak the Agent "
    "Client Protocol (ACP). Repeatable.",
)
@click.option(
    "--test",
    "tested",
    metavar="[NAME]",
    is_flag=False,
    flag_value=ALL,
    help="Test this agent, or every installed one, by having it write a file. This may cost money.",
)
@click.option("--model", help="Model for --test NAME.")
@click.option("--prices", type=click.Path(path_type=Path), help="File with your own model prices.")
def agents(
    as_json: bool,
    commands: tuple[str, ...],
    tested: str | None,
    model: str | None,
    prices: Path | None,
) -> None:
    """List the known agents, and whether they are installed.

    The list shows version, program, and whether a key or login was found. Keys are never printed.
    With --test, an agent runs one short turn in a temporary directory. Without a NAME, all
    installed agents are tested, one after the other. The exit code is 0 if the test passed, 1 if it
    failed and 69 if the agent is not installed.

    \b
    hankweave agents
    hankweave agents --test claude
    hankweave agents --test
    """
    named = {**BY_NAME, **dict(map(_of_command, commands))}
    if tested is None:
        if model is not None or prices is not None:
            raise click.UsageError("--model and --prices require --test.")

        _list(find_agents(named), as_json=as_json)
        return

    if tested == ALL and tested not in named:
        done = _test_all(named, model, prices, as_json=as_json)
    else:
        done = [_test(tested, named, model, prices, as_json=as_json)]

    if not all(each.passed for each in done):
        sys.exit(ExitCode.FAILED)


def _of_command(command: str) -> tuple[str, AgentSpec]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"--acp {command!r}: {error}.") from None

    if not words:
        raise click.UsageError("--acp needs a command line, such as 'opencode acp'.")

    return PurePosixPath(words[0]).name, AcpAgentSpec(command=words)


# --- the list ----------------------------------------------------------------------------------


def _list(found: list[Found], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Agent", "Version", "Program", "Key or login"):
        table.add_column(column, overflow="fold")

    for each in found:
        words = (each.name, each.version or "-", _program(each), _login(each))
        table.add_row(*(Text(one_line(word)) for word in words))

    console().print(table)


def _program(found: Found) -> str:
    needs = "" if found.needs is None else f". It needs a library, too. {found.needs}"
    if found.path is None:
        return f"not installed: {found.install}{needs}"

    words = (found.path, *found.command[1:])
    complaint = "" if found.complaint is None else f" ({found.complaint})"
    return " ".join(words) + complaint + needs


def _login(found: Found) -> str:
    if not found.looked_for:
        return "not needed" if found.kind == "scripted" else "not known"

    if not found.logged_in_by:
        return f"not found: set {found.looked_for[0]}, or log in with the program"

    return ", ".join(found.logged_in_by)


# --- the self-test -----------------------------------------------------------------------------


def _test(
    name: str,
    named: Mapping[str, AgentSpec],
    model: str | None,
    prices: Path | None,
    *,
    as_json: bool,
) -> SelfTest:
    if name not in named:
        raise click.UsageError(f"There is no agent {name!r}; there are {', '.join(named)}.")

    found = find_agent(name, named[name])
    if found.path is None:
        message = f"{name} is not installed: {found.command[0]!r} was not found."
        raise Stop(message, ExitCode.UNAVAILABLE, hint=found.install)

    try:
        done = _turn_of(name, named[name], model, prices)
    except AgentError as error:
        raise Stop(error.message, ExitCode.FAILED, hint=error.hint) from error

    print_json(done) if as_json else _print_result(done)
    return done


def _test_all(
    named: Mapping[str, AgentSpec], model: str | None, prices: Path | None, *, as_json: bool
) -> list[SelfTest]:
    """Test every installed agent; one that cannot be started has failed."""
    if model is not None:
        raise click.UsageError("--model requires --test NAME, since agents have different models.")

    real = {name: spec for name, spec in named.items() if name != "scripted"}
    installed = [each.name for each in find_agents(real) if each.path is not None]
    if not installed:
        message = f"None of {', '.join(real)} is installed."
        raise Stop(message, ExitCode.UNAVAILABLE, hint=_HOW_TO_INSTALL)

    done: list[SelfTest] = []
    for name in installed:
        try:
            done.append(_turn_of(name, real[name], None, prices))
        except AgentError as error:
            message = " ".join(filter(None, (error.message, error.hint)))
            why = FailureReason(type="unknown", retriable=False, message=message)
            asked = known_of(name).model or None
            done.append(SelfTest(name=name, model=asked, passed=False, failure=why))

        if not as_json:
            _print_result(done[-1])

    if as_json:
        print_json(done)

    return done


def _turn_of(name: str, spec: AgentSpec, model: str | None, own_prices: Path | None) -> SelfTest:
    prices = load_prices(own_prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    asked = known_of(name).model if model is None else model
    if spec != BY_NAME["scripted"]:
        whom = f"{name}, with {asked}," if asked else name
        click.echo(f"Asking {whom} to write one small file; its provider may charge you.", err=True)

    return self_test(name, spec, asked, prices)


def _print_result(done: SelfTest) -> None:
    verdict = "works" if done.passed else "failed"
    click.echo(f"{done.name} {verdict} ({done.seconds:.1f} s).")
    if done.failure is not None:
        may = "may" if done.failure.retriable else "cannot"
        click.echo(f"  why: {one_line(done.failure.message or 'no reason was given')}")
        click.echo(f"  kind: {done.failure.type}; a retry {may} help")

    if done.confinement is not None:
        click.echo(f"  confinement: {confinement_text(done.confinement)}")
        for sentence in done.confinement.not_covered:
            click.echo(one_line(f"    {sentence}"))

    written = "written" if done.file_written else "not written"
    click.echo(f"  file: {written}; tools: {', '.join(map(one_line, done.tools)) or 'none'}")
    tokens = done.tokens
    read = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    cost = "not known" if done.cost is None else f"${done.cost:.4f}"
    click.echo(f"  tokens: {read} in, {tokens.output_tokens} out; cost: {cost}")


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
    selector = AgentSelector(
        hank_directory=folder, sessions=folder / "sessions", homes=folder / "homes"
    )
    agent, layout = selector.agent_of(spec), Layout.of_execution(folder)
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
            turn.receive(signal)
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
        said=turn.last_text,
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
        self._stderr_tail: deque[str] = deque(maxlen=10)
        self.model = model
        self.session_id: str | None = None
        self.tools: list[str] = []
        self.last_text = ""

    def receive(self, signal: AgentSignal) -> None:
        match signal:
            case SessionStarted(session_id=session, model=model):
                self.session_id, self.model = session, model or self.model
            case ResultReported():
                self._result = signal
            case UsageReported(message_id=message, model=model, tokens=tokens):
                self._used[message or str(len(self._used)), model] = tokens
            case AgentSaid(text=text):
                self.last_text = text
            case ToolCalled(name=name):
                self.tools.append(name)
            case Stderr(line=line):
                self._stderr_tail.append(line)
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
        text = "" if result is None else result.text
        had_session = self.session_id is not None
        return classify(text or "\n".join(self._stderr_tail), code, had_session=had_session)

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


COMMANDS = (agents,)
