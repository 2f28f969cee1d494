"""An ordinary user for tests that run as root, and an interpreter that this user can run."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ID = 65534
PREFIX = ["setpriv", f"--reuid={ID}", f"--regid={ID}", "--clear-groups"]
"""Runs a command as the ordinary user; only root can use it."""


@functools.cache
def reason_against() -> str | None:
    """Return why no test can run Python as the ordinary user here, or None if one can."""
    if shutil.which("setpriv") is None:
        return "needs setpriv to become an ordinary user"

    return None if interpreter() else "needs an interpreter that an ordinary user can run"


@functools.cache
def interpreter() -> str | None:
    """Return an interpreter that the ordinary user can run with the tests' packages, or None.

    It is this one, unless it lies in a private home, where pyenv and uv install it. Then it is the
    system's Python of the same version in an environment that shares this one's packages.
    """
    if _works(sys.executable):
        return sys.executable

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = shutil.which(version, path="/usr/local/bin:/usr/bin:/bin")
    if program is None:
        return None

    # Not below /tmp, which a fence replaces.
    folder = Path(tempfile.mkdtemp(prefix="hankweave-python-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(program)
    (folder / "lib" / version).mkdir(parents=True)
    (folder / "lib" / version / "site-packages").symlink_to(sysconfig.get_path("platlib"))
    (folder / "pyvenv.cfg").write_text(f"home = {Path(program).parent}\n", "utf-8")
    shared = str(folder / "bin" / "python")
    return shared if _works(shared) else None


def _works(program: str) -> bool:
    # The shell starts it without root's capabilities, which setpriv keeps until it runs a program.
    check = ["sh", "-c", 'exec "$0" -c "import hankweave_server, anyio, pygit2"', program]
    return subprocess.run([*PREFIX, *check], capture_output=True, check=False).returncode == 0
