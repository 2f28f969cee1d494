"""Claims about single fields of a sentinel's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.events import SentinelError, SentinelUnloaded
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.sentinels.config import load_config
from hankweave_server.sentinels.providers.base import CallFailed
from hankweave_server.sentinels.templates.javascript import QuickJs
from support.sentinels import Actor, a_sentinel, entry_of, info, on_stage, write

RISK = {"type": "object", "properties": {"risk": {"enum": ["high", "low"]}}, "required": ["risk"]}


@pytest.mark.parametrize("field", ["jsonSchema", "jsonSchemaFile"])
def test_a_schema_may_be_json_and_has_a_name(tmp_path: Path, field: str) -> None:
    """The schema is in the configuration or in a file; the model gets its name and description."""
    schema = RISK if field == "jsonSchema" else write(tmp_path, "risk.json", RISK)
    structured = {
        "output": "object",
        field: schema,
        "schemaName": "risk",
        "schemaDescription": "How bad it is.",
    }
    config = a_sentinel(structuredOutput=structured)
    loaded = load_config(entry_of(config), HankFiles(tmp_path), QuickJs())
    assert loaded.form is not None
    assert (loaded.form.name, loaded.form.description) == ("risk", "How bad it is.")
    assert loaded.form.content_of('{"risk": "low"}') == {"risk": "low"}


async def test_files_come_before_texts_and_a_sentinel_knows_itself(tmp_path: Path) -> None:
    """Prompts of files come first, then a blank line, then prompts of texts.

    A template has the sentinel's own id, name and description; `$schema` is for editors.
    """
    write(tmp_path, "system.md", "You watch.")
    write(tmp_path, "user.md", "{{ sentinel.id }}")
    config = a_sentinel(
        **{"$schema": "https://example.org/sentinel.json"},
        name="Watcher",
        description="Looks on.",
        systemPromptFile="system.md",
        systemPromptText="Be brief.",
        userPromptFile=["user.md"],
        userPromptText="{{ sentinel.name }}: {{ sentinel.description }}",
    )
    async with on_stage(tmp_path, entry_of(config)) as stage:
        await stage.process(info("1"))
        (call,) = stage.actor.calls
        assert call.system == "You watch.\n\nBe brief."
        assert call.messages[-1].content == "narrator\n\nWatcher: Looks on."


@pytest.mark.parametrize(("handling", "most"), [(None, 3), ({"maxConsecutiveFailures": 2}, 2)])
async def test_a_sentinel_fails_as_often_in_a_row_as_it_may(
    tmp_path: Path, handling: dict[str, int] | None, most: int
) -> None:
    """The default limit is three; each failure is reported, and waiting triggers as dropped."""
    actor = Actor(answer=lambda call: CallFailed("busy", retriable=True))
    config = a_sentinel(errorHandling=handling)
    async with on_stage(tmp_path, entry_of(config), actor=actor) as stage:
        await stage.process(*(info(str(number)) for number in range(5)))
        errors: list[SentinelError] = stage.events_of(SentinelError)
        failures = [error for error in errors if error.error_type == "llm-call-failed"]
        counts = [error.consecutive_failure_count for error in failures]
        assert counts == list(range(1, most + 1))
        assert sum(error.dropped for error in errors) == 5 - most
        (gone,) = stage.events_of(SentinelUnloaded)
        assert (gone.reason, gone.llm_call_count) == ("consecutive-failures", most)
        assert stage.state.failed_llm_calls == most
        assert not stage.watch.is_watching


async def test_a_sequence_with_conditions_and_gaps_fires(tmp_path: Path) -> None:
    """interestFilter, the steps' types and conditions, and `consecutive: false` work together."""

    def step(word: str) -> dict[str, Any]:
        condition = {"operator": "contains", "path": "message", "value": word}
        return {"type": "info", "conditions": [condition]}

    trigger = {
        "type": "sequence",
        "interestFilter": {"on": ["info"]},
        "pattern": [step("begin"), step("end")],
        "options": {"consecutive": False},
    }
    text = "{% for event in events %}{{ event.data.message }};{% endfor %}"
    config = a_sentinel(trigger=trigger, userPromptText=text)
    async with on_stage(tmp_path, entry_of(config)) as stage:
        await stage.process(info("end"), info("begin"), info("other"), info("end"))
        assert stage.prompts == ["begin;end;"]
