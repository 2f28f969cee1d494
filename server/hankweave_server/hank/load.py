"""Loading of a hank.json: a hank that can be run, or all of its problems.

`load` parses the file, checks it, applies its `overrides` to the codons, and resolves the prompts.

It also computes hashes. `hash_of` is this server's own. `foreign_hashes` are those that the
TypeScript Hankweave records (`hankHash`): until 0.11 it hashes the file's bytes; 0.12 hashes the
file as its next validation will leave it, with a `$schema` at the top if it has none, and then
indented by two spaces.

Unknown keys: Hankweave validates a hank with zod. Where its schema is strict, an unknown key is an
error, which `shape` reports. Everywhere else zod removes the key silently. A hank that relies on
that must load, but a misspelt option must not be dropped silently either, so each dropped key
becomes a warning.
"""

from __future__ import annotations

import gc
import hashlib
import json
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
from hankweave_server.hank.json_source import JsonPlaces, LineNumbers, NotJson, Source, parse
from hankweave_server.hank.problems import (
    Finding,
    HankInvalid,
    HankProblem,
    JsonPath,
    did_you_mean,
    path_text,
)
from hankweave_server.hank.prompts import HankFiles, PromptFault, ResolvedPrompt, resolve
from hankweave_server.hank.rules import (
    FaultOf,
    HankContext,
    JsonNode,
    codons_of,
    object_at,
    objects,
    steps_of,
    texts,
)
from hankweave_server.hank.shape import DEFAULT_TAG

__all__ = ["HankInvalid", "HankProblem", "LoadedHank", "ResolvedPrompt", "load", "no_hank"]


def applied(hank: Hank) -> Hank:
    """Return the hank with its overrides applied.

    Its model replaces that of every codon; its idle timeout applies to codons without one.
    """
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
    """Return the hashes that versions of Hankweave record for the text of a hank.json."""
    return frozenset(map(_sha256, (text, _with_schema(text))))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_schema(text: str) -> str:
    """Return the output of `JSON.stringify(value, null, 2)` for the hank with a `$schema`."""
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
    """Parse a number as JavaScript does, which has one type and writes 2.0 as 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def dropped(raw: Any, files: HankFiles) -> Iterator[Finding]:
    """Yield every unknown key of a valid hank that loading drops, including in sentinels."""
    yield from _in(raw, _type_of(Hank), ())
    root = JsonNode(raw, ())
    for step in steps_of(root):
        for codon in codons_of(step):
            for entry in objects(codon, "sentinels"):
                yield from _in_sentinel(entry, files)


def dropped_in_sentinel(raw: Any) -> Iterator[Finding]:
    """Yield the unknown keys that loading drops from one sentinel's configuration."""
    yield from _in(raw, _type_of(SentinelConfig), ())


def _in_sentinel(entry: JsonNode, files: HankFiles) -> Iterator[Finding]:
    inline = object_at(entry, "sentinelConfig")
    if inline is not None:
        yield from _in(inline.raw, _type_of(SentinelConfig), inline.path)

    for reference, path in texts(entry, "sentinelConfig"):
        try:
            raw = parse(files.text(reference)).value
        except (NotJson, OSError, UnicodeDecodeError):
            continue  # An error, which the checks report.

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
    """Return the member of a union that a value belongs to."""
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
    """Return whether values of a type can contain an open object; most fields cannot."""
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


_HANK = msgspec.inspect.type_info(Hank)

_NOT_A_HANK = (msgspec.ValidationError, OverflowError, UnicodeEncodeError)
"""Errors of msgspec for JSON of a different shape; the last for an unpaired surrogate in a key."""


@dataclass(frozen=True, slots=True)
class LoadedHank:
    """A checked hank with its prompts; no file of it is read again during the run."""

    hank: Hank
    """The hank with its `overrides` applied to the codons."""
    directory: Path
    """Absolute; all files that the hank refers to are below it."""
    hank_hash: str
    """SHA-256 in hex of the file's canonical JSON: layout and order of keys do not matter.

    Empty if there is no hank.
    """
    prompts: Mapping[str, ResolvedPrompt]
    """By the codon's id in the hank, without an iteration."""
    warnings: tuple[HankProblem, ...] = ()
    """Unknown keys that were dropped, in the order of the file."""
    foreign_hashes: frozenset[str] = frozenset()
    """The hashes that the TypeScript Hankweave may have recorded for this file."""

    @property
    def name(self) -> str:
        """The name in its `meta`, or that of its directory."""
        return self.directory.name if self.hank.meta is None else self.hank.meta.name


