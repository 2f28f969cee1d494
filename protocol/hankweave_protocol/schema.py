"""JSON Schemas generated from the shapes: that of hank.json, and components for other schemas.

The description of a field is the string below it in the source, so that readers of the source and
authors of a hank read the same text.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import ModuleType
from typing import Any

import msgspec

from hankweave_protocol import sentinels
from hankweave_protocol.hank import Codon, Hank, SentinelEntry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{name}"

Schema = dict[str, Any]


def hank_schema() -> Schema:
    """Return the Draft 2020-12 schema of hank.json, for completion in editors."""
    kinds = (Hank, sentinels.SentinelConfig)
    (root, config), defs = components(kinds)
    # A step of the hank without a `type` is a codon; the loader adds it.
    defs[Codon.__name__]["required"].remove("type")
    entry = defs[SentinelEntry.__name__]["properties"]["sentinelConfig"]
    entry["anyOf"] = [{"type": "string"}, config]
    return {"$schema": DIALECT, "title": "hank.json", **root, "$defs": defs}


def components(
    kinds: Iterable[Any], reference: str = REFERENCE
) -> tuple[list[Schema], dict[str, Schema]]:
    """Return a schema of each kind, and by name those of the shapes they refer to."""
    schemas, defs = msgspec.json.schema_components(
        kinds, schema_hook=_anything, ref_template=reference
    )
    for name, schema in defs.items():
        schema.pop("title", None)
        _without_noise(schema)
        if text := schema.get("description"):
            schema["description"] = inspect.cleandoc(text)

        _describe(name, schema.get("properties", {}))

    return list(schemas), defs


def _without_noise(schema: Any) -> None:
    """Remove what editors ignore: null defaults and OpenAPI's discriminators."""
    match schema:
        case dict():
            schema.pop("discriminator", None)
            if schema.get("default", ...) is None:
                del schema["default"]

            for part in schema.values():
                _without_noise(part)
        case list():
            for part in schema:
                _without_noise(part)
        case _:
            pass


def _anything(kind: type) -> Schema:
    """Return the schema of encoded JSON: any value."""
    return {"description": "Any JSON value."}


def _describe(shape: str, properties: dict[str, Schema]) -> None:
    """Add to each field its description, and the JSON value after `Example:` in it."""
    own: dict[str, str] = {}
    for names, texts in _described_fields().get(shape, ()):
        if names <= set(properties):
            own |= texts

    for field, schema in properties.items():
        text, _, example = own.get(field, COMMON_FIELDS.get(field, "")).partition("Example: ")
        if text:
            schema["description"] = text.strip()

        if example:
            schema["examples"] = [json.loads(example)]


@cache
def _described_fields() -> dict[str, list[tuple[set[str], dict[str, str]]]]:
    """Return for each class name the fields, as in JSON, and the strings below them.

    Two classes may share a name: their fields tell them apart.
    """
    kinds = list(_structs(msgspec.Struct))
    own = {
        (owner, field): text
        for module in {sys.modules[kind.__module__] for kind in kinds}
        for owner, field, text in _texts_below_fields(module)
    }
    found: dict[str, list[tuple[set[str], dict[str, str]]]] = {}
    for kind in kinds:
        names = _names_in_json(kind)
        texts = {
            name: text for field, name in names.items() for text in _nearest_text(kind, field, own)
        }
        found.setdefault(kind.__name__, []).append((set(names.values()), texts))

    return found


