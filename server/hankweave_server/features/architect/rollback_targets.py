"""Resolve `hankweave rollback --to-step` and `--to-commit`, and roll back in a git workspace."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from hankweave_protocol.commands import GetState
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.remote import print_json
from hankweave_server.domain.execution_thread import thread
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.architect.pipelines.steps import (
    ListedStep,
    git_manager,
    is_git_project,
    place_of,
    sentences,
    step_of,
)
from hankweave_server.features.architect.shadow import Labelled, reading
from hankweave_server.hank.problems import did_you_mean
from hankweave_server.local.executions import is_in_git
from hankweave_server.local.living import living_server
from hankweave_server.local.server_session import run_read_only
from hankweave_server.local.targeting import confirm
from hankweave_server.plain_text import counted
from hankweave_server.user_git.labels import Mark
from hankweave_server.user_git.store import WorkspaceGit
from hankweave_server.worktree.data_source import layout_of

# --- steps of an execution ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a rollback in an execution: a checkpoint, or the end of a codon."""

    sha: str | None
    codon: CodonId | None = None
    said: str | None = None
    """A message that says how the options were interpreted."""


def target_in(root: Path, step: str | None, commit: str | None) -> Target:
    """Return the target that the options name; a commit takes precedence over a step.

    A step name refers to its newest checkpoint on the execution thread. Raises Stop for an unknown
    step, and for a number that several checkpoints on the thread have: each codon numbers its own
    steps, so the newest one need not be the one that is meant.
    """
    if commit is not None:
        return _committed(root, step, commit)

    assert step is not None
    with sentences(), reading(layout_of(root)) as checkpoints:
        called = checkpoints.called(step)
        marks = [each.mark for each in checkpoints.labelled]

    if called:
        return _the_one(called, step)

    codons = _codons_of(root)
    if step in codons:
        return Target(None, CodonId(step), f"{step} is a codon; the target is its end.")

    raise _unknown_step(step, marks, codons)


def _committed(root: Path, step: str | None, commit: str) -> Target:
    """Return the checkpoint with a hash, or the one that a commit with this hash was made of."""
    said = None if step is None else f"Using --to-commit {commit}."
    with sentences(), reading(layout_of(root)) as checkpoints:
        is_known = bool(checkpoints.beginning_with(commit))

    if not is_known and is_git_project(root):
        with sentences():
            found = WorkspaceGit(root).shadow_checkpoint_of(commit)

        if found is not None:
            named = f"Commit {commit} is checkpoint {found[:12]}; your branch does not move."
            return Target(found, said=named)

    return Target(commit, said=said)


def _is_only_in_git(root: Path, step: str | None, commit: str | None) -> bool:
    """Return whether only git has the target, such as a checkpoint of CheckpointManager."""
    with sentences(), reading(layout_of(root)) as checkpoints:
        if commit is not None:
            git = WorkspaceGit(root)
            is_known = bool(checkpoints.beginning_with(commit))
            return not is_known and git.has_commit(commit) and not git.shadow_checkpoint_of(commit)

        assert step is not None
        if checkpoints.called(step) or step in _codons_of(root):
            return False

    with git_manager(root) as manager, sentences():
        return any(step_of(each).title == step for each in manager.list_checkpoints())


def _the_one(called: list[Labelled], wanted: str) -> Target:
    newest = called[0]
    if newest.mark.name is None and len(called) > 1:
        listed = "; ".join(f"{each.sha[:12]} of {each.codon_id or 'no codon'}" for each in called)
        raise Stop(
            f"{counted(len(called), 'checkpoint')} belong to step {wanted}: {listed}.",
            ExitCode.FAILED,
            hint="Name one of them with --to-commit.",
        )

    of = f" of codon {newest.codon_id}" if newest.codon_id else ""
    return Target(newest.sha, None, f"Step {wanted} is checkpoint {newest.sha[:12]}{of}.")


def _codons_of(root: Path) -> list[str]:
    state = run_read_only(root, lambda calls: calls.send(GetState()))
    return list(dict.fromkeys(entry.codon.codon_id for entry in thread(state)))


