"""`hankweave sessions` and `resume`: list the runs of an execution, and resume the newest one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from hankweave_protocol.commands import GetState
from hankweave_protocol.ids import RunId
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import Run, RunStatus, State
from hankweave_server.cli.output.text import console
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.cli.shared.run_settings import log_format_option, log_level_option
from hankweave_server.domain.execution_thread import end_checkpoint, is_done, next_codon, thread
from hankweave_server.domain.lifecycle import cost_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.installed import parts
from hankweave_server.local.server_session import run_read_only
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.data_source import layout_of, read_meta


class ListedSession(Value, kw_only=True, omit_defaults=False):
    """One run, as `hankweave sessions --json` prints it."""

    id: RunId
    status: RunStatus
    steps_done: int
    """Steps done when the run ended, including those of the runs that it continued."""
    steps_total: int
    cost: float
    """USD, of this run alone."""
    task: str | None
    started_at: str
    ended_at: str | None


@click.command()
@execution_option
@json_option
def sessions(execution: Path | None, as_json: bool) -> None:
    """List the runs of an execution, newest first.

    \b
    hankweave sessions
    """
    root = root_of(execution)
    state = run_read_only(root, lambda calls: calls.send(GetState()))
    task = _task_of(root)
    found = [_session(state, number, task) for number in range(len(state.runs))]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No sessions recorded.")
    else:
        console().print(_table(found))


def _session(state: State, number: int, task: str | None) -> ListedSession:
    own = state.runs[number]
    # The state with this run as the newest one.
    seen = msgspec.structs.replace(state, runs=state.runs[number:])
    return ListedSession(
        id=own.run_id,
        status=own.status,
        steps_done=sum(is_done(entry.codon, state.execution_plan) for entry in thread(seen)),
        steps_total=len(state.execution_plan),
        cost=sum(cost_of(codon) for codon in own.codons),
        task=task,
        started_at=own.start_time,
        ended_at=own.end_time,
    )


def _task_of(root: Path) -> str | None:
    """Return the hank's name, or that of its directory if the file has none or is missing."""
    meta = read_meta(layout_of(root))
    if meta is None or meta.hank_path is None:
        return None

    path = Path(meta.hank_path)
    try:
        name = json.loads(path.read_bytes())["meta"]["name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        name = None

    return name if isinstance(name, str) else path.parent.name


def _table(found: list[ListedSession]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "Status", "Steps", "Cost"):
        table.add_column(name, no_wrap=True, justify="right" if name == "Cost" else "left")

    table.add_column("Task", overflow="ellipsis", no_wrap=True)
    for each in found:
        table.add_row(
            Text(each.id),
            Text(each.status),
            Text(f"{each.steps_done}/{each.steps_total}"),
            Text(f"${each.cost:.4f}"),
            Text(one_line(each.task or "-")),
        )

    return table


# --- resume ---------------------------------------------------------------------------------------


class _Resume(click.Command):
    """The command `resume`; with an argument that a feature can resume, that feature's command."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        for source in parts("resume_source"):
            if any(map(source.is_source, args)):
                found: click.Command = source.command()
                return found.make_context(info_name, args, parent, **extra)

        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = " ".join(source.EPILOG for source in parts("resume_source"))
        super().format_epilog(ctx, formatter)


@click.command(cls=_Resume)
@click.argument("session_id", metavar="ID", shell_complete=completions.runs)
@execution_option
@log_level_option
@log_format_option
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines.")
def resume(
    session_id: str,
    execution: Path | None,
    log_level: str | None,
    log_format: str | None,
    plain: bool,
    as_json: bool,
) -> None:
    """Resume run ID where it stopped, and exit when the plan ends.

    ID may be abbreviated, and must be the newest run. Exit codes are those of
    `hankweave run --headless`, or 3 if there is no such run.

    \b
    hankweave resume 17952849
    """
    root = root_of(execution)
    state = run_read_only(root, lambda calls: calls.send(GetState()))
    meant = _run_named(state, session_id)
    if meant is not state.runs[0]:
        raise Stop(
            f"Run {meant.run_id} is not the newest one: {state.runs[0].run_id} is newer.",
            ExitCode.FAILED,
            hint=f"Roll back first: `hankweave rollback {_way_back(meant)}` starts a run that "
            "continues from there.",
        )

    if not state.execution_plan:
        raise Stop(
            f"Run {meant.run_id} has no plan to continue.",
            ExitCode.FAILED,
            hint="It only took checkpoints. Start a plan with `hankweave run HANK`.",
        )

    if next_codon(state) is None:
        click.echo(f"Run {meant.run_id} has completed; there is nothing left to do.", err=as_json)
        return

    # Imported here because only this starts a server.
    from hankweave_server.cli.run import run

    place = "--workspace" if layout_of(root).is_in_place else "--execution"
    options = [word for word, wanted in (("--plain", plain), ("--json", as_json)) if wanted]
    for name, value in (("--log-level", log_level), ("--log-format", log_format)):
        options += [] if value is None else [name, value]

    run.main([place, str(root), "--headless", *options], "hankweave run", standalone_mode=False)


def _run_named(state: State, prefix: str) -> Run:
    matches = [each for each in state.runs if prefix and each.run_id.startswith(prefix)]
    exact = [each for each in matches if each.run_id == prefix]
    match exact or matches:
        case []:
            raise Stop(
                f"There is no run {prefix!r}.",
                ExitCode.NO_SUCH_SESSION,
                hint="`hankweave runs` lists them.",
            )
        case [meant]:
            return meant
        case several:
            listed = ", ".join(each.run_id for each in several)
            raise Stop(
                f"{counted(len(several), 'run')} begin with {prefix}: {listed}.",
                ExitCode.FAILED,
                hint="Give more characters of its id.",
            )


def _way_back(meant: Run) -> str:
    ends = [sha for codon in meant.codons if (sha := end_checkpoint(codon)) is not None]
    return f"--to {ends[-1][:12]}" if ends else "--to CHECKPOINT"


COMMANDS = (sessions, resume)
