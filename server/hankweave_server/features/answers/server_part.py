"""Answers in a server: they handle their commands, and search in the background."""

from __future__ import annotations

from hankweave_server.app import App, OpenedExecution, ServerPart
from hankweave_server.features.answers.bisection.bisector import Bisections
from hankweave_server.features.answers.handlers import Answers


def part(opened: OpenedExecution, app: App) -> ServerPart:
    bisections = Bisections(app.ctx)
    return ServerPart((Answers(opened.layout, app.sources), bisections), run=bisections.run)
