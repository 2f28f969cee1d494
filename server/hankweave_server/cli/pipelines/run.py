"""A pipeline while it runs, and what is told of it at its end: report, summary, exit code."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import monotonic

import click

from hankweave_protocol.hank import CommandAgentSpec
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.pipelines.pipeline_banners import Banners
from hankweave_server.cli.pipelines.pipeline_changes import NOTHING, Changes, changes_between
from hankweave_server.cli.pipelines.report import Format, Report
from hankweave_server.cli.run import serve
from hankweave_server.domain.step_results import (
    PipelineResult,
    StepResult,
    is_of_authentication,
    result_of,
)
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.pipelines.model import Pipeline, PipelineStep, ScriptedAgent
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line
from hankweave_server.settings import RunSettings


class PipelineExit(IntEnum):
    """Architect's exit codes, which scripts that call it rely on; others are sysexits as always."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 3
    AUTHENTICATION = 4
    TIMEOUT = 5
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Telling:
    """What a person wants to be told, and where."""

    form: Format | None
    """Of the report; None: there is none."""
    file: Path | None
    """Where the report goes, if not to stdout."""
    quiet: bool

    def refuse_where_it_cannot(self) -> None:
        """Raises Stop where the report's file cannot be written, before anything runs."""
        if self.file is None:
            return

        folder = self.file.absolute().parent
        if not folder.is_dir():
            raise _unwritten(self.file, "there is no such folder", "Nothing was run.")

        if not os.access(self.file if self.file.exists() else folder, os.W_OK):
            raise _unwritten(self.file, os.strerror(errno.EACCES), "Nothing was run.")

    def hand_over(self, report: str) -> None:
        """Writes the report to where it is wanted; raises Stop where that fails."""
        if self.file is None:
            click.echo(report, nl=False)
            return

        try:
            self.file.write_text(report, encoding="utf-8")
        except OSError as error:
            hint = "The pipeline itself has ended; `hankweave sessions` tells how."
            raise _unwritten(self.file, error.strerror, hint) from None


def _unwritten(file: Path, why: str | None, hint: str) -> Stop:
    message = f"The report could not be written to {file}: {why}."
    return Stop(message, ExitCode.IO_ERROR, hint=hint)


def _agent_of(meant: Pipeline, step: PipelineStep) -> str:
    """Who does a step, and by which model if that is theirs to choose."""
    takes_a_model = not isinstance(step.agent, CommandAgentSpec | ScriptedAgent)
    return f"{step.agent_name}, {meant.model_of(step)}" if takes_a_model else step.agent_name


def run_pipeline(meant: Pipeline, layout: Layout, settings: RunSettings, telling: Telling) -> int:
    """Runs a pipeline to its end, tells how it went, and gives the exit code."""
    agents = {CodonId(step.name): _agent_of(meant, step) for step in meant.steps}
    banners = Banners(agents, quiet=telling.quiet)
    begun = monotonic()
    ended = serve(settings, banners)
    result = result_of(banners.state)
    if telling.form is not None:
        took = round((monotonic() - begun) * 1000)
        telling.hand_over(_report(meant, layout, banners, result, took).written(telling.form))

    if telling.form is None or telling.file is not None:
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
    """What the steps of this call have changed, between its first and the last that has run."""
    after = [step.checkpoint for step in result.steps if step.checkpoint is not None]
    if banners.before is None or not after or not banners.touched:
        return NOTHING

    return changes_between(layout, banners.before, after[-1], banners.touched)


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
    steps = f"{done} of {len(result.steps)} steps"
    click.echo(f"{one_line(meant.name)}: {result.status}, {steps}, ${result.cost:.4f}")


def _remark(step: StepResult) -> str:
    return one_line(step.error or step.condition or "")


def _exit_code(ended: ExitCode, result: PipelineResult, stopped_by: str | None) -> int:
    match stopped_by:
        case "SIGINT":
            return PipelineExit.INTERRUPTED
        case "SIGTERM":
            return PipelineExit.TERMINATED
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
