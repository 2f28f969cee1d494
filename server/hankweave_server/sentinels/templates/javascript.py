"""Prompts in Eta, the template language of Hankweave: JavaScript between `<%` and `%>`.

The real Eta runs, with Hankweave's options, in a QuickJS process (`quickjs_process`). A template
sees `it` with `events`, `codon`, `sentinel` and `world`; times are Dates, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hankweave_server.sentinels.templates.base import BadTemplate, NotRendered, RenderLimit
from hankweave_server.sentinels.templates.quickjs_process import (
    JavaScriptError,
    JavaScriptLimit,
    JavaScriptMissing,
    QuickJs,
    summary,
)

OPENING: Final = "<%"

MOST_EVENTS: Final = 1000
"""Hankweave shows a template the first 1,000 events of a trigger."""

MOST_CONTENT: Final = 8 * 1024 * 1024
"""Characters of files that one template is shown."""


class EtaTemplate:
    """One prompt. Raises BadTemplate where it is not valid, or QuickJS is missing."""

    def __init__(self, source: str, quickjs: QuickJs) -> None:
        self._source = source
        self._quickjs = quickjs
        if OPENING not in source:
            return  # Eta leaves such a text as it is, so it needs no engine.

        try:
            quickjs.call("eta", "compile", {"template": source})
        except JavaScriptMissing as missing:
            raise BadTemplate(str(missing)) from None
        except JavaScriptError as error:
            raise BadTemplate(f"The template is not valid Eta: {summary(error)}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Render, blocking; raise NotRendered, and RenderLimit where it is too much."""
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
        """Read the files of `file.updated` events, if the template can ask for their `content`."""
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
