"""Claims about loading a sentinel: all faults at once, references relative to the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.hank.prompts import HankFiles
from hankweave_server.sentinels.config import LoadedConfig, SentinelInvalid, load_config
from hankweave_server.sentinels.templates.javascript import QuickJs
from support.sentinels import a_sentinel, entry_of, write

QUICKJS = QuickJs()


@pytest.fixture(scope="module", autouse=True)
def quickjs() -> Iterator[None]:
    yield
    QUICKJS.close()


def load(folder: Path, config: dict[str, Any] | str, **settings: Any) -> LoadedConfig:
    return load_config(entry_of(config, **settings), HankFiles(folder), QUICKJS)


def problems(folder: Path, config: dict[str, Any] | str, **settings: Any) -> tuple[str, ...]:
    with pytest.raises(SentinelInvalid) as refused:
        load(folder, config, **settings)

    return refused.value.problems


HANKWEAVES = {
    "id": "metrics-tracker",
    "name": "Metrics",
    "description": "Counts",
    "model": "anthropic/claude-3-5-haiku-20241022",
    "trigger": {
        "type": "sequence",
        "interestFilter": {"on": ["tool.result", "file.updated"]},
        "pattern": [
            {
                "type": "tool.result",
                "conditions": [{"operator": "equals", "path": "isError", "value": True}],
            },
            {"type": "file.updated"},
        ],
        "options": {"consecutive": False},
    },
    "execution": {"strategy": "debounce", "milliseconds": 10000},
    "systemPromptText": "Track cumulative metrics.",
    "userPromptFile": ["../prompts/one.md", "../prompts/two.md"],
    "conversational": {"trimmingStrategy": {"type": "maxTokens", "maxTokens": 4000}},
    "errorHandling": {"maxConsecutiveFailures": 5},
    "llmParams": {"temperature": 0, "maxOutputTokens": 512},
    "structuredOutput": {"output": "object", "schemaFile": "./metrics.ts"},
    "reportToWebsocket": {"lifecycle": True, "triggers": False},
    "output": {"file": "metrics.ndjson", "lastValueFile": "metrics.json"},
}


def test_a_sentinel_of_hankweaves_loads_unchanged(tmp_path: Path) -> None:
    """References are relative to the sentinel's file, and a zod schema is evaluated."""
    write(tmp_path, "prompts/one.md", "---\nname: x\n---\nEvents: <%= JSON.stringify(it.events) %>")
    write(tmp_path, "prompts/two.md", "Codon <%= it.codon.id %>")
    schema = "z.object({ filesChanged: z.number(), complexity: z.number().min(0).max(10) })"
    write(tmp_path, "sentinels/metrics.ts", schema)
    loaded = load(tmp_path, write(tmp_path, "sentinels/metrics.json", HANKWEAVES))
    assert (loaded.source, loaded.source_path) == ("file", "sentinels/metrics.json")
    context = {"events": [], "codon": {"id": "c"}}
    assert loaded.user_prompt.render(context) == "Events: []\nCodon c"
    assert loaded.form is not None
    assert set(loaded.form.schema["properties"]) == {"filesChanged", "complexity"}


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    """One attempt reports every fault, each with its place."""
    faulty = a_sentinel(
        id="Not An Id",
        nmae="typo",
        trigger={"type": "event", "on": ["codon.complete", "sentinel.output", "pong"]},
        execution={"strategy": "count", "threshold": 0},
        userPromptText="{% for %}",
        llmParams={"maxRetries": 99},
    )
    found = "\n".join(problems(tmp_path, faulty))
    for part in (
        "$.id: 'Not An Id'",
        "$.nmae",
        "Did you mean 'codon.completed'?",
        "'sentinel.output' is not available",
        "'pong' is not available",
        "$.execution.threshold",
        "$.userPromptText: Line 1",
        "$.llmParams.maxRetries",
    ):
        assert part in found


ENUM = {"output": "enum", "enumValues": ["a"]}


