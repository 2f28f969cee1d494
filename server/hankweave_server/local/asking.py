"""Whom one asks who only looks: the server where one runs, else the files that it left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from hankweave_client.calls import Calls
from hankweave_client.errors import NotRunning
from hankweave_server.cli.remote import at_server
from hankweave_server.local.reader import on_files
from hankweave_server.worktree.data_source import layout_of

T = TypeVar("T")


def look(root: Path, work: Callable[[Calls], Awaitable[T]]) -> T:
    """Does work that only looks; the answers are the same. Raises Stop where there are none."""
    try:
        return at_server(root, work)
    except (NotRunning, ConnectionRefusedError):
        return on_files(layout_of(root), work)
