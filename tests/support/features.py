"""Marks for tests that need features, which can be taken out (tools/removal.py)."""

from __future__ import annotations

from typing import Final

import pytest

whole_wire: Final = pytest.mark.feature(
    *("answers", "architect", "exploration", "map", "mcp", "mirror"),
    *("notifications", "redaction", "reports", "tracing"),
)
"""For tests of lists that are complete only with every feature."""
