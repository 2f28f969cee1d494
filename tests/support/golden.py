"""Hanks with one known fault each, and the files beside them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hankweave_server.cli.shared import hank_loading
from hankweave_server.hank.load import HankInvalid, HankProblem

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
INVALID = sorted((GOLDEN / "invalid").glob("*.json"))
VALID = sorted(path.parent for path in (GOLDEN / "valid").glob("*/hank.json"))


def hank_directory(place: Path) -> Path:
    """Create a directory as an author has it, with some files that no hank may refer to."""
    directory = place / "hank"
    shutil.copytree(GOLDEN / "files", directory)
    outside = place / "outside.md"
    outside.write_text("Nobody's business.\n")
    (directory / "link.md").symlink_to(outside)
    (directory / "linked").symlink_to(place)
    for name in ("with-link", "with-pipe", "with-git/.git"):
        (directory / name).mkdir(parents=True)

    (directory / "with-link" / "link").symlink_to(outside)
    os.mkfifo(directory / "with-pipe" / "pipe")
    os.mkfifo(directory / "pipe")
    return directory


def problems_of(text: Path, directory: Path) -> tuple[HankProblem, ...]:
    """Load the hank as the command line does, among the files of that directory."""
    file = directory / "hank.json"
    shutil.copyfile(text, file)
    try:
        hank_loading.read(file)
    except HankInvalid as invalid:
        return invalid.problems

    return ()
