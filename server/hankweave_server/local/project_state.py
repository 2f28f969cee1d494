"""The state of a project, put in its place, identified and marked.

`settle` puts folders into place: a state outside of a project is at `private_folder_of(project)`,
or a link there leads to it. What is there of another project gets another name, and nothing is ever
removed. `record` is called under the lock of the state: it writes identity.json and the marker, and
notes outside of the project that there is a state in it, so that the next start can detect its
loss. A crash between two of these steps leaves what `locate` finds again, by the project's folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import HistoryFinding, HistoryIdentified
from hankweave_protocol.state_directory import (
    IDENTITY,
    MARKER,
    STATE_DIRECTORY,
    Identity,
    ProjectFolder,
    belongs,
    identity_in,
    marker_of,
    private_folder_of,
    private_projects,
    read_identity,
)
from hankweave_server import fsutil
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.project_history import (
    GIVEN_NAME,
    Attribution,
    LocatedHistory,
    adopting,
    has_past,
    note_of,
    noted,
)
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard


@dataclass(frozen=True, slots=True)
class SettledHistory:
    """The history of a project, in its place."""

    layout: Layout
    is_copy: bool = False
    note: HistoryIdentified | None = None
    """What there is to say about it."""


# --- in its place ---------------------------------------------------------------------------------


def settle(located: LocatedHistory) -> SettledHistory:
    """Put the state of a project into its place.

    Raises Stop if a server uses what has to move, or the disk refuses.
    """
    try:
        return _settled(located)
    except OSError as error:
        raise Stop(
            f"The history of {located.layout.root} cannot be put in its place: "
            f"{error.strerror or error}: {error.filename or located.target}",
            ExitCode.IO_ERROR,
            hint="Make that path writable, or name another directory with --state-dir.",
        ) from None


def _settled(located: LocatedHistory) -> SettledHistory:
    layout, decision, target = located.layout, located.decision, located.target
    root, place = layout.root, private_folder_of(layout.root)
    was = None if decision.state is None else decision.state.folder
    if target is None:  # In the project: what another one left outside does not disturb it.
        return SettledHistory(Layout(root, root), _is_copy(decision), _note(located, None))

    if located.adopts and was is not None:
        with _unused(was):
            pass

    aside = None
    if located.own is not None and located.own.folder == root:
        aside = place.with_name(f"{place.name}.{_identified(root, root)}")
        _move(root, aside)

    for folder in dict.fromkeys((place.resolve() if place.is_symlink() else place, target)):
        is_taken = (folder / STATE_DIRECTORY).exists() and (was is not None or folder != target)
        if folder != was and (is_taken or has_past(folder)):
            if was is None and has_past(folder) and _is_own(folder, root):
                raise _overtaken(folder)

            aside = _rename_aside(folder, place, root)

    # The link comes first: then the state is found before and after it moves.
    if target == place:
        if place.is_symlink():
            place.unlink()
    else:
        if was == place:
            was = _rename_aside(place, place, root)

        fsutil.make_private_directory(target)
        _link(place, target)

    if was is not None and was != target:
        _move(was, target)

    if decision.state is not None and decision.state.identity is not None:
        _drop_link(decision.state.identity)

    return SettledHistory(Layout(root, root, target), _is_copy(decision), _note(located, aside))


def _is_own(folder: Path, root: Path) -> bool:
    return belongs(identity_in(folder), marker_of(root), ProjectFolder.at(root))


def _is_copy(decision: Attribution) -> bool:
    return decision.finding == "copied"


def _overtaken(folder: Path) -> Stop:
    return Stop(
        f"Another start has changed {folder} in the meantime.",
        ExitCode.LOCK_HELD,
        hint="Start again, or attach to the server that uses it.",
    )


@contextmanager
def _unused(folder: Path) -> Iterator[None]:
    """Keep servers away from the state in a folder; raise Stop if one uses it."""
    guard = Layout(folder, folder).lock_guard
    if not guard.parent.is_dir():
        yield
        return

    try:
        held = granted_guard(guard)
    except GuardBusy as busy:
        pid = "" if busy.owner is None else f" (pid {busy.owner.pid})"
        raise Stop(
            f"The history in {folder} has to move, but a server uses it{pid}.",
            ExitCode.LOCK_HELD,
            hint="Stop that server, then start again.",
        ) from None

    try:
        yield
    finally:
        os.close(held)


def _identified(folder: Path, root: Path) -> str:
    """Return the id of the state in a folder; give it one, and this path, if it has none."""
    state = folder / STATE_DIRECTORY
    known = read_identity(state)
    if known is None:
        known = Identity(id=secrets.token_hex(16), path=ProjectFolder.at(root).path)
        if state.is_dir():
            fsutil.replace_durably(state / IDENTITY, codec.encode(known))

    return known.id


def _rename_aside(folder: Path, place: Path, root: Path) -> Path:
    """Give the folder of a state at a project's place another name; return its new path.

    A folder that the user named keeps its name. If a link led to it, another one does so from now
    on, which is made first.
    """
    with _unused(folder):
        name = f"{place.name}.{_identified(folder, root)}"
        aside = folder.with_name(name) if folder.name == place.name else folder
        if place.is_symlink():
            _link(place.with_name(name), aside)

        if aside != folder:
            folder.rename(aside)
            fsutil.sync_directory(aside.parent)

    return aside


def _move(source: Path, target: Path) -> None:
    """Move a state from one folder to another, which may be on another disk.

    It appears there at once, complete and durable, before it is removed where it was.
    """
    here, there = source / STATE_DIRECTORY, target / STATE_DIRECTORY
    if not here.is_dir():
        raise _overtaken(source)

    with _unused(source):
        fsutil.make_private_directory(target)
        if here.stat().st_dev == target.stat().st_dev:
            here.rename(there)
        else:
            partial = there.with_name(f"{STATE_DIRECTORY}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(here, partial, symlinks=True, ignore=_special)
            fsutil.sync_filesystem(partial)
            partial.rename(there)
            fsutil.sync_directory(target)
            shutil.rmtree(here)

        fsutil.sync_directory(target)
        fsutil.sync_directory(source)

    if GIVEN_NAME.fullmatch(source.name):
        with contextlib.suppress(OSError):  # It is not empty.
            source.rmdir()


def _special(folder: str, names: list[str]) -> list[str]:
    """Return the sockets and FIFOs of dead agents, which cannot be copied."""
    modes = ((name, os.lstat(os.path.join(folder, name)).st_mode) for name in names)
    return [name for name, mode in modes if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)]


def _link(link: Path, target: Path) -> None:
    fsutil.make_private_directory(link.parent)
    if link.is_symlink() and os.readlink(link) == str(target):
        return

    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()  # It is empty: what was in it has moved.

    new.rename(link)
    fsutil.sync_directory(link.parent)


def _drop_link(identity: Identity) -> None:
    """Remove the link for the path that the project had, if it leads nowhere now."""
    if identity.path is not None:
        former = private_folder_of(Path(identity.path))
        if former.is_symlink() and not former.exists():
            former.unlink()


# --- what is said ---------------------------------------------------------------------------------


def _note(located: LocatedHistory, aside: Path | None) -> HistoryIdentified | None:
    decision, root = located.decision, located.layout.root
    state, was = decision.state, "another path"
    if state is not None and state.identity is not None and state.identity.path is not None:
        was = state.identity.path

    kept = aside or (decision.about[0].folder if decision.about else None)
    if located.adopts:
        return _found(
            "adopted", f"The history in {located.layout.private_folder} was adopted.", kept
        )

    match decision.finding:
        case "moved":
            return _found("moved", f"This project was at {was}; its history continues here.")
        case "copied" if state is not None:
            sentence = "its history was copied, too, and the two continue separately."
            return _found("copied", f"This project is a copy of {was}: {sentence}")
        case "copied":
            original = decision.about[0].identity
            assert original is not None
            sentence = f"This project is a copy of {original.path}, which keeps its history."
            return _found("copied", f"{sentence} A new one begins here.", kept)
        case "other-project":
            assert kept is not None
            sentence = (
                f"Another project was at {root}: its history is kept in {kept}, and a new one "
                "begins. If it is this project's, stop the server and adopt it:"
            )
            return _found("other-project", f"{sentence} {adopting(root, kept)}", kept)
        case "gone":
            return _found("gone", _loss(root), kept)
        case _:
            pass

    if state is not None and located.target not in (None, state.folder):
        return _found("relocated", f"The history is kept in {located.target} from now on.")

    return None


def _found(finding: HistoryFinding, message: str, kept: Path | None = None) -> HistoryIdentified:
    return HistoryIdentified(
        finding=finding, message=message, kept_at=None if kept is None else str(kept)
    )


def _loss(root: Path) -> str:
    where = shlex.quote(str(root))
    if marker_of(root) is not None:
        return (
            f"The history of this project is not in {private_projects()}; a new one begins. If it "
            "is elsewhere, stop the server and name its folder with --state-dir or --adopt-state."
        )

    return (
        f"The history of this project is gone: {root / STATE_DIRECTORY} was removed, perhaps by "
        "`git clean -fdx`. A new one begins. To keep it where that cannot happen, stop the server, "
        f"then: hankweave run --workspace {where} --state-dir ~/.hankweave-state"
    )


# --- under the lock -------------------------------------------------------------------------------


def record(settled: SettledHistory) -> None:
    """Write whose state it is, and the marker; the caller holds the lock of the state."""
    layout = settled.layout
    known, here = read_identity(layout.state_directory), ProjectFolder.at(layout.root)
    if known is None or settled.is_copy:
        known = Identity(id=secrets.token_hex(16), first_checkpoint=_begun(known))

    _write(layout, known, here)


def record_beginning(layout: Layout, first_checkpoint: str | None) -> None:
    """Add the `initial` checkpoint to the identity, once."""
    known = read_identity(layout.state_directory)
    if known is not None and known.first_checkpoint is None and first_checkpoint is not None:
        _write(
            layout,
            msgspec.structs.replace(known, first_checkpoint=first_checkpoint),
            ProjectFolder.at(layout.root),
        )


def _begun(known: Identity | None) -> str | None:
    return None if known is None else known.first_checkpoint


def _write(layout: Layout, known: Identity, here: ProjectFolder) -> None:
    identity = Identity(
        id=known.id,
        path=here.path,
        device=here.device,
        inode=here.inode,
        born=here.born,
        first_checkpoint=known.first_checkpoint,
    )
    if read_identity(layout.state_directory) != identity:
        fsutil.replace_durably(layout.state_directory / IDENTITY, codec.encode(identity))

    note = note_of(private_folder_of(layout.root))
    if layout.private_folder is None:
        # A home that cannot be written has no note: then a loss of the state is not noticed.
        with contextlib.suppress(OSError):
            if noted(note) != identity:
                fsutil.make_private_directory(note.parent)
                fsutil.replace_durably(note, codec.encode(identity))
    else:
        _mark(layout.root, Identity(id=identity.id, first_checkpoint=identity.first_checkpoint))
        note.unlink(missing_ok=True)


def _mark(root: Path, marker: Identity) -> None:
    """Write the marker into the project.

    No link is followed. Where something else has its name, or the project cannot be written, there
    is none, and the project is known by its folder alone.
    """
    if marker_of(root) == marker:
        return

    folder = root / MARKER
    with contextlib.suppress(OSError):
        folder.mkdir(mode=fsutil.PRIVATE_DIRECTORY, exist_ok=True)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with fsutil.opened(folder, flags) as descriptor:
            inside = Path(f"/proc/self/fd/{descriptor}")
            fsutil.replace_durably(inside / ".gitignore", b"*\n")
            fsutil.replace_durably(inside / IDENTITY, codec.encode(marker))


def forget(layout: Layout) -> None:
    """Remove the marker, the note and the link of a project whose state is about to be removed."""
    place = private_folder_of(layout.root)
    if not (layout.root / MARKER).is_symlink():
        shutil.rmtree(layout.root / MARKER, ignore_errors=True)

    with contextlib.suppress(OSError):
        note_of(place).unlink(missing_ok=True)


def remove_place(layout: Layout) -> None:
    """Remove the emptied folder of a state that was removed, and the link to it."""
    place, folder = private_folder_of(layout.root), layout.private_folder
    if folder is not None and GIVEN_NAME.fullmatch(folder.name):
        with contextlib.suppress(OSError):
            folder.rmdir()

    if place.is_symlink():
        place.unlink()
