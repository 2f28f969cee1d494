"""npm programs that some tests compare results with: installed once per session, or skipped."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PACKAGES = ("typescript@7.0.2", "@types/node@20", "@asyncapi/specs@6.11.1")
TIMEOUT = 60.0


def node_modules() -> Path:
    """Return the folder of the installed packages; skip the test where there is no npm."""
    found = _installed()
    if isinstance(found, str):
        pytest.skip(found)

    return found


@functools.cache
def _installed() -> Path | str:
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm program"

    folder = tempfile.TemporaryDirectory(prefix="hankweave-node-")
    _kept.append(folder)
    quiet = ("--no-fund", "--no-audit", "--ignore-scripts", "--fetch-retries=0", "--prefer-offline")
    try:
        subprocess.run(
            [npm, "install", *quiet, "--prefix", folder.name, *PACKAGES],
            capture_output=True,
            check=True,
            timeout=TIMEOUT,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return f"npm could not install {', '.join(PACKAGES)}"

    return Path(folder.name) / "node_modules"


_kept: list[tempfile.TemporaryDirectory[str]] = []
"""Removed when the session ends."""
