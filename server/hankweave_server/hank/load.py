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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hankweave_protocol.hank import Codon, Hank
from hankweave_protocol.sentinels import SentinelConfig
from hankweave_server.hank import check, shape
from hankweave_server.hank.json_source import JsonPlaces, NotJson, Source, parse
from hankweave_server.hank.problems import (
    Finding,
    HankInvalid,
    HankProblem,
    invalid,
    path_text,
    problems,
    read_text,
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

__all__ = ["HankInvalid", "HankProblem", "LoadedHank", "ResolvedPrompt", "load", "no_hank"]


def applied(hank: Hank) -> Hank:
    """Return the hank with its overrides applied.

    Its model replaces that of every codon; its idle timeout applies to codons without one.
    """
    overrides = hank.overrides
    if overrides is None or (overrides.model is None and overrides.shim_idle_timeout is None):
        return hank

    def changed(codon: Codon) -> Codon:
        idle = codon.shim_idle_timeout
        return msgspec.structs.replace(
            codon,
            model=overrides.model or codon.model,
            shim_idle_timeout=overrides.shim_idle_timeout if idle is None else idle,
        )

    steps = (
        changed(step)
        if isinstance(step, Codon)
        else msgspec.structs.replace(step, codons=tuple(map(changed, step.codons)))
        for step in hank.hank
    )
    return msgspec.structs.replace(hank, hank=tuple(steps))


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
    # Python's json is slow if it indents; msgspec indents in the same way.
    return msgspec.json.format(json.dumps(whole, ensure_ascii=False), indent=2) + "\n"


def _number(text: str) -> int | float:
    """Parse a number as JavaScript does, which has one type and writes 2.0 as 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def dropped(raw: Any, files: HankFiles) -> Iterator[Finding]:
    """Yield every unknown key of a valid hank that loading drops, including in sentinels."""
    yield from shape.dropped(raw, _HANK)
    for step in steps_of(JsonNode(raw, ())):
        for codon in codons_of(step):
            for entry in objects(codon, "sentinels"):
                yield from _in_sentinel(entry, files)


def _in_sentinel(entry: JsonNode, files: HankFiles) -> Iterator[Finding]:
    inline = object_at(entry, "sentinelConfig")
    if inline.raw:
        yield from shape.dropped(inline.raw, _SENTINEL, inline.path)

    for reference, path in texts(entry, "sentinelConfig"):
        try:
            raw = parse(files.text(reference)).value
        except (NotJson, OSError, UnicodeDecodeError):
            continue  # An error, which the checks report.

        for found in shape.dropped(raw, _SENTINEL):
            where = f"{posixpath.normpath(reference)}: {path_text(found.path)}"
            yield Finding(path, f"{where}: {found.message}", found.suggestion)


_HANK = msgspec.inspect.type_info(Hank)
_SENTINEL = msgspec.inspect.type_info(SentinelConfig)

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
    if isinstance(hank, str):
        findings += shape.findings(source.value, _HANK)

    if findings and model_override is None:
        findings += check.misspelt_models(source.value, models())

    if findings or not source.is_plain:
        places = JsonPlaces(source.text)
        if found := problems(findings, places.at, places.findings):
            raise HankInvalid(path, found)

    if isinstance(hank, str):
        raise invalid(path, hank)  # msgspec enforces a rule that `shape` does not check.

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

    hank = _converted(source)
    return None if isinstance(hank, str) else hank


def hash_of(raw: Any) -> str:
    """Hash a hank's JSON without `$schema`, which editors add (Hankweave, hankHash)."""
    content = {key: value for key, value in raw.items() if key != "$schema"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parsed(path: Path) -> Source:
    text = read_text(path)
    try:
        return parse(text)
    except NotJson as error:
        raise HankInvalid(path, problems(error.findings, {})) from None


def _converted(source: Source) -> Hank | str:
    """Return the hank if its shape is right; fast, but with a poor explanation if it is not."""
    try:
        return msgspec.convert(_typed(source.value), Hank)
    except _NOT_A_HANK as error:
        return str(error)


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
    try:
        prompts = {codon.id: resolve(hank, codon, files.prompt) for codon in hank.codons}
    except PromptFault as error:
        raise invalid(path, str(error)) from None

    unknown = list(dropped(source.value, files))
    return LoadedHank(
        hank,
        files.directory,
        hash_of(source.value),
        prompts,
        problems(unknown, JsonPlaces(source.text).at) if unknown else (),
        foreign_hashes(source.text),
    )
