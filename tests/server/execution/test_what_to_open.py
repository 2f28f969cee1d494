"""The path that a hint about the fence proposes to open."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.execution.codon import confinement
from hankweave_server.execution.codon.confinement import is_broad, to_open


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "ann"
    (home / ".cache").mkdir(parents=True)
    monkeypatch.setattr(confinement, "home_directory", lambda: str(home))
    return home


def test_for_a_new_file_the_narrowest_folder_is_opened(home: Path) -> None:
    """Never a home, a top folder of the disk, or what contains the work tree."""
    tree = str(home.parent / "project" / "agentRoot")
    assert to_open(f"{home}/.cache/new", "write", tree) == f"{home}/.cache"
    assert to_open(f"{home}/evil", "write", tree) == f"{home}/evil"
    assert to_open("/root/evil", "write", tree) == "/root/evil"
    assert to_open("/home/someone/evil", "write", tree).endswith("/evil")
    assert to_open(f"{home.parent}/evil", "write", tree) == f"{home.parent}/evil"


def test_a_whole_home_is_broad_and_a_folder_in_it_is_not(home: Path) -> None:
    """A broad folder is not proposed without a warning."""
    tree = str(home.parent / "project")
    broad = (str(home), str(home.parent), "/root", "/home/someone", "/etc", "/")
    assert [path for path in broad if not is_broad(path, tree)] == []
    assert not is_broad(f"{home}/.cache", tree)
    assert to_open(str(home), "read", tree) == str(home)
