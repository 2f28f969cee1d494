"""From a hank.json to a hank that can be run, or to everything that is wrong with it.

What a hank's `overrides` change in its codons (Hankweave, hank.json).

The hashes by which the TypeScript Hankweave knows a hank.json (`hankHash`).

Until 0.11 it hashes the file's bytes. 0.12 hashes the file as its next validation will leave it:
with a `$schema` at the top if it has none, and then indented by two spaces.

Keys that a hank may hold and that mean nothing: Hankweave drops them, and so does this loader.

Hankweave validates a hank with zod. Where its schema is strict an unknown key is an error, which
`shape` reports. Everywhere else zod removes the key without a word. A hank that relies on that must
load, but a misspelt option must not vanish in silence either: each dropped key becomes a warning.
"""

from __future__ import annotations

import gc
import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from hankweave_protocol.hank import Codon, Hank, Loop, Overrides
from hankweave_protocol.sentinels import SentinelConfig
from hankweave_server.hank import check, rules, shape
from hankweave_server.hank.json_source import Lines, NotJson, Places, Source, parse
from hankweave_server.hank.problems import (
    Finding,
    HankInvalid,
    JsonPath,
    Problem,
    did_you_mean,
    path_text,
)
from hankweave_server.hank.prompts import HankFiles, PromptFault, ResolvedPrompt, resolve
from hankweave_server.hank.rules import (
    FaultOf,
    Node,
    Surroundings,
    codons_of,
    object_at,
    objects,
    steps_of,
    texts,
)
from hankweave_server.hank.shape import DEFAULT_TAG


def applied(hank: Hank) -> Hank:
    """Gives the hank as it runs: with its model for every codon, its idle timeout where a codon
    has none of its own."""
    overrides = hank.overrides
    if overrides is None or (overrides.model is None and overrides.shim_idle_timeout is None):
        return hank

    steps = tuple(_step(step, overrides) for step in hank.hank)
    return msgspec.structs.replace(hank, hank=steps)


def _step(step: Codon | Loop, overrides: Overrides) -> Codon | Loop:
    match step:
        case Codon():
            return _codon(step, overrides)
        case Loop():
            codons = tuple(_codon(codon, overrides) for codon in step.codons)
            return msgspec.structs.replace(step, codons=codons)


def _codon(codon: Codon, overrides: Overrides) -> Codon:
    idle = codon.shim_idle_timeout
    return msgspec.structs.replace(
        codon,
        model=overrides.model or codon.model,
        shim_idle_timeout=overrides.shim_idle_timeout if idle is None else idle,
    )


_SCHEMA = "https://unpkg.com/hankweave@latest/schemas/hank.schema.json"


def foreign_hashes(text: str) -> frozenset[str]:
    """Return every hash that a version of Hankweave records for the text of a hank.json."""
    return frozenset(map(_sha256, (text, _with_schema(text))))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_schema(text: str) -> str:
    """Return what `JSON.stringify(value, null, 2)` writes of the hank with a `$schema`."""
    try:
        hank = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        return text

    if not isinstance(hank, dict) or hank.get("$schema"):
        return text

    whole: dict[str, Any] = {"$schema": _SCHEMA} | hank
    whole["$schema"] = hank.get("$schema", _SCHEMA)
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def _number(text: str) -> int | float:
    """JavaScript has one kind of number: it writes 2.0 as 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def dropped(raw: Any, files: HankFiles) -> Iterator[Finding]:
    """Find every unknown key of a valid hank that loading drops, in its sentinels as well."""
    yield from _in(raw, _type_of(Hank), ())
    root = Node(raw, ())
    for step in steps_of(root):
        for codon in codons_of(step):
            for entry in objects(codon, "sentinels"):
                yield from _in_sentinel(entry, files)


def dropped_in_sentinel(raw: Any) -> Iterator[Finding]:
    """Find the unknown keys that loading drops from one sentinel's configuration."""
    yield from _in(raw, _type_of(SentinelConfig), ())


def _in_sentinel(entry: Node, files: HankFiles) -> Iterator[Finding]:
    inline = object_at(entry, "sentinelConfig")
    if inline is not None:
        yield from _in(inline.raw, _type_of(SentinelConfig), inline.path)

    for reference, path in texts(entry, "sentinelConfig"):
        try:
            raw = parse(files.text(reference)).value
        except (NotJson, OSError, UnicodeDecodeError):
            continue  # An error of its own, reported elsewhere.

        for found in dropped_in_sentinel(raw):
            where = f"{posixpath.normpath(reference)}: {path_text(found.path)}"
            yield Finding(path, f"{where}: {found.message}", found.suggestion)


def _in(raw: Any, kind: inspect.Type, path: JsonPath) -> Iterator[Finding]:
    match kind:
        case inspect.StructType() if isinstance(raw, dict):
            yield from _in_struct(raw, kind, path)
        case inspect.VarTupleType() if isinstance(raw, list):
            for index, item in enumerate(raw):
                yield from _in(item, kind.item_type, (*path, index))
        case inspect.UnionType():
            member = _member(raw, kind)
            if member is not None:
                yield from _in(raw, member, path)
        case _:
            return


def _in_struct(raw: dict[str, Any], kind: inspect.StructType, path: JsonPath) -> Iterator[Finding]:
    fields = _fields_of(kind.cls)
    for name, value in raw.items():
        field = fields.get(name)
        if field is not None:
            if _can_drop(field):
                yield from _in(value, field, (*path, name))
        elif not kind.forbid_unknown_fields and name != kind.tag_field:
            hint = rules.hint(name, kind.cls, fields)
            yield Finding((*path, name), f"The unknown field {name!r} is ignored.", hint)


def _member(raw: Any, kind: inspect.UnionType) -> inspect.Type | None:
    """Choose the member of a union that a value is."""
    if isinstance(raw, list):
        return next((each for each in kind.types if isinstance(each, inspect.VarTupleType)), None)

    if not isinstance(raw, dict):
        return None

    structs = [each for each in kind.types if isinstance(each, inspect.StructType)]
    for struct in structs:
        if struct.tag_field is None or raw.get(struct.tag_field, DEFAULT_TAG) == struct.tag:
            return struct

    return None


@cache
def _type_of(cls: type) -> inspect.Type:
    return inspect.type_info(cls)


@cache
def _fields_of(cls: type) -> Mapping[str, inspect.Type]:
    kind = _type_of(cls)
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field.type for field in kind.fields}


def _can_drop(kind: inspect.Type) -> bool:
    """Tell whether a value of this type can hold an open object: most fields need no look."""
    match kind:
        case inspect.StructType():
            return _struct_can_drop(kind.cls)
        case inspect.VarTupleType():
            return _can_drop(kind.item_type)
        case inspect.UnionType():
            return any(map(_can_drop, kind.types))
        case _:
            return False


@cache
def _struct_can_drop(cls: type) -> bool:
    kind = _type_of(cls)
    assert isinstance(kind, inspect.StructType)
    return not kind.forbid_unknown_fields or any(map(_can_drop, _fields_of(cls).values()))


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

    return _loaded(path, source, applied(hank), files)


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

    unknown = list(dropped(source.value, files))
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
