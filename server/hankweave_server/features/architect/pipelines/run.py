"""Run a pipeline: banners on stderr while steps run; report, summary and exit code at the end.

`Banners` prints the events and collects what the report needs. The report lists the changes between
the first and the last checkpoint of this command, limited to files that a step touched.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import monotonic

import click

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.commands import CheckpointDiff
from hankweave_protocol.events import (
    AgentConfined,
    AgentOutput,
    AssistantAction,
    CheckCompleted,
    CodonCompletedEvent,
    CodonRetrying,
    CodonStartedEvent,
    CodonWarning,
    ErrorEvent,
    Event,
    FilesChanged,
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
from hankweave_protocol.hank import CommandAgentSpec, ScriptedAgentSpec
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.cli.live.reporters import start_lines
from hankweave_server.cli.output.document import deliver, unwritten
from hankweave_server.cli.output.event_lines import asking_line, event_line, short
from hankweave_server.cli.output.server_lines import LineWriter
from hankweave_server.cli.shared.serving import serve
from hankweave_server.domain.execution_thread import end_checkpoint, restored_checkpoint, thread
from hankweave_server.domain.step_results import (
    PipelineResult,
    StepResult,
    is_of_authentication,
    result_of,
)
from hankweave_server.errors import ExitCode
from hankweave_server.features.architect.pipelines.report import DIFF_LIMIT, Format, Report
from hankweave_server.features.architect.yaml.model import Pipeline, PipelineStep
from hankweave_server.ledger.writer import Published
from hankweave_server.local.reader import on_files
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two checkpoints."""

    files: tuple[tuple[str, str], ...]
    """Pairs of a path and `created`, `modified` or `deleted`."""
    diff: str
    """A unified diff; it ends with the page in which it exceeds `DIFF_LIMIT`."""


NOTHING = Changes((), "")


def changes_between(
    layout: Layout, before: Sha, after: Sha, is_touched: Callable[[str], bool]
) -> Changes:
    """Compare two checkpoints, limited to the files that a step touched.

    The list of touched files alone would not do: a later step, or the restore before another
    attempt, may have undone a change.
    """

    async def compare(calls: Calls) -> Changes:
        files: list[tuple[str, str]] = []
        diff, cursor, is_first = "", None, True
        while is_first or cursor is not None:
            wants_more = len(diff) <= DIFF_LIMIT
            page = await calls.send(
                CheckpointDiff(from_sha=before, to_sha=after, patch=wants_more, cursor=cursor)
            )
            found = [each for each in page.files if is_touched(each.path)]
            files += ((each.path, each.status) for each in found)
            diff += "".join(each.patch or "" for each in found)
            cursor, is_first = page.cursor, False

        return Changes(tuple(files), diff)

    return on_files(layout, compare)


SHOWN_OF_A_CHECK = 5
"""Lines shown of a failed check's output."""


class Banners:
    """The output on stderr while steps run, unless `quiet`, and the data for the report."""

    def __init__(self, agents: Mapping[CodonId, str], *, quiet: bool) -> None:
        """Take the agent of each step, in the order of the plan."""
        self._agents = agents
        self._quiet = quiet
        self._display = LineWriter(sys.stderr)
        self._state: Callable[[], State] = lambda: EMPTY_STATE
        self._announced: CodonId | None = None
        self._has_begun = False
        self.touched: set[str] = set()
        """The files that a step has changed, even if only temporarily."""
        self.untouched: set[str] = set()
        """The files of which only others' changes are known, such as a person's."""
        self.has_burst = False
        """True if a step changed so many files at once that no event names all of them."""
        self.checks: dict[CodonId, list[CheckCompleted]] = {}
        """The checks of the last attempt of each step."""
        self.before: Sha | None = None
        """The checkpoint of the files at the beginning of this command's first step."""
        self.warnings: list[str] = []
        """Problems that did not fail a step."""
        self.stopped_by: str | None = None

    @property
    def state(self) -> State:
        """The current state; after the run, the last one."""
        return self._state()

    def has_touched(self, path: str) -> bool:
        """Return whether a step has changed a file, as far as the events show."""
        return path in self.touched or (self.has_burst and path not in self.untouched)

    def begin(self, layout: Layout, ready: ServerReady, state: Callable[[], State]) -> None:
        self._state = state
        self.before = self.before or _current_checkpoint(state())
        if not self._quiet:
            self._display.open(start_lines(layout, ready))

    def report(self, published: Published) -> None:
        event = published.event
        self._keep(event)
        if not self._quiet:
            for line in (*self._headline(event), *_lines_of(event)):
                self._display.write(line)

    def writing(self) -> AbstractContextManager[None]:
        return self._display.writing()

    def _headline(self, event: Event) -> Iterator[str]:
        """Announce a step with the first event of its agent."""
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

    # --- data for the report ----------------------------------------------------------------------

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
                self.before = sha  # The restore after a crash.
            case FileUpdated(path=path, source=source):
                if source.kind in ("tool_use", "codon-end"):
                    self.touched.add(path)
                else:
                    self.untouched.add(path)
            case FilesChanged(source=source):
                self.has_burst |= source.kind in ("tool_use", "codon-end")
            case ErrorEvent(fatal=False, message=message):
                self.warnings.append(message)
            case (
                CodonWarning(codon_id=codon, message=message)
                | AgentConfined(codon_id=codon, message=message)
            ):
                self.warnings.append(f"{codon}: {message}")
            case CheckCompleted(codon_id=codon) as check:
                self.checks.setdefault(codon, []).append(check)
            case ServerStopping(reason=reason):
                self.stopped_by = reason
            case _:
                pass


