"""`hankweave explore`, `attempts`, `compare`, `adopt` and `discard`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from rich.table import Table
from rich.text import Text

from hankweave_protocol.attempts import AttemptRecord, Exploration, Judgement
from hankweave_protocol.commands import (
    MAX_ATTEMPTS,
    ExplorationAdopt,
    ExplorationDiscard,
    ExplorationShow,
    ExplorationStart,
    GetState,
    OnRunning,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.state import State
from hankweave_server.cli.output import pictures
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.rollback_report import draw_report, end_with_exceptions
from hankweave_server.cli.output.text import console, print_line, span
from hankweave_server.cli.remote import (
    ask,
    execution_option,
    json_option,
    print_json,
    report_dead_server,
    root_of,
)
from hankweave_server.cli.shared import completions
from hankweave_server.cli.shared.run_settings import budget_option
from hankweave_server.cli.show import whole_diff
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.exploration.explorations import (
    adopted,
    attempt_named,
    exploration_named,
    result_of,
)
from hankweave_server.hank.problems import did_you_mean
from hankweave_server.local.ephemeral_server import EphemeralServer
from hankweave_server.local.hints import command
from hankweave_server.local.server_session import at_server, run_on_files, run_read_only
from hankweave_server.local.targeting import (
    confirm,
    require_consent,
    root_to_change,
)
from hankweave_server.plain_text import counted, one_line, printable

_POLL_SECONDS = 0.5
_VARIANT = {field.encode_name: field for field in msgspec.structs.fields(Variant)}


@click.command()
@execution_option
@click.option(
    "--from",
    "sha",
    shell_complete=completions.checkpoints,
    help="Begin at this checkpoint. Default: the files as they are.",
)
@click.option(
    "--codon",
    shell_complete=completions.codons,
    help="Begin where this codon began, or will begin.",
)
@click.option(
    "-n",
    "--attempts",
    "n",
    type=click.IntRange(1, MAX_ATTEMPTS),
    help="Number of attempts. Default: one for each variant, or two.",
)
@click.option(
    "--variant",
    "variants",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="JSON file with what an attempt does differently. Repeatable.",
)
@click.option("--score", metavar="COMMAND", help="Command whose last line of output is the score.")
@click.option(
    "--judge", metavar="MODEL", help="Model that compares the results if scores are equal."
)
@click.option("--rest", is_flag=True, help="Run the rest of the plan, not only one codon.")
@click.option(
    "--parallel",
    type=click.IntRange(1, MAX_ATTEMPTS),
    help="Number of attempts that run at a time.",
)
@budget_option("--max-cost", "Budget of all attempts together, in US dollars, above 0.")
@click.option(
    "--good-enough", type=float, help="Start no further attempts once one has this score."
)
@click.option("--adopt-best", is_flag=True, help="Adopt the best attempt at the end.")
@json_option
def explore(
    execution: Path | None,
    sha: str | None,
    codon: str | None,
    n: int | None,
    variants: tuple[Path, ...],
    score: str | None,
    judge: str | None,
    rest: bool,
    parallel: int | None,
    max_cost: float | None,
    good_enough: float | None,
    adopt_best: bool,
    as_json: bool,
) -> None:
    """Try a codon several times from one checkpoint, side by side, and compare the results.

    Each attempt is an execution of its own, with the files, the conversation and the rig of the
    checkpoint. A variant file sets any of promptText, promptFile, model, agent and variables.
    This execution does not change until you adopt an attempt; `hankweave undo` reverts that.

    \b
    hankweave explore --codon implement -n 3 --score "pytest -q | tail -1 | cut -d' ' -f1"
    hankweave explore --codon draft --variant short.json --variant long.json
    """
    if sha is not None and codon is not None:
        raise click.UsageError("--from and --codon exclude each other.")

    root = root_to_change(execution)
    begin = ExplorationStart(
        checkpoint_sha=sha,
        codon_id=None if codon is None else CodonId(codon),
        n=n,
        variants=tuple(read_variant(path) for path in variants),
        rest=rest,
        score=score,
        judge=judge,
        parallel=parallel,
        max_dollars=max_cost,
        good_enough=good_enough,
        adopt="best" if adopt_best else "ask",
    )
    report_dead_server(root)
    server = EphemeralServer(root)
    try:
        ended = _explored(server, root, begin, quiet=as_json)
        state = server.do(lambda: at_server(root, lambda client: client.send(GetState())))
    finally:
        server.end()

    if as_json:
        click.echo(_as_line(ended))
    else:
        _draw(ended, state, root)

    if ended.best is None:
        is_any_done = any(each.status == "completed" for each in ended.attempts)
        raise Stop(
            "No attempt has a score." if is_any_done else "No attempt has succeeded.",
            ExitCode.FAILED,
            hint=f"{command('attempts', root)} shows why.",
        )


def _explored(
    server: EphemeralServer, root: Path, begin: ExplorationStart, *, quiet: bool
) -> Exploration:
    """Start an exploration, report each attempt that ends, and return the whole.

    An ephemeral server is left to other commands between two polls, so that an attempt can be
    discarded or adopted meanwhile.
    """
    shown = server.do(lambda: at_server(root, lambda client: client.send(begin)))
    request = ExplorationShow(exploration_id=shown.exploration_id)
    reported: set[str] = set()
    if not quiet:
        count = counted(len(shown.attempts), "attempt")
        click.echo(f"exploration {shown.exploration_id}: {count} at {shown.codon_id}")

    while True:
        shown = server.do(lambda: at_server(root, lambda client: client.send(request)))
        for attempt in shown.attempts:
            if attempt.status in ("completed", "failed") and attempt.attempt_id not in reported:
                reported.add(attempt.attempt_id)
                if not quiet:
                    click.echo(_ended_text(attempt))

        if shown.ended_at is not None:
            return shown

        time.sleep(_POLL_SECONDS)


def _ended_text(attempt: AttemptRecord) -> str:
    if attempt.status == "failed":
        return f"  {attempt.attempt_id}  failed: {one_line(attempt.message or '')}"

    score = "" if attempt.score is None else f"  score {attempt.score:g}"
    return f"  {attempt.attempt_id}  completed{score}"


def read_variant(path: Path) -> Variant:
    """Read a variant file; raise Stop with the place of its first error.

    The text of a `promptFile`, which is relative to the variant file, becomes the prompt.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise _bad_variant(path, f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _bad_variant(path, f"it is not JSON: {error}") from None

    if not isinstance(content, dict):
        raise _bad_variant(path, "it is not an object")

    for name in content:
        if name not in _VARIANT:
            near = did_you_mean(name, _VARIANT)
            raise _bad_variant(path, f"the field {name!r} is unknown", near)

    try:
        variant = msgspec.convert(content, Variant)
    except msgspec.ValidationError as error:
        raise _bad_variant(path, str(error)) from None

    if variant.name is None:
        variant = msgspec.structs.replace(variant, name=path.stem)

    if variant.prompt_file is None:
        return variant

    if variant.prompt_text is not None:
        raise _bad_variant(path, "promptText and promptFile exclude each other")

    place = path.parent / variant.prompt_file
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_variant(path, f"promptFile {variant.prompt_file!r}: {error}") from None

    return msgspec.structs.replace(variant, prompt_text=text, prompt_file=None)


def _bad_variant(path: Path, why: str, hint: str | None = None) -> Stop:
    known = f"A variant has any of {', '.join(_VARIANT)}."
    return Stop(f"The variant {path} cannot be used: {why}.", ExitCode.USAGE, hint=hint or known)


def _as_line(exploration: Exploration) -> str:
    """Return the last line of `explore --json`."""
    attempts = [
        {
            "id": each.attempt_id,
            "status": each.status,
            "score": each.score,
            "cost": each.cost,
            "durationMs": each.duration_ms,
            "executionPath": each.execution_path,
            "files": each.files,
            "message": each.message,
        }
        for each in exploration.attempts
    ]
    best = None if exploration.best is None else exploration.best.attempt_id
    return json.dumps(
        {"explorationId": exploration.exploration_id, "best": best, "attempts": attempts}
    )


# --- the table ------------------------------------------------------------------------------------


@click.command()
@click.argument("exploration", required=False)
@execution_option
@json_option
def attempts(exploration: str | None, execution: Path | None, as_json: bool) -> None:
    """Show the attempts of an EXPLORATION; by default, of the newest one.

    \b
    hankweave attempts
    """
    root = root_of(execution)
    state = run_read_only(root, lambda calls: calls.send(GetState()))
    if exploration is None and not state.explorations and not as_json:
        click.echo("No exploration yet.")
        return

    try:
        found = exploration_named(state, exploration)
    except Refused as refused:
        raise Stop(refused.message, ExitCode.FAILED, hint=refused.hint, code=refused.code) from None

    if as_json:
        print_json(found)
    else:
        _draw(found, state, root)


def _draw(exploration: Exploration, state: State, root: Path) -> None:
    chosen, best = adopted(state, exploration), exploration.best
    at = exploration.checkpoint_sha[:12]
    print_line(f"{exploration.exploration_id}  {printable(exploration.codon_id)} from {at}", "bold")
    console().print(_table(exploration, chosen, best))
    for each in exploration.attempts:
        if each.message:
            click.echo(f"  {each.attempt_id}: {one_line(each.message)}")

    if (judgement := exploration.judgement) is not None:
        _draw_judgement(judgement)

    if chosen is None and best is not None:
        click.echo(f"  adopt the best: {command(f'adopt {best.attempt_id}', root)}")


def _draw_judgement(judgement: Judgement) -> None:
    said = judgement.error or " > ".join(" = ".join(group) for group in judgement.order)
    click.echo(f"  judge {one_line(judgement.model)}: {one_line(said)}")
    for reason in judgement.reasons:
        click.echo(f"    {reason.attempt_id}: {one_line(reason.text)}")


def _table(
    exploration: Exploration, chosen: AttemptRecord | None, best: AttemptRecord | None
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("attempt", "variant", "state", "score", "cost", "time", "files", "lines"):
        table.add_column(name, justify="left" if name in ("attempt", "variant") else "right")

    for each in exploration.attempts:
        state = "adopted" if each is chosen else "best" if each is best else each.status
        style = {"adopted": "bold green", "best": "green", "failed": "red"}.get(state, "")
        table.add_row(
            Text(each.attempt_id),
            Text(_variant_text(each.variant)),
            Text(state, style),
            "" if each.score is None else f"{each.score:g}",
            f"${each.cost:.4f}",
            "" if each.duration_ms is None else span(each.duration_ms / 1000),
            "" if each.files is None else str(each.files),
            "" if each.added is None else f"+{each.added} -{each.removed}",
        )

    return table


def _variant_text(variant: Variant) -> str:
    """Return a few words about what an attempt does differently."""
    if variant.name is not None:
        return one_line(variant.name)

    words = [variant.model or ""]
    if isinstance(variant.agent, str):
        words.append(variant.agent)

    if variant.prompt_text is not None:
        first = one_line(variant.prompt_text.strip())
        words.append(f"“{first[:24]}{'…' if len(first) > 24 else ''}”")

    words += [f"{name}={one_line(value)[:12]}" for name, value in variant.variables.items()]
    return " ".join(filter(None, words)) or "as the hank says"


# --- compare and adopt ----------------------------------------------------------------------------


@click.command()
@click.argument("a", metavar="ATTEMPT")
@click.argument("b", metavar="[OTHER]", required=False)
@execution_option
@click.option("--path", "paths", multiple=True, help="Only this file or directory. Repeatable.")
@click.option("--patch", "-p", is_flag=True, help="Print unified diffs.")
@json_option
def compare(
    a: str,
    b: str | None,
    execution: Path | None,
    paths: tuple[str, ...],
    patch: bool,
    as_json: bool,
) -> None:
    """Compare the results of two attempts, or of one with the files it began with.

    \b
    hankweave compare 1f2e3d-1
    hankweave compare 1f2e3d-1 1f2e3d-2 --patch
    """
    root = root_of(execution)
    state = run_read_only(root, lambda calls: calls.send(GetState()))
    try:
        exploration, first = attempt_named(state, a, "")
        old, new = exploration.checkpoint_sha, result_of(first, "")
        if b is not None:
            old, new = new, result_of(attempt_named(state, b, "")[1], "")
    except Refused as refused:
        raise Stop(refused.message, ExitCode.FAILED, hint=refused.hint, code=refused.code) from None

    page = run_read_only(root, lambda calls: whole_diff(calls, old, new, paths or None, patch))
    if as_json:
        print_json(page)
    elif patch:
        pictures.print_patches(page)
    else:
        pictures.draw_stat(page)


@click.command()
@click.argument("attempt")
@execution_option
@click.option("--path", "paths", multiple=True, help="Only this file or directory. Repeatable.")
@click.option("--stop", is_flag=True, help="Stop a running codon first.")
@click.option(
    "--keep-edits", is_flag=True, help="Keep files that a person changed after an agent did."
)
@click.option(
    "--merge",
    is_flag=True,
    help="Merge the changes of the attempt into the present files; the plan stays as it is.",
)
@click.option(
    "--ours",
    "on_conflict",
    flag_value="ours",
    help="With --merge: keep the present version of conflicting files.",
)
@click.option(
    "--theirs",
    "on_conflict",
    flag_value="theirs",
    help="With --merge: take the version of the attempt of conflicting files.",
)
@click.option(
    "--conflicts",
    "conflicts_in",
    type=click.Path(path_type=Path),
    help="With --merge: new directory for the versions of conflicting files, with markers.",
)
@click.option("--preview", is_flag=True, help="Show what would change.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def adopt(
    attempt: str,
    execution: Path | None,
    paths: tuple[str, ...],
    stop: bool,
    keep_edits: bool,
    merge: bool,
    on_conflict: Literal["ours", "theirs"] | None,
    conflicts_in: Path | None,
    preview: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Adopt the result of ATTEMPT as that of the execution.

    The files, the conversation and the place in the plan become those of the attempt. What is
    replaced is saved in a safety checkpoint first, and `hankweave undo` restores it. With --path,
    only these files are adopted, and the plan stays where it is. With --merge, the changes of the
    attempt are merged with what has changed here since it began; conflicts are listed, and nothing
    is changed until you resolve them.

    \b
    hankweave adopt 1f2e3d-2
    hankweave adopt 1f2e3d-2 --path src -y
    hankweave adopt 1f2e3d-2 --merge --conflicts /tmp/conflicts
    """
    if not merge and (on_conflict is not None or conflicts_in is not None):
        raise click.UsageError("--ours, --theirs and --conflicts require --merge.")

    if merge and keep_edits:
        raise click.UsageError("--merge keeps edits; --keep-edits does not go with it.")

    root = root_of(execution) if preview else root_to_change(execution)
    on_running: OnRunning = "stop" if stop else "refuse"
    fields: dict[str, Any] = {
        "attempt_id": attempt,
        "paths": paths or None,
        "on_running": on_running,
        "keep_edits": keep_edits,
        "merge": merge,
        "on_conflict": on_conflict or "ask",
        "conflicts_in": None if conflicts_in is None else str(conflicts_in.absolute()),
    }

    def asked(*, only_preview: bool) -> RollbackReport:
        sent = ExplorationAdopt(**fields, preview=only_preview)
        if only_preview:
            with waiting(None if as_json else "Previewing") as report_progress:
                if merge:  # A server would keep a checkpoint of the present files.
                    return run_on_files(root, lambda calls: calls.send(sent))

                return run_read_only(root, lambda calls: calls.send(sent), report_progress)

        return ask(root, lambda client: client.send(sent), None if as_json else "Adopting")

    if not preview:
        require_consent(yes=yes or as_json, otherwise="--preview shows what would change.")

    if preview or not (yes or as_json):
        report = asked(only_preview=True)
        if preview and as_json:
            print_json(report)
            return

        draw_report(report, is_preview=True)
        if preview:
            return

        confirm("Adopt this attempt?")

    done = asked(only_preview=False)
    if as_json:
        print_json(done)
    else:
        draw_report(done, is_preview=False, reverse=command("undo", root))

    end_with_exceptions(done)


@click.command()
@click.argument("names", metavar="EXPLORATION|ATTEMPT...", nargs=-1, required=True)
@execution_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def discard(names: Sequence[str], execution: Path | None, yes: bool, as_json: bool) -> None:
    """End attempts, or all of an exploration, and remove their executions.

    Results stay as checkpoints of this execution, and can still be compared and adopted, until a
    `hankweave gc` with a limit prunes them.

    \b
    hankweave discard 1f2e3d
    """
    root = root_to_change(execution)
    require_consent(yes=yes or as_json)
    if not (yes or as_json):
        confirm(f"Discard {', '.join(names)}?")

    for name in names:
        exploration, hyphen, _ = name.partition("-")
        sent = ExplorationDiscard(exploration_id=exploration, attempt_id=name if hyphen else None)
        left = ask(root, lambda client, sent=sent: client.send(sent), None)  # type: ignore[misc]
        if as_json:
            print_json(left)
        else:
            click.echo(f"discarded {name}")


COMMANDS = (explore, attempts, compare, adopt, discard)
