"""Schemas in zod, as Hankweave's sentinels have them: JavaScript that evaluates to a schema.

The real zod evaluates the text in a QuickJS process, says what JSON a model is to fill, and checks
the answer, with the refinements, defaults and transforms that no JSON Schema can say. Version 3 is
Hankweave's; a text that only version 4 understands is evaluated by that.
"""

from __future__ import annotations

from typing import Any

from hankweave_server.sentinels.structured import BadAnswer, BadSchema, Schema
from hankweave_server.sentinels.templates.quickjs_process import (
    JavaScriptError,
    JavaScriptLimit,
    JavaScriptMissing,
    Library,
    QuickJs,
    summary,
)

_VERSIONS: tuple[Library, ...] = ("zod3", "zod4")


class ZodSchema:
    """A schema's text. Raises BadSchema where it is none."""

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
                # OpenAI refuses the key inside a schema, and everyone knows the dialect.
                return version, {key: each for key, each in schema.items() if key != "$schema"}

        assert first is not None, "each version failed"
        raise BadSchema(f"The zod schema is not valid: {summary(first)}")

    def parse(self, value: Any, *, is_array: bool) -> Any:
        """Check an answer, or each element of one, and return what zod makes of it.

        Raises BadAnswer.
        """
        arguments = {"source": self._source, "isArray": is_array, "value": value}
        try:
            found = self._quickjs.call(self._version, "parse", arguments)
        except JavaScriptError as error:
            raise BadAnswer(f"The zod schema failed on the answer: {summary(error)}") from None

        if "message" in found:
            place = "".join(f"[{step!r}]" for step in found["path"])
            raise BadAnswer(f"At ${place} of the answer: {found['message'][:300]}.")

        return found.get("value")
