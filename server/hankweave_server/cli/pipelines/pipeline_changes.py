"""What the steps of a pipeline have changed: the difference that is left of all that they did."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hankweave_client.calls import Calls
from hankweave_protocol.ids import Sha
from hankweave_server.cli.pipelines.report import DIFF_LIMIT
from hankweave_server.local.reader import on_files
from hankweave_server.paths import Layout


@dataclass(frozen=True, slots=True)
class Changes:
    """The files that differ, by path, and how."""

    files: tuple[tuple[str, str], ...]
    """Path and `created`, `modified` or `deleted`."""
    diff: str
    """A unified diff, to the end of the file at which it is longer than a report wants it."""


NOTHING = Changes((), "")


def changes_between(layout: Layout, before: Sha, after: Sha, touched: Collection[str]) -> Changes:
    """Compares two checkpoints, but for what nobody of the pipeline has touched.

    That a step touched a file is not enough: a later one, or the way back to another attempt, may
    have undone it.
    """

    async def compare(calls: Calls) -> Changes:
        files: list[tuple[str, str]] = []
        diff, cursor, is_first = "", None, True
        while is_first or cursor is not None:
            wants_more = len(diff) <= DIFF_LIMIT
            page = await calls.diff(before, after, patch=wants_more, cursor=cursor)
            found = [each for each in page.files if each.path in touched]
            files += ((each.path, each.status) for each in found)
            diff += "".join(each.patch or "" for each in found)
            cursor, is_first = page.cursor, False

        return Changes(tuple(files), diff)

    return on_files(layout, compare)
