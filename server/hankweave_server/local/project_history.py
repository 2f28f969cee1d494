"""The owner of a history: which state a start in a project uses, found and decided, not changed.

A state that was last served for this very folder is the project's, under whatever path. Otherwise
the project's marker names the state by its id; but a copy of a project has the same marker, so the
id counts only while the project that the state knows is gone. Nothing else is taken for granted: a
project without any of this begins a history of its own, and every other one stays as it is.

`decide` is pure, and `locate` gathers the evidence for it. `project_state` then acts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from hankweave_protocol.state_directory import (
    IDENTITY,
    STATE_DIRECTORY,
    Identity,
    ProjectFolder,
    belongs,
    identity_in,
    is_of_folder,
    marker_of,
    private_folder_of,
    private_projects,
    read_identity,
)
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import read_meta_in

Finding = Literal["same", "new", "moved", "copied", "other-project", "gone", "ambiguous"]


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state directory that was found."""

    folder: Path
    """The folder that contains it."""
    identity: Identity | None
    """None: it was made by an older version."""
    is_claimed: bool = False
    """Its own project still exists, at another path than the present one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that a start finds."""

    here: ProjectFolder
    marker: Identity | None = None
    place: KeptState | None = None
    """What lies where the state of a project at this path would be, outside of it."""
    inside: KeptState | None = None
    others: tuple[KeptState, ...] = ()
    """The other states outside of projects, with an identity."""
    last: Identity | None = None
    """The state in the project at the last start here, as noted outside of it."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The state to use, and why."""

    finding: Finding
    state: KeptState | None = None
    """None: a new one."""
    about: tuple[KeptState, ...] = ()
    """The other states that the finding is about."""


def decide(seen: Evidence) -> Attribution:
    """Return which state is the project's."""
    here, place = seen.here, seen.place
    if place is not None and belongs(place.identity, seen.marker, here):
        return _used(place, here)

    of_folder = tuple(
        each for each in seen.others if each.identity and is_of_folder(each.identity, here)
    )
    if of_folder:
        return _only(of_folder, here)

    if seen.inside is not None:
        return _inside(seen.inside, here)

    if seen.marker is not None:
        return _by_marker(seen, seen.marker)

    if seen.last is not None and is_of_folder(seen.last, here):
        return Attribution("gone")

    former = tuple(
        each for each in seen.others if each.identity and each.identity.path == here.path
    )
    former += () if place is None else (place,)
    return Attribution("other-project", about=former) if former else Attribution("new")


def _used(state: KeptState, here: ProjectFolder) -> Attribution:
    known = None if state.identity is None else state.identity.path
    return Attribution("same" if known in (None, here.path) else "moved", state)


def _only(states: tuple[KeptState, ...], here: ProjectFolder) -> Attribution:
    return Attribution("ambiguous", about=states) if len(states) > 1 else _used(states[0], here)


def _inside(state: KeptState, here: ProjectFolder) -> Attribution:
    known = state.identity
    if known is not None and state.is_claimed and not is_of_folder(known, here):
        return Attribution("copied", state)

    return _used(state, here)


def _by_marker(seen: Evidence, marker: Identity) -> Attribution:
    named = tuple(each for each in seen.others if each.identity and each.identity.id == marker.id)
    if not named:
        return Attribution("gone")

    free = tuple(each for each in named if not each.is_claimed)
    return _only(free, seen.here) if free else Attribution("copied", about=named)


# --- what is found -------------------------------------------------------------------------------

GIVEN_NAME = re.compile(r"[0-9a-f]{32}(\.[0-9a-f]{32})?")
"""A folder that was named here: after a path, and with the id if it had to make room."""

_NOTE = ".json"


@dataclass(frozen=True, slots=True)
class LocatedHistory:
    """The history of a project as a start found it; nothing was changed yet."""

    layout: Layout
    """Where its state is, or where it will be if nothing of another project is in the way."""
    decision: Attribution
    target: Path | None
    """The folder that the state belongs in; None: the project itself."""
    adopts: bool = False
    own: KeptState | None = None
    """The history that the project had, if another is adopted instead."""


def locate(
    root: Path,
    state_folder: Path | None,
    adopted: Path | None,
    *,
    is_private: Callable[[], bool],
) -> LocatedHistory:
    """Find the history of a project; raise Stop if that needs an answer.

    With `state_folder`, the state belongs in it; if `is_private`, a new one belongs outside of
    the project. `adopted` is the state directory to use instead, or the folder that contains it.
    """
    decision = decide(_evidence(root, state_folder))
    if adopted is not None:
        state = _adoptable(adopted, root)
        target = _target(state.folder, root, state_folder)
        own = decision.state if decision.state != state else None
        layout = Layout(root, root, state.folder)
        return LocatedHistory(layout, Attribution("same", state), target, adopts=True, own=own)

    if decision.finding == "ambiguous":
        raise _ambiguous(root, decision)

    place = private_folder_of(root)
    if decision.state is not None:
        found = decision.state.folder
        target = _target(found, root, state_folder)
        layout = Layout(root, root, None if found == root else found)
    else:
        is_outside = state_folder is not None or is_private()
        target = (state_folder or place.parent) / place.name if is_outside else None
        is_free = target is not None and not has_past(target)
        layout = Layout(root, root, target if is_free else None)

    return LocatedHistory(layout, decision, target)


def _target(found: Path, root: Path, state_folder: Path | None) -> Path | None:
    """Return the folder for a state that is in `found`."""
    name = private_folder_of(root).name
    if state_folder is not None:
        return state_folder / name

    if found == root:
        return None

    return found.with_name(name) if GIVEN_NAME.fullmatch(found.name) else found


