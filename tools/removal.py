"""Make a copy of the repository without some features.

    python tools/removal.py FOLDER [FEATURE...]

Without names, it removes all of them. A feature is its folder, its line in `installed`, and its
tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PACKAGE = "server/hankweave_server"
LIST = f"{PACKAGE}/installed.py"


def copy_without(features: Collection[str], target: Path) -> None:
    """Copy what git knows of the repository, except for these features."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True)
    places = tuple(
        f"{above}/{name}/"
        for name in features
        for above in (f"{PACKAGE}/features", "tests/features")
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if name.startswith(places) or not (TOP / name).is_file():
            continue

        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, target / name)

    lines = (TOP / LIST).read_text(encoding="utf-8").splitlines(keepends=True)
    removed = {f'    "{name}",\n' for name in features}
    left = [line for line in lines if line not in removed]
    if len(left) + len(removed) != len(lines):
        raise SystemExit(f"Each feature must have one line in {LIST}.")

    (target / LIST).write_text("".join(left), encoding="utf-8")


if __name__ == "__main__":
    from hankweave_server.installed import FEATURES

    copy_without(sys.argv[2:] or FEATURES, Path(sys.argv[1]))