def event(on: str, path: str, value: object = "x", operator: str = "equals") -> dict[str, Any]:
    condition = {"operator": operator, "path": path, "value": value}
    return {"type": "event", "on": [on], "conditions": [condition]}


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"userPromptText": None}, "has no prompt"),
        ({"conversational": {"trimmingStrategy": {"type": "maxTurns", "maxTurns": 3}}}, "system"),
        ({"structuredOutput": {"output": "enum"}}, "enumValues"),
        ({"structuredOutput": {"output": "object"}}, "exactly one"),
        ({"structuredOutput": {"output": "object", "schemaStr": "z.dat()"}}, "TypeError"),
        ({"structuredOutput": {"output": "object", "jsonSchema": {"type": 3}}}, "JSON Schema"),
        ({"structuredOutput": ENUM, "joinString": "x"}, "joinString"),
        ({"structuredOutput": ENUM, "output": {"format": "jsonl"}}, "format"),
        ({"structuredOutput": ENUM, "output": {"file": "x.md"}}, ".ndjson"),
        ({"trigger": event("info", "nowhere")}, "'nowhere'"),
        ({"trigger": event("file.updated", "content")}, "'content'"),
        ({"trigger": event("info", "message", "(", "matches")}, "regular expression"),
        ({"trigger": {"type": "event", "on": []}}, "must not be empty"),
        ({"trigger": {"type": "often"}}, "event, sequence"),
        (
            {
                "trigger": {
                    "type": "sequence",
                    "interestFilter": {"on": ["info"]},
                    "pattern": [{"type": "server.idle"}],
                }
            },
            "can never match",
        ),
        ({"output": {"file": "../out.md"}}, "leads out"),
        ({"output": {"file": "a/../../out.md"}}, "leads out"),
        ({"output": {"file": "read_only_data_source/x.md"}}, "protected"),
        ({"output": {"file": ".hankweave/state.json"}}, "protected"),
        ({"userPromptFile": "missing.md"}, "missing.md"),
        ({"userPromptFile": "../outside.md"}, "leads out"),
        ({"userPromptFile": "/etc/passwd"}, "absolute"),
        ({"execution": {"strategy": "debounce", "milliseconds": 300_001}}, "at most 300000"),
        ({"templateEngine": "eta", "userPromptText": "<% if %>"}, "not valid Eta"),
        ({"templateEngine": "ejs"}, "eta, jinja"),
    ],
)
def test_a_fault_is_reported_with_its_reason(
    tmp_path: Path, fields: dict[str, Any], part: str
) -> None:
    """Each of these faults keeps the sentinel from loading, and the message says why."""
    assert part in "\n".join(problems(tmp_path, a_sentinel(**fields)))


def test_a_path_is_free_where_every_event_is_watched(tmp_path: Path) -> None:
    """With `*` the fields of the events are unknown, so any path is accepted."""
    assert load(tmp_path, a_sentinel(trigger=event("*", "anything.at.all"))).config.id == "narrator"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Neither the sentinel nor a file that it names may be a symbolic link."""
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "link.md").symlink_to("secret.md")
    assert "link" in problems(tmp_path, "link.md")[0]
    assert "link" in problems(tmp_path, a_sentinel(userPromptFile="link.md"))[0]


def test_a_file_that_is_not_json_says_so(tmp_path: Path) -> None:
    """The error names the file."""
    found = problems(tmp_path, write(tmp_path, "s.json", "{,}"))
    assert "s.json" in found[0]


def test_the_codons_paths_are_checked_as_the_sentinels_are(tmp_path: Path) -> None:
    """The codon's settings for files take precedence and are checked by the same rules."""
    paths = {"logFile": "../x.md"}
    assert "leads out" in problems(tmp_path, a_sentinel(), outputPaths=paths)[0]


def test_a_prompt_is_eta_unless_a_sentinel_says_jinja(tmp_path: Path) -> None:
    """Braces are text in Hankweave's sentinels; a key, or a prompt file's name, selects jinja."""
    context = {"events": [], "codon": {"id": "c"}}
    plain = a_sentinel(userPromptText="{{ codon.id }} <%= it.codon.id %>", templateEngine=None)
    assert load(tmp_path, plain).user_prompt.render(context) == "{{ codon.id }} c"
    by_key = plain | {"templateEngine": "jinja"}
    assert load(tmp_path, by_key).user_prompt.render(context) == "c <%= it.codon.id %>"
    write(tmp_path, "ask.md.j2", "{{ codon.id }}!")
    by_name = a_sentinel(userPromptText=None, userPromptFile="ask.md.j2", templateEngine=None)
    assert load(tmp_path, by_name).user_prompt.render(context) == "c!"


def test_braces_in_an_eta_prompt_are_warned_of(tmp_path: Path) -> None:
    """An author who wrote jinja without declaring it is told which setting to add."""
    [warning] = load(tmp_path, a_sentinel(templateEngine=None)).warnings
    assert "'templateEngine': 'jinja'" in warning
    assert load(tmp_path, a_sentinel(templateEngine="eta")).warnings == ()
