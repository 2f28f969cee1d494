"""Remove a secret from an execution that has no server: `hankweave redact`.

The value is taken out of the journal, the state files, all logs and session files, and all
checkpoints. Nothing is changed in place. Everything that has to change is first written anew, below
`.hankweave/redaction/new`; then the old and the new exchange their places:

    stage      write new files and a new repository, verify and flush them; refuse here
    intent     write `redact.intent` durably: the list of what is exchanged
    exchange   each old file goes to `redaction/old`, then each new one takes its place
    pending    the intent says so; the execution can be used; the old files are the backup
    confirm    remove the backup, then the intent
    undo       exchange them back, if nothing was recorded since; then remove both

Each step is idempotent and looks at the disk alone, so after a crash `finish_interrupted`, which
every start calls, carries on: before the intent, what was staged is removed; after it, the phase
that the intent names is completed. No intent contains a value.

The exchange of many files is not atomic, but nothing reads them meanwhile: the lock is held, and a
start finishes it before it opens anything.

Shas change, because they are computed from content. The map from old to new ones stays in
`.hankweave/redactions`, so that an old sha still finds its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event, HistoryRedacted
from hankweave_protocol.ids import EventSeq
from hankweave_protocol.records import RedactIntent, RedactionRecord, ReplacedFile
from hankweave_protocol.state import State
from hankweave_server import fsutil
from hankweave_server.checkpoints.rewrite import (
    Rewrite,
    Rewritten,
    blobs_at,
    new_repository,
    renamed_in,
    replaced,
)
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.ledger.writer import LedgerFailed
from hankweave_server.local.takeover import (
    disk_stop,
    open_engine,
    open_ledger,
    refuse_moved_store,
)
from hankweave_server.local.targeting import start_line
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import Redactor
from hankweave_server.runtime_lock.held import acquire

_BLOCK = 16 << 20
"""Bytes of a text that are read at a time; a block ends with a line."""

_SHA256 = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_UNTOUCHED = frozenset({"runtime.lock", "runtime.lock.guard", "reserve", "redact.intent"})

Phase = Literal["exchanging", "pending", "confirming", "undoing"]


@dataclass(frozen=True, slots=True)
class RedactionRequest:
    """The values and files to be removed from an execution."""

    by: Redactor
    names: tuple[str, ...]
    """Names of rules, variables or paths, which the record says were removed."""
    paths: tuple[bytes, ...] = ()
    """Files whose whole content is removed from all checkpoints."""
    in_work_tree: bool = False
    """Replace it in the files of the work tree and of the rig archive, too."""


@dataclass(slots=True)
class Survey:
    """Where the secret is."""

    events: int = 0
    files: list[str] = field(default_factory=list)
    """Files of the state directory, relative to the execution."""
    work_files: list[str] = field(default_factory=list)
    """Files of the work tree and of the rig archive."""
    work_links: list[str] = field(default_factory=list)
    """Symbolic links there whose target has it."""
    work_names: list[str] = field(default_factory=list)
    """Files, folders and links there whose name has it."""
    blobs: int = 0
    """Different contents in checkpoints."""
    checkpoints: int = 0
    """Checkpoints that hold it."""
    rewritten: int = 0
    """Checkpoints whose sha changes: those, and later ones."""

    @property
    def is_empty(self) -> bool:
        found = (self.events, self.files, self.work_files, self.blobs, self.checkpoints)
        return not (any(found) or self.rewritten)


@dataclass(slots=True)
class LeftInWorkTree:
    """Where the work tree and the rig archive still have the secret; all paths without it.

    Links and names have the number of their inode, by which `find -inum` finds them.
    """

    files: list[str] = field(default_factory=list)
    """Files whose content has it."""
    links: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@contextlib.contextmanager
def owned(layout: Layout, clock: Clock) -> Iterator[RedactIntent | None]:
    """Own a directory without a server; yield the redaction that waits to be confirmed, if any.

    Raises LockHeld while a server runs, and Stop if the system refuses what has to be done.
    """
    try:
        refuse_moved_store(layout)
        held = acquire(layout, clock)
        try:
            finish_interrupted(layout)
            yield standing(layout)
        finally:
            held.release()
    except BrokenPipeError:
        raise  # Of the terminal.
    except OSError as error:
        raise Stop(
            f"{fsutil.described(error, layout.root)}.",
            ExitCode.IO_ERROR,
            hint=f"{fsutil.next_step(error)} What was begun is completed or removed by the next "
            "`hankweave redact` or start.",
        ) from None


def settle(layout: Layout, clock: Clock) -> None:
    """Complete what the last server left in its log and its journal; raise Stop if a start must."""
    for path in (
        layout.rollback_intent,
        layout.archive_intent,
        layout.prune_intent,
        layout.branch_intent,
        layout.set_aside_intent,
    ):
        if path.exists():
            raise Stop(
                f"An operation was interrupted: {path.name} is still there.",
                ExitCode.UNAVAILABLE,
                hint=f"Nothing was changed. `{start_line(layout.root)}` completes it; stop the "
                "server then, and try again.",
            )

    if layout.wal.exists():  # It exists while a server runs, or after one was killed.
        try:
            anyio.run(_opened_and_closed, layout, clock)
        except (LedgerFailed, InsufficientSpace, ShadowRepositoryError) as failure:
            raise disk_stop(failure, layout.root) from None


async def _opened_and_closed(layout: Layout, clock: Clock) -> None:
    engine = await open_engine(layout)
    try:
        await (await open_ledger(layout, clock, engine)).aclose()
    finally:
        engine.close()


def standing(layout: Layout) -> RedactIntent | None:
    """Return the intent of a redaction that is not confirmed or undone; None if there is none."""
    try:
        return codec.decode_value(RedactIntent, layout.redact_intent.read_bytes())
    except FileNotFoundError:
        return None


# --- search ---------------------------------------------------------------------------------------


def survey(layout: Layout, request: RedactionRequest) -> Survey:
    """Return what would be changed; only reads. Raises Stop for a damaged store."""
    found = Survey()
    with _repository(layout) as repo:
        done = _decided(Rewrite(repo, request.by, erased=blobs_at(repo, request.paths)))

    _count(found, done)
    for path in _state_files(layout):
        if path != layout.journal and any(map(request.by.is_needed, _blocks(path))):
            found.files.append(_shown(layout, path))

    if layout.journal.exists():
        lines = (line for block in _blocks(layout.journal) for line in block.splitlines())
        found.events = sum(map(request.by.is_needed, lines))

    left = left_in_work_tree(layout, request)
    found.work_files, found.work_links, found.work_names = left.files, left.links, left.names
    return found


def left_in_work_tree(layout: Layout, request: RedactionRequest) -> LeftInWorkTree:
    """Return what the next checkpoint would have again."""
    by, left = request.by, LeftInWorkTree()

    def has(data: bytes) -> bool:
        return by.data(data) != data

    for top, path in _work_paths(layout):
        shown = _without(by, _shown(layout, path))
        below = os.fsencode(path.relative_to(top))
        with contextlib.suppress(OSError):  # It has gone meanwhile, or cannot be read.
            found = path.lstat()
            above, _, name = below.rpartition(b"/")
            if has(name) or (has(below) and not has(above)):
                left.names.append(f"{shown} (inode {found.st_ino})")

            if stat.S_ISLNK(found.st_mode) and has(os.fsencode(path.readlink())):
                left.links.append(f"{shown} (inode {found.st_ino})")

            if any(map(by.is_needed, (each for one in _regular(path) for each in _blocks(one)))):
                left.files.append(shown)

    return left


def _without(by: Redactor, path: str) -> str:
    return os.fsdecode(by.data(os.fsencode(path)))


def _count(found: Survey, done: Rewritten) -> None:
    found.blobs, found.checkpoints = len(done.contents), len(done.holders)
    found.rewritten = len(done.commits)


@contextlib.contextmanager
def _repository(layout: Layout) -> Iterator[ShadowRepo]:
    try:
        with contextlib.closing(ShadowRepo(layout.shadow_repository)) as repo:
            yield repo
    except ShadowRepositoryError as error:
        if (problem := fsutil.os_error_in(error)) is not None:
            raise problem from None  # The store is not damaged.

        raise _damaged(str(error)) from None


def _decided(rewrite: Rewrite) -> Rewritten:
    try:
        return rewrite.decide()
    except (KeyError, ValueError) as error:
        raise _damaged(str(error)) from None


def _damaged(what: str) -> Stop:
    return Stop(
        f"The shadow repository cannot be read: {what}.",
        ExitCode.BAD_DATA,
        hint="Nothing was changed. `hankweave fsck --repair` restores what can be found.",
    )


def _state_files(layout: Layout) -> Iterator[Path]:
    """Yield the files of the state directory; those of the repository are not among them."""
    for place, below, names in os.walk(layout.state_directory):
        folder = Path(place)
        apart = (layout.shadow_repository, layout.redaction, layout.redactions)
        below[:] = sorted(name for name in below if folder / name not in apart)
        for name in sorted(names):
            if name not in _UNTOUCHED and folder / name != layout.scan_cache:
                yield from _regular(folder / name)


def _work_files(layout: Layout) -> Iterator[Path]:
    for _, path in _work_paths(layout):
        yield from _regular(path)


def _work_paths(layout: Layout) -> Iterator[tuple[Path, Path]]:
    """Yield what is in the work tree and the rig archive, each with the one it is in."""
    for top in dict.fromkeys((layout.work_tree, layout.rig_archive)):
        for place, below, names in os.walk(top):
            apart = (layout.state_directory, Path(top, ".git"))
            below[:] = sorted(name for name in below if Path(place, name) not in apart)
            yield from ((top, Path(place, name)) for name in sorted((*below, *names)))


def _regular(path: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode) and os.access(path, os.R_OK):
            yield path


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's content; a long text in blocks that end with a line."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block + file.readline()


def _shown(layout: Layout, path: Path) -> str:
    """Return a path as it is shown and recorded: relative to the root if it lies there."""
    return str(path.relative_to(layout.root) if path.is_relative_to(layout.root) else path)


# --- change ---------------------------------------------------------------------------------------


class Redaction:
    """One redaction, by the owner of the directory."""

    def __init__(self, layout: Layout, request: RedactionRequest, clock: Clock) -> None:
        self._layout = layout
        self._request = request
        self._clock = clock
        self._operation_id = uuid.uuid4().hex
        self._new = layout.redaction / "new"
        self._entries: list[ReplacedFile] = []
        self._survey = Survey()

    def perform(self) -> RedactionRecord | None:
        """Replace the secret everywhere; None if it is nowhere.

        Raises Stop with nothing changed, and OSError: what was begun is then finished or removed by
        the next start.
        """
        layout = self._layout
        discard(layout)
        fsutil.make_private_directory(self._new)
        done = self._stage_repository()
        self._stage_files(done)
        if self._survey.is_empty:
            discard(layout)
            return None

        record = self._stage_record(done)
        self._stage_journal(done, record)
        _verify(self._new, self._entries, layout)
        fsutil.sync_filesystem(self._new)
        size = (self._new / self._number_of(layout.journal)).stat().st_size
        intent = RedactIntent(
            operation_id=self._operation_id,
            phase="exchanging",
            files=tuple(self._entries),
            journal_bytes=size,
        )
        _write(layout, intent)
        _exchange(layout, intent)
        return record

    # --- stage ------------------------------------------------------------------------------------

    def _place(self, path: Path, *, replaces: bool = True, is_new: bool = True) -> Path:
        """Note a file that is exchanged, and return where its new content goes.

        Raises Stop for one that could not be exchanged later.
        """
        if path.parent.exists() and not self._can_rename_in(path.parent):
            discard(self._layout)
            raise Stop(
                f"{path} cannot be replaced: its folder is read-only, or on another file system.",
                ExitCode.FAILED,
                hint="Nothing was changed. Make the folder writable, or leave out --work-tree.",
            )

        name = _shown(self._layout, path)
        self._entries.append(ReplacedFile(path=name, replaces=replaces, is_replaced=is_new))
        return self._new / str(len(self._entries) - 1)

    def _can_rename_in(self, folder: Path) -> bool:
        is_here = folder.stat().st_dev == self._new.stat().st_dev
        return is_here and os.access(folder, os.W_OK | os.X_OK)

    def _number_of(self, path: Path) -> str:
        name = _shown(self._layout, path)
        return str(next(i for i, entry in enumerate(self._entries) if entry.path == name))

    def _stage_repository(self) -> Rewritten:
        layout = self._layout
        with _repository(layout) as repo:
            folder = self._new / "repository"
            staging = new_repository(folder)
            try:
                erased = blobs_at(repo, self._request.paths)
                rewrite = Rewrite(repo, self._request.by, erased=erased, add=staging.add)
                done = _decided(rewrite)
                _count(self._survey, done)
                if not done.objects:
                    return done

                rewrite.write(folder, staging)
            finally:
                staging.abandon()

        with contextlib.closing(ShadowRepo(folder)) as new:
            head = new.head()
            commit = None if head is None else new.commit(head)
            if commit is not None:
                new.write_index(commit.tree)

        folder.rename(self._place(layout.shadow_repository))
        if layout.scan_cache.exists():
            self._place(layout.scan_cache, is_new=False)  # It names blobs that are gone.

        return done

    def _stage_files(self, done: Rewritten) -> None:
        layout = self._layout
        for path in _state_files(layout):
            if path != layout.journal and self._stage(path, done):
                self._survey.files.append(_shown(layout, path))

        if self._request.in_work_tree:
            for path in _work_files(layout):
                if self._stage(path, None):
                    self._survey.work_files.append(_shown(layout, path))

        lines = (line for block in _blocks(layout.journal) for line in block.splitlines())
        self._survey.events = sum(map(self._request.by.is_needed, lines))

    def _stage(self, path: Path, done: Rewritten | None) -> bool:
        """Write a file anew if it has to change; return whether it did."""
        if not any(self._cleaned(block, done) != block for block in _blocks(path)):
            return False

        place = self._place(path)
        with place.open("wb") as file:
            file.writelines(self._cleaned(block, done) for block in _blocks(path))

        shutil.copystat(path, place)
        return True

    def _cleaned(self, block: bytes, done: Rewritten | None) -> bytes:
        """Return a block of a file without the secret; `done` has the shas to replace."""
        clean = replaced(block, self._request.by)
        if done is None or not done.objects or b"\0" in block:
            return clean

        clean = renamed_in(clean, done.names)
        return _SHA256.sub(lambda found: done.contents.get(found[0], found[0]), clean)

    def _stage_record(self, done: Rewritten) -> RedactionRecord:
        record = RedactionRecord(
            operation_id=self._operation_id,
            timestamp=instants.to_text(self._clock.now()),
            removed=self._request.names,
            events=self._survey.events,
            files=tuple(self._survey.files),
            contents=self._survey.blobs,
            checkpoints=self._survey.checkpoints,
            renamed={str(old): str(new) for old, new in done.commits.items()},
        )
        path = self._layout.redactions / f"{self._operation_id}.json"
        fsutil.make_private_directory(path.parent)
        content = msgspec.json.format(codec.encode(record), indent=1) + b"\n"
        fsutil.write_private(self._place(path, replaces=False), content, durable=False)
        return record

    def _stage_journal(self, done: Rewritten, record: RedactionRecord) -> None:
        """Write the journal anew; its last line is about this redaction."""
        path = self._layout.journal
        last = b""
        with self._place(path).open("wb") as file:
            for block in _blocks(path):
                clean = self._cleaned(block, done)
                file.write(clean)
                last = clean[clean.rfind(b"\n", 0, len(clean) - 1) + 1 :]

            before = codec.decode_value(Event, last)
            data = HistoryRedacted(
                operation_id=record.operation_id,
                removed=record.removed,
                events=record.events,
                files=len(record.files),
                contents=record.contents,
                checkpoints=record.checkpoints,
                renamed=len(record.renamed),
            )
            event = Event(
                id=str(uuid.uuid4()),
                seq=EventSeq(before.seq + 1),
                timestamp=record.timestamp,
                type=data.TYPE,
                data=data,
                run_id=before.run_id,
            )
            file.write(codec.encode(event) + b"\n")

        os.chmod(file.name, fsutil.PRIVATE_FILE)


def _verify(new: Path, entries: list[ReplacedFile], layout: Layout) -> None:
    """Raise Stop if the replacement would damage the journal or the state."""
    for number, entry in enumerate(entries):
        path, staged = layout.root / entry.path, new / str(number)
        try:
            if path == layout.journal:
                for block in _blocks(staged):
                    for line in block.splitlines():
                        codec.decode_value(Event, line)
            elif path in (layout.state, layout.state_backup):
                codec.decode_value(State, staged.read_bytes())
        except (msgspec.MsgspecError, Refused, ValueError) as error:
            discard(layout)
            raise Stop(
                f"The value cannot be removed: {entry.path} would not be readable without it.",
                ExitCode.USAGE,
                hint=f"Nothing was changed. It is a part of the format itself: {error}",
            ) from None


# --- exchange -------------------------------------------------------------------------------------


def _write(layout: Layout, intent: RedactIntent) -> None:
    fsutil.replace_durably(layout.redact_intent, codec.encode(intent))


def _at(layout: Layout, intent: RedactIntent) -> Iterator[tuple[ReplacedFile, Path, Path, Path]]:
    """Yield each entry, and the paths of the file itself, its backup and its new version."""
    for number, entry in enumerate(intent.files):
        old, new = (layout.redaction / kind / str(number) for kind in ("old", "new"))
        yield entry, layout.root / entry.path, old, new


def _flush(layout: Layout, intent: RedactIntent) -> None:
    folders = {(layout.root / entry.path).parent for entry in intent.files}
    ours = (layout.redaction / "old", layout.redaction / "new")
    # An undo that was killed at its end has removed them already.
    for folder in (*folders, *filter(Path.is_dir, ours)):
        fsutil.sync_directory(folder)


def _exchange(layout: Layout, intent: RedactIntent) -> None:
    """Put the new files in the place of the old ones, which become the backup; idempotent."""
    fsutil.make_private_directory(layout.redaction / "old")
    for entry, path, old, _ in _at(layout, intent):
        if entry.replaces and not os.path.lexists(old):
            path.rename(old)

    _flush(layout, intent)
    for _, path, _, new in _at(layout, intent):
        if os.path.lexists(new):
            new.rename(path)

    _flush(layout, intent)
    _write(layout, msgspec.structs.replace(intent, phase="pending"))


def _exchange_back(layout: Layout, intent: RedactIntent) -> None:
    """Put the old files back; idempotent. The new ones are removed."""
    for entry, path, old, new in _at(layout, intent):
        is_present = entry.is_replaced and not os.path.lexists(new)
        if is_present and (os.path.lexists(old) or not entry.replaces):
            with contextlib.suppress(FileNotFoundError):
                path.rename(new)

    _flush(layout, intent)
    for entry, path, old, _ in _at(layout, intent):
        if os.path.lexists(old):
            if not entry.is_replaced:
                path.unlink(missing_ok=True)  # A cache: it may have been written again.

            old.rename(path)

    _flush(layout, intent)
    _forget(layout)
    with contextlib.suppress(OSError):
        layout.redactions.rmdir()  # Empty, unless there were others.


def _forget(layout: Layout) -> None:
    """Remove the backup, and then the intent."""
    discard(layout)
    fsutil.remove_durably(layout.redact_intent)


def discard(layout: Layout) -> None:
    """Remove staged files or the backup, durably."""
    if layout.redaction.exists():
        shutil.rmtree(layout.redaction)
        fsutil.sync_directory(layout.state_directory)


def confirm(layout: Layout, intent: RedactIntent) -> None:
    """Remove the backup for good."""
    _write(layout, msgspec.structs.replace(intent, phase="confirming"))
    _forget(layout)


def undo(layout: Layout, intent: RedactIntent) -> None:
    """Restore everything as it was; raise Stop if the execution was used since."""
    if layout.journal.stat().st_size != intent.journal_bytes:
        raise Stop(
            "The redaction cannot be undone: the execution has continued since.",
            ExitCode.FAILED,
            hint="`hankweave redact --confirm` removes the backup. What was removed is still in "
            f"{layout.redaction / 'old'} until then.",
        )

    _write(layout, msgspec.structs.replace(intent, phase="undoing"))
    _exchange_back(layout, intent)


def finish_interrupted(layout: Layout) -> Phase | None:
    """Finish what a crash interrupted; return the phase that was found, None if there was none.

    Only the owner of the directory may call this, before it opens journal or repository.
    """
    intent = standing(layout)
    if intent is None:
        discard(layout)
        return None

    match intent.phase:
        case "exchanging":
            _exchange(layout, intent)
        case "undoing":
            _exchange_back(layout, intent)
        case "confirming":
            _forget(layout)
        case "pending":
            pass

    return intent.phase
