"""Claims about the shapes of hank.json, and about the schema for editors."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from codegen.exports import commands_schema, events_schema
from hankweave_protocol import codec
from hankweave_protocol import hank as hank_shapes
from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import Codon, Hank, IterationLimit, Loop, RigCommand, RigCopy
from hankweave_protocol.schema import hank_schema
from hankweave_protocol.sentinels import SentinelConfig
from support.protocol_values import often_enough, values_of

TOP = Path(__file__).resolve().parents[2]
EXAMPLE = TOP / "examples" / "earthquakes" / "hank.json"
SCHEMA = hank_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

FULL: dict[str, Any] = {
    "$schema": "./hank.schema.json",
    "meta": {"name": "full", "version": "1.0.0", "description": "All there is.", "author": "Ann"},
    "overrides": {
        "model": "sonnet",
        "dataHashTimeLimit": 5000,
        "sentinel": {
            "enablePersistence": True,
            "healthCheckGracePeriodMs": 2000,
            "waitForAllHealthChecks": False,
        },
        "shimIdleTimeout": 600,
        "budget": {
            "maxDollars": 5,
            "maxTimeSeconds": 3600,
            "allocation": "proportional",
            "shares": {"observe": 0.25},
            "onExceeded": "fail",
        },
    },
    "requirements": {"env": ["ANTHROPIC_API_KEY"], "tools": ["python3", "git"]},
    "globalSystemPromptFile": ["prompts/rules.md", "prompts/style.md"],
    "hank": [
        {
            "type": "codon",
            "id": "observe",
            "name": "Observe",
            "description": "Looks.",
            "model": "sonnet",
            "continuationMode": "fresh",
            "promptFile": ["prompts/observe.md", "prompts/more.md"],
            "appendSystemPromptText": "Be brief.",
            "rigSetup": [
                {"type": "copy", "copy": {"from": "./templates", "to": "src"}},
                {
                    "type": "command",
                    "command": {
                        "run": "npm ci",
                        "workingDirectory": "lastCopied",
                        "timeoutSeconds": 1.5,
                    },
                    "allowFailure": True,
                },
            ],
            "checkpointedFiles": ["src/**/*.ts", "!src/gen/**"],
            "env": {"MODE": "careful"},
            "outputFiles": [
                {
                    "copy": ["src/**"],
                    "beforeCopy": [{"type": "command", "command": {"run": "npm run build"}}],
                }
            ],
            "sentinels": [
                {
                    "sentinelConfig": "sentinels/narrator.json",
                    "settings": {
                        "failCodonIfNotLoaded": True,
                        "outputPaths": {"logFile": "narrator.md"},
                        "reportToWebsocket": {"outputs": True},
                    },
                },
                {
                    "sentinelConfig": {
                        "id": "inline",
                        "name": "Inline",
                        "model": "anthropic/haiku",
                        "trigger": {"type": "event", "on": ["tool.result"]},
                        "execution": {"strategy": "count", "threshold": 3},
                        "userPromptText": "Say what happened.",
                    }
                },
            ],
            "archiveOnSuccess": ["src"],
            "onFailure": "retry",
            "retryConfig": {"maxAttempts": 5, "delayMs": 0, "maxDelayMs": 1000},
            "exhaustWithPrompt": "Go on.",
            "maxExtensions": 3,
            "autoCompact": True,
            "shimIdleTimeout": 1800,
            "budget": {
                "maxDollars": 1.5,
                "maxTimeSeconds": 60,
                "maxOutputTokens": 1000,
                "maxContextTokens": 100000,
                "onExceeded": "fail",
            },
            "agent": {"type": "command", "command": ["python3", "tool.py"]},
        },
        {
            "type": "loop",
            "id": "review-loop",
            "name": "Review",
            "description": "Again and again.",
            "terminateOn": {"type": "iterationLimit", "limit": 3},
            "budget": {"maxDollars": 2},
            "archiveOnSuccess": ["tmp/**"],
            "codons": [
                {
                    "type": "codon",
                    "id": "review",
                    "name": "Review",
                    "model": "opus",
                    "continuationMode": "continue-previous",
                    "promptText": "Review it.",
                    "trackedFiles": ["reports/**"],
                    "rigSetup": [
                        {
                            "type": "copy",
                            "copy": {"from": "./checks", "to": "checks"},
                            "archiveOnSuccess": True,
                        }
                    ],
                    "agent": {"type": "scripted", "script": "review.json"},
                }
            ],
        },
        {
            "type": "loop",
            "id": "until-full",
            "name": "Until the context is full",
            "terminateOn": {"type": "contextExceeded"},
            "codons": [
                {
                    "type": "codon",
                    "id": "more",
                    "name": "More",
                    "model": "haiku",
                    "continuationMode": "fresh",
                    "promptText": "More.",
                    "agent": {"type": "claude"},
                }
            ],
        },
    ],
}
"""Every field of Hankweave's hanks, and this project's `agent`."""

Path_ = tuple[str | int, ...]


def objects(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Find every object in a value, except those with keys of the author's choice."""
    free = {"env", "shares", "sentinelConfig"}
    match value:
        case dict():
            yield path
            for key, item in value.items():
                if key not in free:
                    yield from objects(item, (*path, key))

        case list():
            for index, item in enumerate(value):
                yield from objects(item, (*path, index))
        case _:
            pass


