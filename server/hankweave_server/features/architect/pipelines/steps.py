"""List the checkpoints of steps, from the shadow repository or the workspace's own git."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from hankweave_protocol.codec import decode_value
from hankweave_protocol.errors import Refused
from hankweave_protocol.shapes import Value
from hankweave_protocol.state_directory import state_directory_of
from hankweave_server.cli.remote import root_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.architect.checkpoints import CheckpointManager
from hankweave_server.features.architect.shadow import reading
from hankweave_server.local import executions
from hankweave_server.local.executions import is_in_git
from hankweave_server.user_git.errors import CheckpointError, CheckpointWarning
from hankweave_server.user_git.labels import Checkpoint
from hankweave_server.worktree.data_source import layout_of, read_meta

Repository = Literal["auto", "workspace", "shadow"]


@dataclass(frozen=True, slots=True)
class StepPlace:
    """A workspace and the repository that holds its checkpoints."""

    root: Path
    repository: Literal["workspace", "shadow"]


def place_of(execution: Path | None, repository: Repository = "auto") -> StepPlace:
    """Return the workspace that is named, or the one of the current directory.

    `auto` means the shadow repository for a directory that Hankweave has served, and the git
    repository for any other; outside of both, the execution used last.
    """
    if execution is not None:
        root = execution.expanduser().absolute()
    else:
        here = Path.cwd()
        is_ours = executions.enclosing(here) is not None or repository == "shadow"
        is_git = repository == "workspace" or is_in_git(here)
        root = here if is_git and not is_ours else root_of(None)

    if repository != "auto":
        return StepPlace(root, repository)

    return StepPlace(root, "shadow" if state_directory_of(root).is_dir() else "workspace")


def listed_in(place: StepPlace, repository: Repository) -> StepPlace:
    """Resolve `auto` to git if the last pipeline committed its steps there."""
    if repository == "auto" and place.repository == "shadow" and is_published(place.root):
        return StepPlace(place.root, "workspace")

    return place


def is_published(root: Path) -> bool:
    """Return whether a project keeps its labelled checkpoints in git as well."""
    layout = layout_of(root)
    meta = read_meta(layout)
    if meta is None or meta.hank_path is None or not is_git_project(root):
        return False

    try:
        hank = decode_value(_Hank, Path(meta.hank_path).read_bytes())
    except (OSError, Refused):
        return False

    return hank.overrides.checkpoint_repository == "workspace"


def is_git_project(root: Path) -> bool:
    """Return whether Hankweave serves a directory in place, inside a git repository."""
    meta = read_meta(layout_of(root))
    return meta is not None and meta.in_place and is_in_git(root)


class _Overrides(Value):
    checkpoint_repository: str = "shadow"


class _Hank(Value):
    overrides: _Overrides = _Overrides()


@dataclass(frozen=True, slots=True)
class ListedStep:
    """One checkpoint in the list."""

    name: str | None
    text: str
    checkpoint: Checkpoint

    @property
    def title(self) -> str:
        return str(self.checkpoint.step) if self.name is None else self.name


def steps_in(place: StepPlace) -> list[ListedStep]:
    """Return the checkpoints of a place, newest first; raise Stop if they cannot be read."""
    if place.repository == "workspace":
        with git_manager(place.root) as manager, sentences():
            return [step_of(each) for each in manager.list_checkpoints()]

    with sentences(), reading(layout_of(place.root)) as checkpoints:
        return [
            ListedStep(each.mark.name, each.mark.text, checkpoints.described(each))
            for each in checkpoints.labelled
        ]


def step_of(checkpoint: Checkpoint) -> ListedStep:
    """Return the step of a checkpoint; the message of a named step begins with its name."""
    if checkpoint.step or not checkpoint.message:
        return ListedStep(None, checkpoint.message, checkpoint)

    name, _, text = checkpoint.message.partition(" -- ")
    return ListedStep(name, text, checkpoint)


def git_manager(root: Path) -> CheckpointManager:
    with sentences():
        return CheckpointManager(str(root), repository="workspace")


@contextmanager
def sentences() -> Iterator[None]:
    """Turn errors of CheckpointManager into Stop, and its warnings into lines on stderr."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CheckpointWarning)
            yield

        for each in caught:
            click.echo(f"hankweave: {each.message}", err=True)
    except CheckpointError as error:
        raise Stop(error.message, ExitCode.FAILED, hint=error.hint or None) from None
