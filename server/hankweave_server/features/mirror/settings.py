"""How an execution is mirrored."""

from __future__ import annotations

from typing import Literal

Mode = Literal["async", "sync"]
"""Whether events wait for the mirror."""
