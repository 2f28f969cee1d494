"""Rules of a codon's sentinels, and of conversations with `continue-previous`.

Sentinels are checked for their shape, their ids and their references. References in a sentinel's
file are relative to that file, and must stay below the hank's directory like all others (Hankweave
0.10, sentinels).

The rules of `continue-previous` are Hankweave's own (`validateHank` in its 0.12). They reject a
codon that would resume a conversation of another model or one whose context is used up, and a loop
that waits for a full context although each codon starts an empty one. A first codon without a
conversation to continue is a warning in both programs: see `advice`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import msgspec

from hankweave_protocol.sentinels import SentinelConfig
from hankweave_server.hank import references, shape
from hankweave_server.hank.json_source import JsonPlaces, NotJson, parse
from hankweave_server.hank.price_files import packaged_prices
from hankweave_server.hank.problems import Finding, JsonPath, Place, path_text, place_of
from hankweave_server.hank.rules import (
    NEAR_THE_HANK,
    HankContext,
    JsonNode,
    codons_of,
    faults,
    has_object,
    is_blank,
    is_loop,
    object_at,
    objects,
    texts,
)

_SHAPE = msgspec.inspect.type_info(SentinelConfig)
_ID = re.compile(r"[a-z0-9-]+")
_FILES = ("systemPromptFile", "userPromptFile")


class _Sentinel(NamedTuple):
    """One sentinel of a codon."""

    entry: JsonNode
    config: JsonNode
    folder: str
    """Folder of the configuration's files, relative to the hank's directory."""


def of_sentinels(codon: JsonNode, ctx: HankContext) -> Iterator[Finding]:
    first: dict[str, JsonNode] = {}
    for entry in objects(codon, "sentinels"):
        yield from _of_settings(entry)
        if has_object(entry, "sentinelConfig"):
            inline = object_at(entry, "sentinelConfig")
            sentinel = _Sentinel(entry, inline, "")
            yield from shape.findings(inline.raw, _SHAPE, inline.path)
            yield from _of_config(sentinel, ctx)
            yield from _of_id(sentinel, first)

        for reference, path in texts(entry, "sentinelConfig"):
            yield from _of_file(entry, reference, ctx, first, path)


def _of_file(
    entry: JsonNode,
    reference: str,
    ctx: HankContext,
    first: dict[str, JsonNode],
    path: JsonPath,
) -> Iterator[Finding]:
    fault = ctx.files.fault_of_file(reference)
    if fault is not None:
        yield Finding(path, fault, ctx.files.nearest(reference) or NEAR_THE_HANK)
        return

    try:
        source = parse(ctx.files.text(reference))
    except (OSError, UnicodeDecodeError):
        yield Finding(path, f"{reference!r} cannot be read as text.")
        return
    except NotJson as error:
        yield from (_in_file(found, {}, reference, path) for found in error.findings)
        return

    places = JsonPlaces(source.text)
    found = [*source.findings, *places.findings, *shape.findings(source.value, _SHAPE)]
    if isinstance(source.value, dict):
        sentinel = _Sentinel(entry, JsonNode(source.value, ()), posixpath.dirname(reference))
        found += _of_config(sentinel, ctx)
        found += _of_id(sentinel, first)

    yield from (_in_file(each, places.at, reference, path) for each in found)


def _in_file(
    found: Finding, places: Mapping[JsonPath, Place], reference: str, path: JsonPath
) -> Finding:
    """Convert a finding in a referenced file to one at the reference."""
    place = place_of(found, places)
    line = "" if place is None else f":{place[0]}"
    message = f"{reference}{line}: {path_text(found.path)}: {found.message}"
    return replace(found, path=path, message=message, place=None)


def _of_config(sentinel: _Sentinel, ctx: HankContext) -> Iterator[Finding]:
    config = sentinel.config
    for key in _FILES:
        yield from _of_reference(sentinel, config, key, ctx)

    if has_object(config, "structuredOutput"):
        structured = object_at(config, "structuredOutput")
        for key in ("schemaFile", "jsonSchemaFile"):
            yield from _of_reference(sentinel, structured, key, ctx)

        schemas = ("schemaStr", "schemaFile", "jsonSchema", "jsonSchemaFile", "enumValues")
        given = [key for key in schemas if structured.raw.get(key) is not None]
        if len(given) != 1:
            message = f"Set exactly one of {', '.join(schemas)}."
            yield Finding(structured.path, message)

    yield from of_sentinel(config)


def of_sentinel(config: JsonNode) -> Iterator[Finding]:
    """Check the id and the prompts of a sentinel, and fields that exclude each other."""
    name = config.raw.get("id")
    if isinstance(name, str) and name and _ID.fullmatch(name) is None:
        message = f"{name!r} is not a valid sentinel id."
        hint = "Use only lowercase letters, digits and '-'."
        yield Finding((*config.path, "id"), message, hint)

    if not any(config.raw.get(key) for key in ("userPromptFile", "userPromptText")):
        message = "The sentinel has no prompt: add a userPromptFile or a userPromptText."
        yield Finding((*config.path, "userPromptText"), message)

    said = any(config.raw.get(key) for key in ("systemPromptFile", "systemPromptText"))
    if config.raw.get("conversational") is not None and not said:
        message = "A conversational sentinel needs a systemPromptFile or a systemPromptText."
        yield Finding((*config.path, "conversational"), message)

    if config.raw.get("structuredOutput") is not None:
        for owner, key in ((config, "joinString"), (object_at(config, "output"), "format")):
            if owner.raw.get(key) is not None:
                message = f"{key!r} applies to plain text output only, not to structured output."
                yield Finding((*owner.path, key), message)


def _of_reference(
    sentinel: _Sentinel, owner: JsonNode, key: str, ctx: HankContext
) -> Iterator[Finding]:
    for text, path in texts(owner, key):
        reference = text if is_blank(text) else posixpath.join(sentinel.folder, text)
        fault = references.fault_of_relative(text) if text.startswith("/") else None
        fault = fault or ctx.files.fault_of_file(reference)
        if fault is not None:
            yield Finding(path, fault, NEAR_THE_HANK)


def _of_settings(entry: JsonNode) -> Iterator[Finding]:
    places = object_at(object_at(entry, "settings"), "outputPaths")
    for key in ("logFile", "lastValueFile"):
        yield from faults(places, key, references.fault_of_target)


def _of_id(sentinel: _Sentinel, first: dict[str, JsonNode]) -> Iterator[Finding]:
    name = sentinel.config.raw.get("id")
    if not isinstance(name, str) or not name:
        return

    known = first.setdefault(name, sentinel.entry)
    if known is not sentinel.entry:
        message = f"The id {name!r} is already used by another sentinel: {path_text(known.path)}."
        hint = "Give each sentinel of a codon its own id."
        yield Finding((*sentinel.config.path, "id"), message, hint)


CONTINUE = "continue-previous"
_USE_FRESH = "Use 'fresh' to start a new conversation."

_SameModel = Callable[[str, str], bool]


def continuation_findings(
    root: JsonNode, steps: list[JsonNode], model_override: str | None
) -> Iterator[Finding]:
    """Yield every violation; `model_override` is a model that replaces those of all codons."""
    own = object_at(root, "overrides").raw.get("model")
    is_overridden = model_override is not None or (isinstance(own, str) and not is_blank(own))
    same = (lambda _one, _other: True) if is_overridden else _is_same_model
    for step in filter(is_loop, steps):
        yield from _in_loop(step, same)

    for before, step in pairwise(steps):
        if not is_loop(step) and step.raw.get("continuationMode") == CONTINUE:
            yield from _after(before, step, same)


def _in_loop(loop: JsonNode, same: _SameModel) -> Iterator[Finding]:
    codons = list(codons_of(loop))
    for codon in codons if _ends_when_full(loop) else ():
        if codon.raw.get("continuationMode") == "fresh":
            message = "A loop that ends with 'contextExceeded' never ends if a codon is 'fresh'"
            hint = f"Use {CONTINUE!r}, or end the loop with 'iterationLimit'."
            yield _at_mode(
                codon, f"{message}: the codon's context is empty in each iteration.", hint
            )

    for before, codon in pairwise(codons):
        if codon.raw.get("continuationMode") == CONTINUE:
            yield from _across_models(before, codon, same)


def _after(before: JsonNode, codon: JsonNode, same: _SameModel) -> Iterator[Finding]:
    """Check a top-level codon that continues the step before it."""
    last = next(reversed(list(codons_of(before))), None)
    if is_loop(before) and _ends_when_full(before):
        message = f"The loop {before.raw.get('id')!r} ends with a full context"
    elif last is not None and last.raw.get("exhaustWithPrompt"):
        message = f"The codon {last.raw.get('id')!r} uses 'exhaustWithPrompt' and fills its context"
    else:
        yield from () if last is None else _across_models(last, codon, same)
        return

    yield _at_mode(codon, f"{message}: there is no conversation to continue.", _USE_FRESH)


def _across_models(before: JsonNode, codon: JsonNode, same: _SameModel) -> Iterator[Finding]:
    earlier, model = before.raw.get("model"), codon.raw.get("model")
    one, other = _agent_type(before), _agent_type(codon)
    if isinstance(earlier, str) and isinstance(model, str) and not same(earlier, model):
        message = f"{model!r} cannot continue the conversation of {before.raw.get('id')!r}"
        hint = "Use 'fresh', or the same model for both."
        yield _at_mode(codon, f"{message}, which uses {earlier!r}.", hint)
    elif one is not None and other is not None and one != other:
        message = f"The agent {other!r} cannot continue a conversation of {one!r}."
        yield _at_mode(codon, message, "Use 'fresh', or the same agent for both.")


def _at_mode(codon: JsonNode, message: str, hint: str) -> Finding:
    return Finding((*codon.path, "continuationMode"), message, hint)


def _ends_when_full(loop: JsonNode) -> bool:
    return bool(object_at(loop, "terminateOn").raw.get("type") == "contextExceeded")


def _agent_type(codon: JsonNode) -> str | None:
    kind = object_at(codon, "agent").raw.get("type")
    return kind if isinstance(kind, str) else None


def _is_same_model(one: str, other: str) -> bool:
    """Compare model names without their providers and dates.

    A family name such as `sonnet` matches any full name of the family. The model that it stands for
    depends on the age of the list that resolves it, so only certain mismatches count.
    """
    first, second = _bare(one), _bare(other)
    if first == second or first in second.split("-") or second in first.split("-"):
        return True

    prices = packaged_prices()
    known = prices.model(one)
    return known is not None and known is prices.model(other)


def _bare(name: str) -> str:
    return name.strip().lower().rpartition("/")[2]
