"""Commit messages: write them in Hankweave's format, and parse them into facts.

The subject and the first block are Hankweave's, letter for letter (seed 000, "Commit Message
Format"). Our own facts follow as trailers, so that a commit alone is enough to rebuild what the
journal and the state file record about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.instants import epoch_ms, from_text, to_text
from hankweave_server.checkpoints.model import NO_CODON, CheckpointRequest
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.git.repo import RawCommit

AUTHOR = "Hankweave Runtime <froggie@southbridge.ai>"

_SUBJECT = re.compile(r"(?P<kind>[^:\s]+):(?P<codon>.*?) \[run:(?P<run>[^\]]*)\] ?(?P<name>.*)")
_LINE = re.compile(r"(?P<key>[A-Z][A-Za-z-]*): ?(?P<value>.*)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")


def written(request: CheckpointRequest, summary: str | None = None) -> bytes:
    """Return the message of a checkpoint."""
    codon = _one_line(request.codon_id or NO_CODON)
    name = _one_line(request.codon_name)
    body = [
        f"Codon: {name}",
        f"Status: {request.kind}",
        f"Timestamp: {to_text(request.timestamp)}",
    ]
    if request.duration_ms is not None:
        body.append(f"Duration: {request.duration_ms}ms")

    trailers = [f"Op-Id: {_one_line(request.operation_id)}", f"Event-Seq: {request.event_seq}"]
    if request.session_id is not None:
        trailers.append(f"Session: {_one_line(request.session_id)}")

    if request.message_id is not None:
        trailers.append(f"Message: {_one_line(request.message_id)}")

    trailers.append(f"Memory-Epoch: {request.memory_epoch}")
    if request.codon_state is not None:
        trailers.append(f"Codon-State: {_one_line(request.codon_state)}")

    if request.label is not None:
        trailers.append(f"Label: {_one_line(request.label)}")

    if summary is not None:
        trailers.append(f"Summary: {_one_line(summary)}")

    subject = f"{request.kind}:{codon} [run:{_one_line(request.run_id)}] {name}".rstrip()
    return "\n".join([subject, "", *body, "", *trailers, ""]).encode("utf-8", "replace")


def commit_object(tree: bytes, parents: Iterable[Sha], moment: datetime, message: bytes) -> bytes:
    """Return a commit as git stores it, in UTC."""
    when = f"{AUTHOR} {epoch_ms(moment) // 1000} +0000"
    lines = [
        f"tree {tree.hex()}",
        *(f"parent {parent}" for parent in parents),
        f"author {when}",
        f"committer {when}",
    ]
    return "\n".join(lines).encode() + b"\n\n" + message


def facts_in(commits: Iterable[RawCommit]) -> Iterator[CommitFacts]:
    """Yield the facts of checkpoints among commits; skip commits of other programs."""
    return (facts for commit in commits if (facts := facts_of(commit)) is not None)


def facts_of(commit: RawCommit) -> CommitFacts | None:
    """Return the facts of a checkpoint; None for a commit of another program.

    Commits of Hankweave itself are accepted, which have no trailers.
    """
    lines = commit.message.decode("utf-8", "replace").split("\n")
    subject = _SUBJECT.fullmatch(lines[0])
    if subject is None:
        return None

    values = {
        line["key"]: line["value"] for line in map(_LINE.fullmatch, lines[1:]) if line is not None
    }
    codon = subject["codon"]
    return CommitFacts(
        sha=commit.sha,
        tree=commit.tree,
        parents=commit.parents,
        kind=subject["kind"],
        codon_id=None if codon == NO_CODON else CodonId(codon),
        codon_name=values.get("Codon", subject["name"]),
        run_id=RunId(subject["run"]),
        timestamp=_moment(values.get("Timestamp"), commit.committed),
        duration_ms=_number((values.get("Duration") or "").removesuffix("ms")),
        operation_id=values.get("Op-Id"),
        event_seq=_number(values.get("Event-Seq")),
        session_id=values.get("Session"),
        message_id=values.get("Message"),
        memory_epoch=_number(values.get("Memory-Epoch")) or 0,
        label=values.get("Label"),
        codon_state=values.get("Codon-State"),
        summary=values.get("Summary"),
    )


def _one_line(text: str) -> str:
    """Replace control characters, so that a name cannot start a new line and forge a trailer."""
    return _CONTROL.sub(" ", text).strip()


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _moment(text: str | None, otherwise: datetime) -> datetime:
    if text is None:
        return otherwise

    try:
        return from_text(text)
    except ValueError:
        return otherwise
