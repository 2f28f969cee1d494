"""How long these tests go on: a minute inside the fast tier, or as long as the issue asks for."""

from __future__ import annotations

import os

IS_LONG = os.environ.get("HANKWEAVE_LONG_TIER") == "1"
"""Set it to go through all rounds: `HANKWEAVE_LONG_TIER=1 scripts/test tests/intruders`."""


def rounds(fast: int, long: int) -> int:
    return long if IS_LONG else fast
