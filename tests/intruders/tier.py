"""The length of these tests: a minute within the fast tier, or all rounds in the long tier."""

from __future__ import annotations

import os

IS_LONG = os.environ.get("HANKWEAVE_LONG_TIER") == "1"
"""Set it to run all rounds: `HANKWEAVE_LONG_TIER=1 scripts/test tests/intruders`."""


def rounds(fast: int, long: int) -> int:
    return long if IS_LONG else fast
