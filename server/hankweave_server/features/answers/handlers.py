"""Handle `file.blame`, `file.why` and `file.pickaxe`: who wrote a line, and when a text came.

They read the repository and the journal beside the server's own readers, in one thread at a time.
Viewers may send them, also during a rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.commands import (
    ChangeOfFile,
    ChangesOfFile,
    FileBlame,
    FilePickaxe,
    FileWhy,
    ListFileChanges,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import BlamedFile, ChangeAuthor, LineStory, TextHistory
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.api.lookup import CheckpointLookup, Sources, the_path
from hankweave_server.domain import targets
from hankweave_server.features.answers.authors import authors_of
from hankweave_server.features.answers.blame import FileVersion
from hankweave_server.features.answers.file_versions import FileVersions, ReadHistory, file_versions
from hankweave_server.features.answers.stories import blame_of, changes_of, line_story
from hankweave_server.ledger.moments import open_for_search
from hankweave_server.paths import Layout
from hankweave_server.worktree.names import shown

T = TypeVar("T")

MOST_RANGES = 1_000
"""Ranges of lines in one reply to `file.blame`."""


class Answers:
    """The answers of one execution."""

    def __init__(self, layout: Layout, sources: Sources) -> None:
        self._layout = layout
        self._past = CheckpointLookup(sources)
        self._turn = anyio.Lock()

    @handles(FileBlame)
    async def blame(self, command: FileBlame) -> BlamedFile:
        """Return who has written the lines of a file."""
        path, last = the_path(command.path, at="$.data.path"), command.last
        if last is not None and last < command.first:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The last line, {last}, comes before the first one, {command.first}.",
                path="$.data.last",
                hint="Name a range such as first 10, last 20.",
            )

        def answer(past: ReadHistory) -> BlamedFile:
            sha = self._named(past, command.at)
            name = _of_file(past, sha, path)
            return blame_of(past, sha, name, command.first, last, most=MOST_RANGES)

        return await self._answer(answer, copies=command.copies)

    @handles(FileWhy)
    async def why(self, command: FileWhy, request: Request) -> LineStory:
        """Return how a line came to be; agents do not get the prompt, which may be of another."""
        path = the_path(command.path, at="$.data.path")

        def answer(past: ReadHistory) -> LineStory:
            sha = self._named(past, command.at)
            return line_story(past, sha, _of_file(past, sha, path), command.line)

        story = await self._answer(answer)
        return msgspec.structs.replace(story, prompt=None) if request.caller.is_agent else story

    @handles(ListFileChanges)
    async def changes(self, command: ListFileChanges) -> ChangesOfFile:
        """Return the changes of a file, newest first."""
        path = the_path(command.path, at="$.data.path")

        def answer(past: ReadHistory) -> ChangesOfFile:
            sha = self._named(past, command.at)
            newest = past.files.file_at(sha, _of_file(past, sha, path))
            found = list(islice(_versions(past.files, newest), command.limit + 1))
            page = found[: command.limit]
            authors = authors_of(past, ((each.sha, each.path) for each in page))
            changes = (_change(past.files, each, authors[each.sha, each.path]) for each in page)
            return ChangesOfFile(changes=tuple(changes), has_more=len(found) > len(page))

        return await self._answer(answer)

    @handles(FilePickaxe)
    async def pickaxe(self, command: FilePickaxe) -> TextHistory:
        """Return the changes that made a text more or less frequent."""
        if command.everywhere and command.at is not None:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "`everywhere` and `at` exclude each other.",
                path="$.data.at",
                hint="Leave one of them out.",
            )

        def answer(past: ReadHistory) -> TextHistory:
            if command.everywhere:
                commits = past.files.every_commit()
            else:
                commits = past.files.line(self._named(past, command.at))

            return changes_of(past, commits, command.text.encode(), command.limit)

        return await self._answer(answer)

    async def _answer(self, answer: Callable[[ReadHistory], T], *, copies: bool = False) -> T:
        def answered() -> T:
            state = self._past.sources.state()
            with (
                closing(open_for_search(self._layout)) as journal,
                file_versions(self._layout, journal, state, copies=copies) as files,
            ):
                return answer(ReadHistory(self._layout, files, journal, state))

        async with self._turn:
            return await anyio.to_thread.run_sync(answered)

    def _named(self, past: ReadHistory, text: str | None) -> Sha:
        if text is not None:
            try:
                return targets.named(past.state, self._past.sources.known(), text).sha
            except Refused as refused:
                raise Refused(
                    refused.code, refused.message, path="$.data.at", hint=refused.hint
                ) from None

        newest = past.files.newest()
        if newest is None:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                "There is no checkpoint yet.",
                path="$.data.at",
                hint="Take one first.",
            )

        return newest


def _versions(files: FileVersions, newest: FileVersion) -> Iterator[FileVersion]:
    """Yield the version that each change of a file has made, newest first."""
    version = files.beginning(newest)
    yield version
    while origins := files.before(version):
        version = files.beginning(origins[0])
        yield version


def _change(files: FileVersions, version: FileVersion, author: ChangeAuthor) -> ChangeOfFile:
    origins, path = files.before(version), shown(version.path)
    old = files.content(origins[0].blob) if origins else None
    lines = files.repo.line_diff(path, old, files.content(version.blob), patch_wanted=False)
    return ChangeOfFile(
        **msgspec.structs.asdict(author),
        path=path,
        lines_added=lines.added,
        lines_removed=lines.removed,
    )


def _of_file(past: ReadHistory, sha: Sha, meanings: tuple[bytes, ...]) -> bytes:
    """Return which of the meanings of a path the checkpoint has; the first one if none."""
    has = (path for path in meanings if past.files.version(sha, path) is not None)
    return next(has, meanings[0])
