"""Reading a state.json that Hankweave wrote.

Its schema is seed 002's, but it is looser than our classes in a few places: the plan's codons carry
a resolved model instead of its name, and keys of its own; sentinels and counts are absent where a
codon did not get as far as having them. What is absent gets the value that means "nothing"; what
is unknown is left out. A file that we wrote is never read this way: in it, a gap is damage.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import Codon, ContainerBudget
from hankweave_protocol.state import NO_TOKENS, CodonStatus, State

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
    """Reads a state of ours or of Hankweave; raises Refused with the path of the fault."""
    try:
        return codec.decode_value(State, content)
    except Refused as refused:
        foreign = _foreign(content)
        if foreign is None:
            raise

        try:
            return codec.decode_value(State, codec.encode(foreign))
        except Refused:
            # The path in the file as it stands helps a reader more than that in our copy.
            raise refused from None


def _foreign(content: bytes) -> Json | None:
    """Returns the normalised content of a file that Hankweave can have written, else None."""
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
    """Leaves out what we do not know of a loop's budget, which is as strict as a hank."""
    context = owner.get("loopContext")
    budget = context.get("loopBudget") if isinstance(context, dict) else None
    if not isinstance(context, dict) or not isinstance(budget, dict):
        return owner

    known = {key: budget[key] for key in _BUDGET_KEYS & budget.keys() if budget[key] is not None}
    return owner | {"loopContext": context | {"loopBudget": known}}
