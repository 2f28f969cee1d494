"""Do what follows a codon's success: export its output files, then archive files.

Before such a codon begins, `aftermath.intent` names it; it is removed when everything is done. So
after a crash at any moment following the success, and after a failure, the missing work is done
before the next codon begins. After a rollback to a codon's end its files are archived again: the
next codon finds the work tree it found before.

Exporting runs the codon's `beforeCopy` commands, then copies its files, as in Hankweave.

If the hank asks for it, labelled checkpoints also become commits on the project's own branch. They
are made in addition to the checkpoints in the shadow repository, and after them: whatever the
user's repository refuses, the recorded checkpoint is there to go back to.

An export copies each file completely or not at all. Only regular files are copied, and no link is
followed on either side: the target of an agent's
link is not part of the export, and a link in the destination would redirect the copy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import warnings
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ErrorEvent, FileSource, Info, RigOutput
from hankweave_protocol.hank import Loop, OutputFiles, RigCommand, RigCopy
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import AftermathIntent, ArchivePlace
from hankweave_protocol.state import (
    CompletedCodon,
    PlanEntry,
    TerminalCodon,
)
from hankweave_server import fsutil
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.domain import plan as plans
from hankweave_server.domain.execution_thread import (
    end_checkpoint,
    is_done,
    plan_entry,
    restored_checkpoint,
    thread,
)
from hankweave_server.execution.archive import Archives, Archiving
from hankweave_server.execution.codon.confinement import command_fence
from hankweave_server.execution.codon.environment import command_environment
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.fsutil import is_full
from hankweave_server.plain_text import counted
from hankweave_server.user_git.errors import CheckpointError, CheckpointWarning
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent, make_folders
from hankweave_server.worktree.names import AT_THE_TOP, shown
from hankweave_server.worktree.patterns import UnsupportedPattern, choose, is_regular, literally
from hankweave_server.worktree.rigs import RigError, run_rig_command

MOST_COPIES = 100
"""Number of alternative names tried when a file's own name is taken (Hankweave's limit)."""


class OutputNotCopied(Exception):
    """A file could not be copied; those before it were."""


def publish_outputs(
    work_tree: Path,
    at_the_top: frozenset[bytes],
    patterns: Iterable[str],
    directory: Path,
    *,
    overwrite: bool = True,
    now_ms: int = 0,
) -> tuple[bytes, ...]:
    """Copy the files that the patterns match, with the same relative paths; return when durable.

    With `overwrite`, existing files are replaced. Otherwise the copy becomes
    `name_<n>_<now_ms>.ext` beside the existing file, as in Hankweave, unless that file has the
    same content. Raises OutputNotCopied and UnsupportedPattern.
    """
    with closing(Descent(work_tree, at_the_top=at_the_top)) as descent:
        chosen = choose(descent, patterns)
        if chosen.failed:
            path, reason = next(iter(chosen.failed.items()))
            raise OutputNotCopied(f"{shown(path)}: {reason}")

        paths = tuple(path for path in chosen.files if is_regular(descent, path))
        for path in paths:
            try:
                _copy(descent, path, directory, None if overwrite else now_ms)
            except OSError as problem:
                raise OutputNotCopied(f"{shown(path)}: {problem.strerror}") from problem

        _sync(directory, paths)

    return paths


def _sync(directory: Path, paths: tuple[bytes, ...]) -> None:
    if not paths:
        return

    try:
        fsutil.sync_filesystem(directory)
    except OSError as problem:
        raise OutputNotCopied(f"{directory}: {problem.strerror}") from problem


def _copy(descent: Descent, path: bytes, directory: Path, beside_ms: int | None) -> None:
    """Copy one file; with `beside_ms`, replace no existing file."""
    *steps, name = path.split(b"/")
    temporary = f".hankweave-{secrets.token_hex(6)}"
    with ExitStack() as opened:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=descent.folder_of(path))
        source = opened.enter_context(open(descriptor, "rb"))
        directory.mkdir(parents=True, exist_ok=True)
        folder = make_folders(directory, steps, opened)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                mode = os.fstat(source.fileno()).st_mode
                os.fchmod(target.fileno(), stat.S_IMODE(mode) & 0o777)
                os.fdatasync(target.fileno())

            if beside_ms is not None:
                target_name = _free_name(folder, temporary, name, beside_ms)
            else:
                target_name = name

            if target_name is None:
                os.unlink(temporary, dir_fd=folder)
            else:
                os.rename(temporary, target_name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

            raise


def _free_name(folder: int, made: str, name: bytes, now_ms: int) -> bytes | None:
    """Return the first free name; None if an existing file has the same content."""
    stem, dot, ending = name.rpartition(b".")
    if not stem:
        stem, dot, ending = name, b"", b""

    candidates = (
        b"%b_%d_%d%b%b" % (stem, n, now_ms, dot, ending) for n in range(1, MOST_COPIES + 1)
    )
    for candidate in (name, *candidates):
        try:
            there = os.stat(candidate, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return candidate

        if stat.S_ISREG(there.st_mode) and _is_same(folder, made, candidate):
            return None

    raise FileExistsError(errno.EEXIST, f"there are already {MOST_COPIES} copies")


def _is_same(folder: int, one: str, other: bytes) -> bool:
    with (
        open(os.open(one, FILE_FLAGS, dir_fd=folder), "rb") as first,
        open(os.open(other, FILE_FLAGS, dir_fd=folder), "rb") as second,
    ):
        if os.fstat(first.fileno()).st_size != os.fstat(second.fileno()).st_size:
            return False

        while block := first.read(1 << 20):
            if block != second.read(1 << 20):
                return False

    return True


class OutputFailed(Exception):
    """Files that could not be exported, and why: a sentence for people."""


class CodonOutputs:
    """The exporter of completed codons' output files."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._scope: anyio.CancelScope | None = None

    def are_wanted(self, entry: PlanEntry) -> bool:
        return bool(entry.codon.output_files) and self._ctx.output_directory is not None

    def interrupt(self) -> None:
        """End the command that runs, if one does; its files are not exported then."""
        if self._scope is not None:
            self._scope.cancel()

    async def publish_outputs(
        self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon
    ) -> None:
        """Run the commands and copy the files; raise OutputFailed at the first that fails."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                for spec in entry.codon.output_files:
                    await self._prepare(run_id, entry, completed, spec)
                    await self._copy(run_id, entry, spec)
            finally:
                self._scope = None

        if scope.cancelled_caught:
            raise OutputFailed(f"Copying the output files of {entry.codon_id} was interrupted.")

    async def _prepare(
        self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon, spec: OutputFiles
    ) -> None:
        for index, command in enumerate(spec.before_copy):
            await self._run(run_id, entry, command, index)

        if spec.before_copy:
            await self._save(run_id, entry, completed)

    async def _run(self, run_id: RunId, entry: PlanEntry, item: RigCommand, index: int) -> None:
        async def post_line(stream: Literal["stdout", "stderr"], line: str) -> None:
            await self._ctx.ledger.post(
                RigOutput(
                    codon_id=entry.codon_id, stream=stream, line=line[:500], command_index=index
                ),
                run_id=run_id,
                codon_id=entry.codon_id,
            )

        fence = await command_fence(self._ctx, entry.codon)
        processes = self._ctx.layout.agent_processes
        subprocess_tasks = SubprocessTasks(run_id, entry.codon_id, processes, fence=fence)
        try:
            await run_rig_command(
                item.command.run,
                start=below_a_keeper(subprocess_tasks),
                cwd=self._ctx.layout.work_tree,
                env=command_environment(self._ctx.layout, entry.codon),
                timeout_seconds=item.command.timeout_seconds,
                on_line=post_line,
            )
        except RigError as error:
            sentence = f"Before copying the output files of {entry.codon_id}: {error}"
            if not item.allow_failure:
                raise OutputFailed(sentence) from error

            await self._warn(run_id, entry, sentence)

    async def _save(self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon) -> None:
        """Checkpoint what the commands changed: otherwise it would count as user edits."""
        ctx = self._ctx
        news = FileChangeReporter(ctx)
        found = await news.scan_and_report(FileSource(kind="codon-end"), run_id, entry.codon_id)
        if found.any:
            await ctx.checkpointer.take(
                "safety",
                run_id=run_id,
                codon=completed,
                codon_name="Before copying output files",
                patterns=ctx.patterns(),
                label=f"output files of {entry.codon_id} prepared",
            )

    async def _copy(self, run_id: RunId, entry: PlanEntry, spec: OutputFiles) -> None:
        directory, layout = self._ctx.output_directory, self._ctx.layout
        assert directory is not None, "are_wanted comes first"
        at_the_top = frozenset[bytes]() if layout.is_in_place else AT_THE_TOP
        copy = partial(
            publish_outputs,
            layout.work_tree,
            at_the_top,
            spec.copy,
            directory,
            overwrite=self._ctx.overwrite_output,
            now_ms=instants.epoch_ms(self._ctx.clock.now()),
        )
        try:
            paths = await anyio.to_thread.run_sync(copy)
        except (OutputNotCopied, UnsupportedPattern) as error:
            raise OutputFailed(f"Copying the output files of {entry.codon_id}: {error}") from error

        if not paths:
            wanted = ", ".join(spec.copy)
            await self._warn(
                run_id, entry, (f"{entry.codon_id} produced no output files: {wanted}.")
            )
            return

        files = counted(len(paths), "output file")
        await self._ctx.ledger.post(
            Info(message=f"Copied {files} of {entry.codon_id} to {directory}"),
            run_id=run_id,
            codon_id=entry.codon_id,
        )

    async def _warn(self, run_id: RunId, entry: PlanEntry, sentence: str) -> None:
        warning = ErrorEvent(
            message=sentence, fatal=False, codon=entry.codon_id, severity="warning"
        )
        await self._ctx.ledger.record(warning, run_id=run_id, codon_id=entry.codon_id)


class AftermathFailed(Exception):
    """The work after a success could not be done; the codon stays completed, the run fails."""


@dataclass(frozen=True, slots=True)
class Due:
    """The work still due for the newest codon of the thread."""

    entry: PlanEntry
    terminal: TerminalCodon
    with_outputs: bool
    """False if the files were exported and only archived files were brought back by a rollback."""


class PostCodon:
    """The work that follows a codon's success, as far as it is not done yet."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._archives = Archives(ctx)
        self._outputs = CodonOutputs(ctx)

    def interrupt(self) -> None:
        """End a command that prepares output files; the next start runs it again."""
        self._outputs.interrupt()

    async def expect(self, run_id: RunId, entry: PlanEntry) -> None:
        """Record durably, before a codon begins, that work will follow its success."""
        loop = self._loop_of(entry)
        leaves = bool(_patterns(entry)) or (loop is not None and bool(loop.archive_on_success))
        if not leaves and not self._outputs.are_wanted(entry):
            return

        intent = codec.encode(AftermathIntent(run_id=run_id, codon_id=entry.codon_id))
        path = self._ctx.layout.aftermath_intent
        await self._ctx.ledger.space.retry(
            lambda: anyio.to_thread.run_sync(fsutil.replace_durably, path, intent)
        )

    async def after_codon(
        self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon, *, outputs: bool = True
    ) -> None:
        """Export a codon's files, then archive; raise AftermathFailed."""
        if outputs and self._outputs.are_wanted(entry):
            try:
                await self._outputs.publish_outputs(run_id, entry, completed)
            except OutputFailed as error:
                raise AftermathFailed(str(error)) from error

        patterns, context = _patterns(entry), entry.loop_context
        if patterns:
            place = None if context is None else f"{context.loop_id}-{context.iteration}"
            name = entry.codon_id.replace("#", "-")
            await self._archive(
                Archiving(
                    run_id=run_id,
                    codon_id=entry.codon_id,
                    archived_for=entry.codon_id,
                    checkpoint=completed.completion_checkpoint,
                    folder=name if place is None else f"{place}/{name}",
                    patterns=patterns,
                    loop_context=_place_of(entry),
                )
            )

    async def after_loop(
        self, run_id: RunId, loop: Loop, entry: PlanEntry, terminal: TerminalCodon
    ) -> None:
        """Archive, once, what an ended loop leaves; raise AftermathFailed."""
        if loop.archive_on_success:
            await self._archive(
                Archiving(
                    run_id=run_id,
                    codon_id=entry.codon_id,
                    archived_for=loop.id,
                    checkpoint=end_checkpoint(terminal),
                    folder=f"{loop.id}-loop",
                    patterns=loop.archive_on_success,
                    loop_context=_place_of(entry),
                )
            )

    async def done(self) -> None:
        """Remove the intent: the work is done, or its codon did not succeed."""
        path = self._ctx.layout.aftermath_intent
        if await anyio.to_thread.run_sync(path.exists):
            await anyio.to_thread.run_sync(fsutil.remove_durably, path)

    async def due(self, upcoming: CodonId | None) -> Due | None:
        """Return the work due before a codon may begin; None before that very codon again."""
        state = self._ctx.state
        plan, entries = state.execution_plan, thread(state)
        if not entries:
            return None

        codon = entries[-1].codon
        entry = plan_entry(plan, codon.codon_id)
        if entry is None or codon.codon_id == upcoming or not is_done(codon, plan):
            return None

        assert isinstance(codon, TerminalCodon), "what is done ended"

        named = AftermathIntent(run_id=entries[-1].run_id, codon_id=codon.codon_id)
        is_expected = await anyio.to_thread.run_sync(self._expected) == named
        if not is_expected and restored_checkpoint(state) != end_checkpoint(codon):
            return None

        return Due(entry, codon, with_outputs=is_expected)

    async def catch_up(self, run_id: RunId, due: Due) -> None:
        """Do the work that is due; raise AftermathFailed."""
        if isinstance(due.terminal, CompletedCodon):
            await self.after_codon(run_id, due.entry, due.terminal, outputs=due.with_outputs)

        loop = self._loop_of(due.entry)
        if loop is not None and plans.is_loop_finished(loop, due.entry, due.terminal):
            await self.after_loop(run_id, loop, due.entry, due.terminal)

        await self.done()

    async def _archive(self, wanted: Archiving) -> None:
        try:
            await self._archives.archive(wanted)
        except (Refused, UnsupportedPattern, OSError) as error:
            if isinstance(error, OSError) and is_full(error):
                raise

            raise AftermathFailed(f"Archiving for {wanted.archived_for}: {error}") from error

    def _expected(self) -> AftermathIntent | None:
        try:
            data = self._ctx.layout.aftermath_intent.read_bytes()
            return codec.decode_value(AftermathIntent, data)
        except (FileNotFoundError, Refused):
            return None

    def _loop_of(self, entry: PlanEntry) -> Loop | None:
        return plans.loop_of(self._ctx.recorded.hank, entry)


