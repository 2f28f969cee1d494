"""`hankweave pipeline`: run an Architect pipeline, a YAML file that is compiled to a hank."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from hankweave_protocol.commands import GetState
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import State
from hankweave_server import fsutil
from hankweave_server.cli.output.document import SUFFIXES
from hankweave_server.cli.output.text import print_error, print_problems
from hankweave_server.cli.shared import hank_loading
from hankweave_server.cli.shared.run_settings import (
    configured,
    confinement_option,
    export,
    from_layers,
    log_format_option,
    log_level_option,
    require_confinement_option,
    variables_of,
)
from hankweave_server.config import of_command_line
from hankweave_server.domain.execution_thread import answers_of, next_codon, thread_before
from hankweave_server.domain.plan import initial_plan
from hankweave_server.domain.step_results import resumes_at
from hankweave_server.features.architect.checkpoints import has_repository
from hankweave_server.features.architect.pipelines.report import Format
from hankweave_server.features.architect.pipelines.run import (
    OutputOptions,
    PipelineExit,
    run_pipeline,
)
from hankweave_server.features.architect.yaml.load import (
    compile_pipeline,
    load_pipeline,
    plan_summary,
    unknown_step,
    write_compiled,
    written,
)
from hankweave_server.features.architect.yaml.model import Pipeline
from hankweave_server.features.architect.yaml.shapes import Repository
from hankweave_server.features.architect.yaml.steps import NotAVariable, parse_var
from hankweave_server.hank.load import LoadedHank
from hankweave_server.hank.problems import HankInvalid
from hankweave_server.ledger.moments import has_past
from hankweave_server.local import executions
from hankweave_server.local.project_state import settle
from hankweave_server.local.reader import on_files
from hankweave_server.paths import HANK_FILE, Layout
from hankweave_server.settings import RunSettings
from hankweave_server.worktree.data_source import read_meta

_ON_THE_BRANCH = (
    "Checkpoints of steps become commits on your branch, as in Architect; "
    "`--repository shadow` leaves your git alone."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--var", "entries", multiple=True, metavar="NAME=VALUE", help="Set a variable. Repeatable."
)
@click.option("--from-step", metavar="STEP", help="Start at this step, on the current files.")
@click.option("--restart", is_flag=True, help="Start at the first step; do not resume.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option(
    "--config", "-c", type=click.Path(path_type=Path), help="Configuration file of Architect."
)
@click.option(
    "--workspace",
    "-w",
    type=click.Path(path_type=Path),
    help="Project directory. Default: the current directory.",
)
@click.option("--agent", metavar="NAME", help="Agent for the steps that name none.")
@click.option(
    "--no-agent-check",
    is_flag=True,
    envvar="HANKWEAVE_RUNTIME_NO_AGENT_CHECK",
    help="Start even if an agent is missing or not logged in.",
)
@click.option(
    "--repository",
    type=click.Choice(["shadow", "workspace"]),
    help="Where to keep checkpoints. `workspace`, the default in a git repository, also commits "
    "them to your branch.",
)
@click.option(
    "--report", type=click.Choice(get_args(Format)), help="Print a report in this format."
)
@click.option("--json", "as_json", is_flag=True, help="Same as --report json.")
@click.option(
    "--report-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file; .json or .md sets the format.",
)
@click.option(
    *("--port", "-p"),
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the server. Default: any free port.",
)
@confinement_option
@require_confinement_option
@log_level_option
@log_format_option
@click.option("--quiet", "-q", is_flag=True, help="Print nothing while the steps run.")
@click.pass_context
def pipeline(
    context: click.Context,
    /,
    file: Path,
    entries: tuple[str, ...],
    from_step: str | None,
    restart: bool,
    dry_run: bool,
    config: Path | None,
    workspace: Path | None,
    agent: str | None,
    repository: Repository | None,
    report: Format | None,
    as_json: bool,
    report_file: Path | None,
    quiet: bool,
    **server: Any,
) -> None:
    """Run the steps of FILE, a pipeline in YAML.

    The steps run in the current project. A pipeline that was interrupted resumes where it stopped;
    one that has ended starts again. Use `hankweave history` and `hankweave rollback --to-step STEP`
    to roll back to a step.

    \b
    Exit codes: 0 all steps done or skipped, 1 failed, 3 invalid pipeline or configuration,
    4 authentication with the provider failed, 5 a step timed out, 130 interrupted.

    \b
    hankweave pipeline pipeline.yaml --var budget=20000
    hankweave pipeline build.yaml --from-step optimize --report github > comment.md
    """
    if from_step is not None and restart:
        raise click.UsageError("--from-step and --restart exclude each other.")

    output_options = OutputOptions(_format(report, as_json, report_file), report_file, quiet=quiet)
    meant = _read(file, entries, config, agent)
    if from_step is not None and (problem := unknown_step(meant, from_step)) is not None:
        print_error(problem.message, problem.suggestion)
        sys.exit(PipelineExit.CONFIGURATION)

    layout = executions.layout_in(workspace or Path.cwd())
    meant = _with_repository(meant, repository, layout.root, quiet=quiet)
    before = _state_of(layout)
    if dry_run:
        click.echo(plan_summary(_rest_of(meant, from_step, before)), nl=False)
        return

    output_options.refuse_where_it_cannot()
    layout = settle(executions.located_in(layout.root)).layout
    hank = hank_loading.read(_compiled(layout, meant))
    begin_at = _beginning(layout, hank, before, from_step, restart=restart)
    _announce(before, begin_at, quiet=quiet)
    settings = _settings(context.command, server, layout, hank, begin_at)
    sys.exit(run_pipeline(meant, layout, settings, output_options))


# --- before it runs -------------------------------------------------------------------------------


def _format(report: Format | None, as_json: bool, file: Path | None) -> Format | None:
    """Return the format of the options, or that of the file's extension; None: no report."""
    if as_json and report not in (None, "json"):
        raise click.UsageError("--json and --report exclude each other.")

    if as_json or report is not None:
        return "json" if as_json else report

    if file is None:
        return None

    match SUFFIXES.get(file.suffix):
        case "json":
            return "json"
        case "markdown":
            return "markdown"
        case _:
            raise click.UsageError(f"{file.name}: name the format with --report, or .json or .md.")


