"""The exporter of a server, which hears of every event."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread

from hankweave_server.app import OpenedExecution
from hankweave_server.cli.output.text import print_error
from hankweave_server.clock import Clock
from hankweave_server.daemon.observers import Observer, OpensObserver
from hankweave_server.features.tracing.environment import TelemetryUnavailable, wanted
from hankweave_server.features.tracing.subscriber import Telemetry, open_exporter
from hankweave_server.features.tracing.translation import Tracing
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings

if TYPE_CHECKING:
    from hankweave_server.features.tracing.otlp import Exporter


def prepared(settings: RunSettings, layout: Layout, _clock: Clock) -> OpensObserver | None:
    """Return what opens the exporter; None if none is asked for, or none can be had."""
    try:
        asked = wanted(os.environ)
        return None if asked is None else partial(_open, open_exporter(asked, layout.root.name))
    except TelemetryUnavailable as error:
        if not settings.plan_on_record:  # The command that started it reads what this prints.
            print_error(f"warning: No traces and metrics: {error.message}", error.hint)

        return None


async def _open(exporter: Exporter, opened: OpenedExecution) -> Observer:
    telemetry = await anyio.to_thread.run_sync(_telemetry, exporter, opened)
    return Observer(telemetry.handle, telemetry.finish, traceparent=telemetry.traceparent)


def _telemetry(exporter: Exporter, opened: OpenedExecution) -> Telemetry:
    """Recall the run that is open from the journal."""
    workflow = opened.ledger.redactor.text(opened.hank.name)
    tracing = Tracing(workflow, with_content=exporter.wanted.with_content)
    return Telemetry(exporter, tracing, opened.ledger)