def _nearest_text(kind: type, field: str, own: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield the description from the class itself, or from the base class that has the field."""
    owners = (f"{base.__module__}.{base.__name__}" for base in kind.__mro__)
    yield from islice((own[owner, field] for owner in owners if (owner, field) in own), 1)


def _structs(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        if child.__module__.startswith(__package__ or ""):
            yield child

        yield from _structs(child)


def _names_in_json(kind: Any) -> dict[str, str]:
    return {field.name: field.encode_name for field in msgspec.structs.fields(kind)}


def _texts_below_fields(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(inspect.getsource(module))
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for above, below in zip(owner.body, owner.body[1:], strict=False):
            match above, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    owner_name = f"{module.__name__}.{owner.name}"
                    yield owner_name, field, inspect.cleandoc(text).replace("\n", " ")
                case _:
                    pass


COMMON_FIELDS: Mapping[str, str] = {
    "action": "`created`, `modified` or `deleted`.",
    "archivedPaths": "The paths that were moved, relative to the work tree.",
    "assistantMessageCount": "How many messages the agent has sent.",
    "attemptId": "The attempt.",
    "autoRestart": "Whether the rest of the plan runs afterwards.",
    "budgetExceeded": "The limit of a budget that ended the codon.",
    "bytes": "The size in bytes.",
    "bytesBefore": "The size of the store before.",
    "cacheCreationTokens": "Tokens that were written to the provider's cache.",
    "cacheReadTokens": "Tokens that were read from the provider's cache.",
    "checkpoint": "The checkpoint.",
    "checkpointSha": "The checkpoint, by its commit; commands accept a unique prefix.",
    "checkpointType": "The kind of the checkpoint.",
    "checkpoints": "The checkpoints.",
    "claudeLogPath": "The agent's log, relative to `.hankweave`.",
    "claudePid": "The process id of the agent.",
    "claudeSessionId": "The agent's session, whichever agent it is.",
    "clientId": "The client.",
    "code": "The code, for programs.",
    "codon": "The codon.",
    "codonId": "The codon, by the id of its plan entry: `review`, or `review#1` in a loop.",
    "codonName": "The codon's name, for people.",
    "codonsToProcess": "The codons that are undone, the newest first.",
    "commandIndex": "The position of the command in the rig, from 0.",
    "coordinate": "The moment that it belongs to.",
    "cost": "The cost, in US dollars.",
    "createdAt": "The time at which it was created.",
    "currentHash": "The hash now.",
    "currentRunId": "The current run, if any.",
    "cursor": "Where the next page begins: send it with the same command. Absent on the last page.",
    "data": "The data of this type.",
    "direction": "Which way the rollback went: `back`, `undo`, `redo` or `retry`.",
    "durationMs": "How long it took, in milliseconds.",
    "edits": "The files that people changed.",
    "endTime": "The time at which it ended.",
    "error": "The error, as a sentence.",
    "eventCount": "How many events it is about.",
    "executionPath": "The execution directory.",
    "exitCode": "The exit code of the process; -1 if there was none.",
    "expectedRunId": "If another run is current, refuse the command with `STALE_RUN`.",
    "explorationId": "The exploration.",
    "extensionCount": "How many times `exhaustWithPrompt` was sent.",
    "failedPaths": "The paths that could not be moved, each with its error.",
    "failureReason": "Why the codon failed.",
    "finalCost": "The cost, in US dollars.",
    "fromRun": "The run before the rollback.",
    "inputTokens": "Tokens that the model read and that were in no cache.",
    "isRollingBack": "Whether a rollback is in progress.",
    "iteration": "The iteration, from 0.",
    "keepEdits": "Keep files that people changed after an agent or rig last wrote them.",
    "label": "The description that it was given.",
    "lastEventSeq": "The `seq` of the newest event that it includes.",
    "limit": "The maximum number of entries on a page.",
    "line": "The line, without its end.",
    "llmCallCount": "How many times the model was called.",
    "loopContext": "The loop and the iteration that it belongs to, if any.",
    "loopId": "The loop.",
    "looseAfter": "The number of loose objects afterwards.",
    "looseBefore": "The number of loose objects before.",
    "message": "A sentence for people.",
    "model": "The model.",
    "name": "The name.",
    "nextCodonId": "The codon that the plan continues with; absent at its end.",
    "onRunning": "What to do about a running codon: refuse, stop it, or pause it meanwhile.",
    "operationId": "The id of the operation, in everything that concerns it.",
    "outputTokens": "Tokens that the model wrote.",
    "packsAfter": "The number of packs afterwards.",
    "packsBefore": "The number of packs before.",
    "partialCost": "The cost up to that end, in US dollars.",
    "partialTokens": "The tokens up to that end.",
    "patch": "Whether unified diffs are included.",
    "path": "The path, relative to the work tree.",
    "paths": "Files and folders, relative to the work tree.",
    "pid": "The process id of the server.",
    "port": "The port that the server listens on.",
    "previousSessionId": "The session that it continues.",
    "reason": "The reason.",
    "requestId": "The id of the request.",
    "restoredEdits": "The people's edits that are in force again.",
    "retriable": "Whether another attempt may help.",
    "rewindMemory": "Whether the memory of agents and sentinels is restored, too.",
    "rigSetupCheckpoint": "The checkpoint after its rig.",
    "run": "The run.",
    "runId": "The run.",
    "sentinelId": "The sentinel.",
    "sentinels": "The sentinels of the codon, with their calls and costs.",
    "serverPid": "The process id of the server.",
    "serverVersion": "The version of the server.",
    "sessionId": "The agent's session.",
    "sha": "The commit: 40 hexadecimal digits.",
    "since": "The time at which it began.",
    "startTime": "The time at which it began.",
    "startedAt": "The time at which it began.",
    "status": "The status.",
    "strategy": "Which of the alternatives this is.",
    "stream": "Where it was written to: `stdout` or `stderr`.",
    "target": "The checkpoint that is restored.",
    "timestamp": "The time, in UTC with milliseconds.",
    "tokens": "The tokens.",
    "toolInput": "The arguments of the call.",
    "toolName": "The tool.",
    "toolUseId": "The id of the call.",
    "totalCost": "The cost so far, in US dollars.",
    "triggerNumber": "The number of the trigger, from 1.",
    "type": "Which of the alternatives this is.",
    "variant": "What the attempt does differently.",
    "version": "The version of the format.",
}
"""The descriptions of fields that mean the same everywhere; a string below a field wins."""
