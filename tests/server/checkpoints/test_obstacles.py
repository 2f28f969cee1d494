"""Real obstacles to changing files: attributes, mounts, sticky folders of other users.

A preview names it before anything is written, and the restore names the same.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.server.checkpoints.conftest import EVERYTHING, Lab

from hankweave_server.checkpoints.model import Skipped
from support.ordinary_user import ID
from support.privileges import without_capabilities

OTHER_USER = 4321


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(done.stderr)


@contextmanager
def attribute(letter: str, place: Path) -> Iterator[None]:
    run("chattr", f"+{letter}", place)
    try:
        yield
    finally:
        run("chattr", f"-{letter}", place)


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    run("mount", "--bind", place, place)
    try:
        yield
    finally:
        run("umount", place)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    with mounted(place):
        run("mount", "-o", "remount,bind,ro", place)
        yield


CASES: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "immutable": (lambda tree: attribute("i", tree / "d/f"), "immutable", errno.EPERM),
    "append-only": (lambda tree: attribute("a", tree / "d/f"), "append-only", errno.EPERM),
    "immutable-folder": (lambda tree: attribute("i", tree / "d"), "immutable-folder", errno.EPERM),
    "append-only-folder": (
        lambda tree: attribute("a", tree / "d"),
        "append-only-folder",
        errno.EPERM,
    ),
    "mount-point": (lambda tree: mounted(tree / "d/f"), "mount-point", errno.EBUSY),
    "read-only": (lambda tree: read_only(tree / "d"), "read-only", errno.EROFS),
    "sticky": (lambda tree: sticky_for_root(tree / "d"), "sticky", errno.EPERM),
}


def check(lab: Lab, obstacle: object, expected: Skipped) -> None:
    """Check that preview and restore name the path, and that all others are restored."""
    made = lab.checkpoint()
    lab.write("a", "now, and longer")
    lab.write("d/f", "now, and longer")
    lab.delete("gone")
    with ExitStack() as met:
        met.enter_context(obstacle)  # type: ignore[arg-type]
        plan = lab.engine.plan_restore(made.sha, EVERYTHING)
        assert lab.engine.obstacles(plan) == (expected,)
        safety = lab.checkpoint(kind="safety", codon=None)
        report = lab.engine.restore(made.sha, safety.sha)
        assert report.unrestored == (expected,)
        assert lab.read("d/f") == b"now, and longer"
        assert [lab.read(name) for name in ("a", "gone")] == [b"then", b"then"]
        assert [each.name for each in (lab.tree / "d").iterdir()] == ["f"]

    again = lab.checkpoint(kind="safety", codon=None)
    report = lab.engine.restore(made.sha, again.sha)
    assert report.unrestored == ()
    assert lab.read("d/f") == b"then"


@pytest.mark.enclosed
@pytest.mark.parametrize("case", CASES)
def test_what_protects_a_file_is_named_before_and_after(lab, case):
    """The server runs as root, and the kernel refuses root as well."""
    make, kind, number = CASES[case]
    for name in ("a", "d/f", "gone"):
        lab.write(name, "then")

    check(lab, make(lab.tree), Skipped(b"d/f", kind, number))


@contextmanager
def sticky_for_root(folder: Path) -> Iterator[None]:
    """Let root lack CAP_FOWNER, as in a container, where another user has a sticky folder."""
    for place in (folder, folder / "f"):
        os.chown(place, OTHER_USER, OTHER_USER)

    folder.chmod(0o1755)
    with without_capabilities(1 << 3):
        yield

    for place in (folder, folder / "f"):
        os.chown(place, 0, 0)

    folder.chmod(0o755)


@pytest.fixture
def common_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Yield a bench of an ordinary user, as which this process acts meanwhile."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")

    folder = Path(tempfile.mkdtemp(prefix="hankweave-obstacles-"))
    monkeypatch.setenv("HOME", str(folder))
    os.chown(folder, ID, ID)
    os.setegid(ID)
    os.seteuid(ID)
    try:
        lab = Lab(folder / "execution")
        try:
            yield lab
        finally:
            lab.engine.close()
    finally:
        os.seteuid(0)
        os.setegid(0)
        shutil.rmtree(folder)


@contextmanager
def as_root() -> Iterator[None]:
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(ID)


@contextmanager
def owned_by_another(folder: Path, mode: int, *, with_file: bool) -> Iterator[None]:
    with as_root():
        os.chown(folder, OTHER_USER, OTHER_USER)
        folder.chmod(mode)
        if with_file:
            os.chown(folder / "f", OTHER_USER, OTHER_USER)

    yield
    with as_root():
        os.chown(folder, ID, ID)
        os.chown(folder / "f", ID, ID)
        folder.chmod(0o755)


@pytest.mark.enclosed
@pytest.mark.parametrize(
    ("mode", "kind", "number"),
    [(0o1777, "sticky", errno.EPERM), (0o755, "no-permission", errno.EACCES)],
    ids=["sticky", "no permission"],
)
def test_a_folder_of_another_user_is_named_before_and_after(common_lab, mode, kind, number):
    """The server runs as an ordinary user, who may replace nothing there."""
    for name in ("a", "d/f", "gone"):
        common_lab.write(name, "then")

    (common_lab.tree / "d").chmod(mode & 0o777)
    other = owned_by_another(common_lab.tree / "d", mode, with_file=mode == 0o1777)
    check(common_lab, other, Skipped(b"d/f", kind, number))