def _patterns(entry: PlanEntry) -> tuple[str, ...]:
    """Return what a codon archives: what its rig copied, if marked so, and what it lists itself."""
    copies = (item for item in entry.codon.rig_setup if isinstance(item, RigCopy))
    rigs = (literally(item.copy.to) for item in copies if item.archive_on_success)
    return (*rigs, *entry.codon.archive_on_success)


def _place_of(entry: PlanEntry) -> ArchivePlace | None:
    context = entry.loop_context
    if context is None:
        return None

    return ArchivePlace(loop_id=context.loop_id, iteration=context.iteration)


PREFIX = "architect:checkpoint:"
"""Prefix of the labels that become commits in the user's repository."""


async def publish(ctx: ExecutionContext, record: CodonRecord, label: str | None) -> None:
    """Commit the work tree on its current branch; a refusal is reported and fails nothing."""
    overrides = ctx.hank.hank.overrides
    if overrides is None or overrides.checkpoint_repository != "workspace":
        return

    if label is None or not label.startswith(PREFIX):
        return

    # Newest first: the one that was just made.
    known = reversed(ctx.checkpointer.known.values())
    made = next((each.sha for each in known if each.label == label), None)
    commit = partial(_commit, ctx.layout.work_tree, label, made)
    try:
        sentences = await anyio.to_thread.run_sync(commit)
    except CheckpointError as error:
        message = f"{label} is not a commit on the project's branch: {error.message}"
        await record.append(
            ErrorEvent(
                message=" ".join(filter(None, (message, error.hint))),
                fatal=False,
                codon=record.entry.codon_id,
                severity="operation",
            )
        )
    else:
        await record.append(*(Info(message=sentence) for sentence in sentences))


def _commit(root: Path, label: str, checkpoint: str | None) -> list[str]:
    """Make the commit, if anything changed; return what was left out of it."""
    from hankweave_server.user_git.store import WorkspaceGit  # Rarely needed.

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CheckpointWarning)
        WorkspaceGit(root).commit(label, checkpoint=checkpoint)

    return [str(each.message) for each in caught]
