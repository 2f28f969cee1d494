"""The answers that need no server."""

from __future__ import annotations

from collections.abc import Iterable

from hankweave_server.features.answers.handlers import Answers
from hankweave_server.local.reader import FileCalls


def handlers(calls: FileCalls) -> Iterable[object]:
    return (Answers(calls.layout, calls.sources),)