def _unknown_step(wanted: str, marks: list[Mark], codons: list[str]) -> Stop:
    """Return the error for an unknown step, with a list of those that exist."""
    names = [str(mark.step) if mark.name is None else mark.name for mark in marks]
    known = list(dict.fromkeys([*names, *codons]))
    listed = f"Known steps: {', '.join(known)}." if known else "No checkpoints are recorded yet."
    return Stop(
        f"There is no checkpoint of step {wanted!r}.",
        ExitCode.FAILED,
        hint=did_you_mean(wanted, known) or listed,
    )


# --- steps in the user's git repository -----------------------------------------------------------


def git_workspace(
    execution: Path | None,
    step: str | None = None,
    commit: str | None = None,
    *,
    in_git: bool = False,
) -> Path | None:
    """Return the workspace if only its own git repository has the target; None otherwise.

    Without a step or commit: the workspace if it keeps all its checkpoints in git, or, with
    `in_git`, if it is in a git repository at all. Raises Stop if a server runs in it: files must
    not change without the server's knowledge.
    """
    place = place_of(execution)
    if not is_in_git(place.root):
        return None

    if place.repository == "workspace":
        return place.root

    is_named = step is not None or commit is not None
    is_only_there = is_named and is_git_project(place.root)
    if not in_git and not (is_only_there and _is_only_in_git(place.root, step, commit)):
        return None

    if living_server(layout_of(place.root)) is not None:
        raise Stop(
            f"A server is running in {place.root}, and a rollback in git would bypass it.",
            ExitCode.LOCK_HELD,
            hint="Stop the server first.",
        )

    return place.root


def roll_back_in_git(
    root: Path, step: str | None, commit: str | None, *, asks: bool, as_json: bool
) -> None:
    """Roll back in git, after a confirmation on a terminal, and print the actual target."""
    if asks and sys.stdout.isatty():
        target = f"commit {commit}" if commit is not None else f"step {step}"
        confirm(f"Roll {root} back to {target}?")

    done = _rolled_back(root, step, commit)
    if as_json:
        sha = commit if done is None else done.checkpoint.commit_hash
        print_json({"step": None if done is None else done.title, "commitHash": sha})
    else:
        _print_target(root, done, commit)


def undo_in_git(root: Path, *, as_json: bool) -> bool:
    """Undo the last rollback of a workspace and print that; return False if there was none."""
    with git_manager(root) as manager, sentences():
        is_undone = manager.undo()

    if is_undone and as_json:
        print_json({"undone": True})
    elif is_undone:
        click.echo(f"The last rollback of {root} was undone.")

    return is_undone


def _rolled_back(root: Path, step: str | None, commit: str | None) -> ListedStep | None:
    """Roll back; return the step that was restored, if it is one; raise Stop if it is unknown."""
    with git_manager(root) as manager, sentences():
        listed = [step_of(each) for each in manager.list_checkpoints()]
        if commit is None:
            assert step is not None
            target = next((each for each in listed if each.title == step), None)
            if target is None:
                raise _unknown_step(step, [Mark(None, each.title, "") for each in listed], [])

            commit = target.checkpoint.commit_hash
        else:
            wanted = commit.lower()
            target = next((e for e in listed if e.checkpoint.commit_hash.startswith(wanted)), None)

        if not manager.rollback(commit=commit):
            raise Stop(
                f"There is no commit {commit!r} in this repository.",
                ExitCode.FAILED,
                hint="`hankweave history` lists the commits of all steps.",
            )

    return target


def _print_target(root: Path, target: ListedStep | None, commit: str | None) -> None:
    """Print the actual target of a rollback."""
    if target is None:
        click.echo(f"Rolled back to commit {commit}; `{_undo_of(root)}` undoes this.")
        return

    text = f": {target.text}" if target.text else ""
    click.echo(f"Rolled back to step {target.title} ({target.checkpoint.short_hash()}){text}.")
    click.echo(f"`{_undo_of(root)}` undoes this.")


def _undo_of(root: Path) -> str:
    option = " --repository workspace" if is_git_project(root) else ""
    return f"hankweave undo{option}"
