"""`hankweave show`, `diff`, `replay` and `runs`: read-only views of the history.

They ask the server if one runs and read the files otherwise, with the same result.
"""

from __future__ import annotations

import base64
import codecs
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from hankweave_client.calls import Calls
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    MAX_RANGE,
    CheckpointDiff,
    CheckpointReadFile,
    GetState,
    ReplayView,
)
from hankweave_protocol.events import ExecutionBranched, ExecutionOrigin
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import DiffPage, FileRange, PastView
from hankweave_protocol.state import State
from hankweave_server.cli.checkpoints import pages_of_checkpoints
from hankweave_server.cli.output import pictures
from hankweave_server.cli.output.event_lines import journal_line
from hankweave_server.cli.output.text import Days, fitted
from hankweave_server.cli.remote import (
    execution_option,
    json_option,
    print_json,
    root_of,
)
from hankweave_server.cli.shared import completions
from hankweave_server.domain.timelines import RunLine, timelines
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.server_session import run_read_only
from hankweave_server.paths import Layout
from hankweave_server.plain_text import harmless
from hankweave_server.worktree.data_source import layout_of
from hankweave_server.worktree.names import shown

PAGE = 5_000
"""Journal lines read at a time: a few megabytes."""


class _WithPaths(click.Command):
    """A command that takes paths after `--`, as git does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, paths = args[:at], args[at + 1 :]
            ctx.meta[_PATHS] = tuple(shown(os.fsencode(path)) for path in paths)

        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


_PATHS = "hankweave.paths"


def _chosen_paths() -> tuple[str, ...] | None:
    paths: tuple[str, ...] = click.get_current_context().meta.get(_PATHS, ())
    return paths or None


# --- show -----------------------------------------------------------------------------------------


@click.command()
@click.argument("target", metavar="SHA[:PATH]", shell_complete=completions.checkpoints)
@execution_option
@json_option
def show(target: str, execution: Path | None, as_json: bool) -> None:
    """Show checkpoint SHA and its changes, or one of its files.

    SHA may be abbreviated. With SHA:PATH, the file is printed byte for byte; on a terminal, its
    control characters are escaped.

    \b
    hankweave show 6dc2daae
    hankweave show 6dc2daae:src/main.py > main-as-it-was.py
    """
    root = root_of(execution)
    sha, colon, path = target.partition(":")
    if colon and path and not as_json:
        if not run_read_only(root, lambda calls: _copy_out(calls, sha, shown(os.fsencode(path)))):
            raise BrokenPipeError
    elif colon and path:
        print_json(
            run_read_only(
                root,
                lambda calls: calls.send(
                    CheckpointReadFile(checkpoint_sha=sha, path=shown(os.fsencode(path)))
                ),
            )
        )
    elif colon:
        _print_view(run_read_only(root, lambda calls: _whole_view(calls, sha, None, None)), as_json)
    else:
        _show_checkpoint(root, sha, as_json)


async def _copy_out(calls: Calls, sha: str, path: str) -> bool:
    """Write a file to stdout, range by range; return False if the reader closed the pipe."""
    offset: int | None = 0
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    is_terminal = sys.stdout.isatty()
    try:
        while offset is not None:
            found = await calls.send(
                CheckpointReadFile(checkpoint_sha=sha, path=path, offset=offset, length=MAX_RANGE)
            )
            data, offset = _bytes_of(found), found.next_offset
            if is_terminal:
                text = harmless(decoder.decode(data, final=offset is None))
                data = text.encode(sys.stdout.encoding, "backslashreplace")

            sys.stdout.buffer.write(data)

        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The caller would take a BrokenPipeError for a lost connection to the server.
        return False

    return True


def _bytes_of(found: FileRange) -> bytes:
    text = found.content
    return text.encode() if found.encoding == "utf-8" else base64.b64decode(text)


def _show_checkpoint(root: Path, sha: str, as_json: bool) -> None:
    async def work(calls: Calls) -> tuple[CheckpointRecord | None, PastView]:
        view = await calls.send(ReplayView(checkpoint_sha=sha, compare=("previous",), limit=0))
        async for page in pages_of_checkpoints(calls):
            for record in page.checkpoints:
                if view.coordinate is not None and record.sha == view.coordinate.checkpoint_sha:
                    return record, view

        return None, view

    record, view = run_read_only(root, work)
    if as_json:
        print_json({"checkpoint": record, "previous": view.previous, "stats": view.stats})
    else:
        pictures.draw_checkpoint(record, view)


# --- diff -----------------------------------------------------------------------------------------


@click.command(cls=_WithPaths)
@click.argument("a", shell_complete=completions.checkpoints)
@click.argument("b", required=False, shell_complete=completions.checkpoints)
@execution_option
@click.option("--patch", "-p", is_flag=True, help="Print unified diffs.")
@click.option("--stat", is_flag=True, help="Print the changed files and line counts (default).")
@json_option
def diff(
    a: str, b: str | None, execution: Path | None, patch: bool, stat: bool, as_json: bool
) -> None:
    """Compare checkpoints A and B, or A and the current work tree.

    \b
    hankweave diff 6dc2daae
    hankweave diff 6dc2daae d3bcdb65 --patch -- notes src/main.py
    """
    if patch and stat:
        raise click.UsageError("--patch and --stat exclude each other.")

    paths = _chosen_paths()
    page = run_read_only(root_of(execution), lambda calls: whole_diff(calls, a, b, paths, patch))
    if as_json:
        print_json(page)
    elif patch:
        pictures.print_patches(page)
    else:
        pictures.draw_sides(page)
        pictures.draw_stat(page)


async def whole_diff(
    calls: Calls, a: str, b: str | None, paths: tuple[str, ...] | None, patch: bool
) -> DiffPage:
    """Compare two checkpoints, or one with the work tree; return all files in one page."""
    page = whole = await calls.send(CheckpointDiff(from_sha=a, to_sha=b, paths=paths, patch=patch))
    while page.cursor is not None:
        page = await calls.send(
            CheckpointDiff(from_sha=a, to_sha=b, paths=paths, patch=patch, cursor=page.cursor)
        )
        whole = msgspec.structs.replace(whole, files=(*whole.files, *page.files))

    return msgspec.structs.replace(whole, cursor=None)


# --- replay ---------------------------------------------------------------------------------------


@click.command(cls=_WithPaths)
@click.argument("sha", required=False, shell_complete=completions.checkpoints)
@execution_option
@click.option("--seq", type=click.IntRange(min=0), help="The moment after this event.")
@click.option("--tree", is_flag=True, help="List the files.")
@click.option("--state", is_flag=True, help="Print the state, as in state.json.")
@click.option("--events", is_flag=True, help="Print the run's events up to that moment.")
@json_option
def replay(
    sha: str | None,
    execution: Path | None,
    seq: int | None,
    tree: bool,
    state: bool,
    events: bool,
    as_json: bool,
) -> None:
    """Show a past moment, by checkpoint SHA or event --seq.

    \b
    hankweave replay 6dc2daae
    hankweave replay --seq 117 --tree -- notes
    """
    if (sha is None) == (seq is None):
        raise click.UsageError("Name one moment: a SHA, or --seq.")

    if tree + state + events > 1:
        raise click.UsageError("--tree, --state and --events exclude each other.")

    root, paths = root_of(execution), _chosen_paths()
    if tree or as_json:
        view = run_read_only(root, lambda calls: _whole_view(calls, sha, seq, paths))
    else:
        view = run_read_only(
            root,
            lambda calls: calls.send(ReplayView(checkpoint_sha=sha, seq=seq, paths=paths, limit=0)),
        )

    if events:
        _print_events(layout_of(root), view, as_json)
    elif state:
        print_json(view.state)
    elif tree:
        _print_view(view, as_json)
    elif as_json:
        print_json(view)
    else:
        pictures.draw_moment(view)


async def _whole_view(
    calls: Calls, sha: str | None, seq: int | None, paths: tuple[str, ...] | None
) -> PastView:
    page = whole = await calls.send(ReplayView(checkpoint_sha=sha, seq=seq, paths=paths))
    while page.cursor is not None:
        page = await calls.send(
            ReplayView(checkpoint_sha=sha, seq=seq, paths=paths, cursor=page.cursor)
        )
        whole = msgspec.structs.replace(whole, tree=(*whole.tree, *page.tree))

    return msgspec.structs.replace(whole, cursor=None)


def _print_view(view: PastView, as_json: bool) -> None:
    if as_json:
        print_json(view.tree)
    else:
        pictures.print_tree(view)


def _print_events(layout: Layout, view: PastView, as_json: bool) -> None:
    """Print the events from the journal file, which is complete with and without a server."""
    if view.events is None:
        return

    days = Days()
    with searching_journal(layout) as journal:
        for since in range(view.events.from_seq - 1, view.events.to_seq, PAGE):
            for line in journal.read(since, min(PAGE, view.events.to_seq - since)):
                click.echo(line if as_json else fitted(journal_line(line, days.time)))


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputLines:
    """All runs of an execution, and its relations to other executions."""

    runs: tuple[RunLine, ...]
    origin: ExecutionOrigin | None
    branches: tuple[ExecutionBranched, ...]


def lines_of(root: Path) -> OutputLines:
    """Read the runs and relations of an execution from its server or its files."""

    async def work(calls: Calls) -> tuple[State, list[CheckpointRecord]]:
        pages = [page async for page in pages_of_checkpoints(calls)]
        return await calls.send(GetState()), [
            record for page in pages for record in page.checkpoints
        ]

    state, newest_first = run_read_only(root, work)
    family = _family_in(layout_of(root))
    return OutputLines(
        timelines(state, reversed(newest_first)),
        next((each for each in family if isinstance(each, ExecutionOrigin)), None),
        tuple(each for each in family if isinstance(each, ExecutionBranched)),
    )


@click.command()
@execution_option
@json_option
def runs(execution: Path | None, as_json: bool) -> None:
    """Show the tree of runs with all their checkpoints.

    Abandoned runs are included.

    \b
    hankweave runs
    hankweave runs --json
    """
    found = lines_of(root_of(execution))
    if as_json:
        print_json({"origin": found.origin, "runs": found.runs, "branches": found.branches})
    else:
        pictures.draw_runs(found.origin, found.runs, found.branches)


def _family_in(layout: Layout) -> list[ExecutionOrigin | ExecutionBranched]:
    """Return the journal's events about other executions: the origin, and the branches."""
    kinds = (ExecutionOrigin, ExecutionBranched)
    with searching_journal(layout) as journal:
        words = of_types(kind.TYPE for kind in kinds)
        lines = [line for _, line in journal.backward(words)]

    events = (codec.decode_event(line).data for line in reversed(lines))
    return [data for data in events if isinstance(data, kinds)]


COMMANDS = (show, diff, replay, runs)
