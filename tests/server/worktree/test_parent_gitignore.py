"""Claims about the rules above a project: only those of its own repository apply."""

from __future__ import annotations

import os
from pathlib import Path

from hankweave_server.worktree.parent_gitignore import rules_above


def a_project(tmp_path: Path, rules: dict[str, str], top: str = "repo") -> Path:
    """Create `repo/packages/app` with `.gitignore` files in the given folders."""
    project = tmp_path / "repo" / "packages" / "app"
    project.mkdir(parents=True)
    (tmp_path / top / ".git").mkdir()
    for folder, content in rules.items():
        (tmp_path / folder / ".gitignore").write_text(content)

    return project


def hidden(project: Path, path: str, *, is_folder: bool = False) -> bool:
    rules = rules_above(project)
    return rules is not None and rules.hide(os.fsencode(path), is_folder=is_folder)


def test_rules_apply_from_where_they_stand(tmp_path: Path) -> None:
    """Rules apply at any depth, anchored to their folder, and only to folders if they say so."""
    project = a_project(
        tmp_path, {"repo": "node_modules/\n/packages/app/dist\n/dist\npackages/*/out\n"}
    )
    assert hidden(project, "node_modules", is_folder=True)
    assert hidden(project, "deep/node_modules", is_folder=True)
    assert not hidden(project, "node_modules")
    assert hidden(project, "dist", is_folder=True)
    assert hidden(project, "out")
    assert not hidden(project, "deep/dist", is_folder=True)


def test_the_nearest_rules_decide(tmp_path: Path) -> None:
    """A folder in between may re-include files that the top hides."""
    project = a_project(tmp_path, {"repo": "*.log\n", "repo/packages": "!keep.log\n"})
    assert hidden(project, "a.log")
    assert not hidden(project, "keep.log")


def test_files_above_the_repository_have_no_effect(tmp_path: Path) -> None:
    """Nor do rules apply where there is no repository above, or where the project has its own."""
    project = a_project(tmp_path, {".": "*.py\n", "repo": "*.log\n"})
    assert not hidden(project, "a.py")
    assert hidden(project, "a.log")
    (project / ".git").write_text("gitdir: elsewhere\n")
    assert rules_above(project) is None
    bare = tmp_path / "bare" / "app"
    bare.mkdir(parents=True)
    (tmp_path / "bare" / ".gitignore").write_text("*\n")
    assert rules_above(bare) is None


def test_rules_that_hide_the_whole_project_do_not_count(tmp_path: Path) -> None:
    """Rules that name the project or a folder above it are ignored, as are rules for siblings."""
    project = a_project(tmp_path, {"repo": "packages/\n*.log\n"})
    assert not hidden(project, "a.py")
    assert rules_above(project) is None


def test_a_rules_file_that_is_none_is_passed_over(tmp_path: Path) -> None:
    """A link out of the repository, a pipe and a folder hold no rules and cause no wait."""
    secret = tmp_path / "secret"
    secret.write_text("*\n")
    project = a_project(tmp_path, {})
    (tmp_path / "repo" / ".gitignore").symlink_to(secret)
    os.mkfifo(tmp_path / "repo" / "packages" / ".gitignore")
    assert rules_above(project) is None
