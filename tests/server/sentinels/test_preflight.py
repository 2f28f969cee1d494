"""Before a run starts, each sentinel that could not be loaded is found, with all reasons."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.hank import Codon
from hankweave_server.hank.load import HankInvalid, load
from hankweave_server.hank.price_files import packaged_prices
from hankweave_server.sentinels.preflight import SentinelCheck, check_sentinels
from support.scripted_hank import codon, write_hank
from support.sentinels import a_sentinel, an_entry_of_the_plan, entry_of, write

KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}


def checked(
    folder: Path, config: dict[str, Any] | str, environment: dict[str, str], **settings: Any
) -> SentinelCheck:
    codon = an_entry_of_the_plan(entry_of(config, **settings)).codon
    (check,) = check_sentinels([codon], folder, environment)
    return check


@pytest.mark.parametrize("model", ["anthropic/claude-test", "openai/gpt-test", "claude-test"])
def test_a_missing_package_and_a_missing_key_are_both_found(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fault has its remedy; neither hides the other."""
    monkeypatch.setitem(sys.modules, "anthropic", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "openai", None)  # type: ignore[arg-type]
    package, key = checked(tmp_path, a_sentinel(model=model), {}).faults
    assert "pip install 'hankweave[llm]'" in package
    assert "_API_KEY" in key
    assert checked(tmp_path, a_sentinel(model=model), KEYS).faults == (package,)


def test_what_can_be_loaded_has_no_fault(tmp_path: Path) -> None:
    """The scripted model needs nothing; another needs its key, and an endpoint its address."""
    endpoint = {"HANKWEAVE_SENTINEL_GROQ_BASE_URL": "http://127.0.0.1:9"}
    for model, environment in (
        ("scripted/any", {}),
        ("anthropic/claude-test", KEYS),
        ("openai/gpt-test", KEYS),
        ("groq/llama", endpoint),
    ):
        assert checked(tmp_path, a_sentinel(model=model), environment).faults == ()

    assert "GROQ_BASE_URL" in checked(tmp_path, a_sentinel(model="groq/llama"), {}).faults[0]
    assert "provider/model" in checked(tmp_path, a_sentinel(model="llama"), KEYS).faults[0]


@pytest.mark.parametrize("is_file", [False, True])
def test_a_fault_of_the_configuration_is_found_wherever_it_is_written(
    tmp_path: Path, is_file: bool
) -> None:
    """A sentinel in a file of its own has the same faults as one in the hank."""
    config = a_sentinel(userPromptText="{% for %}", trigger={"type": "event", "on": ["no.such"]})
    written = write(tmp_path, "sentinel.json", config) if is_file else config
    check = checked(tmp_path, written, KEYS, failCodonIfNotLoaded=True)
    assert check.is_required
    problem_lines = " ".join(check.problem_lines())
    assert "no.such" in problem_lines
    assert "userPromptText" in problem_lines
    assert "the codon will fail" in problem_lines
    assert "the codon will run without it" in " ".join(
        checked(tmp_path, written, {}).problem_lines()
    )


def test_a_misspelt_model_is_found(tmp_path: Path) -> None:
    """Only names of the maker's own endpoint are judged; another may have any model."""
    sentinel, listed = a_sentinel(model="anthropic/claude-hiaku-4-5"), packaged_prices().by_name
    codon = an_entry_of_the_plan(entry_of(sentinel)).codon
    (check,) = check_sentinels([codon], tmp_path, KEYS, listed)
    assert "Did you mean 'anthropic/claude-haiku-4-5'?" in check.faults[0]
    elsewhere = KEYS | {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    (check,) = check_sentinels([codon], tmp_path, elsewhere, listed)
    assert check.faults == ()


FAULTS: dict[str, dict[str, Any]] = {
    "an unknown key": {"colour": "red"},
    "an unknown key of its trigger": {"trigger": {"type": "event", "on": ["info"], "colour": 1}},
    "a missing name": {"name": None},
    "an empty name": {"name": ""},
    "an id with capitals": {"id": "Narrator"},
    "no prompt": {"userPromptText": None},
    "an empty prompt": {"userPromptText": ""},
    "a prompt that is no text": {"userPromptText": 5},
    "a template that does not compile": {"userPromptText": "{% for %}"},
    "a prompt file that is missing": {"userPromptFile": "missing.md"},
    "a prompt file outside of the hank": {"userPromptFile": "../outside.md"},
    "an unknown event": {"trigger": {"type": "event", "on": ["no.such"]}},
    "no events": {"trigger": {"type": "event", "on": []}},
    "an unknown strategy": {"execution": {"strategy": "sometimes"}},
    "a threshold of 0": {"execution": {"strategy": "count", "threshold": 0}},
    "an unknown path": {
        "trigger": {
            "type": "event",
            "on": ["info"],
            "conditions": [{"operator": "equals", "path": "colour", "value": 1}],
        }
    },
    "a schema of nothing": {"structuredOutput": {"output": "object"}},
    "a schema that is none": {
        "structuredOutput": {"output": "object", "jsonSchema": {"type": "colour"}}
    },
    "a joined structure": {
        "structuredOutput": {"output": "enum", "enumValues": ["a"]},
        "joinString": "-",
    },
    "an output outside of the work tree": {"output": {"file": "../a.md"}},
    "a memory without a system prompt": {
        "conversational": {"trimmingStrategy": {"type": "maxTurns", "maxTurns": 3}}
    },
    "a number of failures of 0": {"errorHandling": {"maxConsecutiveFailures": 0}},
    "null instead of a model": {"model": 5},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sentinel_in_a_file_gets_the_verdict_of_one_in_the_hank(
    tmp_path: Path, fault: str
) -> None:
    """Both are refused, both could not be loaded, or both are accepted."""
    config = a_sentinel(**FAULTS[fault])
    (tmp_path / "outside.md").write_text("x")
    inline = verdict(tmp_path / "inline", config)
    assert verdict(tmp_path / "file", write(tmp_path / "file", "sentinel.json", config)) == inline


def verdict(folder: Path, config: dict[str, Any] | str) -> str:
    """Return how a hank with the sentinel is judged before a run."""
    hank = write_hank(folder, codon("one", sentinels=[{"sentinelConfig": config}]))
    try:
        loaded = load(hank)
    except HankInvalid:
        return "refused"

    codons = [step for step in loaded.hank.hank if isinstance(step, Codon)]
    (check,) = check_sentinels(codons, loaded.directory, {})
    faults = [each for each in check.faults if "There is no endpoint" not in each]
    return "not loaded" if faults else "accepted"
