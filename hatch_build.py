"""Build the optional helpers in C where a compiler and Python's headers are available.

Without them the same work is done in Python (server/hankweave_server/worktree/stat_index.py and
redaction/redactor.py), only slower, so a failure here must never stop an installation.

The environment variable CC names another compiler; HANKWEAVE_PURE=1 builds none of the helpers.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SERVER = "server/hankweave_server"
MODULES = ("worktree/_lstat_diff", "redaction/_literals")


class HelpersInC(BuildHookInterface):  # type: ignore[type-arg]
    """A build hook that compiles each helper beside its source and adds it to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        is_pure = bool(os.environ.get("HANKWEAVE_PURE"))
        if is_pure or self.target_name != "wheel" or not sys.platform.startswith("linux"):
            return

        for module in MODULES:
            self._build(module, build_data, is_editable=version == "editable")

    def _build(self, module: str, build_data: dict[str, Any], *, is_editable: bool) -> None:
        built = Path(self.root, SERVER, f"{module}.abi3.so")
        if not _compile(Path(self.root, SERVER, f"{module}.c"), built):
            built.unlink(missing_ok=True)
            return

        if not is_editable:
            build_data["force_include"][str(built)] = f"hankweave_server/{module}.abi3.so"
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{_platform()}"


def _compile(source: Path, built: Path) -> bool:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    headers = sysconfig.get_path("include")
    options = ["-O2", "-fPIC", "-shared", "-pthread", f"-I{headers}", str(source), "-o", str(built)]
    try:
        done = subprocess.run([*compiler, *options], capture_output=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False

    return done.returncode == 0


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
