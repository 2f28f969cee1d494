"""Short ids of executions: what `hankweave ls` shows, and `-e` takes in place of a path.

An execution in the usual folder has the random part of its name. Another one has the name of its
directory, if that is short. Where two would have the same, they have the beginning of a digest of
their paths. `-e` also takes the name of the directory, or a beginning of any of these.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MANAGED_NAME = re.compile(r"\d{13}-[0-9a-z]{4}-(?:[0-9a-f]{6}|nodata)")
"""The name of an execution in the usual folder."""

LONGEST = 14
"""Characters of an id, so that the other columns of a list have room."""

_DIGITS = 6


def short_ids(paths: Sequence[Path]) -> Mapping[Path, str]:
    """Return an id for each execution; no two have the same."""
    wanted = {path: _wanted(path) for path in paths}
    uses = Counter(wanted.values())
    return {
        path: name if len(name) <= LONGEST and uses[name] == 1 else _digest(path)
        for path, name in wanted.items()
    }


def named(text: str, paths: Iterable[Path]) -> list[Path]:
    """Return the executions that a text may mean: one that it names whole, else all that begin so.

    A path is not looked up here.
    """
    names = {path: (_wanted(path), path.name, _digest(path)) for path in paths}
    whole = [path for path, known in names.items() if text in known]
    return whole or [
        path for path, known in names.items() if any(name.startswith(text) for name in known)
    ]


def _wanted(path: Path) -> str:
    return path.name.split("-")[1] if MANAGED_NAME.fullmatch(path.name) else path.name


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:_DIGITS]