def _ambiguous(root: Path, decision: Attribution) -> Stop:
    folders = [shlex.quote(str(each.folder)) for each in decision.about]
    return Stop(
        f"More than one history may be that of {root}: {', '.join(folders)}.",
        ExitCode.USAGE,
        hint=f"Choose: {adopting(root, decision.about[0].folder)}",
    )


def adopting(root: Path, folder: Path) -> str:
    """Return the command that adopts a history."""
    where, what = shlex.quote(str(root)), shlex.quote(str(folder))
    return f"hankweave run --workspace {where} --adopt-state {what}"


# --- what is there --------------------------------------------------------------------------------


def _evidence(root: Path, state_folder: Path | None) -> Evidence:
    here, place, marker = ProjectFolder.at(root), private_folder_of(root), marker_of(root)
    if place.is_symlink() and not os.path.isdir(place) and not _was_renamed(place):
        raise Stop(
            f"The history of {root} is kept in {os.readlink(place)}, which is not there.",
            ExitCode.NO_INPUT,
            hint=f"Mount or restore it. To begin a new history: rm {shlex.quote(str(place))}",
        )

    occupant = _kept(place.resolve() if place.is_symlink() else place, here)
    if occupant is not None and occupant.identity is None and marker is not None:
        # The state of a backup from before it had an identity is known by its first checkpoint.
        first = _first_checkpoint(occupant.folder / STATE_DIRECTORY)
        if first is not None and first == marker.first_checkpoint:
            occupant = KeptState(occupant.folder, marker)

    found = {each.folder: each for each in _all_kept(here, state_folder)}
    if occupant is not None:
        found.pop(occupant.folder, None)

    return Evidence(
        here,
        marker,
        occupant,
        _kept(root, here),
        tuple(each for each in found.values() if each.identity is not None),
        noted(note_of(place)),
    )


def _was_renamed(link: Path) -> bool:
    """Return whether the state that a link led to has another name, because a start was killed."""
    former = Path(os.readlink(link))
    if not former.parent.is_dir():
        return False

    return any(name.startswith(f"{former.name}.") for name in os.listdir(former.parent))


def _all_kept(here: ProjectFolder, state_folder: Path | None) -> Iterator[KeptState]:
    for top in filter(None, (private_projects(), state_folder)):
        names = sorted(os.listdir(top)) if os.path.isdir(top) else []
        for folder in (top / name for name in names if not name.endswith(_NOTE)):
            kept = _kept(folder.resolve() if folder.is_symlink() else folder, here)
            if kept is not None:
                yield kept


def _kept(folder: Path, here: ProjectFolder) -> KeptState | None:
    if not has_past(folder):
        return None

    identity = identity_in(folder)
    return KeptState(folder, identity, identity is not None and _is_claimed(identity, here))


def has_past(folder: Path) -> bool:
    """Return whether a folder contains a state; one that only holds a compiled pipeline is new."""
    layout = Layout(folder, folder)
    files = (layout.meta, layout.state, layout.journal, layout.state_directory / IDENTITY)
    return layout.removed_state.is_dir() or any(path.exists() for path in files)


def _is_claimed(identity: Identity, here: ProjectFolder) -> bool:
    """Return whether the project that a state was last served for is still elsewhere."""
    if identity.path in (None, here.path):
        return False

    assert identity.path is not None
    project = Path(identity.path)
    try:
        there = ProjectFolder.at(project)
    except OSError:
        return False

    marks = (marker_of(project), read_identity(project / STATE_DIRECTORY))
    is_marked = any(mark is not None and mark.id == identity.id for mark in marks)
    return is_marked or is_of_folder(identity, there)


class _Begun(msgspec.Struct, rename="camel"):
    initial_checkpoint: str | None = None


def _first_checkpoint(state: Path) -> str | None:
    path = Layout(state.parent, state.parent).state
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Begun).initial_checkpoint
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def note_of(place: Path) -> Path:
    """Return the file that notes a state in a project, outside of it."""
    return place.with_name(f"{place.name}{_NOTE}")


def noted(note: Path) -> Identity | None:
    """Return the identity that a note has."""
    try:
        return msgspec.json.decode(note.read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _adoptable(wanted: Path, root: Path) -> KeptState:
    """Return the state to adopt; raise Stop if it cannot be this project's."""
    path = Path(os.path.realpath(wanted.expanduser()))
    folder = path.parent if path.name == STATE_DIRECTORY else path
    state, here = folder / STATE_DIRECTORY, ProjectFolder.at(root)
    meta = read_meta_in(state) if state.is_dir() else None
    if meta is None or not meta.in_place:
        raise Stop(
            f"{wanted} does not contain the history of a project.",
            ExitCode.NO_INPUT,
            hint=f"Name the folder that contains {STATE_DIRECTORY}/execution-meta.json.",
        )

    identity = read_identity(state)
    kept = KeptState(folder, identity, identity is not None and _is_claimed(identity, here))
    if folder.is_relative_to(root):
        raise Stop(
            f"{state} is in the project itself, where agents can change it.",
            ExitCode.USAGE,
            hint="Move it out of the project, and name its new place.",
        )

    if kept.is_claimed:
        assert identity is not None
        raise Stop(
            f"{state} is the history of {identity.path}, which is still there.",
            ExitCode.USAGE,
            hint="A history has one project. If that one is a copy, remove it first.",
        )

    if identity is None and not GIVEN_NAME.fullmatch(folder.name):
        place = private_folder_of(root)
        raise Stop(
            f"{state} does not say which project it belongs to: an older version made it.",
            ExitCode.USAGE,
            hint=f"Move it to the place of this project: mkdir -p {shlex.quote(str(place))} && "
            f"mv {shlex.quote(str(state))} {shlex.quote(str(place))}",
        )

    return kept
