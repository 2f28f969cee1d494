"""The work trees that are checkpointed: generated ones of any size, and one real one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from hankweave_server.paths import Layout

FILES_IN_A_FOLDER = 11
SOURCES = "*.py"

NO_SOURCES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.a")
"""Files built from sources; they would be most of the bytes."""


def make_tree(root: Path, size: int) -> Path:
    """Write source-like files, the same ones whenever the size is the same."""
    chance = random.Random(size)  # Reproducible, not secret.
    layout = Layout.of_execution(root)
    for number in range(size):
        folder = layout.work_tree / f"part{number // 1100}" / f"module{number // FILES_IN_A_FOLDER}"
        if number % FILES_IN_A_FOLDER == 0:
            folder.mkdir(parents=True)

        lines = [f"value_{chance.randrange(9999)} = {n}\n" for n in range(chance.randrange(5, 400))]
        (folder / f"file{number}.py").write_text("".join(lines))

    return root


def make_real_tree(root: Path, sources: Sequence[Path] | None = None) -> Path:
    """Copy real folders: by default this interpreter's standard library and its packages."""
    for source in sources if sources is not None else _of_this_interpreter():
        shutil.copytree(
            source,
            Layout.of_execution(root).work_tree / source.name,
            symlinks=True,
            ignore=_no_sources_nor_packages,
        )

    return root


def copy_tree(original: Path, root: Path) -> Path:
    """Copy a whole execution folder with its times; share blocks where the disk can."""
    root.parent.mkdir(parents=True, exist_ok=True)
    # macOS's cp has no --reflink.
    if subprocess.run(["cp", "-a", "--reflink=auto", original, root], check=False).returncode:
        shutil.copytree(original, root, symlinks=True, dirs_exist_ok=True)

    return root


def count_files(root: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(Layout.of_execution(root).work_tree))


def _of_this_interpreter() -> list[Path]:
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]


def _no_sources_nor_packages(folder: str, names: list[str]) -> set[str]:
    # Those below the standard library may belong to another interpreter.
    return NO_SOURCES(folder, names) | ({"site-packages"} & set(names))
