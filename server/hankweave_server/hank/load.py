"""From a hank.json to a hank that can be run, or to everything that is wrong with it."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hankweave_protocol.hank import Codon, Hank, Loop
from hankweave_server.hank import check, overrides, shape, unknown_keys
from hankweave_server.hank.foreign_hash import foreign_hashes
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.json_source import Lines, Places, Source, parse
from hankweave_server.hank.problems import Finding, HankInvalid, Problem, did_you_mean, path_text
from hankweave_server.hank.prompts import PromptFault, ResolvedPrompt, resolve
from hankweave_server.hank.rules import FaultOf, Surroundings
from hankweave_server.hank.syntax import NotJson

__all__ = ["HankInvalid", "LoadedHank", "Problem", "ResolvedPrompt", "load", "no_hank"]

_HANK = msgspec.inspect.type_info(Hank)

_NOT_A_HANK = (msgspec.ValidationError, OverflowError, UnicodeEncodeError)
"""What msgspec raises at JSON of another shape; the last at half a surrogate pair in a key."""


@dataclass(frozen=True, slots=True)
class LoadedHank:
    """A checked hank with its prompts; nothing of it is read again while it runs."""

    hank: Hank
    """With its `overrides` put into the codons."""
    directory: Path
    """Absolute; what the hank refers to lies below it."""
    hank_hash: str
    """SHA-256 in hex of the file's canonical JSON: layout and order of keys do not matter.

    Empty where there is no hank.
    """
    prompts: Mapping[str, ResolvedPrompt]
    """By the codon's id in the hank, without an iteration."""
    warnings: tuple[Problem, ...] = ()
    """Unknown keys that were dropped, in the order of the file."""
    foreign_hashes: frozenset[str] = frozenset()
    """What the TypeScript Hankweave may have recorded as the hash of this file."""


def no_hank(directory: Path) -> LoadedHank:
    """Stands for the hank of a server without a plan, which takes checkpoints and goes back."""
    return LoadedHank(Hank(hank=()), directory, hank_hash="", prompts={})


def load(
    path: Path,
    fault_of_pattern: FaultOf = lambda _pattern: None,
    *,
    model_override: str | None = None,
) -> LoadedHank:
    """Load and check a hank.json; raise HankInvalid with all its problems at once.

    `fault_of_pattern` says why a pattern of tracked files cannot be used, None where it can.
    `model_override` is the model that every codon will run with, whatever the hank says.
    """
    with _without_collecting():
        return _load(path, fault_of_pattern, model_override)


def _load(path: Path, fault_of_pattern: FaultOf, model_override: str | None) -> LoadedHank:
    source = _parsed(path)
    files = HankFiles(path.absolute().parent.resolve())
    hank = _converted(source)
    findings = [
        *source.findings,
        *check.findings(source.value, Surroundings(files, fault_of_pattern, model_override)),
    ]
    if hank is None:
        findings += shape.findings(source.value, _HANK)

    if findings or not source.is_plain:
        _raise_problems(path, source, findings)

    if hank is None:
        # The shapes know a rule that `shape` does not tell of.
        raise HankInvalid(path, [Problem("$", None, None, _complaint(source))])

    return _loaded(path, source, overrides.applied(hank), files)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Nothing that loading makes is garbage before it ends: to look for some takes a third of the
    time that a hank of ten thousand codons needs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def hash_of(raw: Any) -> str:
    """Hashes a hank's JSON; `$schema` is left out, since editors add it (Hankweave, hankHash)."""
    content = {key: value for key, value in raw.items() if key != "$schema"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parsed(path: Path) -> Source:
    suggestion = None
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            suggestion = did_you_mean(path.name, (item.name for item in path.parent.iterdir()))

        message = f"The file cannot be read: {error.strerror}."
    except UnicodeDecodeError as error:
        message = f"The file is not UTF-8 text: byte {error.start + 1} is none of it."
    else:
        try:
            return parse(text)
        except NotJson as error:
            raise HankInvalid(path, _told(error.findings, Lines(text), None)) from None

    raise HankInvalid(path, [Problem("$", None, None, message, suggestion)])


def _converted(source: Source) -> Hank | None:
    """Gives the hank if its shape is right: the fast way, which tells no more than that."""
    try:
        return msgspec.convert(_typed(source.value), Hank)
    except _NOT_A_HANK:
        return None


def _complaint(source: Source) -> str:
    try:
        msgspec.convert(_typed(source.value), Hank)
    except _NOT_A_HANK as error:
        return str(error)

    return "The hank cannot be read."


def _typed(raw: Any) -> Any:
    """Says of each step what it is: one without a type is a codon."""
    if not isinstance(raw, dict) or not isinstance(raw.get("hank"), list):
        return raw

    steps = [
        {"type": shape.DEFAULT_TAG} | step if isinstance(step, dict) else step
        for step in raw["hank"]
    ]
    return raw | {"hank": steps}


def _loaded(path: Path, source: Source, hank: Hank, files: HankFiles) -> LoadedHank:
    codons = (codon for step in hank.hank for codon in _codons(step))
    try:
        prompts = {codon.id: resolve(hank, codon, files.prompt) for codon in codons}
    except PromptFault as error:
        raise HankInvalid(path, [Problem("$", None, None, str(error))]) from None

    unknown = list(unknown_keys.dropped(source.value, files))
    warnings = _told(unknown, Lines(source.text), Places(source.text)) if unknown else []
    return LoadedHank(
        hank,
        files.directory,
        hash_of(source.value),
        prompts,
        tuple(warnings),
        foreign_hashes(source.text),
    )


def _codons(step: Codon | Loop) -> tuple[Codon, ...]:
    return step.codons if isinstance(step, Loop) else (step,)


def _raise_problems(path: Path, source: Source, findings: Iterable[Finding]) -> None:
    """Raises HankInvalid if there are any, together with what only the text itself shows."""
    places = Places(source.text)
    told = {found.path for found in places.findings}
    known = [*places.findings, *(found for found in findings if found.path not in told)]
    if known:
        raise HankInvalid(path, _told(known, Lines(source.text), places))


def _told(findings: Iterable[Finding], lines: Lines, places: Places | None) -> list[Problem]:
    """Looks up where they stand and sorts by it; what was found twice is told once."""
    problems: dict[Problem, None] = {}
    for found in findings:
        offset = found.offset if places is None else places.offset_of(found)
        line, column = (None, None) if offset is None else lines.place(offset)
        path = path_text(found.path)
        problems[Problem(path, line, column, found.message, found.suggestion)] = None

    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
