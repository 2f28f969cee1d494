"""The commits we make, and how they are told from a person's (seed 003, "Concept")."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from urllib.parse import quote_from_bytes

from hankweave_server.user_git.errors import CheckpointError
from hankweave_server.user_git.repository import Commit

PREFIX = b"architect:checkpoint:"
ROLLBACK = b"architect:rollback:"
SAFETY = b"architect:safety:"
STAGED = b"architect:staged:"

_STEP = re.compile(rb"step-(\d{1,18})(?: -- (.*))?", re.DOTALL)
_TRAILER = re.compile(
    rb"\n\n(?=Hankweave-)(?:Hankweave-Checkpoint: (?P<checkpoint>[0-9a-f]{40,64})\n)?"
    rb"(?:Hankweave-Workspace: (?P<folder>\S*)\n)?\Z"
)


@dataclass(frozen=True, slots=True)
class Marked:
    """What the message of a checkpoint says."""

    step: int
    name: str | None
    """Of a named step; None of a numbered one."""
    message: str


def message_of(title: str, text: str, folder: bytes, checkpoint: str | None = None) -> bytes:
    """Write a checkpoint's message.

    A workspace that is not the whole repository is named, and so is the checkpoint of the shadow
    repository that has the same files.
    """
    content = PREFIX + _encoded(title) + (b" -- " + _encoded(text) if text else b"")
    if b"\0" in content:
        raise CheckpointError("A checkpoint's message cannot hold a NUL.")

    trailers = b""
    if checkpoint is not None:
        trailers += b"Hankweave-Checkpoint: " + checkpoint.encode() + b"\n"

    if folder:
        trailers += b"Hankweave-Workspace: " + quote_from_bytes(folder).encode() + b"\n"

    return content + b"\n" + (b"\n" + trailers if trailers else b"")


def marked(commit: Commit) -> Marked | None:
    """Reads a checkpoint's message; None for any other commit, whatever it mentions."""
    if not commit.message.startswith(PREFIX):
        return None

    told = _TRAILER.sub(b"\n", commit.message).removeprefix(PREFIX).removesuffix(b"\n")
    numbered = _STEP.fullmatch(told)
    if numbered is not None:
        return Marked(int(numbered[1]), None, os.fsdecode(numbered[2] or b""))

    name = told.partition(b"\n")[0].partition(b" -- ")[0]
    return Marked(0, os.fsdecode(name), os.fsdecode(told)) if name else None


def belongs_to(commit: Commit, folder: bytes) -> bool:
    """Tells whether a checkpoint is of this workspace, and not of another one beside it."""
    trailer = _TRAILER.search(commit.message)
    named = None if trailer is None else trailer["folder"]
    return named is None or not folder or named == quote_from_bytes(folder).encode()


def shadow_checkpoint(commit: Commit) -> str | None:
    """Return the checkpoint of the shadow repository that a commit was made of, if any."""
    trailer = _TRAILER.search(commit.message) if marked(commit) is not None else None
    found = None if trailer is None else trailer["checkpoint"]
    return None if found is None else found.decode()


def is_ours(commit: Commit) -> bool:
    """Tells whether no person made the commit, so that a rollback may step back over it."""
    return commit.message.startswith((PREFIX, ROLLBACK))


def what(commit: Commit) -> bytes:
    """Says in a line which commit is meant."""
    subject = commit.subject
    return subject.removeprefix(PREFIX) or commit.sha[:7].encode()


def content_of(tree: bytes, parents: list[str], who: tuple[str, str], message: bytes) -> bytes:
    """Writes a commit object, byte for byte."""
    now = int(time.time())
    ahead = time.localtime(now).tm_gmtoff // 60
    zone = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}{abs(ahead) % 60:02}"
    person = _encoded(f"{who[0]} <{who[1]}> {now} {zone}")
    lines = [b"tree " + tree.hex().encode()]
    lines += [b"parent " + parent.encode() for parent in parents]
    lines += [b"author " + person, b"committer " + person, b""]
    return b"\n".join(lines) + b"\n" + message


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
