"""Damage: remove one object from a repository, wherever it is stored."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def lose_object(repository: Path, sha: str) -> None:
    """Remove one object; packs are unpacked first, so that no other object is lost with it."""
    objects = repository / "objects"
    for pack in (objects / "pack").glob("*.pack"):
        aside = pack.with_name("aside")
        pack.rename(aside)
        for beside in pack.parent.glob(f"{pack.stem}.*"):
            beside.unlink()

        with aside.open("rb") as stream:
            subprocess.run(
                ["git", "unpack-objects", "-q"],
                stdin=stream,
                env={"PATH": os.environ["PATH"], "GIT_DIR": str(repository)},
                check=True,
            )

        aside.unlink()

    (objects / sha[:2] / sha[2:]).unlink()
