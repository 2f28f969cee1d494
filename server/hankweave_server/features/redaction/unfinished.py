"""A removal from the past that a crash has interrupted: it is finished before a start."""

from __future__ import annotations

from hankweave_server.features.redaction.redaction import finish_interrupted
from hankweave_server.paths import Layout


def finish(layout: Layout) -> str | None:
    """Finish it; return what is still to be done, in a sentence."""
    if finish_interrupted(layout) is None:
        return None

    return "`hankweave redact --confirm` is due: what was removed is still kept"
