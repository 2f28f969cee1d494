"""Evaluate the JavaScript of Hankweave's sentinels: Eta templates and zod schemas.

Both run in a QuickJS process (`quickjs_process`) with the original libraries.

Eta is Hankweave's template language: JavaScript between `<%` and `%>`. It runs with Hankweave's
options. A template sees `it` with `events`, `codon`, `sentinel` and `world`; times are Dates, as in
Hankweave.

A zod schema is JavaScript that evaluates to a schema. zod converts it to the JSON Schema that a
model has to fill, and checks the answer, including refinements, defaults and transforms, which JSON
Schema cannot express. Hankweave uses version 3; a text that only version 4 accepts is evaluated by
version 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hankweave_server.sentinels.structured import BadAnswer, BadSchema, Schema
from hankweave_server.sentinels.templates.base import BadTemplate, NotRendered, RenderLimit
from hankweave_server.sentinels.templates.quickjs_process import (
    JavaScriptError,
    JavaScriptLimit,
    JavaScriptMissing,
    Library,
    QuickJs,
    summary,
)

OPENING: Final = "<%"

MOST_EVENTS: Final = 1000
"""As in Hankweave, a template sees the first 1,000 events of a trigger."""

MOST_CONTENT: Final = 8 * 1024 * 1024
"""Characters of files that one template sees."""


class EtaTemplate:
    """One prompt. Raises BadTemplate if it is not valid or QuickJS is missing."""

    def __init__(self, source: str, quickjs: QuickJs) -> None:
        self._source = source
        self._quickjs = quickjs
        if OPENING not in source:
            return  # Eta does not change such a text, so no engine is needed.

        try:
            quickjs.call("eta", "compile", {"template": source})
        except JavaScriptMissing as missing:
            raise BadTemplate(str(missing)) from None
        except JavaScriptError as error:
            raise BadTemplate(f"The template is not valid Eta: {summary(error)}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Render. Blocks; raises NotRendered, and RenderLimit if a limit is exceeded."""
        if OPENING not in self._source:
            return self._source

        events = list(context["events"][:MOST_EVENTS])
        arguments = {
            "template": self._source,
            "it": {**context, "events": events},
            "contents": self._contents(events),
        }
        try:
            rendered: str = self._quickjs.call("eta", "render", arguments)
        except JavaScriptLimit as error:
            raise RenderLimit(f"The template was stopped: {error}") from None
        except JavaScriptError as error:
            raise NotRendered(f"The template failed: {summary(error)}") from None

        return rendered

    def _contents(self, events: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
        """Read the files of `file.updated` events, if the template may access `content`."""
        if "content" not in self._source:
            return []

        contents: list[tuple[int, str]] = []
        left = MOST_CONTENT
        for index, event in enumerate(events):
            if event["type"] == "file.updated":
                text = event["data"]["content"][:left]
                left -= len(text)
                contents.append((index, text))

        return contents


_VERSIONS: tuple[Library, ...] = ("zod3", "zod4")


class ZodSchema:
    """A zod schema. Raises BadSchema if the text is not valid."""

    def __init__(self, source: str, quickjs: QuickJs) -> None:
        self._source = source
        self._quickjs = quickjs
        self._version, self.json_schema = self._converted()

    def _converted(self) -> tuple[Library, Schema]:
        first: JavaScriptError | None = None
        for version in _VERSIONS:
            try:
                schema = self._quickjs.call(version, "schema", {"source": self._source})
            except (JavaScriptLimit, JavaScriptMissing) as error:
                raise BadSchema(f"The zod schema cannot be evaluated: {summary(error)}") from None
            except JavaScriptError as error:
                first = first or error
            else:
                # OpenAI rejects the key inside a schema, and the dialect is clear without it.
                return version, {key: each for key, each in schema.items() if key != "$schema"}

        assert first is not None, "each version failed"
        raise BadSchema(f"The zod schema is not valid: {summary(first)}")

    def parse(self, value: Any, *, is_array: bool) -> Any:
        """Check an answer, or each element of one, and return zod's result; raises BadAnswer."""
        arguments = {"source": self._source, "isArray": is_array, "value": value}
        try:
            found = self._quickjs.call(self._version, "parse", arguments)
        except JavaScriptError as error:
            raise BadAnswer(f"The zod schema failed on the answer: {summary(error)}") from None

        if "message" in found:
            place = "".join(f"[{step!r}]" for step in found["path"])
            raise BadAnswer(f"At ${place} of the answer: {found['message'][:300]}.")

        return found.get("value")
