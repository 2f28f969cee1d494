"""The answers about lines and texts, as clients, agents and the command line get them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import (
    BlamedFile,
    BlamedRange,
    ChangeAuthor,
    LineStory,
    TextChange,
    TextHistory,
)
from hankweave_server.features.answers.authors import authors_of, prompt_of, words_before
from hankweave_server.features.answers.blame import blame
from hankweave_server.features.answers.file_versions import ReadHistory
from hankweave_server.git.repo import RawCommit
from hankweave_server.plain_text import counted
from hankweave_server.worktree.names import shown

_HUNK = re.compile(rb"^@@ -\S+ \+([0-9]+)(?:,([0-9]+))? @@", re.MULTILINE)


def blame_of(
    past: ReadHistory,
    sha: Sha,
    path: bytes,
    first: int = 1,
    last: int | None = None,
    *,
    most: int | None = None,
) -> BlamedFile:
    """Return who has written lines of a file; at most so many ranges. Raises Refused."""
    version = past.files.file_at(sha, path)
    count = len(lines_of(past.files.content(version.blob)))
    found = blame(version, count, [_within(path, count, first, last)], past.files)
    page = found if most is None else found[:most]
    authors = authors_of(past, ((each.version.sha, each.version.path) for each in page))
    return BlamedFile(
        path=shown(path),
        checkpoint_sha=sha,
        lines=count,
        ranges=tuple(
            BlamedRange(
                **msgspec.structs.asdict(authors[each.version.sha, each.version.path]),
                from_line=each.start + 1,
                to_line=each.end,
                path=shown(each.version.path),
            )
            for each in page
        ),
        next_line=found[len(page)].start + 1 if len(page) < len(found) else None,
    )


def line_story(past: ReadHistory, sha: Sha, path: bytes, number: int) -> LineStory:
    """Return how a line came to be; raise Refused if there is none of that number."""
    files = past.files
    newest = files.file_at(sha, path)
    texts = lines_of(files.content(newest.blob))
    line = _within(path, len(texts), number, number)
    (blamed,) = blame(newest, len(texts), [line], files)
    later = list(files.later(blamed.version, newest))
    authors = authors_of(past, ((each.sha, each.path) for each in (blamed.version, *later)))
    author = authors[blamed.version.sha, blamed.version.path]
    patch = hunk_with(files.patch(blamed.version), blamed.origin + 1)
    return LineStory(
        path=shown(path),
        line=number,
        text=texts[line[0]].decode("utf-8", "backslashreplace"),
        author=author,
        prompt=prompt_of(past, author),
        words=words_before(past, author),
        patch=patch.decode("utf-8", "backslashreplace"),
        later=tuple(authors[each.sha, each.path] for each in later),
    )


def changes_of(
    past: ReadHistory, commits: Iterable[RawCommit], text: bytes, most: int | None = None
) -> TextHistory:
    """Return the changes that made a text more or less frequent, at most so many."""
    occurrences = past.files.occurrences(commits, text)
    found = list(islice(occurrences, None if most is None else most + 1))
    page = found[:most]
    authors = authors_of(past, ((each.sha, each.path) for each in page))
    return TextHistory(
        changes=tuple(
            TextChange(
                **msgspec.structs.asdict(authors[each.sha, each.path]),
                path=shown(each.path),
                before=each.before,
                after=each.after,
            )
            for each in page
        ),
        has_more=len(found) > len(page),
    )


def author_of(past: ReadHistory, sha: Sha) -> ChangeAuthor:
    """Return who made a checkpoint's change: the first call, if several have changed files."""
    paths: Sequence[bytes] = past.files.changed_paths(sha)
    authors = authors_of(past, [(sha, path) for path in paths] or [(sha, b"")])
    called = (author for author in authors.values() if author.call is not None)
    return next(called, next(iter(authors.values())))


def lines_of(content: bytes) -> list[bytes]:
    """Return the lines of a content, as git counts them, without their ends."""
    lines = content.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def hunk_with(patch: bytes, line: int) -> bytes:
    """Return the hunk of a diff that has a line of the new file; the diff if there is none."""
    hunks = list(_HUNK.finditer(patch))
    ends = [each.start() for each in hunks[1:]] + [len(patch)]
    for hunk, end in zip(hunks, ends, strict=True):
        first, count = int(hunk[1]), int(hunk[2] or 1)
        if first <= line < first + count:
            return patch[hunk.start() : end]

    return patch


def _within(path: bytes, count: int, first: int, last: int | None) -> tuple[int, int]:
    """Return numbered lines as a half-open range from 0; raise Refused if the file is shorter."""
    end = count if last is None else last
    if first > max(count, 1) or end > count or end < first - 1:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"{shown(path)} has only {counted(count, 'line')}.",
            path="$.data",
            hint="Name lines from 1 to that number.",
        )

    return first - 1, end
