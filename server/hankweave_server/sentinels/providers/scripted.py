"""Simulate a model that answers deterministically from the prompt's own text.

Lines that begin with `SAY:` are its answer; without one it repeats the prompt. A line `FAIL:`
followed by `rate-limit`, `overloaded` or `refused` makes the call fail in that way. If JSON is
requested and `SAY:` has none, the answer is the smallest value that the schema allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hankweave_protocol.state import Tokens
from hankweave_server.sentinels.providers.base import CallFailed, ModelAnswer, ModelCall

if TYPE_CHECKING:
    from hankweave_server.sentinels.structured import Form

_SAY, _FAIL = "SAY:", "FAIL:"
CHARACTERS_PER_TOKEN = 4


class ScriptedModel:
    """A model for demonstrations and tests."""

    async def ask(self, call: ModelCall) -> ModelAnswer:
        prompt = call.messages[-1].content
        for failure in _texts_after(prompt, _FAIL):
            raise CallFailed(
                f"The scripted model was told to fail: {failure}.",
                retriable=failure != "refused",
                fatal="configuration" if failure == "refused" else None,
            )

        said = "\n".join(_texts_after(prompt, _SAY))
        text = (said or prompt) if call.form is None else _filled(said, call.form)
        asked = sum(len(message.content) for message in call.messages) + len(call.system or "")
        return ModelAnswer(text, _counted(asked, len(text)))

    async def aclose(self) -> None:
        """Do nothing; there are no connections."""


def _texts_after(prompt: str, mark: str) -> list[str]:
    lines = (line.strip() for line in prompt.splitlines())
    return [line.removeprefix(mark).strip() for line in lines if line.startswith(mark)]


def _filled(said: str, form: Form) -> str:
    try:
        value = json.loads(said)
    except ValueError:
        return json.dumps(_smallest(form.schema))

    return json.dumps(value if form.wrapper is None else {form.wrapper: value})


def _smallest(schema: Mapping[str, Any]) -> Any:
    match schema:
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]}:
            return _smallest(first)
        case {"type": "string"}:
            return "scripted".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
        case {"type": "number" | "integer"}:
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case {"type": "boolean"}:
            return False
        case {"type": "array"}:
            return [_smallest(schema.get("items", {}))] * schema.get("minItems", 1)
        case {"type": "object"}:
            fields = schema.get("properties", {})
            return {name: _smallest(fields.get(name, {})) for name in schema.get("required", ())}
        case _:
            return None


def _counted(asked: int, answered: int) -> Tokens:
    return Tokens(
        input_tokens=asked // CHARACTERS_PER_TOKEN,
        output_tokens=answered // CHARACTERS_PER_TOKEN,
        cache_creation_tokens=0,
        cache_read_tokens=0,
    )
