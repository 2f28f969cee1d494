"""A validator of the frames a client of Hankweave 0.12 receives, from that project's schemas.

It shares nothing with the server: the tables below restate `server/schemas/event-schemas.ts` (event
schema version 2), with the rules of its validation library: a field is required unless its name
ends with `?`, an optional field may be absent but is never null, numbers are not booleans. It is
stricter in one way: a field that the schemas do not name is a fault as well, where the original
ignores it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Check = Callable[[Any, str], Iterator[str]]
"""Yields the faults of a value at a path."""


# --- building blocks ------------------------------------------------------------------------------


def string(value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{at}: {value!r} is no string"


def boolean(value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{at}: {value!r} is no boolean"


def number(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{at}: {value!r} is no number"


def natural(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        yield f"{at}: {value!r} is no integer from 0"


def positive(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        yield f"{at}: {value!r} is no integer from 1"


def anything(value: Any, at: str) -> Iterator[str]:
    yield from ()


def some_object(value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no object"


def matching(pattern: str) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            yield f"{at}: {value!r} does not match {pattern}"

    return check


moment = matching(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z")


def one_of(*allowed: str) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if value not in allowed:
            yield f"{at}: {value!r} is none of {', '.join(allowed)}"

    return check


def nullable(inner: Check) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if value is not None:
            yield from inner(value, at)

    return check


def either(*alternatives: Check) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if all(any(True for _ in each(value, at)) for each in alternatives):
            yield f"{at}: {value!r} fits no alternative"

    return check


def array(inner: Check) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no array"
            return

        for index, item in enumerate(value):
            yield from inner(item, f"{at}[{index}]")

    return check


def record(inner: Check) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at}: {value!r} is no object"
            return

        for key, item in value.items():
            yield from inner(item, f"{at}.{key}")

    return check


def fields(**named: Check) -> Check:
    """Check an object; a name that ends with `_` is optional."""
    required = {name: check for name, check in named.items() if not name.endswith("_")}
    optional = {name.removesuffix("_"): each for name, each in named.items() if name.endswith("_")}

    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at}: {value!r} is no object"
            return

        yield from (f"{at}.{name} is missing" for name in required if name not in value)
        for name, item in value.items():
            inner = required.get(name) or optional.get(name)
            if inner is None:
                yield f"{at}.{name} is not in the schema"
            else:
                yield from inner(item, f"{at}.{name}")

    return check


def tagged_union(tag: str, members: dict[Any, Check]) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        member = members.get(value.get(tag)) if isinstance(value, dict) else None
        if member is None:
            yield f"{at}: {value!r} has no known {tag}"
        else:
            yield from member(value, at)

    return check


# --- shared shapes --------------------------------------------------------------------------------

STATUS = one_of(
    "preparing",
    "starting",
    "initializing",
    "running",
    "completing-sentinels",
    "completed",
    "failed",
    "skipped",
)
STRATEGY = one_of("immediate", "debounce", "count", "timeWindow")
EXIT_STATUS = tagged_union(
    "type",
    {
        "success": fields(type=string),
        "error": fields(type=string, code=number),
        "killed": fields(type=string, signal=string),
    },
)
FAILURE_REASON = fields(
    type=one_of("timeout", "rate-limit", "api-error", "sentinel-load-failure", "unknown"),
    retriable=boolean,
    message_=string,
    sentinelRefs_=array(string),
    retryAfterMs_=number,
)
BUDGET_EXCEEDED = fields(
    currency=one_of("cost", "outputTokens", "contextTokens", "duration"), limit=number, used=number
)
TOKENS = fields(
    inputTokens=number, outputTokens=number, cacheCreationTokens=number, cacheReadTokens=number
)


def node(value: Any, at: str) -> Iterator[str]:
    """Check a node: a file has a date, a folder has none."""
    common: dict[str, Check] = {
        "name": string,
        "path": string,
        "isDirectory": boolean,
        "children": array(node),
    }
    members = {True: fields(**common), False: fields(**common, lastModified=string)}
    yield from tagged_union("isDirectory", members)(value, at)


CODON_EXECUTION = fields(
    codonId=string,
    codonName_=string,
    status=STATUS,
    startTime=string,
    endTime_=string,
    sessionId_=string,
    previousSessionId_=string,
    claudeSessionId_=string,
    tokenUsage_=TOKENS,
    cost_=number,
    duration_=number,
    exitStatus_=EXIT_STATUS,
    failureReason_=FAILURE_REASON,
    description_=string,
    finalCost_=number,
    partialCost_=number,
    currentCost_=number,
    completionCheckpoint_=string,
    rigSetupCheckpoint_=string,
    errorCheckpoint_=string,
    skipCheckpoint_=string,
)
FAILED_PATHS = array(fields(path=string, error=string))


def assistant_action(value: Any, at: str) -> Iterator[str]:
    """Check an action: a tool call has the tool's name and an id of the call that is not empty."""
    yield from fields(
        codonId=string,
        action=one_of("thinking", "message", "tool_use"),
        content=string,
        toolName_=string,
        toolInput_=record(anything),
        toolUseId_=string,
    )(value, at)
    if isinstance(value, dict) and value.get("action") == "tool_use":
        if not value.get("toolUseId"):
            yield f"{at}.toolUseId is required with tool_use"

        if not isinstance(value.get("toolName"), str):
            yield f"{at}.toolName is required with tool_use"