def _current_checkpoint(state: State) -> Sha | None:
    """Return the checkpoint of the files on disk, which may be that of a failed codon."""
    ends = (end_checkpoint(entry.codon) for entry in reversed(thread(state)))
    newest = next((sha for sha in ends if sha is not None), state.initial_checkpoint)
    return restored_checkpoint(state) or newest


# --- banners --------------------------------------------------------------------------------------


def _lines_of(event: Event) -> Iterator[str]:
    """Yield the lines of an event."""
    line = event_line(event.data)
    match event.data:
        case AssistantAction(action="message", content=text) | AgentOutput(line=text):
            yield f"   {short(text)}"
        case AssistantAction(action="tool_use", tool_name=tool, tool_input=given):
            yield f"   {short(f'{tool} {_object_of(given)}')}"
        case CheckCompleted() as check:
            yield from _check(check)
        case PermissionRequested() as asked:
            yield f"   {asking_line(asked)}"
        case PermissionResolved(tool_name=tool, by=by) if line is not None:
            yield f"   {short(tool)} is {line.word} by {by}"
        case CodonRetrying() | CodonWarning() | AgentConfined() if line is not None:
            yield f"   {one_line(line.message)}"
        case CodonCompletedEvent() as done:
            yield _ended(done)
        case ErrorEvent() | ServerDegraded() | ServerRecovered() if line is not None:
            yield f"hankweave: {one_line(line.text)}"
        case _:
            pass


def _check(check: CheckCompleted) -> Iterator[str]:
    word = "passed" if check.passed else "failed, and may" if check.ignored else "failed"
    yield f"   check {word}: {short(check.command)} ({check.duration_ms / 1000:.1f} s)"
    if not check.passed:
        shown = check.output.splitlines()[-SHOWN_OF_A_CHECK:]
        yield from (f"     {short(line)}" for line in shown)


def _ended(done: CodonCompletedEvent) -> str:
    name = one_line(done.codon_id)
    if done.condition is not None:
        return f"── {name}: skipped, condition not met: {short(done.condition)}"

    outcome = "success" if done.success else "skipped" if done.skipped else "failed"
    line = f"── {name}: {outcome} in {done.duration / 1000:.1f} s, ${done.cost:.4f}"
    reason = done.failure_reason
    return line if reason is None or not reason.message else f"{line}: {short(reason.message)}"


def _object_of(given: Mapping[str, object] | None) -> str:
    """Return the most informative part of a tool's input, such as a path or a command."""
    for key in ("file_path", "path", "command", "pattern", "url"):
        if given and isinstance(value := given.get(key), str):
            return value

    return ""


