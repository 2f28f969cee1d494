"""The repository that an execution is mirrored to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Provide a bare repository, as a NAS or a hosted service has it."""
    path = tmp_path / "mirror.git"
    subprocess.run(("git", "init", "--quiet", "--bare", path), check=True)
    return path
