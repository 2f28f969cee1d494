"""`hankweave rollback`, `undo`, `redo` and `preview`: restore files and the place in the plan.

A preview needs no server, and writes nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import click

from hankweave_client.calls import Calls
from hankweave_protocol.commands import (
    GetState,
    OnRunning,
    RollbackPreview,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CodonCheckpointType, RollbackReport
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.rollback_report import draw_report, end_with_exceptions
from hankweave_server.cli.output.text import Parsed
from hankweave_server.cli.remote import (
    ask,
    execution_option,
    json_option,
    print_json,
    rollback_command,
    root_of,
)
from hankweave_server.cli.shared import completions
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.installed import parts
from hankweave_server.local.executions import is_in_git
from hankweave_server.local.hints import command as command_line
from hankweave_server.local.living import is_served
from hankweave_server.local.server_session import run_read_only
from hankweave_server.local.targeting import (
    announce,
    confirm,
    require_consent,
    root_to_change,
    start_line,
)
from hankweave_server.plain_text import one_line
from hankweave_server.worktree.names import shown

_ABOUT_PREVIEW = "`--preview` shows what it would do."
PREVIEWING = "Previewing the rollback"


def _path_on_the_wire(text: str) -> str:
    if not text:
        raise ValueError("A path has at least one character.")

    return shown(os.fsencode(text))


_path_option = click.option(
    *("--path", "paths"),
    type=Parsed("path", _path_on_the_wire),
    multiple=True,
    help="Only this file or directory. Repeatable.",
)
_codon_option = click.option(
    "--codon", shell_complete=completions.codons, help="Target: a codon of the execution thread."
)
_type_option = click.option(
    "--type",
    "kind",
    type=click.Choice(get_args(CodonCheckpointType)),
    help="Which checkpoint of the codon. Default: end.",
)
_keep_option = click.option(
    "--keep-edits", is_flag=True, help="Keep files that a person changed after an agent did."
)


class RollbackOptions(NamedTuple):
    """The options of every command that moves files."""

    stop: bool
    pause: bool
    keep_edits: bool
    reason: str | None
    yes: bool
    only_preview: bool
    patch: bool
    as_json: bool

    @property
    def asks(self) -> bool:
        """Whether to show a preview and ask for confirmation first."""
        return not (self.yes or self.as_json)

    @property
    def is_plain(self) -> bool:
        return not (self.stop or self.pause or self.keep_edits or self.reason or self.only_preview)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a command; raise UsageError for options that exclude each other."""
        if self.patch and not self.only_preview:
            raise click.UsageError("--patch requires --preview.")

        if self.stop and self.pause:
            raise click.UsageError("--stop and --pause exclude each other.")

        on_running: OnRunning = "stop" if self.stop else "pause" if self.pause else "refuse"
        return {"on_running": on_running, "keep_edits": self.keep_edits, "reason": self.reason}