def at(value: Any, path: Path_) -> Any:
    for step in path:
        value = value[step]

    return value


def changed(path: Path_, **fields: Any) -> dict[str, Any]:
    """Return the full hank with fields of one object set; a field set to `...` is removed."""
    hank = copy.deepcopy(FULL)
    target = at(hank, path)
    target.update(fields)
    for name in [name for name, value in fields.items() if value is ...]:
        del target[name]

    return hank


def decode(hank: Any) -> Hank:
    return codec.decode_value(Hank, json.dumps(hank))


def is_valid(hank: Any) -> bool:
    return VALIDATOR.is_valid(hank)


def faults(hank: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(hank)]


# --- accepted hanks -------------------------------------------------------------------------------


def test_a_full_hank_loads_with_all_its_fields() -> None:
    """Every field of Hankweave's format is known and kept."""
    hank = decode(FULL)
    observe, review, until_full = hank.hank
    assert isinstance(observe, Codon)
    assert isinstance(review, Loop)
    assert isinstance(until_full, Loop)
    assert review.terminate_on == IterationLimit(limit=3)
    assert [type(item) for item in observe.rig_setup] == [RigCopy, RigCommand]
    assert observe.patterns == ("src/**/*.ts", "!src/gen/**")
    assert review.codons[0].patterns == ("reports/**",)


def test_a_hank_comes_back_as_it_was_written() -> None:
    """Loading and writing a hank gives the same JSON, except explicit defaults."""
    again = json.loads(codec.encode(decode(FULL)))
    assert decode(again) == decode(FULL)
    assert again["hank"][0] == FULL["hank"][0]


@often_enough
@given(values_of(Hank))
def test_any_hank_comes_back_as_it_was_written(hank: Hank) -> None:
    """decode(encode(x)) == x, for a hank with any content."""
    assert codec.decode_value(Hank, codec.encode(hank)) == hank


def test_both_names_of_the_patterns_mean_the_same() -> None:
    """Hankweave renamed `trackedFiles`; both names work, and the seeds' name takes precedence."""
    codon = decode(changed(("hank", 0), trackedFiles=["a"], checkpointedFiles=["b"])).hank[0]
    assert isinstance(codon, Codon)
    assert codon.patterns == ("a", "b")


# --- refused hanks --------------------------------------------------------------------------------


OPEN = {
    *("meta", "requirements", "rigSetup", "copy", "command", "beforeCopy", "retryConfig"),
    *("terminateOn", "sentinels", "settings", "outputPaths", "reportToWebsocket"),
}
"""Hankweave's schema is not strict about these; an item of a list has the list's name."""


def is_open(path: Path_) -> bool:
    names = [step for step in path if isinstance(step, str)]
    return bool(names) and names[-1] in OPEN


@pytest.mark.parametrize("path", list(objects(FULL)), ids=lambda path: "/".join(map(str, path)))
def test_an_unknown_key_is_refused_or_dropped_where_hankweave_does(path: Path_) -> None:
    """Strict shapes refuse a misspelt field, open ones ignore it; the schema agrees."""
    extended = changed(path, unknownKey=1)
    if is_open(path):
        assert decode(extended) == decode(FULL)
        assert is_valid(extended)
        return

    with pytest.raises(Refused, match="unknownKey"):
        decode(extended)

    assert not is_valid(extended)