# --- the payloads by event type -------------------------------------------------------------------

DATA: dict[str, Check] = {
    "server.ready": fields(
        serverVersion=string,
        executionPath=string,
        agentRootPath=string,
        dataPath=string,
        port=number,
        proxyPort_=number,
        outputDirectory_=string,
    ),
    "server.idle": fields(
        reason=one_of("startup", "codon-completed", "all-codons-completed", "rollback-completed"),
        message=string,
    ),
    "state.snapshot": fields(
        currentCodon_=CODON_EXECUTION,
        completedCodons=array(CODON_EXECUTION),
        fileTree=array(node),
        totalCost=number,
        totalTime=number,
        isRollingBack=boolean,
    ),
    "state.transition": fields(
        transitionType=one_of(
            "RunStarted",
            "RunCompleted",
            "RunFailed",
            "RunCrashed",
            "CodonStarted",
            "CodonTransitioned",
            "CostsUpdated",
            "CostsIncremented",
            "AssistantMessageCountUpdated",
            "ExtensionCountUpdated",
            "CheckpointCreated",
            "InitialCheckpointSet",
            "CodonFinalCostSet",
            "SentinelStatesUpdated",
        ),
        runId_=string,
        codonId_=string,
        transition=fields(type=string, data=some_object),
        resultingState=fields(
            currentRunId=nullable(string),
            runCount=number,
            totalCost=number,
            currentRunCost=number,
        ),
    ),
    "codon.started": fields(
        codonId=string,
        codonName=string,
        codonDescription_=string,
        sessionId=string,
        previousSessionId_=string,
        startTime=moment,
        promptMetadata_=fields(
            name_=string, description_=string, tags_=array(string), version_=string, author_=string
        ),
    ),
    "codon.completed": fields(
        codonId=string,
        success=boolean,
        cost=number,
        duration=number,
        exitStatus=EXIT_STATUS,
        failureReason_=FAILURE_REASON,
        failureIgnored_=boolean,
        budgetExceeded_=BUDGET_EXCEEDED,
    ),
    "codon.extended": fields(
        codonId=string,
        codonName=string,
        extensionNumber=positive,
        exhaustWithPrompt=string,
        cumulativeTokens=TOKENS,
        cumulativeCost=number,
    ),
    "assistant.action": assistant_action,
    "tool.result": fields(
        codonId=string,
        toolUseId=string,
        toolName=string,
        result=string,
        truncated=boolean,
        originalLength=number,
        executionTimeMs=number,
        isError=boolean,
    ),
    "token.usage": fields(
        codonId=string,
        inputTokens=number,
        outputTokens=number,
        cacheCreationTokens=number,
        cacheReadTokens=number,
        totalCost=number,
        modelId_=string,
        modelUsage_=record(
            fields(
                inputTokens=number,
                outputTokens=number,
                cacheReadInputTokens_=number,
                cacheCreationInputTokens_=number,
                costUSD=number,
            )
        ),
    ),
    "file.updated": fields(
        path=string,
        filename=string,
        action=one_of("created", "modified", "deleted"),
        sha256=matching("[0-9a-f]{64}"),
        bytes=natural,
        source=tagged_union(
            "kind",
            {
                "tool_use": fields(kind=string, toolUseId=string),
                "codon-start": fields(kind=string),
            },
        ),
    ),
    "filetree.updated": fields(tree=array(node)),
    "rig.setup.completed": fields(
        codonId=string,
        rigType=one_of("command", "commands"),
        commandCount=natural,
        durationMs=number,
        createdCheckpoint=boolean,
    ),
    "rig.setup.failed": fields(
        codonId=string,
        failureType=one_of("command_failed", "timeout", "other"),
        exitCode_=number,
        commandIndex_=natural,
        ignored=boolean,
    ),
    "rig.output": fields(
        codonId=string, stream=one_of("stdout", "stderr"), line=string, commandIndex=natural
    ),
    "loop.iteration.completed": fields(
        loopId=string,
        iteration=natural,
        durationMs=number,
        costUsd=number,
        tokensUsed=number,
        isFinal=boolean,
        terminationReason_=one_of(
            "iteration_limit", "context_exceeded", "sentinel_skip", "failure"
        ),
    ),
    "archive.completed": fields(codonId=string, archivedPaths=array(string)),
    "archive.partial": fields(
        codonId=string, archivedPaths=array(string), failedPaths=FAILED_PATHS
    ),
    "budget.summary": fields(
        ceiling=fields(maxDollars_=number, maxTimeSeconds_=number),
        allocation=one_of("shared", "proportional", "proportional-strict"),
        rows=array(
            fields(
                codonId=string,
                loopContext_=fields(loopId=string, iteration=number, codonIndexInLoop=number),
                status=one_of("completed", "failed", "skipped", "exceeded", "running"),
                budget=fields(maxDollars_=number, maxTimeSeconds_=number, maxOutputTokens_=number),
                actual=fields(dollars=number, timeSeconds=number, outputTokens=number),
            )
        ),
        totals=fields(budgetDollars_=number, actualDollars=number, actualTimeSeconds=number),
    ),
    "error": fields(
        message=string,
        codon_=string,
        fatal=boolean,
        severity_=one_of("fatal", "codon", "operation", "warning"),
        context_=string,
        code_=string,
    ),
    "info": fields(message=string),
    "checkpoint.list": fields(
        runId=string,
        checkpoints=array(
            fields(
                codonId=string,
                codonName=string,
                checkpointType=one_of("rig-setup", "completed", "error", "skipped"),
                sha=string,
                status=STATUS,
                timestamp=string,
            )
        ),
        currentBranch=string,
    ),
    "rollback.started": fields(
        fromRun=string,
        fromCodon=string,
        toCodon=string,
        toCheckpoint=string,
        checkpointType=string,
        codonsToProcess=array(string),
    ),
    "rollback.progress": fields(currentStep=number, totalSteps=number, message=string),
    "rollback.codonCheckpoint": fields(
        codonId=string, codonName=string, checkpoint=string, checkpointType=string, message=string
    ),
    "rollback.rigCleanup": fields(
        codonId=string,
        codonName=string,
        directories=array(string),
        status=one_of("started", "completed", "failed", "partial"),
        successfulCleanups_=array(string),
        failedCleanups_=array(fields(directory=string, error=string)),
        error_=string,
    ),
    "rollback.archiveRestore": fields(
        codonId=string,
        restoredPaths=array(string),
        failedPaths_=FAILED_PATHS,
        status=one_of("completed", "partial", "failed"),
    ),
    "rollback.completed": fields(
        fromRun=string,
        toRun=string,
        checkpoint=string,
        codonId=string,
        codonName=string,
        checkpointType=string,
        autoRestart=boolean,
    ),
    "sentinel.loaded": fields(
        sentinelId=string,
        codonId=string,
        model=string,
        triggerType=one_of("event", "sequence"),
        executionStrategy=STRATEGY,
        conversational=boolean,
        source=one_of("file", "inline"),
        sourcePath_=string,
    ),
    "sentinel.unloaded": fields(
        sentinelId=string,
        codonId=string,
        reason=one_of("codon-complete", "fatal-error", "consecutive-failures", "shutdown"),
        errorType_=one_of("template", "configuration", "corruption", "resource"),
        finalCost=number,
        llmCallCount=number,
    ),
    "sentinel.error": fields(
        sentinelId=string,
        codonId=string,
        errorType=one_of("llm-call-failed", "template-render-failed", "file-write-failed"),
        message=string,
        retriable=boolean,
        consecutiveFailureCount=number,
    ),
    "sentinel.output": fields(
        sentinelId=string,
        codonId=string,
        triggerNumber=number,
        outputType=one_of("text", "structured"),
        content=either(string, some_object),
        cost=number,
        tokens=fields(input=number, output=number),
        eventCount=number,
    ),
    "sentinel.triggered": fields(
        sentinelId=string,
        codonId=string,
        triggerNumber=number,
        strategy=STRATEGY,
        eventCount=number,
        queueSize=number,
    ),
    "pong": fields(message=string, timestamp=string, clientId_=string),
    "incomplete.codon": fields(codonId=string, codonName=string, message=string),
}
"""All but `history.batch`, which holds events and is checked by `event` itself."""


def event(value: Any, at: str = "$") -> Iterator[str]:
    """Yield the faults of an event in the format of Hankweave 0.12."""
    kind = value.get("type") if isinstance(value, dict) else None
    data = DATA.get(kind) if isinstance(kind, str) else None
    if kind == "history.batch":
        data = fields(events=array(event), hasMore=boolean)

    if data is None:
        yield f"{at}: {kind!r} is no event type of Hankweave"
        return

    for fault in fields(id=string, timestamp=string, type=string, data=data)(value, at):
        yield f"{kind}: {fault}"


HANDSHAKE = fields(
    type=string,
    data=fields(
        clientId=string,
        mode=one_of("readonly", "readandwrite"),
        eventHistory=array(event),
        totalEvents=natural,
    ),
)


def faults_of(frame: str | bytes) -> list[str]:
    """List the faults of a frame that a server sends to a client of Hankweave 0.12."""
    value = json.loads(frame)
    if isinstance(value, dict) and value.get("type") == "handshake.response":
        return [f"handshake.response: {fault}" for fault in HANDSHAKE(value, "$")]

    return list(event(value))
