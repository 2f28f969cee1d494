"""The TypeScript Hankweave's journal and state.json, and their conversion to this format.

Until 0.10 `events/events.jsonl` is plain: one event per line, without `seq`. Since 0.11 a finished
run's journal is compressed:

    events/events.jsonl.zst              the journal, whole; bodies of 4 KiB and more are pointers
    events/journal.meta.json             the SHA-256 of the journal as it was, and its size
    events/cas/<2 hex>/<sha256>.zst      the bodies

A pointer is `"contentRef":{"sha256":…,"bytes":…,"encoding":"utf-8","ref":"cas"}` in place of
`"content":"…"`, in the `data` of `file.updated` or the `recentFileAccess` of `state.snapshot`. The
body is put back into the text of the line, so that the result can be checked against the SHA-256.

In the conversion each event gets a `seq`, and two things change. The first version of
`file.updated` gets the fingerprint that the second one has, besides its content. An event that has
another shape here (every `state.transition`) is renamed to `hankweave.<type>`, which readers skip
like any event they do not know. The state itself follows as transitions (`reducer.founding`).

`decode_state` reads a state.json that Hankweave wrote. Its schema is the same, but looser in a few
places: the plan's codons carry a resolved model instead of its name, and keys of their own;
sentinels and counts are absent if a codon did not get far enough to have them. Absent fields get
the value that means "nothing"; unknown ones are left out. A file that this program wrote is never
read this way: in it, a gap is damage.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec
import zstandard

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import EVENTS, FileUpdated, StateTransition
from hankweave_protocol.hank import Codon, ContainerBudget
from hankweave_protocol.state import NO_TOKENS, CodonStatus, State
from hankweave_server.ledger.journal import JournalCorrupt

RENAMED = "hankweave."
"""The prefix for the type of an event that has another shape here."""

_COMPRESSED = "events.jsonl.zst"
_MANIFEST = "journal.meta.json"
_BODIES = "cas"
_CHUNK = 1024 * 1024
_LARGEST_BODY = 512 * 1024 * 1024
_POINTER = re.compile(
    rb'"contentRef":(\{"sha256":"([0-9a-f]{64})","bytes":(\d{1,10}),"encoding":"utf-8","ref":"cas"\})'
)
_HAVE_BODIES = (b'"type":"file.updated"', b'"type":"state.snapshot"')


@dataclass(frozen=True, slots=True)
class ForeignJournal:
    """The location of a journal that another program wrote."""

    path: Path
    is_compressed: bool

    def lines(self) -> Iterator[bytes]:
        """Return the lines as they were written, bodies included, without their newlines.

        Bytes after the last newline were never a whole event. Raises OSError, and JournalCorrupt,
        after the last line, if a compressed journal does not match its manifest.
        """
        if self.is_compressed:
            yield from _restored(self.path)
            return

        with self.path.open("rb") as plain:
            for line in plain:
                if line.endswith(b"\n"):
                    yield line[:-1]


def find(journal: Path) -> ForeignJournal | None:
    """Return a foreign journal in this place; None if there is none, or it has this format."""
    try:
        with journal.open("rb") as lines:
            first = lines.readline()
    except FileNotFoundError:
        compressed = journal.with_name(_COMPRESSED)
        return ForeignJournal(compressed, is_compressed=True) if compressed.is_file() else None

    try:
        header = msgspec.json.decode(first)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return None

    if not isinstance(header, dict) or "seq" in header or "type" not in header:
        return None

    return ForeignJournal(journal, is_compressed=False)


# --- decompressing --------------------------------------------------------------------------------


class _Manifest(msgspec.Struct, rename="camel"):
    original_sha256: str


def _restored(path: Path) -> Iterator[bytes]:
    bodies = _Bodies(path.with_name(_BODIES))
    digest, number, rest = hashlib.sha256(), 0, b""
    try:
        for chunk in _decompressed(path):
            *whole, rest = (rest + chunk).split(b"\n")
            for pointer in whole:
                line = bodies.inlined(pointer)
                digest.update(line + b"\n")
                number += 1
                yield line
    except zstandard.ZstdError as error:
        raise JournalCorrupt(path, number + 1, f"it cannot be decompressed: {error}") from error

    digest.update(rest)
    original = _original_digest(path.with_name(_MANIFEST))
    if bodies.missing == 0 and original not in (None, digest.hexdigest()):
        raise JournalCorrupt(path, number, f"this is not the journal that {_MANIFEST} describes")


def _decompressed(path: Path) -> Iterator[bytes]:
    with (
        path.open("rb") as compressed,
        zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True) as reader,
    ):
        while chunk := reader.read(_CHUNK):
            yield chunk


def _original_digest(manifest: Path) -> str | None:
    """Return the SHA-256 of the original journal; None without a manifest of a known format."""
    try:
        return msgspec.json.decode(manifest.read_bytes(), type=_Manifest).original_sha256
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class _Bodies:
    """The bodies that were moved out of a journal; a missing one stays a pointer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.missing = 0

    def inlined(self, line: bytes) -> bytes:
        """Put the content back into a line of the two types that have one."""
        if not any(mark in line for mark in _HAVE_BODIES):
            return line

        return _POINTER.sub(self._content, line)

    def _content(self, pointer: re.Match[bytes]) -> bytes:
        body = self._body(pointer[2].decode(), int(pointer[3]))
        if body is None:
            self.missing += 1
            return pointer[0]

        # The escapes of JSON.stringify, byte for byte.
        return b'"content":' + json.dumps(body, ensure_ascii=False).encode()

    def _body(self, sha256: str, size: int) -> str | None:
        if size > _LARGEST_BODY:
            return None

        path = self._folder / sha256[:2] / f"{sha256}.zst"
        try:
            with (
                path.open("rb") as compressed,
                zstandard.ZstdDecompressor().stream_reader(compressed) as reader,
            ):
                content = reader.read(size + 1)
        except (OSError, zstandard.ZstdError):
            return None

        if hashlib.sha256(content).hexdigest() != sha256:
            return None

        with suppress(UnicodeDecodeError):
            return content.decode()

        return None