def test_an_author_names_variables_and_shares_freely() -> None:
    """Keys that an author chooses are not checked."""
    codon = decode(changed(("hank", 0), env={"ANYTHING": "1"})).hank[0]
    assert isinstance(codon, Codon)
    assert codon.env == {"ANYTHING": "1"}
    overrides = decode(changed(("overrides", "budget"), shares={"whatever": 0.5})).overrides
    assert overrides is not None
    assert overrides.budget is not None
    assert overrides.budget.shares == {"whatever": 0.5}
    free = {"any": {"thing": [1]}}
    codon = decode(changed(("hank", 0, "sentinels", 1), sentinelConfig=free)).hank[0]
    assert isinstance(codon, Codon)
    assert codon.sentinels[1].sentinel_config == free


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a/b",
        "a\\b",
        "a#1",
        "a\nb",
        "a\n",
        "\na",
        "a\x00",
        ".",
        "..",
        "a\u00a0b",
        "\t",
    ],
)
def test_an_id_that_could_not_stand_in_a_file_name_is_refused(name: str) -> None:
    """Ids become parts of file names, commit subjects and iteration names."""
    for path in (("hank", 0), ("hank", 1), ("hank", 1, "codons", 0)):
        with pytest.raises(Refused) as caught:
            decode(changed(path, id=name))

        assert caught.value.path == "$" + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*path, "id")
        )


@pytest.mark.parametrize("name", ["a", "build-schema", "v1.2", "...", "ß_é", "run:1", "-", "~"])
def test_any_other_id_is_taken(name: str) -> None:
    """Ids that Hankweave's authors use are accepted."""
    assert is_valid(changed(("hank", 0), id=name))
    assert decode(changed(("hank", 0), id=name)).hank[0].id == name


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        pytest.param((), {"hank": []}, id="no codons"),
        pytest.param((), {"hank": ...}, id="no hank"),
        pytest.param(("hank", 0), {"id": ...}, id="no id"),
        pytest.param(("hank", 0), {"name": ...}, id="no name"),
        pytest.param(("hank", 0), {"model": ...}, id="no model"),
        pytest.param(("hank", 0), {"continuationMode": ...}, id="no mode"),
        pytest.param(("hank", 0), {"continuationMode": "new"}, id="another mode"),
        pytest.param(("hank", 0), {"type": "step"}, id="another type"),
        pytest.param(("hank", 0), {"onFailure": "continue"}, id="another policy"),
        pytest.param(("hank", 0), {"maxExtensions": 0}, id="no extensions"),
        pytest.param(("hank", 0), {"shimIdleTimeout": 1801}, id="idle for too long"),
        pytest.param(("hank", 0), {"env": {"A": 1}}, id="a number in env"),
        pytest.param(("hank", 0), {"agent": {"type": "robot"}}, id="another agent"),
        pytest.param(("hank", 0, "agent"), {"command": []}, id="an empty command"),
        pytest.param(("hank", 0, "retryConfig"), {"maxAttempts": 11}, id="many attempts"),
        pytest.param(("hank", 0, "retryConfig"), {"delayMs": -1}, id="negative delay"),
        pytest.param(("hank", 0, "budget"), {"maxDollars": -0.01}, id="negative budget"),
        pytest.param(("hank", 0, "budget"), {"maxTimeSeconds": 0}, id="no time"),
        pytest.param(("hank", 0, "rigSetup", 0), {"type": "move"}, id="another rig"),
        pytest.param(("hank", 0, "rigSetup", 0), {"copy": {"from": "a"}}, id="a copy to nowhere"),
        pytest.param(
            ("hank", 0, "rigSetup", 1, "command"), {"workingDirectory": "/"}, id="elsewhere"
        ),
        pytest.param(("hank", 0, "outputFiles", 0), {"copy": []}, id="no output"),
        pytest.param(("hank", 1), {"codons": []}, id="an empty loop"),
        pytest.param(("hank", 1), {"terminateOn": ...}, id="a loop without an end"),
        pytest.param(("hank", 1, "terminateOn"), {"limit": 0}, id="no iteration"),
        pytest.param(("overrides", "budget"), {"shares": {"a": 1.5}}, id="more than all"),
        pytest.param(("overrides", "budget"), {"shares": {"a": 0}}, id="less than some"),
        pytest.param(("meta",), {"version": ...}, id="no version"),
    ],
)
def test_a_value_out_of_its_range_is_refused(path: Path_, fields: dict[str, Any]) -> None:
    """Ranges and choices are Hankweave's; decoder and schema agree on them."""
    wrong = changed(path, **fields)
    with pytest.raises(Refused):
        decode(wrong)

    assert not is_valid(wrong)


# --- the schema -----------------------------------------------------------------------------------


def test_the_schema_is_a_schema() -> None:
    """Draft 2020-12 itself accepts the schema for editors."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("hank", [FULL, json.loads(EXAMPLE.read_text())], ids=["full", "example"])
def test_the_schema_accepts_what_loads(hank: dict[str, Any]) -> None:
    """An editor reports no error for a hank that runs."""
    assert faults(hank) == []


def test_a_step_that_does_not_say_what_it_is_is_a_codon() -> None:
    """Hankweave's `type` of a codon is optional, so the schema does not require it."""
    assert is_valid(changed(("hank", 0), type=...))
    assert not is_valid(changed(("hank", 0), type=..., id=...))
    assert not is_valid(changed(("hank", 1), type=...))