class PipelineExit(IntEnum):
    """Architect's exit codes, on which scripts rely; other errors have the usual `ExitCode`."""

    DONE = 0
    """The pipeline succeeded."""
    FAILED = 1
    """A step failed, or the pipeline was refused."""
    USAGE = 2
    """An option or argument is wrong, or the pipeline is invalid."""
    CONFIGURATION = 3
    """A requirement is not met, or the pipeline or session does not exist."""
    AUTHENTICATION = 4
    """The agent has no valid key or login."""
    TIMEOUT = 5
    """A step took longer than its time limit."""
    TERMINAL_CLOSED = 129
    """The terminal was closed (SIGHUP)."""
    INTERRUPTED = 130
    """Ctrl+C (SIGINT)."""
    QUIT = 131
    """SIGQUIT."""
    TERMINATED = 143
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The output options: report format, report file, and whether to print banners."""

    form: Format | None
    """Format of the report; None: no report."""
    file: Path | None
    """File for the report; None: stdout."""
    quiet: bool

    def refuse_where_it_cannot(self) -> None:
        """Raise Stop if the report file cannot be written; called before anything runs."""
        if self.file is None:
            return

        folder = self.file.absolute().parent
        if not folder.is_dir():
            raise unwritten(self.file, "the directory does not exist", "Nothing was run.")

        if not os.access(self.file if self.file.exists() else folder, os.W_OK):
            raise unwritten(self.file, os.strerror(errno.EACCES), "Nothing was run.")

    def deliver(self, report: str) -> None:
        """Write the report to the file or stdout; raise Stop if the file cannot be written."""
        hint = "The pipeline itself has ended; `hankweave sessions` shows the result."
        deliver(report, self.file, hint)


def _agent_of(meant: Pipeline, step: PipelineStep) -> str:
    """Return the agent of a step, and the model if the agent takes one."""
    takes_a_model = not isinstance(step.agent, CommandAgentSpec | ScriptedAgentSpec)
    return f"{step.keys.agent}, {meant.model_of(step)}" if takes_a_model else step.keys.agent


def run_pipeline(
    meant: Pipeline, layout: Layout, settings: RunSettings, output_options: OutputOptions
) -> int:
    """Run a pipeline to its end, print the report and summary, and return the exit code."""
    agents = {CodonId(step.name): _agent_of(meant, step) for step in meant.steps}
    banners = Banners(agents, quiet=output_options.quiet)
    begun = monotonic()
    ended = serve(settings, banners)
    result = result_of(banners.state)
    if output_options.form is not None:
        took = round((monotonic() - begun) * 1000)
        output_options.deliver(
            _report(meant, layout, banners, result, took).written(output_options.form)
        )

    if output_options.form is None or output_options.file is not None:
        _print_summary(meant, result, banners.warnings)

    return _exit_code(ended, result, banners.stopped_by)


def _report(
    meant: Pipeline, layout: Layout, banners: Banners, result: PipelineResult, duration_ms: int
) -> Report:
    changes = _changes(layout, banners, result)
    return Report(
        task=meant.name,
        result=result,
        duration_ms=duration_ms,
        files=changes.files,
        checks=banners.checks,
        warnings=tuple(banners.warnings),
        diff=changes.diff,
    )


def _changes(layout: Layout, banners: Banners, result: PipelineResult) -> Changes:
    """Return the changes of this command, between its first and its last checkpoint."""
    after = [step.checkpoint for step in result.steps if step.checkpoint is not None]
    if banners.before is None or not after or not (banners.touched or banners.has_burst):
        return NOTHING

    return changes_between(layout, banners.before, after[-1], banners.has_touched)


_MARKS = {
    "success": "PASS",
    "partial": "PART",
    "failed": "FAIL",
    "skipped": "SKIP",
    "interrupted": "STOP",
    "not run": "----",
}


def _print_summary(meant: Pipeline, result: PipelineResult, warnings: list[str]) -> None:
    names = [one_line(step.name) for step in result.steps]
    width = max(map(len, names), default=0)
    for step, name in zip(result.steps, names, strict=True):
        seconds = f"{step.duration_ms / 1000:.1f} s"
        line = f"[{_MARKS[step.status]}] {name:<{width}}  {seconds:>8}  ${step.cost:.4f}"
        click.echo(f"{line}  {_remark(step)}".rstrip())

    for warning in warnings:
        click.echo(f"warning: {one_line(warning)}")

    done = sum(step.status in ("success", "partial", "skipped") for step in result.steps)
    steps = f"{done} of {counted(len(result.steps), 'step')}"
    click.echo(f"{one_line(meant.name)}: {result.status}, {steps}, ${result.cost:.4f}")


def _remark(step: StepResult) -> str:
    return one_line(step.error or step.condition or "")


def _exit_code(ended: ExitCode, result: PipelineResult, stopped_by: str | None) -> int:
    match stopped_by:
        case "SIGINT":
            return PipelineExit.INTERRUPTED
        case "SIGTERM":
            return PipelineExit.TERMINATED
        case "SIGHUP":
            return PipelineExit.TERMINAL_CLOSED
        case "SIGQUIT":
            return PipelineExit.QUIT
        case _:
            pass

    if ended not in (ExitCode.DONE, ExitCode.FAILED):
        return ended

    failure = result.failure
    if ended is ExitCode.DONE and result.status != "failed":
        return PipelineExit.DONE if failure is None else PipelineExit.FAILED

    if failure is None or failure.reason is None:
        return PipelineExit.FAILED

    if failure.reason.type == "timeout":
        return PipelineExit.TIMEOUT

    authentication = is_of_authentication(failure.reason)
    return PipelineExit.AUTHENTICATION if authentication else PipelineExit.FAILED
