"""Claims about prompts in jinja: the names they see, and the limits they stay within."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.sentinels.templates.base import BadTemplate, NotRendered, RenderLimit
from hankweave_server.sentinels.templates.jinja import JinjaTemplate
from support.outcomes import outcome

EVENTS = [
    {"type": "tool.result", "data": {"toolName": "Bash", "isError": True, "items": 3}},
    {"type": "file.updated", "data": {"path": "a.md", "isError": False, "items": 4}},
]
CONTEXT: dict[str, Any] = {
    "events": EVENTS,
    "codon": {"id": "observe#0", "name": "Observe"},
    "world": {"currentTime": "now"},
}


def rendered(source: str) -> str:
    return JinjaTemplate(source).render(CONTEXT)


def test_jinja_sees_the_same_names_as_eta() -> None:
    """The names are available directly, and again in `it`."""
    source = "{% for e in events %}{{ e.data.path or '-' }}{% endfor %} {{ it.codon.id }}"
    assert rendered(source) == "-a.md observe#0"
    assert rendered("{{ events[0] | tojson }}") == json.dumps(EVENTS[0])


@given(st.text())
def test_any_text_is_a_template_or_is_refused(text: str) -> None:
    """For any text, the loader raises no other exception."""
    template = outcome(BadTemplate, JinjaTemplate, text)
    assert not isinstance(template, BadTemplate) or str(template)


def test_a_syntax_error_is_found_at_loading() -> None:
    """The message has the number of the faulty line."""
    with pytest.raises(BadTemplate, match="Line 2"):
        JinjaTemplate("fine\n{% if %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ 'x' * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 2 ** 100000 }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:1000000000}'['format'](1) }}",
        "{% for i in range(90000) %}{{ 'x' * 1 }}{{ '" + "y" * 200 + "' }}{% endfor %}",
        "{% for i in range(99999999) %}{% endfor %}",
        "{{ events.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    """Neither the interpreter nor the memory can be reached from a template."""
    with pytest.raises(NotRendered):
        rendered(source)


def test_a_template_is_stopped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that writes and calls nothing, but would run for hours, is stopped as well."""
    monkeypatch.setattr("hankweave_server.sentinels.templates.jinja.LONGEST_RENDER", 0.1)
    with pytest.raises(RenderLimit):
        rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
