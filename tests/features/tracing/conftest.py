"""Leave the loggers of a test's process as they were."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _own_loggers() -> Iterator[None]:
    """Undo what opening server.log and the exporter configure for the whole process."""
    library, root = logging.getLogger("opentelemetry"), logging.getLogger()
    handlers, level = list(library.handlers), root.level
    yield
    library.handlers[:] = handlers or [logging.NullHandler()]
    root.setLevel(level)
    structlog.reset_defaults()