def _moving_files(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `RollbackOptions`, and pass them to the command as `options`."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        options = RollbackOptions(**{name: given.pop(name) for name in RollbackOptions._fields})
        command(options=options, **given)

    for option in reversed(
        (
            click.option("--stop", is_flag=True, help="Stop a running codon first."),
            click.option("--pause", is_flag=True, help="Pause a running codon meanwhile."),
            _keep_option,
            click.option("--reason", help="Reason, in one sentence; shown to the agent."),
            click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
            click.option(
                *("--preview", "only_preview"),
                is_flag=True,
                help="Show what would change, and change nothing.",
            ),
            click.option("--patch", is_flag=True, help="With --preview: print unified diffs, too."),
        )
    ):
        with_options = option(with_options)

    return with_options


# --- rollback -------------------------------------------------------------------------------------


@click.command()
@execution_option
@click.option(
    *("--to", "sha"),
    shell_complete=completions.checkpoints,
    help="Target: a checkpoint. The SHA may be abbreviated.",
)
@click.option("--to-commit", help="Same as --to; without a server in a git workspace, a commit.")
@click.option("--to-step", metavar="STEP", help="Target: a pipeline step, by number or name.")
@completions.codon_option(
    "--before",
    metavar="STEP",
    help="Target: the files and the place in the plan before a codon.",
)
@_codon_option
@_type_option
@_path_option
@click.option("--restart", is_flag=True, help="Continue the plan at once.")
@_moving_files
@click.option("--rewind-memory", is_flag=True, help="Restore the agents' conversations, too.")
@json_option
def rollback(
    execution: Path | None,
    sha: str | None,
    to_commit: str | None,
    to_step: str | None,
    before: str | None,
    codon: str | None,
    kind: CodonCheckpointType | None,
    paths: tuple[str, ...],
    restart: bool,
    rewind_memory: bool,
    options: RollbackOptions,
) -> None:
    """Roll back to the last success, a checkpoint, step or codon.

    Everything that a rollback overwrites or removes is saved in a safety checkpoint first, and
    `hankweave undo` restores it. With --path, only these files are restored, and no run ends.
    Paths that cannot be changed are named and left as they are; the exit code is 3 then.

    \b
    hankweave rollback --before clean --preview
    hankweave rollback --to abc1234 --restart
    hankweave rollback --path report.md
    hankweave rollback --to-step implement
    """
    if restart and paths:
        raise click.UsageError("--restart and --path exclude each other: with --path, no run ends.")

    to = None
    if before is not None:
        if any(each is not None for each in (sha, to_commit, to_step, codon, kind)):
            raise click.UsageError("--before excludes every other target, and --type.")

        codon, kind, to = before, "start", f"before {one_line(before)}"

    if sha is not None and codon is not None:
        raise click.UsageError("--to and --codon exclude each other.")

    said: str | None = None
    if to_commit is not None or to_step is not None:
        if sha is not None or codon is not None:
            raise click.UsageError("--to-commit, --to-step, --to and --codon exclude one another.")

        others = (options.only_preview, kind, paths, restart, rewind_memory)
        if _rolled_back_in_git(execution, to_step, to_commit, options, is_plain=not any(others)):
            return

        execution = root_of(execution)
        sha, codon, said = _step_target(execution, to_step, to_commit)
    elif sha is not None and is_in_git(root := root_of(execution)):
        sha, codon, said = _step_target(root, None, sha)

    previewed = _previewed(
        sha,
        codon,
        kind,
        paths=paths,
        keep_edits=options.keep_edits,
        rewind_memory=rewind_memory,
        patch=options.patch,
    )
    if said is not None:
        click.echo(said, err=options.as_json)

    if options.only_preview:
        _show_preview(execution, previewed, options.as_json, to)
        return

    if restart:
        _require_server(root_of(execution))

    fields = {"auto_restart": restart, "rewind_memory": rewind_memory, "paths": previewed.paths}
    _run_command(execution, previewed, fields, "Go back?", options, to)


def _rolled_back_in_git(
    execution: Path | None,
    step: str | None,
    commit: str | None,
    options: RollbackOptions,
    *,
    is_plain: bool,
) -> bool:
    """Roll back in a git workspace; return False if the target is not only there."""
    targets = _targets_of_a_feature()
    root = None if targets is None else targets.git_workspace(execution, step, commit)
    if targets is None or root is None:
        return False

    if not (is_plain and options.is_plain):
        raise click.UsageError(
            "In a git workspace, only --to-step, --to-commit, --yes and --json are allowed."
        )

    announce(root)
    require_consent(yes=options.yes)
    targets.roll_back_in_git(root, step, commit, asks=options.asks, as_json=options.as_json)
    return True


def _step_target(
    root: Path, step: str | None, commit: str | None
) -> tuple[str | None, str | None, str | None]:
    """Return the checkpoint or codon of a step or commit, and how the options were understood."""
    targets = _targets_of_a_feature()
    if targets is None:
        return commit, None if step is None else CodonId(step), None

    target = targets.target_in(root, step, commit)
    return target.sha, target.codon, target.said


def _targets_of_a_feature() -> Any | None:
    """Return the module that knows other targets; it loads the git library, so not for all."""
    return next(parts("rollback_targets"), None)


def _require_server(root: Path) -> None:
    if not is_served(root):
        raise Stop(
            "--restart continues the plan, which needs a running server.",
            ExitCode.UNAVAILABLE,
            hint=f"Roll back without it, then continue with `{start_line(root)}`.",
        )


def _previewed(
    sha: str | None, codon: str | None, kind: CodonCheckpointType | None, **fields: Any
) -> RollbackPreview:
    if sha is not None and codon is not None:
        raise click.UsageError("A SHA and --codon exclude each other.")

    if codon is None and kind is not None:
        raise click.UsageError("--type requires --codon.")

    return RollbackPreview(
        checkpoint_sha=sha,
        codon_id=None if codon is None else CodonId(codon),
        checkpoint_type=None if codon is None else kind or "end",
        paths=fields.pop("paths") or None,
        **fields,
    )


# --- undo and redo --------------------------------------------------------------------------------


@click.command()
@execution_option
@click.option(
    "--repository",
    type=click.Choice(["auto", "workspace"]),
    default="auto",
    help="`workspace`: undo in the project's own git repository, even if Hankweave has run there.",
)
@_moving_files
@json_option
def undo(execution: Path | None, repository: str, options: RollbackOptions) -> None:
    """Undo the last rollback.

    Files and the place in the plan are restored. An automatic restore (after a crash, before a
    retry) is undone in the same way. Repeat the command to undo earlier rollbacks; `hankweave redo`
    reverses it. Without a server in a git workspace, it undoes the last `rollback --to-step` there,
    if there was one.

    \b
    hankweave undo
    hankweave undo --preview
    hankweave undo --keep-edits -y
    """
    if options.is_plain:
        targets = _targets_of_a_feature()
        in_git = repository == "workspace"
        git_root = None if targets is None else targets.git_workspace(execution, in_git=in_git)
        if targets is not None and git_root is not None:
            require_consent(yes=options.yes, otherwise=_ABOUT_PREVIEW)
            if targets.undo_in_git(git_root, as_json=options.as_json):
                return

            if in_git:
                raise Stop(
                    "There is no git rollback to undo.",
                    ExitCode.FAILED,
                    hint="`hankweave history` lists the commits to go back to.",
                )

    _undo_or_redo(execution, "undo", options)


@click.command()
@execution_option
@completions.codon_option(
    "--step",
    help="Run this codon and all that follow again, from where it began.",
)
@click.option(
    "--reuse",
    is_flag=True,
    help="With --step: of the later codons, run only those whose inputs have changed.",
)
@_moving_files
@json_option
def redo(
    execution: Path | None,
    step: str | None,
    reuse: bool,
    options: RollbackOptions,
) -> None:
    """Reverse the last undo, or with --step run a codon again.

    After a new rollback, there is no undo to reverse.

    With --step, files and conversations are rolled back to where the codon began. It is run, and
    the plan continues. With --reuse, each later codon whose inputs are the same as before takes
    over its earlier result at no cost. `hankweave undo` goes back.

    \b
    hankweave redo
    hankweave redo --step infer --reuse
    hankweave redo --step infer --preview
    """
    if step is not None:
        _redo_step(execution, CodonId(step), options, reuse=reuse)
    elif reuse:
        raise click.UsageError("--reuse requires --step.")
    else:
        _undo_or_redo(execution, "redo", options)


def _redo_step(
    execution: Path | None,
    codon_id: CodonId,
    options: RollbackOptions,
    *,
    reuse: bool,
) -> None:
    if options.pause:
        raise click.UsageError("--step and --pause exclude each other: the codon runs again.")

    previewed = RollbackPreview(
        codon_id=codon_id,
        checkpoint_type="beginning",
        keep_edits=options.keep_edits,
        patch=options.patch,
        rewind_memory=True,
    )
    if options.only_preview:
        _show_preview(execution, previewed, options.as_json)
        return

    root = root_of(execution)
    has_server = is_served(root)

    fields = {"reuse": reuse, "auto_restart": has_server, "rewind_memory": True}
    _run_command(execution, previewed, fields, f"Run {codon_id} again?", options)
    if not has_server:
        click.echo(f"Continue with `{start_line(root)}`.", err=options.as_json)


def _undo_or_redo(
    execution: Path | None, direction: Literal["undo", "redo"], options: RollbackOptions
) -> None:
    options.fields()  # Refuses what excludes each other.
    previewed = RollbackPreview(
        direction=direction, keep_edits=options.keep_edits, patch=options.patch
    )
    if options.only_preview:
        _show_preview(execution, previewed, options.as_json)
        return

    question = "Undo the rollback?" if direction == "undo" else "Redo the rollback?"
    _run_command(execution, previewed, {}, question, options)


# --- execution ------------------------------------------------------------------------------------


def _run_command(
    execution: Path | None,
    previewed: RollbackPreview,
    fields: dict[str, Any],
    question: str,
    options: RollbackOptions,
    to: str | None = None,
) -> None:
    """Send the command, after a confirmation if `options` asks for one, and print the report.

    `fields` are those that the command has beside the fields of `options`.
    """
    fields = fields | options.fields()
    root = root_to_change(execution)
    require_consent(yes=options.yes, otherwise=_ABOUT_PREVIEW)
    run_id = None
    if options.asks:
        with waiting(PREVIEWING) as report_progress:
            report, run_id = run_read_only(
                root, lambda calls: _fetch_preview(calls, previewed), report_progress
            )

        draw = functools.partial(
            draw_report, report, is_preview=True, to=to, reverse=_reverse(previewed, root)
        )
        draw()
        confirm(question, lambda: draw(whole=True))

    command = rollback_command(previewed, **fields, expected_run_id=run_id)
    what = None if options.as_json else "Rolling back"
    done = ask(root, lambda client: client.send(command), what)
    if options.as_json:
        print_json(done)
    else:
        draw_report(done, is_preview=False, to=to, reverse=_reverse(previewed, root))

    end_with_exceptions(done)


async def _fetch_preview(
    calls: Calls, command: RollbackPreview
) -> tuple[RollbackReport, RunId | None]:
    """Return the preview and the run it is valid for; None without a server.

    The server refuses the command if another run has begun by then.
    """
    run_id = (await calls.send(GetState())).current_run_id
    return await calls.send(command), run_id


def _reverse(done: RollbackPreview, root: Path) -> str:
    """Return the command that takes back a rollback or undo."""
    return command_line("redo" if done.direction == "undo" else "undo", root)


# --- preview --------------------------------------------------------------------------------------


@click.command()
@click.argument("sha", required=False, shell_complete=completions.checkpoints)
@execution_option
@_codon_option
@_type_option
@_path_option
@_keep_option
@click.option("--undo", "is_undo", is_flag=True, help="Preview `hankweave undo`.")
@click.option("--redo", "is_redo", is_flag=True, help="Preview `hankweave redo`.")
@click.option("--patch", "-p", is_flag=True, help="Print unified diffs as well.")
@json_option
def preview(
    sha: str | None,
    execution: Path | None,
    codon: str | None,
    kind: CodonCheckpointType | None,
    paths: tuple[str, ...],
    keep_edits: bool,
    is_undo: bool,
    is_redo: bool,
    patch: bool,
    as_json: bool,
) -> None:
    """Show what a rollback would do, as `rollback --preview` does.

    The target is checkpoint SHA or a --codon; by default, the last success. The output lists every
    affected file with its size, edits by people among them, and effects outside the work tree,
    which cannot be undone.

    \b
    hankweave preview
    hankweave preview 6dc2daae --path src --patch
    hankweave preview --undo
    """
    command = _previewed(sha, codon, kind, paths=paths, keep_edits=keep_edits, patch=patch)
    if is_undo or is_redo:
        if is_undo and is_redo:
            raise click.UsageError("--undo and --redo exclude each other.")

        if sha is not None or codon is not None or paths:
            raise click.UsageError("--undo and --redo exclude SHA, --codon and --path.")

        direction: Literal["undo", "redo"] = "undo" if is_undo else "redo"
        command = RollbackPreview(direction=direction, keep_edits=keep_edits, patch=patch)

    _show_preview(execution, command, as_json)


def _show_preview(
    execution: Path | None, command: RollbackPreview, as_json: bool, to: str | None = None
) -> None:
    root = root_of(execution)
    with waiting(None if as_json else PREVIEWING) as report_progress:
        report = run_read_only(root, lambda calls: calls.send(command), report_progress)

    if as_json:
        print_json(report)
    else:
        draw_report(report, is_preview=True, to=to, reverse=_reverse(command, root))


COMMANDS = (rollback, undo, redo, preview)