def _read(
    file: Path,
    entries: tuple[str, ...],
    config: Path | None,
    agent: str | None,
) -> Pipeline:
    """Read and check the pipeline; on errors, print all of them and exit."""
    try:
        variables = dict(map(parse_var, entries))
        meant = load_pipeline(file, variables=variables, config=config, agent=agent)
    except NotAVariable as fault:
        print_error(fault.message, fault.suggestion)
        sys.exit(PipelineExit.CONFIGURATION)
    except HankInvalid as invalid:
        print_problems(invalid)
        sys.exit(PipelineExit.CONFIGURATION)

    for warning in meant.warnings:
        print_error(f"warning: {warning.located(file)}", warning.suggestion)

    return meant


def _with_repository(
    meant: Pipeline, repository: Repository | None, root: Path, *, quiet: bool
) -> Pipeline:
    """Choose a place for the checkpoints of steps: the command line's, else the pipeline's.

    If neither names one, it is the project's git repository, if it has one, as in Architect.
    """
    repository = repository or meant.checkpoints.repository
    if repository is None:
        repository = "workspace" if has_repository(root) else "shadow"
        if repository == "workspace" and not quiet:
            click.echo(_ON_THE_BRANCH, err=True)

    return replace(meant, checkpoints=replace(meant.checkpoints, repository=repository))


def _state_of(layout: Layout) -> State | None:
    """Return the state of the last execution in this project; None if there is none."""
    if not has_past(layout):
        return None

    return on_files(layout, lambda calls: calls.send(GetState()))


def _rest_of(meant: Pipeline, from_step: str | None, before: State | None) -> Pipeline:
    """Return the pipeline from a step on, with the answers of the earlier steps as variables."""
    if from_step is None:
        return meant

    first = [step.name for step in meant.steps].index(from_step)
    known: Mapping[str, str] = {}
    if before is not None:
        plan = initial_plan(compile_pipeline(meant))
        known = answers_of(thread_before(before, plan, CodonId(from_step)))

    return replace(meant, steps=meant.steps[first:], variables={**meant.variables, **known})


def _compiled(layout: Layout, meant: Pipeline) -> Path:
    """Write the pipeline as a hank to the project's `.hankweave` directory; return its path.

    Its name is a hash of its content: another pipeline, or the same one with other variables, never
    overwrites one that may have to be resumed.
    """
    fsutil.make_private_directory(layout.state_directory)
    executions.hide(layout)
    name = hashlib.sha256(written(compile_pipeline(meant))).hexdigest()[:12]
    return write_compiled(meant, layout.pipelines / name)


def _beginning(
    layout: Layout,
    hank: LoadedHank,
    before: State | None,
    from_step: str | None,
    *,
    restart: bool,
) -> CodonId | None:
    """Return the step to begin at; None to resume the same pipeline, or for a first run."""
    if from_step is not None:
        return CodonId(from_step)

    if before is None or not before.execution_plan:
        return None

    former = read_meta(layout)
    is_same = former is not None and not executions.is_other_hank(former, hank)
    if not restart and is_same and resumes_at(before, next_codon(before)):
        return None

    first = hank.hank.hank[0].id
    return CodonId(first)


def _settings(
    command: click.Command,
    server: Mapping[str, Any],
    layout: Layout,
    hank: LoadedHank,
    begin_at: CodonId | None,
) -> RunSettings:
    """Return the settings of a run in this project; `server` has the options of its server."""
    given = {
        "port": server["port"] or None,
        "noAgentCheck": server["no_agent_check"] or None,
        "confinement": server["confinement"],
        "requireConfinement": server["require_confinement"] or None,
        "logLevel": server["log_level"],
        "logFormat": server["log_format"],
    }
    settings = RunSettings(
        hank=hank.directory / HANK_FILE,
        data=None,
        workspace=layout.root,
        executions_root=executions.executions_root(),
        headless=True,
        begin_at=begin_at,
    )
    found = from_layers(of_command_line(given), None, variables_of(command))
    export(found)
    return replace(configured(settings, found), autostart=True)


def _announce(before: State | None, begin_at: CodonId | None, *, quiet: bool) -> None:
    following = None if before is None else next_codon(before)
    if quiet or begin_at is not None or following is None:
        return

    assert before is not None
    if before.runs and any(run.codons for run in before.runs):
        click.echo(f"Resuming at {following}; --restart starts at the first step.", err=True)


COMMANDS = (pipeline,)
