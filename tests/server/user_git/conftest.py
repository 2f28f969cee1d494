"""No test of this folder uses the git configuration of the user who runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.person_repository import alone_with_git


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone_with_git(monkeypatch, tmp_path / "home")
