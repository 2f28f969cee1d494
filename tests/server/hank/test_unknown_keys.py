"""Unknown keys: refused in strict objects, dropped with a warning elsewhere.

Which objects are strict follows Hankweave 0.12 (`server/config.ts`, `sentinel.schema.ts`).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.hank.advice import advice
from hankweave_server.hank.load import HankInvalid, LoadedHank, load

SENTINEL: dict[str, Any] = {
    "id": "watcher",
    "name": "Watcher",
    "model": "anthropic/claude-haiku-4-5",
    "trigger": {
        "type": "sequence",
        "interestFilter": {"on": ["tool.result"]},
        "pattern": [
            {
                "type": "tool.result",
                "conditions": [{"operator": "equals", "path": "isError", "value": True}],
            }
        ],
        "options": {"consecutive": True},
    },
    "execution": {"strategy": "count", "threshold": 2},
    "systemPromptText": "You watch.",
    "userPromptText": "Say what happened.",
    "conversational": {"trimmingStrategy": {"type": "maxTurns", "maxTurns": 4}},
    "errorHandling": {"maxConsecutiveFailures": 2},
    "llmParams": {"temperature": 0.5},
    "structuredOutput": {"output": "enum", "enumValues": ["good", "bad"]},
    "output": {"file": "log.ndjson"},
}

HANK: dict[str, Any] = {
    "meta": {"name": "Survey", "version": "1.0.0"},
    "requirements": {"env": ["HOME"]},
    "overrides": {"sentinel": {"enablePersistence": True}, "budget": {"maxDollars": 5}},
    "hank": [
        {
            "id": "observe",
            "name": "Observe",
            "model": "sonnet",
            "continuationMode": "fresh",
            "promptText": "Look.",
            "rigSetup": [
                {"type": "command", "command": {"run": "ls"}},
                {"type": "copy", "copy": {"from": "kit", "to": "kit"}},
            ],
            "onFailure": "retry",
            "retryConfig": {"maxAttempts": 2},
            "budget": {"maxDollars": 1},
            "outputFiles": [
                {"copy": ["*.md"], "beforeCopy": [{"type": "command", "command": {"run": "ls"}}]}
            ],
            "sentinels": [
                {
                    "sentinelConfig": SENTINEL,
                    "settings": {
                        "outputPaths": {"logFile": "log.ndjson"},
                        "reportToWebsocket": {"outputs": True},
                    },
                }
            ],
        },
        {
            "type": "loop",
            "id": "improve",
            "name": "Improve",
            "terminateOn": {"type": "iterationLimit", "limit": 2},
            "budget": {"maxDollars": 1},
            "codons": [
                {
                    "id": "review",
                    "name": "Review",
                    "model": "sonnet",
                    "continuationMode": "fresh",
                    "promptText": "Review.",
                }
            ],
        },
    ],
}

_SENTINEL_PATH = "hank/0/sentinels/0/sentinelConfig"

DROPS = (
    "meta",
    "requirements",
    "hank/0/rigSetup/0",
    "hank/0/rigSetup/0/command",
    "hank/0/rigSetup/1",
    "hank/0/rigSetup/1/copy",
    "hank/0/retryConfig",
    "hank/0/outputFiles/0/beforeCopy/0",
    "hank/0/outputFiles/0/beforeCopy/0/command",
    "hank/0/sentinels/0",
    "hank/0/sentinels/0/settings",
    "hank/0/sentinels/0/settings/outputPaths",
    "hank/0/sentinels/0/settings/reportToWebsocket",
    f"{_SENTINEL_PATH}/trigger",
    f"{_SENTINEL_PATH}/trigger/interestFilter",
    f"{_SENTINEL_PATH}/trigger/pattern/0",
    f"{_SENTINEL_PATH}/trigger/pattern/0/conditions/0",
    f"{_SENTINEL_PATH}/trigger/options",
    f"{_SENTINEL_PATH}/execution",
    f"{_SENTINEL_PATH}/conversational",
    f"{_SENTINEL_PATH}/conversational/trimmingStrategy",
    f"{_SENTINEL_PATH}/errorHandling",
    f"{_SENTINEL_PATH}/llmParams",
    f"{_SENTINEL_PATH}/structuredOutput",
    f"{_SENTINEL_PATH}/output",
    "hank/1/terminateOn",
)

REFUSES = (
    "",
    "overrides",
    "overrides/sentinel",
    "overrides/budget",
    "hank/0",
    "hank/0/budget",
    "hank/0/outputFiles/0",
    _SENTINEL_PATH,
    "hank/1",
    "hank/1/budget",
    "hank/1/codons/0",
)


def with_key(place: str, key: str = "unknownKey") -> dict[str, Any]:
    hank = copy.deepcopy(HANK)
    owner: Any = hank
    for step in filter(None, place.split("/")):
        owner = owner[int(step) if step.isdigit() else step]

    owner[key] = 1
    return hank


def written(folder: Path, hank: dict[str, Any]) -> Path:
    (folder / "kit").mkdir(exist_ok=True)
    path = folder / "hank.json"
    path.write_text(json.dumps(hank, indent=2))
    return path


def loaded(folder: Path, hank: dict[str, Any]) -> LoadedHank:
    return load(written(folder, hank))


@pytest.mark.parametrize("place", DROPS)
def test_an_unknown_key_of_an_open_object_is_dropped_with_a_warning(
    tmp_path: Path, place: str
) -> None:
    """The hank equals the one without the key; one warning has the key, its path and its line."""
    found = loaded(tmp_path, with_key(place))
    assert found.hank.meta == loaded(tmp_path, HANK).hank.meta
    [warning] = found.warnings
    assert warning.message == "The unknown field 'unknownKey' is ignored."
    assert warning.path.endswith(".unknownKey")
    assert warning.line is not None
    lines = json.dumps(with_key(place), indent=2).splitlines()
    assert "unknownKey" in lines[warning.line - 1]


@pytest.mark.parametrize("place", REFUSES)
def test_an_unknown_key_of_a_strict_object_is_refused(tmp_path: Path, place: str) -> None:
    """Loading fails, and the message names the key."""
    with pytest.raises(HankInvalid) as caught:
        loaded(tmp_path, with_key(place))

    [problem] = caught.value.problems
    assert "unknownKey" in problem.message


def test_a_hank_without_unknown_keys_has_no_warnings(tmp_path: Path) -> None:
    """Every field that the shapes define is read, so nothing is reported as dropped."""
    assert loaded(tmp_path, HANK).warnings == ()


@pytest.mark.parametrize(
    ("place", "key", "hint"),
    [
        ("hank/0/rigSetup/0", "workingDirectory", "It belongs to the 'command' of a rig."),
        ("hank/0/retryConfig", "maxAttempt", "Did you mean 'maxAttempts'?"),
        ("requirements", "environment", "Known fields: env, tools."),
    ],
)
def test_a_warning_says_what_was_probably_meant(
    tmp_path: Path, place: str, key: str, hint: str
) -> None:
    """A misspelt or misplaced option is reported with the likely intended one."""
    [warning] = loaded(tmp_path, with_key(place, key)).warnings
    assert warning.suggestion == hint


def test_a_sentinel_in_a_file_drops_keys_as_well(tmp_path: Path) -> None:
    """The warning is at the reference, and names the file and the key's place in it."""
    hank = copy.deepcopy(HANK)
    hank["hank"][0]["sentinels"] = [{"sentinelConfig": "watcher.json"}]
    config = copy.deepcopy(SENTINEL)
    config["execution"]["milliseconds"] = 5
    (tmp_path / "watcher.json").write_text(json.dumps(config))
    [warning] = loaded(tmp_path, hank).warnings
    assert warning.path == "$.hank[0].sentinels[0].sentinelConfig"
    assert warning.message == (
        "watcher.json: $.execution.milliseconds: The unknown field 'milliseconds' is ignored."
    )


def test_validate_and_the_log_report_dropped_keys(tmp_path: Path) -> None:
    """Both print `advice`, which starts with the dropped keys and their lines."""
    first = next(advice(loaded(tmp_path, with_key("meta", "licence"))))
    assert first.startswith("Line 5: $.meta.licence: The unknown field 'licence' is ignored.")
