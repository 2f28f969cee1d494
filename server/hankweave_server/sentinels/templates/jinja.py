"""Render prompts in jinja: sandboxed, and limited in time and size.

A template sees `events`, `codon`, `sentinel` and `world`, and the same four as attributes of `it`.
Rendering runs in a worker thread. A thread cannot be stopped from outside, so it stops itself: a
trace function checks the clock at every line of Python that a template executes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, Final

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hankweave_server.sentinels.templates.base import (
    LARGEST_PROMPT,
    BadTemplate,
    NotRendered,
    RenderLimit,
)

LONGEST_RENDER: Final = 2.0
"""Seconds that one prompt may take."""

_FILTERS = (
    *("abs", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first"),
    *("float", "groupby", "int", "items", "join", "last", "length", "list", "lower", "map", "max"),
    *("min", "reject", "rejectattr", "replace", "reverse", "round", "select", "selectattr"),
    *("slice", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper"),
    "wordcount",
)
"""Filters whose result is bounded by the size of their input; `center`, for one, is not."""

_WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"})
"""Methods of str that can produce megabytes from a small number."""


class JinjaTemplate:
    """One prompt. Raises BadTemplate if it is not valid."""

    def __init__(self, source: str) -> None:
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise BadTemplate(f"Line {error.lineno} of the template: {error.message}.") from None
        except (jinja2.TemplateError, RecursionError) as error:
            raise BadTemplate(f"This is not a valid template: {error}.") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Render. Blocks; raises NotRendered, and RenderLimit if a limit is exceeded."""
        try:
            return _limited(lambda: self._template.generate(**context, it=dict(context)))
        except (RenderLimit, SecurityError, MemoryError, RecursionError) as error:
            raise RenderLimit(f"The template was stopped: {error}") from None
        except Exception as error:
            # A template can raise anything; its author has to fix it.
            raise NotRendered(f"The template failed: {type(error).__name__}: {error}") from None


def _limited(chunks: Callable[[], Iterator[str]]) -> str:
    deadline = time.monotonic() + LONGEST_RENDER

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        if time.monotonic() > deadline:
            raise RenderLimit(f"it took longer than {LONGEST_RENDER:g} s.")

        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        return "".join(_within_bounds(chunks()))
    finally:
        sys.settrace(before)


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and attribute in _WIDENING:
            return self.unsafe_undefined(obj, attribute)

        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, str) and argument in _WIDENING:
            return self.unsafe_undefined(obj, argument)

        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "+":
            if not numbers and _length(left) + _length(right) > LARGEST_PROMPT:
                raise RenderLimit(f"it produced more than {LARGEST_PROMPT} characters.")
        elif not numbers or (operator == "**" and abs(right) > 64):
            raise RenderLimit(f"{operator!r} only works with numbers.")

        return super().call_binop(context, operator, left, right)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _written(value: Any) -> Any:
    """Return the form of a value in a prompt: JSON, not Python's repr."""
    if value is None:
        return ""

    return _json(value) if isinstance(value, bool | dict | list | tuple) else value


def _json(value: Any, indent: int | None = None) -> str:
    if indent is None and isinstance(value, list | tuple):
        # Element by element: a single call for megabytes would block every other thread.
        return f"[{', '.join(_within_bounds(map(_json, value)))}]"

    try:
        return json.dumps(value, indent=indent and min(int(indent), 8), ensure_ascii=False)
    except TypeError:
        raise NotRendered(f"a {type(value).__name__} cannot be written as JSON.") from None


def _within_bounds(parts: Iterable[str]) -> Iterator[str]:
    size = 0
    for part in parts:
        size += len(part)
        if size > LARGEST_PROMPT:
            raise RenderLimit(f"it produced more than {LARGEST_PROMPT} characters.")

        yield part


def _fixed(value: float, digits: int = 0) -> str:
    return f"{float(value):.{min(max(int(digits), 0), 20)}f}"


def _environment() -> _Sandbox:
    environment = _Sandbox(finalize=_written, keep_trailing_newline=True, autoescape=False)
    kept = {name: environment.filters[name] for name in _FILTERS}
    environment.filters = {**kept, "tojson": _json, "json": _json, "fixed": _fixed}
    for name in ("lipsum", "cycler", "joiner"):
        del environment.globals[name]

    return environment


_ENVIRONMENT = _environment()
