"""Each feature can be taken out, and what is left works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hankweave_server.cli.app import PLACES
from hankweave_server.installed import FEATURES
from removal import LIST, TOP, copy_without
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

pytestmark = pytest.mark.executed

MAIN = "from hankweave_server.cli.app import main; main()"
SERVED = re.compile(r"hankweave_server\.features\.(\w+)")


def command(copy: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join(str(copy / name) for name in ("server", "protocol"))
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def works_without(removed: tuple[str, ...], folder: Path) -> None:
    """Run a hank of two steps, go back and look, with a copy that lacks these features."""
    copy, work = folder / "copy", folder / "work"
    copy_without(removed, copy)
    work.mkdir()
    write_hank(work / "hank", codon("write", writes("a.txt", "one")), codon("check"))
    execution = str(work / "execution")
    ran = command(
        copy, "run", "--headless", "hank/hank.json", "--execution", execution, folder=work
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    went = command(copy, "rollback", "--before", "check", "-y", "-e", execution, folder=work)
    assert went.returncode == 0, went.stderr
    for words in (["status", "-e", execution], ["ls"], ["--help"], ["help", "--all"]):
        shown = command(copy, *words, folder=work)
        assert shown.returncode == 0, shown.stderr

    gone = [name for name, place in PLACES.items() if place.split(".")[1] in removed]
    for name in gone:
        unknown = command(copy, name, folder=work)
        assert (unknown.returncode, f"no command '{name}'" in unknown.stderr) == (2, True)


@pytest.mark.full
@pytest.mark.parametrize("name", FEATURES)
def test_everything_else_works_without_a_feature(name: str, tmp_path: Path) -> None:
    """A server starts, runs a hank and goes back; the commands of the feature are unknown."""
    works_without((name,), tmp_path)


def test_the_core_works_without_any_feature(tmp_path: Path) -> None:
    """A server starts, runs a hank and goes back without all of them."""
    works_without(FEATURES, tmp_path)


def test_nothing_imports_a_feature_but_its_own_modules() -> None:
    """The core asks `installed.parts`, and a feature uses no other one."""
    wrong = [
        f"{path.relative_to(TOP)} imports {found}"
        for path in (TOP / "server" / "hankweave_server").rglob("*.py")
        for found in SERVED.findall(path.read_text(encoding="utf-8"))
        if found != _feature_of(path) and path.name != "architect.py"
    ]
    assert wrong == []


def _feature_of(path: Path) -> str | None:
    parts = path.relative_to(TOP / "server" / "hankweave_server").parts
    return parts[1] if parts[0] == "features" and len(parts) > 2 else None


def test_the_list_has_every_folder() -> None:
    """A folder below `features/` that is not in the list would be dead code."""
    folder = (TOP / LIST).parent / "features"
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert found == set(FEATURES)