@often_enough
@given(values_of(Hank))
def test_the_schema_accepts_any_hank_that_can_be_written(hank: Hank) -> None:
    """Schema and shapes agree for any hank."""
    raw = json.loads(codec.encode(hank))
    for entry in sentinel_entries(raw):
        entry["sentinelConfig"] = "sentinels/any.json"  # Its own shape is covered by the next test.

    assert faults(raw) == []


@often_enough
@given(values_of(SentinelConfig))
def test_the_schema_accepts_any_sentinel_that_can_be_written(config: SentinelConfig) -> None:
    """Editors complete a sentinel inside a hank according to the shapes that the loader uses."""
    entry = {"sentinelConfig": json.loads(codec.encode(config))}
    assert faults(changed(("hank", 0), sentinels=[entry])) == []


def test_the_schema_knows_what_a_sentinel_may_say() -> None:
    """A misspelt key of a sentinel is an error, as in a codon."""
    wrong = changed(("hank", 0, "sentinels", 1, "sentinelConfig"), modle="x")
    assert not is_valid(wrong)


def test_every_field_is_described_but_those_that_name_their_own_shape() -> None:
    """An editor shows for each field its meaning, or the description of its shape."""
    strict = {"Hank", "Codon", "Loop", "CodonBudget", "ContainerBudget", "Overrides", "OutputFiles"}
    for name in strict & SCHEMA["$defs"].keys():
        assert SCHEMA["$defs"][name]["additionalProperties"] is False, name

    codon = SCHEMA["$defs"]["Codon"]["properties"]
    assert "as in a .gitignore" in codon["trackedFiles"]["description"]
    assert SCHEMA["$defs"]["Requirements"]["properties"]["tools"]["description"].endswith("names.")


@pytest.mark.parametrize("schema", [events_schema(), commands_schema()], ids=["events", "commands"])
def test_the_schemas_of_the_wire_are_schemas(schema: dict[str, Any]) -> None:
    """Draft 2020-12 accepts the schemas that clients in other languages are generated from."""
    Draft202012Validator.check_schema(schema)


def test_the_schemas_of_the_wire_accept_what_is_sent() -> None:
    """An event and a command in wire format are accepted; a misspelt type is not."""
    event = {"id": "e", "timestamp": "t", "type": "info", "data": {"message": "m"}}
    command = {"id": "c", "type": "codon.start", "data": {"codonId": "observe"}}
    for schema, message in ((events_schema(), event), (commands_schema(), command)):
        validator = Draft202012Validator(schema)
        validator.validate(message)
        assert not validator.is_valid(message | {"type": "none.such"})


def sentinel_entries(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in raw["hank"]:
        for codon in step.get("codons", [step]):
            yield from codon.get("sentinels", ())


def test_the_schema_is_printed_by_its_module() -> None:
    """`scripts/export-schema` prints the schema and nothing else."""
    printed = subprocess.run(
        [sys.executable, "-m", "codegen.exports"],
        env=os.environ | {"PYTHONPATH": str(TOP / "tools")},
        capture_output=True,
        check=True,
    )
    assert json.loads(printed.stdout) == json.loads(codec.encode(SCHEMA))
    assert printed.stderr == b""


def examples_of_fields() -> Iterator[tuple[str, str, object]]:
    """Yield the example of every field but `type` and its like, which have a single value."""
    for name, shape in SCHEMA["$defs"].items():
        for field, schema in shape.get("properties", {}).items():
            if "const" not in schema and len(schema.get("enum", ("", ""))) > 1:
                (example,) = schema["examples"]
                yield name, field, example


@pytest.mark.parametrize(("shape", "field", "example"), list(examples_of_fields()))
def test_the_example_of_a_field_is_valid(shape: str, field: str, example: object) -> None:
    """The schema accepts the example that a field has, and each field has one."""
    schema = {**SCHEMA["$defs"][shape]["properties"][field], "$defs": SCHEMA["$defs"]}
    Draft202012Validator(schema).validate(example)


def test_a_plan_on_record_may_have_a_budget_of_no_dollars() -> None:
    """A hank with a zero budget is refused; an existing execution with one still opens."""
    budget = codec.decode_value(hank_shapes.CodonBudget, b'{"maxDollars": 0}')
    assert budget.max_dollars == 0