def no_hank(directory: Path) -> LoadedHank:
    """Return an empty hank, for a server without a plan, which still takes checkpoints."""
    return LoadedHank(Hank(hank=()), directory, hank_hash="", prompts={})


def load(
    path: Path,
    fault_of_pattern: FaultOf = lambda _pattern: None,
    *,
    model_override: str | None = None,
    models: Callable[[], Collection[str]] = tuple,
) -> LoadedHank:
    """Load and check a hank.json; raise HankInvalid with all its problems at once.

    `fault_of_pattern` returns why a pattern of tracked files is unusable, or None if it is usable.
    `model_override` is the model that every codon will run with, whatever the hank says. `models`
    returns the names of known models, to report misspelt ones beside other problems.
    """
    with _without_collecting():
        return _load(path, fault_of_pattern, model_override, models)


def _load(
    path: Path,
    fault_of_pattern: FaultOf,
    model_override: str | None,
    models: Callable[[], Collection[str]],
) -> LoadedHank:
    source = _parsed(path)
    files = HankFiles(path.absolute().parent.resolve())
    hank = _converted(source)
    findings = [
        *source.findings,
        *check.findings(source.value, HankContext(files, fault_of_pattern, model_override)),
    ]
    if hank is None:
        findings += shape.findings(source.value, _HANK)

    if findings and model_override is None:
        findings += check.misspelt_models(source.value, models())

    if findings or not source.is_plain:
        _raise_problems(path, source, findings)

    if hank is None:
        # msgspec enforces a rule that `shape` does not check.
        raise HankInvalid(path, [HankProblem("$", None, None, _complaint(source))])

    return _loaded(path, source, applied(hank), files)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Disable garbage collection while loading.

    Loading creates no garbage before it ends, and collection takes a third of the time of a hank
    with ten thousand codons.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_unchecked(path: Path, hank_hash: str | None) -> Hank | None:
    """Return the hank that has this hash, without checks and prompts; None if it cannot be read.

    For what is only said about a hank that has been checked before: nothing may run it.
    """
    try:
        source = _parsed(path)
        if not isinstance(source.value, dict) or hash_of(source.value) != hank_hash:
            return None
    except HankInvalid:
        return None

    return _converted(source)


def hash_of(raw: Any) -> str:
    """Hash a hank's JSON without `$schema`, which editors add (Hankweave, hankHash)."""
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
        message = f"The file is not UTF-8 text: byte {error.start + 1} is invalid."
    else:
        try:
            return parse(text)
        except NotJson as error:
            raise HankInvalid(path, _told(error.findings, LineNumbers(text), None)) from None

    raise HankInvalid(path, [HankProblem("$", None, None, message, suggestion)])


def _converted(source: Source) -> Hank | None:
    """Return the hank if its shape is right; fast, but without an explanation if it is not."""
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
    """Add the type of each step that has none: it is a codon."""
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
        raise HankInvalid(path, [HankProblem("$", None, None, str(error))]) from None

    unknown = list(dropped(source.value, files))
    warnings = _told(unknown, LineNumbers(source.text), JsonPlaces(source.text)) if unknown else []
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
    """Raise HankInvalid if there are findings, including those that only the text shows."""
    places = JsonPlaces(source.text)
    told = {found.path for found in places.findings}
    known = [*places.findings, *(found for found in findings if found.path not in told)]
    if known:
        raise HankInvalid(path, _told(known, LineNumbers(source.text), places))


def _told(
    findings: Iterable[Finding], lines: LineNumbers, places: JsonPlaces | None
) -> list[HankProblem]:
    """Convert findings to problems, sorted by position and without duplicates."""
    problems: dict[HankProblem, None] = {}
    for found in findings:
        offset = found.offset if places is None else places.offset_of(found)
        line, column = (None, None) if offset is None else lines.place(offset)
        path = path_text(found.path)
        problems[HankProblem(path, line, column, found.message, found.suggestion)] = None

    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