# --- converting -----------------------------------------------------------------------------------


class _Foreign(msgspec.Struct):
    type: str
    timestamp: str = ""
    id: str = ""
    data: dict[str, Any] = {}


class _Ours(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A line of this program's journal, with any data."""

    id: str
    seq: int
    timestamp: str
    type: str
    data: msgspec.Raw
    run_id: str | None = None
    codon_id: str | None = None


_decode = msgspec.json.Decoder(_Foreign).decode
_encode = msgspec.json.Encoder().encode


@dataclass
class Importing:
    """Converts foreign lines, one after the other."""

    seq: int = 0
    skipped: int = 0
    """Lines that are not events: left out, as Hankweave's own readers do."""
    without_body: int = 0
    """Events whose content was moved to the store of bodies and is gone from there."""
    last_timestamp: str = "1970-01-01T00:00:00.000Z"
    _run_id: str | None = field(default=None, repr=False)

    def lines(self, foreign: Iterator[bytes]) -> Iterator[bytes]:
        for line in foreign:
            if not line.strip():
                continue

            try:
                event = _decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
                self.skipped += 1
            else:
                self.without_body += _POINTER.search(line) is not None
                yield self._line(event)

    def _line(self, event: _Foreign) -> bytes:
        self.seq += 1
        self._note_time(event.timestamp)
        self._note_run(event)
        data = event.data
        if event.type == FileUpdated.TYPE:
            data = _with_fingerprint(data)

        codon = data.get("codonId")
        ours = _Ours(
            id=event.id or f"hankweave-{self.seq}",
            seq=self.seq,
            timestamp=self.last_timestamp,
            type=event.type,
            data=msgspec.Raw(_encode(data)),
            run_id=self._run_id,
            codon_id=codon if isinstance(codon, str) and codon else None,
        )
        return _readable(ours)

    def _note_time(self, timestamp: str) -> None:
        with suppress(ValueError):
            self.last_timestamp = instants.to_text(instants.from_text(timestamp))

    def _note_run(self, event: _Foreign) -> None:
        """Remember the run: Hankweave's events do not name theirs, its transitions do."""
        run = event.data.get("runId")
        if event.type == StateTransition.TYPE and isinstance(run, str) and run:
            self._run_id = run


def _with_fingerprint(data: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that version 2 of `file.updated` has instead of the content."""
    reference = data.get("contentRef")
    content = data.get("content")
    if isinstance(content, str):
        raw = content.encode("utf-8", "surrogatepass")
        known = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    elif isinstance(reference, dict):
        known = {key: reference[key] for key in ("sha256", "bytes") if key in reference}
    else:
        known = {"sha256": "", "bytes": 0}

    return {**known, "source": {"kind": "tool_use", "toolUseId": ""}, **data}


def _readable(line: _Ours) -> bytes:
    """Encode a line so that each reader of the journal can decode it."""
    encoded = _encode(line)
    if line.type in EVENTS.names and not _fits(line.type, encoded):
        line.type = RENAMED + line.type
        encoded = _encode(line)

    return encoded


def _fits(kind: str, encoded: bytes) -> bool:
    if kind == StateTransition.TYPE:
        return False  # It folds differently; transitions to the state follow the import.

    try:
        codec.decode_event(encoded)
    except Refused:
        return False

    return True


Json = dict[str, Any]

_NO_TOKENS: Json = msgspec.to_builtins(NO_TOKENS)
_NO_LOADED: Json = {"loaded": [], "totalCost": 0.0}
_NO_EXECUTED: Json = {"executed": [], "totalCost": 0.0}
_WORKING: Json = {
    "sentinels": _NO_LOADED,
    "currentCost": 0.0,
    "currentTokens": _NO_TOKENS,
    "assistantMessageCount": 0,
}
_ABSENT: dict[str, Json] = {
    "starting": {"sentinels": _NO_LOADED},
    "initializing": {"sentinels": _NO_LOADED},
    "running": _WORKING,
    "completing-sentinels": _WORKING,
    "completed": {
        "sentinels": _NO_EXECUTED,
        "finalCost": 0.0,
        "finalTokens": _NO_TOKENS,
        "exitCode": 0,
        "resultMessageReceived": True,
    },
    "failed": {
        "sentinels": _NO_EXECUTED,
        "partialCost": 0.0,
        "partialTokens": _NO_TOKENS,
        "exitCode": -1,
    },
    "skipped": {
        "sentinels": _NO_EXECUTED,
        "partialCost": 0.0,
        "partialTokens": _NO_TOKENS,
        "assistantMessageCount": 0,
    },
}
_CODON_KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(Codon))
_BUDGET_KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(ContainerBudget))


def decode_state(content: bytes) -> State:
    """Decode a state of this program or of Hankweave; raise Refused with the path of the error."""
    try:
        return codec.decode_value(State, content)
    except Refused as refused:
        foreign = _foreign(content)
        if foreign is None:
            raise

        try:
            return codec.decode_value(State, codec.encode(foreign))
        except Refused:
            # The path in the original file helps a reader more than that in the converted copy.
            raise refused from None


def _foreign(content: bytes) -> Json | None:
    """Return the normalized content of a file that Hankweave can have written, else None."""
    try:
        raw = codec.decode_value(dict[str, Any], content)
        if "schemaVersion" in raw:
            return None

        return raw | {
            "currentRunId": raw.get("currentRunId"),
            "runs": [_run(run) for run in raw["runs"]],
            "executionPlan": [_plan_entry(entry) for entry in raw.get("executionPlan", [])],
        }
    except (Refused, LookupError, TypeError, AttributeError):
        return None


def _run(run: Json) -> Json:
    return run | {"codons": [_codon_execution(codon) for codon in run["codons"]]}


def _codon_execution(codon: Json) -> Json:
    status = codon["status"]
    if status not in get_args(CodonStatus):
        return codon

    present = {key: value for key, value in codon.items() if value is not None}
    return _ABSENT.get(status, {}) | _in_known_loop(present)


def _plan_entry(entry: Json) -> Json:
    codon = {key: value for key, value in entry["codon"].items() if key in _CODON_KEYS}
    model = codon.get("model")
    if isinstance(model, dict):
        codon["model"] = model.get("modelId") or model["id"]

    codon = {"continuationMode": "fresh"} | codon | {"type": "codon"}
    return _in_known_loop(entry) | {"codon": codon}


def _in_known_loop(owner: Json) -> Json:
    """Leave out unknown keys of a loop's budget, which is decoded as strictly as a hank."""
    context = owner.get("loopContext")
    budget = context.get("loopBudget") if isinstance(context, dict) else None
    if not isinstance(context, dict) or not isinstance(budget, dict):
        return owner

    known = {key: budget[key] for key in _BUDGET_KEYS & budget.keys() if budget[key] is not None}
    return owner | {"loopContext": context | {"loopBudget": known}}
